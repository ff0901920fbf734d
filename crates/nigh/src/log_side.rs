//! The log of a database: its thread, and who waits for the disk.
//!
//! ```text
//! writer ── commits, wish for a sync ──> journal, LogStatus <── the log's thread ── frames, fdatasync
//! waiter <── durable LSN rose: all are woken ──────────────────────────────┘
//! ```
//!
//! 1. A waiter notes the count of news, asks for a sync, and looks at the durable LSN behind that;
//!    only then it sleeps. The log's thread stores durable LSNs first, and counts then. So no
//!    wake-up is lost.
//! 2. One sync serves all who wait: strong writes of many threads share it.
//!
//! Any thread.

use crate::error::{DbError, OpenError};
use nigh_log::RealFolder;
use nigh_shm::{JournalWriter, Reader};
use nigh_store::{
    CompactionPace, LogHealth, LogStatus, LogThread, LogThreadEnds, LogThreadParts, OpenedLog,
    ShardCompaction, ShardLog, SyncMode,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of the log that may be out of date, in per cent of those that count.
const GARBAGE_PERCENT: u64 = 100;
/// Longest wait of a write for the disk.
const WAIT_MOST: Duration = Duration::from_secs(60);
/// The same while the log has no room: it isn't likely to get some.
const FULL_MOST: Duration = Duration::from_secs(2);
/// Between looks at the log's health while nothing is told.
const LOOK: Duration = Duration::from_secs(1);
/// Age of the oldest change that isn't on disk from which on writes wait: twice what an eventual
/// write may lose.
const LATE_US: u64 = 2_000_000;

/// SyncNews of the log, counted for those who wait.
#[derive(Default)]
struct SyncNews {
    count: Mutex<u64>,
    told: Condvar,
}

impl SyncNews {
    fn tell(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.told.notify_all();
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is more than was seen, for a while.
    fn wait(&self, seen: u64) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(count, LOOK, |count| *count == seen);
        drop(waited);
    }
}

/// What all threads see of the log.
pub(crate) struct LogSide {
    pub(crate) status: Arc<LogStatus>,
    news: Arc<SyncNews>,
    is_late: AtomicBool,
}

/// What the owner of the partition has of its log.
pub(crate) struct OwnerSide {
    pub(crate) journal: JournalWriter,
    pub(crate) compaction: ShardCompaction,
}

impl LogSide {
    /// Starts the log's thread. `wake` wakes the thread that looks after the partition.
    pub(crate) fn start(
        opened: OpenedLog<RealFolder>,
        file_bytes: u64,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(LogSide, OwnerSide, JoinHandle<()>), OpenError> {
        let OpenedLog { world, shards, streams, .. } = opened;
        let shard = shards.into_iter().next().expect("the log of one shard was opened");
        let ShardLog { journal, reader, writer, status, words } = shard;
        let (ends, compaction) = LogThreadEnds::new();
        let news = Arc::new(SyncNews::default());
        let told = Arc::clone(&news);
        let thread = LogThread::new(LogThreadParts {
            reader,
            writer,
            world,
            status: Arc::clone(&status),
            words,
            streams,
            orders: ends.orders,
            looks: (ends.looks, wake),
            pace: CompactionPace { garbage_percent: GARBAGE_PERCENT, max_bytes: 0, file_bytes },
            wake_shards: Arc::new(move || told.tell()),
        });
        let named = std::thread::Builder::new().name("nigh-log".to_owned());
        let spawned = named.spawn(move || thread.run());
        let handle = spawned.map_err(|source| OpenError::Thread { source })?;
        let log = LogSide { status, news, is_late: AtomicBool::new(false) };
        Ok((log, OwnerSide { journal, compaction }, handle))
    }

    /// Whether a write may begin; one that only removes may, though the log has no room.
    #[inline]
    pub(crate) fn check(&self, only_removes: bool) -> Result<(), DbError> {
        match self.status.health() {
            LogHealth::Well => Ok(()),
            LogHealth::Full if only_removes => Ok(()),
            _ => Err(self.ill()),
        }
    }

    #[cold]
    fn ill(&self) -> DbError {
        let cause = self.status.cause();
        match self.status.health() {
            LogHealth::Broken => DbError::LogBroken { cause },
            _ => DbError::LogFull { cause },
        }
    }

    /// Whether writes wait, as the disk is late.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Looks at the age of the oldest change that isn't on disk; `now_us` is the log's clock.
    pub(crate) fn look(&self, now_us: u64) {
        let since = self.status.unsynced_since_us();
        let is_late = since.is_some_and(|since| now_us.saturating_sub(since) >= LATE_US);
        // A log without room says so itself.
        let is_well = self.status.health() == LogHealth::Well;
        let counts = self.status.mode() == SyncMode::EverySecond && is_well;
        self.is_late.store(is_late && counts, Ordering::Relaxed);
    }

    /// Waits until all changes up to `lsn` are on disk.
    pub(crate) fn wait(&self, reader: &Reader, lsn: u64) -> Result<(), DbError> {
        if reader.durable_lsn() >= lsn {
            return Ok(());
        }
        let begin = Instant::now();
        loop {
            let seen = self.news.count();
            self.status.want_sync();
            if reader.durable_lsn() >= lsn {
                return Ok(());
            }
            if self.status.health() == LogHealth::Broken {
                return Err(self.ill());
            }
            let most = match self.status.health() {
                LogHealth::Full => FULL_MOST,
                _ => WAIT_MOST,
            };
            if begin.elapsed() >= most {
                return Err(DbError::NotDurable { seconds: begin.elapsed().as_secs() });
            }
            self.news.wait(seen);
        }
    }
}
