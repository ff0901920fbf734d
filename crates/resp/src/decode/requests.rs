//! Requests of clients, decoded incrementally from a growing buffer into a [`Batch`].
//!
//! ```text
//! buf: *2 $3 GET $1 a   *2 $3 GET $5 he
//!      ^ 0              ^ start      ^ pos (bulk = 5, left = 1, partial = [GET])
//! ```
//!
//! 1. Commands come out in order. The commands before an error come out with it, and the error
//!    stays.
//! 2. The ranges of an incomplete command wait in `partial`, so no byte is decoded again when more
//!    bytes arrive. A line is searched once (`scanned`).
//! 3. The decoder accepts the requests that Redis 7.0 accepts, and refuses the others with Redis's
//!    words. A header ends with a CR and any byte, and a bulk with any two bytes, as in Redis.
//! 4. One decoder belongs to one connection, whose thread alone calls it.

use super::command_batch::{Batch, Range};
use super::inline;
use super::number::{integer, short_header};
use crate::encode;
use crate::limits::{Limits, MAX_BULK_BYTES};

/// Most bytes of one input buffer: positions have 31 bits.
const MAX_BUFFER_BYTES: usize = (1 << 31) - 1;
/// Least by which [`Requests::needed`] may exceed the bytes that have arrived: one large read.
const LOOK_AHEAD_BYTES: usize = 1 << 20;

/// The fault of a request. The connection can't go on: reply, then close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is no number, or over the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The length of an argument is no number, negative, or over the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An argument doesn't begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*got))]
    ExpectedBulk {
        /// The byte in its place.
        got: u8,
    },
    /// An inline command is longer than [`Limits::inline_bytes`].
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// The line with the count of arguments is longer than [`Limits::inline_bytes`].
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line with the length of an argument is longer than [`Limits::inline_bytes`].
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// Quotes in an inline command don't close, or close inside a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More arguments than a connection may send before AUTH.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A longer argument than a connection may send before AUTH.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// The caller's buffer holds 2 GiB: its own limit should have closed the connection before.
    #[error("Protocol error: too big request")]
    TooBigRequest,
}

impl ProtocolError {
    /// Appends the error reply: the bytes that Redis sends.
    pub fn write_reply(&self, out: &mut Vec<u8>) {
        match self {
            // Display would turn a byte over 127 into two.
            Self::ExpectedBulk { got } => {
                let mut text = b"ERR Protocol error: expected '$', got '".to_vec();
                text.extend_from_slice(&[*got, b'\'']);
                encode::error_bytes(out, &text);
            }
            other => encode::error(out, &format!("ERR {other}")),
        }
    }
}

/// The decoder of one connection's requests.
#[derive(Debug)]
pub struct Requests {
    limits: Limits,
    authenticated: bool,
    /// Next byte to look at.
    pos: usize,
    /// The start of the incomplete command. All bytes before it are decoded.
    start: usize,
    /// Bytes from `pos` on that hold no end of line.
    scanned: usize,
    /// Arguments that the incomplete command still lacks; 0 between commands.
    left: usize,
    /// Length of the argument whose header is read and whose body has not arrived.
    bulk: Option<usize>,
    /// Arguments of the incomplete command.
    partial: Vec<Range>,
    /// Length of the buffer at the last call.
    received: usize,
    failed: Option<ProtocolError>,
}

/// The beginning of a command.
enum Begun {
    Incomplete,
    /// An empty array or line: no command.
    Nothing,
    /// A whole inline command, whose ranges are appended.
    Inline,
    /// This many arguments follow.
    Array(usize),
}

