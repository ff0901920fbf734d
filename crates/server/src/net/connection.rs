//! One client's connection: socket, requests that arrive, replies that wait, and what the client
//! has set.
//!
//! ```text
//! socket, or ring ──fill──> input ──(shard executes)──> out ──flush──> socket, or ring
//!                     └──> other shards ──> later ──^
//! ```
//!
//! Belongs to the shard's thread.

use crate::hop::allowance::Allowance;
use crate::hop::later::Later;
use crate::net::client::{Buffers, Client, Close};
use crate::net::depends::Kept;
use crate::net::input::{Fill, Input, Pool};
use crate::net::local::{Found, Local};
use crate::net::output::{Mark, Output, Readers};
use crate::net::pipeline::{Pending, Pipeline};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nigh_shm::Pin;
use nigh_shm::local::Awaits;
use rustix::net::{SendFlags, send};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

/// Replies that are written although some behind them are still to come from other shards.
const GATHERED_BYTES: usize = 16 << 10;

/// Why a client isn't attached whose descriptors the system doesn't take.
const UNDER_WAY: &str = "ERR the system lets no more descriptors be under way: too many clients \
    have yet to read theirs. Try again, or raise the limit of open files (ulimit -n)";

/// Where a connection's requests come from.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Of a socket, send(2) is a shorter way through the kernel than write(2). Past libc, whose
        // calls a thread may be cancelled in: that looks twice.
        Ok(match slices {
            [one] => send(self, one, SendFlags::NOSIGNAL)?,
            _ => rustix::io::writev(self, slices)?,
        })
    }

    /// Reports edges of both kinds for as long as the socket is open.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.source().register(registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Reports nothing any more, so that another shard can watch the socket.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
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
        }
    }
}

/// A message for which there was no room.
pub(crate) struct Unsent {
    pub(crate) shard: usize,
    pub(crate) token: u64,
    pub(crate) kind: u16,
    pub(crate) message: Vec<u8>,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) pipe: Pipeline,
    pub(crate) stream: Stream,
    /// The rings of a local client: its requests and replies go by them, and only wake-ups by the
    /// stream.
    pub(crate) local: Option<Box<Local>>,
    /// Its place in the slab.
    pub(crate) slot: usize,
    /// What the decoder was told last: the version of the limits, and whether the client may run
    /// commands. `None`: it is told before the next decode.
    pub(crate) limits_told: Option<(u64, bool)>,
    /// Replies that are to come from other shards, and those behind them.
    pub(crate) later: Later,
    /// Parts of a command for which there was no room at their shards: they go before all else.
    pub(crate) unsent: VecDeque<Unsent>,
    /// Own parts of the command at hand that are done while another waits for memory, and their
    /// replies, by partition: see [`crate::turn::scatter`].
    pub(crate) done_parts: BTreeMap<usize, Vec<u8>>,
    /// How much may be under way at other shards.
    pub(crate) allowance: Allowance,
    /// Replies that are kept until changes are on disk.
    pub(crate) kept: Kept,
    /// Replies are kept until so many commands ever have left `later`.
    gathers_until: Option<u64>,
}

impl Connection {
    /// A new connection of `client` in a slot of the slab.
    pub(crate) fn new(slot: usize, stream: Stream, client: Client) -> Self {
        Self {
            pipe: Pipeline::new(client, Input::new()),
            stream,
            local: None,
            slot,
            limits_told: None,
            later: Later::default(),
            unsent: VecDeque::new(),
            done_parts: BTreeMap::new(),
            allowance: Allowance::default(),
            kept: Kept::default(),
            gathers_until: None,
        }
    }

    pub(crate) fn buffers(&self) -> Buffers {
        let Pipeline { input, out, .. } = &self.pipe;
        Self::buffers_of((input.bytes().len(), input.buf.capacity()), out)
    }

