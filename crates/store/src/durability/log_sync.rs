//! The sync of a log that is under way, and where it runs: beside the log's thread, or in its place.
//!
//! ```text
//! log's thread ── SyncJob ──> Syncer ── SyncEnd ──> log's thread
//!      └── goes on with entries and frames ──┘
//! ```
//!
//! 1. One job is under way at most.
//! 2. The age of the oldest unsynced change counts from when it was taken, also while a sync runs
//!    that covers it: it is unsynced until that has ended.
//!
//! The log's thread.

use nigh_log::{Storage, SyncEnd, SyncJob};

/// Runs syncs of one log, one at a time.
pub trait Syncer<F>: Send {
    /// Begins to run a job; the one before has been taken.
    fn begin(&mut self, job: SyncJob<F>);

    /// The end of the job, if it has ended; gives it once.
    fn take(&mut self) -> Option<SyncEnd>;

    /// Waits for the end of the job.
    fn wait(&mut self) -> SyncEnd;
}

/// Runs a job at once, on the thread that begins it.
#[derive(Debug, Default)]
struct SyncerInPlace {
    end: Option<SyncEnd>,
}

impl<F: nigh_log::StoredFile> Syncer<F> for SyncerInPlace {
    fn begin(&mut self, job: SyncJob<F>) {
        self.end = Some(job.run());
    }

    fn take(&mut self) -> Option<SyncEnd> {
        self.end.take()
    }

    fn wait(&mut self) -> SyncEnd {
        self.end.take().expect("a job that was begun")
    }
}

/// See the header of this file. Times are µs of the log's clock.
pub(crate) struct LogSync<S: Storage> {
    pub(crate) syncer: Box<dyn Syncer<S::File>>,
    /// When the oldest change was taken that no sync covers.
    unsynced_since_us: Option<u64>,
    /// The same of the sync under way.
    syncing_since_us: Option<u64>,
    began_us: u64,
    ended_us: u64,
    /// Somebody waited for the sync under way when it began.
    wanted: bool,
}

impl<S: Storage> LogSync<S> {
    /// Nothing is unsynced; syncs run in place.
    pub(crate) fn new(now_us: u64) -> LogSync<S> {
        LogSync {
            syncer: Box::new(SyncerInPlace::default()),
            unsynced_since_us: None,
            syncing_since_us: None,
            began_us: 0,
            ended_us: now_us,
            wanted: false,
        }
    }

    /// Something was taken now.
    pub(crate) fn took(&mut self, now_us: u64) {
        self.unsynced_since_us.get_or_insert(now_us);
    }

    /// When the oldest change was taken that no sync covers.
    pub(crate) fn unsynced_since_us(&self) -> Option<u64> {
        self.unsynced_since_us
    }

    /// When the oldest change was taken that isn't synced.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        self.syncing_since_us.or(self.unsynced_since_us)
    }

    /// When the last sync ended.
    pub(crate) fn ended_us(&self) -> u64 {
        self.ended_us
    }

    /// A sync begins, for which somebody waits or nobody.
    pub(crate) fn begins(&mut self, wanted: bool, now_us: u64) {
        self.syncing_since_us = self.unsynced_since_us.take();
        (self.wanted, self.began_us) = (wanted, now_us);
    }

    /// It has ended. How long it took, and whether somebody waited.
    pub(crate) fn ends(&mut self, now_us: u64) -> (u64, bool) {
        (self.syncing_since_us, self.ended_us) = (None, now_us);
        (now_us.saturating_sub(self.began_us), std::mem::take(&mut self.wanted))
    }
}
