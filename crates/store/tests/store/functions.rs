//! The store as functions use it: write sets, and libraries that survive.

use nigh_shm::WriteError;
use nigh_store::{KeyWrite, Op, Turn};

use crate::machine::Machine;
use crate::support::{Fixture, Resp2, START_MS};

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> KeyWrite<'a> {
    KeyWrite::Put { key, value, expiry_ms: 0 }
}

fn commit(fixture: &mut Fixture, writes: &[KeyWrite<'_>]) -> Result<(), WriteError> {
    let outcome = fixture.turn(|store, turn| store.commit_writes(writes, turn));
    fixture.end_turn();
    outcome
}

/// A write set is applied in order, and later writes see earlier ones.
#[test]
fn a_write_set_is_applied_in_order() {
    let mut fixture = Fixture::new();
    fixture.run("MSET old 1 gone 1 dies 1");
    let later = START_MS + 5000;
    let writes = [
        put(b"a", b"1"),
        put(b"a", b"2"),
        KeyWrite::Expire { key: b"a", expiry_ms: later },
        put(b"b", b"1"),
        KeyWrite::Delete { key: b"b" },
        KeyWrite::Expire { key: b"b", expiry_ms: later },
        KeyWrite::Delete { key: b"gone" },
        put(b"gone", b"back"),
        KeyWrite::Expire { key: b"old", expiry_ms: later },
        KeyWrite::Expire { key: b"dies", expiry_ms: START_MS },
        KeyWrite::Expire { key: b"nothing", expiry_ms: later },
        KeyWrite::Delete { key: b"nothing" },
        KeyWrite::Put { key: b"c", value: b"3", expiry_ms: later },
        KeyWrite::Expire { key: b"c", expiry_ms: 0 },
    ];
    commit(&mut fixture, &writes).expect("room");
    fixture.script(&[
        ("MGET a b gone old dies nothing c", "*7 $1 2 $-1 $4 back $1 1 $-1 $-1 $1 3"),
        ("PTTL a", ":5000"),
        ("PTTL old", ":5000"),
        ("PTTL c", ":-1"),
        ("DBSIZE", ":4"),
    ]);
}

/// A write set of one write gives the same result.
#[test]
fn single_writes_do_the_same() {
    let mut fixture = Fixture::new();
    commit(&mut fixture, &[]).expect("nothing to do");
    commit(&mut fixture, &[put(b"a", b"1")]).expect("room");
    commit(&mut fixture, &[KeyWrite::Expire { key: b"a", expiry_ms: START_MS + 10 }])
        .expect("room");
    assert_eq!(fixture.run("PTTL a"), ":10");
    commit(&mut fixture, &[KeyWrite::Delete { key: b"a" }]).expect("no memory needed");
    commit(&mut fixture, &[KeyWrite::Delete { key: b"a" }]).expect("nothing to do");
    assert_eq!(fixture.run("DBSIZE"), ":0");
}

/// A value whose time is over is a deletion, alone and among others.
#[test]
fn a_write_set_stores_nothing_that_is_over() {
    let over = |key| KeyWrite::Put { key, value: b"v", expiry_ms: START_MS - 1 };
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    commit(&mut fixture, &[over(b"a")]).expect("no memory needed");
    commit(&mut fixture, &[over(b"n")]).expect("nothing to do");
    assert_eq!(fixture.run("DBSIZE"), ":0");
    fixture.run("MSET a 1 b 1 c 1");
    let later = START_MS + 5000;
    let writes = [
        over(b"a"),
        over(b"n"),
        over(b"b"),
        KeyWrite::Expire { key: b"b", expiry_ms: later },
        over(b"c"),
        put(b"c", b"2"),
        put(b"d", b"1"),
        over(b"d"),
    ];
    let before = fixture.turn(|store, _| store.stats().data.lsn);
    commit(&mut fixture, &writes).expect("room");
    fixture.script(&[("MGET a b c d n", "*5 $-1 $-1 $1 2 $-1 $-1"), ("DBSIZE", ":1")]);
    let after = fixture.turn(|store, _| store.stats().data.lsn);
    assert_eq!(after - before, 4, "a, b, c and d; n never was");
}

/// A bad write fails its whole set. Inside a transaction the other commands go on.
#[test]
fn a_write_set_is_all_or_nothing() {
    let long = vec![b'k'; 70_000];
    for inside in [false, true] {
        let mut fixture = Fixture::new();
        fixture.run("MSET a 1 b 1");
        if inside {
            fixture.turn(|store, _| store.begin());
            fixture.run("SET kept 1");
        }
        let writes = [put(b"a", b"2"), KeyWrite::Delete { key: b"b" }, put(&long, b"x")];
        let refused = commit(&mut fixture, &writes);
        assert_eq!(refused, Err(WriteError::KeyTooLong { len: 70_000 }));
        assert_eq!(fixture.run("MGET a b"), "*2 $1 1 $1 1");
        if inside {
            commit(&mut fixture, &writes[..2]).expect("room");
            assert_eq!(fixture.run("MGET a b"), "*2 $1 2 $-1");
            fixture.turn(|store, turn| store.commit(turn)).expect("room");
            assert_eq!(fixture.run("MGET a b kept"), "*3 $1 2 $-1 $1 1");
        }
    }
}

/// A write set touches the watchers of its keys.
#[test]
fn write_sets_touch_watched_keys() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    let tokens = fixture.turn(|store, turn| [b"a", b"b", b"c"].map(|key| store.watch(key, turn)));
    let writes = [put(b"a", b"1"), KeyWrite::Delete { key: b"b" }, put(b"d", b"1")];
    commit(&mut fixture, &writes).expect("room");
    let dirty = fixture.turn(|store, turn| {
        let dirty: Vec<bool> = tokens.iter().map(|token| store.watch_dirty(token, turn)).collect();
        tokens.into_iter().for_each(|token| store.unwatch(token));
        dirty
    });
    assert_eq!(dirty, [true, false, false], "b wasn't there to delete");
}

