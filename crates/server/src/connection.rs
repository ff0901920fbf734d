//! One client's connection: socket, requests that arrive, replies that wait, and what the client has set.
//!
//! ```text
//! socket ──fill──> buf ──decode──> batch ──(shard executes)──> out ──flush──> socket
//!                  │<── unconsumed input: commands of `batch`, then what isn't complete ──>│
//! ```
//!
//! 1. What `batch` has ranges of stays where it is in `buf` until all its commands are executed.
//! 2. A connection that has nothing under way holds no buffers, so that ten thousand idle ones are cheap.
//!
//! Belongs to the shard's thread.

use crate::client::{Buffers, Client, Close};
use crate::held::Unsent;
use crate::later::Later;
use crate::message::{self, Known};
use crate::output::{Mark, Output, Readers};
use crate::peer::{FIRST_ALLOWANCE, Peer};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nigh_resp::Protocol;
use nigh_resp::decode::{Batch, ProtocolError, Requests};
use nigh_resp::limits::Limits;
use nigh_shm::Pin;
use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Room for one read: a pipeline of 64 requests of 150 bytes, with some to spare.
const READ_BYTES: usize = 16 << 10;
/// Memory that an input buffer keeps while its connection goes on.
const KEEP_BYTES: usize = 64 << 10;
/// The same of one that another shard's messages come to: more than its ring.
const KEEP_MAIL_BYTES: usize = 2 << 20;
/// Replies that are written although some behind them are still to come from other shards.
const GATHERED_BYTES: usize = 16 << 10;
/// Input buffers that wait in the pool: some turns' worth of busy connections.
const POOLED: usize = 256;

/// Where a connection's requests come from.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The mailbox of another shard: read and written by [`crate::peer`], never as a socket.
    Mailbox,
}

const NO_SOCKET: &str = "a mailbox is no socket";

