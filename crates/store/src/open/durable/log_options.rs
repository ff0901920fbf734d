//! What a start needs for a log, and what it leaves for the threads.
//!
//! Any thread: plain data.

use crate::durability::log_thread::ThreadLog;
use crate::durability::streams::SharedStreams;
use crate::durability::sync_mode::SyncMode;
use nigh_log::{LogSettings, Meta, Storage, TornTail, World};
use nigh_shm::JournalWriter;
use std::sync::Arc;

/// How a store with a log is opened.
#[derive(Clone)]
pub struct LogOptions {
    /// Number of shards.
    pub shards: usize,
    /// Sizes of the log's files.
    pub settings: LogSettings,
    /// Bytes of each shard's journal: a power of two from 1 MiB to 4 GiB.
    pub journal_bytes: u64,
    /// When the log is synced.
    pub mode: SyncMode,
    /// The machine's boot.
    pub boot_id: [u8; 16],
    /// Is told of bytes that were read, and of how many there are, while the log is replayed.
    pub progress: Arc<dyn Fn(ReplayProgress) + Send + Sync>,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Bytes of the log that were read.
    pub read_bytes: u64,
    /// Bytes of it that are to be read, about.
    pub all_bytes: u64,
}

/// What a start leaves for a shard, and for the thread of its log.
pub struct ShardLog<S: Storage> {
    /// The shard's side of its journal: for the end of its turns.
    pub journal: JournalWriter,
    /// The thread's.
    pub log: ThreadLog<S>,
}

/// A log that was opened.
pub struct OpenedLog<S: Storage> {
    /// The log's world.
    pub world: World<S>,
    /// What counts.
    pub meta: Meta,
    /// By shard.
    pub shards: Vec<ShardLog<S>>,
    /// The streams of all shards.
    pub streams: Arc<SharedStreams>,
    /// What was found.
    pub report: StartReport,
}

/// What a start found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartReport {
    /// Arenas that were built from the log.
    pub rebuilt: usize,
    /// Arenas that were adopted.
    pub adopted: usize,
    /// Files that were set aside, since the log has more than they have.
    pub set_aside: Vec<std::path::PathBuf>,
    /// Arenas of partitions that there are no more, removed: a conversion left them.
    pub strays: Vec<std::path::PathBuf>,
    /// Commits of journals that were written to the log.
    pub completed: u64,
    /// Torn tails that were cut off, by shard.
    pub torn: Vec<(u32, TornTail)>,
    /// Why a base was written; `None`: none was.
    pub base: Option<BaseCause>,
    /// Bytes of the log that were replayed.
    pub replayed_bytes: u64,
}

/// Why a base is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseCause {
    /// There was no log.
    First,
    /// The number of shards is another.
    Shards,
    /// The log of a shard broke, or its journal was lost.
    Broken,
    /// Memory has more than log and journal.
    Behind,
}
