//! Finds the ends of replies and counts replies, without building values.
//!
//! ```text
//! bytes as they come ──► Skipper ──► replies, errors, nulls     (the usual way)
//!                   └──► Checker ──► the same, and wrong replies         (with `--check`)
//! ```
//!
//! Invariants:
//! 1. A reader leaves bytes of an unfinished token to the caller. The caller passes them again,
//!    followed by more.
//! 2. The skipper neither reads nor keeps bodies.

use super::drawn_keys::RecordShape;
use super::template::RequestKind;
use anyhow::{Result, bail};
use std::collections::VecDeque;

/// Longest line of a reply: longer than any error that quotes a command.
const LINE_BYTES: usize = 64 << 10;
/// Longest error text in a report.
const ERROR_BYTES: usize = 200;

/// Counts of the replies so far.
#[derive(Default, Clone)]
pub(super) struct Tally {
    pub(super) replies: u64,
    pub(super) errors: u64,
    pub(super) nulls: u64,
    pub(super) mismatches: u64,
    pub(super) first_error: Option<String>,
}

impl Tally {
    fn error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            let text = &text[..text.len().min(ERROR_BYTES)];
            self.first_error = Some(String::from_utf8_lossy(text).into_owned());
        }
    }
}

/// Skips replies of any kind, in pieces of any size.
#[derive(Default)]
pub(super) struct Skipper {
    /// Bytes of the current body and its line end that are still to come.
    body: usize,
    /// Elements that the current reply still lacks; 0 between replies.
    lacking: u64,
}

impl Skipper {
    /// Skips whole tokens of `bytes`; returns their length in bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<usize> {
        let mut at = 0;
        loop {
            if self.body > 0 {
                let step = self.body.min(bytes.len() - at);
                at += step;
                self.body -= step;
                if self.body > 0 {
                    return Ok(at);
                }
                self.complete_element(tally);
            }
            let Some((&kind, rest)) = bytes[at..].split_first() else { return Ok(at) };
            let Some(end) = memchr::memchr(b'\n', rest) else {
                if rest.len() > LINE_BYTES {
                    bail!("the server sent a line without end: is it a Redis-protocol server?");
                }
                return Ok(at);
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            at += end + 2;
            self.line(kind, line, tally)?;
        }
    }

    #[inline]
    fn line(&mut self, kind: u8, line: &[u8], tally: &mut Tally) -> Result<()> {
        if self.lacking == 0 {
            self.lacking = 1;
        }
        match kind {
            b'$' | b'=' | b'!' => {
                if kind == b'!' {
                    tally.error(b"an error of several lines");
                }
                match number(line)? {
                    Some(length) => self.body = usize::try_from(length)?.saturating_add(2),
                    None => self.null(tally),
                }
            }
            b'+' | b':' | b',' | b'#' | b'(' => self.complete_element(tally),
            b'_' => self.null(tally),
            b'-' => {
                tally.error(line);
                self.complete_element(tally);
            }
            b'*' | b'~' | b'>' => self.aggregate(line, 1, tally)?,
            b'%' => self.aggregate(line, 2, tally)?,
            b'|' => {
                let pairs = number(line)?.unwrap_or(0);
                self.lacking = self.lacking.saturating_add(pairs.saturating_mul(2));
            }
            other => bail!("the server sent {:?} where a reply begins", char::from(other)),
        }
        Ok(())
    }

    fn aggregate(&mut self, line: &[u8], each: u64, tally: &mut Tally) -> Result<()> {
        match number(line)? {
            Some(length) => {
                self.lacking = self.lacking.saturating_add(length.saturating_mul(each));
                self.complete_element(tally);
            }
            None => self.null(tally),
        }
        Ok(())
    }

    fn null(&mut self, tally: &mut Tally) {
        tally.nulls += 1;
        self.complete_element(tally);
    }

    #[inline]
    fn complete_element(&mut self, tally: &mut Tally) {
        self.lacking -= 1;
        tally.replies += u64::from(self.lacking == 0);
    }
}

/// Verifies replies of GET and SET.
#[derive(Default)]
pub(super) struct Checker {
    expected: VecDeque<(RequestKind, u64)>,
    scratch: Vec<u8>,
}

impl Checker {
    /// Notes a sent request. Replies come in the order of the requests.
    pub(super) fn expect(&mut self, kind: RequestKind, number: u64) {
        self.expected.push_back((kind, number));
    }

