//! One side of a local client's byte stream.
//!
//! ```text
//! read  ── copies, gives room back ─┐
//! write ── publishes ───────────────┴─> flush: rings the other's bell, once for all of it
//! nothing to do? prepare_sleep ── looks again ── (sleeps on the socket) ── woken
//! ```
//!
//! 1. A piece of the stream has no meaning: it may begin and end anywhere.
//! 2. A piece has at least one byte, so a call of `read` takes no more pieces than bytes.
//! 3. Whatever this side has published or given back is told by the next `flush`. Nobody sleeps
//!    before that.
//! 4. The server wipes the memory of a stream that is over, and the client may be in the middle of
//!    a copy then. So the ring is withdrawn first, and a copy counts only when the ring is found to
//!    stand behind it: the client gets all bytes as they were written, or a fault.
//!
//! Belongs to one thread at a time.

use super::memory::LocalMemory;
use super::spec::{CLIENT_BELL, LocalSpec, SERVER_BELL, STREAM};
use crate::format::words::SharedWords;
use crate::ring::{Bell, Broken, Consumer, Producer, over};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// What a side that sleeps is to be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaits {
    /// Something to read.
    pub input: bool,
    /// Room to write at least one byte.
    pub room: bool,
}

/// One side of a local client's byte stream.
#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
pub struct LocalEnd<W: SharedWords = LocalMemory> {
    incoming: Consumer<W>,
    outgoing: Producer<W>,
    /// By which this side says that it sleeps.
    own: Bell<W>,
    other: Bell<W>,
    /// The other side isn't told yet of something published or given back.
    is_untold: bool,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> LocalEnd<W> {
    fn new(side: Side, spec: LocalSpec, bells: W, requests: W, replies: W) -> LocalEnd<W> {
        // The server makes the memory: its bells are set before the client can see them.
        let bell = |at| match side {
            Side::Server => Bell::over(bells.clone(), at),
            Side::Client => Bell::of_peer(bells.clone(), at),
        };
        let (server, client) = (bell(SERVER_BELL), bell(CLIENT_BELL));
        let (ask, take) = over(requests, spec.request_bytes);
        let (answer, hear) = over(replies, spec.reply_bytes);
        match side {
            Side::Server => LocalEnd {
                incoming: take,
                outgoing: answer,
                own: server,
                other: client,
                is_untold: false,
            },
            Side::Client => LocalEnd {
                incoming: hear,
                outgoing: ask,
                own: client,
                other: server,
                is_untold: false,
            },
        }
    }

    /// Adds bytes that have come to `buf`, and gives their room back: whole pieces, until there
    /// are `most` bytes or more. One piece has at most a fourth of the ring. Returns how many; 0 if
    /// none are there.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules, or has ended the stream; nothing is
    /// added then.
    #[inline]
    pub fn read(&mut self, buf: &mut Vec<u8>, most: usize) -> Result<usize, Broken> {
        let before = buf.len();
        let outcome = loop {
            if buf.len() - before >= most {
                break Ok(());
            }
            match self.incoming.take_piece(STREAM, buf) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        if let Err(broken) = outcome.and_then(|()| self.incoming.confirm()) {
            buf.truncate(before);
            return Err(broken);
        }
        self.is_untold |= self.incoming.release();
        Ok(buf.len() - before)
    }

    /// Whether there is something to read.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn has_input(&mut self) -> Result<bool, Broken> {
        self.incoming.has_message()
    }

    /// Publishes as many of the bytes as there is room for; returns how many.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut written = 0;
        while written < bytes.len() {
            let room = usize::try_from(self.outgoing.room()?).unwrap_or(usize::MAX);
            let piece = room.min(bytes.len() - written);
            if piece == 0
                || self.outgoing.try_push(STREAM, 0, &[&bytes[written..][..piece]]).is_err()
            {
                break;
            }
            written += piece;
        }
        self.is_untold |= self.outgoing.publish();
        Ok(written)
    }

    /// Whether at least one byte can be written.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn has_room(&mut self) -> Result<bool, Broken> {
        self.outgoing.room().map(|room| room > 0)
    }

    /// Tells the other side of what was read and written since the last call. If it sleeps, calls
    /// `wake`, which must wake it; returns whether it did.
    #[inline]
    pub fn flush(&mut self, wake: impl FnOnce()) -> bool {
        if !std::mem::take(&mut self.is_untold) {
            return false;
        }
        let fenced = self.other.fence();
        self.other.ring(&fenced, wake)
    }

    /// Whether this side may sleep now: nothing of what it awaits is there. If so, the other side
    /// wakes it when something may be, and [`Self::woken`] must be called afterwards.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules, by keeping this one awake too.
    ///
    /// # Panics
    /// If something that was read or written isn't told yet (invariant 3).
    pub fn prepare_sleep(&mut self, awaits: Awaits) -> Result<bool, Broken> {
        assert!(!self.is_untold, "the other side is told before this one sleeps");
        let (mut looked, mut found) = (false, Ok(false));
        let (incoming, outgoing) = (&mut self.incoming, &mut self.outgoing);
        let sleeps = self.own.prepare_sleep(|| {
            looked = true;
            let has_input = if awaits.input { incoming.has_message() } else { Ok(false) };
            found = has_input
                .and_then(|has_input| Ok(has_input || (awaits.room && outgoing.room()? > 0)));
            found != Ok(false)
        });
        found?;
        if looked { Ok(sleeps) } else { Err(Broken::Bell) }
    }

    /// Whether the other side has yet to take something of what was written. Of one that doesn't
    /// keep the rules nothing is awaited.
    pub fn has_untaken(&mut self) -> bool {
        self.outgoing.has_untaken() == Ok(true)
    }

    /// Whether the other side isn't told yet of something that was read or written.
    #[must_use]
    pub fn is_untold(&self) -> bool {
        self.is_untold
    }

    /// It sleeps no more: nobody has to wake it.
    pub fn woken(&self) {
        self.own.woken();
    }
}

impl LocalEnd<LocalMemory> {
    /// Ends the stream for both sides: the memory goes back to the system, also if others have it.
    /// It reads as zeros from now on (invariant 4). The other side should know the end by then,
    /// such as by its socket: what it finds in its ring is a fault.
    pub fn wipe(&mut self) {
        self.outgoing.withdraw();
        self.own.words().wipe();
    }
}

/// An end over the memory of both.
pub(super) fn over_mapping(memory: &LocalMemory, spec: LocalSpec, side: Side) -> LocalEnd {
    let (requests, replies) = (memory.part(spec.requests()), memory.part(spec.replies()));
    LocalEnd::new(side, spec, memory.clone(), requests, replies)
}

/// The server's end, beside a peer that changes the memory between any two accesses.
///
/// # Panics
/// If the spec is out of bounds.
#[cfg(any(test, fuzzing))]
#[must_use]
pub fn exposed_local(
    spec: LocalSpec,
    peer: std::sync::Arc<std::sync::Mutex<crate::ring::HostilePeer>>,
) -> LocalEnd<crate::ring::Exposed> {
    let spec = spec.validate().expect("sizes that are possible");
    let memory = |bytes| crate::ring::Exposed::new(bytes, std::sync::Arc::clone(&peer));
    let (requests, replies) = (spec.requests(), spec.replies());
    let bells = memory(requests.start);
    let requests = memory(requests.end - requests.start);
    LocalEnd::new(Side::Server, spec, bells, requests, memory(replies.end - replies.start))
}
