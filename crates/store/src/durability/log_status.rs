//! What a shard and the thread of its log tell each other, and what anybody may look at.
//!
//! ```text
//! shard ── mode, want_sync, wake ──> LogStatus <── health, age, figures ── the log's thread
//! ```
//!
//! 1. A shard that waits for a sync says so first and looks at the durable LSN then; the log's
//!    thread stores durable LSNs first and looks for waiters then. So no waiter is forgotten.
//! 2. A broken log stays broken until a base counts.
//!
//! Any thread.

use crate::durability::base_stage::{BaseStage, LogStage};
use crate::durability::sync_mode::SyncMode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// The log's thread works.
const AWAKE: u8 = 0;
/// It rests for a moment: only a wish for a sync wakes it.
const NAPS: u8 = 1;
/// It rests until there is something to do.
const SLEEPS: u8 = 2;

/// A round of compaction was asked for.
const ROUND_WANTED: u8 = 1;
/// It goes.
const ROUND_GOES: u8 = 2;

/// How a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogHealth {
    /// It takes changes.
    Well,
    /// There is no room for its next file; changes other than removals are refused until there is.
    Full,
    /// A write or sync failed: changes are refused until a base counts.
    Broken,
}

/// The state of one shard's log.
#[derive(Debug)]
pub struct LogStatus {
    mode: AtomicU8,
    health: AtomicU8,
    cause: Mutex<String>,
    /// Why nothing is compacted; empty: it is.
    compaction_fault: Mutex<String>,
    /// When the oldest change was written that isn't synced, µs of the log's clock; 0: none.
    unsynced_since_us: AtomicU64,
    /// Somebody waits for a sync.
    wanted: AtomicBool,
    /// The sync under way has ended.
    sync_ended: AtomicBool,
    /// What wakes the log's thread: nothing, a wish for a sync, or commits too.
    rest: AtomicU8,
    /// The journal's tail when the shard last stood still.
    stood_at: AtomicU64,
    /// The log's thread is to write what is left, and end.
    closing: AtomicBool,
    /// It has: nothing more gets durable.
    ended: AtomicBool,
    thread: OnceLock<Thread>,
    base: BaseStage,
    /// A round of compaction that was asked for: [`ROUND_WANTED`], [`ROUND_GOES`], or 0.
    round: AtomicU8,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    syncs: AtomicU64,
    sync_us: AtomicU64,
    longest_sync_us: AtomicU64,
    bytes: AtomicU64,
    files_bytes: AtomicU64,
    /// [`UNTOLD`] until the shard has told it.
    live_bytes: AtomicU64,
    mended: AtomicU64,
}

const UNTOLD: u64 = u64::MAX;

/// What INFO shows of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Syncs so far.
    pub syncs: u64,
    /// Time that they took together, µs.
    pub sync_us: u64,
    /// The longest of them, µs.
    pub longest_sync_us: u64,
    /// Bytes of the files that count.
    pub bytes: u64,
    /// Bytes of the files that count, and of those that are prepared.
    pub files_bytes: u64,
    /// Records that were bad in memory, and that the log has mended.
    pub mended: u64,
}

impl LogStatus {
    /// The state of a log that is well.
    #[must_use]
    pub fn new(mode: SyncMode) -> LogStatus {
        let status = LogStatus {
            mode: AtomicU8::new(0),
            health: AtomicU8::new(0),
            cause: Mutex::default(),
            compaction_fault: Mutex::default(),
            unsynced_since_us: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            sync_ended: AtomicBool::new(false),
            rest: AtomicU8::new(AWAKE),
            stood_at: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            thread: OnceLock::new(),
            base: BaseStage::default(),
            round: AtomicU8::new(0),
            figures: Figures { live_bytes: AtomicU64::new(UNTOLD), ..Figures::default() },
        };
        status.set_mode(mode);
        status
    }

    /// The state of a log that begins with a base. `broke`: it takes the place of one that broke,
    /// by this cause; changes are refused until it counts.
    #[must_use]
    pub fn of_base(mode: SyncMode, broke: Option<&str>) -> LogStatus {
        let mut status = LogStatus::new(mode);
        status.base = BaseStage::begun(broke.is_some());
        status.cause = Mutex::new(broke.unwrap_or_default().to_owned());
        status
    }

    /// How far its base is.
    #[must_use]
    pub fn stage(&self) -> LogStage {
        self.base.get()
    }

