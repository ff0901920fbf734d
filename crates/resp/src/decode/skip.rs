//! Finds where replies end, without building frames: for load generators, which only count.
//!
//! 1. Every header is checked as [`super::Replies`] checks it, but not the values of scalars, and
//!    not what ends a bulk.
//! 2. Nesting takes no memory: one counter holds the frames that are still to come.
//! 3. One skipper belongs to one connection, whose thread alone calls it.

use super::fault::{ReplyError, ReplyFault};
use super::number::short_header;
use super::replies::{array_len, bulk_len, find_line};
use crate::limits::Limits;

/// Finds the ends of one connection's replies.
#[derive(Debug)]
pub struct Skipper {
    limits: Limits,
    /// Next byte to look at; beyond the buffer while a body is arriving.
    pos: usize,
    /// Bytes from `pos` on that hold no end of line.
    scanned: usize,
    /// Frames that the reply begun still lacks.
    left: u64,
    /// Bytes of the replies before this one.
    skipped: u64,
}

impl Skipper {
    /// A skipper at the beginning of a connection's input; see [`Limits::replies`].
    pub fn new(limits: Limits) -> Self {
        Self { limits, pos: 0, scanned: 0, left: 1, skipped: 0 }
    }

    /// The length of the reply at the beginning of `buf`; `None` if it isn't whole. After `None`,
    /// call again with the same bytes and more after them; after a length, with what follows the
    /// reply. The first byte of the reply tells its type.
    ///
    /// # Errors
    /// A [`ReplyError`]: the connection can't go on.
    #[inline]
    pub fn skip(&mut self, buf: &[u8]) -> Result<Option<usize>, ReplyError> {
        while self.left > 0 {
            let whole = self
                .frame(buf)
                .map_err(|fault| ReplyError { offset: self.skipped + self.pos as u64, fault })?;
            if !whole {
                return Ok(None);
            }
        }
        if self.pos > buf.len() {
            return Ok(None);
        }
        let len = std::mem::take(&mut self.pos);
        self.skipped += len as u64;
        self.left = 1;
        Ok(Some(len))
    }

    /// Passes one header, and the body that follows it whether it is here or not.
    #[inline]
    fn frame(&mut self, buf: &[u8]) -> Result<bool, ReplyFault> {
        let Some(rest) = buf.get(self.pos..) else {
            return Ok(false);
        };
        let width = match rest {
            [b'+', b'O', b'K', b'\r', b'\n', ..] => 5,
            [b':', b'0'..=b'9', b'\r', b'\n', ..] => 4,
            _ => match short_header(rest, b'$') {
                Some((len, width)) if len as usize <= self.limits.bulk_bytes => {
                    width + len as usize + 2
                }
                _ => return self.any(buf),
            },
        };
        self.scanned = 0;
        self.pos += width;
        self.left -= 1;
        Ok(true)
    }

    fn any(&mut self, buf: &[u8]) -> Result<bool, ReplyFault> {
        let Some(&kind) = buf.get(self.pos) else {
            return Ok(false);
        };
        if !matches!(
            kind,
            b'+' | b'-'
                | b':'
                | b'$'
                | b'*'
                | b'_'
                | b','
                | b'#'
                | b'('
                | b'='
                | b'!'
                | b'%'
                | b'~'
                | b'>'
                | b'|'
        ) {
            return Err(ReplyFault::UnknownType { found: kind });
        }
        let Some(line) = find_line(buf, self.pos, &mut self.scanned, self.limits.inline_bytes)?
        else {
            return Ok(false);
        };
        let text = buf.get(self.pos + 1..self.pos + line).unwrap_or(&[]);
        let mut more = 0;
        let mut body = 0;
        match kind {
            b'$' | b'=' | b'!' => {
                body = bulk_len(kind, text, &self.limits)?.map_or(0, |len| len + 2)
            }
            b'*' | b'~' | b'>' => more = array_len(kind, text, &self.limits)?.unwrap_or(0) as u64,
            b'%' => more = array_len(kind, text, &self.limits)?.unwrap_or(0) as u64 * 2,
            // The value that the attribute describes follows it.
            b'|' => more = array_len(kind, text, &self.limits)?.unwrap_or(0) as u64 * 2 + 1,
            _ => {}
        }
        self.left = match (self.left - 1).checked_add(more) {
            Some(left) if left <= self.limits.frames as u64 => left,
            _ => return Err(ReplyFault::TooManyFrames { limit: self.limits.frames }),
        };
        self.pos += line + 2 + body;
        Ok(true)
    }
}

/// The length of the reply at the beginning of `buf`; `None` if it isn't whole. Starts from the
/// beginning each time: for replies that arrive in pieces use a [`Skipper`].
///
/// # Errors
/// A [`ReplyError`] if this is no reply.
pub fn skip_reply(buf: &[u8]) -> Result<Option<usize>, ReplyError> {
    Skipper::new(Limits::replies()).skip(buf)
}
