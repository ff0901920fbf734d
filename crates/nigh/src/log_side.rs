//! The log of a partition: its thread, and who waits for the disk.
//!
//! ```text
//! writer ── commits, wish for a sync ──> journal, LogStatus <── the log's thread ── frames, fdatasync
//! waiter <── durable LSN rose: all are woken ──────────────────────────────┘
//!   └── nobody has the log: writes and syncs by itself (`LogRunner::sync_now`)
//! ```
//!
//! 1. A waiter notes the count of news, asks for a sync, and looks at the durable LSN behind that;
//!    only then it sleeps. The log's thread stores durable LSNs first, and counts then. So no
//!    wake-up is lost.
//! 2. One sync serves all waiting writers: strong writes of many threads share it.
//! 3. A log that broke gets another status with the base that takes its place (`healing`). A
//!    waiting writer looks at the status that is there at each look.
//! 4. A wait that fails tells that a change is made only to a call that has made one.
//!
//! Any thread.

use crate::error::{DbError, OpenError};
use crate::watch::{PartitionWatches, Watches};
use crate::watch_history::{HeldFiles, MarkedLog};
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use nigh_log::{ChainMark, RealFolder};
use nigh_shm::{JournalWriter, Reader, spawn_without_signals};
use nigh_store::{
    CompactionPace, EndOrder, LogHealth, LogOrder, LogRunner, LogStatus, LogThread, LogThreadEnds,
    LogThreadParts, Ordered, ShardCompaction, ShardLog, SharedStreams, SyncMode, ThreadLog,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of the log that may be out of date, in per cent of those that count.
const GARBAGE_PERCENT: u64 = 100;
/// Files that are held for watches which read them, though nothing in them counts.
const HOLD_FILES: u64 = 4;
/// Longest wait of a write for the disk.
const WAIT_MOST: Duration = Duration::from_secs(60);
/// The same while the log has no room, or broke and no new one is begun: it is well again soon, or
/// not for long.
const ILL_MOST: Duration = Duration::from_secs(2);
/// Between looks at the log's health while nothing is told.
const LOOK: Duration = Duration::from_secs(1);
/// Age of the oldest change that isn't on disk from which on writes wait: twice what an eventual
/// write may lose.
const LATE_US: u64 = 2_000_000;

/// SyncNews of the log, counted for the waiting writers.
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
    status: ArcSwap<LogStatus>,
    /// Syncs of logs that broke.
    syncs_before: AtomicU64,
    news: Arc<SyncNews>,
    is_late: AtomicBool,
    partition: usize,
    watches: Arc<Watches>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The log of that thread.
    runner: ArcSwapOption<LogRunner<RealFolder>>,
    /// Orders to the thread.
    orders: Mutex<Option<SyncSender<LogOrder>>>,
    /// Wakes the thread that looks after the partition.
    wake: Arc<dyn Fn() + Send + Sync>,
    file_bytes: u64,
}

/// What the logs of all partitions have in common.
#[derive(Clone, Copy)]
pub(crate) struct LogNeeds<'a> {
    pub(crate) streams: &'a Arc<SharedStreams>,
    pub(crate) file_bytes: u64,
    /// Wakes the thread that looks after the partitions.
    pub(crate) wake: &'a Arc<dyn Fn() + Send + Sync>,
    pub(crate) watches: &'a Arc<Watches>,
}

/// A mark of the log that was asked for.
pub(crate) struct AskedMark {
    answer: Receiver<Result<ChainMark, String>>,
    held: HeldFiles,
}

/// What the owner of the partition has of its log.
pub(crate) struct OwnerSide {
    pub(crate) journal: JournalWriter,
    pub(crate) compaction: ShardCompaction,
}

fn pace(file_bytes: u64) -> CompactionPace {
    CompactionPace { garbage_percent: GARBAGE_PERCENT, max_bytes: 0, file_bytes }
}

impl LogSide {
    /// Starts the log's thread.
    pub(crate) fn start(
        (partition, shard): (usize, ShardLog<RealFolder>),
        needs: LogNeeds<'_>,
    ) -> Result<(LogSide, OwnerSide), OpenError> {
        let LogNeeds { streams, file_bytes, wake, watches } = needs;
        let ShardLog { journal, log: of_thread } = shard;
        let log = LogSide {
            status: ArcSwap::new(Arc::clone(&of_thread.status)),
            syncs_before: AtomicU64::new(0),
            news: Arc::default(),
            is_late: AtomicBool::new(false),
            partition,
            watches: Arc::clone(watches),
            thread: Mutex::default(),
            runner: ArcSwapOption::empty(),
            orders: Mutex::default(),
            wake: Arc::clone(wake),
            file_bytes,
        };
        let (ends, compaction) = LogThreadEnds::new();
        let spawned = log.spawn(of_thread, ends, streams);
        spawned.map_err(|source| OpenError::Thread { source })?;
        Ok((log, OwnerSide { journal, compaction }))
    }

