//! Lengths and strings of an RDB file.
//!
//! | first byte | means |
//! |---|---|
//! | `00xxxxxx` | length of 6 bits |
//! | `01xxxxxx` | length of 14 bits, with the next byte |
//! | `10000000`, `10000001` | length of 32 or 64 bits, big-endian |
//! | `110000xx` | integer of 8, 16, 32 bits, or (3) a string packed by LZF |

use std::io::Read;

use super::lzf::unpack;
use crate::source::{Input, SourceError};

/// Most bytes of a string that is kept whole: Redis's default limit of a string.
pub(crate) const STRING_BYTES_MAX: u64 = 512 << 20;
/// A packed string is at least this much shorter: three bytes give 264 at most.
const LZF_GAIN_MAX: u64 = 264;

/// A length, or the number of a special encoding.
enum Head {
    Length(u64),
    Special(u8),
}

/// How the bytes of a string are stored.
pub(super) enum StoredText {
    /// As they are.
    Plain(u64),
    /// As an integer.
    Integer(i64),
    /// Packed by LZF.
    Packed { packed_bytes: u64, bytes: u64 },
}

impl StoredText {
    /// Bytes of the string.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Plain(bytes) | Self::Packed { bytes, .. } => *bytes,
            Self::Integer(number) => number.to_string().len() as u64,
        }
    }
}

fn head<R: Read>(input: &mut Input<R>, what: &'static str) -> Result<Head, SourceError> {
    let first = input.byte(what)?;
    let low = first & 0x3f;
    Ok(match first >> 6 {
        0 => Head::Length(u64::from(low)),
        1 => Head::Length(u64::from(low) << 8 | u64::from(input.byte(what)?)),
        3 => Head::Special(low),
        _ if first == 0x80 => Head::Length(u64::from(u32::from_be_bytes(input.array(what)?))),
        _ if first == 0x81 => Head::Length(u64::from_be_bytes(input.array(what)?)),
        _ => return Err(input.malformed(format!("{what} can't have a length of kind {first:#x}"))),
    })
}

/// A length of `what`.
pub(super) fn length<R: Read>(
    input: &mut Input<R>,
    what: &'static str,
) -> Result<u64, SourceError> {
    match head(input, what)? {
        Head::Length(length) => Ok(length),
        Head::Special(kind) => {
            Err(input.malformed(format!("{what} has encoding {kind}, no length")))
        }
    }
}

/// The head of a string; its body follows.
pub(super) fn text<R: Read>(
    input: &mut Input<R>,
    what: &'static str,
) -> Result<StoredText, SourceError> {
    let kind = match head(input, what)? {
        Head::Length(length) => return Ok(StoredText::Plain(length)),
        Head::Special(kind) => kind,
    };
    Ok(match kind {
        0 => StoredText::Integer(i64::from(i8::from_le_bytes(input.array(what)?))),
        1 => StoredText::Integer(i64::from(i16::from_le_bytes(input.array(what)?))),
        2 => StoredText::Integer(i64::from(i32::from_le_bytes(input.array(what)?))),
        3 => {
            let packed_bytes = length(input, what)?;
            let bytes = length(input, what)?;
            if bytes > packed_bytes.saturating_mul(LZF_GAIN_MAX) {
                let what = format!("{packed_bytes} packed bytes can't be {bytes} bytes of {what}");
                return Err(input.malformed(what));
            }
            StoredText::Packed { packed_bytes, bytes }
        }
        _ => return Err(input.malformed(format!("{what} has an unknown encoding, {kind}"))),
    })
}

/// Hands out the body of a string in pieces.
pub(super) fn body<R: Read, E: From<SourceError>>(
    input: &mut Input<R>,
    text: &StoredText,
    what: &'static str,
    each: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    match *text {
        StoredText::Plain(bytes) => input.pieces(bytes, what, each),
        StoredText::Integer(number) => each(number.to_string().as_bytes()),
        StoredText::Packed { packed_bytes, bytes } => {
            unpack(input, packed_bytes, bytes, what, each)
        }
    }
}

/// Appends a whole string.
pub(super) fn append<R: Read>(
    input: &mut Input<R>,
    what: &'static str,
    to: &mut Vec<u8>,
) -> Result<(), SourceError> {
    let text = text(input, what)?;
    if text.bytes() > STRING_BYTES_MAX {
        return Err(input.malformed(format!("{what} of {} bytes", text.bytes())));
    }
    body(input, &text, what, &mut |piece| {
        to.extend_from_slice(piece);
        Ok(())
    })
}

/// The first bytes of a string, at most so many; the rest is left out.
pub(super) fn beginning<R: Read>(
    input: &mut Input<R>,
    what: &'static str,
    most: usize,
) -> Result<Vec<u8>, SourceError> {
    let (text, mut kept) = (text(input, what)?, Vec::new());
    body(input, &text, what, &mut |piece: &[u8]| {
        kept.extend_from_slice(&piece[..piece.len().min(most - kept.len())]);
        Ok::<_, SourceError>(())
    })?;
    Ok(kept)
}

/// Leaves out a string. A packed one isn't unpacked.
pub(super) fn skip<R: Read>(input: &mut Input<R>, what: &'static str) -> Result<(), SourceError> {
    match text(input, what)? {
        StoredText::Plain(bytes) | StoredText::Packed { packed_bytes: bytes, .. } => {
            input.skip(bytes, what)
        }
        StoredText::Integer(_) => Ok(()),
    }
}
