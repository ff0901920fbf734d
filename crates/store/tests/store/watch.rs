//! WATCH: which changes make a watched key dirty, and which don't.

use nigh_store::KeyWrite;

use crate::support::Fixture;

/// Watches a key, runs commands, and returns whether the key is dirty then.
fn dirty_after(prepare: &[&str], key: &str, commands: &[&str]) -> bool {
    let mut fixture = Fixture::new();
    for command in prepare {
        fixture.run(command);
    }
    let token = fixture.turn(|store, turn| store.watch(key.as_bytes(), turn));
    for command in commands {
        match *command {
            "wait" => fixture.now_ms += 1000,
            "sweep" => {
                for _ in 0..200 {
                    fixture.now_ms += 100;
                    fixture.end_turn();
                }
            }
            "begin" => fixture.turn(|store, _| store.begin()),
            "commit" => fixture.turn(|store, turn| store.commit(turn)).expect("room"),
            command => assert!(!fixture.run(command).starts_with('-'), "{command}"),
        }
    }
    let dirty = fixture.turn(|store, turn| store.watch_dirty(&token, turn));
    fixture.turn(|store, _| {
        store.unwatch(token);
        assert_eq!(store.stats().watched_keys, 0);
    });
    dirty
}

/// Every write of a key touches it, even if it changes nothing.
#[test]
fn writes_touch() {
    for command in [
        "SET a 1",
        "SET a 1 XX",
        "SET a 1 PXAT 1",
        "SETEX a 10 1",
        "GETSET a 1",
        "GETDEL a",
        "GETEX a EX 10",
        "INCR a",
        "INCRBYFLOAT a 0",
        "APPEND a x",
        "APPEND a ''",
        "SETRANGE a 0 1",
        "MSET b 1 a 1",
        "DEL a",
        "DEL b a",
        "UNLINK a",
        "EXPIRE a 10",
        "EXPIRE a -1",
        "RENAME a b",
        "RENAME s a",
        "COPY s a REPLACE",
        "FLUSHALL",
        "FLUSHDB",
    ] {
        assert!(dirty_after(&["SET a 1", "SET s 1"], "a", &[command]), "{command}");
        let inside = ["begin", command, "commit"];
        assert!(dirty_after(&["SET a 1", "SET s 1"], "a", &inside), "{command} in a transaction");
    }
    assert!(dirty_after(&["SET a 1 EX 10"], "a", &["PERSIST a"]));
    assert!(dirty_after(&["SET a 1 EX 10"], "a", &["GETEX a PERSIST"]));
    assert!(dirty_after(&[], "a", &["SET a 1"]));
    assert!(dirty_after(&[], "a", &["SET a 1", "DEL a"]), "created and deleted");
    assert!(dirty_after(&[], "a", &["SET a 1 PXAT 1"]), "as if created and deleted");
    assert!(dirty_after(&[], "a", &["begin", "SET a 1 PXAT 1", "commit"]));
    assert!(dirty_after(&[], "a", &["MSETNX b 1 a 1"]));
    assert!(!dirty_after(&["SET a 1"], "a", &["begin", "SET b 1", "commit"]), "another key");
}

/// A key that was there and went is dirty, and stays so when it comes back as it was.
#[test]
fn what_went_and_came_back_is_dirty() {
    for removal in
        ["DEL a", "DEL a b", "UNLINK a", "GETDEL a", "RENAME a c", "FLUSHALL", "SET a 1 PXAT 1"]
    {
        let outside: &[&str] = &[removal, "SET a 1"];
        let (inside, around) =
            (["begin", removal, "SET a 1", "commit"], ["begin", removal, "commit", "SET a 1"]);
        for commands in [outside, &inside, &around] {
            assert!(dirty_after(&["SET a 1", "SET b 1"], "a", commands), "{commands:?}");
        }
    }
    assert!(dirty_after(&["SET a 1 PX 500"], "a", &["wait", "GET a", "SET a 1"]));
}

