//! Eviction: which keys go when memory is full, which stay, and that writes go on.

use std::collections::{BTreeMap, BTreeSet};

use nigh_store::{Policy, Store};

use crate::support::{Fixture, Resp2, op};

pub(crate) const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
/// The smallest arena: segments of 64 KiB.
pub(crate) const SMALL_BYTES: u64 = 8 << 20;
/// Keys that are sampled unless a test chooses: the setting's default.
pub(crate) const SAMPLES: u32 = 5;

pub(crate) fn fixture(policy: Policy) -> Fixture {
    let mut fixture = Fixture::with_capacity(SMALL_BYTES);
    set(&mut fixture, policy);
    fixture
}

pub(crate) fn set(fixture: &mut Fixture, policy: Policy) {
    fixture.turn(|store, _| store.set_eviction(policy, SAMPLES));
}

pub(crate) fn put(fixture: &mut Fixture, key: &str, value_bytes: usize) -> String {
    let reply = fixture.bytes(&[b"SET", key.as_bytes(), &vec![b'v'; value_bytes]]);
    String::from_utf8(reply).expect("text").trim_end().to_owned()
}

pub(crate) fn stats(fixture: &mut Fixture) -> nigh_store::StoreStats {
    fixture.turn(|store, _| store.stats())
}

/// Numbers from a seed: a linear congruential generator (Knuth, MMIX), upper half.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Twenty times the capacity is written, in values of many sizes. Every write is taken.
#[test]
fn a_full_arena_takes_writes_for_ever() {
    let mut fixture = fixture(Policy::AllKeysLru);
    let mut numbers = Numbers(1);
    let (mut written, mut n) = (0, 0);
    let mut least_used = u64::MAX;
    while written < 20 * SMALL_BYTES {
        let bytes = 1000 + numbers.below(5000);
        let reply = put(&mut fixture, &format!("key{n}"), usize::try_from(bytes).expect("small"));
        assert_eq!(reply, "+OK", "after {written} bytes: {:?}", stats(&mut fixture));
        written += bytes;
        n += 1;
        if written > 2 * SMALL_BYTES {
            least_used = least_used.min(stats(&mut fixture).data.used_bytes);
        }
    }
    let stats = stats(&mut fixture);
    assert!(stats.evicted_keys > 0 && stats.evicted_keys + stats.keys == n, "{stats:?}");
    assert!(least_used * 100 >= SMALL_BYTES * 80, "{least_used} of {SMALL_BYTES} bytes are used");
}

/// New small keys come into a full arena for ever, many in a turn, and there is no room for a
/// larger index. No write evicts more than a few keys. A turn evicts hardly more than it writes.
/// Hardly any write waits for the next turn. The cleaner copies hardly more than is written. (It
/// once copied fifteen times as much, to make room for a larger index.)
#[test]
fn no_write_into_a_full_arena_costs_more_than_a_few_keys() {
    const TURN_WRITES: u64 = 64;
    let mut fixture = Fixture::new();
    set(&mut fixture, Policy::AllKeysLru);
    let (mut n, mut most, mut busy) = (0, 0, 0);
    let mut after_fill = 0;
    while n < 1_800_000 {
        let before = stats(&mut fixture).evicted_keys;
        fixture.turn(|store, turn| {
            for _ in 0..TURN_WRITES {
                let (key, mut out) = (format!("key:{n:012}"), Resp2::default());
                let before = store.stats().evicted_keys;
                store.apply(op(b"SET"), &[b"SET", key.as_bytes(), &[b'v'; 100]], turn, &mut out);
                most = most.max(store.stats().evicted_keys - before);
                if store.take_busy().is_some() || store.wants_turn() {
                    busy += 1;
                    return;
                }
                assert_eq!(out.0, b"+OK\r\n", "key {n}");
                n += 1;
            }
        });
        fixture.end_turn();
        let evicted = stats(&mut fixture).evicted_keys - before;
        if n > 600_000 {
            after_fill = after_fill.max(evicted);
        }
    }
    let stats = stats(&mut fixture);
    let (copied, written) = (stats.data.cleaner.relocated_bytes, stats.data.appended_bytes);
    assert!(copied < 2 * written, "{copied} bytes were copied for {written}: {stats:?}");
    assert!(most <= 33, "a write evicted {most} keys: {stats:?}");
    assert!(after_fill <= 3 * TURN_WRITES, "a turn evicted {after_fill} keys: {stats:?}");
    assert!(busy < n / 100, "{busy} turns ended early: {stats:?}");
    assert!(stats.keys > 340_000, "{stats:?}");
}

