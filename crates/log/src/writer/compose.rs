//! Composing frames in memory.
//!
//! ```text
//! buffer:  | room for header and stream table | change | change | …
//! ```
//!
//! 1. A payload is copied once, to where it is written from. The stream table is only known when
//!    the frame is closed: if it is shorter than its room, the changes move up to it. So a frame
//!    begins where its buffer does, from where a disk takes it without a copy.
//! 2. The checksum is computed in one pass when the frame is closed, while its bytes are in caches.
//! 3. The open frame is never longer than 1 MiB; a longer commit is a [`super::long_frame`]'s.
//!
//! The log's thread. A commit allocates nothing.

use crate::format::change::ChangeHeader;
use crate::format::frame_body::StreamRow;
use crate::format::layout::{BLOCK_BYTES, FRAME_BYTES, change as c, frame as f, put};
use crate::format::sum::SumKey;
use crate::storage::aligned::AlignedBytes;
use crate::writer::frame_facts::{BodyFacts, FrameFacts};
use crate::writer::new_commit::{NewChange, NewCommit};

/// The open frame.
#[derive(Debug)]
pub(super) struct FrameComposer {
    buffer: AlignedBytes,
    /// Rows that have room before the changes.
    rows_most: usize,
    changes: u32,
    clock_ms: u64,
}

impl FrameComposer {
    /// An empty frame, for so many streams.
    pub(super) fn new(streams: usize) -> FrameComposer {
        let mut new = FrameComposer {
            buffer: AlignedBytes::default(),
            rows_most: streams,
            changes: 0,
            clock_ms: 0,
        };
        new.clear(streams);
        new
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Bytes of the body, if the frame's table had so many rows.
    pub(super) fn body_bytes(&self, rows: usize) -> usize {
        self.buffer.len() - self.front() + rows * f::ROW_BYTES
    }

    /// Whether so many bytes, and so many rows in all, still belong into this frame.
    pub(super) fn has_room(&self, rows: usize, more: usize) -> bool {
        let within = self.body_bytes(rows) + more <= FRAME_BYTES;
        self.is_empty() || (within && rows <= self.rows_most)
    }

    /// Adds the changes of a commit.
    pub(super) fn push(&mut self, commit: &NewCommit<'_>) {
        for (header, change) in commit.headed() {
            append(&mut self.buffer, &header, change);
            self.changes += 1;
        }
        self.clock_ms = self.clock_ms.max(commit.clock_ms);
    }

    /// The bytes of the frame, and its header's sum.
    pub(super) fn close(
        &mut self,
        facts: &FrameFacts,
        rows: impl Iterator<Item = StreamRow>,
        count: usize,
    ) -> (&[u8], u32) {
        let (front, changes_bytes) = (self.front(), self.buffer.len() - self.front());
        let behind_table = f::BYTES + count * f::ROW_BYTES;
        if behind_table < front {
            self.buffer.copy_within(front.., behind_table);
        }
        rows.zip(0..count).for_each(|(row, i)| {
            put(&mut self.buffer, f::BYTES + i * f::ROW_BYTES, &row.encode());
        });
        let body = BodyFacts {
            bytes: (changes_bytes + count * f::ROW_BYTES) as u64,
            rows: u32::try_from(count).expect("streams have u32 numbers"),
            changes: self.changes,
            clock_ms: self.clock_ms,
        };
        let length = usize::try_from(facts.length(body.bytes)).expect("about 1 MiB");
        // What moved up has left bytes behind its end.
        self.buffer.resize(behind_table + changes_bytes);
        self.buffer.resize(length);
        let sum = seal(&mut self.buffer, facts, &body);
        (&self.buffer, sum)
    }

    /// Begins the next frame, for so many streams.
    pub(super) fn clear(&mut self, streams: usize) {
        self.rows_most = streams;
        let most = self.front() + FRAME_BYTES + usize::try_from(BLOCK_BYTES).expect("4,096");
        if self.buffer.capacity() < most {
            self.buffer = AlignedBytes::with_capacity(most);
        }
        // What stands before the changes is stored when the frame is closed.
        self.buffer.resize(self.front());
        (self.changes, self.clock_ms) = (0, 0);
    }

    /// Where changes begin in the buffer.
    fn front(&self) -> usize {
        f::BYTES + self.rows_most * f::ROW_BYTES
    }
}

/// Appends a change that fits into memory.
fn append(buffer: &mut AlignedBytes, header: &ChangeHeader, change: &NewChange<'_>) {
    buffer.extend_from_slice(&header.encode());
    change.payload.iter().for_each(|piece| buffer.extend_from_slice(piece));
    buffer.extend_from_slice(padding(header));
}

/// The zeros behind a change.
pub(super) fn padding(header: &ChangeHeader) -> &'static [u8] {
    let over = header.bytes_in_frame() - c::BYTES - header.payload_bytes as usize;
    ZEROS.get(..over).expect("less than the alignment")
}

static ZEROS: [u8; c::ALIGN] = [0; c::ALIGN];

/// The bytes of a file's BEGIN, and its header's sum.
pub(super) fn begin_frame(
    facts: &FrameFacts,
    lasts: &[(u32, u64)],
    clock_ms: u64,
) -> (Vec<u8>, u32) {
    let body = BodyFacts {
        bytes: (lasts.len() * f::ROW_BYTES) as u64,
        rows: u32::try_from(lasts.len()).expect("streams have u32 numbers"),
        changes: 0,
        clock_ms,
    };
    let mut frame = vec![0; f::BYTES];
    for &(stream, last) in lasts {
        frame.extend_from_slice(&StreamRow { stream, first: 0, last }.encode());
    }
    frame.resize(usize::try_from(facts.length(body.bytes)).expect("a table in memory"), 0);
    let sum = seal(&mut frame, facts, &body);
    (frame, sum)
}

/// Stores the header of a frame whose other bytes are there.
fn seal(frame: &mut [u8], facts: &FrameFacts, body: &BodyFacts) -> u32 {
    let rest = frame.get(f::BYTES..).unwrap_or_default();
    let body_sum = SumKey::more(facts.key.body(facts.at.position), rest);
    let (header, sum) = facts.header(body, body_sum);
    put(frame, 0, &header);
    sum
}
