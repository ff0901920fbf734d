//! The room that a log keeps on its disk, so that a full disk does no harm.
//!
//! ```text
//! ahead: │ what the journal may hold │ removals │ a start │ a file's records once more │
//!        └── full: other writes are refused ─────┴── removals wait, compaction goes on ─┘
//! ```
//!
//! 1. Files are set aside ahead until they have room for all four parts. Their space is theirs, so
//!    writing them meets no full disk. If the disk has no more while a part is missing, the log is
//!    **full**. Nothing is taken from the journal between a file's beginning and one or the other.
//! 2. So what the journal holds then finds room. Removals go on, and only as many are promised as
//!    there is room for: [`KeptRoom::end`] bytes are never promised.
//! 3. Of these, a start loses what is left of the file being written; the rest takes what is alive
//!    in the oldest file, and the frames which say that it has left. It leaves, and is the next
//!    file. So compaction always gets on, and removals with it.
//! 4. A value that is longer than a file needs a file of its own, which nothing promises. If the
//!    disk has no room for it, files that were set aside are given up for it.
//!
//! No I/O.

use crate::format::layout::BLOCK_BYTES;

/// Least room for removals: a few, each in a block of its own.
const REMOVALS_LEAST: u64 = 16 * BLOCK_BYTES;
/// For the frames that tell which file is the oldest, and what they fill up.
const NOTES_BYTES: u64 = 4 * BLOCK_BYTES;

/// How much is kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeptRoom {
    /// Bytes that may be waiting when the disk is found full; 0: nobody waits, and one file ahead
    /// is enough.
    pub(super) backlog: u64,
}

impl KeptRoom {
    /// All four parts, for files of so many bytes, of which the longest has so many.
    pub(super) fn all(self, usual: u64, longest: u64) -> u64 {
        if self.backlog == 0 {
            return 0;
        }
        // A quarter: for frames, and what they leave at the ends of files.
        let backlog = self.backlog + self.backlog / 4;
        backlog + REMOVALS_LEAST.max(usual / 2) + KeptRoom::end(usual, longest)
    }

    /// The last two parts.
    pub(super) fn end(usual: u64, longest: u64) -> u64 {
        usual + KeptRoom::once_more(longest)
    }

    /// What the records of a file of so many bytes take if they are appended again.
    pub(super) fn once_more(file_bytes: u64) -> u64 {
        // Other frames than before, which end elsewhere.
        file_bytes + file_bytes / 16 + NOTES_BYTES
    }
}
