//! Transactions: they see their own writes, and leave all or nothing.

use crate::support::Fixture;

fn begin(fixture: &mut Fixture) {
    fixture.turn(|store, _| store.begin());
}

fn commit(fixture: &mut Fixture) {
    fixture.turn(|store, turn| store.commit(turn)).expect("the commit has room");
    fixture.end_turn();
}

fn rollback(fixture: &mut Fixture) {
    fixture.turn(|store, _| store.rollback());
    fixture.end_turn();
}

/// Every kind of command inside a transaction, with the replies that it gives outside.
const SCRIPT: [(&str, &str); 40] = [
    ("GET a", "$1 1"),
    ("SET a 2", "+OK"),
    ("GET a", "$1 2"),
    ("INCR a", ":3"),
    ("APPEND a x", ":2"),
    ("EXPIRE a 10", ":1"),
    ("TTL a", ":10"),
    ("PERSIST a", ":1"),
    ("SET new 1", "+OK"),
    ("DBSIZE", ":4"),
    ("DEL b new", ":2"),
    ("EXISTS b new a", ":1"),
    ("DBSIZE", ":2"),
    ("RENAME a d", "+OK"),
    ("MGET a d", "*2 $-1 $2 3x"),
    ("RENAME d e", "+OK"),
    ("EXPIRE e 20", ":1"),
    ("RENAME e f", "+OK"),
    ("TTL f", ":20"),
    ("COPY f g", ":1"),
    ("TTL g", ":20"),
    ("MSET h 1 i 2 h 3", "+OK"),
    ("MSETNX i 1 j 2", ":0"),
    ("MSETNX j 2 k 3", ":1"),
    ("DBSIZE", ":7"),
    ("GETDEL j", "$1 2"),
    ("GETDEL j", "$-1"),
    ("SET j 5 PX 100", "+OK"),
    ("GETEX j PERSIST", "$1 5"),
    ("SETRANGE k 1 abc", ":4"),
    ("SET c 9 KEEPTTL", "+OK"),
    ("PTTL c", ":50000"),
    ("KEYS nothing", "*0"),
    ("EXPIRE h -1", ":1"),
    ("GET h", "$-1"),
    ("RENAME h x", "-ERR no such key"),
    ("INCR f", "-ERR value is not an integer or out of range"),
    ("INCRBYFLOAT pi 3.14", "$4 3.14"),
    ("SETNX pi 3", ":0"),
    ("DBSIZE", ":7"),
];
/// The keys after it.
const AFTER: (&str, &str) =
    ("MGET a b c d f g i j k pi", "*10 $-1 $-1 $1 9 $-1 $2 3x $2 3x $1 2 $1 5 $4 3abc $4 3.14");

fn prepare(fixture: &mut Fixture) {
    fixture.script(&[("MSET a 1 b 2", "+OK"), ("SET c 3 EX 50", "+OK")]);
}

/// A transaction sees its own writes. After the commit, every client does.
#[test]
fn a_transaction_sees_its_own_writes() {
    let mut fixture = Fixture::new();
    prepare(&mut fixture);
    begin(&mut fixture);
    fixture.script(&SCRIPT);
    fixture.script(&[AFTER]);
    commit(&mut fixture);
    fixture.script(&[AFTER, ("DBSIZE", ":7"), ("TTL f", ":20"), ("TTL c", ":50")]);
    let opened = fixture.crash();
    assert_eq!(opened.data.expect("adopted").keys, 7);
    fixture.script(&[AFTER]);
}

/// The same commands outside give the same replies.
#[test]
fn replies_are_the_same_outside() {
    let mut fixture = Fixture::new();
    prepare(&mut fixture);
    fixture.script(&SCRIPT);
    fixture.script(&[AFTER]);
}

/// A transaction that is rolled back, or cut off by a crash, has changed nothing.
#[test]
fn an_unfinished_transaction_leaves_nothing() {
    for crash in [false, true] {
        let mut fixture = Fixture::new();
        prepare(&mut fixture);
        begin(&mut fixture);
        fixture.script(&SCRIPT);
        fixture.script(&[("FLUSHALL", "+OK"), ("SET z 1", "+OK")]);
        if crash {
            fixture.crash();
        } else {
            rollback(&mut fixture);
        }
        fixture.script(&[
            ("MGET a b c new f z", "*6 $1 1 $1 2 $1 3 $-1 $-1 $-1"),
            ("DBSIZE", ":3"),
            ("TTL c", ":50"),
        ]);
    }
}

