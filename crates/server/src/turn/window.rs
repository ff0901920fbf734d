//! A window of commands: looked up, asked for, and executed while their cache misses overlap.
//!
//! ```text
//! pass 1  prefetch the index lines
//! pass 2  prefetch the records
//! pass 3  execute in order: quickly │ sent to its owner │ put aside for the batch of functions │ with all checks
//! ```
//!
//! 1. Quick commands are measured a window at a time and share its time; others, and all if the
//!    slow log asks for less than a millisecond, each by themselves. For the slow log those of many
//!    keys are too. A clock read costs some 30 ns, a GET 300.
//! 2. A command that has to wait leaves its party stopped at it, so that what follows waits too.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::WRITE;
use crate::commands::{self, Builtin, Resolved, Row, Run};
use crate::handlers::route::{self, Effect, Target};
use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::output::{Mark, ReplyWriter};
use crate::net::pipeline::{Pending, Pipeline};
use crate::state::place::Place;
use crate::tenant::TenantId;
use crate::turn::budget;
use crate::turn::call_queue::WaitingCall;
use crate::turn::prepared::{LARGE_INPUT_BYTES, Prepared};
use crate::turn::run::log_party_if_slow;
use crate::turn::work::{CALLS_AT_ONCE, Work};
use nigh_store::{Lack, Op, Scarce, Store, Turn};
use std::time::Instant;

/// Arguments of a quick command that are gathered without an allocation.
const FEW_ARGS: usize = 8;

impl Work {
    /// The three passes over the window.
    pub(crate) fn run_window(&mut self, turn: &Turn<'_>) {
        if self.window.prepared.is_empty() {
            return;
        }
        for looks in self.window.looks.chunk_by(|a, b| a.tenant == b.tenant) {
            let keyspace = &self.state.tenants[looks[0].tenant].keyspace;
            Store::prefetch(looks.iter().map(|look| (keyspace.part(look.partition), look.hash)));
        }
        self.window.looks.clear();
        self.window.windows_ran += 1;
        if let Some(at) = self.window.sampler.pick(self.window.prepared.len()) {
            self.sample(self.window.prepared[at]);
        }
        let began = Instant::now();
        let mut slow_ns = 0;
        let mut quick = 0;
        let mut window = std::mem::take(&mut self.window.prepared);
        let mut reads = 0;
        for (at, prepared) in window.iter().enumerate() {
            debug_assert!(self.state.tenants.is_touched(prepared.tenant), "see `dirty_set`, 1");
            if self.active[prepared.party].stopped {
                continue; // each that follows too: see 2
            }
            if self.budget.is_used() && self.is_put_off(prepared, turn) {
                self.put_off(prepared.party);
                continue;
            }
            if !self.state.logs.is_open() && self.waits_for_log(prepared) {
                continue;
            }
            if self.run_quick(prepared, turn) {
                quick += 1;
                reads |= u64::from(self.is_noted_later(prepared)) << at;
            } else if !self.send_away(prepared) && !self.put_aside(prepared) {
                let began = Instant::now();
                self.run_other(*prepared, turn);
                let ended = Instant::now();
                slow_ns += ended.duration_since(began).as_nanos();
                self.budget.look(ended);
            }
        }
        self.note_reads(&window, reads, turn);
        let ended = Instant::now();
        self.budget.look(ended);
        let all_ns = ended.duration_since(began).as_nanos().saturating_sub(slow_ns);
        if let Some(share_ns) = all_ns.checked_div(quick) {
            let share_ns = u64::try_from(share_ns).unwrap_or(u64::MAX);
            for (row, calls) in self.window.quick_calls.drain(..) {
                self.state.stats.count_calls(row, calls, share_ns);
            }
        }
        window.clear();
        self.window.prepared = window;
    }

