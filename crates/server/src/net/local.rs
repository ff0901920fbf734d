//! The rings of a local client, beside its socket: `docs/formats/local.md`.
//!
//! ```text
//! LOCAL ATTACH ──> reply and descriptors, by the socket ──> rings
//!                             ┌─ polled: the shard looks at it in each turn
//! requests ══ring══> read     │      idle, or the shard sleeps │ ^ a byte came by the socket
//! replies <══ring══ write     └─ parked: nothing is looked at  v │
//! ```
//!
//! 1. What is read was copied out of the ring, and is decoded as bytes of a socket are. A client
//!    that doesn't keep the rules of the ring is gone for the server: it is told in the log once,
//!    and its connection ends.
//! 2. The end of the socket, or of the process that connected it, is the end of the client: what is
//!    in the ring then is executed, and nothing more is written.
//! 3. Each look, read and write of a turn has a bound; a wake-up of the client never waits.
//! 4. What was read and written is told to the client before the ring is parked, and after each
//!    turn with replies.
//! 5. Until the reply to LOCAL ATTACH is sent, what waits goes by the socket. So the socket's event
//!    tells of room, and the ring is not looked at for it. That has a bound: [`REPLY_WITHIN`].
//!
//! Belongs to the shard's thread.

use crate::net::local_counts::Counted;
use nigh_shm::local::{Awaits, LocalServerEnd};
use nigh_shm::ring::Broken;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a ring is looked at without finding anything while the shard is awake: some hundred
/// times what a wake-up by the socket costs both sides.
const PARK_AFTER: Duration = Duration::from_millis(1);
/// Wake-ups that one look takes from the socket, bytes: far more than a client that keeps the rules
/// sends between two looks.
const WAKES_AT_ONCE: usize = 256;

/// How long a socket may be too full for the reply to LOCAL ATTACH. The descriptors that it carries
/// are the server's until then.
const REPLY_WITHIN: Duration = Duration::from_secs(1);

/// What goes to the socket before the rings are used.
struct AttachReply {
    /// Bytes of earlier replies.
    before: usize,
    /// Bytes of the reply to LOCAL ATTACH.
    left: usize,
    /// What its first byte carries.
    given: Vec<OwnedFd>,
    /// When the socket first had no room.
    waits_since: Option<Instant>,
}

/// A local client's rings.
pub(crate) struct Local {
    end: LocalServerEnd,
    /// Until it is sent.
    reply: Option<AttachReply>,
    /// By which the end of the client's process is seen, if the system lets us.
    process: Option<OwnedFd>,
    /// The client is gone: its socket has ended, or its process.
    is_gone: bool,
    /// It doesn't keep the rules.
    is_broken: bool,
    is_parked: bool,
    /// The socket may have more wake-ups.
    has_wakes: bool,
    /// When the ring last had something.
    last_news: Instant,
    counted: Counted,
}

/// What one read brought.
pub(crate) struct Came {
    pub(crate) bytes: usize,
    /// There may be more.
    pub(crate) more: bool,
    /// Nothing comes any more.
    pub(crate) ended: bool,
}

/// What a look at a polled ring found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Something for its connection to do.
    News,
    Nothing,
    /// Nothing for so long that it was parked.
    Parked,
}

impl Local {
    /// Rings whose client gets `given` with the first byte of the reply that is about to be
    /// written, behind `before` bytes that wait.
    pub(crate) fn new(
        end: LocalServerEnd,
        (before, given): (usize, Vec<OwnedFd>),
        process: Option<OwnedFd>,
        counted: Counted,
    ) -> Local {
        Local {
            end,
            reply: Some(AttachReply { before, left: 0, given, waits_since: None }),
            process,
            is_gone: false,
            is_broken: false,
            is_parked: false,
            has_wakes: true,
            last_news: Instant::now(),
            counted,
        }
    }

    /// The reply to LOCAL ATTACH has so many bytes: those behind them go by the ring.
    pub(crate) fn set_reply_bytes(&mut self, bytes: usize) {
        self.reply.as_mut().expect("it is just attached").left = bytes;
    }

    /// By which the end of the client's process is seen.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Adds requests to `buf`, `most` bytes or a piece more.
    pub(crate) fn read(&mut self, buf: &mut Vec<u8>, most: usize) -> Result<Came, Broken> {
        let outcome = self.end.read(buf, most).and_then(|bytes| Ok((bytes, self.end.has_input()?)));
        match outcome {
            Ok((bytes, has_input)) => {
                let ended = self.is_gone && bytes == 0 && !has_input;
                Ok(Came { bytes, more: has_input || (self.is_gone && !ended), ended })
            }
            Err(broken) => Err(self.broken(broken)),
        }
    }

