//! The tenants of a shard: what each has of its own.
//!
//! 1. A tenant is touched before a command of it runs ([`crate::state::dirty_set`]).
//! 2. What a tenant counts is told at the ticks that look after it, and of all when another shard
//!    asks. So a tick costs the same with ever more tenants.
//!
//! Belongs to the shard's thread.

use crate::state::dirty_set::DirtySet;
use crate::state::libraries::Libraries;
use crate::tenant::TenantId;
use nigh_shm::Reader;
use nigh_store::{ClosedArenas, Keyspace, Maintenance, StoreStats, Turn};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// What one tenant has at a shard.
pub(crate) struct LocalTenant {
    pub(crate) keyspace: Keyspace,
    pub(crate) libraries: Libraries,
    /// Partitions whose owners stand still for this shard now, a bit for each.
    pub(crate) still: u64,
    /// Those that a call of the transaction that runs couldn't be told of.
    pub(crate) untold: u64,
    /// The partition of the transaction that runs.
    pub(crate) in_transaction: Option<usize>,
    /// Its bytes when its time came last.
    bytes: TenantBytes,
}

/// Bytes of the partitions that a shard owns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TenantBytes {
    /// Of memory that is used.
    pub(crate) used: u64,
    /// That the live records have in a log.
    pub(crate) live: u64,
}

impl LocalTenant {
    fn new(keyspace: Keyspace) -> Self {
        Self {
            keyspace,
            libraries: Libraries::default(),
            still: 0,
            untold: 0,
            in_transaction: None,
            bytes: TenantBytes::default(),
        }
    }

    #[inline]
    pub(crate) fn owns(&self, partition: usize) -> bool {
        self.keyspace.part(partition).is_owner()
    }
}

/// All tenants, by number.
pub(crate) struct Tenants {
    pub(crate) all: Vec<LocalTenant>,
    upkeep: DirtySet,
    bytes: TenantBytes,
    /// Some partition is owned by this shard.
    pub(crate) owns_some: bool,
}

impl Index<TenantId> for Tenants {
    type Output = LocalTenant;

    #[inline]
    fn index(&self, tenant: TenantId) -> &LocalTenant {
        &self.all[tenant.index()]
    }
}

impl IndexMut<TenantId> for Tenants {
    #[inline]
    fn index_mut(&mut self, tenant: TenantId) -> &mut LocalTenant {
        &mut self.all[tenant.index()]
    }
}

impl Tenants {
    /// Those with these keyspaces, in the order of their numbers.
    pub(crate) fn new(keyspaces: Vec<Keyspace>) -> Self {
        let owns_some = keyspaces.iter().any(Keyspace::owns_some);
        let upkeep = DirtySet::new(keyspaces.len());
        let all = keyspaces.into_iter().map(LocalTenant::new).collect();
        Self { all, upkeep, bytes: TenantBytes::default(), owns_some }
    }

    /// The reader of the arena of a partition.
    pub(crate) fn readers<'a>(&'a self) -> impl Fn(TenantId, usize) -> &'a Reader + 'a {
        |tenant, partition| self[tenant].keyspace.reader(partition)
    }

    /// What each counts: of all, or of those whose time came at the last tick.
    pub(crate) fn stats(&self, is_all: bool) -> BTreeMap<TenantId, StoreStats> {
        let all = (0..).map(TenantId).take(if is_all { self.all.len() } else { 0 });
        let some = self.upkeep.share().filter(|_| !is_all);
        all.chain(some).map(|tenant| (tenant, self[tenant].keyspace.stats())).collect()
    }

    /// Those of all tenants; at each tick.
    pub(crate) fn bytes(&mut self) -> TenantBytes {
        for tenant in self.upkeep.share() {
            let LocalTenant { keyspace, bytes, .. } = &mut self.all[tenant.index()];
            let used = keyspace.stats().data.used_bytes;
            let now = TenantBytes { used, live: keyspace.live_bytes() };
            let before = std::mem::replace(bytes, now);
            self.bytes.used = self.bytes.used + now.used - before.used;
            self.bytes.live = self.bytes.live + now.live - before.live;
        }
        self.bytes
    }

    /// A command of a tenant is about to run.
    #[inline]
    pub(crate) fn touch(&mut self, tenant: TenantId, turn: &Turn<'_>) {
        if self.upkeep.touch(tenant) {
            self.begin(tenant, turn);
        }
    }

    #[cold]
    fn begin(&mut self, tenant: TenantId, turn: &Turn<'_>) {
        self[tenant].keyspace.begin_turn(turn);
    }

    pub(crate) fn is_touched(&self, tenant: TenantId) -> bool {
        self.upkeep.is_touched(tenant)
    }

    /// The upkeep at the end of a turn.
    pub(crate) fn maintain(&mut self, turn: &Turn<'_>, is_tick: bool) -> Maintenance {
        self.upkeep.end_turn(is_tick, |tenant, rested| {
            let keyspace = &mut self.all[tenant.index()].keyspace;
            if rested {
                keyspace.begin_turn(turn);
            }
            keyspace.maintain(turn)
        })
    }

    /// Those whose time came at the last tick.
    pub(crate) fn share(&self) -> impl Iterator<Item = &LocalTenant> {
        self.upkeep.share().map(|tenant| &self[tenant])
    }

    /// What all have together.
    pub(crate) fn sum(&self, of: impl Fn(&LocalTenant) -> usize) -> usize {
        self.all.iter().map(of).sum()
    }

    /// Closes all keyspaces.
    pub(crate) fn close(self) -> Vec<ClosedArenas> {
        self.all.into_iter().flat_map(|tenant| tenant.keyspace.close()).collect()
    }
}