    /// The same of input, whose bytes and capacity are given, and output.
    pub(crate) fn buffers_of((input, input_capacity): (usize, usize), out: &Output) -> Buffers {
        Buffers {
            itself: size_of::<Self>(),
            input,
            input_capacity,
            output: out.waiting(),
            output_capacity: out.capacity(),
            is_behind: out.is_behind(),
        }
    }

    /// Ends it now if its client is among these.
    pub(crate) fn end_if_among(&mut self, is_among: impl Fn(&u64) -> bool) {
        let client = &mut self.pipe.client;
        if is_among(&client.id) {
            client.end(Close::Now);
            client.settle();
        }
    }

    /// What was answered since `mark` comes behind what other shards have still to answer.
    #[inline]
    pub(crate) fn defer(&mut self, mark: Mark, readers: &Readers<'_>, pin: &Pin<'_>) {
        if self.later.is_empty() {
            return;
        }
        if self.pipe.out.is_ok_since(mark) {
            self.pipe.out.cut(mark);
            self.later.put_ok();
        } else {
            self.later.put(|own| self.pipe.out.take_since(mark, own, readers, pin));
        }
    }

    /// Reads once, as much as there is room for.
    pub(crate) fn fill(&mut self, pool: &mut Pool) -> Fill {
        let fill = match &mut self.local {
            Some(local) => self.pipe.input.fill_from(local, pool),
            None => self.pipe.input.fill(self.stream.as_fd(), pool),
        };
        if let Fill::Open { bytes } = fill {
            self.pipe.client.bytes_in += bytes as u64;
        }
        fill
    }

    /// Whether replies are kept for a moment, to be written with those that other shards will give
    /// soon: until what was to come when the first of them was kept has come. What comes later they
    /// don't wait for, or they might for ever.
    pub(crate) fn gathers(&mut self, readers: &Readers<'_>, pin: &Pin<'_>) -> bool {
        let has_room = self.pipe.out.waiting() < GATHERED_BYTES && !self.pipe.out.is_begun();
        let gathers =
            has_room && self.pipe.client.close == Close::No && self.pipe.out.waiting() > 0 && {
                let (first, end) = self.later.span();
                first < *self.gathers_until.get_or_insert(end)
            };
        if gathers {
            self.pipe.out.settle_all(readers, pin);
        } else {
            self.gathers_until = None;
        }
        gathers
    }

    /// Keeps no replies any longer: those that are to come may wait for memory, or for the disk.
    /// Whether some were kept.
    pub(crate) fn ends_gathering(&mut self) -> bool {
        let kept = self.gathers_until.as_mut();
        kept.map(|until| *until = 0).is_some()
    }

    /// Whether there are replies to be written, or to be kept from now on.
    pub(crate) fn has_gathered(&self) -> bool {
        let waiting = self.pipe.out.waiting();
        match self.gathers_until {
            None => waiting > 0,
            Some(end) => waiting >= GATHERED_BYTES || self.later.span().0 >= end,
        }
    }

    /// Whether nothing is to do but to write the replies that have come from other shards.
    #[inline]
    pub(crate) fn only_writes(&self) -> bool {
        let input = &self.pipe.input;
        let may_read = input.readable || input.closing || input.has_undecoded();
        !may_read
            && !input.has_commands()
            && self.pipe.pending == Pending::Nothing
            && self.unsent.is_empty()
            && self.pipe.client.close == Close::No
    }

    /// Whether nothing keeps its commands from running.
    #[inline]
    pub(crate) fn lets_go_on(&self) -> bool {
        self.pipe.pending.lets_go_on() && !self.kept.keeps()
    }

    /// Whether nothing happens before its client sends or reads something: no command is to run,
    /// unless more replies wait than `pause`, and no reply is to come from other shards.
    pub(crate) fn awaits_client(&self, pause: usize) -> bool {
        let Pipeline { input, out, .. } = &self.pipe;
        self.later.is_empty() && (!input.has_commands() || out.waiting() > pause)
    }

