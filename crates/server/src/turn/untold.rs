//! Commands that read several partitions, and couldn't be told at any moment what some of them had:
//! function calls, and transactions with such calls. They run again while the owners of those
//! partitions stand still (`still`).
//!
//! 1. Nothing of such a command has happened, and nothing behind it of its connection: see
//!    [`crate::engine::UNSTABLE`].
//! 2. Each time that it can't be told of further partitions, their owners are asked too. So it is
//!    told after it has run as many times as there are owners, at most; a run that the turn has no
//!    time for is put off, and asks again.
//! 3. A connection that waits for that is in `untold` once; one that is gone asks nobody. Those of
//!    one tenant are told together; the others' wait behind them.
//!
//! Belongs to the shard's thread.

use crate::net::pipeline::{Pending, Pipeline};
use crate::tenant::TenantId;
use crate::turn::budget::Budget;
use crate::turn::work::{Asker, MOST_ACTIVE, Work};
use nigh_store::{Keyspace, Turn};
use std::time::Instant;

/// The shards that own these partitions, a bit for each.
fn owners(keyspace: &Keyspace, partitions: u64) -> u64 {
    let owned = (0..keyspace.partitions()).filter(|partition| partitions >> partition & 1 == 1);
    owned.fold(0, |shards, partition| shards | 1 << keyspace.owner(partition))
}

fn owned_by(keyspace: &Keyspace, shards: u64) -> u64 {
    let is_owned = |partition: &usize| shards >> keyspace.owner(*partition) & 1 == 1;
    (0..keyspace.partitions()).filter(is_owned).fold(0, |all, partition| all | 1 << partition)
}

impl Work {
    /// Lets the next command of an active connection wait, since it couldn't be told of these
    /// partitions of a tenant. False if their owners stand still already: that is so only in a
    /// server that stops.
    pub(crate) fn wait_for_still(&mut self, at: usize, tenant: TenantId, partitions: u64) -> bool {
        let party = &mut self.active[at];
        party.stopped = true;
        if partitions & !self.state.tenants[tenant].still == 0 {
            return false;
        }
        let before = match party.pending {
            Pending::Unstable(partitions) => partitions,
            _ => 0,
        };
        party.pending = Pending::Still(before | partitions);
        self.untold.push((tenant, Asker::of(party)));
        self.state.stats.stills += 1;
        // The next turn asks them: it is to come at once.
        self.state.shared.seats[self.state.number].wake();
        true
    }

    /// The pipeline of an asker, and the partitions that it wants to stand still, unless it is
    /// gone.
    fn asks(&mut self, asker: Asker) -> Option<(&mut Pipeline, u64)> {
        let pipe = match asker {
            Asker::Client(who) => &mut self.slab.occupant(who)?.pipe,
            Asker::Peer(number) => &mut self.peers.get_mut(number)?.pipe,
        };
        let Pending::Still(partitions) = pipe.pending else { return None };
        Some((pipe, partitions))
    }

    /// At the beginning of a turn: if all owners stand that the waiting commands have asked, runs
    /// these commands, and lets the owners go. Those beyond what a turn may run wait for the next
    /// one.
    pub(crate) fn run_untold(&mut self, turn: &Turn<'_>) {
        if self.untold.is_empty() {
            return;
        }
        let mut untold = std::mem::take(&mut self.untold);
        untold.retain(|(_, asker)| self.asks(*asker).is_some());
        let tenant = untold.first().map_or(TenantId::DEFAULT, |(tenant, _)| *tenant);
        let (mut untold, others): (Vec<_>, Vec<_>) =
            untold.into_iter().partition(|(of, _)| *of == tenant);
        self.untold = untold.split_off(untold.len().min(MOST_ACTIVE));
        self.untold.extend(others);
        let mut wanted = |asker: Asker| self.asks(asker).map_or(0, |(_, wanted)| wanted);
        let partitions = untold.iter().fold(0, |all, (_, asker)| all | wanted(*asker));
        let (shared, number) = (self.state.shared.clone(), self.state.number);
        let wake = |shard: usize| shared.wake(shard);
        let shards = owners(&self.state.tenants[tenant].keyspace, partitions);
        if shards != 0 && !shared.still.ask(number, tenant, shards, wake) {
            self.untold.splice(..0, untold);
            return;
        }
        let of = &mut self.state.tenants[tenant];
        of.still = owned_by(&of.keyspace, shards);
        let mut slots = Vec::new();
        for (_, asker) in untold {
            let Some((pipe, wanted)) = self.asks(asker) else { continue };
            pipe.pending = Pending::Unstable(wanted);
            match asker {
                Asker::Client(who) => slots.push(who.slot),
                Asker::Peer(number) => self.run_peer(number, false, turn),
            }
        }
        self.run_some(&slots, |_| false, turn);
        self.complete(turn);
        self.state.tenants[tenant].still = 0;
        shared.still.release(number, wake);
        if !self.untold.is_empty() {
            wake(number);
        }
        self.budget = Budget::new(Instant::now());
    }
}