    /// Whether what it has is safe: it isn't, while its base isn't whole.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> bool {
        self.base.get() == LogStage::Counts
    }

    /// Whether its base takes the place of a log that broke: changes are refused until it counts.
    #[inline]
    #[must_use]
    pub fn heals(&self) -> bool {
        self.base.heals()
    }

    /// A base has failed in whose place nothing is: changes are refused until a later one counts.
    pub(crate) fn refuse(&self, cause: &str) {
        self.tell_health(LogHealth::Broken, cause.to_owned());
        self.base.refuse();
    }

    /// A log broke, this one or another: changes are refused until the base counts. What this one
    /// was given is still written.
    pub(crate) fn heals_from_now(&self, cause: &str) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = cause.to_owned();
        self.base.refuse();
    }

    pub(crate) fn set_stage(&self, stage: LogStage) {
        self.base.set(stage);
        self.wake_from(NAPS);
    }

    /// Has the log's thread end without writing what is left.
    pub fn abandon(&self) {
        self.base.abandon();
        self.close();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.base.is_abandoned()
    }

    /// Asks for a round of compaction over all files, due or not.
    pub fn want_round(&self) {
        self.round.store(ROUND_WANTED, SeqCst);
        self.wake_from(NAPS);
    }

    /// Whether a round that was asked for hasn't ended.
    #[must_use]
    pub fn is_in_round(&self) -> bool {
        self.round.load(SeqCst) != 0
    }

    /// The log's thread: whether a round is to begin; it does.
    pub(crate) fn take_round(&self) -> bool {
        self.round.load(Relaxed) == ROUND_WANTED && self.round.swap(ROUND_GOES, SeqCst) != 0
    }

    /// The log's thread: the round has ended, unless another is wanted since.
    pub(crate) fn end_round(&self) {
        if self.round.load(Relaxed) == ROUND_GOES {
            let _ = self.round.compare_exchange(ROUND_GOES, 0, SeqCst, SeqCst);
        }
    }

    /// When it is synced.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> SyncMode {
        SyncMode::ALL[usize::from(self.mode.load(Relaxed)).min(SyncMode::ALL.len() - 1)]
    }

    /// Has it synced by another mode from now on.
    pub fn set_mode(&self, mode: SyncMode) {
        let code = SyncMode::ALL.iter().position(|it| *it == mode).unwrap_or_default();
        self.mode.store(u8::try_from(code).unwrap_or_default(), Relaxed);
        self.wake();
    }

    /// How it is for writes: one that takes the place of a broken one takes none before it counts;
    /// the first one hinders nobody before.
    #[inline]
    #[must_use]
    pub fn health_for_writes(&self) -> LogHealth {
        match (self.heals(), self.counts()) {
            (true, _) => LogHealth::Broken,
            (false, true) => self.health(),
            (false, false) => LogHealth::Well,
        }
    }

    /// How it is.
    #[inline]
    #[must_use]
    pub fn health(&self) -> LogHealth {
        match self.health.load(Acquire) {
            0 => LogHealth::Well,
            1 => LogHealth::Full,
            _ => LogHealth::Broken,
        }
    }

    /// Why it isn't well; empty if it is.
    #[must_use]
    pub fn cause(&self) -> String {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The log's thread tells how it is.
    pub fn tell_health(&self, health: LogHealth, cause: String) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = cause;
        let code = match health {
            LogHealth::Well => 0,
            LogHealth::Full => 1,
            LogHealth::Broken => 2,
        };
        self.health.store(code, Release);
    }

    /// When the oldest change was written that isn't synced, µs of the log's clock. While the log's
    /// thread makes a pass, since when one may be there: a disk that doesn't answer holds a pass.
    #[must_use]
    pub fn unsynced_since_us(&self) -> Option<u64> {
        Some(self.unsynced_since_us.load(Relaxed)).filter(|&us| us > 0)
    }

    /// The log's thread tells when the oldest change was taken that isn't synced; `None`: there is
    /// none.
    pub fn tell_unsynced_since(&self, us: Option<u64>) {
        self.unsynced_since_us.store(us.map_or(0, |us| us.max(1)), Relaxed);
    }

    /// Asks for a sync at once. The caller looks at the durable LSN behind this, and waits only if
    /// that is too low.
    pub fn want_sync(&self) {
        self.wanted.store(true, SeqCst);
        self.wake_from(NAPS);
    }

    /// Whether somebody waits for a sync; forgets it. Before the sync.
    #[must_use]
    pub fn take_wanted(&self) -> bool {
        self.wanted.swap(false, SeqCst)
    }

    /// Whether somebody waits for a sync.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst)
    }

    /// The sync under way has ended: wakes the log's thread, which takes the end. The thread that
    /// ran it calls this when the end can be taken.
    pub fn tell_sync_ended(&self) {
        self.sync_ended.store(true, SeqCst);
        self.wake_from(NAPS);
    }

    /// Whether the end of a sync may be there to be taken.
    pub(crate) fn has_sync_ended(&self) -> bool {
        self.sync_ended.load(SeqCst)
    }

    /// Before the end is taken: a later one is told anew.
    pub(crate) fn forget_sync_ended(&self) {
        self.sync_ended.store(false, SeqCst);
    }

    /// There are new commits, or orders: wakes the log's thread if it sleeps. A shard calls it
    /// behind its turn's commits.
    #[inline]
    pub fn wake(&self) {
        self.wake_from(SLEEPS);
    }

    #[inline]
    fn wake_from(&self, least: u8) {
        // With the fence in `rest`: either this sees that it rests, or it sees what is new.
        fence(SeqCst);
        if self.rest.load(Relaxed) >= least
            && self.rest.swap(AWAKE, SeqCst) >= least
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// The log's thread rests for so long, or until it is woken: by commits too, unless it naps.
    /// Not at all if there is something to do by `has_work`, which looks when every later wake-up
    /// counts.
    pub(crate) fn rest(&self, most: Duration, naps: bool, has_work: impl FnOnce() -> bool) {
        self.begin_rest(naps);
        self.end_rest((!has_work()).then_some(most));
    }

    /// The log's thread is about to rest: from now on, it is woken.
    pub(crate) fn begin_rest(&self, naps: bool) {
        self.thread.get_or_init(std::thread::current);
        self.rest.store(if naps { NAPS } else { SLEEPS }, SeqCst);
        fence(SeqCst);
    }

    /// It rests for so long, or until it is woken; `None`: not at all.
    pub(crate) fn end_rest(&self, most: Option<Duration>) {
        if let Some(most) = most {
            std::thread::park_timeout(most);
        }
        self.rest.store(AWAKE, SeqCst);
    }

    /// The shard is about to stand still: its journal ends there.
    pub fn tell_stand(&self, tail: u64) {
        self.stood_at.store(tail, Release);
    }

    /// Where the journal of a shard ends that stands still.
    #[must_use]
    pub fn stood_at(&self) -> u64 {
        self.stood_at.load(Acquire)
    }

    /// Has the log's thread write and sync what is left, and end.
    pub fn close(&self) {
        self.closing.store(true, SeqCst);
        self.wake_from(NAPS);
    }

    /// Whether it is to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// The log's thread has written and synced its last. It has told before what is durable.
    pub(crate) fn tell_end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// Whether the log's thread has written and synced its last.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// A sync has taken so long.
    pub fn count_sync(&self, us: u64) {
        self.figures.syncs.fetch_add(1, Relaxed);
        self.figures.sync_us.fetch_add(us, Relaxed);
        self.figures.longest_sync_us.fetch_max(us, Relaxed);
    }

    /// Bytes of the files that count, and of all.
    pub fn count_bytes(&self, bytes: u64, files_bytes: u64) {
        self.figures.bytes.store(bytes, Relaxed);
        self.figures.files_bytes.store(files_bytes, Relaxed);
    }

    /// The shard tells the bytes of the records that its arenas have.
    pub fn tell_live(&self, bytes: u64) {
        self.figures.live_bytes.store(bytes, Relaxed);
    }

    /// Bytes of the records that the shard's arenas had when it told it; `None`: it never did.
    #[must_use]
    pub fn live_bytes(&self) -> Option<u64> {
        Some(self.figures.live_bytes.load(Relaxed)).filter(|&bytes| bytes != UNTOLD)
    }

    /// Why nothing is compacted; empty if nothing is wrong.
    #[must_use]
    pub fn compaction_fault(&self) -> String {
        self.compaction_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The log's thread tells why nothing is compacted.
    pub fn tell_compaction_fault(&self, what: String) {
        *self.compaction_fault.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// The log's thread tells that a record was mended, which was bad in memory.
    pub fn tell_mended(&self) {
        self.figures.mended.fetch_add(1, Relaxed);
    }

    /// What INFO shows.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        LogFigures {
            syncs: self.figures.syncs.load(Relaxed),
            sync_us: self.figures.sync_us.load(Relaxed),
            longest_sync_us: self.figures.longest_sync_us.load(Relaxed),
            bytes: self.figures.bytes.load(Relaxed),
            files_bytes: self.figures.files_bytes.load(Relaxed),
            mended: self.figures.mended.load(Relaxed),
        }
    }
}
