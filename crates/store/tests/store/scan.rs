//! SCAN, KEYS and RANDOMKEY.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nigh_store::{Store, Turn};

use crate::support::{Fixture, Resp2, op};

/// Cursor and keys of a SCAN reply, or of KEYS (cursor 0).
fn page(fixture: &mut Fixture, command: &str) -> (u64, Vec<String>) {
    let reply = fixture.run(command);
    let mut words = reply.split(' ');
    let cursor = if command.starts_with("SCAN") {
        assert_eq!((words.next(), words.next().is_some()), (Some("*2"), true), "{reply}");
        words.next().expect("a cursor").parse().expect("a number")
    } else {
        0
    };
    let count: usize = words.next().expect("a count")[1..].parse().expect("a number");
    let keys: Vec<String> = words.skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(keys.len(), count, "{reply}");
    (cursor, keys)
}

fn scan_all(fixture: &mut Fixture, options: &str) -> Vec<String> {
    let (mut cursor, mut all) = (0, Vec::new());
    loop {
        let (next, keys) = page(fixture, format!("SCAN {cursor}{options}").as_str());
        all.extend(keys);
        cursor = next;
        if cursor == 0 {
            return all;
        }
    }
}

/// A key that is there from beginning to end is shown, though the index grows tenfold and other
/// keys come and go.
#[test]
fn scan_shows_every_lasting_key_while_the_index_grows() {
    let mut fixture = Fixture::new();
    for n in 0..500 {
        fixture.run(&format!("SET lasting{n} v"));
    }
    let (mut cursor, mut seen, mut n) = (0, BTreeSet::new(), 0);
    loop {
        let (next, keys) = page(&mut fixture, &format!("SCAN {cursor} COUNT 5"));
        seen.extend(keys);
        for _ in 0..40 {
            fixture.run(&format!("SET passing{n} v"));
            if n % 3 == 0 {
                fixture.run(&format!("DEL passing{}", n / 2));
            }
            n += 1;
        }
        // A key that is written again is still the same key.
        fixture.run(&format!("APPEND lasting{} x", n % 500));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(n > 2000, "the index had to grow meanwhile: {n}");
    for n in 0..500 {
        assert!(seen.contains(&format!("lasting{n}")), "lasting{n} was not shown");
    }
}

/// Options filter. COUNT is the number of keys looked at, not shown.
#[test]
fn scan_filters_by_pattern_and_type() {
    let mut fixture = Fixture::new();
    for n in 0..200 {
        fixture.run(&format!("SET user:{n} v"));
        fixture.run(&format!("SET item:{n} v"));
    }
    assert_eq!(scan_all(&mut fixture, "").len(), 400);
    assert_eq!(scan_all(&mut fixture, " COUNT 1").len(), 400);
    assert_eq!(scan_all(&mut fixture, " MATCH user:* COUNT 7").len(), 200);
    assert_eq!(scan_all(&mut fixture, " MATCH *").len(), 400);
    assert_eq!(scan_all(&mut fixture, " match item:[0-9] type STRING").len(), 10);
    assert_eq!(scan_all(&mut fixture, " TYPE hash").len(), 0);
    assert_eq!(scan_all(&mut fixture, " TYPE nonsense").len(), 0);
    let (cursor, keys) = page(&mut fixture, "SCAN 0 COUNT 9223372036854775807");
    assert_eq!((cursor, keys.len()), (0, 400));
    let (cursor, keys) = page(&mut fixture, "SCAN 0 COUNT 20 MATCH none");
    assert!(cursor != 0 && keys.is_empty(), "COUNT bounds the work, not the result");
}

/// An invalid cursor or option is refused.
#[test]
fn scan_refuses_nonsense() {
    Fixture::new().script(&[
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 1x", "-ERR invalid cursor"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor"),
        ("SCAN x COUNT y", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 0 COUNT -1", "-ERR syntax error"),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
        ("SCAN 0 COUNT", "-ERR syntax error"),
        ("SCAN 0 FOO 1", "-ERR syntax error"),
        ("SCAN 0", "*2 $1 0 *0"),
        ("SCAN ''", "*2 $1 0 *0"),
        ("SCAN 18446744073709551615", "*2 $1 0 *0"),
    ]);
}

/// KEYS shows each matching key once.
#[test]
fn keys_shows_each_match_once() {
    let mut fixture = Fixture::new();
    for n in 0..1000 {
        fixture.run(&format!("SET k{n} v"));
    }
    fixture.run("SET dead v PX 1");
    fixture.now_ms += 10;
    for (pattern, count) in [("*", 1000), ("k*", 1000), ("k?", 10), ("k[12]5", 2), ("K*", 0)] {
        let (_, keys) = page(&mut fixture, &format!("KEYS {pattern}"));
        let unique: BTreeSet<&String> = keys.iter().collect();
        assert_eq!((keys.len(), unique.len()), (count, count), "{pattern}");
    }
}

/// RANDOMKEY finds every live key and no dead one, and says when there is none.
#[test]
fn random_keys_are_live_and_all_come() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.run("RANDOMKEY"), "$-1");
    for n in 0..20 {
        fixture.run(&format!("SET live{n} v"));
        fixture.run(&format!("SET dead{n} v PX 1"));
    }
    fixture.now_ms += 10;
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        let reply = fixture.run("RANDOMKEY");
        assert!(reply.contains("live"), "{reply}");
        seen.insert(reply);
    }
    assert_eq!(seen.len(), 20);
    fixture.run("FLUSHALL");
    assert_eq!(fixture.run("RANDOMKEY"), "$-1");
}