    /// Writes what waits; true if nothing is left.
    pub(crate) fn flush(&mut self, readers: &Readers<'_>, pin: &Pin<'_>) -> io::Result<bool> {
        let stream = &mut self.stream;
        if let Some(local) = &mut self.local {
            let outcome =
                self.pipe.out.flush(|slices| local.write(stream.as_fd(), slices), readers, pin);
            if !outcome.as_ref().is_err_and(|error| local.is_refused(error)) {
                return outcome;
            }
            // It goes on as it was before LOCAL ATTACH, whose reply is the only one that waits.
            self.pipe.out.replace_by_error(UNDER_WAY);
            (self.local, self.pipe.client.local) = (None, None);
            self.pipe.input.readable = true;
        }
        self.pipe.out.flush(|slices| stream.write_slices(slices), readers, pin)
    }

    /// What a local client's ring is looked at for: not for what is known to be there, nor for room
    /// while replies are kept, nor at all if the connection ends now.
    fn awaits(&self) -> Awaits {
        let Pipeline { input, out, client, .. } = &self.pipe;
        let goes_on = client.close != Close::Now;
        let writes = goes_on && !self.kept.keeps() && self.gathers_until.is_none();
        Awaits {
            input: goes_on && !input.readable && !input.ended,
            room: writes && out.is_behind() && out.waiting() > 0,
        }
    }

    /// Looks at a local client's ring, and notes what is found; `None` if it is no local client's.
    #[inline]
    pub(crate) fn look_at_ring(&mut self, now: Instant) -> Option<Found> {
        let awaits = self.awaits();
        let found = self.local.as_mut()?.look(self.stream.as_fd(), awaits, now);
        self.note_ring(found);
        Some(found)
    }

    /// Lets a local client wake the shard, which is about to sleep; `None` if it is no local
    /// client's.
    pub(crate) fn park_ring(&mut self) -> Option<Found> {
        let awaits = self.awaits();
        let found = self.local.as_mut()?.park_now(self.stream.as_fd(), awaits);
        self.note_ring(found);
        Some(found)
    }

    /// Takes what came by a local client's socket, and notes the end of it or of the client's
    /// process. True if nobody looked at the ring, and somebody must now.
    pub(crate) fn take_ring_event(&mut self, has_ended: bool) -> bool {
        let Some(local) = &mut self.local else { return false };
        let is_polled_again = local.take_event(self.stream.as_fd(), has_ended);
        self.pipe.input.closing |= has_ended;
        self.pipe.input.readable = true;
        is_polled_again
    }

    fn note_ring(&mut self, found: Found) {
        self.pipe.input.readable |= found == Found::News;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::message::replies::{Replies, reply_of};
    use nigh_shm::Domain;

    #[test]
    fn kept_replies_dont_wait_for_what_was_sent_after_them() {
        // Two commands are with another shard, whose replies are kept to leave together. Before the
        // second has come, two more are sent, and so on for ever: the first two leave when they are
        // there.
        let client = Client::new(1, String::new(), String::new(), std::time::Instant::now());
        let stream = Stream::Unix(UnixStream::pair().expect("sockets").0);
        let mut connection = Connection::new(0, stream, client);
        let me = Domain::new(1).join();
        let readers = |_, _| unreachable!("no value waits in an arena");
        let pin = me.pin();
        let send = |connection: &mut Connection| (0..2).for_each(|_| connection.later.expect(1));
        let answer = |connection: &mut Connection| {
            let (mut head, ok) = (Vec::new(), b"+OK\r\n");
            let reply = reply_of(&mut head, [(ok.len(), false)].into_iter(), ok).concat();
            connection.later.came(1, Replies::of(&reply), true, connection.pipe.out.bytes());
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
            let outcome = connection.pipe.out.flush(|_| Ok(10), &readers, &pin);
            assert!(outcome.expect("a socket with room"));
        }
    }
}
