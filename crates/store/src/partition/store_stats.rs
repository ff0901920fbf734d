//! The counts of a store, as INFO shows them.
//!
//! Thread: any; it is plain data.

use nigh_shm::ArenaStats;

/// Counters since the start or the last [`crate::Store::reset_stats`], and sizes now.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys that a reading command found, as Redis counts.
    pub keyspace_hits: u64,
    /// Keys that a reading command didn't find.
    pub keyspace_misses: u64,
    /// Keys removed because their time was over.
    pub expired_keys: u64,
    /// Keys removed to make room.
    pub evicted_keys: u64,
    /// Keys in the data arena. Keys whose time is over count until they are met.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Keys that connections watch.
    pub watched_keys: u64,
    /// Memory of the clocks of keys, bytes; 0 without an LRU policy.
    pub recency_bytes: u64,
    /// Function libraries.
    pub libraries: u64,
    /// The arena of the data.
    pub data: ArenaStats,
    /// The arena of the libraries.
    pub system: ArenaStats,
}

impl StoreStats {
    /// Adds the counts of another partition, or of another shard's view.
    pub fn add(&mut self, other: &StoreStats) {
        self.keyspace_hits += other.keyspace_hits;
        self.keyspace_misses += other.keyspace_misses;
        self.expired_keys += other.expired_keys;
        self.evicted_keys += other.evicted_keys;
        self.keys += other.keys;
        self.expires += other.expires;
        self.watched_keys += other.watched_keys;
        self.recency_bytes += other.recency_bytes;
        self.libraries += other.libraries;
        self.data.add(&other.data);
        self.system.add(&other.system);
    }
}
