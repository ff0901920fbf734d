//! A local client against a small server in threads: what it reads by itself, what it asks for, and
//! what it says when something is wrong.

mod begins;
mod memory;
mod requests;
mod short_of_files;
mod short_of_memory;
mod still;
mod support;

use nigh_client::{CallError, Client, ClientOptions, KeyLife, LocalUse, ValueInPlace};
use nigh_shm::DurableWord;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Manner, Server};

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_millis()).expect("before 500,000,000")
}

/// All reads come from memory: the server sees the writes alone. And a client reads what it has
/// written.
#[test]
fn reads_ask_nobody_and_writes_go_by_the_ring() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    assert!(client.is_local() && client.why_not_local().is_none());
    assert_eq!(client.get(b"a").unwrap(), None);
    for round in 0..200u32 {
        let value = round.to_string().repeat(20);
        client.set(b"a", value.as_bytes()).unwrap();
        assert_eq!(client.get(b"a").unwrap().as_deref(), Some(value.as_bytes()));
    }
    client.set(b"b", &vec![7; 300_000]).unwrap();
    assert_eq!(server.asked(), vec!["SET"; 201]);
    assert!(client.exists(b"b").unwrap() && !client.exists(b"c").unwrap());
    assert_eq!(client.ttl(b"a").unwrap(), Some(KeyLife::Forever));
    assert_eq!(client.ttl(b"c").unwrap(), None);
    let together = client.multi_get(&[b"b", b"c", b"a"]).unwrap();
    assert_eq!(together[0].as_ref().unwrap().len(), 300_000);
    assert!(together[1].is_none() && together[2].as_ref().unwrap().starts_with(b"199"));
    let of_view = client.view(|view| Ok((view.get(b"a")?, view.exists(b"c")?))).unwrap();
    assert_eq!((of_view.0, of_view.1), (together[2].clone(), false));
    let mut met = Vec::new();
    assert_eq!(
        client.scan(b"b", 0, 1000, |key, value| met.push((key.to_vec(), value.len()))).unwrap(),
        0
    );
    assert_eq!(met, [(b"b".to_vec(), 300_000)]);
    assert_eq!(server.asked(), Vec::<String>::new());
    assert_eq!(client.del(&[b"a"]).unwrap(), 1);
    assert_eq!(client.get(b"a").unwrap(), None);
}

/// Parts of a value are read where it lies, in a record and in a run. If it changes meanwhile, the
/// caller is told and called again; if it always changes, or isn't sure, the server sends all.
#[test]
fn parts_of_a_value_are_read_in_place() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    let whole =
        |of: u8| -> Vec<u8> { (0..=250).cycle().map(|at| at ^ of).take(3_000_000).collect() };
    server.owner().put(b"long", &whole(1), 0);
    server.owner().put(b"short", b"0123456789", 0);
    let part = |client: &mut Client, key: &[u8], at: usize| {
        let read = |value: &ValueInPlace<'_>| {
            let mut part = [0; 4];
            value.read(at, &mut part).map(|()| (value.len(), part.to_vec()))
        };
        client.get_in_place(key, read).unwrap()
    };
    assert_eq!(part(&mut client, b"short", 6), Some((10, b"6789".to_vec())));
    let expected = Some((3_000_000, whole(1)[2_999_996..].to_vec()));
    assert_eq!(part(&mut client, b"long", 2_999_996), expected);
    assert_eq!(part(&mut client, b"none", 0), None);
    assert_eq!(server.asked(), Vec::<String>::new());
    // Its owner overwrites it between two parts: once, and then at each attempt.
    for (overwrites, calls, asked) in [(1, 2, &[][..]), (u32::MAX, 17, &["GET"])] {
        let (mut called, mut of) = (0, 1);
        let parts = client.get_in_place(b"long", |value| {
            let (mut first, mut last) = (vec![0; 1000], vec![0; 1000]);
            value.read(0, &mut first)?;
            called += 1;
            if called <= overwrites {
                of += 1;
                server.owner().put(b"long", &whole(of), 0);
            }
            value.read(2_999_000, &mut last)?;
            Ok((first, last))
        });
        let (first, last) = parts.unwrap().unwrap();
        let at = called - u32::from(overwrites == u32::MAX);
        let seen = whole(1 + u8::try_from(at.min(overwrites)).unwrap());
        assert_eq!((&first[..], &last[..]), (&seen[..1000], &seen[2_999_000..]));
        assert_eq!(
            (called, server.asked()),
            (calls, asked.iter().map(|it| (*it).to_owned()).collect())
        );
    }
    server.owner().put(b"late", b"over", now_ms() - 1000);
    assert_eq!(part(&mut client, b"late", 0), Some((4, b"over".to_vec())), "as this owner says");
    assert_eq!(server.asked(), ["GET"]);
}

