//! What a frame's header says beside the frame's body. No I/O.

use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES, frame as f};
use crate::format::sum::SumKey;
use crate::position::LogPosition;

/// Where a frame ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameEnd {
    /// At the next 512 bytes: more frames follow before a sync.
    Sector,
    /// At the next 4,096 bytes: a sync follows, and no later write touches what it makes durable.
    Block,
}

impl FrameEnd {
    const fn align(self) -> u64 {
        match self {
            FrameEnd::Sector => SECTOR_BYTES,
            FrameEnd::Block => BLOCK_BYTES,
        }
    }
}

/// What is known before the body is.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameFacts {
    pub(super) kind: FrameKind,
    /// Where it begins.
    pub(super) at: LogPosition,
    /// The key of its file.
    pub(super) key: SumKey,
    /// The header sum of the frame before.
    pub(super) before_sum: u32,
    pub(super) watermark: LogPosition,
    pub(super) oldest: u64,
    pub(super) unix_ms: u64,
    pub(super) end: FrameEnd,
}

/// What is known of the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyFacts {
    pub(super) bytes: u64,
    pub(super) rows: u32,
    pub(super) changes: u32,
    pub(super) clock_ms: u64,
}

/// Length of a frame at this position with so many bytes in its body.
pub(super) fn frame_length(position: u64, body_bytes: u64, end: FrameEnd) -> u64 {
    (position + f::BYTES as u64 + body_bytes).next_multiple_of(end.align()) - position
}

impl FrameFacts {
    /// The frame's length.
    pub(super) fn length(&self, body_bytes: u64) -> u64 {
        frame_length(self.at.position, body_bytes, self.end)
    }

    /// The header, and its sum; `body_sum` covers all behind the header.
    pub(super) fn header(&self, body: &BodyFacts, body_sum: u32) -> ([u8; f::BYTES], u32) {
        let header = FrameHeader {
            header_sum: 0,
            body_sum,
            before_sum: self.before_sum,
            at: self.at,
            length: self.length(body.bytes),
            body_bytes: body.bytes,
            watermark: self.watermark,
            oldest: self.oldest,
            unix_ms: self.unix_ms,
            clock_ms: body.clock_ms,
            kind: self.kind,
            rows: body.rows,
            changes: body.changes,
        };
        header.encode(&self.key)
    }
}
