//! One entry into V8 for some calls of the request. The runtime's thread.
//!
//! An entry that is stopped costs the tenant its context, which is made anew from the libraries. So
//! no call sees what a stopped one left behind. The calls behind it enter again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::Runtime;
use super::running_batch::RunningBatch;
use crate::fiber::user_code::{UserCode, UserOutcome};
use crate::fiber::{Entered, Wreck};
use crate::io::{self, word_of};
use crate::isolate::lingering::CallName;
use crate::{error_reply, ffi};

impl Runtime {
    /// Enters V8 once for `calls` of the request; how many got their replies.
    pub(super) fn enter(
        &mut self,
        context: *mut ffi::RawContext,
        batch: &mut RunningBatch<'_>,
        calls: Range<usize>,
    ) -> usize {
        let (first, count) = (calls.start, calls.len());
        let state = self.isolate.take_states(count);
        self.fill_in(batch, calls, state);
        self.isolate.watchdog().wake();
        #[expect(clippy::cast_precision_loss, reason = "Unix ms are far below 2^53")]
        let now_ms = batch.now_ms as f64;
        let entered = self.isolate.enter(UserCode::Run { context, now_ms });
        batch.look_at_clock();
        self.isolate.bridge().take_back();
        self.stats.batches += 1;

        let done = io::size_of(self.isolate.io.word(io::OUT_DONE)).min(count);
        self.deliver(batch, first, done);
        self.note_overlays(batch, first..first + done);
        self.stats.calls += done as u64;
        if let Entered::Back(UserOutcome::Ran(ffi::OUTCOME_DONE)) = entered {
            self.isolate.relieve();
            return done;
        }
        if matches!(entered, Entered::Back(_)) && done == count {
            // The agreement allows no stop behind the last call, whose reply stands.
            tracing::error!("a stop came behind the last call of an entry");
            self.drop_context(batch.tenant);
            self.isolate.recover(state + word_of(count));
            return done;
        }
        self.stats.calls += 1;
        self.stats.errors += 1;
        let call = state + word_of(done);
        let reply = match entered {
            Entered::Back(UserOutcome::Ran(outcome)) => {
                self.stopped(batch, first + done, call, outcome)
            }
            Entered::Back(UserOutcome::Installed(_)) => unreachable!("calls were to be run"),
            Entered::Lost(grave) => self.lost(batch, first + done, call, &grave),
        };
        batch.give(batch.entered[first + done], &reply);
        done + 1
    }

    /// Tells the dispatcher, the callbacks and the watchdog which calls run next. The first one has
    /// the number `state`.
    fn fill_in(&mut self, batch: &mut RunningBatch<'_>, calls: Range<usize>, state: i32) {
        let first = calls.start;
        let functions = &self.tenants[batch.tenant.0 as usize].functions;
        let io = self.isolate.io;
        io.set_word(io::IN_FIRST_STATE, state);
        io.set_word(io::IN_FIRST_INDEX, word_of(batch.entered[first]));
        io.set_word(io::IN_FIRST_HEAD, self.request.heads[first]);
        io.set_word(io::IN_COUNT, word_of(calls.len()));
        io.set_word(io::IN_FLUSH_BYTES, word_of(batch.flush_bytes()));
        io.set_word(io::OUT_DONE, 0);
        let bridge = self.isolate.bridge();
        bridge.first = first;
        bridge.lend(batch.host);
        if !Arc::ptr_eq(&bridge.functions, functions) {
            bridge.functions = Arc::clone(functions);
        }
        bridge.failed.clear();
        let ids = std::mem::take(&mut bridge.ids);
        self.isolate.watchdog().watch.set_names(|names| {
            if !Arc::ptr_eq(&names.functions, functions) {
                names.functions = Arc::clone(functions);
            }
            names.first = state;
            names.until = batch.until;
            names.ids.clear();
            names.ids.extend_from_slice(&ids[calls]);
        });
        self.isolate.bridge().ids = ids;
    }

    /// Notes the overlay that is in the context once these calls have run.
    fn note_overlays(&mut self, batch: &mut RunningBatch<'_>, calls: Range<usize>) {
        let overlays = &self.request.overlays[calls];
        let Some(last) = overlays.last().copied() else { return };
        batch.overlays -= overlays.iter().filter(|has| **has).count();
        self.state(batch.tenant).holds_overlay = last;
    }

    /// The error reply of the call that ended an entry. Drops its context.
    fn stopped(&mut self, batch: &RunningBatch<'_>, at: usize, call: i32, outcome: i32) -> Vec<u8> {
        let id = self.isolate.bridge().ids[at];
        let functions = Arc::clone(&self.state(batch.tenant).functions);
        let name = functions.by_id(id).map_or("", |callable| callable.name.as_str());
        self.drop_context(batch.tenant);
        // It may have written up to the end of both parts.
        let io = self.isolate.io;
        io.set_word(io::OUT_END, word_of(io::RESPONSE_AT + io::RESPONSE_ROOM));
        io.set_word(io::OUT_WRITE_HIGH, word_of(io::WRITES_AT + io::WRITES_ROOM));
        if outcome == ffi::OUTCOME_STOPPED || !self.isolate.settle(call) {
            let cause = self.isolate.recover(call);
            self.count_stop(cause);
            return error_reply::stopped(name, cause, &self.limits);
        }
        // The dispatcher catches all that a function throws, so this is a mistake of ours.
        tracing::error!(function = name, "an exception left the dispatcher");
        error_reply::reply(&format!("ERR internal error in function '{name}'"))
    }

    /// The error reply of the call that V8 doesn't leave.
    fn lost(
        &mut self,
        batch: &RunningBatch<'_>,
        at: usize,
        call: i32,
        grave: &Sender<Wreck>,
    ) -> Vec<u8> {
        let id = self.isolate.bridge().ids[at];
        let functions = Arc::clone(&self.state(batch.tenant).functions);
        let (library, name) = functions.by_id(id).map_or_else(Default::default, |callable| {
            (callable.library.to_string(), callable.name.clone())
        });
        let installed = self.state(batch.tenant).libraries.get(&library);
        let source = installed.map_or_else(Arc::default, |installed| Arc::clone(&installed.source));
        let (tenant, function) = (batch.tenant, name.clone());
        let cause = self.lose_isolate(call, grave, CallName { tenant, library, function, source });
        self.count_stop(cause);
        error_reply::stopped(&name, cause, &self.limits)
    }
}
