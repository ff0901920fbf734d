//! Servers that give no answer in time.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nigh_client::{
    Address, CallError, Client, ClientError, ClientOptions, Connection, ConnectionOptions, LocalUse,
};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket,
    socket_with,
};

use crate::support::{Manner, Server};

/// A server that doesn't answer is given up after the timeout: a read may be repeated, of a write
/// nobody knows. Behind that each call waited for the timeout again, since the system takes
/// connections for a process that stands still. They fail soon, until the server goes on.
#[test]
fn a_server_that_stands_still_is_given_up() {
    let server = Server::start(Manner::default());
    let timeout = Duration::from_secs(3);
    for local in [LocalUse::Required, LocalUse::Never] {
        let connection =
            ConnectionOptions { timeout: Some(timeout), ..ConnectionOptions::default() };
        let mut client = server.client(ClientOptions { connection, local, ..Default::default() });
        client.set(b"a", b"1").unwrap();
        let owner = server.owner();
        assert!(matches!(client.set(b"b", b"2"), Err(CallError::Unknown { .. })));
        let begin = Instant::now();
        for _ in 0..20 {
            let error = client.get(b"a").unwrap_err();
            assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
            assert!(error.to_string().contains("didn't answer within 3s"), "{error}");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(begin.elapsed() < timeout, "{:?}", begin.elapsed());
        drop(owner);
        let begin = Instant::now();
        while client.get(b"a").ok().flatten().as_deref() != Some(&b"1"[..]) {
            assert!(begin.elapsed() < Duration::from_secs(5));
        }
    }
}

/// A request that takes longer than the timeout is no sign that the server stands still: it waits
/// for a disk, for example. The next call goes on at once.
#[test]
fn a_server_that_answers_others_is_attached_to_at_once() {
    let server = Server::start(Manner { ignores: Some(b"DEL"), ..Manner::default() });
    let connection =
        ConnectionOptions { timeout: Some(Duration::from_secs(3)), ..ConnectionOptions::default() };
    let mut client = server.client(ClientOptions { connection, ..Default::default() });
    client.set(b"a", b"1").unwrap();
    assert!(matches!(client.del(&[b"b"]), Err(CallError::Unknown { .. })));
    // A slow machine may need some short tries to attach; together less than the timeout.
    let begin = Instant::now();
    loop {
        let is_there = client.get(b"a").ok().flatten().as_deref() == Some(&b"1"[..]);
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        if is_there {
            break;
        }
    }
}

/// A server stands still, and its queue of connections is full, as many clients try to attach. The
/// next one waited for ever, whatever its timeout.
#[test]
fn a_full_queue_of_connections_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sock");
    let queue = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    bind(&queue, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free path");
    listen(&queue, 0).expect("a queue");
    let connection = ConnectionOptions {
        timeout: Some(Duration::from_millis(50)),
        ..ConnectionOptions::default()
    };
    let options = ClientOptions { connection, ..Default::default() };
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client =
            Client::unattached(&Address::unix(&path), options.clone()).expect("memory");
        let error = client.get(b"a").unwrap_err();
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        clients.push(client);
    }
}

/// A read that was sent as a request of any kind said that it may have happened. It says that it
/// may be sent again.
#[test]
fn a_lost_read_has_no_outcome() {
    let server = Server::start(Manner { ignores: Some(b"MGET"), ..Manner::default() });
    let connection =
        ConnectionOptions { timeout: Some(Duration::from_secs(1)), ..ConnectionOptions::default() };
    let mut client = server.client(ClientOptions { connection, ..Default::default() });
    let error = client.call(&[b"MGET", b"a"]).unwrap_err();
    assert!(matches!(error, CallError::Unanswered { .. }) && error.may_repeat(), "{error}");
}

