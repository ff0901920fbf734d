//! What counts: the log's identity, its tenants, and its chains.

use crate::format::layout::{TENANT_END, TENANT_NAME_BYTES_MOST};
use crate::format::sum::Secret;
use crate::position::{Chain, LogPosition};
use std::collections::{BTreeMap, BTreeSet};

/// A tenant's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLine {
    /// Its name: 1 to 128 bytes without white space and control characters.
    pub name: String,
    /// Partitions, 1 to 256.
    pub partitions: u32,
    /// The seed of its keys' hash.
    pub seed: u32,
}

/// Where a chain of a backup ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainEnd {
    /// The shard.
    pub shard: u32,
    /// The end of the last frame.
    pub at: LogPosition,
    /// That frame's header sum.
    pub sum: u32,
}

/// What the file `meta` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The log's id, random.
    pub id: [u8; 16],
    /// The secret of its sums, random.
    pub secret: Secret,
    /// The next generation that a chain may have.
    pub next_generation: u64,
    /// The next number that a tenant may have.
    pub next_tenant: u32,
    /// Tenants by number; those that were dropped are in `dropped` instead.
    pub tenants: BTreeMap<u32, TenantLine>,
    /// Numbers of dropped tenants that the log may still have changes of.
    pub dropped: BTreeSet<u32>,
    /// The chains that count, by shard: none, or one for each of all shards.
    pub chains: Vec<Chain>,
    /// Only in a backup: where each chain ends.
    pub ends: Vec<ChainEnd>,
    /// Only in a backup: its mark.
    pub mark: Option<[u8; 16]>,
}

impl Meta {
    /// The meta of a new log: no tenant, no chain.
    #[must_use]
    pub fn new(id: [u8; 16], secret: Secret) -> Meta {
        Meta {
            id,
            secret,
            next_generation: 1,
            next_tenant: 1,
            tenants: BTreeMap::new(),
            dropped: BTreeSet::new(),
            chains: Vec::new(),
            ends: Vec::new(),
            mark: None,
        }
    }

    /// Whether a stream's tenant was dropped.
    #[must_use]
    pub fn is_dropped(&self, stream: u32) -> bool {
        self.dropped.contains(&(stream >> 8))
    }

    /// The rules that hold between lines.
    ///
    /// # Errors
    /// What is broken.
    pub fn check(&self) -> Result<(), String> {
        let chains = &self.chains;
        if !chains.iter().zip(0..).all(|(c, shard)| c.shard == shard)
            || !chains.iter().all(|c| c.shards as usize == chains.len())
        {
            return Err("the chains aren't one for each shard".into());
        }
        if chains.iter().any(|c| c.generation == 0 || c.generation >= self.next_generation) {
            return Err("a chain's generation isn't below next-generation".into());
        }
        let numbers = || self.tenants.keys().chain(&self.dropped);
        if numbers().any(|&number| number >= self.next_tenant) || self.next_tenant > TENANT_END {
            return Err("a tenant's number isn't below next-tenant".into());
        }
        if self.tenants.keys().any(|number| self.dropped.contains(number)) {
            return Err("a tenant is there and dropped".into());
        }
        for tenant in self.tenants.values() {
            let name = &tenant.name;
            let plain = !name.chars().any(|c| c.is_whitespace() || c.is_control());
            if !plain || name.is_empty() || name.len() > TENANT_NAME_BYTES_MOST {
                return Err(format!("the tenant's name {name:?} is impossible"));
            }
            if !(1..=256).contains(&tenant.partitions) {
                return Err(format!("tenant {name} has {} partitions", tenant.partitions));
            }
        }
        let mut names: Vec<&str> = self.tenants.values().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < self.tenants.len() {
            return Err("two tenants have one name".into());
        }
        let backup = self.ends.len() == chains.len() && self.mark.is_some();
        let live = self.ends.is_empty() && self.mark.is_none();
        if !(backup || live) || !self.ends.iter().zip(0..).all(|(end, shard)| end.shard == shard) {
            return Err("the ends of the chains aren't one for each shard".into());
        }
        Ok(())
    }
}
