//! What a turn works with: the shard's connections, those with something to do, and what is under
//! way.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Builtin, Run};
use crate::hop::mailbox::{MailReply, Mailbox};
use crate::net::connection::Connection;
use crate::net::input::Pool;
use crate::net::party::Party;
use crate::net::pipeline::MayWait;
use crate::net::slab::{Occupant, Slab};
use crate::state::State;
use crate::tenant::TenantId;
use crate::turn::budget::{Budget, CallsAtOnce};
use crate::turn::call_queue::CallQueue;
use crate::turn::held::HeldQueues;
use crate::turn::leaving::LeavingRings;
use crate::turn::peers::Peers;
use crate::turn::prepared::{Prepared, Window};
use crate::turn::ready::Ready;
use crate::turn::rings::PolledRings;
use crate::turn::synced_lists::SyncedLists;
use nigh_store::{Scarce, Turn};
use std::time::Instant;

/// Commands of one connection in a turn: long pipelines share the turn with others.
pub(crate) const MOST_COMMANDS: usize = 1024;
/// Connections in a turn.
pub(crate) const MOST_ACTIVE: usize = 1024;
/// Calls in one batch, about: entering V8 costs little per call long before.
pub(crate) const CALLS_AT_ONCE: usize = 256;

/// The connection of a command that couldn't be told what it read (see [`crate::turn::untold`]).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    Client(Occupant),
    /// Sent by this shard.
    Peer(usize),
}

impl Asker {
    pub(crate) fn of(party: &Party) -> Self {
        match party {
            Party::Client(connection) => Self::Client(Occupant::of(connection)),
            Party::Peer(peer) => Self::Peer(peer.number),
        }
    }
}

/// What a turn works with. Buffers are kept from turn to turn.
pub(crate) struct Work {
    pub(crate) state: State,
    pub(crate) slab: Slab,
    /// Connections with something to do.
    pub(crate) ready: Ready,
    /// What the part of the turn that runs may still take.
    pub(crate) budget: Budget,
    pub(crate) calls_at_once: CallsAtOnce,
    pub(crate) active: Vec<Party>,
    pub(crate) window: Window,
    /// Function calls that wait for the batch.
    pub(crate) calls: CallQueue,
    pub(crate) pool: Pool,
    pub(crate) mailbox: Mailbox,
    pub(crate) peers: Peers,
    /// Kept for its memory: answers of other shards that are given to their connections.
    pub(crate) answers: Vec<(MailReply, Vec<u8>)>,
    pub(crate) held: HeldQueues,
    /// Connections that wait for snapshots, or the check of a source, and since when.
    pub(crate) asking: Vec<(Occupant, Instant)>,
    /// Connections that wait for others to stand still, and whose partitions they ask for.
    pub(crate) untold: Vec<(TenantId, Asker)>,
    /// Connections that wait until changes are on disk.
    pub(crate) synced: SyncedLists,
    pub(crate) rings: PolledRings,
    /// Clients that have attached in this turn.
    pub(crate) attached: Vec<Occupant>,
    pub(crate) leaving: LeavingRings,
    /// Connections that go to another shard.
    pub(crate) moving: Vec<(usize, Box<Connection>)>,
    /// When the journal last gave room back, or there was none.
    pub(crate) journal_moved: Instant,
    /// Kept for its memory: what stands in front of the replies to a request.
    pub(crate) lengths: Vec<u8>,
    pub(crate) now: Instant,
}

impl Work {
    pub(crate) fn new(state: State, mailbox: Mailbox) -> Self {
        let (number, shards) = (state.number, state.shared.shards());
        Self {
            state,
            slab: Slab::default(),
            ready: Ready::default(),
            budget: Budget::new(Instant::now()),
            calls_at_once: CallsAtOnce::new(),
            active: Vec::new(),
            window: Window::new(),
            calls: CallQueue::default(),
            pool: Pool::default(),
            mailbox,
            peers: Peers::new(number, shards),
            answers: Vec::new(),
            held: HeldQueues::new(shards),
            asking: Vec::new(),
            untold: Vec::new(),
            synced: SyncedLists::default(),
            rings: PolledRings::default(),
            attached: Vec::new(),
            leaving: LeavingRings::default(),
            moving: Vec::new(),
            journal_moved: Instant::now(),
            lengths: Vec::new(),
            now: Instant::now(),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.peers.some_have_work
    }

    /// Whether so many replies wait for an active connection's client that further commands of it
    /// wait too.
    pub(crate) fn has_enough(&self, at: usize) -> bool {
        let (party, most) = (&self.active[at], self.state.hot.output_pause);
        let is_full = |connection: &Connection| connection.later.is_full(most);
        party.out.waiting() > most || party.connection().is_some_and(is_full)
    }

    /// Leaves what an active connection has still to do for the next turn.
    pub(crate) fn put_off(&mut self, at: usize) {
        let pipe = &mut *self.active[at];
        (pipe.stopped, pipe.is_put_off) = (true, true);
    }

    /// For what a party's next command may still wait.
    pub(crate) fn may_wait(&self, at: usize) -> MayWait {
        self.active[at].lacks.may_wait(self.now, self.journal_moved, self.state.hot.journal_wait)
    }

    /// Whether a party's next command needn't be tried in this turn. If the log isn't well, it is
    /// tried, and refused.
    #[inline]
    pub(crate) fn rests(&self, at: usize) -> bool {
        let (lacks, most) = (self.active[at].lacks, self.state.hot.journal_wait);
        lacks.rests(self.now, self.journal_moved, most) && self.state.logs.is_open()
    }

    /// Whether a command is left for the next turn, since this one has done enough.
    #[cold]
    pub(crate) fn is_put_off(&self, prepared: &Prepared, turn: &Turn<'_>) -> bool {
        let pipe = &*self.active[prepared.party];
        let Some(row) = prepared.resolved.row() else { return self.budget.puts_off(|| 0) };
        let keyspace = &self.state.tenants[prepared.tenant].keyspace;
        let reply_bytes = || match (commands::of(row).run, &pipe.client.transaction) {
            (Run::Server(Builtin::Exec), Some(transaction)) => {
                transaction.reply_bytes(keyspace, turn)
            }
            (Run::Data(op), None) => {
                let args = pipe.input.words(prepared.index);
                if !commands::of(row).takes(args.len()) {
                    return 0; // an error
                }
                keyspace.reply_bytes(op, &args, turn)
            }
            _ => 0, // queued, or about something else than data
        };
        self.budget.puts_off(reply_bytes)
    }

    /// Lets a party's next command, which was refused, wait for the next turn: what it lacked may
    /// have come back then. False if it has waited in vain.
    pub(crate) fn waits_on(&mut self, at: usize, scarce: Scarce) -> bool {
        let waits = self.may_wait(at).is_for(scarce);
        if waits {
            self.wait_for(at, scarce);
        }
        self.active[at].waited_in_vain = !waits;
        waits
    }

    /// Lets a party's next command wait for the next turn.
    pub(crate) fn wait_for(&mut self, at: usize, scarce: Scarce) {
        let now = self.now;
        let pipe = &mut *self.active[at];
        (pipe.stopped, pipe.parked) = (true, false);
        pipe.lacks.note(scarce, now);
    }
}
