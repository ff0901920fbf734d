//! Requests that arrive on a connection: read, decoded, and dropped when they have run.
//!
//! ```text
//! socket ──fill──> buf ──decode──> batch ──(shard executes)──> consume
//!                  │<── unconsumed input: commands of `batch`, then what isn't complete ──>│
//! ```
//!
//! 1. What `batch` has ranges of stays where it is in `buf` until all its commands are executed.
//! 2. An input that has nothing under way holds no buffers, so that ten thousand idle ones are
//!    cheap.
//!
//! Belongs to the shard's thread.

use crate::net::local::{Came, Local};
use nigh_resp::decode::{Batch, ProtocolError, Requests};
use nigh_resp::limits::Limits;
use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use std::os::fd::BorrowedFd;

/// Room for one read: a pipeline of 64 requests of 150 bytes, with some to spare.
const READ_BYTES: usize = 16 << 10;
/// Memory that an input buffer keeps while its connection goes on.
const KEEP_BYTES: usize = 64 << 10;
/// The same of one that another shard's messages come to: more than its ring.
const KEEP_MAIL_BYTES: usize = 2 << 20;
/// Input buffers that wait in the pool: some turns' worth of busy connections.
const POOLED: usize = 256;

/// Input buffers between uses.
#[derive(Default)]
pub(crate) struct Pool {
    buffers: Vec<Vec<u8>>,
    batches: Vec<Batch>,
}

