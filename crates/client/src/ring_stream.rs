//! The byte stream of a local client: two rings in shared memory, and a socket that wakes.
//!
//! ```text
//! write ══ ring of requests ══> server       nothing comes? spin ── sleep on the socket
//! read  <══ ring of replies ═══ server       the socket's end is the server's
//! ```
//!
//! 1. What was written or read is told before this side waits, and before a call returns.
//! 2. A wait ends with the server's death, since the kernel closes its socket. What lies in the
//!    ring is read before the end is told. A server that has closed its side may wipe the rings: a
//!    fault that is found then is the end.
//! 3. A call that waits for room reads meanwhile, so two full rings can't block each other. What it
//!    reads counts as a wait.
//! 4. Before the ring is read there is memory for what may come, or an error.
//!
//! Belongs to one thread at a time.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_shm::local::{Awaits, LocalClientEnd};
use nigh_shm::ring::Broken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Looks at the rings between two looks at the clock: some microseconds.
const LOOKS: u32 = 64;
/// Most bytes that are read while a call waits for room: more than any window asks for.
const BEFORE_MOST_BYTES: usize = 256 << 20;
/// Bytes of one read, which ends behind the piece that reaches them.
const READ_BYTES: usize = 64 << 10;
/// A piece is copied by whole words.
const WORD_BYTES: usize = 8;
/// Reads of wake-ups that stand before the socket's end; each takes many.
const END_LOOKS: u32 = 64;
/// How long a client looks for a reply before it sleeps, if another core can answer meanwhile.
const SPIN: Duration = Duration::from_micros(50);

/// A local client's rings and its socket.
pub(crate) struct RingStream {
    socket: Arc<UnixStream>,
    end: LocalClientEnd,
    /// Bytes for which there has to be memory before a read.
    room_bytes: usize,
    spin: Duration,
    timeout: Cell<Option<Duration>>,
    /// What was read while a call waited for room.
    before: Vec<u8>,
    /// The server's side of the socket is closed.
    is_over: bool,
}

/// The time that one call may wait.
struct Patience {
    begin: Option<Instant>,
    most: Option<Duration>,
}

