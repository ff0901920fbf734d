//! Stories about a local client's byte stream: between threads, between processes, and beside a
//! client that keeps no rule.

use super::memory::LocalMemory;
use super::spec::{CLIENT_BELL, REQUESTS, SERVER_BELL};
use super::{Awaits, LocalEnd, LocalError, LocalSpec, SEALS, attach, create, exposed_local};
use crate::format::words::SharedWords;
use crate::ring::Broken;
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SPEC: LocalSpec = LocalSpec { request_bytes: 4096, reply_bytes: 8192 };
/// Offsets in a ring: its tail, head and first message.
const TAIL: u64 = 128;
const HEAD: u64 = 256;
const DATA: u64 = 384;
/// Tells the child of the test with two processes which descriptor of which process to open.
const JOB: &str = "NIGH_SHM_LOCAL_JOB";
/// How long a sleeper waits before the test says that a wake-up was lost.
const TOO_LONG: Duration = Duration::from_secs(60);

fn awaits(room: bool) -> Awaits {
    Awaits { input: true, room }
}

/// Byte `n` of the stream.
fn byte(n: usize) -> u8 {
    n.wrapping_mul(0x9E37_79B9).to_le_bytes()[2]
}

/// Both ends, and the memory as somebody without scruples has it.
fn both() -> (LocalEnd, LocalEnd, LocalMemory) {
    let (fd, server) = create(SPEC).expect("memory");
    let client = attach(&fd, SPEC).expect("what was just made");
    (server, client, LocalMemory::map(fd.as_fd(), SPEC.memory_bytes()).expect("mapped again"))
}

/// One side of the socket that carries wake-ups.
struct Waker(UnixStream);

impl Waker {
    /// A full socket wakes just as well.
    fn wake(&self) {
        let _ = rustix::net::send(&self.0, b"w", rustix::net::SendFlags::DONTWAIT);
    }

    /// Sleeps until it is woken; false if the other side is gone.
    fn sleep(&self) -> bool {
        let timeout = TOO_LONG.try_into().expect("a short time");
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "a wake-up was lost");
        (&self.0).read(&mut [0; 64]).is_ok_and(|read| read > 0)
    }
}

/// Sends bytes of the stream and takes `total` of them back, checking each; sleeps whenever there
/// is nothing to do. Tells how often it slept; `None` if the other side went away.
fn ask(end: &mut LocalEnd, waker: &Waker, total: usize) -> Option<usize> {
    let (mut sent, mut came, mut sleeps, mut buf) = (0, 0, 0, Vec::new());
    while came < total {
        let piece: Vec<u8> = (sent..total.min(sent + 1 + sent % 3000)).map(byte).collect();
        let written = end.write(&piece).expect("a fair peer");
        sent += written;
        buf.clear();
        let read = end.read(&mut buf, 1 << 20).expect("a fair peer");
        assert!(buf.iter().enumerate().all(|(i, &b)| b == byte(came + i)), "behind {came}");
        came += read;
        end.flush(|| waker.wake());
        let idle = read == 0 && written == 0 && came < total;
        if idle && end.prepare_sleep(awaits(sent < total)).expect("a fair peer") {
            sleeps += 1;
            let is_there = waker.sleep();
            end.woken();
            if !is_there {
                return None;
            }
        }
    }
    Some(sleeps)
}

/// Sends back whatever comes, until the other side is gone.
fn echo(end: &mut LocalEnd, waker: &Waker) {
    let mut held = Vec::new();
    loop {
        let read = if held.len() < 10_000 { end.read(&mut held, 5000) } else { Ok(0) };
        let written = end.write(&held).expect("a fair peer");
        held.drain(..written);
        end.flush(|| waker.wake());
        let idle = read.expect("a fair peer") == 0 && written == 0;
        if idle && end.prepare_sleep(awaits(!held.is_empty())).expect("a fair peer") {
            let is_there = waker.sleep();
            end.woken();
            if !is_there {
                return;
            }
        }
    }
}

#[test]
fn a_stream_goes_both_ways_between_threads() {
    // More than the rings hold is under way, in pieces of all lengths; both sleep in between. No
    // byte is lost, torn or out of order, and no sleeper is forgotten.
    let (mut server, mut client, _) = both();
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let thread = std::thread::spawn(move || echo(&mut server, &Waker(theirs)));
    assert!(ask(&mut client, &Waker(ours), 3_000_000).is_some());
    thread.join().expect("the server's thread");
}

