//! Policies of eviction: which key goes first, and how old a key is.

use std::collections::BTreeMap;

use nigh_store::Policy;

use crate::eviction::{Numbers, OOM, fixture, put, set, stats};
use crate::support::Fixture;

/// Keys are drawn as in a cache (zipf, 0.99), read, and written on a miss. Hits are within a point
/// of an exact LRU that holds as many keys.
#[test]
fn hits_are_close_to_those_of_an_exact_lru() {
    const KEYS: u64 = 30_000;
    let mut fixture = fixture(Policy::AllKeysLru);
    let mut numbers = Numbers(4);
    let mut draw = zipf(KEYS);
    let value = vec![b'v'; 700];
    let trace: Vec<u64> = (0..200_000).map(|_| draw(&mut numbers)).collect();
    let (warm_up, measured) = trace.split_at(trace.len() / 2);
    let mut run = |part: &[u64]| {
        let mut hits = 0_u64;
        for key in part {
            let name = format!("key{key}");
            if fixture.bytes(&[b"GET", name.as_bytes()]) != b"$-1\r\n" {
                hits += 1;
            } else {
                assert_eq!(fixture.bytes(&[b"SET", name.as_bytes(), &value]), b"+OK\r\n");
            }
        }
        (hits, fixture.run("DBSIZE")[1..].parse::<usize>().expect("a number"))
    };
    run(warm_up);
    let (hits, held) = run(measured);
    let mut exact = ExactLru::new(held);
    warm_up.iter().for_each(|key| {
        exact.uses(*key);
    });
    let exact_hits = measured.iter().filter(|key| exact.uses(**key)).count() as u64;
    let points = |hits: u64| hits * 10_000 / measured.len() as u64;
    let (ours, theirs) = (points(hits), points(exact_hits));
    assert!(held > 5000 && held < 12_000, "{held} keys are held");
    assert!(ours + 100 >= theirs, "{held} keys: {ours} of 10000 hit, an exact LRU has {theirs}");
}

/// Keys by rank, each as likely as 1 / rank^0.99.
fn zipf(keys: u64) -> impl FnMut(&mut Numbers) -> u64 {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += f64::powf(f64::from(u32::try_from(rank).expect("few")), -0.99);
            sum
        })
        .collect();
    move |numbers| {
        let at = f64::from(u32::try_from(numbers.below(1 << 31)).expect("31 bits")) / 2f64.powi(31);
        sums.partition_point(|below| *below < at * sum) as u64
    }
}