impl RingStream {
    /// Over the rings of a socket. A piece of the ring of replies has `piece_bytes` at most.
    /// `spin`: how long to look before a sleep; by the number of cores if `None`.
    pub(crate) fn new(
        socket: UnixStream,
        end: LocalClientEnd,
        piece_bytes: usize,
        spin: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Self {
        let spin = spin.unwrap_or_else(|| if has_cores() { SPIN } else { Duration::ZERO });
        Self {
            socket: Arc::new(socket),
            end,
            room_bytes: READ_BYTES + piece_bytes + WORD_BYTES,
            spin,
            timeout: Cell::new(timeout),
            before: Vec::new(),
            is_over: false,
        }
    }

    /// Bounds the wait of each read and write; `None` is no limit.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.set(timeout);
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &Arc<UnixStream> {
        &self.socket
    }

    /// Adds the bytes that are there to `input`: at least one, but at the stream's end.
    pub(crate) fn read_into(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        if !self.before.is_empty() {
            let len = self.before.len();
            input.try_reserve(len)?;
            input.append(&mut self.before);
            return Ok(len);
        }
        let mut patience = Patience::new(self.timeout.get());
        loop {
            let was_over = self.is_over;
            input.try_reserve(self.room_bytes)?;
            let len = self.end.read(input, READ_BYTES).map_err(|cause| self.fault(cause))?;
            if len > 0 || was_over {
                self.tell();
                return Ok(len);
            }
            self.rest(&mut patience, false)?;
        }
    }

    /// Writes as many bytes as find room: at least one.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut patience = Patience::new(self.timeout.get());
        loop {
            let written = self.end.write(bytes).map_err(|cause| self.fault(cause))?;
            self.tell();
            if written > 0 {
                return Ok(written);
            }
            if self.is_over {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if self.before.len() >= BEFORE_MOST_BYTES {
                return Err(io::Error::other(
                    "the server takes no request, and its replies are too many to keep: read \
                     replies between requests",
                ));
            }
            self.before.try_reserve(self.room_bytes)?;
            let len = self.end.read(&mut self.before, READ_BYTES);
            if len.map_err(|cause| self.fault(cause))? == 0 {
                self.rest(&mut patience, true)?;
            } else {
                patience.left()?;
            }
            self.tell();
        }
    }

    /// Whether the server's side is closed, by a look that doesn't wait. Wake-ups that nobody
    /// needed may stand before the end.
    pub(crate) fn has_ended(&mut self) -> bool {
        let mut looks = 0;
        while looks < END_LOOKS && self.look_at_socket() {
            looks += 1;
        }
        self.is_over
    }

    /// Rings the server's bell for what it wasn't told yet.
    #[inline]
    fn tell(&mut self) {
        let socket = &self.socket;
        // A full socket has wake-ups that the server hasn't read; a closed one is met by the next
        // wait.
        self.end.flush(|| {
            let _ = send(socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        });
    }

    /// Waits until there may be something to read, or to write; spins first.
    fn rest(&mut self, patience: &mut Patience, wants_room: bool) -> io::Result<()> {
        if self.looks(wants_room)? {
            return Ok(());
        }
        let begin = Instant::now();
        while begin.elapsed() < self.spin {
            if self.looks(wants_room)? {
                return Ok(());
            }
        }
        let left = patience.left()?;
        let awaits = Awaits { input: true, room: wants_room };
        if self.end.prepare_sleep(awaits).map_err(|cause| self.fault(cause))? {
            let slept = sleep(&self.socket, left);
            self.end.woken();
            if slept? {
                self.look_at_socket();
            }
        }
        Ok(())
    }

    /// Some looks at the rings. Whether there is something to do.
    fn looks(&mut self, wants_room: bool) -> io::Result<bool> {
        if self.spin.is_zero() {
            return Ok(false);
        }
        for _ in 0..LOOKS {
            if self.end.has_input().map_err(|cause| self.fault(cause))? {
                return Ok(true);
            }
            if wants_room && self.end.has_room().map_err(|cause| self.fault(cause))? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Takes the wake-ups that have come, or notes the end. Whether there were any.
    fn look_at_socket(&mut self) -> bool {
        let mut bytes = [0; 64];
        match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.is_over = true,
            Ok(_) => return true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_over = true,
        }
        false
    }

    /// What a fault of the rings is: the end, or damage (invariant 2).
    #[cold]
    fn fault(&mut self, cause: Broken) -> io::Error {
        if self.has_ended() {
            return io::ErrorKind::ConnectionReset.into();
        }
        io::Error::new(io::ErrorKind::InvalidData, format!("the server's ring is damaged: {cause}"))
    }
}

impl Patience {
    fn new(most: Option<Duration>) -> Self {
        Self { begin: None, most }
    }

    /// The time that is left; `None` is without an end.
    fn left(&mut self) -> io::Result<Option<Duration>> {
        let Some(most) = self.most else { return Ok(None) };
        let waited = self.begin.get_or_insert_with(Instant::now).elapsed();
        match most.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => Ok(Some(left)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Whether the machine has several cores: a server may run beside this thread, though the thread
/// may be bound to one.
fn has_cores() -> bool {
    match std::fs::read_to_string("/sys/devices/system/cpu/online") {
        Ok(online) => is_several(&online),
        Err(_) => std::thread::available_parallelism().is_ok_and(|it| it.get() > 1),
    }
}

/// Whether a list as the system writes it, such as `0-3,5`, has several numbers.
fn is_several(list: &str) -> bool {
    list.contains(['-', ','])
}

/// Sleeps until the socket has something, or so long. Whether it has.
fn sleep(socket: &UnixStream, most: Option<Duration>) -> io::Result<bool> {
    // Longer than the system can tell is without an end.
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], most.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shm::local::{LocalServerEnd, LocalSpec, attach, create};

    /// A stream, and the server's ends.
    fn pair(reply_bytes: u32) -> (RingStream, UnixStream, LocalServerEnd) {
        let spec = LocalSpec { request_bytes: 4096, reply_bytes };
        let (memory, server) = create(spec).expect("memory");
        let client = attach(&memory, spec).expect("what was just made");
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let piece_bytes = reply_bytes as usize / 4;
        (RingStream::new(ours, client, piece_bytes, Some(Duration::ZERO), None), theirs, server)
    }

    /// There was memory for a usual piece. A longer one was copied without a question, which ended
    /// the process where there was none.
    #[test]
    fn there_is_memory_for_a_whole_piece_before_it_is_copied() {
        const RING_BYTES: u32 = 4 << 20;
        let (mut stream, _server, mut end) = pair(RING_BYTES);
        let piece = vec![7; RING_BYTES as usize / 4 - 8];
        for before in [0, 1000] {
            let (mut input, mut grown) = (vec![0; before], vec![0; before]);
            grown.try_reserve(READ_BYTES + piece.len()).expect("memory");
            assert_eq!(end.write(&piece), Ok(piece.len()));
            assert_eq!(stream.read_into(&mut input).expect("a piece"), piece.len());
            assert!(input.capacity() >= grown.capacity(), "it has grown by the copy");
        }
    }

    /// A server that takes no request, and always sends something meanwhile, held a write for as
    /// long as the replies found memory.
    #[test]
    fn a_write_ends_though_replies_always_come() {
        let (mut stream, _server, mut end) = pair(4 << 20);
        stream.set_timeout(Some(Duration::from_nanos(1)));
        while stream.end.write(&[0; 1000]).expect("a server that keeps the rules") > 0 {}
        while end.write(&[7; 1000]).expect("a client that keeps the rules") > 0 {}
        let error = stream.write(b"more").expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stream.before.len() < 1 << 20, "{} bytes were read", stream.before.len());
    }

    /// The server had woken a client that was awake by then, and was killed. The next look took the
    /// wake-up for a sign of life, so a request was sent to nobody.
    #[test]
    fn the_end_is_seen_behind_wake_ups() {
        let (mut stream, server, _end) = pair(4096);
        send(&server, &[b'w'; 200], SendFlags::empty()).expect("room");
        assert!(!stream.has_ended());
        send(&server, &[b'w'; 200], SendFlags::empty()).expect("room");
        drop(server);
        assert!(stream.has_ended());
    }

    /// The server closes the socket, and wipes the rings behind that: this is its end, no damage.
    #[test]
    fn rings_that_are_wiped_behind_the_end_are_the_end() {
        for is_closed in [true, false] {
            let (mut stream, server, mut end) = pair(4096);
            assert_eq!(end.write(b"one"), Ok(3));
            let mut input = Vec::new();
            assert_eq!(stream.read_into(&mut input).expect("a reply"), 3);
            send(&server, b"w", SendFlags::empty()).expect("room");
            let kept = (!is_closed).then_some(server);
            end.wipe();
            let error = stream.read_into(&mut input).expect_err("it is wiped");
            let is_end = error.kind() == io::ErrorKind::ConnectionReset;
            assert_eq!((is_end, kept.is_none()), (is_closed, is_closed), "{error}");
            assert_eq!(input, b"one");
        }
    }

    /// A client that was bound to one core slept in each call, since it believed that there is no
    /// other: a write took 15 us in place of one.
    #[test]
    fn cores_are_those_of_the_machine() {
        for (list, several) in [("0\n", false), ("0-1\n", true), ("0,3\n", true), ("7\n", false)] {
            assert_eq!(is_several(list), several, "{list}");
        }
    }
}