/// The child of the test below: it sends, takes back and checks; then tells how that went.
#[test]
fn the_client_in_another_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    let (path, total) = job.split_once('=').expect("path=bytes");
    let file = File::options().read(true).write(true).open(path).expect("the server's memory");
    let mut client = attach(&file, SPEC).expect("what the server made");
    // SAFETY: a test that runs alone in its process: nobody else uses its standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let outcome = ask(&mut client, &Waker(socket.into()), total.parse().expect("bytes"));
    std::process::exit(if outcome.is_some() { 0 } else { 3 });
}

#[test]
fn a_stream_goes_both_ways_between_processes() {
    // A child maps the memory by its descriptor. The first takes back all that it sends. The second
    // is killed in the middle: the server learns that by the socket, and its mapping stays whole.
    for (total, is_killed) in [(2_000_000, false), (usize::MAX / 2, true)] {
        let (fd, mut server) = create(SPEC).expect("memory");
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["local::tests::the_client_in_another_process", "--exact", "--nocapture"])
            .env(JOB, format!("{path}={total}"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        let thread = std::thread::spawn(move || {
            echo(&mut server, &Waker(ours));
            server
        });
        if is_killed {
            std::thread::sleep(Duration::from_millis(300));
            child.kill().expect("it runs");
        }
        let status = child.wait().expect("a child");
        assert_eq!(status.success(), !is_killed, "{status}");
        let mut server = thread.join().expect("the server's thread");
        server.write(b"nobody reads that").expect("a peer that kept the rules");
    }
}

#[test]
fn memory_of_another_size_or_without_seals_is_refused() {
    // Sizes that no ring has; a file of another size; one whose size could still be changed; one
    // that takes no seals; one that isn't ours.
    for bytes in [0, 64, 2048, 4097, 6000, u32::MAX] {
        let spec = LocalSpec { request_bytes: 4096, reply_bytes: bytes };
        assert!(
            matches!(spec.validate(), Err(LocalError::RingBytes { bytes: b, .. }) if b == bytes)
        );
        assert!(create(spec).is_err());
    }
    let (fd, _server) = create(SPEC).expect("memory");
    let bigger = LocalSpec { request_bytes: 8192, ..SPEC };
    let error = attach(&fd, bigger).err().expect("another size");
    assert!(matches!(error, LocalError::Size { found: 24576, expected: 28672 }), "{error}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("unsealed", flags).expect("a file");
    rustix::fs::ftruncate(&unsealed, SPEC.memory_bytes()).expect("memory");
    rustix::fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK | SealFlags::GROW).expect("seals");
    let error = attach(&unsealed, SPEC).err().expect("no seal of seals");
    assert!(matches!(error, LocalError::Unsealed { .. }), "{error}");
    let plain = tempfile::tempfile().expect("a file");
    plain.set_len(SPEC.memory_bytes()).expect("a length");
    assert!(matches!(attach(&plain, SPEC), Err(LocalError::Unsealed { found: 0, .. })));
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    assert!(matches!(attach(&pipe, SPEC), Err(LocalError::Size { found: 0, .. })));
}

#[test]
fn nobody_changes_the_size_of_sealed_memory() {
    // The client has the same descriptor, for writing. It can't cut the file off, and it can't take
    // a seal off. It can give pages back: then they read as zeros, and the server finds a fault or
    // nothing, and gets no signal.
    let (fd, mut server) = create(SPEC).expect("memory");
    assert_eq!(rustix::fs::fcntl_get_seals(&fd), Ok(SEALS));
    let bytes = SPEC.memory_bytes();
    for len in [0, bytes - 4096, bytes + 4096] {
        assert_eq!(rustix::fs::ftruncate(&fd, len), Err(Errno::PERM));
    }
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
    let mut client = attach(&fd, SPEC).expect("what was just made");
    client.write(b"sent").expect("a fair peer");
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&fd, holes, 0, bytes).expect("a hole");
    assert_eq!(server.read(&mut Vec::new(), 100), Ok(0));
    assert_eq!(server.write(b"also sent"), Ok(9));
    server.flush(|| ());
}

