//! Encodes replies and requests, appended to a `Vec<u8>`.
//!
//! 1. Each function appends one well-formed piece of RESP. Line breaks in simple strings and errors
//!    become spaces, as in Redis.
//! 2. If the protocol version matters, it is an argument. RESP2's form is Redis's.
//! 3. An aggregate is a header, and then that many elements, which the caller appends.
//!
//! Any thread.

mod double;

use crate::Protocol;
use crate::frame::Frame;
use std::alloc::{Layout, handle_alloc_error};

pub use double::format_double;

/// The end of every line and bulk.
pub const CRLF: &[u8] = b"\r\n";
/// `+OK`, the most frequent reply, ready to append.
pub const OK: &[u8] = b"+OK\r\n";

/// Most bytes of a header: type, sign, 19 digits, CRLF.
const HEADER_BYTES: usize = 24;

/// Appends `+OK`.
#[inline]
pub fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(OK);
}

/// Appends a simple string, `+text`. Line breaks become spaces.
#[inline]
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// Appends an error, `-text`. `text` starts with its code (`ERR no such key`). Line breaks at its
/// end are dropped, others become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    error_bytes(out, text.as_bytes());
}

/// As [`error`], for a text that quotes bytes of a client.
pub fn error_bytes(out: &mut Vec<u8>, text: &[u8]) {
    let breaks = text.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    line(out, b'-', text.get(..text.len() - breaks).unwrap_or(text));
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.push(kind);
    if memchr::memchr2(b'\r', b'\n', text).is_none() {
        out.extend_from_slice(text);
    } else {
        out.extend(
            text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }),
        );
    }
    out.extend_from_slice(CRLF);
}

/// Appends an integer, `:n`.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number);
    out.reserve(HEADER_BYTES);
    out.push(b':');
    out.extend_from_slice(digits.as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends a bulk string, `$n bytes`.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + HEADER_BYTES);
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(CRLF);
}

/// Appends only the header of a bulk string, for a body that goes to the socket without a copy. The
/// caller sends `len` bytes and [`CRLF`] after it.
#[inline]
pub fn bulk_header(out: &mut Vec<u8>, len: usize) {
    header(out, b'$', len);
}

/// Appends an integer as a bulk string, `$2 42`.
#[inline]
pub fn bulk_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = itoa::Buffer::new();
    bulk(out, digits.format(number).as_bytes());
}

/// Appends a null: RESP2 `$-1`, RESP3 `_`.
#[inline]
pub fn null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends the null of a command whose other reply is an array: RESP2 `*-1`, RESP3 `_`.
#[inline]
pub fn null_array(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends the header of an array of `len` elements.
#[inline]
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// Appends the header of a map of `pairs` pairs: RESP2 has an array of twice as many elements.
#[inline]
pub fn map(out: &mut Vec<u8>, protocol: Protocol, pairs: usize) {
    match protocol {
        Protocol::Resp2 => header(out, b'*', pairs * 2),
        Protocol::Resp3 => header(out, b'%', pairs),
    }
}

/// Appends the header of a set of `len` elements: RESP2 has an array.
#[inline]
pub fn set(out: &mut Vec<u8>, protocol: Protocol, len: usize) {
    match protocol {
        Protocol::Resp2 => header(out, b'*', len),
        Protocol::Resp3 => header(out, b'~', len),
    }
}

/// Appends the header of a push of `len` elements: RESP2 has an array.
#[inline]
pub fn push(out: &mut Vec<u8>, protocol: Protocol, len: usize) {
    match protocol {
        Protocol::Resp2 => header(out, b'*', len),
        Protocol::Resp3 => header(out, b'>', len),
    }
}

/// Appends the header of an attribute of `pairs` pairs. The reply that it describes follows the
/// pairs. RESP2 has no attributes: use it on RESP3 connections only.
#[inline]
pub fn attribute(out: &mut Vec<u8>, pairs: usize) {
    header(out, b'|', pairs);
}

/// Appends a double: RESP3 `,1.5`, RESP2 a bulk. Digits as Redis 7.0 prints them (`%.17g`).
pub fn double(out: &mut Vec<u8>, protocol: Protocol, number: f64) {
    let mut digits = Vec::with_capacity(double::DOUBLE_BYTES);
    format_double(&mut digits, number);
    match protocol {
        Protocol::Resp2 => bulk(out, &digits),
        Protocol::Resp3 => line(out, b',', &digits),
    }
}

/// Appends a boolean: RESP3 `#t` or `#f`, RESP2 `:1` or `:0`.
#[inline]
pub fn boolean(out: &mut Vec<u8>, protocol: Protocol, value: bool) {
    out.extend_from_slice(match (protocol, value) {
        (Protocol::Resp2, false) => b":0\r\n",
        (Protocol::Resp2, true) => b":1\r\n",
        (Protocol::Resp3, false) => b"#f\r\n",
        (Protocol::Resp3, true) => b"#t\r\n",
    });
}

/// Appends a verbatim string of the given format (`txt`, `mkd`): RESP3 `=…`, RESP2 a bulk.
pub fn verbatim(out: &mut Vec<u8>, protocol: Protocol, format: [u8; 3], text: &[u8]) {
    match protocol {
        Protocol::Resp2 => bulk(out, text),
        Protocol::Resp3 => {
            out.reserve(text.len() + HEADER_BYTES + 4);
            header(out, b'=', text.len() + 4);
            out.extend_from_slice(&format);
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(CRLF);
        }
    }
}

/// Appends an error whose text may hold any byte: RESP3 `!…`, RESP2 a plain error.
pub fn blob_error(out: &mut Vec<u8>, protocol: Protocol, text: &[u8]) {
    match protocol {
        Protocol::Resp2 => error_bytes(out, text),
        Protocol::Resp3 => {
            out.reserve(text.len() + HEADER_BYTES);
            header(out, b'!', text.len());
            out.extend_from_slice(text);
            out.extend_from_slice(CRLF);
        }
    }
}

/// Appends a request: an array of bulk strings.
pub fn request<I>(out: &mut Vec<u8>, args: I)
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    if let Err(bytes) = try_request(out, args) {
        handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>()));
    }
}