/// Requests that arrived.
pub(crate) struct Input {
    pub(crate) buf: Vec<u8>,
    /// Bytes of `buf` that are over and done with.
    done: usize,
    pub(crate) batch: Batch,
    /// First command of `batch` that isn't executed.
    pub(crate) next: usize,
    /// `batch` is one of the pool's.
    pooled: bool,
    requests: Requests,
    /// What is wrong with what follows the commands in `batch`.
    pub(crate) error: Option<ProtocolError>,
    /// The error was answered: nothing more is decoded.
    pub(crate) failed: bool,
    /// As many commands were decoded as a turn may have: more may be here.
    pub(crate) is_capped: bool,
    /// Bytes were read while replies waited: they aren't decoded yet.
    pub(crate) is_ahead: bool,
    /// The socket may have more.
    pub(crate) readable: bool,
    /// The other side has closed its half, seen or announced.
    pub(crate) closing: bool,
    /// All was read that ever comes.
    pub(crate) ended: bool,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            buf: Vec::new(),
            done: 0,
            batch: Batch::new(),
            next: 0,
            pooled: false,
            requests: Requests::new(Limits::requests()),
            error: None,
            failed: false,
            is_capped: false,
            is_ahead: false,
            readable: true,
            closing: false,
            ended: false,
        }
    }

    /// What isn't done with: the ranges of `batch` count from its start.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.done..]
    }

    /// Whether there may be commands that aren't decoded yet.
    pub(crate) fn has_undecoded(&self) -> bool {
        self.is_capped || self.is_ahead
    }

    /// Whether commands are decoded and not executed.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.next < self.batch.len()
    }

    /// The words of command `index` of the batch.
    pub(crate) fn words(&self, index: usize) -> Vec<&[u8]> {
        self.batch.args(index).iter(self.bytes()).collect()
    }

    /// One of its words.
    #[inline]
    pub(crate) fn word(&self, index: usize, at: usize) -> &[u8] {
        self.batch.args(index).get(self.bytes(), at)
    }

    /// Whether anything has come behind command `index` of the batch.
    pub(crate) fn is_followed(&self, index: usize) -> bool {
        index + 1 < self.batch.len() || self.has_come()
    }

    /// Whether anything has come that isn't executed.
    pub(crate) fn has_more(&self) -> bool {
        self.has_commands() || self.has_come()
    }

    /// Whether anything has come that isn't decoded.
    fn has_come(&self) -> bool {
        self.is_ahead || self.requests.undecoded() > 0
    }

    /// Commands that are decoded and not executed, and their bytes, about.
    pub(crate) fn to_run(&self) -> (usize, usize) {
        let (commands, all) = (self.batch.len() - self.next, self.batch.len());
        (commands, self.bytes().len() * commands / all.max(1))
    }

    /// Takes a message of another shard: `receive` appends it to the buffer, `read` adds what
    /// begins there to the batch. Returns what was received, and its bytes. Of a message without
    /// commands nothing stays here: `read` has done what it says.
    pub(crate) fn take_mail<T>(
        &mut self,
        receive: impl FnOnce(&mut Vec<u8>) -> T,
        read: impl FnOnce(&T, &[u8], usize, &mut Batch),
    ) -> (T, usize) {
        let (start, commands) = (self.buf.len(), self.batch.len());
        let message = receive(&mut self.buf);
        read(&message, &self.buf, start, &mut self.batch);
        let bytes = self.buf.len() - start;
        if self.batch.len() == commands {
            self.buf.truncate(start);
        }
        (message, bytes)
    }

    /// Takes a buffer, with room for a read.
    fn make_room(&mut self, pool: &mut Pool) -> usize {
        if self.buf.capacity() == 0 {
            self.buf = pool.buffers.pop().unwrap_or_else(|| Vec::with_capacity(READ_BYTES));
        }
        let needed = self.requests.needed().saturating_sub(self.bytes().len());
        // The whole capacity, if it is more than half of a read: growing copies.
        if self.buf.capacity() - self.buf.len() < needed.max(READ_BYTES / 2) {
            self.buf.reserve(needed.max(READ_BYTES));
        }
        self.buf.capacity() - self.buf.len()
    }

    /// Reads once of a local client's ring, as much as there is room for, or a piece more.
    pub(crate) fn fill_from(&mut self, local: &mut Local, pool: &mut Pool) -> Fill {
        let room = self.make_room(pool);
        let Ok(Came { bytes, more, ended }) = local.read(&mut self.buf, room) else {
            return Fill::Broken;
        };
        self.readable = more;
        self.ended |= ended;
        Fill::Open { bytes }
    }

    /// Reads once, as much as there is room for.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>, pool: &mut Pool) -> Fill {
        let room = self.make_room(pool);
        // Of a socket, this is a shorter way through the kernel than read(2).
        let spare = spare_capacity(&mut self.buf);
        match rustix::net::recv(socket, spare, RecvFlags::empty()).map(|(read, _)| read) {
            Ok(0) => {
                self.readable = false;
                self.ended = true;
            }
            Ok(bytes) => {
                // A short read has emptied the socket (epoll(7)), but for an end that was
                // announced.
                self.readable = bytes == room || self.closing;
                return Fill::Open { bytes };
            }
            Err(rustix::io::Errno::AGAIN) => self.readable = false,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Fill::Broken,
        }
        Fill::Open { bytes: 0 }
    }

    /// Changes what the client may send.
    pub(crate) fn set_limits(&mut self, limits: Limits, authenticated: bool) {
        self.requests.set_limits(limits);
        self.requests.set_authenticated(authenticated);
    }

    /// Decodes up to `most` commands.
    pub(crate) fn decode(&mut self, most: usize, pool: &mut Pool) {
        if self.failed || self.error.is_some() || self.bytes().is_empty() {
            return;
        }
        if !self.pooled {
            self.batch = pool.batches.pop().unwrap_or_default();
            self.pooled = true;
        }
        self.error = self.requests.decode(&self.buf[self.done..], &mut self.batch, most).err();
    }

    /// Drops what another shard has sent, when all of it is executed.
    pub(crate) fn consume_mail(&mut self) {
        if self.has_commands() {
            return;
        }
        self.next = 0;
        self.batch.clear();
        self.buf.clear();
        if self.buf.capacity() > KEEP_MAIL_BYTES {
            self.buf = Vec::new();
        }
    }

    /// Drops what is executed, and gives buffers back if nothing is left.
    pub(crate) fn consume(&mut self, pool: &mut Pool) {
        if self.has_commands() {
            return;
        }
        self.next = 0;
        self.batch.clear();
        if self.pooled && pool.batches.len() < POOLED {
            pool.batches.push(std::mem::take(&mut self.batch));
            self.pooled = false;
        }
        self.done += self.requests.consume();
        if self.done < self.buf.len() && !self.failed {
            // Each byte is moved once on average, however much waits.
            if self.done > self.buf.len() / 2 {
                self.buf.drain(..self.done);
                self.done = 0;
            }
            return;
        }
        self.buf.clear();
        self.done = 0;
        let buf = std::mem::take(&mut self.buf);
        // One without memory would take the place of one that has some.
        if (1..=KEEP_BYTES).contains(&buf.capacity()) && pool.buffers.len() < POOLED {
            pool.buffers.push(buf);
        }
    }
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// So many bytes: none if nothing is there now, or ever will be.
    Open { bytes: usize },
    /// The other side is gone: nothing can be written either.
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_has_read_nothing_leaves_the_pool_as_it_is() {
        // Connections that only wrote filled the pool with buffers without memory; what had some
        // was freed then, and each read allocated anew.
        let (mut pool, mut input) = (Pool::default(), Input::new());
        input.consume(&mut pool);
        assert!(pool.buffers.is_empty());
        input.buf = Vec::with_capacity(READ_BYTES);
        input.consume(&mut pool);
        assert_eq!(pool.buffers.iter().map(Vec::capacity).collect::<Vec<_>>(), [READ_BYTES]);
    }

    #[test]
    fn a_message_without_commands_leaves_no_bytes() {
        let mut input = Input::new();
        let receive = |buf: &mut Vec<u8>| buf.extend_from_slice(b"told");
        let ((), bytes) = input.take_mail(receive, |(), _, _, _| {});
        assert_eq!((bytes, input.buf.len()), (4, 0));
    }
}
