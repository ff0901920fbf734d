//! The channels between a shard and its log's thread.
//!
//! The thread that starts both.

use crate::durability::orders::{LogOrder, LookBatch};
use crate::durability::shard_compaction::ShardCompaction;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Orders that may wait for a log's thread.
const ORDERS_MOST: usize = 64;
/// Batches that the owner is to look at which may wait for it: what it looks at in its longest
/// turn.
const LOOKS_MOST: usize = 8;

/// A log's thread's ends of what it and its shard send each other.
pub struct LogThreadEnds {
    /// What gives orders to the thread; others than the shard may have it too.
    pub sender: SyncSender<LogOrder>,
    /// What the thread is told to do.
    pub orders: Receiver<LogOrder>,
    /// What the shard is to look at.
    pub looks: SyncSender<LookBatch>,
}

impl LogThreadEnds {
    /// The thread's ends, and what the shard has.
    #[must_use]
    pub fn new() -> (LogThreadEnds, ShardCompaction) {
        let (sender, orders) = sync_channel(ORDERS_MOST);
        let (looks, looked) = sync_channel(LOOKS_MOST);
        let compaction = ShardCompaction::new(looked, sender.clone());
        (LogThreadEnds { sender, orders, looks }, compaction)
    }
}