/// Among very many dead keys RANDOMKEY gives up soon: once it looked at all of them, each time.
/// What lives is met by chance, and for certain when the dead are gone.
#[test]
fn among_many_dead_keys_a_random_key_is_not_looked_for_everywhere() {
    let mut fixture = Fixture::new();
    for n in 0..300_000 {
        fixture.run(&format!("SET dead{n} '' PX 60000"));
    }
    fixture.now_ms += 60_001;
    let passed_over = (0..10).map(|n| format!("live{n}")).find(|key| {
        fixture.run(&format!("SET {key} v"));
        let reply = fixture.run("RANDOMKEY");
        assert!(reply == "$-1" || reply.contains(key), "{reply}");
        reply == "$-1" || fixture.run(&format!("DEL {key}")) != ":1"
    });
    let key = passed_over.expect("each was found, wherever it stood");
    let are_gone = (0..10_000).any(|_| {
        fixture.now_ms += 100;
        fixture.run("DBSIZE") == ":1"
    });
    assert!(are_gone);
    assert_eq!(fixture.run("RANDOMKEY"), format!("$5 {key}"));
}

/// Functions walk by prefix with the same guarantee, and see a transaction's keys.
#[test]
fn functions_walk_by_prefix() {
    let mut fixture = Fixture::new();
    for n in 0..300 {
        fixture.run(&format!("SET user:{n} v"));
        fixture.run(&format!("SET item:{n} v"));
    }
    let walk = |fixture: &mut Fixture| {
        fixture.turn(|store, turn| {
            let (mut cursor, mut steps, mut keys) = (0, 0, BTreeSet::new());
            loop {
                cursor = store.scan_keys(b"user:", cursor, 10, turn, &mut |key| {
                    keys.insert(key.to_vec());
                });
                steps += 1;
                if cursor == 0 {
                    return (steps, keys);
                }
            }
        })
    };
    let (steps, keys) = walk(&mut fixture);
    assert_eq!(keys.len(), 300);
    assert!(steps > 10, "about ten keys at a time: {steps} steps");
    fixture.turn(|store, _| store.begin());
    fixture.run("SET user:new v");
    fixture.run("DEL user:7");
    let (_, keys) = walk(&mut fixture);
    assert_eq!(keys.len(), 300);
    assert!(keys.contains(&b"user:new"[..]) && !keys.contains(&b"user:7"[..]));
    fixture.turn(|store, _| store.rollback());
}

/// Ends the other thread's loop when this one ends or fails. Without it the loop would not end.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// KEYS at the owner names each key once at any moment of a growth, in whose middle a turn may end.
/// The owner, unlike a view, doesn't look for doubles.
#[test]
fn keys_at_the_owner_names_each_key_once_in_growth() {
    let mut fixture = Fixture::new();
    let mut asked_in_growth = 0;
    for n in 0..2500 {
        // No upkeep at the end of a turn, so only writes move the index on.
        fixture.turn(|store, turn| {
            let mut out = Resp2::default();
            store.apply(op(b"SET"), &[b"SET", format!("k{n}").as_bytes(), b""], turn, &mut out);
            assert_eq!(out.0, b"+OK\r\n");
            if !store.stats().data.growing || n % 3 != 0 {
                return;
            }
            asked_in_growth += 1;
            let mut out = Resp2::default();
            store.apply(op(b"KEYS"), &[b"KEYS", b"k*"], turn, &mut out);
            let lines = out.0.split(|byte| *byte == b'\n');
            let keys: Vec<&[u8]> = lines.filter(|line| line.starts_with(b"k")).collect();
            let unique: BTreeSet<&[u8]> = keys.iter().copied().collect();
            assert_eq!((keys.len(), unique.len()), (n + 1, n + 1), "after {n} keys");
        });
    }
    assert!(asked_in_growth > 20, "KEYS in growth: {asked_in_growth}");
}

/// KEYS on a view names each key once, also while the owner moves keys to another table. A key once
/// was met in both.
#[test]
fn keys_on_a_view_names_each_key_once() {
    const KEYS: usize = 200_000;
    const WALKS: u64 = 4;
    let mut fixture = Fixture::new();
    let mut view = Store::view(fixture.turn(|store, _| store.views()));
    let (domain, ends) = (Arc::clone(&fixture.domain), AtomicBool::new(false));
    let walks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let ended = EndOnDrop(&ends);
        let reader = scope.spawn(|| {
            let mut participant = domain.join();
            while !ends.load(Relaxed) {
                let pin = participant.pin();
                let turn = Turn { now_ms: 1_000_000, pin: &pin, random: 1 };
                let mut out = Resp2::default();
                view.apply(op(b"KEYS"), &[b"KEYS", b"*"], &turn, &mut out);
                let mut keys: Vec<&[u8]> = out
                    .0
                    .split(|byte| *byte == b'\n')
                    .filter(|line| line.starts_with(b"k"))
                    .collect();
                let met = keys.len();
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), met, "some of {met} keys came twice");
                participant.quiescent();
                walks.fetch_add(1, Relaxed);
            }
        });
        // Each sixteenth ends a turn, as does one that has to wait for memory, as in a shard.
        let is_short = |n| n < KEYS || walks.load(Relaxed) < WALKS && n < 10 * KEYS;
        for n in (0..).take_while(|n| is_short(*n) && !reader.is_finished()) {
            let key = format!("k{}", n % KEYS);
            let args: [&[u8]; 3] = [b"SET", key.as_bytes(), b""];
            let mut out = Resp2::default();
            let is_busy = n % 16 == 0
                || fixture.turn(|store, turn| {
                    store.apply(op(args[0]), &args, turn, &mut out);
                    store.take_busy().is_some()
                });
            let reply = if is_busy { fixture.bytes(&args) } else { out.0 };
            assert_eq!(reply, b"+OK\r\n");
        }
        drop(ended);
        reader.join().expect("no key twice");
        assert!(walks.load(Relaxed) >= WALKS);
    });
}