/// The same where memory may be short.
///
/// # Errors
/// The system gives no memory for so many bytes of the request. Nothing is appended.
pub fn try_request<I>(out: &mut Vec<u8>, args: I) -> Result<(), usize>
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let start = out.len();
    let make_room = |out: &mut Vec<u8>, bytes: usize| {
        out.try_reserve(bytes + HEADER_BYTES).map_err(|_| {
            let asked = out.len() - start + bytes + HEADER_BYTES;
            out.truncate(start);
            asked
        })
    };
    let args = args.into_iter();
    let (expected, _) = args.size_hint();
    make_room(out, 0)?;
    header(out, b'*', expected);
    let body = out.len();
    let mut count = 0;
    for arg in args {
        make_room(out, arg.as_ref().len())?;
        bulk(out, arg.as_ref());
        count += 1;
    }
    if count != expected {
        let mut right = Vec::with_capacity(HEADER_BYTES);
        header(&mut right, b'*', count);
        out.splice(start..body, right);
    }
    Ok(())
}

/// Appends a whole frame, in the forms of the functions above. RESP2 drops attributes.
pub fn frame(out: &mut Vec<u8>, protocol: Protocol, value: &Frame) {
    let each = |out: &mut Vec<u8>, items: &[Frame]| {
        items.iter().for_each(|item| frame(out, protocol, item));
    };
    match value {
        Frame::Simple(text) => line(out, b'+', text),
        Frame::Error(text) => error_bytes(out, text),
        Frame::Integer(number) => integer(out, *number),
        Frame::Bulk(bytes) => bulk(out, bytes),
        Frame::Null => null(out, protocol),
        Frame::NullArray => null_array(out, protocol),
        Frame::Array(items) => {
            array(out, items.len());
            each(out, items);
        }
        Frame::Set(items) => {
            set(out, protocol, items.len());
            each(out, items);
        }
        Frame::Push(items) => {
            push(out, protocol, items.len());
            each(out, items);
        }
        Frame::Map(pairs) => {
            map(out, protocol, pairs.len());
            each_pair(out, protocol, pairs);
        }
        Frame::Attribute { attributes, value } => {
            if protocol == Protocol::Resp3 {
                attribute(out, attributes.len());
                each_pair(out, protocol, attributes);
            }
            frame(out, protocol, value);
        }
        Frame::Double(number) => double(out, protocol, *number),
        Frame::Boolean(value) => boolean(out, protocol, *value),
        Frame::BigNumber(digits) => match protocol {
            Protocol::Resp2 => bulk(out, digits),
            Protocol::Resp3 => line(out, b'(', digits),
        },
        Frame::Verbatim { format, text } => verbatim(out, protocol, *format, text),
        Frame::BlobError(text) => blob_error(out, protocol, text),
    }
}

fn each_pair(out: &mut Vec<u8>, protocol: Protocol, pairs: &[(Frame, Frame)]) {
    for (key, value) in pairs {
        frame(out, protocol, key);
        frame(out, protocol, value);
    }
}

/// Appends `kind`, a length, and CRLF. A short length, by far the usual one, takes one append.
#[inline]
fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below ten")]
    let digit = |n: usize| b'0' + (n % 10) as u8;
    match len {
        0..10 => out.extend_from_slice(&[kind, digit(len), b'\r', b'\n']),
        10..100 => {
            out.extend_from_slice(&[kind, digit(len / 10), digit(len), b'\r', b'\n']);
        }
        _ => {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(len);
            out.push(kind);
            out.extend_from_slice(digits.as_bytes());
            out.extend_from_slice(CRLF);
        }
    }
}
