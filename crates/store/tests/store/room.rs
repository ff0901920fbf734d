//! Room for large writes and for whole transactions.

use std::sync::Arc;

use nigh_shm::{JournalFile, JournalSpec, JournalWriter};
use nigh_store::{JOURNAL_FULL, Policy, Scarce};
use tempfile::TempDir;

use crate::eviction::{OOM, SMALL_BYTES, fixture, put, set, stats};
use crate::support::{Fixture, Resp2, op};

/// A transaction that writes more than is free was once refused for ever, because no key goes while
/// it runs. Now keys go before it begins, some in each turn.
#[test]
fn room_is_made_for_all_of_a_transaction() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for n in 0..20_000 {
        put(&mut fixture, &format!("key{n}"), 400);
    }
    let (mut turns, mut evicting) = (0, 0);
    // A shard lets EXEC come again in the next turn.
    loop {
        turns += 1;
        assert!(turns < 1000, "room never comes");
        let is_ready = fixture.turn(|store, turn| store.prepare_writes(1_600_000, false, turn));
        if is_ready {
            fixture.turn(|store, _| store.begin());
            if put(&mut fixture, "large", 1_600_000) == "+OK" {
                break;
            }
            fixture.turn(|store, _| store.rollback());
        } else {
            assert!(fixture.turn(|store, _| store.take_busy().is_some()));
            evicting += 1;
        }
        fixture.end_turn();
    }
    assert!(evicting > 1, "it took more than a turn's keys");
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    assert_eq!(fixture.run("STRLEN large"), ":1600000");
}

/// Values so large that they lie beside the segments make room for each other: their memory counts
/// as room.
#[test]
fn large_values_make_room_for_each_other() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for n in 0..25 {
        assert_eq!(put(&mut fixture, &format!("large{n}"), 1_500_000), "+OK", "{n}");
    }
    assert!(stats(&mut fixture).keys >= 3);
}

/// One value larger than memory once emptied the keyspace, and was refused in the end.
#[test]
fn nothing_goes_for_what_can_never_fit() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for n in 0..5000 {
        put(&mut fixture, &format!("key{n}"), 1000);
    }
    let before = stats(&mut fixture);
    assert_eq!(before.evicted_keys, 0);
    let large = 2 * usize::try_from(SMALL_BYTES).expect("small");
    assert_eq!(put(&mut fixture, "large", large), OOM);
    fixture.turn(|store, turn| {
        assert!(store.prepare_writes(large, false, turn), "a transaction is told by its commands");
    });
    assert_eq!(stats(&mut fixture).evicted_keys, 0);
}

/// One of many keys may go. Chance hardly finds it. The write was once refused although the key was
/// there.
#[test]
fn the_only_key_that_may_go_is_found() {
    let mut fixture = Fixture::new();
    let value = vec![b'v'; 1_000_000];
    assert_eq!(fixture.bytes(&[b"SET", b"old", &value, b"EX", b"1000"]), b"+OK\r\n");
    let is_taken = |n: &u32| put(&mut fixture, &format!("key{n}"), 200) == "+OK";
    assert!((0..1_000_000).take_while(is_taken).count() > 100_000);
    assert_eq!(put(&mut fixture, "new", 500_000), OOM);
    set(&mut fixture, Policy::VolatileTtl);
    assert_eq!(put(&mut fixture, "new", 500_000), "+OK");
    assert_eq!(stats(&mut fixture).evicted_keys, 1);
    assert_eq!(put(&mut fixture, "next", 1_000_000), OOM, "nothing is left that may go");
}

/// A new key is refused because its lines of the index are full and no key may go. Later some may
/// go, and another write lacks memory. Room was once made only in those lines, where no key might
/// go, and that write was refused for good.
#[test]
fn a_write_that_lacks_memory_makes_no_room_where_another_lacked_a_place() {
    let mut fixture = Fixture::new();
    assert_eq!(
        fixture.bytes(&[b"SET", b"old", &vec![b'v'; 1_000_000], b"EX", b"1000"]),
        b"+OK\r\n"
    );
    let is_taken = |n: &u32| put(&mut fixture, &format!("large{n}"), 1_000_000) == "+OK";
    assert!((0..100).take_while(is_taken).count() > 30);
    // Holes in which no larger table of the index fits, and more keys than its lines ever take.
    (0..30).step_by(2).for_each(|n| assert_eq!(fixture.run(&format!("DEL large{n}")), ":1"));
    let is_taken = |n: &u32| put(&mut fixture, &format!("key{n}"), 8) == "+OK";
    assert!((0..1_000_000).take_while(is_taken).count() < 1_000_000);
    let is_taken = |n: &u32| put(&mut fixture, &format!("again{n}"), 500_000) == "+OK";
    assert_ne!((0..100).take_while(is_taken).count(), 0, "it was a place that the key lacked");
    set(&mut fixture, Policy::VolatileTtl);
    assert_eq!(put(&mut fixture, "new", 500_000), "+OK");
    assert_eq!(stats(&mut fixture).evicted_keys, 1);
}