/// A key whose time is over by this process's clock, though its owner hasn't said so yet, is the
/// owner's to judge: it is asked. One that is over by the owner's clock is gone.
#[test]
fn a_key_that_is_over_here_only_is_asked_for() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    server.owner().put(b"late", b"1", now_ms() - 1000);
    assert!(client.get(b"late").unwrap().is_some(), "as this owner says");
    assert_eq!(server.asked(), ["GET"]);
    assert!(client.exists(b"late").unwrap());
    assert!(client.multi_get(&[b"late"]).unwrap()[0].is_some());
    assert_eq!(server.asked(), ["EXISTS", "MGET"]);
    // It says so behind the question of the view.
    server.owner().put(b"late", b"1", now_ms() - 1000);
    let view = client.view(|view| view.get(b"late"));
    assert!(matches!(view, Err(CallError::TooNew { .. })), "its owner never finds it over");
    server.owner().writer.note_time(now_ms());
    assert_eq!(client.view(|view| view.get(b"late")).unwrap(), None);
    let _ = server.asked();
    assert_eq!(client.get(b"late").unwrap(), None);
    // The clock of reads is some milliseconds late.
    let life = Duration::from_millis(1_000_100);
    server.owner().put(b"long", b"1", now_ms() + 1_000_000);
    assert!(matches!(client.ttl(b"long").unwrap(), Some(KeyLife::Left(it)) if it <= life));
    assert_eq!(server.asked(), Vec::<String>::new());
}

/// Where replies wait for the disk, a read shows what is on disk, or asks: the server's reply
/// waits. So do absences and several keys. Who wants to sees more.
#[test]
fn what_isnt_on_disk_is_asked_for() {
    let server = Server::start(Manner::default());
    server.owner().writer.set_replies_wait(true);
    let (mut client, mut eager) = (
        server.local(),
        server.client(ClientOptions { reads_unsynced: true, ..ClientOptions::default() }),
    );
    server.owner().put(b"a", b"1", 0);
    let read_all = |client: &mut Client| {
        assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(client.get(b"none").unwrap(), None);
        assert_eq!(client.multi_get(&[b"a", b"none"]).unwrap(), [Some(b"1".to_vec()), None]);
    };
    read_all(&mut eager);
    assert_eq!(server.asked(), Vec::<String>::new());
    read_all(&mut client);
    assert_eq!(server.asked(), ["GET", "GET", "MGET"]);
    let (lsn, word) = {
        let owner = server.owner();
        (owner.writer.lsn(), DurableWord::of(owner.writer.region()))
    };
    // A view waits for the disk itself.
    let syncing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        word.store(lsn);
    });
    let begin = Instant::now();
    assert!(client.view(|view| view.exists(b"a")).unwrap());
    assert!(begin.elapsed() >= Duration::from_millis(20));
    syncing.join().unwrap();
    read_all(&mut client);
    assert_eq!(server.asked(), Vec::<String>::new());
    // What follows isn't on disk again.
    server.owner().put(b"b", b"2", 0);
    read_all(&mut client);
    assert_eq!(server.asked(), ["GET", "MGET"], "what is there is on disk, what is absent may not");
}