    /// Whether a command writes here, and the log is late: its party waits then, before anything of
    /// it has happened, and so does what its client sent behind it. It comes again in each turn: in
    /// the end the log has caught up, or the write is refused ([`crate::state::logs`]).
    #[cold]
    fn waits_for_log(&mut self, prepared: &Prepared) -> bool {
        if !self.state.logs.is_late() {
            return false; // it is refused, if it is a write
        }
        let (party, tenant) = (&self.active[prepared.party], &self.state.tenants[prepared.tenant]);
        let args = party.input.words(prepared.index);
        let writes = match prepared.resolved.row().map(commands::of) {
            None => party.peer().is_some(), // a write set
            Some(spec) if !spec.takes(args.len()) => false,
            Some(spec) if prepared.is_call => spec.name == "fcall" && self.writes(prepared),
            Some(spec) => route::target(tenant, spec, &args).is_ok_and(|target| {
                route::effect_here(tenant, &party.client, spec, target) != Effect::Nothing
            }),
        };
        let pipe = &mut *self.active[prepared.party];
        (pipe.stopped, pipe.parked) = (pipe.stopped | writes, pipe.parked & !writes);
        writes
    }

    /// Counts the key of a command, or one of its keys, unless another shard's client sent it.
    #[cold]
    fn sample(&mut self, prepared: Prepared) {
        let party = &self.active[prepared.party];
        let Some(row) = prepared.resolved.row().filter(|_| party.peer().is_none()) else {
            return;
        };
        let args = party.input.words(prepared.index);
        let Ok(keys) = commands::find_keys(commands::of(row), &args) else { return };
        // Of many, each has its chance.
        let turns = usize::try_from(self.window.windows_ran).unwrap_or(usize::MAX);
        if let Some((at, _)) = turns.checked_rem(keys.len()).and_then(|at| keys.get(at)) {
            let hash = self.state.tenants[prepared.tenant].keyspace.hash(args[*at]);
            self.state.hot_keys.sample(prepared.tenant, args[*at], hash);
        }
    }

    /// Executes a command that needs no further look; false if it does.
    #[inline]
    fn run_quick(&mut self, prepared: &Prepared, turn: &Turn<'_>) -> bool {
        let (Some(op), Resolved::Row(row)) = (prepared.quick, prepared.resolved) else {
            return false;
        };
        let party = &mut self.active[prepared.party];
        let keyspace = &mut self.state.tenants[prepared.tenant].keyspace;
        let owner = keyspace.owner(prepared.partition);
        let store = keyspace.part_mut(prepared.partition);
        let looks = !party.client.plain
            || self.calls.has(prepared.party)
            || self.state.hot.time_each
            || match party.peer() {
                None => party.input.bytes().len() > LARGE_INPUT_BYTES,
                Some(peer) => {
                    peer.commands[prepared.index].is_large || peer.is_part(prepared.index)
                }
            }
            || store.wants_turn()
            || !self.state.logs.is_open() && !op.only_reads();
        let is_elsewhere = !store.is_owner() && (party.sent_to(owner) > 0 || op.reads_several());
        if looks || is_elsewhere {
            return false;
        }
        let protocol = party.manner(prepared.index).protocol;
        let Pipeline { input, out, .. } = &mut **party;
        let args = input.batch.args(prepared.index);
        let mark = out.mark();
        out.tenant = prepared.tenant;
        let mut out = ReplyWriter::new(out, protocol);
        let mut few: [&[u8]; FEW_ARGS] = [&[]; FEW_ARGS];
        let many: Vec<&[u8]>;
        let args = if args.len() <= FEW_ARGS {
            for (place, arg) in few.iter_mut().zip(args.iter(input.bytes())) {
                *place = arg;
            }
            &few[..args.len()]
        } else {
            many = args.iter(input.bytes()).collect();
            &many[..]
        };
        let began = budget::may_take_long(op, args.len()).then(Instant::now);
        store.apply_hashed(op, args, prepared.hash, turn, &mut out);
        let (busy, lack) = (store.take_busy(), store.take_lack());
        if let Some(scarce) = busy
            && self.waits_on(prepared.party, scarce)
        {
            // It has changed nothing; it runs again when this turn has given memory back.
            self.active[prepared.party].out.cut(mark);
            return true;
        }
        if lack != Lack::Nothing {
            self.state.stats.moved_reads += 1;
            self.active[prepared.party].out.cut(mark);
            self.send(prepared, row, owner, false);
            return true;
        }
        if let Some(began) = began {
            self.look_at_long(prepared, row, began, turn);
        }
        self.conclude_quick(prepared, (row, op), mark, turn);
        true
    }

