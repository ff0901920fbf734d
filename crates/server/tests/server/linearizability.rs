//! Many clients at several shards read and write a few keys at once; what they saw must fit into
//! one order.

use crate::common::{Client, TestServer};
use crate::history::Operation;
use crate::history::one_key::{Did, is_linearizable};
use nigh_resp::frame::Frame;
use std::time::{Duration, Instant};

fn op(did: Did, called: u64, returned: u64) -> Operation<Did> {
    Operation { did, called, returned, behind: None }
}

/// The checker knows wrong histories when it sees them; a checker that never objects proves
/// nothing.
#[test]
fn wrong_histories_are_found() {
    use Did::{Add, Create, Delete, Read, Swap, Write};
    let wrong: [(&str, &[Operation<Did>]); 9] = [
        ("a stale read", &[op(Write(1), 0, 1), op(Write(2), 2, 3), op(Read(Some(1)), 4, 5)]),
        ("a lost write", &[op(Write(1), 0, 1), op(Read(None), 2, 3)]),
        ("a value from nowhere", &[op(Write(1), 0, 9), op(Read(Some(2)), 1, 8)]),
        ("a lost increment", &[op(Add(1), 0, 3), op(Add(1), 1, 4)]),
        ("a skipped increment", &[op(Add(1), 0, 3), op(Add(3), 1, 4)]),
        (
            "two reads that see two writes in two orders",
            &[
                op(Write(1), 0, 9),
                op(Write(2), 0, 9),
                op(Read(Some(1)), 1, 2),
                op(Read(Some(2)), 3, 4),
                op(Read(Some(1)), 5, 6),
            ],
        ),
        (
            "a deleted value that comes back",
            &[
                op(Write(1), 0, 1),
                op(Delete(true), 2, 3),
                op(Read(None), 4, 5),
                op(Read(Some(1)), 6, 7),
            ],
        ),
        ("two creators", &[op(Create(1, true), 0, 5), op(Create(2, true), 1, 4)]),
        (
            "two swaps that got the same",
            &[op(Write(1), 0, 1), op(Swap(2, Some(1)), 2, 6), op(Swap(3, Some(1)), 3, 7)],
        ),
    ];
    for (name, history) in wrong {
        assert!(!is_linearizable(history), "{name} was not found");
    }
}

/// Overlapping operations may take effect in any order, and the checker finds one.
#[test]
fn right_histories_pass() {
    use Did::{Add, Create, Delete, Read, Swap, Write};
    let right: [&[Operation<Did>]; 5] = [
        &[],
        &[op(Write(1), 0, 10), op(Read(None), 1, 2), op(Read(Some(1)), 3, 4)],
        &[op(Add(2), 0, 5), op(Add(1), 1, 4), op(Read(Some(1)), 2, 3), op(Read(Some(2)), 6, 7)],
        &[op(Create(1, false), 0, 9), op(Create(2, true), 1, 3), op(Delete(true), 5, 6)],
        &[op(Swap(1, Some(2)), 0, 9), op(Write(2), 0, 9), op(Read(Some(1)), 10, 11)],
    ];
    for history in right {
        assert!(is_linearizable(history), "{history:?}");
    }
}

/// A generator that gives the same story each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn number(frame: &Frame) -> Option<i64> {
    let bytes = frame.bytes()?;
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// One client's operations: each with its key. A round is a pipeline, so that shards work at once.
/// Now and then it leaves in the middle of one, about keys of nobody else, and comes again: its
/// slots were used before.
fn client(port: u16, seed: u64, rounds: u64, start: Instant) -> Vec<(usize, Operation<Did>)> {
    let mut client = Client::connect(port);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let now = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
    let mut done = Vec::new();
    for round in 0..rounds {
        if random.below(6) == 0 {
            client
                .send(format!("APPEND left:{seed} x\r\nPING\r\nGETDEL left:{round}\r\n").repeat(8));
            client = Client::connect(port);
        }
        // Values are unique, but small enough to be counted on.
        let value = i64::try_from(seed * 1_000_000 + round * 1000).expect("small");
        let mut asked = Vec::new();
        let mut pipeline = String::new();
        for at in 0..1 + random.below(4) {
            let key = usize::try_from(random.below(KEYS)).expect("few");
            let value = value + i64::try_from(at).expect("few");
            let kind = random.below(12);
            pipeline += &match kind {
                0..5 => format!("GET k{key}\r\n"),
                5..7 => format!("SET k{key} {value}\r\n"),
                7 => format!("DEL k{key}\r\n"),
                8 => format!("GETSET k{key} {value}\r\n"),
                9 => format!("SET k{key} {value} NX\r\n"),
                _ => format!("INCR k{key}\r\n"),
            };
            asked.push((kind, key, value));
        }
        let called = now();
        client.send(&pipeline);
        for (kind, key, value) in asked {
            let reply = client.reply();
            let did = match kind {
                0..5 => Did::Read(number(&reply)),
                5..7 => Did::Write(value),
                7 => Did::Delete(reply.integer() == Some(1)),
                8 => Did::Swap(value, number(&reply)),
                9 => Did::Create(value, !reply.is_null()),
                _ => Did::Add(reply.integer().expect("a number")),
            };
            assert!(reply.error().is_none(), "{reply:?}");
            done.push((key, Operation { did, called, returned: now(), behind: None }));
        }
    }
    done
}

/// Keys that all clients share: few, so that operations meet.
const KEYS: u64 = 5;
const CLIENTS: u64 = 8;

/// Clients at all shards read, write, swap, create, delete and count the same few keys: what each
/// of them saw fits into one order, for each key. `NIGH_HISTORY_SECONDS` makes it as long as one
/// likes.
#[test]
fn what_all_clients_see_fits_into_one_order() {
    let seconds: u64 =
        std::env::var("NIGH_HISTORY_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut histories, mut operations, mut story) = (0, 0, 0);
    while Instant::now() < end || histories < 100 {
        // One partition and several, in turn.
        let partitions = if histories % 100 == 0 { "1" } else { "5" };
        let server = TestServer::with(&[("shards", "3"), ("partitions", partitions)]);
        for _ in 0..10 {
            let start = Instant::now();
            story += 1;
            let mut keys: Vec<Vec<Operation<Did>>> = vec![Vec::new(); 5];
            std::thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|number| {
                        let (port, seed) = (server.port(), story * CLIENTS + number + 1);
                        scope.spawn(move || client(port, seed, 30, start))
                    })
                    .collect();
                for client in clients {
                    for (key, operation) in client.join().expect("a client's story") {
                        keys[key].push(operation);
                    }
                }
            });
            for (key, history) in keys.iter().enumerate() {
                assert!(is_linearizable(history), "story {story}, key {key}: {history:?}");
                operations += history.len();
                histories += 1;
            }
            server.connect().says("FLUSHALL", "+OK\r\n");
        }
    }
    eprintln!("{histories} histories of {operations} operations, all linearizable");
}