/// A caller that can't be called back, as another language, reads a view step by step. What it
/// reads is of the moment of its first step, though others write between. When a key that it wants
/// was removed, the attempt is over and stays so; the next one sees the new moment.
#[test]
fn a_view_may_be_read_step_by_step() {
    let server = Server::start(Manner::default());
    server.owner().put(b"a", b"1", 0);
    server.owner().put(b"b", b"1", 0);
    let mut client = server.local();
    let mut steps = client.begin_view().unwrap();
    assert_eq!(client.step_view(&mut steps, |view| view.get(b"a")), Ok(Some(b"1".to_vec())));
    server.owner().put(b"b", b"2", 0);
    server.owner().put(b"a", b"2", 0);
    assert_eq!(client.get(b"b").unwrap(), Some(b"2".to_vec()));
    assert_eq!(client.step_view(&mut steps, |view| view.get(b"b")), Ok(Some(b"1".to_vec())));
    assert!(client.end_view(&mut steps, true).unwrap());
    let mut steps = client.begin_view().unwrap();
    assert_eq!(client.step_view(&mut steps, |view| view.exists(b"a")), Ok(true));
    assert!(server.owner().delete(b"b"));
    assert!(client.step_view(&mut steps, |view| view.get(b"b")).is_err());
    assert!(client.step_view(&mut steps, |view| view.get(b"a")).is_err());
    assert!(!client.end_view(&mut steps, true).unwrap(), "though its caller took no notice");
    assert_eq!(client.step_view(&mut steps, |view| view.get(b"b")), Ok(None));
    assert!(client.end_view(&mut steps, true).unwrap());
    assert_eq!(server.asked(), Vec::<String>::new());
}

/// A caller that holds something others need, as an interpreter's lock, first asks for what needs
/// no wait. What would be asked for, written or attached isn't, and the same call goes on later.
#[test]
fn without_waiting_memory_alone_answers() {
    let mut server = Server::start(Manner::default());
    let mut client = server.local();
    server.owner().put(b"a", b"1", 0);
    server.owner().put(b"late", b"1", now_ms() - 1000);
    let would_wait = |result: Result<(), CallError>| {
        assert!(matches!(result, Err(CallError::WouldWait)), "{result:?}");
    };
    let value = client.without_waiting(|client| client.get(b"a")).unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
    would_wait(client.without_waiting(|client| client.get(b"late").map(drop)));
    would_wait(client.without_waiting(|client| client.set(b"a", b"2")));
    would_wait(client.without_waiting(|client| client.pipeline([["SET", "a", "2"]]).map(drop)));
    let mut steps = client.begin_view().unwrap();
    let _ = client.step_view(&mut steps, |view| view.get(b"late"));
    would_wait(client.without_waiting(|client| client.end_view(&mut steps, true).map(drop)));
    assert_eq!(server.asked(), Vec::<String>::new());
    assert!(!client.end_view(&mut steps, true).unwrap());
    assert!(client.get(b"late").unwrap().is_some());
    assert_eq!(server.asked(), ["EXISTS", "GET"]);
    server.end();
    let begin = Instant::now();
    while client.without_waiting(|client| client.get(b"a")).is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    would_wait(client.without_waiting(|client| client.exists(b"a").map(drop)));
    assert!(matches!(client.exists(b"a"), Err(CallError::NotAttached { .. })));
}

