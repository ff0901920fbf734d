//! What a turn works with: the shard's connections, those with something to do, and what is under
//! way.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::FAST;
use crate::commands::{self, Builtin, CommandSpec, Row, Run};
use crate::hop::mailbox::{Mailbox, Reply};
use crate::net::connection::Connection;
use crate::net::input::Pool;
use crate::net::local::Local;
use crate::net::party::Party;
use crate::net::peer::Peer;
use crate::net::pipeline::MayWait;
use crate::net::slab::{Occupant, Slab};
use crate::observe::hotkeys::Sampler;
use crate::state::State;
use crate::state::place::{self, Place};
use crate::tenant::TenantId;
use crate::turn::budget::{Budget, CallsAtOnce};
use crate::turn::call_queue::CallQueue;
use crate::turn::prepared::Prepared;
use crate::turn::ready::Ready;
use crate::turn::synced_lists::SyncedLists;
use nigh_store::{Op, Scarce, Turn};
use std::collections::VecDeque;
use std::time::Instant;

/// Commands whose cache misses overlap: more than the core's line-fill buffers, few enough that
/// lines fetched for the last are still in the second-level cache.
pub(crate) const WINDOW: usize = 64;
/// Commands of one connection in a turn: long pipelines share the turn with others.
pub(crate) const MOST_COMMANDS: usize = 1024;
/// Connections in a turn.
pub(crate) const MOST_ACTIVE: usize = 1024;
/// Calls in one batch, about: entering V8 costs little per call long before.
pub(crate) const CALLS_AT_ONCE: usize = 256;

/// A key that a command of the window looks up here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) hash: u32,
    pub(crate) tenant: TenantId,
    pub(crate) partition: usize,
}

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

/// By shard: the connections that wait for room there, the first of them first.
pub(crate) type Held = Vec<VecDeque<Occupant>>;

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
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) looks: Vec<Look>,
    /// What ran quickly in the window: how many calls of which command, in their order.
    pub(crate) quick_calls: Vec<(Row, u64)>,
    /// Function calls that wait for the batch.
    pub(crate) calls: CallQueue,
    pub(crate) pool: Pool,
    pub(crate) mailbox: Mailbox,
    /// The other shards as clients of this one, by number.
    pub(crate) peers: Vec<Option<Box<Peer>>>,
    /// Some of their commands are left for the next turn.
    pub(crate) peers_have_work: bool,
    /// The shard whose commands are the first in this turn: they take turns.
    pub(crate) first_peer: usize,
    /// Some are left until their shard has taken replies.
    pub(crate) peers_wait: bool,
    /// Kept for its memory: answers of other shards that are given to their connections.
    pub(crate) answers: Vec<(Reply, Vec<u8>)>,
    /// Connections that wait for room in a mailbox.
    pub(crate) held: Held,
    /// Connections that wait for snapshots, and since when.
    pub(crate) asking: Vec<(Occupant, Instant)>,
    /// Connections that wait for others to stand still, and whose partitions they ask for.
    pub(crate) untold: Vec<(TenantId, Asker)>,
    /// Connections that wait for the check of a source.
    pub(crate) checking: Vec<Occupant>,
    /// Connections that wait until changes are on disk.
    pub(crate) synced: SyncedLists,
    /// Local clients whose rings are polled.
    pub(crate) rings: Vec<Occupant>,
    /// Clients that have attached in this turn.
    pub(crate) attached: Vec<Occupant>,
    /// Rings of ended connections whose clients have yet to take replies, and since when.
    pub(crate) leaving: Vec<(Instant, Box<Local>)>,
    /// Connections that go to another shard.
    pub(crate) moving: Vec<(usize, Box<Connection>)>,
    /// When the journal last gave room back.
    pub(crate) journal_moved: Instant,
    /// Kept for its memory: what stands in front of the replies to a request.
    pub(crate) lengths: Vec<u8>,
    /// Windows that ran.
    pub(crate) windows: u64,
    /// Chooses commands whose keys are counted.
    pub(crate) sampler: Sampler,
    /// By row: the operation, if it needs no more than arity, key and store.
    pub(crate) quick: Vec<Option<Op>>,
    pub(crate) now: Instant,
}

/// The operation of a command at `place`, if it needs no more than arity, key and store.
fn quick(spec: &CommandSpec, place: Place) -> Option<Op> {
    let Run::Data(op) = spec.run else { return None };
    // Writes of one key that Redis doesn't call fast, but that are.
    let is_fast = spec.has(FAST) || matches!(op, Op::Set | Op::SetEx | Op::PSetEx);
    // A read that runs at the owner only isn't for the window of another shard.
    let may_run_here = !op.only_reads() || place == Place::View;
    (op.first_key() == 1 && is_fast && may_run_here).then_some(op)
}

impl Work {
    /// Work for a shard without connections.
    pub(crate) fn new(state: State, mailbox: Mailbox) -> Self {
        let peer = |number| (number != state.number).then(|| Box::new(Peer::new(number)));
        let shards = state.shared.shards();
        let peers = (0..shards).map(peer).collect();
        let quick = commands::table().iter().map(|spec| quick(spec, place::of(spec)));
        Self {
            quick: quick.collect(),
            state,
            slab: Slab::default(),
            ready: Ready::default(),
            budget: Budget::new(Instant::now()),
            calls_at_once: CallsAtOnce::new(),
            active: Vec::new(),
            prepared: Vec::with_capacity(WINDOW),
            looks: Vec::with_capacity(WINDOW),
            quick_calls: Vec::new(),
            calls: CallQueue::default(),
            pool: Pool::default(),
            mailbox,
            peers,
            peers_have_work: false,
            first_peer: 0,
            peers_wait: false,
            answers: Vec::new(),
            held: vec![VecDeque::new(); shards],
            asking: Vec::new(),
            untold: Vec::new(),
            checking: Vec::new(),
            synced: SyncedLists::default(),
            rings: Vec::new(),
            attached: Vec::new(),
            leaving: Vec::new(),
            moving: Vec::new(),
            journal_moved: Instant::now(),
            lengths: Vec::new(),
            windows: 0,
            sampler: Sampler::default(),
            now: Instant::now(),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.peers_have_work
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
        let since = match scarce {
            Scarce::Memory => &mut pipe.lacks.memory,
            Scarce::Journal => &mut pipe.lacks.journal,
        };
        since.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read is quick on any shard's view, unless its row must run at the owner.
    #[test]
    fn a_read_at_the_owner_is_not_quick() {
        let spec = commands::table().iter().find(|spec| spec.name == "get");
        let spec = spec.expect("GET is a command");
        assert_eq!(quick(spec, Place::View), Some(Op::Get));
        assert_eq!(quick(spec, Place::Owner), None);
    }
}