/// A transaction without enough room finds the arena full in its middle. No key goes while it runs,
/// whatever the policy. It sees one keyspace, and fails as a whole.
#[test]
fn nothing_goes_while_a_transaction_runs() {
    for policy in [Policy::AllKeysLru, Policy::VolatileLru, Policy::VolatileTtl] {
        let mut fixture = fixture(Policy::NoEviction);
        let value = "v".repeat(1000);
        let is_taken = |n: &u32| fixture.run(&format!("SET key{n} {value} EX 100")) == "+OK";
        assert!((0..20_000).take_while(is_taken).count() < 20_000);
        let before = stats(&mut fixture);
        set(&mut fixture, policy);
        fixture.turn(|store, _| store.begin());
        let mut full = 0;
        for n in 0..300 {
            // SET has code of its own. MSET of one key and of several keys are two ways more.
            let reply = match n % 3 {
                0 => put(&mut fixture, &format!("set{n}"), 1000),
                1 => fixture.run(&format!("SETNX setnx{n} {value}")),
                _ => fixture.run(&format!("MSET one{n} {value} two{n} {value}")),
            };
            full += u32::from(reply == OOM);
        }
        assert!(full > 100, "{policy:?}: {full} were refused for good");
        let inside = stats(&mut fixture);
        assert_eq!((inside.evicted_keys, inside.keys), (0, before.keys), "{policy:?}");
        fixture.turn(|store, turn| assert!(store.commit(turn).is_err(), "some of it was refused"));
        assert_eq!(stats(&mut fixture).keys, before.keys, "{policy:?}: all or nothing");
    }
}

/// A journal that nobody reads.
fn journal() -> (TempDir, JournalWriter) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let spec = JournalSpec {
        shard: 0,
        ring_bytes: 1 << 20,
        log_id: [1; 16],
        boot_id: [2; 16],
        holds_values: false,
    };
    let file = Arc::new(JournalFile::create(dir.path(), &spec).expect("a journal"));
    (dir, JournalWriter::new(&file))
}

/// From now on it has room up to this position.
fn limit(journal: &JournalWriter, position: u64) {
    journal.file().set_limit(position);
    journal.leave();
}

/// Memory is full, and the journal has no room for the keys that would go. Several keys are staged
/// before the journal is asked for room. They were once refused as if no key might go; now they
/// wait for the journal. So does a transaction.
#[test]
fn several_keys_wait_for_the_journal_if_only_that_keeps_their_room() {
    let mut fixture = fixture(Policy::NoEviction);
    let is_taken = |n: &u32| put(&mut fixture, &format!("key{n}"), 1000) == "+OK";
    assert!((0..20_000).take_while(is_taken).count() > 5000);
    let (_dir, journal) = journal();
    limit(&journal, 0);
    fixture.turn(|store, _| store.set_journal(&journal, 1 << 8));
    set(&mut fixture, Policy::AllKeysLru);
    let value = vec![b'v'; 60_000];
    let several: [&[u8]; 5] = [b"MSET", b"a", &value, b"b", &value];
    // What comes back of memory is waited for before.
    let refused = (0..1000).find_map(|_| {
        let refused = fixture.turn(|store, turn| {
            let mut out = Resp2::default();
            store.apply(op(b"MSET"), &several, turn, &mut out);
            (out.0, store.take_busy())
        });
        fixture.end_turn();
        (refused.1 != Some(Scarce::Memory)).then_some(refused)
    });
    let refusal = format!("-{JOURNAL_FULL}\r\n").into_bytes();
    assert_eq!(refused, Some((refusal, Some(Scarce::Journal))));
    fixture.turn(|store, turn| {
        assert!(store.prepare_again(120_000, turn), "it begins again");
        assert!(store.take_busy().is_some());
    });
    assert_eq!(stats(&mut fixture).evicted_keys, 0);
    limit(&journal, u64::MAX);
    assert_eq!(fixture.bytes(&several), b"+OK\r\n");
    assert!(stats(&mut fixture).evicted_keys > 0);
}

