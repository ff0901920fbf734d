//! The sync of a log that is under way, and where it runs: beside the log's thread, or in its
//! place.
//!
//! ```text
//! log's thread ── SyncJob ──> Syncer ── SyncEnd ──> log's thread
//!      └── goes on with entries and frames ──┘
//! ```
//!
//! 1. One job is under way at most.
//! 2. The age of the oldest unsynced change counts from the look at the journal before the one that
//!    took it, also while a sync runs that covers it: it is unsynced until that has ended. A record
//!    that was appended again has no age: nothing is lost with it.
//! 3. `everysec` loses at most a second: a change is on disk 1 s after that, while a sync takes
//!    less than half a second. So its sync begins half a second earlier, and by some slack. A
//!    change that comes while a sync runs waits for its end, and then for its own sync. Behind a
//!    longer one the next begins at once, and writes wait if it gets late.
//!
//! The log's thread, or a writer that syncs in its place.

use nigh_log::{Storage, SyncEnd, SyncJob};

/// What `everysec` may lose.
const SECOND_US: u64 = 1_000_000;
/// Of it: for the sync, however quick those before were.
const SYNC_US: u64 = 500_000;
/// Of it: for the nap before a change is taken, and for the frames that a sync's begin writes.
const SLACK_US: u64 = 100_000;

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

/// Since when something is there that isn't synced, µs.
#[derive(Debug, Default)]
struct Unsynced {
    since_us: Option<u64>,
    /// The same of entries: not only of records that were appended again.
    entries_since_us: Option<u64>,
}

/// See the header of this file. Times are µs of the log's clock.
pub(crate) struct LogSync<S: Storage> {
    pub(crate) syncer: Box<dyn Syncer<S::File>>,
    /// What no sync covers.
    unsynced: Unsynced,
    /// What the sync under way covers.
    syncing: Unsynced,
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
            unsynced: Unsynced::default(),
            syncing: Unsynced::default(),
            began_us: 0,
            ended_us: now_us,
            wanted: false,
        }
    }

    /// Something was taken that may be so old; whether entries were.
    pub(crate) fn took(&mut self, since_us: u64, entries: bool) {
        self.unsynced.since_us.get_or_insert(since_us);
        if entries {
            self.unsynced.entries_since_us.get_or_insert(since_us);
        }
    }

    /// Whether entries are unsynced that no sync under way covers.
    pub(crate) fn has_entries(&self) -> bool {
        self.unsynced.entries_since_us.is_some()
    }

    /// When the next sync begins, if nobody waits for it; `None`: nothing is unsynced.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.unsynced.since_us.map(|since| since + SECOND_US - SYNC_US - SLACK_US)
    }

    /// Whether all that was taken is synced.
    pub(crate) fn is_done(&self) -> bool {
        self.syncing.since_us.or(self.unsynced.since_us).is_none()
    }

    /// Since when the oldest entry is there that isn't synced.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        self.syncing.entries_since_us.or(self.unsynced.entries_since_us)
    }

    /// When the last sync ended.
    pub(crate) fn ended_us(&self) -> u64 {
        self.ended_us
    }

    /// A sync begins, for which somebody waits or nobody.
    pub(crate) fn begins(&mut self, wanted: bool, now_us: u64) {
        self.syncing = std::mem::take(&mut self.unsynced);
        (self.wanted, self.began_us) = (wanted, now_us);
    }

    /// It has ended. How long it took, and whether somebody waited.
    pub(crate) fn ends(&mut self, now_us: u64) -> (u64, bool) {
        (self.syncing, self.ended_us) = (Unsynced::default(), now_us);
        (now_us.saturating_sub(self.began_us), std::mem::take(&mut self.wanted))
    }
}
