//! The log of a shard in the hands of its thread, or of one that waits for the disk.
//!
//! ```text
//! the log's thread ── passes, rests ──┐
//!                                     ├── one at a time ──> LogThread
//! who waits ── one pass, its sync ────┘
//! ```
//!
//! 1. Who finds the log free makes the pass itself, which saves waking the thread, and being woken.
//!    Who finds it taken asks the thread.
//! 2. With the thread, the log goes, and all that is another's then: above all the journal's reader.
//!    Who still knows it finds nothing.
//! 3. The thread sleeps only if it finds nothing to do with the log in its hands. While somebody
//!    else has it, the thread waits for it, and looks then. So no pass leaves what nobody looks at.
//!
//! Any thread.

use crate::durability::log_status::LogStatus;
use crate::durability::log_thread::{LogThread, Passed};
use crate::durability::thread_ends::PanicAlarm;
use nigh_log::Storage;
use std::sync::{Arc, Mutex, PoisonError};

/// See the header of this file.
pub struct SharedLog<S: Storage> {
    /// `None`: the thread has ended.
    log: Mutex<Option<LogThread<S>>>,
    status: Arc<LogStatus>,
    wake_shards: Arc<dyn Fn() + Send + Sync>,
}

impl<S: Storage> SharedLog<S> {
    /// The log of this thread, which doesn't run yet.
    pub fn new(log: LogThread<S>) -> SharedLog<S> {
        let (status, wake_shards) =
            (Arc::clone(&log.sink.status), Arc::clone(&log.sink.wake_shards));
        SharedLog { log: Mutex::new(Some(log)), status, wake_shards }
    }

    /// The log's thread: runs until the log is closed. If a pass panics, the log is broken for all
    /// to see.
    pub fn run(&self) {
        let (_end, _alarm) = (End(&self.log), self.alarm());
        // If a pass panicked in another's hands, that has told it.
        while let Ok(mut hand) = self.log.lock() {
            let Some(log) = hand.as_mut() else { return };
            match log.pass() {
                Passed::More => {}
                Passed::Rests => {
                    let rest = log.begin_rest();
                    drop(hand);
                    self.status.rest(rest.most, rest.naps, || self.has_work(rest.naps));
                }
                Passed::Ended => return,
            }
        }
    }

    /// Asks for a sync at once: by a pass on this thread, if the log is free, and otherwise by the
    /// log's thread. The caller looks at the durable LSN behind this, and waits if that is too low.
    pub fn sync(&self) {
        self.status.note_wanted();
        let leaves_more = match self.log.try_lock() {
            Ok(mut hand) => {
                let _alarm = self.alarm();
                hand.as_mut().is_some_and(|log| log.pass() == Passed::More)
            }
            Err(_) => true,
        };
        if leaves_more {
            self.status.wake_at_once();
        }
    }

    /// Whether the thread doesn't sleep: there is something to do, or somebody does it.
    fn has_work(&self, naps: bool) -> bool {
        let hand = self.log.try_lock();
        hand.map_or(true, |log| log.as_ref().is_none_or(|log| log.has_work(naps)))
    }

    fn alarm(&self) -> PanicAlarm {
        let (status, wake_shards) = (Arc::clone(&self.status), Arc::clone(&self.wake_shards));
        PanicAlarm { status, wake_shards }
    }
}

/// The log's thread ends, by a panic too.
struct End<'a, S: Storage>(&'a Mutex<Option<LogThread<S>>>);

impl<S: Storage> Drop for End<'_, S> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