/// A write set puts a value whose time is over, of a key that is missing. Alone it touched the key,
/// among others it didn't.
#[test]
fn a_value_that_is_over_touches_among_others_too() {
    let over = KeyWrite::Put { key: b"a", value: b"1", expiry_ms: 1 };
    let other = KeyWrite::Put { key: b"b", value: b"1", expiry_ms: 0 };
    let again = KeyWrite::Put { key: b"a", value: b"2", expiry_ms: 0 };
    let sets: [(&[KeyWrite<'_>], u8); 4] =
        [(&[over], 0), (&[over, other], 0), (&[other, over], 0), (&[over, again], 1)];
    for (writes, is_there) in sets {
        for inside in [false, true] {
            let mut fixture = Fixture::new();
            let token = fixture.turn(|store, turn| store.watch(b"a", turn));
            fixture.turn(|store, turn| {
                if inside {
                    store.begin();
                }
                store.commit_writes(writes, turn).expect("room");
                if inside {
                    store.commit(turn).expect("room");
                }
                assert!(store.watch_dirty(&token, turn), "{writes:?}, {inside}");
                store.unwatch(token);
            });
            assert_eq!(fixture.run("EXISTS a"), format!(":{is_there}"));
        }
    }
}

/// A command that leaves a key alone leaves its watchers alone.
#[test]
fn what_writes_nothing_touches_nothing() {
    for command in [
        "GET a",
        "SET b 1",
        "SET a 2 NX",
        "SETNX a 2",
        "MSETNX b 1 a 2",
        "EXPIRE a 10 XX",
        "PERSIST a",
        "GETEX a",
        "GETEX a PERSIST",
        "RENAME a a",
        "RENAMENX s a",
        "COPY s a",
        "COPY a b",
        "SETRANGE a 0 ''",
        "TOUCH a",
        "DEL b",
    ] {
        assert!(!dirty_after(&["SET a 1", "SET s 1"], "a", &[command]), "{command}");
    }
    for command in ["GET a", "DEL a", "EXPIRE a 1", "GETDEL a", "FLUSHALL", "PERSIST a"] {
        assert!(!dirty_after(&[], "a", &[command]), "{command} on a missing key");
    }
}

/// A transaction that is rolled back, as when it is to run again in the next turn, has touched no
/// watcher, not even its own client's.
#[test]
fn what_is_taken_back_touches_nothing() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    let token = fixture.turn(|store, turn| store.watch(b"a", turn));
    fixture.turn(|store, _| store.begin());
    for command in ["SET a 2", "EXPIRE a 10", "FLUSHALL", "MSET a 3 b 4", "DEL a"] {
        fixture.run(command);
    }
    fixture.turn(|store, _| store.rollback());
    assert!(!fixture.turn(|store, turn| store.watch_dirty(&token, turn)));
    fixture.run("SET a 2");
    assert!(fixture.turn(|store, turn| store.watch_dirty(&token, turn)));
    fixture.turn(|store, _| store.unwatch(token));
}

/// A key whose time is over while it is watched is dirty, met or not. One that was dead before is
/// missing.
#[test]
fn death_touches_the_living_only() {
    assert!(!dirty_after(&["SET a 1 PX 5000"], "a", &["wait"]));
    assert!(dirty_after(&["SET a 1 PX 500"], "a", &["wait"]), "dead, but nobody met it");
    assert!(dirty_after(&["SET a 1 PX 500"], "a", &["wait", "GET a"]));
    assert!(dirty_after(&["SET a 1 PX 500"], "a", &["sweep"]));
    assert!(dirty_after(&["SET a 1 PX 500"], "a", &["wait", "SET a 1"]));
    let mut fixture = Fixture::new();
    fixture.run("SET a 1 PX 5");
    fixture.now_ms += 6;
    let token = fixture.turn(|store, turn| store.watch(b"a", turn));
    fixture.run("GET a");
    assert!(!fixture.turn(|store, turn| store.watch_dirty(&token, turn)));
    fixture.run("SET a 1");
    assert!(fixture.turn(|store, turn| store.watch_dirty(&token, turn)));
    fixture.turn(|store, _| store.unwatch(token));
}

/// Several connections watch one key. Each sees the writes after it began to watch.
#[test]
fn tokens_are_independent() {
    let mut fixture = Fixture::new();
    let early = fixture.turn(|store, turn| store.watch(b"a", turn));
    fixture.run("SET a 1");
    let late = fixture.turn(|store, turn| store.watch(b"a", turn));
    fixture.turn(|store, turn| {
        assert!(store.watch_dirty(&early, turn));
        assert!(!store.watch_dirty(&late, turn));
        assert_eq!(store.stats().watched_keys, 1);
        store.unwatch(early);
        assert!(!store.watch_dirty(&late, turn));
        store.unwatch(late);
        assert_eq!(store.stats().watched_keys, 0);
    });
}
