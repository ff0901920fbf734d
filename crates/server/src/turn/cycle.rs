//! One turn's work: from the bytes of all connections that have some to the replies.
//!
//! ```text
//! for each ready connection: read once, decode (or only write the answers of other shards)
//!     each command: find the row, hash the first key
//!   every WINDOW commands, or MOST_UNANSWERED connections: execute them (`window`) and write the
//!       replies; FCALLs are put aside
//! the same with what other shards have sent, which they have decoded, found and hashed
//! the FCALLs run as one batch; connections that waited for them go on; again until nothing waits
//! write each connection's replies once
//! ```
//!
//! 1. Replies of a connection leave in the order of its commands: what follows an FCALL waits for
//!    it.
//! 2. A turn is bounded: so many connections, commands of each, and rounds of functions, and by its
//!    time and the bytes of long replies ([`crate::turn::budget`]); the rest is the next turn's.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Builtin, Resolved, Row, Run};
use crate::hop::message::commands::Known;
use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::input::{Fill, Input};
use crate::net::party::Party;
use crate::net::pipeline::Pending;
use crate::tenant::TenantId;
use crate::turn::budget::Budget;
use crate::turn::prepared::{Prepared, WINDOW};
use crate::turn::work::{CALLS_AT_ONCE, MOST_ACTIVE, MOST_COMMANDS, Work};
use nigh_store::Turn;
use std::time::Instant;

/// Batches of functions in a turn: each takes one call limit per call at worst.
const MOST_ROUNDS: usize = 16;
/// Connections that are read before those of them that wait for no function are answered. The
/// kernel gives the memory of what was read back to the client's CPU, and interrupts that after 32
/// reads if it has neither sent nor received meanwhile (design 7).
const MOST_UNANSWERED: usize = 8;

impl Work {
    pub(crate) fn turn(&mut self, turn: &Turn<'_>, now: Instant) {
        self.now = now;
        let copied_before = self.state.stats.copied_bytes;
        self.budget = Budget::new(now);
        self.state.logs.look(now, self.state.hot.journal_wait);
        self.release_synced(turn);
        self.run_untold(turn);
        if self.ready.has_put_off() {
            let slots = self.ready.take_put_off();
            let began = self.run_some(&slots, Budget::is_used, turn);
            self.complete(turn);
            self.ready.give_back_put_off(slots, began);
            self.budget = Budget::new(Instant::now());
        }
        let slots = self.ready.take();
        let began = self.run_some(&slots, Budget::is_over, turn);
        self.ready.give_back(slots, began);
        if self.budget.is_used() || self.peers.some_have_work {
            self.complete(turn);
            self.budget = Budget::new(Instant::now());
        }
        self.receive_peers(turn);
        self.complete(turn);
        self.want_syncs();
        let stats = &mut self.state.stats;
        let copied = stats.copied_bytes.saturating_sub(copied_before);
        stats.most_copied_bytes = stats.most_copied_bytes.max(copied);
        self.close_killed();
    }

    /// Reads, decodes and prepares connections, as many as the turn may have until the budget
    /// `ends` it; how many there were. Some of their commands may be left in the window.
    pub(crate) fn run_some(
        &mut self,
        slots: &[usize],
        ends: impl Fn(&Budget) -> bool,
        turn: &Turn<'_>,
    ) -> usize {
        let (mut taken, mut unanswered) = (0, 0);
        for (at, slot) in slots.iter().take(MOST_ACTIVE).enumerate() {
            if ends(&self.budget) {
                break;
            }
            taken += 1;
            if let Some(soon) = slots.get(at + 2) {
                self.slab.prefetch(*soon);
            }
            self.ready.begin(*slot);
            let Some(mut connection) = self.slab.take(*slot) else { continue };
            connection.pipe.is_put_off = false;
            if connection.only_writes() {
                self.finish(connection, turn);
                continue;
            }
            self.receive(&mut connection);
            self.active.push(Party::Client(connection));
            let windows = self.window.windows_ran;
            self.prepare(self.active.len() - 1, turn);
            // The clients of a full window can go on with their replies while the next one runs
            // here.
            unanswered += 1;
            if self.window.windows_ran != windows || unanswered == MOST_UNANSWERED {
                unanswered = 0;
                self.run_window(turn);
                if self.calls.is_empty() || self.calls.len() >= CALLS_AT_ONCE {
                    self.answer(turn);
                }
            }
        }
        taken
    }

