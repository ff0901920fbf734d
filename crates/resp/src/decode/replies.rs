//! Replies of servers, decoded incrementally from a growing buffer into [`Frame`]s.
//!
//! ```text
//! stack:  array(3 left) > map(1 left) > …      one level for each aggregate that is open
//! buf:    … +OK | $5 he                        complete parts are consumed at once
//! ```
//!
//! 1. There is no recursion: the stack is a vector, and its depth is bounded.
//! 2. A claimed length reserves room only for elements that the bytes at hand could encode. So the
//!    bytes that have arrived bound the memory.
//! 3. A reply's frames and bytes are bounded, and lack of memory for it is an error.
//! 4. One decoder belongs to one connection, whose thread alone calls it.

use super::number::{integer, short_header};
use super::reply_fault::{ReplyError, ReplyFault};
use crate::frame::Frame;
use crate::limits::{Limits, MAX_BULK_BYTES};

/// Bytes of the shortest frame, `_` and CRLF.
const SHORTEST_FRAME_BYTES: usize = 3;
/// Most elements for which a level reserves room before they arrive.
const RESERVED_ELEMENTS: usize = 1024;

/// An aggregate that is open.
#[derive(Debug)]
struct OpenAggregate {
    kind: AggregateKind,
    /// Missing elements.
    left: usize,
    items: Vec<Frame>,
}

#[derive(Debug)]
enum AggregateKind {
    Array,
    Set,
    Push,
    Map,
    Attribute,
    /// The value that these attributes describe has not come yet.
    Described(Vec<(Frame, Frame)>),
}

impl AggregateKind {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            b'*' => Self::Array,
            b'~' => Self::Set,
            b'>' => Self::Push,
            b'%' => Self::Map,
            b'|' => Self::Attribute,
            _ => return None,
        })
    }

    fn elements_each(&self) -> usize {
        if matches!(self, Self::Map | Self::Attribute) { 2 } else { 1 }
    }
}

/// The outcome of one step of decoding.
enum Step {
    Incomplete,
    /// An aggregate was opened.
    Opened,
    Whole(Frame),
}

/// The decoder of one connection's replies.
#[derive(Debug)]
pub struct Replies {
    limits: Limits,
    /// Next byte to look at.
    pos: usize,
    /// Bytes from `pos` on that hold no end of line.
    scanned: usize,
    /// Type and length of the bulk whose header is read and whose body has not arrived.
    bulk: Option<(u8, usize)>,
    stack: Vec<OpenAggregate>,
    /// Frames of the incomplete reply.
    frames: usize,
    /// Where the incomplete reply begins, in bytes since the beginning of the connection.
    begun: u64,
    /// Bytes consumed since the beginning of the connection.
    consumed: u64,
    failed: Option<ReplyError>,
}

