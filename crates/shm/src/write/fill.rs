//! How full an arena is: what an owner that evicts looks at.
//!
//! 1. What the index tables, the runs, the reserve and the cleaner's stock take is no room for
//!    records; neither is what the file system doesn't give.
//!
//! The arena's writer only.

use crate::space::RESERVE_SEGMENTS;
use crate::write::writer::Writer;

/// Segments that records can't count on: the reserve, and what the cleaner keeps clean at least.
const KEPT_SEGMENTS: u64 = RESERVE_SEGMENTS as u64 + 2;

/// How full an arena is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArenaFill {
    /// Bytes of live records, without values that lie in runs.
    pub record_bytes: u64,
    /// Bytes of live values that lie in runs.
    pub run_bytes: u64,
    /// Bytes of all segments and of what may become one, but for what is kept free.
    pub room_bytes: u64,
    /// Keys.
    pub keys: u64,
    /// Entries of the index's current table, if there is no memory for a larger one; else
    /// `u64::MAX`.
    pub entries: u64,
    /// Bytes of the index's current table.
    pub index_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl Writer {
    /// How full the arena is now.
    #[must_use]
    #[inline]
    pub fn fill(&self) -> ArenaFill {
        let (space, table) = (&self.space, self.index.current());
        let segment_bytes = space.geometry().slot_bytes();
        let room = space.segment_bytes() + space.available_bytes();
        ArenaFill {
            record_bytes: space.live_segment_bytes(),
            run_bytes: space.live_bytes().saturating_sub(space.live_segment_bytes()),
            room_bytes: room.saturating_sub(KEPT_SEGMENTS * segment_bytes),
            keys: self.index.live(),
            entries: if self.cannot_grow() { table.entries() } else { u64::MAX },
            index_bytes: table.bytes(),
            segment_bytes,
        }
    }
}