    /// Starts a thread for the log.
    pub(crate) fn spawn(
        &self,
        log: ThreadLog<RealFolder>,
        ends: LogThreadEnds,
        streams: &Arc<SharedStreams>,
    ) -> io::Result<()> {
        let (told, file_bytes) = (Arc::clone(&self.news), self.file_bytes);
        let thread = LogThread::new(LogThreadParts {
            log,
            streams: Arc::clone(streams),
            orders: ends.orders,
            looks: (ends.looks, Arc::clone(&self.wake)),
            pace: pace(file_bytes),
            wake_shards: Arc::new(move || told.tell()),
        });
        let (watches, partition) = (Arc::clone(&self.watches), self.partition);
        let thread = thread.with_observer(Box::new(PartitionWatches { watches, partition }));
        let runner = Arc::new(LogRunner::new(thread));
        let run = Arc::clone(&runner);
        let name = format!("nigh-log-{partition}");
        *self.thread() = Some(spawn_without_signals(name, move || run.run())?);
        self.runner.store(Some(runner));
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = Some(ends.sender);
        Ok(())
    }

    /// Whether files of the log should go. They do behind syncs, which it asks for.
    pub(crate) fn compacts(&self) -> bool {
        let status = self.status();
        let (files, live) = (status.figures().bytes, status.live_bytes());
        let is_due = live.is_some_and(|live| pace(self.file_bytes).is_due(files, live));
        let compacts = is_due || status.health() == LogHealth::Full;
        if compacts {
            status.want_sync();
        }
        compacts
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the log is now.
    #[inline]
    pub(crate) fn status(&self) -> Guard<Arc<LogStatus>> {
        self.status.load()
    }

    /// A base begins in place of a log that broke.
    pub(crate) fn begin_anew(&self, status: Arc<LogStatus>) {
        let before = self.status.swap(status);
        self.syncs_before.fetch_add(before.figures().syncs, Ordering::Relaxed);
        self.tell();
    }

    /// Wakes all writers that wait for the disk.
    pub(crate) fn tell(&self) {
        self.news.tell();
    }

    /// How often the log was synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs_before.load(Ordering::Relaxed) + self.status().figures().syncs
    }

