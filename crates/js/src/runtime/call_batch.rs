//! Runs a batch of calls: request, entries into V8, replies. The runtime's thread.
//!
//! ```text
//! call ─┬─ admitted ── into the request ── it is full, or the last call is in ── run_request
//!       └─ refused ─── run_request for the calls before it ── its error reply
//! run_request ── starts libraries, enters V8 ── replies
//! ```
//!
//! 1. Each call gets its reply exactly once, in the order of the calls.
//! 2. A batch ends early once its replies are as long, or its calls have taken as much time, as the
//!    caller wants at once. The replies may be longer by one result.
//! 3. A call that ends [`UNSTABLE`](crate::UNSTABLE) is the last one of its batch: no call behind
//!    it has written when it runs again.

use std::sync::Arc;

use super::Runtime;
use super::running_batch::{RunningBatch, TakeReply};
use crate::caller::fcall::{Call, RunTurn, Tenant};
use crate::caller::host_trait::Host;
use crate::io::call_writer::How;
use crate::io::{self, word_of};
use crate::{error_reply, ffi};

/// The last admitted function of a batch: name, number, and how it runs.
type LastFunction<'a> = Option<(&'a [u8], u32, How)>;

fn too_long() -> Vec<u8> {
    error_reply::reply(&format!(
        "ERR keys and arguments of a function are longer than {} bytes together",
        io::REQUEST_ROOM
    ))
}