    /// A quick command that may take long has run: is the time over, and was it slow?
    #[cold]
    fn look_at_long(&mut self, prepared: &Prepared, row: Row, began: Instant, turn: &Turn<'_>) {
        let ended = Instant::now();
        self.budget.look(ended);
        let elapsed_ns = u64::try_from(ended.duration_since(began).as_nanos()).unwrap_or(u64::MAX);
        let party = &mut self.active[prepared.party];
        let command = (row, prepared.tenant, prepared.index);
        log_party_if_slow(&self.state, party, command, elapsed_ns, turn.now_ms);
    }

    /// A quick command has its reply, which was written since `mark`.
    #[inline]
    fn conclude_quick(
        &mut self,
        prepared: &Prepared,
        (row, op): (Row, Op),
        mark: Mark,
        turn: &Turn<'_>,
    ) {
        self.bound_reply(prepared.party, mark, false);
        let pipe = &mut *self.active[prepared.party];
        self.budget.count_reply(pipe.out.since(mark));
        pipe.input.next = prepared.index + 1;
        pipe.client.last_row = Some(row);
        self.state.stats.count_failure(row, pipe.out.error_at(mark));
        pipe.stopped |= pipe.out.waiting() > self.state.hot.output_pause;
        self.note_quick(prepared, row, op, turn);
        self.defer(prepared.party, mark, turn);
        self.active[prepared.party].answered();
        self.count_quick(row);
    }

    /// Counts a call whose time is a share of the window's. Those of one kind stand together
    /// mostly.
    #[inline]
    fn count_quick(&mut self, row: Row) {
        match self.window.quick_calls.last_mut() {
            Some((last, calls)) if *last == row => *calls += 1,
            _ => self.window.quick_calls.push((row, 1)),
        }
    }

    /// Puts what was answered since `mark` behind what other shards have still to answer.
    #[inline]
    pub(crate) fn defer(&mut self, at: usize, mark: Mark, turn: &Turn<'_>) {
        let waits = |connection: &Connection| !connection.later.is_empty();
        if self.active[at].connection().is_some_and(waits) {
            self.defer_reply(at, mark, turn);
        }
    }

    fn defer_reply(&mut self, at: usize, mark: Mark, turn: &Turn<'_>) {
        let Some(connection) = self.active[at].connection_mut() else { return };
        connection.defer(mark, &self.state.tenants.readers(), turn.pin);
        if connection.later.is_full(self.state.hot.output_pause) {
            connection.pipe.stopped = true;
            connection.pipe.pending = Pending::Allowance;
        }
    }

    /// Sends a command that needs no further look to its owner; false if it does, or runs here.
    #[inline]
    fn send_away(&mut self, prepared: &Prepared) -> bool {
        let owner = self.state.tenants[prepared.tenant].keyspace.owner(prepared.partition);
        let is_known = prepared.is_away || prepared.is_call || prepared.quick.is_some();
        if owner == self.state.number || !is_known {
            return false;
        }
        let Resolved::Row(row) = prepared.resolved else { return false };
        let party = &self.active[prepared.party];
        if !party.client.plain || self.calls.has(prepared.party) {
            return false;
        }
        let waits = || party.sent_to(owner) > 0 || party.pending.is_unstable();
        let is_sent = prepared.is_away
            || match self.state.place(row) {
                Place::View => waits(),
                Place::Owner => true,
                Place::Call => {
                    self.is_undivided(prepared)
                        && !self.is_durable_call(prepared.tenant, prepared.party, prepared.index)
                        && (waits() || self.writes(prepared))
                }
                Place::Here | Place::Move | Place::Refresh | Place::Wait(_) | Place::Desk => false,
            };
        is_sent && {
            self.send(prepared, row, owner, false);
            true
        }
    }