/// When the server ends in the middle of a write, the client says that it may have happened, and
/// doesn't send it again. Then it says that there is no server, or waits for one if asked to, and
/// goes on with the next one.
#[test]
fn a_lost_reply_is_told_and_the_client_attaches_again() {
    let mut server = Server::start(Manner::default());
    let mut client = server.local();
    let wait = Duration::from_secs(20);
    let mut patient = server.client(ClientOptions { wait, ..ClientOptions::default() });
    client.set(b"a", b"1").unwrap();
    server.manner.lock().unwrap().dies_at = Some(b"DEL");
    match client.del(&[b"a"]) {
        Err(error @ CallError::Unknown { .. }) => {
            assert!(!error.may_repeat());
            assert!(error.to_string().contains("may or may not have happened"), "{error}");
            assert!(error.to_string().contains("DEL"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.asked(), ["SET", "DEL"], "it is sent once");
    assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]), "it has attached again");
    server.end();
    let begin = Instant::now();
    let error = loop {
        match client.get(b"a") {
            // For some milliseconds it doesn't know.
            Ok(value) => assert_eq!(value.as_deref(), Some(&b"1"[..])),
            Err(error) => break error,
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
    };
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(matches!(error, CallError::NotAttached { .. }) && error.may_repeat(), "{error}");
    assert!(error.to_string().contains("nothing listens"), "{error}");
    assert!(matches!(client.set(b"b", b""), Err(CallError::NotAttached { .. })));
    server.manner.lock().unwrap().dies_at = None;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            patient.check().unwrap();
            patient.get(b"a").unwrap()
        });
        std::thread::sleep(Duration::from_millis(50));
        server.listen();
        assert_eq!(reader.join().unwrap().as_deref(), Some(&b"1"[..]));
    });
    let begin = Instant::now();
    while let Err(error) = client.set(b"b", b"2") {
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(client.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// A client that attaches once holds a promise of its server, such as a WATCH, from call to call.
/// When the server ends it, it says so for ever, to reads too, though the server is there again;
/// another client would have attached anew between WATCH and EXEC, and told nobody.
#[test]
fn a_client_that_attaches_once_never_attaches_again() {
    let mut server = Server::start(Manner::default());
    let mut forgetful = server.local();
    let mut once = server.client(ClientOptions { attach_once: true, ..ClientOptions::default() });
    once.set(b"a", b"1").unwrap();
    server.end();
    server.listen();
    let begin = Instant::now();
    while forgetful.set(b"a", b"2").is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "it attaches again");
    }
    server.asked();
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..3 {
        let error = once.get(b"a").unwrap_err();
        assert!(matches!(error, CallError::Over { .. }) && !error.may_repeat(), "{error}");
        assert!(error.to_string().contains("connect a new one"), "{error}");
        assert!(matches!(once.set(b"a", b"3"), Err(CallError::Over { .. })));
        assert!(matches!(once.check(), Err(CallError::Over { .. })));
    }
    assert_eq!(server.asked(), [""; 0], "nothing was sent");
}

/// What belongs to one attachment, as an EXEC to its WATCH, isn't sent by another one. Between the
/// two the server ends and is there again, and the client attaches anew for other calls.
#[test]
fn calls_of_one_attachment_never_go_by_another() {
    let mut server = Server::start(Manner::default());
    let mut client = server.local();
    let first = client.link_number();
    client.on_link(first, |client| client.set(b"a", b"1")).unwrap();
    server.end();
    server.listen();
    std::thread::sleep(Duration::from_millis(20));
    server.asked();
    for _ in 0..2 {
        let error = client.on_link(first, |client| client.set(b"a", b"2")).unwrap_err();
        assert!(matches!(error, CallError::Over { .. }) && !error.may_repeat(), "{error}");
    }
    assert_eq!(server.asked(), [""; 0], "nothing was sent");
    let begin = Instant::now();
    while client.set(b"a", b"3").is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "other calls attach again");
    }
    assert!(matches!(client.on_link(first, |_| Ok(())), Err(CallError::Over { .. })));
    let second = client.link_number();
    let found = client.on_link(second, |client| client.get(b"a")).unwrap();
    assert_eq!(found.as_deref(), Some(&b"3"[..]));
}