/// A new key's lines of the index are full, so one of their keys goes. It has a long name, and the
/// journal has room for the new key, but not for the removal. The journal wasn't asked once, and
/// where its end was near, an assertion ended the shard. Now the write waits for the journal.
#[test]
fn a_key_that_goes_for_its_place_in_the_index_waits_for_the_journal() {
    let mut fixture = fixture(Policy::NoEviction);
    let long = "l".repeat(40_000);
    assert_eq!(fixture.run(&format!("SET {long} v EX 1000")), "+OK");
    // Holes in which no larger table of the index fits.
    (0..60_000).for_each(|n| assert_eq!(put(&mut fixture, &format!("key{n}"), 1), "+OK"));
    let is_taken = |n: &u32| put(&mut fixture, &format!("large{n}"), 60_000) == "+OK";
    assert!((0..100).take_while(is_taken).count() > 30);
    (0..30).step_by(2).for_each(|n| assert_eq!(fixture.run(&format!("DEL large{n}")), ":1"));
    let (_dir, journal) = journal();
    let limit = |bytes| limit(&journal, bytes);
    limit(70_000);
    fixture.turn(|store, _| store.set_journal(&journal, 1 << 8));
    set(&mut fixture, Policy::VolatileTtl);
    // Keys that may stand where the long one does, until one finds no place.
    let refused = (0..1_000_000).find_map(|n| {
        let key = format!("new{n}");
        let (reply, busy) = fixture.turn(|store, turn| {
            let (reader, mut is_near) = (store.reader(), false);
            let of_long = reader.hash(long.as_bytes());
            let near = reader.hash(key.as_bytes());
            reader.visit_probe(turn.pin, near, &mut |hash| is_near |= hash == of_long);
            let mut out = Resp2::default();
            if is_near {
                // The reserve and a small entry, twice over; less than a long one, twice over.
                limit(journal.tail() + 70_000);
                store.apply(op(b"SET"), &[b"SET", key.as_bytes(), b"v"], turn, &mut out);
            }
            (out.0, store.take_busy())
        });
        let waits = busy == Some(Scarce::Journal);
        assert_eq!(waits, reply == format!("-{JOURNAL_FULL}\r\n").into_bytes());
        waits.then_some(key)
    });
    let refused = refused.expect("a key without a place");
    assert_eq!(stats(&mut fixture).evicted_keys, 0);
    limit(u64::MAX);
    assert_eq!(put(&mut fixture, &refused, 1), "+OK");
    assert_eq!(stats(&mut fixture).evicted_keys, 1);
}

/// The journal has no room for a removal: keys that are deleted stay until it has, one and several,
/// alone and as all of a transaction.
#[test]
fn keys_that_are_deleted_wait_for_the_journal() {
    let mut fixture = Fixture::new();
    fixture.run("MSET a 1 b 2");
    let (_dir, journal) = journal();
    limit(&journal, 0);
    fixture.turn(|store, _| store.set_journal(&journal, 1 << 8));
    for command in ["DEL a", "DEL a b"] {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let refused = fixture.turn(|store, turn| {
            let mut out = Resp2::default();
            store.apply(op(b"DEL"), &args, turn, &mut out);
            (out.0, store.take_busy())
        });
        let reply = format!("-{JOURNAL_FULL}\r\n").into_bytes();
        assert_eq!(refused, (reply, Some(Scarce::Journal)), "{command}");
    }
    fixture.turn(|store, turn| {
        store.begin();
        let mut out = Resp2::default();
        store.apply(op(b"DEL"), &[b"DEL", b"a"], turn, &mut out);
        assert_eq!(out.0, b":1\r\n");
        assert!(store.commit(turn).is_err());
        assert!(store.take_busy().is_some());
    });
    assert_eq!(fixture.run("EXISTS a b"), ":2");
    limit(&journal, u64::MAX);
    assert_eq!(fixture.run("DEL a b"), ":2");
}