    /// Whether there is one partition, which has all that functions read and write.
    fn is_undivided(&self, prepared: &Prepared) -> bool {
        self.state.tenants[prepared.tenant].keyspace.partitions() == 1
    }

    pub(crate) fn writes(&self, prepared: &Prepared) -> bool {
        let name = self.active[prepared.party].input.word(prepared.index, 1);
        self.state.tenants[prepared.tenant].libraries.traits(name).writes
    }

    /// Whether a function call of a party is one of a function with the flag `durable`: it is
    /// looked at further, and its reply waits until all is on disk.
    #[inline]
    pub(crate) fn is_durable_call(&self, tenant: TenantId, party: usize, index: usize) -> bool {
        let libraries = &self.state.tenants[tenant].libraries;
        libraries.has_durable() && libraries.is_durable(self.active[party].input.word(index, 1))
    }

    fn may_run_call(&self, prepared: &Prepared) -> bool {
        if !self.writes(prepared) {
            return true;
        }
        let Resolved::Row(row) = prepared.resolved else { return false };
        let args = self.active[prepared.party].input.words(prepared.index);
        let tenant = &self.state.tenants[prepared.tenant];
        let target = route::target(tenant, commands::of(row), &args);
        matches!(target, Ok(Target::Part(partition)) if tenant.owns(partition))
    }

    /// Puts a call that needs no further look aside for the batch; false if it does.
    #[inline]
    fn put_aside(&mut self, prepared: &Prepared) -> bool {
        let Resolved::Row(row) = prepared.resolved else { return false };
        let plain = prepared.is_call && self.active[prepared.party].client.plain;
        if !plain
            || !self.is_undivided(prepared)
            || self.state.tenants[prepared.tenant].keyspace.wants_turn()
            || self.calls.len() >= 2 * CALLS_AT_ONCE
            || self.is_durable_call(prepared.tenant, prepared.party, prepared.index)
        {
            return false;
        }
        if !self.state.tenants[prepared.tenant].owns(0) && self.writes(prepared) {
            return false; // behind calls that only read: it is sent when they have run
        }
        let asker = &mut self.active[prepared.party];
        let waits = asker.connection().is_some_and(|connection| !connection.later.is_empty());
        debug_assert!(!waits, "a call after what was sent is sent too");
        let (party, index) = (prepared.party, prepared.index);
        asker.input.next = index + 1;
        self.calls.push(WaitingCall { party, index, row, tenant: prepared.tenant });
        true
    }

    /// Whether a command may take memory of an arena. Of what other shards send, nearly all does.
    fn takes_memory(&self, prepared: &Prepared) -> bool {
        let is_peers = self.active[prepared.party].peer().is_some();
        let writes = |row| {
            let spec = commands::of(row);
            let calls =
                matches!(spec.run, Run::Server(Builtin::Exec | Builtin::Fcall | Builtin::FcallRo));
            spec.has(WRITE) || calls
        };
        is_peers || matches!(prepared.resolved, Resolved::Row(row) if writes(row))
    }

    /// Whether a command that needs a further look waits, or its party is to end; the party is
    /// stopped then.
    pub(super) fn waits(&mut self, prepared: &Prepared) -> bool {
        let is_local_call = prepared.is_call && self.may_run_call(prepared);
        let takes_memory = self.takes_memory(prepared);
        if self.active[prepared.party].client.close != Close::No {
            return true;
        }
        let tenant = &self.state.tenants[prepared.tenant];
        if takes_memory && tenant.keyspace.wants_turn() && self.may_wait(prepared.party).memory {
            // Segments wait for the end of this turn, and few are left. What takes none goes on:
            // one may be what ends the function that holds them.
            self.wait_for(prepared.party, Scarce::Memory);
            return true;
        }
        let pipe = &mut *self.active[prepared.party];
        if self.calls.has(prepared.party) {
            // Only a further call that will be in the same batch may pass.
            let joins = pipe.client.plain && self.calls.len() < 2 * CALLS_AT_ONCE && is_local_call;
            (pipe.stopped, pipe.parked) = (pipe.stopped | !joins, pipe.parked | !joins);
            return !joins;
        }
        false
    }
}
