//! What an arena's header says of the log that has its changes, and of the machine's boot.
//!
//! 1. An id is two words, and one whose first word is zero is none. So a kill between two of the
//!    stores leaves the id from before, the new one or none, and never a half of one.
//!
//! The arena's writer only.

use crate::format::layout::{PROMISE_SYNCED, header};
use crate::format::words::SharedWords;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Writer {
    /// Says which log has the arena's changes: zeros for none.
    pub fn set_log_id(&mut self, id: &[u8; 16]) {
        self.store_id(header::LOG_ID, id);
    }

    /// Says in which boot of the machine this writer began.
    pub fn set_boot_id(&mut self, id: &[u8; 16]) {
        self.store_id(header::BOOT_ID, id);
    }

    /// Says whether replies wait until the changes are on disk, for readers that ask nobody.
    pub fn set_replies_wait(&mut self, wait: bool) {
        let promise = if wait { PROMISE_SYNCED } else { 0 };
        self.words.store32(header::PROMISE, promise, Release);
    }

    /// The number of the last change.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The first word goes first and comes last (invariant 1).
    fn store_id(&mut self, at: u64, id: &[u8; 16]) {
        let id = u128::from_le_bytes(*id);
        #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
        let (first, second) = (id as u64, (id >> 64) as u64);
        if self.words.load64(at, Relaxed) != first {
            self.words.store64(at, 0, Release);
        }
        self.words.store64(at + 8, second, Release);
        self.words.store64(at, first, Release);
    }
}