impl Replies {
    /// A decoder at the beginning of a connection's input; see [`Limits::replies`].
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            pos: 0,
            scanned: 0,
            bulk: None,
            stack: Vec::new(),
            frames: 0,
            begun: 0,
            consumed: 0,
            failed: None,
        }
    }

    /// Decodes the next reply of `buf`; `None` if more bytes must arrive. `buf` is all unconsumed
    /// input (see [`Replies::consume`]): the bytes of the last call, and more after them.
    ///
    /// # Errors
    /// A [`ReplyError`]. All later calls return the same.
    pub fn decode(&mut self, buf: &[u8]) -> Result<Option<Frame>, ReplyError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.frames(buf).map_err(|fault| ReplyError { offset: self.offset(), fault });
        if let Err(error) = result {
            self.failed = Some(error);
            self.stack = Vec::new();
        }
        result
    }

    /// The number of decoded leading bytes. The caller drops exactly these before it decodes again.
    /// They may belong to an incomplete reply, whose parts the decoder keeps.
    pub fn consume(&mut self) -> usize {
        let consumed = std::mem::take(&mut self.pos);
        self.consumed += consumed as u64;
        consumed
    }

    fn frames(&mut self, buf: &[u8]) -> Result<Option<Frame>, ReplyFault> {
        loop {
            match self.step(buf)? {
                Step::Incomplete => return Ok(None),
                Step::Opened => {}
                Step::Whole(frame) => {
                    if let Some(reply) = self.place(frame)? {
                        self.frames = 0;
                        self.begun = self.offset();
                        return Ok(Some(reply));
                    }
                }
            }
        }
    }

    /// Bytes from the beginning of the connection to the next byte to look at.
    fn offset(&self) -> u64 {
        self.consumed + self.pos as u64
    }

    /// Bounds the bytes of the reply before the frame at hand, and of that frame's string.
    #[inline]
    fn bound_bytes(&self, string_bytes: usize) -> Result<(), ReplyFault> {
        if self.offset() - self.begun + string_bytes as u64 > self.limits.reply_bytes {
            return Err(ReplyFault::TooLong { limit: self.limits.reply_bytes });
        }
        Ok(())
    }

    /// Puts a whole frame in its place. Returns the reply if the frame completes it.
    fn place(&mut self, frame: Frame) -> Result<Option<Frame>, ReplyFault> {
        let mut frame = frame;
        while let Some(mut level) = self.stack.pop() {
            reserve(&mut level.items, 1)?;
            level.items.push(frame);
            level.left -= 1;
            if level.left > 0 {
                self.stack.push(level);
                return Ok(None);
            }
            frame = match level.kind {
                AggregateKind::Array => Frame::Array(level.items),
                AggregateKind::Set => Frame::Set(level.items),
                AggregateKind::Push => Frame::Push(level.items),
                AggregateKind::Map => Frame::Map(pairs(level.items)?),
                AggregateKind::Attribute => {
                    self.describe(pairs(level.items)?);
                    return Ok(None);
                }
                AggregateKind::Described(attributes) => Frame::Attribute {
                    attributes,
                    value: Box::new(level.items.pop().unwrap_or(Frame::Null)),
                },
            };
        }
        Ok(Some(frame))
    }

    fn describe(&mut self, attributes: Vec<(Frame, Frame)>) {
        self.stack.push(OpenAggregate {
            kind: AggregateKind::Described(attributes),
            left: 1,
            items: Vec::new(),
        });
    }

    /// Reads one frame, or the header of an aggregate.
    fn step(&mut self, buf: &[u8]) -> Result<Step, ReplyFault> {
        if let Some((kind, len)) = self.bulk {
            return self.body(buf, kind, len);
        }
        let Some(&kind) = buf.get(self.pos) else {
            return Ok(Step::Incomplete);
        };
        if kind == b'$'
            && let Some((len, width)) = short_header(buf.get(self.pos..).unwrap_or(&[]), kind)
            && len as usize <= self.limits.bulk_bytes
        {
            self.count()?;
            self.bound_bytes(len as usize)?;
            self.scanned = 0;
            self.pos += width;
            return self.body(buf, kind, len as usize);
        }
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
        let Some(len) = find_line(buf, self.pos, &mut self.scanned, self.limits.inline_bytes)?
        else {
            return Ok(Step::Incomplete);
        };
        let text = buf.get(self.pos + 1..self.pos + len).unwrap_or(&[]);
        self.count()?;
        self.bound_bytes(0)?;
        match kind {
            b'$' | b'=' | b'!' => match bulk_len(kind, text, &self.limits)? {
                None => self.leaf(len, Frame::Null),
                Some(bulk) => {
                    self.bound_bytes(bulk)?;
                    self.pos += len + 2;
                    self.body(buf, kind, bulk)
                }
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => self.aggregate(buf, kind, text, len),
            _ => {
                let frame = scalar(kind, text)?;
                self.leaf(len, frame)
            }
        }
    }

    fn leaf(&mut self, line: usize, frame: Frame) -> Result<Step, ReplyFault> {
        self.pos += line + 2;
        Ok(Step::Whole(frame))
    }

    /// Counts a frame towards the reply's limit.
    fn count(&mut self) -> Result<(), ReplyFault> {
        self.frames += 1;
        if self.frames > self.limits.frames {
            return Err(ReplyFault::TooManyFrames { limit: self.limits.frames });
        }
        Ok(())
    }

    /// Reads the body of a bulk whose header is read.
    fn body(&mut self, buf: &[u8], kind: u8, len: usize) -> Result<Step, ReplyFault> {
        let rest = buf.get(self.pos..).unwrap_or(&[]);
        let Some((body, end)) = rest.split_at_checked(len).filter(|(_, end)| end.len() >= 2) else {
            self.bulk = Some((kind, len));
            return Ok(Step::Incomplete);
        };
        self.bulk = None;
        if !end.starts_with(b"\r\n") {
            return Err(ReplyFault::MissingEnd { kind });
        }
        let frame = match (kind, body) {
            (b'$', _) => Frame::Bulk(copied(body)?),
            (b'!', _) => Frame::BlobError(copied(body)?),
            (_, [a, b, c, b':', text @ ..]) => {
                Frame::Verbatim { format: [*a, *b, *c], text: copied(text)? }
            }
            _ => return Err(ReplyFault::InvalidValue { kind }),
        };
        self.pos += len + 2;
        Ok(Step::Whole(frame))
    }

    /// Opens an aggregate; an empty one is whole at once.
    fn aggregate(
        &mut self,
        buf: &[u8],
        byte: u8,
        text: &[u8],
        line: usize,
    ) -> Result<Step, ReplyFault> {
        let Some(kind) = AggregateKind::of(byte) else {
            return Err(ReplyFault::UnknownType { found: byte });
        };
        let Some(len) = array_len(byte, text, &self.limits)? else {
            return self.leaf(line, Frame::NullArray);
        };
        if self.stack.len() >= self.limits.nesting {
            return Err(ReplyFault::TooDeep { limit: self.limits.nesting });
        }
        self.pos += line + 2;
        let left = len * kind.elements_each();
        if left == 0 {
            let empty = match kind {
                AggregateKind::Array => Frame::Array(Vec::new()),
                AggregateKind::Set => Frame::Set(Vec::new()),
                AggregateKind::Push => Frame::Push(Vec::new()),
                AggregateKind::Map => Frame::Map(Vec::new()),
                AggregateKind::Attribute | AggregateKind::Described(_) => {
                    self.describe(Vec::new());
                    return Ok(Step::Opened);
                }
            };
            return Ok(Step::Whole(empty));
        }
        let possible = buf.len().saturating_sub(self.pos) / SHORTEST_FRAME_BYTES;
        let items = Vec::with_capacity(left.min(possible).min(RESERVED_ELEMENTS));
        self.stack.push(OpenAggregate { kind, left, items });
        Ok(Step::Opened)
    }
}