/// FLUSHALL inside a transaction hides the arena at once, and empties it at the commit.
#[test]
fn flushing_inside_a_transaction() {
    let mut fixture = Fixture::new();
    prepare(&mut fixture);
    begin(&mut fixture);
    assert!(fixture.turn(|store, _| !store.overlay_cleared()));
    fixture.script(&[
        ("SET x 1", "+OK"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("MGET a x", "*2 $-1 $-1"),
        ("KEYS *", "*0"),
        ("RANDOMKEY", "$-1"),
        ("SCAN 0", "*2 $1 0 *0"),
        ("SET a new", "+OK"),
        ("DBSIZE", ":1"),
        ("RANDOMKEY", "$1 a"),
        ("KEYS *", "*1 $1 a"),
        ("DEL b", ":0"),
    ]);
    assert!(fixture.turn(|store, _| store.overlay_cleared()));
    commit(&mut fixture);
    fixture.script(&[("MGET a b c x", "*4 $3 new $-1 $-1 $-1"), ("DBSIZE", ":1")]);
    begin(&mut fixture);
    fixture.script(&[("SET b 1", "+OK"), ("FLUSHDB", "+OK")]);
    commit(&mut fixture);
    fixture.script(&[("DBSIZE", ":0"), ("GET a", "$-1"), ("SET a 1", "+OK"), ("GET a", "$1 1")]);
}

/// Walks inside a transaction show its keys: changed ones once, deleted ones never.
#[test]
fn walks_see_the_transaction() {
    let mut fixture = Fixture::new();
    for n in 0..50 {
        fixture.run(&format!("SET k{n} v"));
    }
    begin(&mut fixture);
    for n in 0..20 {
        fixture.run(&format!("DEL k{n}"));
        fixture.run(&format!("SET k{} w", n + 20));
        fixture.run(&format!("SET new{n} v"));
    }
    let count = |reply: &str| reply.split(' ').filter(|word| word.starts_with(['k', 'n'])).count();
    assert_eq!(count(&fixture.run("KEYS *")), 50);
    assert_eq!(count(&fixture.run("SCAN 0 COUNT 1000")), 50);
    assert_eq!(fixture.run("DBSIZE"), ":50");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1500 {
        seen.insert(fixture.run("RANDOMKEY"));
    }
    assert_eq!(seen.len(), 50, "every key that the transaction sees, and no other");
    commit(&mut fixture);
    assert_eq!(count(&fixture.run("KEYS *")), 50);
}

/// A key whose time is over while the transaction runs is missing inside, as it would be outside.
#[test]
fn dead_keys_are_missing_inside() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1 PX 10");
    begin(&mut fixture);
    fixture.run("SET b 1 PX 10");
    fixture.now_ms += 11;
    fixture.script(&[("MGET a b", "*2 $-1 $-1"), ("SET a 2 NX", "+OK"), ("INCR b", ":1")]);
    commit(&mut fixture);
    fixture.script(&[("MGET a b", "*2 $1 2 $1 1"), ("TTL b", ":-1"), ("DBSIZE", ":2")]);
}

