//! Settings of a writer. Any thread.

use crate::format::layout::{BLOCK_BYTES, FILE_BYTES_LEAST};
use crate::writer::kept_room::KeptRoom;

/// What an operator may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes of a log file: at least 16,384; rounded up to a multiple of 4,096. A frame that
    /// doesn't fit gets a larger file.
    pub file_bytes: u64,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        // A sync more each 64 MiB costs nothing, and a small log stays small.
        LogSettings { file_bytes: 64 << 20 }
    }
}

impl LogSettings {
    /// Bytes of disk that a new chain sets aside, if so many may wait for it in the journal.
    #[must_use]
    pub fn new_chain_bytes(self, backlog: u64) -> u64 {
        let file = self.rounded_bytes();
        let room = KeptRoom { backlog }.all(file, file);
        // Head and BEGIN take some of each.
        file * (1 + room.div_ceil(file - 2 * BLOCK_BYTES))
    }

    /// The bytes of a file, as the format allows them.
    pub(super) fn rounded_bytes(self) -> u64 {
        self.file_bytes.max(FILE_BYTES_LEAST).next_multiple_of(BLOCK_BYTES)
    }
}