fn libraries(fixture: &mut Fixture) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    fixture.turn(|store, turn| {
        let found = store.libraries(turn);
        found.into_iter().map(|(name, source)| (text(name), text(source))).collect()
    })
}

/// Libraries are apart from the data: they survive FLUSHALL, and a crash too.
#[test]
fn libraries_survive() {
    let mut fixture = Fixture::new();
    fixture.run("SET library:x data");
    fixture.turn(|store, turn| {
        store.put_library(b"graph", b"v1", turn).expect("room");
        store.put_library(b"count", b"c", turn).expect("room");
        store.put_library(b"graph", b"v2", turn).expect("room");
    });
    fixture.run("FLUSHALL");
    let wanted = [("count".into(), "c".into()), ("graph".into(), "v2".into())];
    assert_eq!(libraries(&mut fixture), wanted);
    assert_eq!(fixture.crash().libraries, 2);
    assert_eq!(libraries(&mut fixture), wanted);
    fixture.turn(|store, turn| {
        assert!(store.delete_library(b"count", turn).expect("without a journal"));
        assert!(!store.delete_library(b"count", turn).expect("without a journal"));
    });
    assert_eq!(libraries(&mut fixture), wanted[1..]);
    fixture.turn(|store, turn| store.clear_libraries(turn)).expect("without a journal");
    assert_eq!(libraries(&mut fixture), []);
    assert_eq!(fixture.run("DBSIZE"), ":0");
}

/// Restoring several libraries is all or nothing, whether they join the others or replace them.
#[test]
fn several_libraries_at_once() {
    let mut fixture = Fixture::new();
    let long = vec![b'n'; 70_000];
    fixture.turn(|store, turn| {
        store.put_libraries(&[(b"a", b"1"), (b"b", b"1")], false, turn).expect("room");
        let refused = store.put_libraries(&[(b"a", b"2"), (&long, b"x")], true, turn);
        assert!(refused.is_err());
    });
    assert_eq!(libraries(&mut fixture).len(), 2);
    assert_eq!(libraries(&mut fixture)[0].1, "1");
    fixture.turn(|store, turn| {
        store.put_libraries(&[(b"b", b"2"), (b"c", b"1")], true, turn).expect("room");
    });
    let wanted = [("b".into(), "2".into()), ("c".into(), "1".into())];
    assert_eq!(libraries(&mut fixture), wanted);
}

/// The journal has room for the deletion of one library, and there are two. FUNCTION FLUSH once
/// deleted one of them, and failed then. Now all go, or none.
#[test]
fn libraries_go_together_or_not_at_all() {
    let mut machine = Machine::started(1, 1);
    let now_ms = machine.clock_ms();
    let running = machine.running();
    let pin = running.participant.pin();
    let turn = Turn { now_ms, pin: &pin, random: 1 };
    let (store, journal) = (running.keyspace.librarian_mut(), &running.logs[0].journal);
    store.put_library(b"l1", b"source", &turn).expect("room");
    store.put_library(b"l2", b"source", &turn).expect("room");
    // One deletion takes 128 bytes, and asks for twice as many.
    journal.file().set_limit(journal.tail() + 256);
    journal.leave();
    assert_eq!(store.clear_libraries(&turn), Err(WriteError::JournalFull));
    assert_eq!(store.libraries(&turn).len(), 2);
    journal.file().set_limit(u64::MAX);
    journal.leave();
    assert_eq!(store.clear_libraries(&turn), Ok(()));
    assert_eq!(store.libraries(&turn).len(), 0);
    // Where nothing is, nothing is told: that needs no room.
    journal.file().set_limit(journal.tail());
    journal.leave();
    assert_eq!(store.clear_libraries(&turn), Ok(()));
    let mut out = Resp2::default();
    store.apply(Op::Del, &[b"DEL", b"nothing"], &turn, &mut out);
    assert_eq!(out.0, b":0\r\n");
}

/// Among several writes, an expiry behind a deletion finds no key. A deletion of a missing key
/// touches nobody, and an empty write set is no change.
#[test]
fn a_write_set_changes_nothing_of_what_is_not_there() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    let later = START_MS + 5000;
    let (gone, late) =
        (KeyWrite::Delete { key: b"a" }, KeyWrite::Expire { key: b"a", expiry_ms: later });
    commit(&mut fixture, &[gone, late]).expect("room");
    assert_eq!(fixture.run("EXISTS a"), ":0");
    let token = fixture.turn(|store, turn| store.watch(b"a", turn));
    commit(&mut fixture, &[gone]).expect("room");
    let lsn = fixture.turn(|store, _| store.stats()).data.lsn;
    commit(&mut fixture, &[]).expect("room");
    assert_eq!(fixture.turn(|store, _| store.stats()).data.lsn, lsn);
    fixture.turn(|store, turn| {
        assert!(!store.watch_dirty(&token, turn));
        store.unwatch(token);
    });
}