/// A copy of a string, which may be so long that there is no memory for it.
fn copied(body: &[u8]) -> Result<Vec<u8>, ReplyFault> {
    let mut copy = Vec::new();
    let room = copy.try_reserve_exact(body.len());
    room.map_err(|_| ReplyFault::NoMemory { bytes: body.len() })?;
    copy.extend_from_slice(body);
    Ok(copy)
}

/// Makes room for so many elements more.
#[inline]
fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), ReplyFault> {
    items
        .try_reserve(more)
        .map_err(|_| ReplyFault::NoMemory { bytes: (items.len() + more) * size_of::<T>() })
}

fn pairs(items: Vec<Frame>) -> Result<Vec<(Frame, Frame)>, ReplyFault> {
    let mut pairs = Vec::new();
    reserve(&mut pairs, items.len() / 2)?;
    let mut items = items.into_iter();
    pairs.extend(std::iter::from_fn(|| Some((items.next()?, items.next()?))));
    Ok(pairs)
}

/// The value of a frame that is one line.
fn scalar(kind: u8, text: &[u8]) -> Result<Frame, ReplyFault> {
    let frame = match (kind, text) {
        (b'+', _) => Some(Frame::Simple(copied(text)?)),
        (b'-', _) => Some(Frame::Error(copied(text)?)),
        (b':', _) => integer(text.strip_prefix(b"+").unwrap_or(text)).map(Frame::Integer),
        (b'_', []) => Some(Frame::Null),
        (b'#', [b't']) => Some(Frame::Boolean(true)),
        (b'#', [b'f']) => Some(Frame::Boolean(false)),
        (b',', _) => double(text).map(Frame::Double),
        (b'(', _) => {
            let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
            let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            if valid { Some(Frame::BigNumber(copied(text)?)) } else { None }
        }
        _ => None,
    };
    frame.ok_or(ReplyFault::InvalidValue { kind })
}

