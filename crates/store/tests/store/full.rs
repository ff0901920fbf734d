//! A full arena: what is refused, what works, and that nothing is lost.

use std::collections::BTreeMap;

use crate::support::Fixture;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const SMALL_BYTES: u64 = 16 << 20;

/// Fills a small store until it refuses; returns what was acknowledged.
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

/// Writes are refused with Redis's text, and all that was acknowledged is there.
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

/// DEL, EXPIRE and FLUSHALL work when full; what they free can be written again.
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

/// A DEL of more keys than the reserve has room for tombstones does without them, and leaves
/// nothing of its attempt.
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

/// What was staged and isn't committed, or is replaced before, gives its memory back: many times
/// the capacity passes through.
#[test]
fn staged_records_that_come_to_nothing_give_their_memory_back() {
    let mut fixture = Fixture::with_capacity(SMALL_BYTES);
    let (small, large) = (vec![b'v'; 20_000], vec![b'v'; 200_000]);
    let too_long = vec![b'k'; 70_000];
    for round in 0..1000 {
        let value = if round % 2 == 0 { &small } else { &large };
        let refused = fixture.bytes(&[b"MSET", b"a", value, b"b", value, &too_long, b"x"]);
        assert!(refused.starts_with(b"-ERR key is longer"), "round {round}");
        fixture.turn(|store, _| store.begin());
        for _ in 0..2 {
            assert_eq!(fixture.bytes(&[b"SET", b"c", value]), b"+OK\r\n", "round {round}");
            assert_eq!(fixture.run("EXPIRE c 10"), ":1", "round {round}");
        }
        match round % 3 {
            0 => fixture.turn(|store, _| store.rollback()),
            1 => {
                assert_eq!(fixture.run("FLUSHALL"), "+OK");
                fixture.turn(|store, turn| store.commit(turn)).expect("room");
            }
            _ => fixture.turn(|store, turn| store.commit(turn)).expect("room"),
        }
        fixture.end_turn();
    }
}

/// One command of a transaction that finds no room fails alone; the others are committed.
#[test]
fn a_full_store_fails_one_command_of_a_transaction() {
    let (mut fixture, stored) = full(1000);
    fixture.turn(|store, _| store.begin());
    fixture.script(&[("DEL key1", ":1"), ("GET key1", "$-1")]);
    assert_eq!(fixture.run(&format!("SET big {}", "v".repeat(400_000))), OOM);
    fixture.script(&[("EXISTS big", ":0"), ("DEL key2 key3", ":2")]);
    fixture.turn(|store, turn| store.commit(turn)).expect("deleting needs no room");
    fixture.end_turn();
    fixture.script(&[("EXISTS key1 key2 key3 big", ":0")]);
    assert_eq!(fixture.run("DBSIZE"), format!(":{}", stored.len() - 3));
}

/// Large values fill the store too, are refused, and give their memory back.
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