impl Runtime {
    /// Runs `calls` in order; `reply` gets each one's index and its whole RESP reply, in order.
    /// Returns how many have run: all, unless the replies are longer than [`RunTurn::reply_bytes`],
    /// or the time is over, or one was [`UNSTABLE`](crate::UNSTABLE).
    pub fn run<'a>(
        &mut self,
        tenant: Tenant,
        calls: &[Call<'a>],
        turn: RunTurn,
        host: &mut dyn Host,
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> usize {
        let mut batch = self.begin(tenant, turn, host, reply);
        batch.overlays = calls.iter().filter(|call| call.overlay.is_there()).count();
        let partitions = self.state(tenant).arenas.partitions();
        // Calls of a batch are often of one function.
        let mut last: LastFunction<'a> = None;
        for (index, call) in calls.iter().enumerate() {
            assert!(call.partition < partitions, "partition {} of {partitions}", call.partition);
            assert!(
                !call.overlay.continues || self.state(tenant).holds_overlay,
                "an overlay continues one that is there"
            );
            let goes_on = match self.admit_after(tenant, call, &mut last) {
                Ok((id, how)) => self.put_into_request(&mut batch, index, call, id, how),
                Err(refusal) => self.refuse(&mut batch, index, &refusal),
            };
            if !goes_on {
                break;
            }
        }
        self.run_request(&mut batch);
        self.end(batch)
    }

    /// The partitions, a bit for each, that the [`UNSTABLE`](crate::UNSTABLE) call of the last
    /// [`Runtime::run`] couldn't tell; 0 if there was none.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Whether the tenant's context still has the overlay of the last call. If so, the next call of
    /// the same transaction needs to bring only new entries.
    #[must_use]
    pub fn holds_overlay(&self, tenant: Tenant) -> bool {
        self.tenants[tenant.0 as usize].holds_overlay
    }

    /// Fills the request with `calls` once and enters V8 for it `times` times, without handing out
    /// the replies: the cost of an entry itself. For benches; no call may write.
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
        io.set_word(io::IN_COUNT, word_of(calls.len()));
        io.set_word(io::IN_FLUSH_BYTES, word_of(io::RESPONSE_FLUSH));
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

    fn begin<'b>(
        &mut self,
        tenant: Tenant,
        turn: RunTurn,
        host: &'b mut dyn Host,
        reply: TakeReply<'b>,
    ) -> RunningBatch<'b> {
        self.turn += 1;
        self.untold = 0;
        self.set_inputs(turn);
        self.request.clear();
        let bridge = self.isolate.bridge();
        bridge.ids.clear();
        bridge.begin(tenant.0, turn.now_ms, host);
        let mut entered = std::mem::take(&mut self.entered);
        entered.clear();
        RunningBatch::new(tenant, turn, host, reply, entered)
    }

    /// How many calls of the batch have run.
    fn end(&mut self, batch: RunningBatch<'_>) -> usize {
        if batch.overlays > 0 {
            // The context lacks the entries of a call that was refused.
            self.state(batch.tenant).holds_overlay = false;
        }
        self.entered = batch.entered;
        self.isolate.bridge().now_ms = None;
        let scan_end = std::mem::take(&mut self.isolate.bridge().scan_end);
        self.isolate.io.trim(self.request.take_high(), scan_end);
        if self.isolate.has_used_up_states() {
            self.drop_contexts();
            self.isolate.renew_states();
        }
        batch.answered
    }

    /// Number and manner of the function of `call`, which comes after one of `last`; or the error
    /// reply.
    fn admit_after<'a>(
        &self,
        tenant: Tenant,
        call: &Call<'a>,
        last: &mut LastFunction<'a>,
    ) -> Result<(u32, How), Vec<u8>> {
        let known = last
            .filter(|(name, _, how)| *name == call.function && (how.no_writes || !call.read_only));
        let (id, how) =
            known.map_or_else(|| self.admit(tenant, call), |(_, id, how)| Ok((id, how)))?;
        self.limit_arguments(call)?;
        *last = Some((call.function, id, how));
        Ok((id, how))
    }

    /// Puts a call into the request. If there is no room, the calls before it run first. False if
    /// the batch has enough then.
    fn put_into_request(
        &mut self,
        batch: &mut RunningBatch<'_>,
        index: usize,
        call: &Call<'_>,
        id: u32,
        how: How,
    ) -> bool {
        if !self.request.push(&self.isolate.io, call, id, how) {
            self.run_request(batch);
            if batch.has_enough() {
                return false;
            }
            if !self.request.push(&self.isolate.io, call, id, how) {
                self.stats.errors += 1;
                batch.give(index, &too_long());
                return true;
            }
        }
        batch.entered.push(index);
        self.isolate.bridge().ids.push(id);
        true
    }

    /// Answers a call with an error reply, once the calls before it have run. False if the batch
    /// has enough before that.
    fn refuse(&mut self, batch: &mut RunningBatch<'_>, index: usize, refusal: &[u8]) -> bool {
        self.run_request(batch);
        if batch.has_enough() {
            return false;
        }
        self.stats.errors += 1;
        batch.give(index, refusal);
        true
    }

    fn set_inputs(&mut self, turn: RunTurn) {
        let io = &self.isolate.io;
        io.set_now(turn.now_ms);
        io.set_wide(io::IN_SEED, turn.random_seed);
        io.set_wide(io::IN_STILL, turn.still);
        io.set_word(io::IN_RESULT_BYTES, word_of(self.limits.result_bytes));
        io.set_word(io::IN_RESULT_DEPTH, word_of(self.limits.result_depth as usize));
        io.set_word(io::IN_WRITE_BYTES, word_of(self.limits.write_set_bytes));
        io.set_word(io::IN_WRITE_KEYS, word_of(self.limits.write_set_keys as usize));
    }

    /// Runs the calls of the request until each has its reply, or the batch has enough; then
    /// empties the request.
    fn run_request(&mut self, batch: &mut RunningBatch<'_>) {
        let count = batch.entered.len();
        let mut done = 0;
        while done < count && !batch.has_enough() {
            if self.isolate.watchdog().watch.is_closing() {
                self.refuse_closing(batch, done);
                break;
            }
            let context = match self.ensure_context(batch.tenant) {
                Ok(context) => context,
                Err(reason) => {
                    let refusal = error_reply::reply(&format!("ERR {reason}"));
                    for call in done..count {
                        self.stats.errors += 1;
                        batch.give(batch.entered[call], &refusal);
                    }
                    break;
                }
            };
            let state = &self.tenants[batch.tenant.0 as usize];
            let waiting = &self.isolate.bridge().ids[done..count];
            let next = waiting[0];
            let ready = waiting.iter().take_while(|&&id| state.is_started(id)).count();
            if ready > 0 {
                done += self.enter(context, batch, done..done + ready);
            } else if let Err(refusal) = self.start_for(batch.tenant, context, next) {
                self.stats.errors += 1;
                batch.give(batch.entered[done], &refusal);
                batch.look_at_clock();
                done += 1;
            }
        }
        batch.entered.clear();
        self.request.clear();
        self.isolate.bridge().ids.clear();
    }

    /// Answers the calls of the request from `first` on: the server stops.
    fn refuse_closing(&mut self, batch: &mut RunningBatch<'_>, first: usize) {
        let functions = Arc::clone(&self.state(batch.tenant).functions);
        for call in first..batch.entered.len() {
            let id = self.isolate.bridge().ids[call];
            let name = functions.by_id(id).map_or("", |callable| callable.name.as_str());
            self.stats.kills += 1;
            self.stats.errors += 1;
            batch.give(batch.entered[call], &error_reply::closing(name));
        }
    }

    /// Starts the library of function `id`; or the error reply. The context may be gone after this.
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
}
