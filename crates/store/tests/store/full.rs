//! A full arena: which commands are refused, which work, and that no key is lost.

use std::collections::{BTreeMap, BTreeSet};

use nigh_shm::{Denial, WriteError};
use nigh_store::{KeyWrite, Policy};

use crate::eviction::set;
use crate::support::Fixture;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const SMALL_BYTES: u64 = 16 << 20;
/// So often in a row a transaction may meet memory on its way back. Then the test gives it up, as a
/// server does after a second.
const MOST_ATTEMPTS: u32 = 50;
/// Turns in which all memory without live data comes back, however late the memory thread is.
const MOST_TURNS: u32 = 10_000;

/// Numbers from a seed, as in the tests of eviction.
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) % bound
    }

    fn key(&mut self) -> String {
        format!("key{}", self.below(60))
    }
}

/// Fills a small store until it refuses; returns the acknowledged writes.
fn full(value_bytes: usize) -> (Fixture, BTreeMap<String, usize>) {
    let mut fixture = Fixture::with_capacity(SMALL_BYTES);
    let stored = fill(&mut fixture, value_bytes);
    (fixture, stored)
}

fn fill(fixture: &mut Fixture, value_bytes: usize) -> BTreeMap<String, usize> {
    let mut stored = BTreeMap::new();
    let value = vec![b'v'; value_bytes];
    for n in 0..1_000_000 {
        let key = format!("key{n}");
        let reply = fixture.bytes(&[b"SET", key.as_bytes(), &value]);
        if reply != b"+OK\r\n" {
            assert_eq!(reply, format!("{OOM}\r\n").as_bytes());
            break;
        }
        stored.insert(key, value_bytes);
    }
    assert!(stored.len() * value_bytes > 4 << 20, "a good part of the capacity is usable");
    stored
}

fn check(fixture: &mut Fixture, stored: &BTreeMap<String, usize>) {
    assert_eq!(fixture.run("DBSIZE"), format!(":{}", stored.len()));
    for (key, len) in stored {
        assert_eq!(fixture.run(&format!("STRLEN {key}")), format!(":{len}"), "{key}");
    }
}

/// Writes are refused with Redis's text, and all acknowledged keys are there.
#[test]
fn a_full_store_refuses_and_loses_nothing() {
    let (mut fixture, stored) = full(1000);
    let value = "v".repeat(100_000);
    for command in
        ["SET x", "APPEND key1", "GETSET key1", "SETNX x", "SETRANGE key1 0", "MSET x 1 y"]
    {
        assert_eq!(fixture.run(&format!("{command} {value}")), OOM, "{command}");
    }
    check(&mut fixture, &stored);
    fixture.crash();
    check(&mut fixture, &stored);
}

/// DEL, EXPIRE and FLUSHALL work in a full arena. The memory that they free can be written again.
#[test]
fn a_full_store_can_be_emptied() {
    let (mut fixture, mut stored) = full(1000);
    for n in 0..50 {
        assert_eq!(fixture.run(&format!("EXPIRE key{n} 100")), ":1");
    }
    for n in 50..100 {
        assert_eq!(fixture.run(&format!("DEL key{n}")), ":1");
        stored.remove(&format!("key{n}"));
    }
    let names: Vec<String> = (100..1100).map(|n| format!("key{n}")).collect();
    assert_eq!(fixture.run(&format!("DEL {}", names.join(" "))), ":1000");
    names.iter().for_each(|name| assert!(stored.remove(name).is_some()));
    check(&mut fixture, &stored);
    assert_eq!(fixture.run("FLUSHALL"), "+OK");
    fixture.end_turn();
    let mut count = 0;
    while fixture.run(&format!("SET again{count} {}", "v".repeat(1000))) == "+OK" {
        count += 1;
    }
    assert!(count * 2 > stored.len(), "{count} fit after {} had fit", stored.len());
}

/// A DEL of more keys than the reserve has tombstones for does without them. Its attempt leaves
/// nothing.
#[test]
fn a_full_store_deletes_thousands_of_keys_at_once() {
    let (mut fixture, first) = full(1000);
    let mut stored = first.clone();
    for _ in 0..5 {
        let names: Vec<&str> = stored.keys().map(String::as_str).collect();
        let deleted = fixture.run(&format!("DEL {}", names.join(" ")));
        assert_eq!(deleted, format!(":{}", stored.len()));
        assert_eq!(fixture.run("DBSIZE"), ":0");
        stored = fill(&mut fixture, 1000);
    }
    assert!(stored.len() * 100 >= first.len() * 98, "{} after {}", stored.len(), first.len());
}

