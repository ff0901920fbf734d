//! The header of a frame.

use crate::format::layout::{FILE_BYTES_MOST, SECTOR_BYTES, frame as f, put, word32, word64};
use crate::format::sum::SumKey;
use crate::position::LogPosition;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The first of a file, and no other.
    Begin,
    /// Changes, or only a watermark and the oldest file.
    Changes,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Its own sum; [`FrameHeader::encode`] computes it.
    pub header_sum: u32,
    /// The body's.
    pub body_sum: u32,
    /// The header sum of the frame before in the chain; 0 for the first.
    pub before_sum: u32,
    /// Where it stands.
    pub at: LogPosition,
    /// Bytes, a multiple of 512.
    pub length: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// All before it was on disk before this frame was composed. In BEGIN: where the predecessor
    /// ends.
    pub watermark: LogPosition,
    /// The oldest file that counts.
    pub oldest: u64,
    /// The machine's clock, Unix ms; only shown.
    pub unix_ms: u64,
    /// The latest clock word, ms, or 0.
    pub clock_ms: u64,
    /// What it is.
    pub kind: FrameKind,
    /// Rows of the stream table.
    pub rows: u32,
    /// Changes.
    pub changes: u32,
}

impl FrameHeader {
    /// The bytes, and the header sum that they have.
    #[must_use]
    pub(crate) fn encode(&self, key: &SumKey) -> ([u8; f::BYTES], u32) {
        let mut bytes = [0; f::BYTES];
        let words32 = [
            (f::BODY_SUM, self.body_sum),
            (f::BEFORE_SUM, self.before_sum),
            (f::ROWS, self.rows),
            (f::CHANGES, self.changes),
        ];
        let words64 = [
            (f::FILE, self.at.file),
            (f::POSITION, self.at.position),
            (f::LENGTH, self.length),
            (f::BODY_BYTES, self.body_bytes),
            (f::MARK_FILE, self.watermark.file),
            (f::MARK_POSITION, self.watermark.position),
            (f::OLDEST, self.oldest),
            (f::UNIX_MS, self.unix_ms),
            (f::CLOCK_MS, self.clock_ms),
        ];
        put(&mut bytes, 0, f::MAGIC);
        words32.iter().for_each(|(at, word)| put(&mut bytes, *at, &word.to_le_bytes()));
        words64.iter().for_each(|(at, word)| put(&mut bytes, *at, &word.to_le_bytes()));
        put(&mut bytes, f::KIND, &[if self.kind == FrameKind::Begin { 1 } else { 2 }]);
        let sum = key.header(bytes.get(f::BODY_SUM..).unwrap_or_default());
        put(&mut bytes, f::HEADER_SUM, &sum.to_le_bytes());
        (bytes, sum)
    }

    /// Parses a header that stands at a place of a file with so many bytes for frames. `None` if it
    /// isn't *valid*; what else is wrong, [`FrameHeader::parse`] says as `Err`.
    #[must_use]
    pub(crate) fn parse(
        bytes: &[u8; f::BYTES],
        key: &SumKey,
        at: LogPosition,
        file_bytes: u64,
    ) -> Option<Result<FrameHeader, &'static str>> {
        let sum = word32(bytes, f::HEADER_SUM);
        if !bytes.starts_with(f::MAGIC) || sum != key.header(bytes.get(f::BODY_SUM..)?) {
            return None;
        }
        let (file, position) = (word64(bytes, f::FILE), word64(bytes, f::POSITION));
        let length = word64(bytes, f::LENGTH);
        let whole = length >= SECTOR_BYTES && length.is_multiple_of(SECTOR_BYTES);
        let ends = position.checked_add(length).is_some_and(|end| end <= file_bytes);
        if (LogPosition { file, position }) != at || !whole || !ends {
            return None;
        }
        let kind = match bytes.get(f::KIND..f::ROWS)? {
            [1, 0, 0, 0] => FrameKind::Begin,
            [2, 0, 0, 0] => FrameKind::Changes,
            _ => return Some(Err("a frame is of no known kind")),
        };
        let header = FrameHeader {
            header_sum: sum,
            body_sum: word32(bytes, f::BODY_SUM),
            before_sum: word32(bytes, f::BEFORE_SUM),
            at,
            length,
            body_bytes: word64(bytes, f::BODY_BYTES),
            watermark: LogPosition {
                file: word64(bytes, f::MARK_FILE),
                position: word64(bytes, f::MARK_POSITION),
            },
            oldest: word64(bytes, f::OLDEST),
            unix_ms: word64(bytes, f::UNIX_MS),
            clock_ms: word64(bytes, f::CLOCK_MS),
            kind,
            rows: word32(bytes, f::ROWS),
            changes: word32(bytes, f::CHANGES),
        };
        let zeros = bytes.get(f::REST..)?.iter().all(|&b| b == 0);
        Some(if zeros { header.check() } else { Err("a frame's unused bytes aren't zero") })
    }

    /// The checks of a header that is valid.
    fn check(self) -> Result<FrameHeader, &'static str> {
        let begin = self.kind == FrameKind::Begin;
        if begin != (self.at.position == super::layout::BLOCK_BYTES) {
            return Err("a file's first frame, and no other, is its BEGIN");
        }
        if self.body_bytes > self.length - f::BYTES as u64 {
            return Err("a frame's body is longer than the frame");
        }
        let mark = self.watermark;
        let late = if begin { mark.file >= self.at.file } else { mark > self.at };
        if late || mark.position > FILE_BYTES_MOST {
            return Err("a frame's watermark is behind it");
        }
        if self.oldest == 0 || self.oldest > self.at.file {
            return Err("a frame's oldest file is impossible");
        }
        if begin && self.changes != 0 {
            return Err("a BEGIN has changes");
        }
        Ok(self)
    }

    /// Where it ends.
    #[must_use]
    pub(crate) const fn end(&self) -> LogPosition {
        LogPosition { file: self.at.file, position: self.at.position + self.length }
    }
}