#[test]
fn a_reader_takes_whole_pieces_until_it_has_enough() {
    // Three writes are three pieces. A reader that wants two bytes gets the first piece, whole.
    let (mut server, mut client, _) = both();
    for piece in ["one", "two", "three"] {
        assert_eq!(client.write(piece.as_bytes()), Ok(piece.len()));
    }
    assert_eq!((client.flush(|| ()), client.flush(|| ())), (false, false), "the server is awake");
    let mut buf = b">".to_vec();
    assert_eq!((server.has_input(), server.read(&mut buf, 2)), (Ok(true), Ok(3)));
    assert_eq!((server.read(&mut buf, 4), server.read(&mut buf, 4)), (Ok(8), Ok(0)));
    assert_eq!(buf, b">onetwothree");
    assert_eq!(client.write(b""), Ok(0), "nothing is no piece");
    assert_eq!(server.has_input(), Ok(false));
}

#[test]
fn a_full_ring_takes_what_fits_and_tells_of_room() {
    // The client writes more than the ring takes, and would sleep until there is room. The server
    // reads, and rings it.
    let (mut server, mut client, _) = both();
    let taken = client.write(&vec![7; 10_000]).expect("a fair peer");
    assert!((3000..4096).contains(&taken), "{taken}");
    assert_eq!((client.has_room(), client.write(b"more")), (Ok(false), Ok(0)));
    client.flush(|| ());
    assert_eq!(client.prepare_sleep(awaits(true)), Ok(true));
    let mut woken = 0;
    let mut buf = Vec::new();
    while server.read(&mut buf, 1).expect("a fair peer") > 0 {
        server.flush(|| woken += 1);
    }
    client.woken();
    assert_eq!((woken, buf.len()), (1, taken));
    assert_eq!(client.has_room(), Ok(true));
    assert_eq!(client.prepare_sleep(awaits(true)), Ok(false), "there is room");
    assert_eq!(client.prepare_sleep(awaits(false)), Ok(true), "there is nothing to read");
}

#[test]
fn each_fault_of_a_client_is_named() {
    // Each thing that the client can write, and what the server says about it, also when it is
    // asked again.
    let said = |at: u64, word: u64, tail: u64| {
        let (mut server, _client, memory) = both();
        memory.store64(at, word, Relaxed);
        memory.store64(REQUESTS + TAIL, tail, Relaxed);
        let mut buf = Vec::new();
        let broken = server.read(&mut buf, 1 << 20).expect_err("a fault");
        assert_eq!(server.read(&mut buf, 1 << 20), Err(broken));
        assert_ne!(server.prepare_sleep(awaits(true)), Ok(true));
        assert!(broken.to_string().ends_with("close the ring"), "{broken}");
        broken
    };
    let first = REQUESTS + DATA;
    let position = |found| Broken::Position { whose: "producer", found, low: 0, high: 4096 };
    for tail in [4104, 7, u64::MAX, 1 << 63] {
        assert_eq!(said(first, 0, tail), position(tail));
    }
    let length = |found, high| Broken::Length { position: 0, found, low: 1, high };
    assert_eq!(said(first, 1 << 32, 16), length(0, 8), "an empty piece");
    assert_eq!(said(first, 1 << 32 | 9, 16), length(9, 8), "more than is published");
    assert_eq!(said(first, 1 << 32 | 1017, 4096), length(1017, 1016), "more than a piece may have");
    assert_eq!(said(first, 1 << 32 | 0xFFFF_FFFF, 4096), length(u32::MAX, 1016));
    let kind = |kind, flags| Broken::Kind { position: 0, kind, flags };
    assert_eq!(said(first, 2 << 32 | 8, 16), kind(2, 0));
    assert_eq!(said(first, 9 << 48 | 1 << 32 | 8, 16), kind(1, 9));
    // A head of what was never published; it is looked at when the room is used up.
    let (mut server, _client, memory) = both();
    let replies = SPEC.replies().start;
    memory.store64(replies + HEAD, 1 << 40, Relaxed);
    let broken = (0..9).find_map(|_| server.write(&[7; 2000]).err()).expect("a fault");
    assert!(matches!(broken, Broken::Position { whose: "consumer", .. }), "{broken}");
}