/// A caller that looks for signals, as one in Python does, is asked while a call waits, and may end
/// it long before the timeout. Requests that buffers don't hold wait too.
#[test]
fn a_caller_may_break_a_wait_off() {
    static GIVES_UP: AtomicBool = AtomicBool::new(false);
    let server = Server::start(Manner::default());
    for (local, timeout) in [(LocalUse::Required, None), (LocalUse::Never, Some(60))] {
        let connection = ConnectionOptions {
            timeout: timeout.map(Duration::from_secs),
            while_waiting: Some(|| !GIVES_UP.load(Relaxed)),
            ..ConnectionOptions::default()
        };
        let mut client = server.client(ClientOptions { connection, local, ..Default::default() });
        client.set(b"a", b"1").unwrap();
        for value in [&[0; 8][..], &[0; 1 << 22]] {
            let owner = server.owner();
            let begin = Instant::now();
            GIVES_UP.store(true, Relaxed);
            let error = client.set(b"b", value).unwrap_err();
            GIVES_UP.store(false, Relaxed);
            assert!(matches!(error, CallError::Unknown { .. }), "{error}");
            assert!(error.to_string().contains("was broken off"), "{error}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
            drop(owner);
            while client.get(b"a").ok().flatten().as_deref() != Some(&b"1"[..]) {
                assert!(begin.elapsed() < Duration::from_secs(40));
            }
        }
    }
}

/// Fills the queue of connections of a listener at this place. Gives those in it.
fn fill(listener: impl AsFd, family: AddressFamily, place: &impl SocketAddrArg) -> Vec<OwnedFd> {
    listen(listener, 0).expect("a shorter queue");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let one = || {
        let peer = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
        // Those that find no room wait.
        let _ = connect(&peer, place);
        peer
    };
    (0..4).map(|_| one()).collect()
}

/// The same caller wasn't asked while the system waited to connect: a full queue of connections had
/// it wait for the timeout, or without one for ever.
#[test]
fn a_caller_may_break_the_wait_for_a_connection_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sock");
    let by_path = UnixListener::bind(&path).expect("a free path");
    let place = SocketAddrUnix::new(&path).expect("a short path");
    let _waiting = fill(&by_path, AddressFamily::UNIX, &place);
    let by_port = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let place = by_port.local_addr().expect("bound");
    let _waiting_too = fill(&by_port, AddressFamily::INET, &place);
    for address in [Address::unix(&path), Address::tcp("127.0.0.1", place.port())] {
        let options = ConnectionOptions {
            timeout: Some(Duration::from_secs(20)),
            while_waiting: Some(|| false),
            ..ConnectionOptions::default()
        };
        let error = Connection::connect(&address, &options).expect_err("its queue is full");
        assert!(matches!(error, ClientError::BrokenOff { .. }), "{error}");
    }
}

/// A caller that lets a call go on gets its reply, or the timeout.
#[test]
fn a_wait_that_isnt_broken_off_ends_as_ever() {
    let server = Server::start(Manner { ignores: Some(b"DEL"), ..Manner::default() });
    let timeout = Duration::from_secs(1);
    for local in [LocalUse::Required, LocalUse::Never] {
        let connection = ConnectionOptions {
            timeout: Some(timeout),
            while_waiting: Some(|| true),
            ..ConnectionOptions::default()
        };
        let mut client = server.client(ClientOptions { connection, local, ..Default::default() });
        std::thread::scope(|scope| {
            let owner = server.owner();
            let writer = scope.spawn(|| client.set(b"a", b"1"));
            std::thread::sleep(Duration::from_millis(120));
            drop(owner);
            writer.join().unwrap().unwrap();
        });
        let begin = Instant::now();
        let error = client.del(&[b"a"]).unwrap_err();
        assert!(error.to_string().contains("didn't answer within 1s"), "{error}");
        assert!((timeout..Duration::from_secs(9)).contains(&begin.elapsed()));
    }
}

/// What a caller looks by while a call waits may panic. The request was sent, and its reply came
/// later: the next call took that for its own.
#[test]
fn a_panic_while_a_call_waits_leaves_its_reply_to_nobody() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    let server = Server::start(Manner::default());
    server.owner().put(b"b", b"of b", 0);
    for local in [LocalUse::Required, LocalUse::Never] {
        let while_waiting: Option<fn() -> bool> = Some(|| {
            assert!(!PANICS.load(Relaxed), "a mistake");
            true
        });
        let connection = ConnectionOptions { while_waiting, ..ConnectionOptions::default() };
        let mut client = server.client(ClientOptions { connection, local, ..Default::default() });
        // The second one finds no room in the buffers, and is sent in part.
        for value in [&b"1"[..], &vec![0; 1 << 22]] {
            let owner = server.owner();
            PANICS.store(true, Relaxed);
            let call = || client.set(b"a", value);
            let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            PANICS.store(false, Relaxed);
            drop(owner);
            assert!(panics.is_err());
            std::thread::sleep(Duration::from_millis(50));
            let found = client.call(&[b"GET", b"b"]).unwrap();
            assert_eq!(found.bytes(), Some(&b"of b"[..]));
        }
    }
}
