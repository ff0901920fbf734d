//! What an arena's header says of the log that has its changes, and of the machine's boot.
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

    fn store_id(&mut self, at: u64, id: &[u8; 16]) {
        for (at, word) in (at..).step_by(8).zip(id.as_chunks::<8>().0) {
            self.words.store64(at, u64::from_le_bytes(*word), Relaxed);
        }
    }
}