impl Requests {
    /// A decoder at the beginning of a connection's input, which counts as authenticated.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            authenticated: true,
            pos: 0,
            start: 0,
            scanned: 0,
            left: 0,
            bulk: None,
            partial: Vec::new(),
            received: 0,
            failed: None,
        }
    }

    /// Whether the narrow limits before AUTH apply. While they do, decode one command at a time:
    /// AUTH changes what may follow it.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Replaces the limits, from the next header on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Decodes up to `max_commands` commands of `buf` and appends them to `batch`. `buf` is all
    /// unconsumed input (see [`Requests::consume`]): the bytes of the last call, and more after
    /// them.
    ///
    /// # Errors
    /// A [`ProtocolError`]; the commands before it are in `batch`. All later calls return the same.
    pub fn decode(
        &mut self,
        buf: &[u8],
        batch: &mut Batch,
        max_commands: usize,
    ) -> Result<(), ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.received = buf.len();
        let result = match buf.len() {
            0..=MAX_BUFFER_BYTES => self.commands(buf, batch, max_commands),
            _ => Err(ProtocolError::TooBigRequest),
        };
        if let Err(error) = result {
            self.failed = Some(error);
            self.partial = Vec::new();
        }
        result
    }

    /// The number of leading bytes of the buffer that belong to complete commands. The caller drops
    /// exactly these before it decodes again. The ranges of its batch are invalid then.
    pub fn consume(&mut self) -> usize {
        let consumed = std::mem::take(&mut self.start);
        if consumed > 0 {
            self.pos -= consumed;
            self.received = self.received.saturating_sub(consumed);
            self.partial.iter_mut().for_each(|range| range.shift(consumed));
        }
        consumed
    }

    /// Bytes of the buffer, as the last [`Requests::decode`] saw it, behind the complete commands.
    pub fn undecoded(&self) -> usize {
        self.received.saturating_sub(self.start)
    }

    /// The capacity that the buffer should have for the argument that is arriving; 0 if none is. At
    /// most twice the bytes that have arrived, or 1 MiB more, so a claimed length alone takes no
    /// memory. Ask after [`Requests::consume`], when the consumed bytes are dropped.
    pub fn needed(&self) -> usize {
        let bound = (self.received * 2).max(self.received + LOOK_AHEAD_BYTES);
        self.bulk.map_or(0, |len| (self.pos + len + 2).min(bound))
    }

    fn commands(
        &mut self,
        buf: &[u8],
        batch: &mut Batch,
        max_commands: usize,
    ) -> Result<(), ProtocolError> {
        let mut wanted = max_commands;
        if self.left > 0 && wanted > 0 {
            let mut partial = std::mem::take(&mut self.partial);
            let complete = self.arguments(buf, &mut partial);
            if !complete? {
                self.partial = partial;
                return Ok(());
            }
            let first = batch.ranges.len();
            batch.ranges.append(&mut partial);
            batch.close(first);
            wanted -= 1;
        }
        while wanted > 0 {
            let first = batch.ranges.len();
            match self.open(buf, batch)? {
                Begun::Incomplete => break,
                Begun::Nothing => continue,
                Begun::Inline => {}
                Begun::Array(count) => {
                    self.left = count;
                    if !self.arguments(buf, &mut batch.ranges)? {
                        self.partial.extend(batch.ranges.drain(first..));
                        break;
                    }
                }
            }
            batch.close(first);
            wanted -= 1;
        }
        Ok(())
    }

    /// Reads the beginning of a command.
    #[inline]
    fn open(&mut self, buf: &[u8], batch: &mut Batch) -> Result<Begun, ProtocolError> {
        let rest = buf.get(self.pos..).unwrap_or(&[]);
        let count = match short_header(rest, b'*') {
            Some((count, width)) => {
                self.scanned = 0;
                self.pos += width;
                i64::from(count)
            }
            None => match rest.first() {
                None => return Ok(Begun::Incomplete),
                Some(b'*') => match self.header(buf, ProtocolError::TooBigMultibulkCount)? {
                    None => return Ok(Begun::Incomplete),
                    Some(text) => integer(text).ok_or(ProtocolError::InvalidMultibulkLength)?,
                },
                Some(_) => return self.inline(buf, batch),
            },
        };
        let Ok(count @ 1..) = usize::try_from(count) else {
            self.start = self.pos; // an empty or null array: no command
            return Ok(Begun::Nothing);
        };
        if count > self.limits.array_len {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if !self.authenticated && count > self.limits.unauthenticated_array_len {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        Ok(Begun::Array(count))
    }

    /// Reads the remaining arguments; `false` if more bytes must arrive.
    #[inline]
    fn arguments(&mut self, buf: &[u8], out: &mut Vec<Range>) -> Result<bool, ProtocolError> {
        while self.left > 0 {
            let len = match self.bulk.take() {
                Some(len) => len,
                None => match short_header(buf.get(self.pos..).unwrap_or(&[]), b'$') {
                    Some((len, width)) if self.allows(len as usize) => {
                        self.scanned = 0;
                        self.pos += width;
                        len as usize
                    }
                    _ => match self.bulk_length(buf)? {
                        Some(len) => len,
                        None => return Ok(false),
                    },
                },
            };
            if buf.len() - self.pos < len + 2 {
                self.bulk = Some(len);
                return Ok(false);
            }
            out.push(Range::input(self.pos, len));
            self.pos += len + 2;
            self.left -= 1;
        }
        self.start = self.pos;
        Ok(true)
    }

    #[inline(always)]
    fn allows(&self, len: usize) -> bool {
        len <= self.limits.bulk_bytes
            && (self.authenticated || len <= self.limits.unauthenticated_bulk_bytes)
    }

    /// Reads the header of an argument, whatever its shape.
    #[cold]
    fn bulk_length(&mut self, buf: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let at = self.pos;
        let Some(text) = self.header(buf, ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        match buf.get(at) {
            Some(b'$') | None => {}
            Some(&got) => return Err(ProtocolError::ExpectedBulk { got }),
        }
        let len = integer(text).and_then(|len| usize::try_from(len).ok());
        let limit = self.limits.bulk_bytes.min(MAX_BULK_BYTES);
        match len {
            Some(len) if len > limit => Err(ProtocolError::InvalidBulkLength),
            Some(len) if !self.allows(len) => Err(ProtocolError::UnauthenticatedBulkLength),
            Some(len) => Ok(Some(len)),
            None => Err(ProtocolError::InvalidBulkLength),
        }
    }

    /// Reads a line that ends with CR and another byte. Returns it without its first byte.
    fn header<'a>(
        &mut self,
        buf: &'a [u8],
        too_big: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let Some(len) = self.find(b'\r', buf, too_big)? else {
            return Ok(None);
        };
        if buf.len() < self.pos + len + 2 {
            self.scanned = len;
            return Ok(None);
        }
        let text = buf.get(self.pos + 1..self.pos + len).unwrap_or(&[]);
        self.pos += len + 2;
        Ok(Some(text))
    }

    /// Reads an inline command.
    #[cold]
    fn inline(&mut self, buf: &[u8], batch: &mut Batch) -> Result<Begun, ProtocolError> {
        let Some(len) = self.find(b'\n', buf, ProtocolError::TooBigInline)? else {
            return Ok(Begun::Incomplete);
        };
        let line = buf.get(self.pos..self.pos + len).unwrap_or(&[]);
        let first = batch.ranges.len();
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), self.pos, batch)
            .map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.pos += len + 1;
        self.start = self.pos;
        Ok(if batch.ranges.len() > first { Begun::Inline } else { Begun::Nothing })
    }

    /// Finds `end` from `pos` on, in the bytes that weren't searched yet. Returns its distance.
    fn find(
        &mut self,
        end: u8,
        buf: &[u8],
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.pos + self.scanned;
        // To decide, one byte more than the longest line is enough.
        let to = buf.len().min(self.pos.saturating_add(self.limits.inline_bytes).saturating_add(1));
        let unseen = buf.get(from..to).unwrap_or(&[]);
        match memchr::memchr(end, unseen) {
            Some(found) => {
                let len = self.scanned + found;
                self.scanned = 0;
                Ok(Some(len))
            }
            None => {
                self.scanned += unseen.len();
                if self.scanned > self.limits.inline_bytes { Err(too_big) } else { Ok(None) }
            }
        }
    }
}