/// The same with values that lie in runs, and with small ones among them.
#[test]
fn values_of_all_sizes_make_room_for_each_other() {
    let mut fixture = fixture(Policy::AllKeysLru);
    let mut numbers = Numbers(2);
    let (mut refused, mut n) = (0, 0);
    let mut written = 0;
    while written < 20 * SMALL_BYTES {
        let bytes = match numbers.below(10) {
            0 => 40_000 + numbers.below(100_000),
            _ => 500 + numbers.below(1000),
        };
        let key = format!("key{}", numbers.below(3000));
        let reply = put(&mut fixture, &key, usize::try_from(bytes).expect("small"));
        refused += u32::from(reply != "+OK");
        written += bytes;
        n += 1;
    }
    assert_eq!(refused, 0, "of {n} writes: {:?}", stats(&mut fixture));
}

/// Against a map: a key that wasn't evicted has its value, an evicted key is gone, and no other is.
#[test]
fn what_stays_is_right_and_what_goes_is_counted() {
    let mut fixture = fixture(Policy::AllKeysLru);
    let mut numbers = Numbers(3);
    let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut gone: BTreeSet<u64> = BTreeSet::new();
    for step in 0..40_000_u64 {
        let key = numbers.below(6000);
        let name = format!("key{key}");
        match numbers.below(10) {
            0..5 => {
                let byte = u8::try_from(step % 251).expect("a byte");
                let value = vec![byte; usize::try_from(numbers.below(4000)).expect("small")];
                assert_eq!(fixture.bytes(&[b"SET", name.as_bytes(), &value]), b"+OK\r\n");
                known.insert(key, value);
                gone.remove(&key);
            }
            5 => {
                let deleted = fixture.run(&format!("DEL {name}"));
                let there = known.remove(&key).is_some();
                assert!(there || deleted == ":0", "{key} was never there");
                if there && deleted == ":0" {
                    // Evicted before: it stays counted as evicted.
                    gone.insert(u64::MAX - step);
                }
            }
            _ => match (fixture.bytes(&[b"GET", name.as_bytes()]), known.get(&key)) {
                (reply, Some(value)) if reply != b"$-1\r\n" => {
                    assert!(!gone.contains(&key), "{key} has come back");
                    let head = format!("${}\r\n", value.len()).into_bytes();
                    assert!(reply == [&head[..], value, b"\r\n"].concat(), "{key} at {step}");
                }
                (reply, there) => {
                    assert_eq!(reply, b"$-1\r\n");
                    if there.is_some() {
                        gone.insert(key);
                    }
                }
            },
        }
    }
    let evicted = stats(&mut fixture).evicted_keys;
    let present = (0..6000).filter(|key| fixture.run(&format!("EXISTS key{key}")) == ":1");
    let present: BTreeSet<u64> = present.collect();
    assert!(present.iter().all(|key| known.contains_key(key) && !gone.contains(key)));
    assert_eq!(fixture.run("DBSIZE"), format!(":{}", present.len()));
    assert!(evicted >= gone.len() as u64 && evicted > 1000, "{evicted} of {}", gone.len());
}

/// A watched key may go, and then EXEC is refused. Changes of other keys touch no watcher.
#[test]
fn an_eviction_touches_those_who_watch_the_key() {
    let mut fixture = fixture(Policy::AllKeysLru);
    put(&mut fixture, "hot", 1000);
    put(&mut fixture, "cold", 1000);
    let hot = fixture.turn(|store, turn| store.watch(b"hot", turn));
    let cold = fixture.turn(|store, turn| store.watch(b"cold", turn));
    for n in 0..30_000 {
        assert_eq!(put(&mut fixture, &format!("key{n}"), 1000), "+OK");
        fixture.run("GET hot");
    }
    assert_eq!(fixture.run("EXISTS cold"), ":0");
    fixture.turn(|store, turn| {
        assert!(store.watch_dirty(&cold, turn));
        assert!(!store.watch_dirty(&hot, turn));
        store.unwatch(hot);
        store.unwatch(cold);
    });
}