/// A transaction or function that deletes more keys than there are tombstones for deletes none of
/// them. It once deleted key by key, so other clients, and a server after a kill, could see half of
/// it. DEL deletes all of them.
#[test]
fn a_full_store_refuses_more_deletions_in_a_transaction_than_it_can_note() {
    let (mut fixture, stored) = full(1000);
    let names: Vec<&str> = stored.keys().map(String::as_str).collect();
    let all = format!("DEL {}", names.join(" "));
    let writes: Vec<KeyWrite<'_>> =
        names.iter().map(|name| KeyWrite::Delete { key: name.as_bytes() }).collect();
    let mut outcomes = BTreeSet::new();
    for round in 0..MOST_ATTEMPTS {
        let outcome = if round % 2 == 0 {
            fixture.turn(|store, _| store.begin());
            assert_eq!(fixture.run(&all), format!(":{}", stored.len()));
            assert_eq!(fixture.run("DBSIZE"), ":0");
            fixture.turn(|store, turn| store.commit(turn))
        } else {
            fixture.turn(|store, turn| store.commit_writes(&writes, turn))
        };
        let error = outcome.expect_err("there isn't room for so many tombstones");
        outcomes.insert(format!("{error:?}"));
        fixture.turn(|store, _| store.take_busy().is_some());
        assert_eq!(fixture.run("DBSIZE"), format!(":{}", stored.len()));
        fixture.end_turn();
    }
    assert!(outcomes.iter().all(|error| error == "Oom" || error == "Busy"), "{outcomes:?}");
    check(&mut fixture, &stored);
    // There is room for a part of them.
    fixture.turn(|store, _| store.begin());
    assert_eq!(fixture.run(&format!("DEL {}", names[..100].join(" "))), ":100");
    fixture.turn(|store, turn| store.commit(turn)).expect("room for 100 tombstones");
    assert_eq!(fixture.run(&all), format!(":{}", stored.len() - 100));
    assert_eq!(fixture.run("DBSIZE"), ":0");
}

/// A transaction that writes `c` twice and ends in one of three ways. False if it met memory on its
/// way back, as when the memory thread is late. It has done nothing then, and is to begin again.
fn stages(fixture: &mut Fixture, value: &[u8], end: u32) -> bool {
    fixture.turn(|store, _| store.begin());
    for _ in 0..2 {
        fixture.bytes(&[b"SET", b"c", value]);
        fixture.run("EXPIRE c 10");
    }
    if end == 1 {
        assert_eq!(fixture.run("FLUSHALL"), "+OK");
    }
    let outcome = fixture.turn(|store, turn| match end {
        0 => {
            let refused = store.is_refused();
            store.rollback();
            if refused { Err(WriteError::Busy) } else { Ok(()) }
        }
        _ => store.commit(turn),
    });
    fixture.turn(|store, _| store.take_busy().is_some());
    fixture.end_turn();
    assert!(matches!(outcome, Ok(()) | Err(WriteError::Busy)), "{outcome:?}");
    outcome.is_ok()
}

