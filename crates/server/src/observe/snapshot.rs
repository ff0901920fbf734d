//! What a shard tells of itself, and the sum over all shards, which INFO and the metrics show.
//!
//! 1. A shard tells a snapshot at each tick, also while it rests: keys expire, and the age of its
//!    log grows. INFO, CLIENT LIST and CLIENT KILL wait for new ones.
//!
//! Made by the shard's thread, read by any.

use crate::engine::RuntimeStats;
use crate::observe::hotkeys::HotKeys;
use crate::observe::stats::Stats;
use crate::tenant::TenantId;
use nigh_store::StoreStats;
use std::collections::BTreeMap;

/// A client as CLIENT LIST and CLIENT KILL see it.
#[derive(Debug, Clone)]
pub(crate) struct ClientRow {
    pub(crate) id: u64,
    pub(crate) tenant: TenantId,
    pub(crate) address: String,
    pub(crate) local_address: String,
    /// Its line in CLIENT LIST.
    pub(crate) line: String,
    /// Its line in LOCAL LIST, if it is attached.
    pub(crate) local_line: Option<String>,
}

/// What one shard tells of its own work; counters are since the start, or since CONFIG RESETSTAT.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) connections: usize,
    /// Commands that ran there, wherever they came from.
    pub(crate) operations: u64,
    pub(crate) operations_per_s: u64,
    /// Commands that were sent to the owner.
    pub(crate) hops_out: u64,
    /// Commands that came from other shards.
    pub(crate) hops_in: u64,
    /// Requests without a reply, now.
    pub(crate) mailbox_depth: u64,
    /// Times that another shard's ring was full.
    pub(crate) mailbox_full: u64,
    /// Times that it woke another shard.
    pub(crate) wakes: u64,
    /// Thousandths of the last second or so that it worked, rather than span or slept.
    pub(crate) utilisation_permille: u64,
    /// The longest look after the store, by the clock on the wall.
    pub(crate) longest_step_ns: u64,
    /// The longest turn, by the clock on the wall.
    pub(crate) longest_turn_ns: u64,
    pub(crate) function_calls: u64,
    /// Connections that wait by WAIT or WAITAOF.
    pub(crate) blocked: usize,
    /// Age of the oldest change that isn't in its log on disk.
    pub(crate) unsynced_ms: u64,
    /// Times that writes had to wait for its log.
    pub(crate) log_delays: u64,
}

/// What one shard tells, or the sum of several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) stats: Stats,
    /// What its tenants' stores count; in a seat, all that the shard has told of each.
    pub(crate) tenants: BTreeMap<TenantId, StoreStats>,
    /// The same of all together, in the sum over all shards.
    pub(crate) store: StoreStats,
    pub(crate) runtime: RuntimeStats,
    /// Of each shard, in no order.
    pub(crate) parts: Vec<Part>,
    pub(crate) hot_keys: HotKeys,
    /// Memory of the connections' buffers.
    pub(crate) buffer_bytes: usize,
    /// Only when they were asked for.
    pub(crate) clients: Vec<ClientRow>,
}

impl Snapshot {
    /// Takes the place of an older one, but for tenants of which the newer one tells nothing.
    pub(crate) fn renew(&mut self, newer: Self) {
        let mut tenants = std::mem::take(&mut self.tenants);
        tenants.extend(&newer.tenants);
        *self = Self { tenants, ..newer };
    }

    /// Adds another shard's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.stats.add(&other.stats);
        self.parts.extend(&other.parts);
        self.hot_keys.add(&other.hot_keys);
        self.buffer_bytes += other.buffer_bytes;
        self.clients.extend(other.clients.iter().cloned());
        for (tenant, store) in &other.tenants {
            self.tenants.entry(*tenant).or_default().add(store);
        }
        add_runtime(&mut self.runtime, &other.runtime);
    }
}

/// Adds what another engine counts, or another shard's.
pub(crate) fn add_runtime(sum: &mut RuntimeStats, part: &RuntimeStats) {
    add_fields! {
        sum, part,
        contexts dropped_contexts heap_bytes array_buffer_bytes calls
        batches timeouts isolates_lost lingering heap_limit_hits errors
    }
}