#[test]
fn what_is_wiped_takes_no_memory_and_gives_no_bytes() {
    // The client has taken one reply and not the next, and keeps the file and its mapping. The
    // server wipes the memory: the file takes none then, and the client finds a fault.
    let (fd, mut server) = create(SPEC).expect("memory");
    let mut client = attach(&fd, SPEC).expect("what was just made");
    let blocks = || rustix::fs::fstat(&fd).expect("open").st_blocks;
    let mut buf = Vec::new();
    assert_eq!((server.write(b"one"), server.has_untaken()), (Ok(3), true));
    assert_eq!((client.read(&mut buf, 100), server.has_untaken()), (Ok(3), false));
    assert_eq!(server.write(b"two"), Ok(3));
    assert!(server.has_untaken() && blocks() > 0);
    server.wipe();
    drop(server);
    assert_eq!(blocks(), 0);
    assert!(client.read(&mut buf, 100).is_err());
    assert_eq!(buf, b"one");
}

#[test]
fn a_copy_counts_only_if_the_ring_stands_behind_it() {
    // The other side wipes the memory at any access of the reader, also in the middle of the copy.
    // The reader gets the piece as it was written, or none of it.
    let mut whole = 0;
    for accesses in 0..10 {
        let mut done = 0;
        let peer = move |offset: u64, word: u64| {
            done += 1;
            match offset {
                _ if done > accesses => 0,
                TAIL => 40,
                DATA => 1 << 32 | 32,
                offset if offset > DATA => u64::from_le_bytes(*b"whatever"),
                _ => word,
            }
        };
        let mut server = exposed_local(SPEC, Arc::new(Mutex::new(peer)));
        let mut buf = Vec::new();
        match server.read(&mut buf, 1) {
            Ok(32) => {
                assert_eq!(buf, b"whatever".repeat(4), "wiped at access {accesses}");
                whole += 1;
            }
            read => assert!(read.is_err() || read == Ok(0), "{read:?}"),
        }
        assert!([0, 32].contains(&buf.len()));
    }
    assert!((1..10).contains(&whole), "it was wiped before the copy, and behind it");
}

#[test]
fn a_client_that_rings_without_end_is_found_out() {
    // Whenever the server tries to sleep, its bell has been rung again. It says so, within a bound,
    // instead of staying awake for ever.
    let is_bell = |offset| offset == SERVER_BELL || offset == CLIENT_BELL;
    let peer = move |offset, word: u64| if is_bell(offset) { word.wrapping_add(3) } else { word };
    let mut server = exposed_local(SPEC, Arc::new(Mutex::new(peer)));
    assert_eq!(server.prepare_sleep(awaits(false)), Err(Broken::Bell));
}

proptest! {
    #[test]
    fn a_client_that_writes_anything_gets_errors(
        lies in prop::collection::vec((any::<u8>(), any::<u64>()), 1..60),
        steps in prop::collection::vec((0u8..5, 1usize..9000), 1..40),
    ) {
        // Between any two accesses of the server the client changes a word. Each call ends, within
        // its bounds.
        let mut lies = lies.into_iter().cycle();
        let peer = move |_, word: u64| match lies.next().expect("no end") {
            (0..100, _) => word,
            (100..150, n) => word.wrapping_add(n % 64 * 8),
            (150..180, n) => (1 << 32) | (n % 3000),
            (180..200, n) => word ^ 1 << (n % 64),
            (_, n) => n,
        };
        let mut server = exposed_local(SPEC, Arc::new(Mutex::new(peer)));
        let mut buf = Vec::new();
        for (step, bytes) in steps {
            buf.clear();
            match step {
                0 => {
                    let read = server.read(&mut buf, bytes);
                    prop_assert!(buf.len() < bytes + 4096 / 4);
                    prop_assert!(read.is_err() || read == Ok(buf.len()));
                }
                1 => {
                    let written = server.write(&vec![1; bytes]);
                    prop_assert!(!written.is_ok_and(|written| written > bytes));
                }
                2 => _ = (server.has_input(), server.has_room()),
                3 => _ = server.flush(|| ()),
                _ => {
                    server.flush(|| ());
                    if server.prepare_sleep(awaits(bytes % 2 == 0)) == Ok(true) {
                        server.woken();
                    }
                }
            }
        }
    }
}

#[test]
fn the_file_can_be_used_by_its_descriptor_alone() {
    // The memory has no name; when both descriptors are closed the mappings still hold it.
    let (fd, mut server) = create(SPEC).expect("memory");
    let mut client = attach(&fd, SPEC).expect("what was just made");
    drop(fd);
    client.write(b"still here").expect("a fair peer");
    let mut buf = Vec::new();
    assert_eq!(server.read(&mut buf, 100), Ok(10));
    assert_eq!(buf, b"still here");
}
