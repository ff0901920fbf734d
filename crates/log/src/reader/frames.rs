//! Walks over the frames of one file, one after the other, while they are valid.
//!
//! 1. "Valid" is as in docs/formats/log.md: header and body by their sums and, if the frame before
//!    is known, by its header sum. A valid frame that breaks the format is [`LogError::Body`].
//! 2. Behind a frame that isn't valid the walk stays where it is, and forgets what it has read: the
//!    next look reads again. So a follower may look at a place that is being written.
//! 3. Nothing is read from the limit on.
//!
//! One thread at a time.

use crate::error::LogError;
use crate::format::frame::FrameHeader;
use crate::format::frame_body::FrameBody;
use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES, frame as f, word32, word64};
use crate::format::sum::SumKey;
use crate::position::LogPosition;
use crate::reader::log_file::ReadFile;
use crate::storage::StoredFile;
use crate::storage::aligned::AlignedBytes;
use std::io;
use std::ops::Range;

/// Bytes that a walk reads first: enough for most BEGINs, since a start may read nothing else of a
/// file.
const AHEAD_FIRST_BYTES: usize = 16 << 10;
/// Bytes that it reads at once later on: two full frames, so that few are copied to the front.
const AHEAD_BYTES: usize = 2 << 20;

/// A walk over frames.
pub(crate) struct FrameWalk<F> {
    file: ReadFile<F>,
    limit: u64,
    position: u64,
    before: Option<u32>,
    /// It begins where a block does if its first frame does.
    buffer: AlignedBytes,
    /// The bytes in the buffer that were read.
    filled: usize,
    /// Where the buffer's first byte stands in the file.
    buffer_at: u64,
    ahead: usize,
    /// Where the body of the frame that was given last lies in the buffer.
    body: Range<usize>,
}

impl<F: StoredFile> FrameWalk<F> {
    /// A walk from BEGIN on. `before` is the header sum of the frame before, if that is known.
    pub(crate) fn begin(file: ReadFile<F>, before: Option<u32>) -> FrameWalk<F> {
        FrameWalk::from(file, BLOCK_BYTES, before)
    }

    /// A walk from a frame on.
    pub(crate) fn from(file: ReadFile<F>, position: u64, before: Option<u32>) -> FrameWalk<F> {
        FrameWalk {
            limit: file.head.file_bytes,
            file,
            position,
            before,
            buffer: AlignedBytes::default(),
            filled: 0,
            buffer_at: position,
            ahead: AHEAD_FIRST_BYTES,
            body: 0..0,
        }
    }

    /// Only frames that end at or before this are given. It may be raised.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit.min(self.file.head.file_bytes);
    }

    /// Goes to another frame of the file. The one before it isn't known.
    pub(crate) fn go_to(&mut self, position: u64) {
        (self.position, self.before, self.body) = (position, None, 0..0);
        if position < self.buffer_at {
            (self.filled, self.buffer_at) = (0, position);
        }
    }

    /// The file.
    pub(crate) const fn file(&self) -> &ReadFile<F> {
        &self.file
    }

    /// The file, of which no more is walked.
    pub(crate) fn into_file(self) -> ReadFile<F> {
        self.file
    }

    /// Where the next frame begins, if there is one.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// The same place in the chain.
    pub(crate) const fn at(&self) -> LogPosition {
        self.file.at(self.position)
    }

    /// The header sum of the frame before that place, if it is known.
    pub(crate) const fn before(&self) -> Option<u32> {
        self.before
    }

    /// Goes over the next frame; `None` if there is no valid one.
    ///
    /// # Errors
    /// `Io` or `Body`.
    pub(crate) fn advance(&mut self) -> Result<Option<FrameHeader>, LogError> {
        self.body = 0..0;
        let Some((start, header)) = self.look()? else {
            self.filled = 0;
            self.buffer_at = self.position;
            return Ok(None);
        };
        let begin = start + f::BYTES;
        self.body = begin..begin.saturating_add(bytes_of(header.body_bytes));
        self.position += header.length;
        self.before = Some(header.header_sum);
        Ok(Some(header))
    }

    /// The body of the frame that was given last.
    pub(crate) fn body(&self) -> &[u8] {
        self.buffer.get(self.body.clone()).unwrap_or_default()
    }

    /// The parsed body of the frame that was given last, which has this header.
    ///
    /// # Errors
    /// `Body`.
    pub(crate) fn parsed(&self, header: &FrameHeader) -> Result<FrameBody<'_>, LogError> {
        FrameBody::parse(header, self.body()).map_err(|what| self.broken(header.at.position, what))
    }

    /// The error of a valid frame that breaks the format.
    pub(crate) fn broken(&self, position: u64, what: impl Into<String>) -> LogError {
        LogError::Body { file: self.file.name.to_string(), position, what: what.into() }
    }

    /// The next frame, and where it lies in the buffer.
    fn look(&mut self) -> Result<Option<(usize, FrameHeader)>, LogError> {
        if self.position.saturating_add(SECTOR_BYTES) > self.limit {
            return Ok(None);
        }
        let start = self.fill(f::BYTES)?;
        let bytes = self.buffer.get(start..).and_then(|rest| rest.first_chunk::<{ f::BYTES }>());
        let Some(bytes) = bytes else { return Ok(None) };
        let Some(parsed) = FrameHeader::parse(bytes, &self.file.sums, self.at(), self.limit) else {
            return Ok(None);
        };
        let (length, body_sum) = (bytes_of(word64(bytes, f::LENGTH)), word32(bytes, f::BODY_SUM));
        if self.before.is_some_and(|sum| sum != word32(bytes, f::BEFORE_SUM)) {
            return Ok(None);
        }
        let start = self.fill(length)?;
        let rest = self.buffer.get(start + f::BYTES..start + length).unwrap_or_default();
        if SumKey::more(self.file.sums.body(self.position), rest) != body_sum {
            return Ok(None);
        }
        let header = parsed.map_err(|what| self.broken(self.position, what))?;
        let padding = rest.get(bytes_of(header.body_bytes)..).unwrap_or_default();
        if padding.iter().any(|&byte| byte != 0) {
            return Err(self.broken(self.position, "a frame has bytes behind its body"));
        }
        Ok(Some((start, header)))
    }

    /// Has so many bytes from the walk's position on in the buffer, and says where they begin
    /// there. They end before the limit.
    fn fill(&mut self, bytes: usize) -> Result<usize, LogError> {
        let start = bytes_of(self.position - self.buffer_at).min(self.filled);
        if self.filled - start >= bytes {
            return Ok(start);
        }
        self.buffer.copy_within(start..self.filled, 0);
        (self.filled, self.buffer_at) = (self.filled - start, self.position);
        let most = bytes_of(self.limit - self.position);
        let wanted = self.ahead.max(bytes).min(most);
        self.ahead = (self.ahead * 4).min(AHEAD_BYTES);
        if wanted > self.buffer.len() && self.buffer.try_resize(wanted).is_err() {
            let error = io::ErrorKind::OutOfMemory.into();
            return Err(self.file.io(self.position, "taking memory for a frame", error));
        }
        let into = self.buffer.get_mut(self.filled..wanted).unwrap_or_default();
        self.file.read(self.position + self.filled as u64, into)?;
        self.filled = self.filled.max(wanted);
        Ok(0)
    }
}

/// Lengths are of memory or of parts of a file that must fit into it.
fn bytes_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
