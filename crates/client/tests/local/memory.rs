//! A client's memory in a thread of its own, as a program has it whose main thread must not wait.

use crate::now_ms;
use crate::support::{Manner, Server};
use nigh_client::{CallError, Client, ClientOptions, ForeignValues, KeyLife};
use std::time::{Duration, Instant};

/// What the client has written, another thread reads without asking, also while a call of the
/// client waits. Where memory isn't sure it says so, and the client is asked.
#[test]
fn another_thread_reads_and_asks_nobody() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    client.set(b"a", b"1").unwrap();
    let memory = client.memory().expect("it is local");
    let _ = server.asked();
    // The client is somewhere else: nothing of it is borrowed.
    std::thread::scope(|scope| {
        let (client, memory) = (&mut client, memory);
        let owner = server.owner();
        let waits = scope.spawn(move || client.set(b"b", b"2"));
        scope
            .spawn(move || {
                let (mut value, mut values) = (Vec::new(), ForeignValues::new());
                assert_eq!(memory.get_into(b"a", &mut value), Some(true));
                assert_eq!(value, b"1");
                assert_eq!(memory.get_into(b"none", &mut value), Some(false));
                assert_eq!(
                    (memory.exists(b"a"), memory.exists(b"none")),
                    (Some(true), Some(false))
                );
                assert_eq!(memory.ttl(b"a"), Some(Some(KeyLife::Forever)));
                assert_eq!(memory.multi_get_into(&[b"a", b"none"], &mut values), Some(()));
                assert_eq!((values.get(0), values.get(1)), (Some(&b"1"[..]), None));
                let mut steps = memory.begin_view();
                assert_eq!(memory.step_view(&mut steps, |view| view.exists(b"a")), Ok(true));
                assert!(memory.counts(&steps));
            })
            .join()
            .unwrap();
        drop(owner);
        waits.join().unwrap().unwrap();
    });
    let memory = client.memory().expect("it is local");
    server.owner().put(b"late", b"1", now_ms() - 1000);
    assert_eq!((memory.get_into(b"late", &mut Vec::new()), memory.exists(b"late")), (None, None));
    let mut steps = memory.begin_view();
    assert!(memory.step_view(&mut steps, |view| view.exists(b"late")).is_err());
    assert!(!memory.counts(&steps));
    assert!(!client.end_view(&mut steps, true).unwrap(), "the client asks, and begins again");
    assert_eq!(server.asked(), ["SET", "EXISTS"]);
}

/// The memory tells nothing more soon after its server has ended, or its client has gone.
#[test]
fn memory_ends_with_its_attachment() {
    let mut server = Server::start(Manner::default());
    let mut client = server.local();
    client.set(b"a", b"1").unwrap();
    let (memory, begin) = (client.memory().expect("it is local"), Instant::now());
    assert_eq!((memory.exists(b"a"), memory.link_number()), (Some(true), client.link_number()));
    server.end();
    while memory.exists(b"a").is_some() {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    assert!(client.memory().is_none_or(|it| it.link_number() == memory.link_number()));
    server.listen();
    while client.get(b"a").is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(memory.exists(b"a"), None, "it stays over");
    let next = client.memory().expect("it is local again");
    assert!(next.link_number() > memory.link_number());
    assert!(memory.step_view(&mut next.begin_view(), |view| view.exists(b"a")).is_err());
    assert_eq!(next.exists(b"a"), Some(true));
}

/// A file that is cut off under its reader while the server lives: the thread with the memory finds
/// it first, and from then on asks its client, which reads no memory itself. The client stayed on
/// its attachment, since the socket was open, and nothing was local again.
#[test]
fn a_client_that_only_asks_notices_that_its_memory_is_over() {
    let server = Server::start(Manner::default());
    let first = server.hand_out("first", b"1");
    let (mut asks, mut checks) = (server.local(), server.local());
    let memories = [&asks, &checks].map(|client| client.memory().expect("it is local"));
    assert_eq!(memories[0].exists(b"a"), Some(true));
    server.hand_out("second", b"2");
    first.set_len(0).expect("it is ours");
    for memory in &memories {
        assert_eq!(memory.exists(b"a"), None);
        assert!(memory.is_over());
    }
    // A check looks at once, a call some milliseconds later at most.
    checks.check().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    asks.pipeline([["PING"]]).unwrap();
    for client in [asks, checks] {
        let memory = client.memory().expect("it is local again");
        assert!(memory.link_number() > memories[0].link_number());
        let mut value = Vec::new();
        assert_eq!((memory.get_into(b"a", &mut value), &value[..]), (Some(true), &b"2"[..]));
    }
}

/// With `appendfsync always` a view waits until what it read is on disk. Its server died meanwhile:
/// nobody synced any more, and the view waited for its whole timeout, to blame the log then. It
/// says that there is no server, or goes on with the next one if it may wait.
#[test]
fn a_view_that_waits_for_the_disk_notices_that_its_server_is_gone() {
    let mut server = Server::start(Manner::default());
    server.owner().writer.set_replies_wait(true);
    server.owner().put(b"a", b"1", 0);
    let mut hasty = server.local();
    let wait = Duration::from_secs(20);
    let mut patient = server.client(ClientOptions { wait, ..ClientOptions::default() });
    std::thread::scope(|scope| {
        let view = |client: &mut Client| client.view(|view| view.get(b"a"));
        let hasty = scope.spawn(move || view(&mut hasty));
        let patient = scope.spawn(move || view(&mut patient));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!hasty.is_finished(), "it waits for the disk");
        let begin = Instant::now();
        server.end();
        let error = hasty.join().unwrap().unwrap_err();
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        server.owner().writer.set_replies_wait(false);
        server.listen();
        assert_eq!(patient.join().unwrap().unwrap().as_deref(), Some(&b"1"[..]));
    });
}
