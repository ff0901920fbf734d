//! What the owner of a shard and the log's keeper tell each other when a base begins.
//!
//! Data: any thread.

use nigh_shm::{DurableWord, Region};
use std::sync::Arc;

/// Which log, and which of its shards.
#[derive(Debug, Clone, Copy)]
pub struct LogBerth {
    /// The log's id.
    pub log_id: [u8; 16],
    /// The machine's boot.
    pub boot_id: [u8; 16],
    /// The shard.
    pub shard: usize,
    /// Number of shards.
    pub shards: usize,
}

/// A shard as it is when a base begins.
pub struct AttachedShard {
    /// Its number.
    pub shard: usize,
    /// Its journal's tail: what is told later comes behind the base's beginning.
    pub tail: u64,
    /// Its streams, in order.
    pub streams: Vec<AttachedStream>,
    /// The latest time by which its arenas have judged expiry, Unix ms.
    pub clock_ms: u64,
}

/// A stream when a base begins.
pub struct AttachedStream {
    /// Its number.
    pub number: u32,
    /// Its last LSN.
    pub last: u64,
    /// Its durable LSN.
    pub word: DurableWord,
    /// Its arena, in which values lie that entries name.
    pub arena: Arc<Region>,
}
