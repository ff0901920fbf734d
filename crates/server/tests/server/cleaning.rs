//! A server whose memory is nearly full.

use crate::common::{Client, TestServer, may_come_again, request};
use nigh_resp::frame::Frame;

/// Bytes of a value.
const VALUE_BYTES: usize = 1000;

fn key(i: u32) -> Vec<u8> {
    format!("key:{i}").into_bytes()
}

/// Sends SETs of these keys at once.
fn send_all(client: &mut Client, keys: &[u32], version: u8) {
    let value = vec![version; VALUE_BYTES];
    let sets = keys.iter().flat_map(|i| request(&[b"SET", &key(*i), &value]));
    client.send(sets.collect::<Vec<u8>>());
}

/// Takes the replies to SETs of these keys. Those that waited for memory longer than a server lets
/// them, as on a slow machine, come again. How many did, and the other errors.
fn settle(client: &mut Client, keys: &[u32], version: u8) -> (usize, Vec<String>) {
    let (mut waiting, mut again, mut errors) = (keys.to_vec(), 0, Vec::new());
    for _ in 0..20 {
        waiting.retain(|_| {
            let reply = client.reply();
            let comes_again = may_come_again(&reply);
            let error = reply.error().filter(|_| !comes_again);
            errors.extend(error.map(|text| String::from_utf8_lossy(text).into_owned()));
            comes_again
        });
        if waiting.is_empty() {
            return (again, errors);
        }
        again += waiting.len();
        send_all(client, &waiting, version);
    }
    panic!("{} writes find no memory", waiting.len());
}

/// The errors of SETs of these keys.
fn set_all(client: &mut Client, keys: &[u32], version: u8) -> Vec<String> {
    send_all(client, keys, version);
    settle(client, keys, version).1
}

/// Three quarters of the memory live and are overwritten at random, by clients that together append
/// more in a turn than is clean: each write waits for the turn that gives it room, and none is
/// refused, unless the machine stands still meanwhile.
#[test]
fn nearly_full_server_takes_overwrites_for_ever() {
    const CLIENTS: u32 = 48;
    const KEYS: u32 = 250 * CLIENTS;
    let server = TestServer::with(&[("maxmemory", "16mb")]);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for some in (0..KEYS).collect::<Vec<u32>>().chunks(500) {
        assert_eq!(set_all(&mut clients[0], some, 0), Vec::<String>::new());
    }
    let mut random = 1u32;
    let mut versions = vec![0u8; KEYS as usize];
    let mut late = 0;
    for round in 1..=40u8 {
        let mut sent = Vec::new();
        for (n, client) in (0..).zip(&mut clients) {
            // A client has keys of its own, so that the order of the clients doesn't matter.
            let some: Vec<u32> = (0..60)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 8) % (KEYS / CLIENTS) * CLIENTS + n
                })
                .collect();
            send_all(client, &some, round);
            some.iter().for_each(|i| versions[*i as usize] = round);
            sent.push(some);
        }
        for (client, some) in clients.iter_mut().zip(&sent) {
            let (again, errors) = settle(client, some, round);
            assert_eq!(errors, Vec::<String>::new());
            late += again;
        }
    }
    assert!(late < 40 * 60 * CLIENTS as usize / 20, "{late} writes waited too long");
    let client = &mut clients[0];
    for (i, version) in (0..KEYS).zip(versions) {
        let reply = client.ask(&[b"GET", &key(i)]);
        assert!(reply == Frame::Bulk(vec![version; VALUE_BYTES]), "key {i}");
    }
    let info = client.text("INFO nigh");
    let cleaned = info.lines().find_map(|line| line.strip_prefix("cleaner_segments:"));
    assert!(cleaned.and_then(|n| n.trim().parse::<u64>().ok()) > Some(100), "{info}");
}

/// When live data fills the memory, writes are refused for good, reads and deletes work, and what
/// was deleted makes room again.
#[test]
fn full_server_refuses_until_something_is_deleted() {
    let server = TestServer::with(&[("maxmemory", "16mb")]);
    let mut client = server.connect();
    let mut n = 0;
    let errors = loop {
        let some: Vec<u32> = (n..n + 500).collect();
        n += 500;
        let errors = set_all(&mut client, &some, 1);
        if !errors.is_empty() {
            break errors;
        }
    };
    assert!(errors.iter().all(|text| text.starts_with("OOM ")), "{errors:?}");
    assert!(n > 12_000, "{n} keys");
    assert_eq!(client.ask(&[b"GET", &key(7)]), Frame::Bulk(vec![1; VALUE_BYTES]));
    for i in (0..n - 1000).step_by(8) {
        assert_eq!(client.ask(&[b"DEL", &key(i)]), Frame::Integer(1));
    }
    let more: Vec<u32> = (n..n + 1000).collect();
    assert_eq!(set_all(&mut client, &more, 2), Vec::<String>::new());
}

/// A transaction that finds no room within it changes nothing at all, or is whole.
#[test]
fn transaction_in_a_nearly_full_server_is_whole_or_refused() {
    let server = TestServer::with(&[("maxmemory", "16mb")]);
    let mut client = server.connect();
    for some in (0..12_000).collect::<Vec<u32>>().chunks(500) {
        assert_eq!(set_all(&mut client, some, 0), Vec::<String>::new());
    }
    let mut committed = 0u8;
    for round in 1..=20u8 {
        let value = vec![round; 40_000];
        client.says("MULTI", "+OK\r\n");
        for i in 0..30 {
            let reply = client.ask(&[b"SET", &key(i * 7), &value]);
            assert_eq!(reply, Frame::Simple(b"QUEUED".to_vec()));
        }
        match client.ask(&[b"EXEC"]) {
            Frame::Array(replies) => {
                assert!(replies.iter().all(|r| *r == Frame::Simple(b"OK".to_vec())), "{replies:?}");
                committed = round;
            }
            Frame::Error(text) => assert!(text.starts_with(b"EXECABORT "), "{round}"),
            other => panic!("{other:?}"),
        }
        for i in 0..30 {
            let Frame::Bulk(value) = client.ask(&[b"GET", &key(i * 7)]) else { panic!("key {i}") };
            assert!(value[0] == committed, "round {round}: key {i} is of round {}", value[0]);
        }
    }
    assert!(committed > 0);
}