/// In a transaction no key goes, so it sees one keyspace. Its writes are all or nothing as ever.
#[test]
fn a_transaction_loses_no_key() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for n in 0..10_000 {
        put(&mut fixture, &format!("key{n}"), 1000);
    }
    let before = stats(&mut fixture).evicted_keys;
    assert!(before > 0);
    fixture.turn(|store, turn| {
        assert!(store.prepare_writes(100_000, false, turn));
        store.begin();
    });
    let after_room = stats(&mut fixture).evicted_keys;
    for n in 0..100 {
        assert_eq!(put(&mut fixture, &format!("staged{n}"), 1000), "+OK");
    }
    assert_eq!(stats(&mut fixture).evicted_keys, after_room);
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    for n in 0..100 {
        assert_eq!(fixture.run(&format!("EXISTS staged{n}")), ":1");
    }
}

/// A transaction begins when memory is fuller than the policy allows, and no room was made before.
/// While it runs no key goes, neither before a write nor for a refused one. The room that it lacked
/// is made after it.
#[test]
fn nothing_is_evicted_while_a_transaction_runs() {
    for value_bytes in [10, 1000, 60_000] {
        let mut fixture = fixture(Policy::NoEviction);
        let fill = |fixture: &mut Fixture, n: usize| put(fixture, &format!("key{n}"), 500);
        assert!((0..100_000).any(|n| fill(&mut fixture, n) == OOM), "it is full");
        let value = vec![b'v'; value_bytes];
        fixture.turn(|store, turn| {
            store.set_eviction(Policy::AllKeysLru, SAMPLES);
            let keys = store.stats().keys;
            store.begin();
            let mut written = 0;
            for n in 0..2000 {
                let key = format!("staged{n}");
                let mut reply = Resp2::default();
                store.apply(op(b"SET"), &[b"SET", key.as_bytes(), &value], turn, &mut reply);
                written += u64::from(reply.0 == b"+OK\r\n");
                let stats = store.stats();
                assert_eq!(stats.evicted_keys, 0, "write {n} of {value_bytes} bytes");
                if store.is_refused() {
                    break;
                }
            }
            assert!(store.is_refused(), "{written} writes found room");
            assert!(store.commit(turn).is_err(), "it is all or nothing");
            assert_eq!(store.stats().keys, keys);
        });
        assert_eq!(put(&mut fixture, "after", value_bytes), "+OK", "room is made for others");
        assert!(stats(&mut fixture).evicted_keys > 0);
    }
}

/// Keys that only a view reads stay; keys that no shard reads go. The same holds after the policy
/// was off for a while, when the views' hits were thrown away.
#[test]
fn what_views_read_stays() {
    let mut fixture = fixture(Policy::AllKeysLru);
    let views = fixture.turn(|store, _| store.views());
    let mut view = Store::view(views);
    view.set_eviction(Policy::AllKeysLru, SAMPLES);
    for n in 0..200 {
        put(&mut fixture, &format!("hot{n}"), 1000);
        put(&mut fixture, &format!("cold{n}"), 1000);
    }
    for n in 0..20_000 {
        assert_eq!(put(&mut fixture, &format!("key{n}"), 1000), "+OK");
        fixture.turn(|_, turn| {
            let mut out = Resp2::default();
            for read in 0..4 {
                let name = format!("hot{}", (n * 4 + read) % 200);
                view.apply(op(b"GET"), &[b"GET", name.as_bytes()], turn, &mut out);
            }
            view.maintain(turn);
        });
        if n == 1000 {
            set(&mut fixture, Policy::NoEviction);
            set(&mut fixture, Policy::AllKeysLru);
        }
    }
    let left = |fixture: &mut Fixture, name: &str| {
        (0..200).filter(|n| fixture.run(&format!("EXISTS {name}{n}")) == ":1").count()
    };
    let (hot, cold) = (left(&mut fixture, "hot"), left(&mut fixture, "cold"));
    // Samples are random: one in a hundred runs has left a key that no sample has met.
    assert!(hot >= 195 && cold <= 5, "{hot} hot, {cold} cold");
}

