//! The way of a batch: calls → request → one entry into V8 → response → replies. The runtime's
//! thread.
//!
//! 1. Replies come in the order of the calls, each exactly once, until they are as long as the
//!    caller wants at a time. They may be longer by one result. So it is with the time that the
//!    calls take. A call that ends [`UNSTABLE`](crate::UNSTABLE) is the last, so that none behind
//!    it has written when it runs again.
//! 2. An entry that is stopped costs the tenant its context (it is made anew from the libraries):
//!    nothing that the stopped call left behind is seen by another one. The calls after it enter
//!    again.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::caller::fcall::{Call, RunTurn, Tenant};
use crate::caller::function_limits::Limits;
use crate::caller::host_trait::Host;
use crate::ffi;
use crate::fiber::user_code::{Entry, Outcome};
use crate::fiber::{Entered, Wreck};
use crate::io;
use crate::io::call_writer::How;
use crate::runtime::Runtime;
use crate::runtime::deliver::Flight;
use crate::runtime::library_start::erase;
use crate::tenant::TenantState;
use crate::{error_reply, tenant};

fn too_long() -> Vec<u8> {
    error_reply::reply(&format!(
        "ERR keys and arguments of a function are longer than {} bytes together",
        io::REQUEST_ROOM
    ))
}

impl Runtime {
    /// Runs `calls` in order; `reply` gets each one's index and its whole RESP reply, in order. How
    /// many have run: all, unless the replies are longer than [`RunTurn::reply_bytes`], or the time
    /// is over, or one was [`UNSTABLE`](crate::UNSTABLE).
    pub fn run<'a>(
        &mut self,
        tenant: Tenant,
        calls: &[Call<'a>],
        turn: RunTurn,
        host: &mut dyn Host,
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> usize {
        self.turn += 1;
        self.untold = 0;
        self.set_inputs(turn);
        // Calls of a batch are often of one function.
        let mut last: Option<(&[u8], u32, How)> = None;
        self.request.clear();
        let bridge = self.isolate.bridge();
        bridge.ids.clear();
        bridge.begin(tenant.0, turn.now_ms, host);
        let mut entered = std::mem::take(&mut self.entered);
        entered.clear();
        let overlays = calls.iter().filter(|call| call.overlay.is_there()).count();
        let mut flight = Flight {
            tenant,
            now_ms: turn.now_ms,
            entered,
            overlays,
            host,
            reply,
            answered: 0,
            bytes: 0,
            enough: turn.reply_bytes,
            until: Instant::now().checked_add(turn.time),
            is_late: false,
            is_untold: false,
        };
        let partitions = self.state(tenant).keyspace.partitions();
        for (index, call) in calls.iter().enumerate() {
            assert!(call.partition < partitions, "partition {} of {partitions}", call.partition);
            assert!(
                !call.overlay.continues || self.state(tenant).holds_overlay,
                "an overlay continues one that is there"
            );
            let known = last.filter(|(name, _, how)| {
                *name == call.function && (how.no_writes || !call.read_only)
            });
            let admitted =
                known.map_or_else(|| self.admit(tenant, call), |(_, id, how)| Ok((id, how)));
            match admitted.and_then(|found| self.limit_arguments(call).map(|()| found)) {
                Ok((id, how)) => {
                    last = Some((call.function, id, how));
                    if !self.request.push(&self.isolate.io, call, id, how) {
                        self.fly(&mut flight);
                        if flight.has_enough() {
                            break;
                        }
                        if !self.request.push(&self.isolate.io, call, id, how) {
                            self.stats.errors += 1;
                            flight.give(index, &too_long());
                            continue;
                        }
                    }
                    flight.entered.push(index);
                    self.isolate.bridge().ids.push(id);
                }
                Err(refusal) => {
                    self.fly(&mut flight);
                    if flight.has_enough() {
                        break;
                    }
                    self.stats.errors += 1;
                    flight.give(index, &refusal);
                }
            }
        }
        self.fly(&mut flight);
        if flight.overlays > 0 {
            // It lacks what a call that was refused brought.
            self.state(tenant).holds_overlay = false;
        }
        self.entered = flight.entered;
        self.isolate.bridge().now_ms = None;
        let response_end = usize::try_from(self.isolate.io.word(io::OUT_END)).unwrap_or(0);
        let scan_end = std::mem::take(&mut self.isolate.bridge().scan_end);
        self.isolate.io.trim(self.request.end(), response_end, scan_end);
        flight.answered
    }

    /// The partitions, a bit for each, of which the last [`Runtime::run`]'s
    /// [`UNSTABLE`](crate::UNSTABLE) call couldn't be told; 0 if there was none.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Whether the tenant's context still has the overlay of the last call, so that the next one of
    /// the same transaction needs to bring only what is new.
    #[must_use]
    pub fn holds_overlay(&self, tenant: Tenant) -> bool {
        self.tenants[tenant.0 as usize].holds_overlay
    }

    /// Whether there is such a function, and it may be called so; else [`Runtime::run`] answers why
    /// not.
    #[must_use]
    pub fn admits(&self, tenant: Tenant, call: &Call<'_>) -> bool {
        self.admit(tenant, call).is_ok()
    }

    /// Fills the request with `calls` once and enters V8 for it `times` times, without handing out
    /// the replies: what an entry itself costs. For benches; no call may write.
    #[cfg(feature = "bench-callback")]
    pub fn enter_only(&mut self, tenant: Tenant, calls: &[Call<'_>], turn: RunTurn, times: u64) {
        self.set_inputs(turn);
        self.request.clear();
        for call in calls {
            let (id, how) = self.admit(tenant, call).expect("an installed function");
            assert!(self.request.push(&self.isolate.io, call, id, how));
        }
        let context = self.ensure_context(tenant).expect("a context");
        let io = self.isolate.io;
        io.set_word(io::IN_COUNT, tenant::number(calls.len()).cast_signed());
        io.set_word(io::IN_FLUSH_BYTES, tenant::number(io::RESPONSE_FLUSH).cast_signed());
        for _ in 0..times {
            let state = self.isolate.take_states(calls.len());
            io.set_word(io::IN_FIRST_STATE, state);
            io.set_word(io::IN_FIRST_INDEX, 0);
            io.set_word(io::IN_FIRST_HEAD, self.request.heads[0]);
            io.set_word(io::OUT_DONE, 0);
            // SAFETY: a live context of our isolate, on its thread; request and inputs are filled
            // in.
            let outcome = unsafe { ffi::nigh_run(context, 0.0) };
            assert_eq!(outcome, ffi::OUTCOME_DONE);
        }
        self.request.clear();
    }

    /// The function's number and how it runs; or the error reply.
    fn admit(&self, tenant: Tenant, call: &Call<'_>) -> Result<(u32, How), Vec<u8>> {
        let TenantState { functions, keyspace, .. } = &self.tenants[tenant.0 as usize];
        let id = functions.id(call.function);
        let Some((id, callable)) = id.and_then(|id| Some((id, functions.by_id(id)?))) else {
            return Err(error_reply::reply("ERR Function not found"));
        };
        if call.read_only && !callable.no_writes {
            return Err(error_reply::reply(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        if self.lingers(tenant, &callable.library, &callable.name) {
            return Err(error_reply::lingers(&callable.name));
        }
        let (no_writes, cross_slot) = (callable.no_writes, callable.cross_slot);
        Ok((id, How { no_writes, cross_slot, stable: keyspace.is_foreign() }))
    }

    /// The error reply if a call has more arguments than may be decoded: that isn't part of its
    /// time.
    fn limit_arguments(&self, call: &Call<'_>) -> Result<(), Vec<u8>> {
        let Limits { arguments, argument_bytes, .. } = self.limits;
        let count = call.keys.len() + call.args.len();
        let bytes: usize = call.keys.iter().chain(call.args).map(|text| text.len()).sum();
        let (much, limit, setting) = if count > arguments as usize {
            (count.to_string(), arguments.to_string(), "function-arguments-limit")
        } else if bytes > argument_bytes {
            (
                format!("{bytes} bytes of"),
                argument_bytes.to_string(),
                "function-arguments-limit-bytes",
            )
        } else {
            return Ok(());
        };
        Err(error_reply::reply(&format!(
            "ERR the call has {much} keys and arguments, more than {limit} (setting: {setting})"
        )))
    }

    fn set_inputs(&mut self, turn: RunTurn) {
        let io = &self.isolate.io;
        let word = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        io.set_now(turn.now_ms);
        #[expect(clippy::cast_possible_truncation, reason = "split in two words")]
        let low = turn.random_seed as u32;
        let high = (turn.random_seed >> 32) as u32;
        io.set_word(io::IN_SEED_LOW, low.cast_signed());
        io.set_word(io::IN_SEED_HIGH, high.cast_signed());
        #[expect(clippy::cast_possible_truncation, reason = "split in two words")]
        let low = turn.still as u32;
        let high = (turn.still >> 32) as u32;
        io.set_word(io::IN_STILL_LOW, low.cast_signed());
        io.set_word(io::IN_STILL_HIGH, high.cast_signed());
        io.set_word(io::IN_RESULT_BYTES, word(self.limits.result_bytes));
        io.set_word(io::IN_RESULT_DEPTH, word(self.limits.result_depth as usize));
        io.set_word(io::IN_WRITE_BYTES, word(self.limits.write_set_bytes));
        io.set_word(io::IN_WRITE_KEYS, word(self.limits.write_set_keys as usize));
    }

    /// Runs the calls in the request until each has its reply, or that is enough for now, and
    /// empties it.
    fn fly(&mut self, flight: &mut Flight<'_>) {
        let count = flight.entered.len();
        let mut done = 0;
        while done < count && !flight.has_enough() {
            if self.isolate.watchdog().watch.is_closing() {
                self.refuse(flight, done);
                break;
            }
            let context = match self.ensure_context(flight.tenant) {
                Ok(context) => context,
                Err(reason) => {
                    let refusal = error_reply::reply(&format!("ERR {reason}"));
                    for call in done..count {
                        self.stats.errors += 1;
                        flight.give(flight.entered[call], &refusal);
                    }
                    break;
                }
            };
            let state = &self.tenants[flight.tenant.0 as usize];
            let waiting = &self.isolate.bridge().ids[done..count];
            let next = waiting[0];
            let ready = waiting.iter().take_while(|&&id| state.is_started(id)).count();
            if ready > 0 {
                done += self.enter(context, flight, done..done + ready);
            } else if let Err(refusal) = self.start_for(flight.tenant, context, next) {
                self.stats.errors += 1;
                flight.give(flight.entered[done], &refusal);
                flight.look_at_clock();
                done += 1;
            }
        }
        flight.entered.clear();
        self.request.clear();
        self.isolate.bridge().ids.clear();
    }

    /// Answers the calls from `first` on: the server stops.
    fn refuse(&mut self, flight: &mut Flight<'_>, first: usize) {
        let functions = Arc::clone(&self.state(flight.tenant).functions);
        for call in first..flight.entered.len() {
            let id = self.isolate.bridge().ids[call];
            let name = functions.by_id(id).map_or("", |callable| callable.name.as_str());
            self.stats.kills += 1;
            self.stats.errors += 1;
            flight.give(flight.entered[call], &error_reply::closing(name));
        }
    }

    /// Starts the library of a function; or the error reply. The context may be gone after that.
    fn start_for(
        &mut self,
        tenant: Tenant,
        context: *mut ffi::RawContext,
        id: u32,
    ) -> Result<(), Vec<u8>> {
        let functions = &self.tenants[tenant.0 as usize].functions;
        let library = Arc::clone(&functions.by_id(id).expect("it was admitted").library);
        self.start_library(tenant, context, &library).map_err(|reason| {
            error_reply::reply(&format!("ERR library '{library}' does not start: {reason}"))
        })
    }

    /// One entry into V8 for some calls of the request; how many got their replies.
    fn enter(
        &mut self,
        context: *mut ffi::RawContext,
        flight: &mut Flight<'_>,
        calls: std::ops::Range<usize>,
    ) -> usize {
        let (first, count) = (calls.start, calls.len());
        let state = self.isolate.take_states(count);
        let functions = &self.tenants[flight.tenant.0 as usize].functions;
        let io = self.isolate.io;
        io.set_word(io::IN_FIRST_STATE, state);
        io.set_word(io::IN_FIRST_INDEX, tenant::number(flight.entered[first]).cast_signed());
        io.set_word(io::IN_FIRST_HEAD, self.request.heads[first]);
        io.set_word(io::IN_COUNT, tenant::number(count).cast_signed());
        io.set_word(io::IN_FLUSH_BYTES, tenant::number(flight.flush_bytes()).cast_signed());
        io.set_word(io::OUT_DONE, 0);
        let bridge = self.isolate.bridge();
        bridge.first = first;
        bridge.host = Some(erase(flight.host));
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
            names.until = flight.until;
            names.ids.clear();
            names.ids.extend_from_slice(&ids[calls]);
        });
        self.isolate.bridge().ids = ids;
        self.isolate.watchdog().wake();
        #[expect(clippy::cast_precision_loss, reason = "Unix ms are far below 2^53")]
        let now_ms = flight.now_ms as f64;
        let entered = self.isolate.enter(Entry::Run { context, now_ms });
        flight.look_at_clock();
        self.isolate.bridge().host = None;
        self.stats.batches += 1;

        let done = usize::try_from(io.word(io::OUT_DONE)).unwrap_or(0).min(count);
        self.deliver(flight, first, done);
        self.note_overlays(flight, first..first + done);
        self.stats.calls += done as u64;
        if let Entered::Back(Outcome::Ran(ffi::OUTCOME_DONE)) = entered {
            self.isolate.relieve();
            return done;
        }
        self.stats.calls += 1;
        self.stats.errors += 1;
        let call = state + i32::try_from(done).unwrap_or(0);
        let reply = match entered {
            Entered::Back(Outcome::Ran(outcome)) => {
                self.stopped(flight, first + done, call, outcome)
            }
            Entered::Back(Outcome::Installed(_)) => unreachable!("calls were to be run"),
            Entered::Lost(grave) => self.lost(flight, first + done, call, &grave),
        };
        flight.give(flight.entered[first + done], &reply);
        done + 1
    }

    /// The error reply of the call that V8 doesn't leave.
    fn lost(
        &mut self,
        flight: &Flight<'_>,
        at: usize,
        call: i32,
        grave: &Sender<Wreck>,
    ) -> Vec<u8> {
        let id = self.isolate.bridge().ids[at];
        let functions = Arc::clone(&self.state(flight.tenant).functions);
        let (library, name) = functions.by_id(id).map_or_else(Default::default, |callable| {
            (callable.library.to_string(), callable.name.clone())
        });
        let cause = self.lose_isolate(call, grave, (flight.tenant, library, name.clone()));
        self.count_stop(cause);
        error_reply::stopped(&name, cause, &self.limits)
    }

    /// Notes what became of the overlays when these calls have run.
    fn note_overlays(&mut self, flight: &mut Flight<'_>, calls: std::ops::Range<usize>) {
        let overlays = &self.request.overlays[calls];
        let Some(last) = overlays.last().copied() else { return };
        flight.overlays -= overlays.iter().filter(|has| **has).count();
        self.state(flight.tenant).holds_overlay = last;
    }

    /// The error reply of the call that ended an entry; its context is gone after this.
    fn stopped(&mut self, flight: &Flight<'_>, at: usize, call: i32, outcome: i32) -> Vec<u8> {
        let id = self.isolate.bridge().ids[at];
        let functions = Arc::clone(&self.state(flight.tenant).functions);
        let name = functions.by_id(id).map_or("", |callable| callable.name.as_str());
        self.drop_context(flight.tenant);
        // How far it wrote before it was stopped is not known.
        let io = self.isolate.io;
        io.set_word(io::OUT_END, i32::try_from(io::RESPONSE_AT + io::RESPONSE_ROOM).unwrap_or(0));
        io.set_word(
            io::OUT_WRITE_HIGH,
            i32::try_from(io::WRITES_AT + io::WRITES_ROOM).unwrap_or(0),
        );
        if outcome == ffi::OUTCOME_STOPPED || !self.isolate.settle(call) {
            let cause = self.isolate.recover(call);
            self.count_stop(cause);
            return error_reply::stopped(name, cause, &self.limits);
        }
        // The dispatcher catches all that a function throws, so this is a mistake of ours.
        tracing::error!(function = name, "an exception left the dispatcher");
        error_reply::reply(&format!("ERR internal error in function '{name}'"))
    }
}