/// Staged records that aren't committed, or are replaced, give their memory back: many times the
/// capacity passes through.
#[test]
fn staged_records_that_come_to_nothing_give_their_memory_back() {
    let mut fixture = Fixture::with_capacity(SMALL_BYTES);
    let (small, large) = (vec![b'v'; 20_000], vec![b'v'; 200_000]);
    let too_long = vec![b'k'; 70_000];
    for round in 0..1000 {
        let value = if round % 2 == 0 { &small } else { &large };
        let refused = fixture.bytes(&[b"MSET", b"a", value, b"b", value, &too_long, b"x"]);
        assert!(refused.starts_with(b"-ERR key is longer"), "round {round}");
        let mut attempts = 1;
        while !stages(&mut fixture, value, round % 3) {
            attempts += 1;
            assert!(attempts <= MOST_TURNS, "round {round}: its memory never comes back");
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// One command of a transaction finds no room. None of its other writes is there after it, and no
/// watcher is told.
#[test]
fn a_full_store_fails_a_transaction_as_a_whole() {
    let (mut fixture, stored) = full(1000);
    let token = fixture.turn(|store, turn| store.watch(b"key1", turn));
    let counted = |fixture: &mut Fixture| {
        let stats = fixture.turn(|store, _| store.stats());
        (stats.keyspace_hits, stats.keyspace_misses)
    };
    for after in ["DEL key2 key3", "FLUSHALL", "GET key5"] {
        let before = counted(&mut fixture);
        fixture.turn(|store, _| store.begin());
        fixture.script(&[("DEL key1", ":1"), ("GET key1", "$-1"), ("EXISTS key4", ":1")]);
        assert!(!fixture.turn(|store, _| store.is_refused()));
        assert_eq!(fixture.run(&format!("SET big {}", "v".repeat(400_000))), OOM);
        assert!(fixture.turn(|store, _| store.is_refused()));
        assert_eq!(fixture.run("EXISTS big"), ":0");
        fixture.run(after);
        let outcome = fixture.turn(|store, turn| store.commit(turn));
        assert_eq!(outcome, Err(WriteError::Oom), "{after}");
        fixture.end_turn();
        assert_eq!(counted(&mut fixture), before);
        assert!(!fixture.turn(|store, turn| store.watch_dirty(&token, turn)));
        check(&mut fixture, &stored);
    }
    fixture.turn(|store, _| store.unwatch(token));
}

/// A full store commits a transaction that takes no memory, or only that of a new expiry.
#[test]
fn a_full_store_deletes_in_a_transaction() {
    let (mut fixture, stored) = full(1000);
    fixture.turn(|store, _| store.begin());
    fixture.script(&[
        ("STRLEN key4", ":1000"),
        ("DEL key1 key2", ":2"),
        ("GET key1", "$-1"),
        ("EXPIRE key3 100", ":1"),
        ("EXPIRE key4 100", ":1"),
        ("EXPIRE key5 0", ":1"),
    ]);
    fixture.turn(|store, turn| store.commit(turn)).expect("deleting needs no room");
    fixture.end_turn();
    fixture.script(&[("EXISTS key1 key2 key3 key4 key5", ":2"), ("TTL key3", ":100")]);
    assert_eq!(fixture.run("DBSIZE"), format!(":{}", stored.len() - 3));
}

/// The system gives no memory for one command of a transaction, for a reason that isn't a lack of
/// it. The others were once committed without that one. No key is evicted for it.
#[test]
fn a_transaction_that_is_denied_memory_fails_as_a_whole() {
    let mut fixture = Fixture::new();
    set(&mut fixture, Policy::AllKeysLru);
    fixture.run("SET kept 1");
    let arenas = std::fs::read_dir(fixture.dir.path().join("arenas")).expect("a folder");
    for file in arenas.map(|it| it.expect("a file").path()) {
        if file.extension().is_some_and(|it| it == "arena") {
            std::fs::remove_file(file).expect("it is ours");
        }
    }
    let long = vec![b'v'; 600_000];
    let writes = [
        KeyWrite::Put { key: b"b", value: &long, expiry_ms: 0 },
        KeyWrite::Put { key: b"c", value: b"1", expiry_ms: 0 },
    ];
    for by_call in [false, true] {
        fixture.turn(|store, _| store.begin());
        assert_eq!(fixture.run("SET a 1"), "+OK");
        if by_call {
            let outcome = fixture.turn(|store, turn| store.commit_writes(&writes, turn));
            assert_eq!(outcome, Err(WriteError::Denied(Denial::Gone)));
        } else {
            let reply = fixture.bytes(&[b"SET", b"b", &long]);
            assert!(reply.starts_with(b"-IOERR the arena's file was removed"));
        }
        assert!(fixture.turn(|store, _| store.is_refused()));
        let outcome = fixture.turn(|store, turn| store.commit(turn));
        assert_eq!(outcome, Err(WriteError::Denied(Denial::Gone)));
        fixture.end_turn();
        fixture.script(&[("GET a", "$-1"), ("EXISTS b c", ":0"), ("GET kept", "$1 1")]);
    }
}

/// A library that finds no room fails its transaction too. No key is evicted for it, since that
/// makes no room for libraries.
#[test]
fn a_full_system_arena_fails_a_transaction() {
    let mut fixture = Fixture::new();
    set(&mut fixture, Policy::AllKeysLru);
    fixture.run("SET kept 1");
    fixture.turn(|store, _| store.begin());
    assert_eq!(fixture.run("SET a 1"), "+OK");
    let source = vec![b's'; 1 << 20];
    let put = |n: &u32| {
        let name = format!("library{n}");
        fixture.turn(|store, turn| store.put_library(name.as_bytes(), &source, turn)).is_ok()
    };
    assert!((0..100).take_while(put).count() < 20);
    fixture.turn(|store, turn| {
        let wanted = store.bytes_wanted(turn);
        assert_eq!(store.commit(turn), Err(WriteError::Oom));
        assert!(!store.prepare_again(wanted, turn));
    });
    assert_eq!(fixture.run("EXISTS a kept"), ":1");
}

/// A random transaction, on the store and on a map of lengths.
fn transact(fixture: &mut Fixture, model: &mut BTreeMap<String, usize>, random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let (key, other) = (random.key(), random.key());
        let bytes = if random.below(8) == 0 { 20_000_000 } else { 200_000 };
        let bytes = usize::try_from(1 + random.below(bytes)).expect("small");
        let value = vec![b'v'; bytes];
        match random.below(6) {
            0 => {
                model.insert(key.clone(), bytes);
                fixture.bytes(&[b"SET", key.as_bytes(), &value]);
            }
            1 => {
                *model.entry(key.clone()).or_default() += bytes;
                fixture.bytes(&[b"APPEND", key.as_bytes(), &value]);
            }
            2 => {
                if let Some(len) = model.get(&key).copied() {
                    model.insert(other.clone(), len);
                }
                fixture.run(&format!("COPY {key} {other} REPLACE"));
            }
            3 => {
                model.insert(key.clone(), bytes);
                model.remove(&other);
                let writes = [
                    KeyWrite::Put { key: key.as_bytes(), value: &value, expiry_ms: 0 },
                    KeyWrite::Delete { key: other.as_bytes() },
                ];
                // A transaction sees the result of each command.
                let _ = fixture.turn(|store, turn| store.commit_writes(&writes, turn));
            }
            4 => {
                fixture.run(&format!("EXPIRE {key} 1000"));
            }
            _ => {
                model.remove(&key);
                fixture.run(&format!("DEL {key}"));
            }
        }
    }
}

/// Random transactions on a store that is often full happen as a whole or not at all.
#[test]
fn a_full_store_has_whole_transactions_only() {
    let mut fixture = Fixture::with_capacity(SMALL_BYTES);
    let mut stored = BTreeMap::new();
    let (mut committed, mut refused, mut random) = (0, 0, Random(3));
    for _ in 0..600 {
        // It begins again as long as memory comes back. Its own leavings come back each time, so
        // that ends.
        let mut attempts = 0;
        let (outcome, after) = loop {
            let (mut after, mut again) = (stored.clone(), Random(random.0));
            attempts += 1;
            let gains = fixture.turn(|store, _| store.is_gaining());
            let is_last = attempts > 1 && !gains || attempts == MOST_ATTEMPTS;
            fixture.turn(|store, _| store.begin());
            transact(&mut fixture, &mut after, &mut again);
            let outcome = fixture.turn(|store, turn| store.commit(turn));
            fixture.turn(|store, _| store.take_busy().is_some());
            fixture.end_turn();
            if outcome != Err(WriteError::Busy) || is_last {
                random = again;
                break (outcome, after);
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        };
        match outcome {
            Ok(()) => {
                committed += 1;
                stored = after;
            }
            Err(error) => {
                assert!(matches!(error, WriteError::Oom | WriteError::Busy), "{error}");
                refused += 1;
            }
        }
        check(&mut fixture, &stored);
    }
    assert!(committed > 100 && refused > 100, "{committed} committed, {refused} refused");
    fixture.crash();
    check(&mut fixture, &stored);
}

/// Large values fill the store, are refused, and give their memory back.
#[test]
fn large_values_give_their_memory_back() {
    let mut counts = Vec::new();
    let (mut fixture, mut stored) = full(400_000);
    for _ in 0..4 {
        counts.push(stored.len());
        check(&mut fixture, &stored);
        for key in stored.keys() {
            assert_eq!(fixture.run(&format!("DEL {key}")), ":1");
        }
        stored.clear();
        fixture.end_turn();
        let value = vec![b'v'; 400_000];
        while fixture.bytes(&[b"SET", format!("key{}", stored.len()).as_bytes(), &value])
            == b"+OK\r\n"
        {
            stored.insert(format!("key{}", stored.len()), 400_000);
        }
    }
    assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 2), "{counts:?}");
}