#[test]
fn an_append_makes_room_for_what_it_adds() {
    // APPEND once made room for the whole value, though it writes only the new bytes. A long log
    // emptied the keyspace.
    let mut fixture = Fixture::with_capacity(32 << 20);
    fixture.turn(|store, _| store.set_eviction(Policy::AllKeysLru, 5));
    let long = vec![b'l'; 8 << 20];
    fixture.bytes(&[b"SET", b"log", &long]);
    fixture.script(&[("APPEND log +", ":8388609")]);
    let value = vec![b'v'; 1000];
    for n in 0..40_000 {
        assert_eq!(fixture.bytes(&[b"SET", format!("key{n}").as_bytes(), &value]), b"+OK\r\n");
        if n % 100 == 0 {
            fixture.bytes(&[b"GET", b"log"]);
        }
    }
    let before = fixture.turn(|store, _| store.stats());
    assert!(before.evicted_keys > 1000, "memory is full");
    for _ in 0..500 {
        fixture.bytes(&[b"APPEND", b"log", &value]);
    }
    assert_eq!(fixture.run("STRLEN log"), format!(":{}", (8 << 20) + 1 + 500 * 1000));
    let gone = fixture.turn(|store, _| store.stats()).evicted_keys - before.evicted_keys;
    assert!(gone < 3000, "{gone} keys went for 500 KB");
}

/// SETRANGE at the end once made room for the whole value, as if it copied it: some thousand keys
/// went for each half MB of it.
#[test]
fn a_setrange_at_the_end_makes_room_for_what_it_adds() {
    let mut fixture = Fixture::with_capacity(32 << 20);
    set(&mut fixture, Policy::AllKeysLru);
    fixture.bytes(&[b"SET", b"blob", &vec![b'l'; 12 << 20]]);
    fixture.script(&[("APPEND blob +", ":12582913")]); // into a run with room behind it
    for n in 0..5000 {
        assert_eq!(put(&mut fixture, &format!("key{n}"), 100), "+OK");
    }
    let before = stats(&mut fixture).evicted_keys;
    let piece = vec![b'p'; 1000];
    for n in 0..500 {
        let end = (12 << 20) + 1 + n * 1000;
        fixture.bytes(&[b"SETRANGE", b"blob", end.to_string().as_bytes(), &piece]);
    }
    assert_eq!(fixture.run("STRLEN blob"), format!(":{}", (12 << 20) + 1 + 500 * 1000));
    assert_eq!(stats(&mut fixture).evicted_keys - before, 0, "memory is half empty");
}

/// Keys went, in each turn for a second, for a SETRANGE whose zeros alone are more than all memory.
#[test]
fn no_key_goes_for_a_setrange_that_never_fits() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for n in 0..5000 {
        assert_eq!(put(&mut fixture, &format!("key{n}"), 100), "+OK");
    }
    for command in ["SETRANGE fresh 200000000 x", "SETRANGE key1 200000000 x"] {
        assert_eq!(fixture.run(command), OOM);
    }
    for (command, told) in [
        ("SETRANGE key1 536870912 x", "-ERR string exceeds maximum allowed size"),
        ("SETRANGE key1 200000000 \"\"", ":100"),
        ("SETRANGE key1 -1 x", "-ERR offset is out of range"),
        ("SETRANGE key1 y x", "-ERR value is not an integer"),
    ] {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let words: Vec<&[u8]> =
            words.into_iter().map(|it| if it == b"\"\"" { b"" } else { it }).collect();
        let said = String::from_utf8(fixture.bytes(&words)).expect("text");
        assert!(said.starts_with(told), "{command}: {said}");
    }
    assert_eq!(stats(&mut fixture).evicted_keys, 0);
}