    /// Runs all that is left in the window, and what waits for it.
    pub(crate) fn complete(&mut self, turn: &Turn<'_>) {
        self.run_window(turn);
        self.answer(turn);
    }

    /// Runs the functions that wait and what waits for them, then writes all replies.
    fn answer(&mut self, turn: &Turn<'_>) {
        for _ in 0..MOST_ROUNDS {
            if self.calls.is_empty() {
                break;
            }
            self.run_functions(turn);
            for at in 0..self.active.len() {
                if self.active[at].parked {
                    let has_enough = self.has_enough(at);
                    let pipe = &mut *self.active[at];
                    pipe.parked = false;
                    // What its function left for other shards goes before all else.
                    pipe.stopped = has_enough || !pipe.pending.lets_go_on();
                    if self.budget.is_used() {
                        self.put_off(at);
                    }
                    self.prepare(at, turn);
                }
            }
            self.run_window(turn);
        }
        if !self.calls.is_empty() {
            self.run_functions(turn);
        }
        let mut active = std::mem::take(&mut self.active);
        for party in active.drain(..) {
            match party {
                Party::Client(connection) => self.finish(connection, turn),
                Party::Peer(peer) => self.answer_peer(peer, turn),
            }
        }
        self.active = active;
    }

    /// Reads once and decodes, unless the connection has enough to do already.
    fn receive(&mut self, connection: &mut Connection) {
        let is_open = connection.pipe.client.close == Close::No;
        let is_paused = connection.pipe.out.waiting() > self.state.hot.output_pause;
        if connection.pipe.pending == Pending::Nothing {
            self.held.send_unsent(&mut self.mailbox, connection);
        }
        if connection.pipe.pending == Pending::Synced && connection.pipe.input.closing {
            // It may wait for ever, and nobody would be told.
            connection.pipe.client.end(Close::Now);
        }
        connection.pipe.stopped = !is_open || is_paused || !connection.lets_go_on();
        connection.pipe.parked = false;
        // Of a client that reads no replies, requests are read on all the same: many write a whole
        // pipeline first. They wait undecoded, within the limit of the query buffer. Before AUTH
        // they stay in the socket: the narrow limits of that time are the decoder's.
        let is_admitted = self.state.admits(&connection.pipe.client);
        let mut reads_ahead = is_open && is_paused && is_admitted;
        if !reads_ahead && (connection.pipe.stopped || connection.pipe.input.has_commands()) {
            return;
        }
        // What was read before this turn has waited for the look at the seat: it runs before more
        // is read.
        let has_waited = connection.pipe.input.is_capped || connection.pipe.input.is_ahead;
        if connection.pipe.input.readable && (reads_ahead || !has_waited) {
            let before = connection.pipe.client.bytes_in;
            if connection.fill(&mut self.pool) == Fill::Broken {
                connection.pipe.client.end(Close::Now);
                connection.pipe.stopped = true;
                return;
            }
            self.state.stats.reads += 1;
            self.state.stats.bytes_in += connection.pipe.client.bytes_in - before;
            connection.pipe.client.active = self.now;
            // Another shard has changed something since this one looked at its seat: maybe the
            // client knows, and means that with what it has just sent. (`shared`, 2)
            reads_ahead |= self.state.has_notes();
            connection.pipe.input.is_ahead |= reads_ahead;
        }
        if connection.pipe.input.bytes().len() > self.state.hot.query_limit {
            tracing::warn!(
                address = %connection.pipe.client.address,
                bytes = connection.pipe.input.bytes().len(),
                "client disconnected: its requests exceed client-query-buffer-limit"
            );
            self.state.stats.query_limit_disconnections += 1;
            connection.pipe.client.end(Close::Now);
            connection.pipe.stopped = true;
            return;
        }
        if reads_ahead {
            return;
        }
        connection.pipe.input.is_ahead = false;
        let limits = Some((self.state.limits_version, is_admitted));
        if connection.limits_told != limits {
            connection.limits_told = limits;
            connection.pipe.input.set_limits(self.state.request_limits(), is_admitted);
        }
        // Before AUTH, one at a time: it changes what may follow.
        let most = if is_admitted { MOST_COMMANDS } else { 1 };
        let before = connection.pipe.input.batch.len();
        connection.pipe.input.decode(most, &mut self.pool);
        if connection.local.is_some() {
            let decoded = connection.pipe.input.batch.len().saturating_sub(before);
            self.state.stats.local_requests += decoded as u64;
        }
        connection.pipe.input.is_capped = connection.pipe.input.batch.len() >= most;
    }

