//! The runners of a log: its thread, one pass after the other, and a writer that waits for the
//! disk.
//!
//! ```text
//! thread ── lock ── pass ── unlock ── rest ─┐     writer ── lock, if it is free ── sync_now ── unlock
//!   └───────────────────────────────────────┘
//! ```
//!
//! 1. A writer waits here for the disk alone: what might wait for anything else, it leaves to the
//!    thread ([`LogThread::sync_now`]), and a log that somebody has, too.
//! 2. The thread looks for work with the lock, when each later wish wakes it. What a writer does
//!    between that look and the rest only leaves less to do.
//! 3. The thread may find the lock taken again and again, by writers that sync; not beyond the end
//!    of a file, which they leave to it.
//! 4. If a pass panics, of either, the log is broken for all to see, and gone from here.

use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::log_thread::{LogThread, Passed};
use nigh_log::Storage;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the header of this file.
pub struct LogRunner<S: Storage> {
    /// `None`: it has ended.
    log: Mutex<Option<LogThread<S>>>,
    status: Arc<LogStatus>,
    wake_shards: Arc<dyn Fn() + Send + Sync>,
}

/// The log, for one that makes a pass.
struct InPass<'a, S: Storage> {
    runner: &'a LogRunner<S>,
    log: MutexGuard<'a, Option<LogThread<S>>>,
    has_returned: bool,
}

impl<S: Storage> LogRunner<S> {
    /// Of a log whose thread is about to run.
    #[must_use]
    pub fn new(log: LogThread<S>) -> LogRunner<S> {
        let (status, wake_shards) = log.told();
        LogRunner { log: Mutex::new(Some(log)), status, wake_shards }
    }

    /// The thread: runs until the log is closed.
    pub fn run(&self) {
        loop {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = self.pass(log, |log| match log.pass() {
                Passed::More => Some(None),
                Passed::Rests => Some(Some(log.begin_rest())),
                Passed::Ended => None,
            });
            match passed.flatten() {
                Some(None) => {}
                Some(Some(rest)) => self.status.end_rest(rest),
                // What it has is given back here.
                None => {
                    self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return;
                }
            }
        }
    }

    /// A writer that waits for the disk: writes and syncs what is in the journal, in place of the
    /// thread, if nobody has the log and nothing but the disk is to be waited for. False: it has
    /// done nothing.
    pub fn sync_now(&self) -> bool {
        let Ok(log) = self.log.try_lock() else { return false };
        self.pass(log, LogThread::sync_now).unwrap_or(false)
    }

    /// `None`: the log has ended.
    fn pass<R>(
        &self,
        log: MutexGuard<'_, Option<LogThread<S>>>,
        work: impl FnOnce(&mut LogThread<S>) -> R,
    ) -> Option<R> {
        let mut pass = InPass { runner: self, log, has_returned: false };
        let done = pass.log.as_mut().map(work);
        pass.has_returned = true;
        done
    }
}

impl<S: Storage> Drop for InPass<'_, S> {
    fn drop(&mut self) {
        if !self.has_returned {
            *self.log = None;
            let cause = "its thread ended by a fault of its own".to_owned();
            self.runner.status.tell_health(LogHealth::Broken, cause);
            (self.runner.wake_shards)();
        }
    }
}