    /// Verifies whole replies of `bytes`; returns their length in bytes.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        shape: &RecordShape,
        tally: &mut Tally,
    ) -> Result<usize> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let Some(end) = memchr::memchr(b'\n', rest) else { return Ok(at) };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let mut length = end + 1;
            let mut value = None;
            if let Some(digits) = line.strip_prefix(b"$")
                && let Some(body) = number(digits)?
            {
                let body = usize::try_from(body)?;
                if body != shape.value_bytes() {
                    bail!("a value of {body} bytes came where all have {}", shape.value_bytes());
                }
                let Some(bytes) = rest.get(length..length + body) else { return Ok(at) };
                if rest.len() < length + body + 2 {
                    return Ok(at);
                }
                value = Some(bytes);
                length += body + 2;
            }
            at += length;
            self.reply(line, value, shape, tally)?;
        }
    }

    fn reply(
        &mut self,
        line: &[u8],
        value: Option<&[u8]>,
        shape: &RecordShape,
        tally: &mut Tally,
    ) -> Result<()> {
        let Some((kind, number)) = self.expected.pop_front() else {
            bail!("the server sent more replies than requests");
        };
        tally.replies += 1;
        if let Some(text) = line.strip_prefix(b"-") {
            tally.error(text);
            return Ok(());
        }
        let right = match (kind, value) {
            (RequestKind::Get, Some(value)) => shape.is_value(number, value, &mut self.scratch),
            (RequestKind::Get, None) => {
                tally.nulls += 1;
                line == b"$-1" || line == b"_"
            }
            _ => line == b"+OK",
        };
        if !right {
            tally.mismatches += 1;
            if tally.first_error.is_none() {
                let line = String::from_utf8_lossy(line);
                tally.first_error =
                    Some(format!("wrong reply to {kind:?} of key {number}: {line}"));
            }
        }
        Ok(())
    }
}

/// A length; `None` is -1, the null of RESP2.
#[inline]
fn number(digits: &[u8]) -> Result<Option<u64>> {
    if digits == b"-1" {
        return Ok(None);
    }
    let mut number = 0u64;
    for &digit in digits {
        let value = u64::from(digit.wrapping_sub(b'0'));
        if value > 9 || number > u64::MAX / 100 {
            bail!("the server sent {:?} as a length", String::from_utf8_lossy(digits));
        }
        number = number * 10 + value;
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n$5\r\nhello\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n-ERR no\r\n\
                            %1\r\n+a\r\n_\r\n|1\r\n+k\r\n+v\r\n:3\r\n*0\r\n*-1\r\n";

    /// The counts of replies, errors and nulls are the same for any pieces of the stream.
    #[test]
    fn cutting_the_stream_changes_nothing() {
        for step in 1..STREAM.len() {
            let (mut skipper, mut tally, mut carry) =
                (Skipper::default(), Tally::default(), vec![]);
            for piece in STREAM.chunks(step) {
                carry.extend_from_slice(piece);
                let used = skipper.feed(&carry, &mut tally).expect("well-formed");
                carry.drain(..used);
            }
            assert_eq!((tally.replies, tally.errors, tally.nulls), (9, 1, 3), "step {step}");
            assert_eq!(tally.first_error.as_deref(), Some("ERR no"));
            assert!(carry.is_empty());
        }
    }

    /// Bytes of another protocol are an error: no endless wait, no panic.
    #[test]
    fn other_protocols_are_refused() {
        for bytes in [&b"HTTP/1.1 400\r\n"[..], b"$x\r\n", b"*99999999999999999999999\r\n"] {
            assert!(Skipper::default().feed(bytes, &mut Tally::default()).is_err());
        }
    }

    /// The value of another key is a mismatch, and so is null for SET. Null for GET is none.
    #[test]
    fn wrong_values_are_found() {
        let shape = RecordShape::new(16, 12, 10).expect("fits");
        let (mut checker, mut tally) = (Checker::default(), Tally::default());
        for (kind, number) in [
            (RequestKind::Get, 1),
            (RequestKind::Get, 2),
            (RequestKind::Get, 3),
            (RequestKind::Set, 4),
        ] {
            checker.expect(kind, number);
        }
        let bytes = b"$12\r\n000000000001\r\n$12\r\n000000000001\r\n$-1\r\n$-1\r\n";
        let used = checker.feed(bytes, &shape, &mut tally).expect("well-formed");
        assert_eq!(used, bytes.len());
        assert_eq!((tally.replies, tally.mismatches, tally.nulls), (4, 2, 1));
    }
}