    /// Writes replies: as much as there is room for. The error is [`io::ErrorKind::WouldBlock`] if
    /// there is none at all; others if the client is gone, or doesn't keep the rules.
    pub(crate) fn write(
        &mut self,
        socket: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let mut written = 0;
        'slices: for slice in slices {
            let mut rest = &**slice;
            while !rest.is_empty() {
                let piece = match self.write_piece(socket, rest) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break 'slices,
                    piece => piece?,
                };
                written += piece;
                rest = &rest[piece..];
            }
        }
        self.tell(socket);
        if written == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    fn write_piece(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        if self.is_gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(reply) = &mut self.reply {
            let sent = reply.send(socket, bytes).inspect_err(|_| {
                reply.waits_since.get_or_insert_with(Instant::now);
            })?;
            if reply.given.is_empty() {
                self.counted.set_files(usize::from(self.process.is_some()));
            }
            if reply.left == 0 {
                self.reply = None;
            }
            return Ok(sent);
        }
        match self.end.write(bytes) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(written) => Ok(written),
            Err(broken) => Err(io::Error::other(self.broken(broken))),
        }
    }

    /// Tells the client what was read and written.
    pub(crate) fn tell(&mut self, socket: BorrowedFd<'_>) {
        let counts = &self.counted.counts;
        self.end.flush(|| {
            counts.wakes_sent.fetch_add(1, Relaxed);
            // A full socket wakes as well, and a closed one needs no waking.
            let _ = send(socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        });
    }

    /// Takes what came by the socket, and the end of it. True if the ring was parked and no longer
    /// is.
    pub(crate) fn take_event(&mut self, socket: BorrowedFd<'_>, has_ended: bool) -> bool {
        self.is_gone |= has_ended;
        self.take_wakes(socket);
        self.last_news = Instant::now();
        self.unpark()
    }

    /// Looks at the ring again. True if nobody did.
    pub(crate) fn unpark(&mut self) -> bool {
        let was_parked = std::mem::take(&mut self.is_parked);
        if was_parked {
            self.end.woken();
        }
        was_parked
    }

    /// Whether the client has left its socket full for too long, so that it can't be told that it
    /// is attached.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let since = self.reply.as_ref().and_then(|reply| reply.waits_since);
        since.is_some_and(|since| now.saturating_duration_since(since) > REPLY_WITHIN)
    }

    /// Whether this error of a write means that the client can't be given its descriptors, and that
    /// is all: nothing of the reply to LOCAL ATTACH is sent. It counts as a refusal then.
    pub(crate) fn is_refused(&self, error: &io::Error) -> bool {
        let is_refused = error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
            && self.reply.as_ref().is_some_and(|reply| !reply.given.is_empty());
        if is_refused {
            self.counted.counts.refused.fetch_add(1, Relaxed);
        }
        is_refused
    }

    /// Watches the client's process no more.
    pub(crate) fn forget_process(&mut self) {
        self.process = None;
        self.counted.set_files(0);
    }

    /// Whether a client that is still there has yet to take replies.
    pub(crate) fn has_untaken(&mut self) -> bool {
        !self.is_gone && self.end.has_untaken()
    }

    /// Ends the rings, though the client may still have their memory. The socket is closed by then.
    pub(crate) fn wipe(&mut self) {
        self.end.wipe();
    }

    /// Takes wake-ups from the socket: some, or all that there are.
    fn take_wakes(&mut self, socket: BorrowedFd<'_>) {
        let mut bytes = [0; WAKES_AT_ONCE];
        self.has_wakes = false;
        match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT).map(|(count, _)| count) {
            Ok(0) => self.is_gone = true,
            Ok(count) => {
                self.counted.counts.wakes_received.fetch_add(1, Relaxed);
                self.has_wakes = count == WAKES_AT_ONCE;
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => self.has_wakes = true,
            Err(_) => self.is_gone = true,
        }
    }

    /// Looks whether there is something that its connection awaits.
    #[inline]
    pub(crate) fn look(&mut self, socket: BorrowedFd<'_>, awaits: Awaits, now: Instant) -> Found {
        if self.has_wakes {
            self.take_wakes(socket);
        }
        // A fault is for the read or write to find.
        let news = (awaits.input && (self.is_gone || self.end.has_input() != Ok(false)))
            || (awaits.room && self.is_gone)
            || (self.by_ring(awaits).room && self.end.has_room() != Ok(false));
        if news {
            self.last_news = now;
            return Found::News;
        }
        if self.end.is_untold() {
            self.tell(socket);
        }
        let is_idle = now.saturating_duration_since(self.last_news) > PARK_AFTER;
        if is_idle && !self.has_wakes { self.park(awaits) } else { Found::Nothing }
    }

    /// Lets the client wake this shard when what its connection awaits is there.
    pub(crate) fn park_now(&mut self, socket: BorrowedFd<'_>, awaits: Awaits) -> Found {
        if self.has_wakes {
            self.take_wakes(socket);
            if self.has_wakes || self.is_gone {
                return Found::News;
            }
        }
        self.tell(socket);
        self.park(awaits)
    }

    /// What of it the ring tells (invariant 5).
    fn by_ring(&self, awaits: Awaits) -> Awaits {
        Awaits { room: awaits.room && self.reply.is_none(), ..awaits }
    }

    fn park(&mut self, awaits: Awaits) -> Found {
        let awaits = self.by_ring(awaits);
        if !awaits.input && !awaits.room {
            return Found::Nothing; // others let it go on
        }
        match self.end.prepare_sleep(awaits) {
            Ok(true) => {
                self.is_parked = true;
                Found::Parked
            }
            Ok(false) => Found::News,
            Err(broken) => {
                self.broken(broken);
                Found::News
            }
        }
    }

    /// Says in the log what a client has done, once.
    #[cold]
    fn broken(&mut self, broken: Broken) -> Broken {
        if !std::mem::replace(&mut self.is_broken, true) {
            self.counted.tell_broken(&broken);
        }
        self.is_gone = true;
        broken
    }
}

