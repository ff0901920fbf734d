//! How an output goes to its socket.
//!
//! ```text
//! flush ── offer: bytes and values in turn ──> writev ── all? ── advance ──> the next offer
//!                                                └── a part ── advance, settle: copy what is referenced
//! ```
//!
//! Belongs to the shard's thread.

use super::{Output, Readers};
use nigh_shm::Pin;
use std::io::{self, IoSlice};

/// Memory that an empty buffer keeps.
const KEEP_BYTES: usize = 64 << 10;
/// Slices of one writev: far below IOV_MAX (1024), enough that one call carries a megabyte.
const SLICES: usize = 64;

impl Output {
    /// Writes as much as the socket takes, large values from where they lie. True if all is
    /// written. An error is what the socket says, except that it would block.
    pub(crate) fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
        readers: &Readers<'_>,
        pin: &Pin<'_>,
    ) -> io::Result<bool> {
        let mut value_sent = 0; // bytes of the first value that are written
        while self.waiting() > 0 {
            let (offered, outcome) = self.offer(value_sent, &mut write, readers, pin);
            let written = match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_behind = true;
                    self.settle(value_sent, readers, pin);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let before = self.waiting();
            value_sent = self.advance(written, value_sent);
            debug_assert!(self.waiting() + written == before, "every byte is counted once");
            if written < offered {
                self.is_behind = true;
                self.settle(value_sent, readers, pin); // full: asking again would only say so
                return Ok(false);
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.sent = 0;
        self.is_behind = false;
        Ok(true)
    }

    /// Writes once; returns how much was offered, and what became of it.
    #[inline]
    fn offer(
        &self,
        value_sent: usize,
        write: &mut impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
        readers: &Readers<'_>,
        pin: &Pin<'_>,
    ) -> (usize, io::Result<usize>) {
        if self.values.is_empty() {
            // Nearly always: a list of slices is a kilobyte to prepare.
            let bytes = &self.bytes[self.sent..];
            return (bytes.len(), write(&[IoSlice::new(bytes)]));
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = self.slices(&mut slices, value_sent, readers, pin);
        let slices = &slices[..count];
        (slices.iter().map(|slice| slice.len()).sum(), write(slices))
    }

    /// Fills `slices` with what waits, in order; returns how many there are.
    fn slices<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>; SLICES],
        value_sent: usize,
        readers: &'a Readers<'_>,
        pin: &'a Pin<'_>,
    ) -> usize {
        let (mut count, mut from, mut skip) = (0, self.sent, value_sent);
        for inserted in &self.values {
            if count + 2 > SLICES {
                return count;
            }
            if inserted.at > from {
                slices[count] = IoSlice::new(&self.bytes[from..inserted.at]);
                count += 1;
                from = inserted.at;
            }
            slices[count] = IoSlice::new(&inserted.bytes(readers, pin)[skip..]);
            count += 1;
            skip = 0;
        }
        if count < SLICES && from < self.bytes.len() {
            slices[count] = IoSlice::new(&self.bytes[from..]);
            count += 1;
        }
        count
    }

    /// Notes that `written` more bytes are out; returns how many of the first remaining value are.
    fn advance(&mut self, mut written: usize, value_sent: usize) -> usize {
        let mut skip = value_sent;
        let mut done = 0;
        for inserted in &self.values {
            let before = inserted.at - self.sent;
            if written < before {
                self.sent += written;
                written = 0;
                break;
            }
            self.sent = inserted.at;
            written -= before;
            let rest = inserted.len - skip;
            if written < rest {
                self.value_bytes -= written;
                skip += written;
                self.values.drain(..done);
                return skip;
            }
            written -= rest;
            self.value_bytes -= rest;
            skip = 0;
            done += 1;
        }
        self.values.drain(..done);
        self.sent += written;
        skip
    }

    /// Copies what is referenced and not written, so that it stays when the arena moves on; forgets
    /// what is written.
    pub(super) fn settle(&mut self, value_sent: usize, readers: &Readers<'_>, pin: &Pin<'_>) {
        if self.values.is_empty() {
            self.forget_sent();
            return;
        }
        let mut settled = Vec::with_capacity(self.waiting());
        let (mut from, mut skip) = (self.sent, value_sent);
        for inserted in &self.values {
            settled.extend_from_slice(&self.bytes[from..inserted.at]);
            settled.extend_from_slice(&inserted.bytes(readers, pin)[skip..]);
            from = inserted.at;
            skip = 0;
        }
        settled.extend_from_slice(&self.bytes[from..]);
        self.copied += settled.len();
        self.bytes = settled;
        self.sent = 0;
        self.values.clear();
        self.value_bytes = 0;
    }

    /// Drops the bytes that are written once they are as many as those that wait: a client that
    /// reads slowly but steadily never empties its output, which must not grow for that. Each byte
    /// is moved once on average.
    fn forget_sent(&mut self) {
        if self.sent >= self.waiting() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
            self.bytes.shrink_to(KEEP_BYTES.max(2 * self.bytes.len()));
        }
    }
}
