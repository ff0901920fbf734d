//! A client's memory in a thread of its own, as a program has it whose main thread must not wait.

use crate::now_ms;
use crate::support::{Manner, Server};
use nigh_client::{ForeignValues, KeyLife};
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