    /// Whether the log's thread has ended.
    pub(crate) fn has_thread_ended(&self) -> bool {
        let mut thread = self.thread();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return false;
        }
        // A panic has told itself.
        let _ = thread.take().map(JoinHandle::join);
        true
    }

    /// Has the log's thread write and sync what is left, and waits for it. False if it panicked.
    pub(crate) fn close(&self) -> bool {
        self.status().close();
        let thread = self.thread().take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }

    /// Whether the log has all changes for certain, and a later open will find them there.
    pub(crate) fn is_safe(&self, reader: &Reader) -> bool {
        let status = self.status();
        let is_well = status.health() == LogHealth::Well && status.counts();
        is_well && reader.durable_lsn() >= reader.begun_lsn()
    }

    /// Whether a write may begin; one that only removes may, though the log has no room.
    #[inline]
    pub(crate) fn check(&self, only_removes: bool) -> Result<(), DbError> {
        match self.status().health_for_writes() {
            LogHealth::Well => Ok(()),
            LogHealth::Full if only_removes => Ok(()),
            _ => Err(self.ill()),
        }
    }

    /// Why the log isn't well.
    #[cold]
    pub(crate) fn ill(&self) -> DbError {
        let status = self.status();
        let cause = status.cause();
        match status.health_for_writes() {
            LogHealth::Full => DbError::LogFull { cause },
            _ => DbError::LogBroken { cause },
        }
    }

    /// Whether writes wait, as the disk is late.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Looks at the age of the oldest change that isn't on disk; `now_us` is the log's clock.
    pub(crate) fn look(&self, now_us: u64) {
        let status = self.status();
        let since = status.unsynced_since_us();
        let is_late = since.is_some_and(|since| now_us.saturating_sub(since) >= LATE_US);
        // A log without room says so itself.
        let is_well = status.health() == LogHealth::Well;
        let counts = status.mode() != SyncMode::No && is_well;
        self.is_late.store(is_late && counts, Ordering::Relaxed);
    }

    /// Asks the log to end a frame at a place of the journal, to sync it, and to hold its files.
    pub(crate) fn ask_mark(&self, tail: u64) -> Result<AskedMark, DbError> {
        let status = self.status();
        if status.health_for_writes() != LogHealth::Well {
            return Err(self.ill());
        }
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(orders) = orders else { return Err(DbError::Closed) };
        let (told, answer) = sync_channel(1);
        let held = HeldFiles::new(());
        let (hold_bytes, holder) = (HOLD_FILES * self.file_bytes, Arc::downgrade(&held));
        let what = Ordered::EndFrame(EndOrder { told, hold_bytes, holder });
        orders.try_send(LogOrder { tail, what }).map_err(|_| DbError::Late)?;
        status.want_sync();
        Ok(AskedMark { answer, held })
    }

    /// Waits for what was asked.
    pub(crate) fn wait_mark(&self, asked: AskedMark) -> Result<MarkedLog, DbError> {
        let AskedMark { answer, held } = asked;
        let begin = Instant::now();
        loop {
            self.status().want_sync();
            match answer.recv_timeout(LOOK) {
                Ok(Ok(mark)) => return Ok(MarkedLog { mark, held }),
                Ok(Err(cause)) => return Err(DbError::LogBroken { cause }),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ill()),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() >= WAIT_MOST => {
                    return Err(DbError::Late);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits until all changes up to `lsn` are on disk, for a call that has made some of them, or
    /// none.
    pub(crate) fn wait(&self, reader: &Reader, lsn: u64, has_written: bool) -> Result<(), DbError> {
        if reader.durable_lsn() >= lsn {
            return Ok(());
        }
        let synced = self.runner.load().as_ref().is_some_and(|runner| runner.sync_now());
        if synced && reader.durable_lsn() >= lsn {
            return Ok(());
        }
        let begin = Instant::now();
        let mut patience = DiskPatience { begin, ill_since: None };
        loop {
            let seen = self.news.count();
            let status = self.status();
            status.want_sync();
            if reader.durable_lsn() >= lsn {
                return Ok(());
            }
            let health = status.health();
            let now = Instant::now();
            if patience.is_over(health == LogHealth::Well, now) {
                return Err(match has_written {
                    true => made(health, &status.cause(), now.duration_since(begin)),
                    false => not_made(health, status.cause()),
                });
            }
            self.news.wait(seen);
        }
    }
}

/// How long a call waits for the disk: for a log that is ill, from when that was seen.
struct DiskPatience {
    begin: Instant,
    ill_since: Option<Instant>,
}

impl DiskPatience {
    fn is_over(&mut self, is_well: bool, now: Instant) -> bool {
        self.ill_since = if is_well { None } else { self.ill_since.or(Some(now)) };
        let is_ill_for = self.ill_since.map(|since| now.duration_since(since));
        now.duration_since(self.begin) >= WAIT_MOST || is_ill_for >= Some(ILL_MOST)
    }
}

/// What a call is told that has made a change, and has waited in vain.
fn made(health: LogHealth, cause: &str, waited: Duration) -> DbError {
    let cause = match health {
        LogHealth::Broken => format!(
            "the log broke: {cause}: a new one is written from memory, which is tried every ten \
             seconds"
        ),
        _ => format!("the disk hasn't taken it for {} s", waited.as_secs()),
    };
    DbError::NotDurable { cause }
}

/// The same of a call that has made none.
fn not_made(health: LogHealth, cause: String) -> DbError {
    match health {
        LogHealth::Well => DbError::Late,
        LogHealth::Full => DbError::LogFull { cause },
        LogHealth::Broken => DbError::LogBroken { cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a call had waited for a slow disk counted as time for which the log was ill: when that
    /// disk gave an error in the end, the call didn't wait for the new log.
    #[test]
    fn a_call_waits_for_a_log_that_is_ill_from_when_it_is() {
        const S: Duration = Duration::from_secs(1);
        let begin = Instant::now();
        let mut patience = DiskPatience { begin, ill_since: None };
        for (at, is_well, is_over) in [
            (0, true, false),
            (10, true, false),
            (11, false, false),
            (12, false, false),
            (13, false, true),
            (14, true, false),
            (20, false, false),
            (22, false, true),
            (59, true, false),
            (60, true, true),
        ] {
            assert_eq!(patience.is_over(is_well, begin + at * S), is_over, "behind {at} s");
        }
        let mut ill = DiskPatience { begin, ill_since: None };
        assert!(!ill.is_over(false, begin) && ill.is_over(false, begin + 2 * S));
    }
}
