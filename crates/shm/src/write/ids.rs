//! The ids in an arena's header: of the log that has its changes, and of the machine's boot.
//!
//! The arena's writer only, at its start.

use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Says which log has the arena's changes: zeros for none.
    pub fn set_log_id(&mut self, id: &[u8; 16]) {
        self.store_id(header::LOG_ID, id);
    }

    /// Says in which boot of the machine this writer began.
    pub fn set_boot_id(&mut self, id: &[u8; 16]) {
        self.store_id(header::BOOT_ID, id);
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
