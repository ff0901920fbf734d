//! A reader that knows its offset, and sums what it reads.
//!
//! ```text
//! inner ──read──> buf [ ....summed......at.......end ]
//!                       base = offset of buf[0]
//! ```
//!
//! 1. No length from the source makes it allocate: bytes are handed out in pieces of the buffer, or
//!    appended as they arrive.
//! 2. While a sum is kept, it covers exactly the bytes that were handed out since it began.
//!
//! Any thread; one at a time.

use crc::{CRC_64_REDIS, Crc, Digest, Table};
use std::io::{self, Read};

use super::SourceError;

/// Bytes of the buffer: enough that a read costs little beside its bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Redis's CRC64 (the polynomial of Jones), sixteen bytes a step.
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A source of bytes.
pub struct Input<R> {
    inner: R,
    buf: Box<[u8]>,
    at: usize,
    end: usize,
    base: u64,
    /// Bytes of `buf` that the sum covers already.
    summed: usize,
    sum: Option<Digest<'static, u64, Table<16>>>,
}

impl<R: Read> Input<R> {
    /// Reads from `inner`, whose next byte has offset `offset`.
    pub fn new(inner: R, offset: u64) -> Self {
        let buf = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { inner, buf, at: 0, end: 0, base: offset, summed: 0, sum: None }
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next byte has offset 0 from here on.
    pub(crate) fn restart_offset(&mut self) {
        self.settle_sum();
        self.buf.copy_within(self.at..self.end, 0);
        (self.end, self.at, self.summed, self.base) = (self.end - self.at, 0, 0, 0);
    }

    /// The error that these bytes can't stand here.
    pub fn malformed(&self, what: impl Into<String>) -> SourceError {
        SourceError::Malformed { offset: self.offset(), what: what.into() }
    }

    /// Begins a sum.
    pub(crate) fn begin_sum(&mut self) {
        self.summed = self.at;
        self.sum = Some(CRC64.digest());
    }

    /// Ends the sum.
    pub(crate) fn end_sum(&mut self) -> u64 {
        self.settle_sum();
        self.sum.take().map_or(0, |sum| sum.finalize())
    }

    fn settle_sum(&mut self) {
        if let Some(sum) = &mut self.sum {
            sum.update(&self.buf[self.summed..self.at]);
        }
        self.summed = self.at;
    }

    /// Reads until `least` bytes (at most the buffer's) are at hand, or the source ends.
    fn fill(&mut self, least: usize) -> Result<(), SourceError> {
        if self.end - self.at >= least {
            return Ok(());
        }
        self.settle_sum();
        self.base += self.at as u64;
        self.buf.copy_within(self.at..self.end, 0);
        (self.end, self.at, self.summed) = (self.end - self.at, 0, 0);
        while self.end < least {
            match self.inner.read(&mut self.buf[self.end..]) {
                Ok(0) => break,
                Ok(len) => self.end += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    let offset = self.base + self.end as u64;
                    return Err(SourceError::Io { offset, cause });
                }
            }
        }
        Ok(())
    }

    /// The next bytes without taking them: `len` of them, fewer at the end of the source. `len` is
    /// small.
    pub(crate) fn peek(&mut self, len: usize) -> Result<&[u8], SourceError> {
        self.fill(len.min(BUFFER_BYTES))?;
        Ok(&self.buf[self.at..self.end.min(self.at + len)])
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&mut self) -> Result<bool, SourceError> {
        Ok(self.peek(1)?.is_empty())
    }

    /// The next byte of `what`.
    #[inline]
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, SourceError> {
        if self.at == self.end {
            self.fill(1)?;
            if self.at == self.end {
                return Err(self.ended(what));
            }
        }
        self.at += 1;
        Ok(self.buf[self.at - 1])
    }

    /// The next `N` bytes of `what`.
    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], SourceError> {
        let bytes = self.peek(N)?;
        match bytes.first_chunk() {
            Some(array) => {
                let array = *array;
                self.at += N;
                Ok(array)
            }
            None => {
                self.at = self.end;
                Err(self.ended(what))
            }
        }
    }

    /// Hands out the next `len` bytes of `what` in pieces.
    pub(crate) fn pieces<E: From<SourceError>>(
        &mut self,
        len: u64,
        what: &'static str,
        each: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut left = len;
        while left > 0 {
            self.fill(1)?;
            let at_hand = self.end - self.at;
            if at_hand == 0 {
                return Err(self.ended(what).into());
            }
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(at_hand);
            each(&self.buf[self.at..self.at + step])?;
            self.at += step;
            left -= step as u64;
        }
        Ok(())
    }

    /// Appends the next `len` bytes of `what`.
    pub(crate) fn append(
        &mut self,
        len: u64,
        what: &'static str,
        to: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        self.pieces(len, what, &mut |piece| {
            to.extend_from_slice(piece);
            Ok(())
        })
    }

    /// Leaves out the next `len` bytes of `what`.
    pub(crate) fn skip(&mut self, len: u64, what: &'static str) -> Result<(), SourceError> {
        self.pieces(len, what, &mut |_| Ok(()))
    }

    /// Appends a line of at most `most` bytes without its LF or CRLF.
    pub(crate) fn line(
        &mut self,
        most: usize,
        what: &'static str,
        to: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        let begin = to.len();
        loop {
            match self.byte(what)? {
                b'\n' => break,
                byte => to.push(byte),
            }
            if to.len() - begin > most {
                return Err(self.malformed(format!("a line of {what} longer than {most} bytes")));
            }
        }
        if to.len() > begin && to.last() == Some(&b'\r') {
            to.pop();
        }
        Ok(())
    }

    fn ended(&self, what: &'static str) -> SourceError {
        SourceError::Ended { offset: self.base + self.end as u64, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum is Redis's, whatever the pieces: the value is that of Redis's own test.
    #[test]
    fn the_sum_is_that_of_redis() {
        let mut input = Input::new(&b"..123456789!"[..], 0);
        input.skip(2, "a test").expect("they are there");
        input.begin_sum();
        input.skip(4, "a test").expect("they are there");
        input.peek(6).expect("they are there");
        input.skip(5, "a test").expect("they are there");
        assert_eq!(input.end_sum(), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(input.byte("a test").expect("it is there"), b'!');
    }

    /// An end in the middle is told with the offset where the bytes end, beyond buffers too.
    #[test]
    fn an_end_is_told_with_its_offset() {
        let bytes = vec![7; BUFFER_BYTES + 10];
        let mut input = Input::new(bytes.as_slice(), 100);
        let error = input.skip(u64::MAX, "a test").expect_err("there is less");
        assert!(error.is_end());
        assert!(error.to_string().contains(&(100 + bytes.len()).to_string()), "{error}");
        let mut input = Input::new(&b"ab"[..], 5);
        let error = input.array::<4>("a test").expect_err("there is less");
        assert!(error.to_string().contains("offset 7, in the middle of a test"), "{error}");
    }
}
