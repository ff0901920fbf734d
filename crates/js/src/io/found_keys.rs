//! Writes the keys that a scan has found into the io memory, as scan() in 04_db.js reads them:
//! their number, then length and bytes of each. The runtime's thread.

use super::{Io, SCAN_AT, SCAN_ROOM, word_of};

/// The keys of one scan.
pub(crate) struct FoundKeys {
    io: Io,
    /// Offset of the next key.
    at: usize,
    count: i32,
    /// A key had no room.
    is_full: bool,
}

impl FoundKeys {
    /// No keys yet.
    pub(crate) fn new(io: Io) -> FoundKeys {
        FoundKeys { io, at: SCAN_AT + 8, count: 0, is_full: false }
    }

    /// Adds a key, unless there is no room for it or was none for an earlier one.
    pub(crate) fn add(&mut self, key: &[u8]) {
        self.is_full |= key.len() + 16 > SCAN_AT + SCAN_ROOM - self.at;
        if !self.is_full {
            self.io.set_word(self.at / 4, word_of(key.len()));
            self.io.put(self.at + 8, key);
            self.at += 8 + key.len().next_multiple_of(8);
            self.count += 1;
        }
    }

    /// Writes the number of keys. The offset behind them, and whether all had room.
    pub(crate) fn finish(self) -> (usize, bool) {
        self.io.set_word(SCAN_AT / 4, self.count);
        (self.at, !self.is_full)
    }
}