    /// Resolves and hashes what a connection has decoded and not executed; runs each window that
    /// gets full. Nothing, while its first command waits for room in the journal.
    pub(crate) fn prepare(&mut self, at: usize, turn: &Turn<'_>) {
        if self.rests(at) {
            self.active[at].stopped = true;
            return;
        }
        let mut next = self.active[at].input.next;
        loop {
            let party = &self.active[at];
            if party.stopped {
                return;
            }
            // As many as the window has room for.
            let end = party.input.batch.len().min(next + WINDOW - self.window.prepared.len());
            for index in next..end {
                let known = party.peer().map(|peer| peer.commands[index].known);
                let tenant = party.tenant(index);
                self.state.tenants.touch(tenant, turn);
                let prepared = match known {
                    // A write set.
                    Some(None) => Prepared::new(at, index, Resolved::Unknown, tenant),
                    Some(Some(Known { row, key: Some((hash, partition)) })) => {
                        let mut prepared = Prepared::new(at, index, Resolved::Row(row), tenant);
                        prepared.quick = self.window.quick_ops[usize::from(row)];
                        (prepared.hash, prepared.partition) = (hash, usize::from(partition));
                        prepared
                    }
                    None | Some(Some(_)) => {
                        let row = known.flatten().map(|known| known.row);
                        self.look_up(&party.input, at, index, row, tenant)
                    }
                };
                self.window.push(prepared);
            }
            if self.window.prepared.len() < WINDOW {
                return;
            }
            self.run_window(turn);
            next = end;
        }
    }

    /// Finds the row of a command, unless it is known, and hashes its first key.
    #[inline]
    fn look_up(
        &self,
        input: &Input,
        at: usize,
        index: usize,
        known: Option<Row>,
        tenant: TenantId,
    ) -> Prepared {
        let args = input.batch.args(index);
        let name = args.get(input.bytes(), 0);
        let second = || (args.len() > 1).then(|| args.get(input.bytes(), 1));
        let resolved = known.map_or_else(|| commands::resolve(name, second), Resolved::Row);
        let mut prepared = Prepared::new(at, index, resolved, tenant);
        if let Resolved::Row(row) = resolved
            && commands::of(row).takes(args.len())
        {
            let run = commands::of(row).run;
            prepared.is_call = matches!(run, Run::Server(Builtin::Fcall | Builtin::FcallRo));
            prepared.quick = self.window.quick_ops[usize::from(row)];
            let keyspace = &self.state.tenants[tenant].keyspace;
            if let Some(op) = prepared.quick {
                let key = args.get(input.bytes(), 1);
                prepared.hash = keyspace.hash(key);
                prepared.partition = keyspace.partition(key, prepared.hash);
                if keyspace.partitions() > 1 && op.takes_several_keys() && args.len() > 2 {
                    prepared.quick = None; // they may lie apart
                } else if !op.only_reads() && !self.state.tenants[tenant].owns(prepared.partition) {
                    // Its lines are the owner's to ask for.
                    (prepared.quick, prepared.is_away) = (None, true);
                }
            }
        }
        prepared
    }
}