impl Stream {
    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Self::Tcp(stream), [one]) => stream.write(one),
            (Self::Tcp(stream), _) => stream.write_vectored(slices),
            (Self::Unix(stream), [one]) => stream.write(one),
            (Self::Unix(stream), _) => stream.write_vectored(slices),
            (Self::Mailbox, _) => unreachable!("{NO_SOCKET}"),
        }
    }

    /// Reports edges of both kinds for as long as the socket is open.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interest),
            Self::Unix(stream) => stream.register(registry, token, interest),
            Self::Mailbox => unreachable!("{NO_SOCKET}"),
        }
    }

    /// Reports nothing any more, so that another shard can watch the socket.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Unix(stream) => stream.deregister(registry),
            Self::Mailbox => unreachable!("{NO_SOCKET}"),
        }
    }

    /// The number of the descriptor, as CLIENT LIST shows it.
    pub(crate) fn descriptor(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Mailbox => unreachable!("{NO_SOCKET}"),
        }
    }
}

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
    /// Another shard's messages, which aren't decoded: buffer and batch stay, as some come in nearly every turn.
    is_mail: bool,
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
    fn new() -> Self {
        Self {
            buf: Vec::new(),
            done: 0,
            batch: Batch::new(),
            next: 0,
            is_mail: false,
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

    /// Commands that are decoded and not executed, and their bytes, about.
    pub(crate) fn to_run(&self) -> (usize, usize) {
        let (commands, all) = (self.batch.len() - self.next, self.batch.len());
        (commands, self.bytes().len() * commands / all.max(1))
    }

    /// For what another shard sends.
    pub(crate) fn of_mail() -> Self {
        Self { is_mail: true, ..Self::new() }
    }

    /// Adds the commands of another shard's request, which `receive` appends to the buffer, and returns it and its
    /// bytes; `each` is told these, and what is known of each command.
    pub(crate) fn take_mail<T>(
        &mut self,
        receive: impl FnOnce(&mut Vec<u8>) -> T,
        mut each: impl FnMut(&T, usize, Known),
    ) -> (T, usize) {
        let start = self.buf.len();
        let request = receive(&mut self.buf);
        let bytes = self.buf.len() - start;
        message::read(&self.buf, start, &mut self.batch, |known| each(&request, bytes, known));
        (request, bytes)
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

    /// Drops what is executed, and gives buffers back if nothing is left.
    pub(crate) fn consume(&mut self, pool: &mut Pool) {
        if self.has_commands() {
            return;
        }
        self.next = 0;
        self.batch.clear();
        if self.is_mail {
            self.buf.clear();
            if self.buf.capacity() > KEEP_MAIL_BYTES {
                self.buf = Vec::new();
            }
            return;
        }
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
        if self.buf.capacity() <= KEEP_BYTES && pool.buffers.len() < POOLED {
            pool.buffers.push(std::mem::take(&mut self.buf));
        } else {
            self.buf = Vec::new();
        }
    }
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Bytes, or nothing for now.
    Open,
    /// The other side is gone: nothing can be written either.
    Broken,
}

impl Pending {
    /// Whether commands run.
    pub(crate) fn lets_go_on(self) -> bool {
        matches!(self, Self::Nothing | Self::Refreshed | Self::Unstable)
    }
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) input: Input,
    pub(crate) out: Output,
    pub(crate) client: Client,
    /// Not to be executed further in this round: it waits for functions, a reader, or its end.
    pub(crate) stopped: bool,
    /// Stopped only until the functions of this turn have run.
    pub(crate) parked: bool,
    /// FCALLs that wait for the batch.
    pub(crate) calls: usize,
    /// Stands in the list of connections with work.
    pub(crate) queued: bool,
    /// Its place in the slab.
    pub(crate) slot: usize,
    /// What the decoder was told last.
    pub(crate) limits_version: u64,
    pub(crate) was_authenticated: bool,
    /// Replies that are to come from other shards, and those behind them.
    pub(crate) later: Later,
    /// Parts of a command for which there was no room at their shards: they go before all else.
    pub(crate) unsent: VecDeque<Unsent>,
    /// Own parts of the command at hand that are done while another waits for memory, and their replies, by
    /// partition: see [`crate::scatter`].
    pub(crate) done_parts: BTreeMap<usize, Vec<u8>>,
    /// How many there may be: see [`crate::peer`].
    pub(crate) allowance: usize,
    /// What the connection waits for, if another shard has to do something first.
    pub(crate) pending: Pending,
    /// Replies are kept until so many commands ever have left `later`.
    gathers_until: Option<u64>,
    /// Stands in the list of connections that wait for room.
    pub(crate) is_held: bool,
    /// Another shard is the client.
    pub(crate) peer: Option<Box<Peer>>,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// Answers of the owner.
    Answers,
    /// Room for so many bytes in the mailbox of a shard.
    Room {
        shard: usize,
        bytes: usize,
    },
    /// Answers to half of what it may have at the owner at a time.
    Allowance,
    /// To be moved to this shard.
    Move(usize),
    /// Snapshots as new as this ticket.
    Ticket(u64),
    /// They are there: the command that asked for them runs next.
    Refreshed,
    /// Nothing: but the next command is a function call that didn't find what it read at one moment.
    Unstable,
}

impl Connection {
    /// A new connection of `client` in a slot of the slab.
    pub(crate) fn new(slot: usize, stream: Stream, client: Client) -> Self {
        Self {
            stream,
            input: Input::new(),
            out: Output::default(),
            client,
            stopped: false,
            parked: false,
            calls: 0,
            queued: false,
            slot,
            limits_version: u64::MAX, // none yet: told before the first decode
            was_authenticated: false,
            later: Later::default(),
            unsent: VecDeque::new(),
            done_parts: BTreeMap::new(),
            allowance: FIRST_ALLOWANCE,
            pending: Pending::Nothing,
            gathers_until: None,
            is_held: false,
            peer: None,
        }
    }

    /// What it holds in buffers.
    pub(crate) fn buffers(&self) -> Buffers {
        Buffers {
            input: self.input.bytes().len(),
            input_capacity: self.input.buf.capacity(),
            output: self.out.waiting(),
            output_capacity: self.out.capacity(),
        }
    }

    /// The protocol that command `index` of the batch is to be answered in.
    #[inline]
    pub(crate) fn protocol(&self, index: usize) -> Protocol {
        match &self.peer {
            None => self.client.protocol,
            Some(peer) => peer.protocol(index),
        }
    }

    /// Whether what command `index` of the batch reads stays as old as it is (CLIENT NO-TOUCH).
    pub(crate) fn keeps_ages(&self, index: usize) -> bool {
        match &self.peer {
            None => self.client.no_touch,
            Some(peer) => peer.keeps_ages(index),
        }
    }

    /// A command has its reply.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.answered(self.out.waiting(), std::mem::take(&mut self.client.is_logged));
        }
    }

    /// What was answered since `mark` comes behind what other shards have still to answer.
    #[inline]
    pub(crate) fn defer(&mut self, mark: Mark, readers: &Readers<'_>, pin: &Pin<'_>) {
        if self.later.is_empty() {
            return;
        }
        if self.out.is_ok_since(mark) {
            self.out.cut(mark);
            self.later.put_ok();
        } else {
            self.later.put(|own| self.out.take_since(mark, own, readers, pin));
        }
    }

    /// Reads once, as much as there is room for.
    pub(crate) fn fill(&mut self, pool: &mut Pool) -> Fill {
        let input = &mut self.input;
        if input.buf.capacity() == 0 {
            input.buf = pool.buffers.pop().unwrap_or_else(|| Vec::with_capacity(READ_BYTES));
        }
        let needed = input.requests.needed().saturating_sub(input.bytes().len());
        // The whole capacity, if it is more than half of a read: growing copies.
        if input.buf.capacity() - input.buf.len() < needed.max(READ_BYTES / 2) {
            input.buf.reserve(needed.max(READ_BYTES));
        }
        let room = input.buf.capacity() - input.buf.len();
        // Of a socket, this is a shorter way through the kernel than read(2).
        let (fd, spare) = (self.stream.as_fd(), spare_capacity(&mut input.buf));
        match rustix::net::recv(fd, spare, RecvFlags::empty()).map(|(read, _)| read) {
            Ok(0) => {
                input.readable = false;
                input.ended = true;
            }
            Ok(read) => {
                // A short read has emptied the socket (epoll(7)), but for an end that was announced.
                input.readable = read == room || input.closing;
                self.client.bytes_in += read as u64;
            }
            Err(rustix::io::Errno::AGAIN) => input.readable = false,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Fill::Broken,
        }
        Fill::Open
    }

    /// Whether replies are kept for a moment, to be written with those that other shards will give soon: until what
    /// was to come when the first of them was kept has come. What comes later they don't wait for, or they might for ever.
    pub(crate) fn gathers(&mut self, readers: &Readers<'_>, pin: &Pin<'_>) -> bool {
        let has_room = self.out.waiting() < GATHERED_BYTES && !self.out.is_begun();
        let gathers = has_room && self.client.close == Close::No && self.out.waiting() > 0 && {
            let (first, end) = self.later.span();
            first < *self.gathers_until.get_or_insert(end)
        };
        if gathers {
            self.out.settle_all(readers, pin);
        } else {
            self.gathers_until = None;
        }
        gathers
    }

    /// Whether there are replies to be written, or to be kept from now on.
    pub(crate) fn has_gathered(&self) -> bool {
        let waiting = self.out.waiting();
        match self.gathers_until {
            None => waiting > 0,
            Some(end) => waiting >= GATHERED_BYTES || self.later.span().0 >= end,
        }
    }

    /// Whether nothing is to do but to write the replies that have come from other shards.
    #[inline]
    pub(crate) fn only_writes(&self) -> bool {
        let input = &self.input;
        let may_read = input.readable || input.closing || input.has_undecoded();
        !may_read
            && !input.has_commands()
            && self.pending == Pending::Nothing
            && self.unsent.is_empty()
            && self.client.close == Close::No
    }

    /// Writes what waits; true if nothing is left.
    pub(crate) fn flush(&mut self, readers: &Readers<'_>, pin: &Pin<'_>) -> io::Result<bool> {
        let stream = &mut self.stream;
        self.out.flush(|slices| stream.write_slices(slices), readers, pin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Replies;
    use nigh_shm::Domain;
    use std::time::Instant;

    #[test]
    fn kept_replies_dont_wait_for_what_was_sent_after_them() {
        // Two commands are with another shard, whose replies are kept to leave together. Before the second has come, two
        // more are sent, and so on for ever: the first two leave when they are there.
        let client = Client::new(1, String::new(), String::new(), Instant::now());
        let mut connection = Connection::new(0, Stream::Mailbox, client);
        let me = Domain::new(1).join();
        let readers = |_| unreachable!("no value waits in an arena");
        let pin = me.pin();
        let send = |connection: &mut Connection| (0..2).for_each(|_| connection.later.expect(1));
        let answer = |connection: &mut Connection| {
            let (mut head, ok) = (Vec::new(), b"+OK\r\n");
            let reply = message::reply_of(&mut head, [(ok.len(), false)].into_iter(), ok).concat();
            connection.later.came(1, Replies::of(&reply), true, connection.out.bytes());
        };
        send(&mut connection);
        assert!(!connection.gathers(&readers, &pin), "there is nothing to keep");
        for _ in 0..3 {
            answer(&mut connection);
            assert!(connection.has_gathered(), "it is for `gathers` to decide");
            assert!(connection.gathers(&readers, &pin));
            send(&mut connection);
            assert!(!connection.has_gathered() && connection.gathers(&readers, &pin));
            answer(&mut connection);
            assert!(connection.has_gathered() && !connection.gathers(&readers, &pin));
            let outcome = connection.out.flush(|_| Ok(10), &readers, &pin);
            assert!(outcome.expect("a socket with room"));
        }
    }
}