/// Values in runs of their own survive renames and expiries.
#[test]
fn large_values_survive_being_moved_around() {
    let mut fixture = Fixture::new();
    let value =
        |seed: u8| -> Vec<u8> { (0..600_000_u32).map(|n| n.to_le_bytes()[1] ^ seed).collect() };
    fixture.bytes(&[b"SET", b"a", &value(1)]);
    fixture.bytes(&[b"SET", b"b", &value(2)]);
    for round in 0..20 {
        begin(&mut fixture);
        fixture.script(&[
            ("RENAME a t", "+OK"),
            ("EXPIRE t 100", ":1"),
            ("RENAME b a", "+OK"),
            ("RENAME t b", "+OK"),
            ("PERSIST b", ":1"),
            ("EXPIRE a 50", ":1"),
            ("EXPIRE a 60", ":1"),
        ]);
        fixture.bytes(&[b"SET", b"c", &value(3)]);
        fixture.bytes(&[b"SET", b"c", &value(4)]);
        fixture.run("COPY c d REPLACE");
        if round % 4 == 3 {
            rollback(&mut fixture);
            fixture.script(&[("RENAME a t", "+OK"), ("RENAME b a", "+OK"), ("RENAME t b", "+OK")]);
        } else {
            commit(&mut fixture);
        }
        let bulk = |value: Vec<u8>| [b"$600000\r\n", &value[..], b"\r\n"].concat();
        let (a, b) = if round % 2 == 0 { (2, 1) } else { (1, 2) };
        for (key, seed) in [(b"a", a), (b"b", b), (b"c", 4), (b"d", 4)] {
            assert!(fixture.bytes(&[b"GET", key]) == bulk(value(seed)), "{key:?} in round {round}");
        }
        if round % 7 == 6 {
            fixture.crash();
        }
    }
    fixture.run("FLUSHALL");
    for _ in 0..10 {
        fixture.end_turn();
    }
    let used = fixture.turn(|store, _| store.stats()).data.used_bytes;
    assert_eq!(used, 0, "nothing is left of the values");
}

/// A function inside MULTI must see all staged keys before the arena; the next function, those new
/// since.
#[test]
fn the_overlay_tells_what_is_staged() {
    let mut fixture = Fixture::new();
    prepare(&mut fixture);
    let told = |fixture: &mut Fixture, whole| {
        fixture.turn(|store, turn| {
            let staged = store.take_overlay(whole);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let value = |record| {
                let record = store.reader().record(turn.pin, record).expect("a staged record");
                text(record.value())
            };
            let entries = staged.entries.iter();
            let entries: Vec<(String, Option<String>)> =
                entries.map(|(key, record)| (text(key), record.map(value))).collect();
            (staged.is_whole, entries)
        })
    };
    let is = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    assert_eq!(told(&mut fixture, false), (true, vec![]), "there is no transaction");
    begin(&mut fixture);
    fixture.script(&[("SET a new", "+OK"), ("DEL b", ":1")]);
    assert_eq!(told(&mut fixture, false), (true, vec![is("a", Some("new")), is("b", None)]));
    assert_eq!(told(&mut fixture, false), (false, vec![]));
    fixture.script(&[
        ("SET b 1", "+OK"),
        ("APPEND b 2", ":2"),
        ("SET c 3", "+OK"),
        ("DEL c", ":1"),
    ]);
    assert_eq!(told(&mut fixture, false), (false, vec![is("b", Some("12")), is("c", None)]));
    fixture.script(&[("SET d 4", "+OK")]);
    let all = [is("a", Some("new")), is("b", Some("12")), is("c", None), is("d", Some("4"))];
    assert_eq!(told(&mut fixture, true), (true, all.to_vec()), "whoever has lost it is told again");
    fixture.script(&[("FLUSHALL", "+OK"), ("SET e 5", "+OK")]);
    assert_eq!(told(&mut fixture, false), (true, vec![is("e", Some("5"))]), "the rest is gone");
    rollback(&mut fixture);
    begin(&mut fixture);
    fixture.run("SET f 6");
    assert_eq!(told(&mut fixture, false), (true, vec![is("f", Some("6"))]), "of this transaction");
    rollback(&mut fixture);
}

/// Hits and misses count with the commit, and not at all if it is rolled back.
#[test]
fn what_is_rolled_back_has_counted_nothing() {
    let mut fixture = Fixture::new();
    prepare(&mut fixture);
    let counted = |fixture: &mut Fixture| {
        let stats = fixture.turn(|store, _| store.stats());
        (stats.keyspace_hits, stats.keyspace_misses)
    };
    let before = counted(&mut fixture);
    begin(&mut fixture);
    fixture.script(&[("GET a", "$1 1"), ("MGET b none", "*2 $1 2 $-1")]);
    rollback(&mut fixture);
    assert_eq!(counted(&mut fixture), before);
    begin(&mut fixture);
    fixture.script(&[("GET a", "$1 1"), ("MGET b none", "*2 $1 2 $-1")]);
    commit(&mut fixture);
    assert_eq!(counted(&mut fixture), (before.0 + 2, before.1 + 1));
}
