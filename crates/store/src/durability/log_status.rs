//! What a shard and the thread of its log tell each other, and what anybody may look at.
//!
//! ```text
//! shard ── mode, wants_sync, wake ──> LogStatus <── written, health, durable ── the log's thread
//! ```
//!
//! 1. `written` only rises: all entries of the journal before it have been given to the kernel.
//! 2. A shard that waits for a sync says so first and looks at the durable LSN then; the log's
//!    thread stores durable LSNs first and looks for waiters then. So no waiter is forgotten.
//! 3. A broken log stays broken until a base counts.
//!
//! Any thread.

use crate::durability::sync_mode::SyncMode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;

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
    /// Position in the journal.
    written: AtomicU64,
    /// When the oldest change was written that isn't synced, µs of the log's clock; 0: none.
    unsynced_since_us: AtomicU64,
    /// Somebody waits for a sync.
    wanted: AtomicBool,
    /// The log's thread sleeps until it is woken.
    sleeps: AtomicBool,
    thread: OnceLock<Thread>,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    syncs: AtomicU64,
    sync_us: AtomicU64,
    longest_sync_us: AtomicU64,
    bytes: AtomicU64,
    files_bytes: AtomicU64,
}

/// What INFO shows of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Syncs so far.
    pub syncs: u64,
    /// Time that they took together, µs.
    pub sync_us: u64,
    /// The longest of them, µs.
    pub longest_sync_us: u64,
    /// Bytes written so far.
    pub bytes: u64,
    /// Bytes of the files that count, and of those that are prepared.
    pub files_bytes: u64,
}

impl LogStatus {
    /// The state of a log that is well.
    #[must_use]
    pub fn new(mode: SyncMode) -> LogStatus {
        let status = LogStatus {
            mode: AtomicU8::new(0),
            health: AtomicU8::new(0),
            cause: Mutex::default(),
            written: AtomicU64::new(0),
            unsynced_since_us: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            thread: OnceLock::new(),
            figures: Figures::default(),
        };
        status.set_mode(mode);
        status
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

    /// Position in the journal before which all is given to the kernel.
    #[inline]
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// The log's thread has given all before this position to the kernel.
    pub fn tell_written(&self, position: u64) {
        self.written.store(position, Release);
    }

    /// When the oldest change was written that isn't synced, µs of the log's clock.
    #[must_use]
    pub fn unsynced_since_us(&self) -> Option<u64> {
        Some(self.unsynced_since_us.load(Relaxed)).filter(|&us| us > 0)
    }

    /// The log's thread tells when it wrote the oldest change that isn't synced; `None`: there is
    /// none.
    pub fn tell_unsynced_since(&self, us: Option<u64>) {
        self.unsynced_since_us.store(us.map_or(0, |us| us.max(1)), Relaxed);
    }

    /// Asks for a sync at once. The caller looks at the durable LSN behind this, and waits only if
    /// that is too low.
    pub fn want_sync(&self) {
        self.wanted.store(true, SeqCst);
        self.wake();
    }

    /// Whether somebody waits; behind the stores of durable LSNs.
    #[must_use]
    pub fn take_wanted(&self) -> bool {
        self.wanted.swap(false, SeqCst)
    }

    /// Whether somebody waits for a sync.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst)
    }

    /// Wakes the log's thread, if it sleeps: a shard calls it behind its turn's commits.
    #[inline]
    pub fn wake(&self) {
        // With the fence in `sleep`: either this sees that it sleeps, or it sees the commits.
        std::sync::atomic::fence(SeqCst);
        if self.sleeps.load(Relaxed)
            && self.sleeps.swap(false, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until it is woken, or for so long; not at all if there is something to do by
    /// `has_work`, which is looked at when every later wake-up counts.
    pub fn sleep(&self, most: std::time::Duration, has_work: impl FnOnce() -> bool) {
        self.thread.get_or_init(std::thread::current);
        self.sleeps.store(true, SeqCst);
        std::sync::atomic::fence(SeqCst);
        if !has_work() {
            std::thread::park_timeout(most);
        }
        self.sleeps.store(false, SeqCst);
    }

    /// A sync has taken so long.
    pub fn count_sync(&self, us: u64) {
        self.figures.syncs.fetch_add(1, Relaxed);
        self.figures.sync_us.fetch_add(us, Relaxed);
        self.figures.longest_sync_us.fetch_max(us, Relaxed);
    }

    /// What the log has written so far, and what its files take.
    pub fn count_bytes(&self, bytes: u64, files_bytes: u64) {
        self.figures.bytes.store(bytes, Relaxed);
        self.figures.files_bytes.store(files_bytes, Relaxed);
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
        }
    }
}