impl AttachReply {
    /// Sends what goes by the socket of `bytes`, which begin where the last call ended.
    fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if self.before > 0 {
            let sent = send(socket, &bytes[..bytes.len().min(self.before)], flags)?;
            self.before -= sent;
            return Ok(sent);
        }
        let bytes = &bytes[..bytes.len().min(self.left)];
        let sent = if self.given.is_empty() {
            send(socket, bytes, flags)?
        } else {
            let given: Vec<BorrowedFd<'_>> = self.given.iter().map(AsFd::as_fd).collect();
            let rights = SendAncillaryMessage::ScmRights(&given);
            let mut space = vec![MaybeUninit::uninit(); rights.size()];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(rights), "there is room for it");
            sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?
        };
        if sent > 0 {
            self.given.clear();
        }
        self.left -= sent;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::local_counts::LocalCounts;
    use nigh_shm::local::{LocalSpec, create};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn a_reply_that_finds_the_socket_full_waits_for_the_socket_alone() {
        // The client reads nothing of what is before the reply. Its ring has room all the time, and
        // nobody is told so: the ring is parked. Nor may that last for long. When the client has
        // read all of it, the ring's room counts.
        let counts = Arc::new(LocalCounts::default());
        let spec = LocalSpec { request_bytes: 4096, reply_bytes: 4096 };
        let (memory, end) = create(spec).expect("memory");
        let counted = counts.admit(1, (spec.memory_bytes(), 1), (1, None)).expect("the first");
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let (before, reply) = (4 << 20, 5);
        let mut local = Local::new(end, (before, vec![memory]), None, counted);
        local.set_reply_bytes(reply);
        let bytes = vec![b'x'; before + reply];
        let socket = ours.as_fd();
        let mut sent = local.write(socket, &[IoSlice::new(&bytes)]).expect("room for some");
        assert!(sent < before, "a socket takes less");
        let awaits = Awaits { input: true, room: true };
        assert_ne!(local.look(socket, awaits, Instant::now()), Found::News);
        local.unpark();
        assert_eq!(local.park_now(socket, awaits), Found::Parked);
        local.unpark();
        assert_eq!(counts.files.load(Relaxed), 1, "the memory is still the server's");
        assert!(local.is_overdue(Instant::now() + 2 * REPLY_WITHIN));
        let (mut came, mut buf) = (0, vec![0; 1 << 16]);
        while came < bytes.len() {
            came += theirs.read(&mut buf).expect("it is open");
            sent += match local.write(socket, &[IoSlice::new(&bytes[sent..])]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                written => written.expect("it is open"),
            };
        }
        assert_eq!((came, sent), (bytes.len(), bytes.len()));
        assert!(!local.is_overdue(Instant::now() + 2 * REPLY_WITHIN));
        assert_eq!(counts.files.load(Relaxed), 0, "the memory is the client's");
        assert_eq!(local.look(socket, awaits, Instant::now()), Found::News);
    }
}
