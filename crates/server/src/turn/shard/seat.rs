//! What a shard does about other threads: takes what they left at its seat, and tells of itself.
//!
//! 1. A connection that asked for snapshots goes on when all shards have told, or after
//!    [`MOST_ASKING`].
//! 2. A client that moves is at each moment in a slab, in [`crate::turn::work::Work::moving`] of
//!    the shard whose turn still runs, in the owner's arrivals or in its snapshot. So a command
//!    that lists or ends clients meets it.
//!
//! The shard's thread.

use super::Shard;
use crate::net::client::Close;
use crate::net::pipeline::Pending;
use crate::observe::snapshot::Snapshot;
use crate::state::seat::Arrival;
use crate::state::shared::Versions;
use crate::state::told;
use nigh_store::Turn;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long INFO waits for a shard that is busy with a function: then it shows what that one told
/// last.
const MOST_ASKING: Duration = Duration::from_secs(1);
/// So many clients that were moved here are noted at the seat, beside twice those that are here.
const NOTED_CLIENTS: usize = 64;

impl Shard {
    /// Takes what other threads left: connections, changes, clients to end, questions.
    pub(super) fn look_at_seat(&mut self, now: Instant) {
        if !self.work.state.has_notes() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let seat = &shared.seats[self.work.state.number];
        self.work.state.notes = seat.notes();
        for arrival in seat.take_arrivals() {
            match arrival {
                Arrival::Accepted(accepted) => self.admit(accepted, now),
                Arrival::Moved(mut connection) => {
                    // What this shard would have told it.
                    connection.limits_told = None;
                    connection.pipe.pending = Pending::Nothing;
                    if shared.was_killed(connection.pipe.client.id) {
                        connection.pipe.client.end(Close::Now);
                    }
                    self.seat(connection);
                }
            }
        }
        let Versions { ticket, settings, .. } = self.work.state.seen;
        {
            let pin = self.participant.pin();
            let turn = Turn { now_ms: self.turn_clock.latest_ms(), pin: &pin, random: self.random };
            self.work.state.catch_up(&turn);
        }
        self.participant.quiescent();
        if self.work.state.seen.settings != settings {
            // The log may have begun to count, or ended.
            self.work.synced.look_again();
        }
        self.end_clients(&seat.kills());
        if self.work.state.seen.ticket != ticket {
            let snapshot = self.snapshot(now);
            shared.publish(self.work.state.number, snapshot, self.work.state.seen.ticket);
        }
        self.resume_askers(now);
    }

    /// Ends clients that another shard's CLIENT KILL named.
    fn end_clients(&mut self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        self.work.slab.each(|connection| connection.end_if_among(|id| ids.contains(id)));
        self.work.state.some_killed = true;
        self.work.close_killed();
    }

    /// Lets the connections go on whose snapshots have come, or are not to be waited for any
    /// longer. Those that wait for the check of a source look again: it may be done.
    pub(super) fn resume_askers(&mut self, now: Instant) {
        let (shared, number) = (&self.shared, self.work.state.number);
        let mut asking = std::mem::take(&mut self.work.asking);
        asking.retain(|&(who, since)| {
            let Some(connection) = self.work.slab.occupant(who) else { return false };
            let is_over = |ticket| {
                shared.is_refreshed(number, ticket) || now.duration_since(since) >= MOST_ASKING
            };
            connection.pipe.pending = match connection.pipe.pending {
                Pending::Check => Pending::Nothing,
                Pending::Ticket(ticket) if is_over(ticket) => Pending::Refreshed,
                pending => return matches!(pending, Pending::Ticket(_)),
            };
            self.work.ready.queue(who.slot);
            false
        });
        if asking.is_empty() {
            shared.nobody_waits(number);
        }
        self.work.asking = asking;
    }

    /// Clients that were moved here are noted at the seat until somebody asks who is here. If
    /// nobody does, those that have gone are forgotten here.
    pub(super) fn forget_gone_clients(&mut self, now: Instant) {
        let seat = &self.shared.seats[self.work.state.number];
        let noted = seat.snapshot().clients.len();
        if noted > 2 * self.work.slab.len() + NOTED_CLIENTS {
            let mut current = Snapshot::default();
            self.work.slab.each(|connection| told::add_connection(&mut current, connection, now));
            seat.snapshot().clients = current.clients;
        }
    }

    /// What this shard tells of itself and its clients, and of all tenants.
    fn snapshot(&mut self, now: Instant) -> Snapshot {
        let mut snapshot = told::snapshot(&self.work.state, true, self.work.slab.len());
        self.work.slab.each(|connection| told::add_connection(&mut snapshot, connection, now));
        snapshot
    }
}