/// A file that is cut off under its reader, or set aside, is noticed at the next read: nothing but
/// values comes, and no signal. (The files are copies: the owner's own isn't cut off.)
#[test]
fn memory_that_is_over_is_noticed_at_once() {
    let mut server = Server::start(Manner::default());
    let first = server.hand_out("first", b"1");
    let mut client = server.local();
    assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    let second = server.hand_out("second", b"2");
    first.set_len(0).unwrap();
    assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"2"[..]), "by a new attachment");
    let third = server.hand_out("third", b"3");
    // Set aside: its writer says that it is over.
    second.write_all_at(&[0xFF; 8], 192).unwrap();
    assert_eq!(client.view(|view| view.get(b"a")).unwrap().as_deref(), Some(&b"3"[..]));
    let fourth = server.hand_out("fourth", b"4");
    // Another writer has adopted it.
    third.write_all_at(&1000u64.to_le_bytes(), 192).unwrap();
    assert_eq!(client.multi_get(&[b"a"]).unwrap(), [Some(b"4".to_vec())]);
    assert!(client.is_local());
    fourth.set_len(4096).unwrap();
    server.end();
    assert!(matches!(client.get(b"a"), Err(CallError::NotAttached { .. })));
}

/// A server that gives no local access is used by requests, unless the caller insists: then one
/// sentence says why not. What came half is no access either.
#[test]
fn without_local_access_requests_do() {
    let refusing = |text| Manner { refusal: Some(text), ..Manner::default() };
    let cases = [
        (refusing("ERR unknown command 'LOCAL'"), "unknown command 'LOCAL'"),
        (
            refusing("ERR LOCAL ATTACH: version 1 of the protocol isn't spoken here, but 2"),
            "version 1 of the protocol isn't spoken here, but 2",
        ),
        (Manner { protocol: Some(2), ..Manner::default() }, "version 2 of the local protocol"),
        (Manner { forgets_rings: true, ..Manner::default() }, "limit of open files"),
    ];
    for (manner, part) in cases {
        let server = Server::start(manner);
        let insisting = ClientOptions { local: LocalUse::Required, ..ClientOptions::default() };
        match Client::connect_with(&server.address(), insisting) {
            Err(error @ CallError::NotLocal { .. }) => {
                assert!(error.to_string().contains(part), "{error}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("no access was given: {part}"),
        }
        let mut client = server.client(ClientOptions::default());
        assert!(!client.is_local());
        assert!(client.why_not_local().unwrap().contains(part), "{:?}", client.why_not_local());
        client.set(b"a", b"1").unwrap();
        assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(client.multi_get(&[b"a", b"b"]).unwrap(), [Some(b"1".to_vec()), None]);
        let view = client.view(|view| view.get(b"a"));
        assert!(matches!(view, Err(CallError::NotLocal { .. })));
    }
    let server = Server::start(refusing("LOADING the log is being read"));
    let early = Client::connect_with(&server.address(), ClientOptions::default());
    assert!(matches!(early, Err(CallError::NotAttached { .. })), "it will be ready soon");
}

/// What a caller did wrong is told in one sentence.
#[test]
fn mistakes_are_named() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    let long = vec![b'k'; 65_536];
    let error = client.get(&long).unwrap_err();
    assert_eq!(error.to_string(), "a key of 65536 bytes: 65535 are the most; shorten it");
    assert!(matches!(client.multi_get(&[&long]), Err(CallError::KeyTooLong { bytes: 65_536 })));
    match client.incr(b"a", 1) {
        Err(error @ CallError::Refused { .. }) => {
            assert!(error.to_string().contains("refused INCRBY: ERR unknown command"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let Err(error) = Client::connect("unix:/dev/shm/nigh-no-such-socket") else {
        panic!("nobody is there");
    };
    assert!(error.to_string().contains("nothing listens"), "{error}");
    let Err(error) = Client::connect("http://x") else { panic!("no such scheme") };
    assert!(error.to_string().contains("'http://'"), "{error}");
}