/// Holds so many keys, and drops the one that was used longest ago.
struct ExactLru {
    capacity: usize,
    clock: u64,
    used: BTreeMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl ExactLru {
    fn new(capacity: usize) -> ExactLru {
        ExactLru { capacity, clock: 0, used: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// Uses a key; returns whether it was there. Now it is.
    fn uses(&mut self, key: u64) -> bool {
        self.clock += 1;
        let before = self.used.insert(key, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, key);
        if self.used.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

/// Only keys with an expiry go, unused ones first. When none is left, writes are refused.
#[test]
fn volatile_lru_takes_keys_with_an_expiry_only() {
    let mut fixture = fixture(Policy::VolatileLru);
    for n in 0..300 {
        assert_eq!(put(&mut fixture, &format!("lasting{n}"), 1000), "+OK");
    }
    for n in 0..200 {
        fixture.run(&format!("SET hot{n} {} EX 10000", "h".repeat(1000)));
    }
    for n in 0..20_000 {
        assert_eq!(
            fixture.run(&format!("SET cold{n} {} EX 10000", "c".repeat(1000))),
            "+OK",
            "{:?}",
            stats(&mut fixture)
        );
        fixture.run(&format!("GET hot{}", n % 200));
    }
    let count = |fixture: &mut Fixture, name: &str, of: usize| {
        (0..of).filter(|n| fixture.run(&format!("EXISTS {name}{n}")) == ":1").count()
    };
    assert_eq!(count(&mut fixture, "lasting", 300), 300);
    let hot = count(&mut fixture, "hot", 200);
    assert!(hot >= 195, "{hot} of 200 keys that are used all the time are left");
    let mut n = 0;
    while put(&mut fixture, &format!("more{n}"), 1000) == "+OK" {
        n += 1;
    }
    assert_eq!(put(&mut fixture, "more", 100_000), OOM);
    assert_eq!(stats(&mut fixture).expires, 0, "first all went that may");
    assert_eq!(count(&mut fixture, "lasting", 300), 300);
    assert_eq!(count(&mut fixture, "more", n), n);
}

/// Of keys with an expiry, those whose time is over soonest go, used or not.
#[test]
fn volatile_ttl_takes_the_soonest() {
    let mut fixture = fixture(Policy::VolatileTtl);
    assert_eq!(stats(&mut fixture).recency_bytes, 0, "nobody asks when keys were used");
    let value = "v".repeat(1000);
    for n in 0..3000 {
        let seconds = if n % 2 == 0 { 1000 + n } else { 1_000_000 + n };
        assert_eq!(fixture.run(&format!("SET key{n} {value} EX {seconds}")), "+OK");
    }
    let mut n = 0;
    while stats(&mut fixture).evicted_keys < 1000 {
        assert_eq!(put(&mut fixture, &format!("lasting{n}"), 1000), "+OK");
        n += 1;
    }
    let left = |fixture: &mut Fixture, odd: u32| {
        let keys = (0..1500).map(|n| 2 * n + odd);
        keys.filter(|n| fixture.run(&format!("EXISTS key{n}")) == ":1").count()
    };
    let (soon, late) = (left(&mut fixture, 0), left(&mut fixture, 1));
    assert!(late >= 1480 && soon < 530, "{soon} soon, {late} late");
}

/// The policy changes while the store is full: writes are refused, taken, and refused again.
#[test]
fn the_policy_can_be_changed_at_any_time() {
    let mut fixture = fixture(Policy::NoEviction);
    let fill = |fixture: &mut Fixture, name: &str| {
        (0..20_000).take_while(|n| put(fixture, &format!("{name}{n}"), 1000) == "+OK").count()
    };
    let filled = fill(&mut fixture, "a");
    assert!(filled < 20_000);
    assert_eq!(stats(&mut fixture).recency_bytes, 0);
    set(&mut fixture, Policy::AllKeysLru);
    assert_eq!(fill(&mut fixture, "b"), 20_000);
    assert!(stats(&mut fixture).recency_bytes > 0);
    set(&mut fixture, Policy::VolatileLru);
    assert!(fill(&mut fixture, "c") < 20_000);
    set(&mut fixture, Policy::AllKeysLru);
    assert_eq!(fill(&mut fixture, "d"), 20_000);
    set(&mut fixture, Policy::NoEviction);
    assert!(fill(&mut fixture, "e") < 20_000);
    assert_eq!(stats(&mut fixture).recency_bytes, 0);
    let held = stats(&mut fixture).keys;
    assert!(held * 100 > filled as u64 * 80, "{held} of {filled} keys");
}

/// OBJECT IDLETIME tells how long ago a key was read or written. Looking at it doesn't count.
#[test]
fn idle_time_is_told() {
    let mut fixture = fixture(Policy::AllKeysLru);
    put(&mut fixture, "a", 10);
    put(&mut fixture, "b", 10);
    for _ in 0..100 {
        fixture.now_ms += 1000;
        fixture.script(&[
            ("TTL a", ":-1"),
            ("EXISTS a", ":1"),
            ("TYPE a", "+string"),
            ("TOUCH b", ":1"),
        ]);
    }
    let idle = |fixture: &mut Fixture, key: &str| {
        fixture.run(&format!("OBJECT IDLETIME {key}"))[1..].parse::<u32>().expect("a number")
    };
    assert!((98..=101).contains(&idle(&mut fixture, "a")));
    assert!(idle(&mut fixture, "b") <= 1);
    fixture.run("GET a");
    assert!(idle(&mut fixture, "a") <= 1);
    // A new expiry is a write, though the value isn't copied.
    for _ in 0..100 {
        fixture.now_ms += 1000;
        fixture.end_turn();
    }
    assert_eq!(fixture.run("EXPIRE a 1000"), ":1");
    assert!(idle(&mut fixture, "a") <= 1 && idle(&mut fixture, "b") >= 98);
    // So are the writes of several keys, and those of a transaction.
    fixture.script(&[("MSET c 1 b 1", "+OK")]);
    assert!(idle(&mut fixture, "b") <= 1 && idle(&mut fixture, "c") <= 1);
    for _ in 0..100 {
        fixture.now_ms += 1000;
        fixture.end_turn();
    }
    fixture.turn(|store, _| store.begin());
    fixture.script(&[("SET b 2", "+OK")]);
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    assert!(idle(&mut fixture, "b") <= 1 && idle(&mut fixture, "c") >= 98);
}

/// Reads leave keys as old as they are, if their client asks for that. Writes and TOUCH don't.
#[test]
fn reads_leave_keys_as_old_as_they_are_if_asked() {
    let mut fixture = fixture(Policy::AllKeysLru);
    for (keep, command, is_used) in [
        (true, "GET a", false),
        (true, "TOUCH a", true),
        (true, "SET a 1", true),
        (false, "GET a", true),
    ] {
        put(&mut fixture, "a", 10);
        for _ in 0..100 {
            fixture.now_ms += 1000;
            fixture.end_turn();
        }
        fixture.turn(|store, _| store.keep_ages(keep));
        fixture.run(command);
        fixture.turn(|store, _| store.keep_ages(false));
        let idle = fixture.run("OBJECT IDLETIME a")[1..].parse::<u32>().expect("a number");
        assert!(if is_used { idle <= 1 } else { idle >= 98 }, "{command}: {idle} s");
    }
}