fn double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" | b"+inf" => return Some(f64::INFINITY),
        b"-inf" => return Some(f64::NEG_INFINITY),
        b"nan" | b"-nan" => return Some(f64::NAN),
        _ => {}
    }
    let plain =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    text.iter().all(plain).then_some(())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Finds the CRLF of the line at `pos`, in the bytes that weren't searched yet. Returns the line's
/// length with its type and without CRLF.
fn find_line(
    buf: &[u8],
    pos: usize,
    scanned: &mut usize,
    limit: usize,
) -> Result<Option<usize>, ReplyFault> {
    let to = buf.len().min(pos.saturating_add(limit).saturating_add(1));
    let unseen = buf.get(pos + *scanned..to).unwrap_or(&[]);
    let Some(found) = memchr::memchr(b'\r', unseen) else {
        *scanned += unseen.len();
        if *scanned > limit {
            return Err(ReplyFault::LineTooLong { limit });
        }
        return Ok(None);
    };
    let len = *scanned + found;
    match buf.get(pos + len + 1) {
        None => {
            *scanned = len;
            Ok(None)
        }
        Some(b'\n') => {
            *scanned = 0;
            Ok(Some(len))
        }
        Some(_) => Err(ReplyFault::MissingEnd { kind: buf.get(pos).copied().unwrap_or(b'+') }),
    }
}

/// The length in the header of a bulk; `None` for RESP2's null.
fn bulk_len(kind: u8, text: &[u8], limits: &Limits) -> Result<Option<usize>, ReplyFault> {
    let limit = limits.bulk_bytes.min(MAX_BULK_BYTES);
    match length(kind, text)? {
        None if kind == b'$' => Ok(None),
        None => Err(ReplyFault::InvalidLength { kind }),
        Some(len) => match usize::try_from(len) {
            Ok(bytes) if bytes <= limit => Ok(Some(bytes)),
            _ => Err(ReplyFault::BulkTooLong { len, limit }),
        },
    }
}

/// The length in the header of an aggregate, in elements or pairs; `None` for RESP2's null.
fn array_len(kind: u8, text: &[u8], limits: &Limits) -> Result<Option<usize>, ReplyFault> {
    match length(kind, text)? {
        None if kind == b'*' => Ok(None),
        None => Err(ReplyFault::InvalidLength { kind }),
        Some(len) => match usize::try_from(len) {
            Ok(count) if count <= limits.array_len.min(usize::MAX / 4) => Ok(Some(count)),
            _ => Err(ReplyFault::ArrayTooLong { len, limit: limits.array_len }),
        },
    }
}

/// A length, or `None` for −1.
fn length(kind: u8, text: &[u8]) -> Result<Option<u64>, ReplyFault> {
    if text == b"?" {
        return Err(ReplyFault::Streamed { kind });
    }
    match integer(text) {
        Some(-1) => Ok(None),
        Some(len) => u64::try_from(len).map(Some).map_err(|_| ReplyFault::InvalidLength { kind }),
        None => Err(ReplyFault::InvalidLength { kind }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply of so many elements that no memory holds them is an error, which tells how many
    /// bytes were missing. The process goes on.
    #[test]
    fn elements_without_memory_are_an_error_that_tells_their_bytes() {
        let (mut items, more) = (vec![1_u64, 2], usize::MAX / 16);
        let missing = (more + 2) * 8;
        assert_eq!(reserve(&mut items, more), Err(ReplyFault::NoMemory { bytes: missing }));
        assert_eq!((reserve(&mut items, 1), items.len()), (Ok(()), 2));
    }
}
