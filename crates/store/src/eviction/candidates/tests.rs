//! Which keys are sampled, which of them stay in the pool, and which goes.

use std::ops::Range;

use super::*;
use crate::tests_store::SmallStore;

fn pool(eviction: &Eviction) -> Vec<(u64, u32)> {
    eviction.pool.iter().map(|known| (known.score, known.hash)).collect()
}

#[test]
fn the_pool_keeps_the_best_in_their_order_and_each_key_once() {
    let mut eviction = Eviction::new(Policy::AllKeysLru, 5);
    for score in (0..64).rev() {
        eviction.offer(10 + score, u32::try_from(score).expect("a few"));
    }
    let full = pool(&eviction);
    assert!(full.len() == POOL_KEYS && full.is_sorted());
    // Known already, or no better than the worst.
    let offer_all = |eviction: &mut Eviction, all: [(u64, u32); 3]| {
        all.into_iter().for_each(|(score, hash)| eviction.offer(score, hash));
    };
    offer_all(&mut eviction, [(500, 7), (10, 100), (9, 101)]);
    assert_eq!(pool(&eviction), full);
    // The worst makes room. Of two that are as good, the one that came first goes first.
    offer_all(&mut eviction, [(40, 102), (500, 103), (500, 104)]);
    let now = pool(&eviction);
    assert_eq!((now.len(), now[0], now[62], now[63]), (POOL_KEYS, (13, 3), (500, 104), (500, 103)));
    let at = now.iter().position(|known| *known == (40, 102)).expect("it is better");
    assert_eq!((now[at - 1], now[at + 1]), ((39, 29), (40, 30)));
}

#[test]
fn another_policy_forgets_the_pool_and_keeps_ages_that_it_wants_too() {
    let mut eviction = Eviction::new(Policy::AllKeysLru, 5);
    let age = |eviction: &Eviction| eviction.recency.as_ref().map(|recency| recency.age(9));
    eviction.recency.as_mut().expect("an LRU policy").touch(9);
    let known = age(&eviction);
    assert!(known.is_some_and(|age| age < UNKNOWN));
    eviction.offer(1, 1);
    eviction.set(Policy::AllKeysLru, 7);
    assert_eq!((eviction.samples, pool(&eviction), age(&eviction)), (7, vec![(1, 1)], known));
    for (policy, samples, aged) in [
        (Policy::VolatileLru, 8, known),
        (Policy::VolatileTtl, 9, None),
        (Policy::VolatileLru, 10, Some(UNKNOWN)),
    ] {
        eviction.offer(1, 1);
        eviction.set(policy, samples);
        let found = (eviction.policy(), eviction.samples, pool(&eviction), age(&eviction));
        assert_eq!(found, (policy, samples, vec![], aged));
    }
}

/// Numbers of turns: each begins other random choices.
const SEEDS: Range<u64> = 1..101;

/// A store with so many keys, which have this expiry.
fn filled(keys: u32, expiry_ms: u64) -> SmallStore {
    let mut small = SmallStore::new();
    (0..keys).for_each(|n| small.put(&format!("key{n:06}"), 1, expiry_ms).expect("room"));
    (0..20).for_each(|_| small.end_turn()); // its index has grown
    small
}

/// No key's time is over before this.
const LATER_MS: u64 = 1_800_000_000_000;

/// What `f` did to a new owner's state under each of these seeds.
fn each<T>(
    small: &mut SmallStore,
    (policy, samples): (Policy, u32),
    f: impl Fn(&mut Eviction, &Reader, &Turn<'_>) -> T,
) -> Vec<T> {
    let one = |random| {
        small.turn(|store, turn| {
            let turn = Turn { random, ..*turn };
            f(&mut Eviction::new(policy, samples), store.reader(), &turn)
        })
    };
    SEEDS.map(one).collect()
}

/// A key whose time is over goes first. Under LRU the older goes sooner, else the one whose time
/// is over sooner; one without an expiry goes only if all keys may.
#[test]
fn a_score_says_which_key_goes_first() {
    let mut small = SmallStore::new();
    let now_ms = small.now_ms;
    for (key, expiry_ms) in [("lasting", 0), ("soon", now_ms + 10), ("late", now_ms + 30)] {
        small.put(key, 1, expiry_ms).expect("room");
    }
    let score = |small: &mut SmallStore, eviction: &mut Eviction, key: &str, now_ms: u64| {
        let hash = small.store.hash(key.as_bytes());
        small.turn(|store, turn| {
            let record = store.reader().any_of_hash(turn.pin, hash).expect("it is there");
            let score = eviction.score(&record, now_ms);
            eviction.pool.clear();
            assert_eq!(eviction.consider(&record, now_ms), score.is_some());
            let pooled = score.map(|score| (score, hash));
            assert_eq!(pool(eviction), Vec::from_iter(pooled));
            score
        })
    };
    let unknown = Some(u64::from(UNKNOWN));
    for (policy, lasting, soon, late) in [
        (Policy::AllKeysLru, unknown, unknown, Some(0)),
        (Policy::VolatileLru, None, unknown, Some(0)),
        (Policy::VolatileTtl, None, Some(u64::MAX - now_ms - 11), Some(u64::MAX - now_ms - 31)),
    ] {
        let mut eviction = Eviction::new(policy, 5);
        eviction.recency.iter_mut().for_each(|it| it.touch(small.store.hash(b"late")));
        let mut scored = |key: &str, now_ms| score(&mut small, &mut eviction, key, now_ms);
        let found = ["lasting", "soon", "late"].map(|key| scored(key, now_ms));
        assert_eq!(found, [lasting, soon, late], "{policy:?}");
        assert_eq!(scored("soon", now_ms + 11), Some(u64::MAX), "{policy:?}: it is over");
        assert_eq!(scored("lasting", u64::MAX), lasting, "{policy:?}: it is never over");
    }
}

/// Lines are looked at until they have enough keys, and none after that. At least one is looked at
/// for each key that is to go.
#[test]
fn lines_are_sampled_until_they_have_enough_keys() {
    // 1,638 keys fill 256 lines to four fifths.
    let mut small = filled(1600, 0);
    let entries = 8;
    for (samples, keys) in [(8, 1), (5, 1), (10, 4)] {
        let found = each(&mut small, (Policy::AllKeysLru, samples), |eviction, reader, turn| {
            eviction.sample(keys, reader, turn);
            u32::try_from(eviction.pool.len()).expect("few")
        });
        let wanted = samples * keys;
        // A line may come twice.
        let enough = found.iter().filter(|count| **count >= wanted).count();
        assert!(enough > 70, "{samples} {keys}: {found:?}");
        let most = (wanted - 1).max((keys - 1) * entries) + entries;
        assert!(found.iter().all(|count| *count <= most), "{samples} {keys}: {found:?}");
    }
}

/// Most keys have gone, and hardly a line has one. The search looks at 17 lines for each key, and
/// if it finds nothing there, it takes a key from anywhere.
#[test]
fn a_search_in_an_empty_index_is_bounded_and_finds_a_key() {
    let mut small = filled(6400, 0);
    (0..6200).for_each(|n| small.delete(&format!("key{n:06}")));
    let found = each(&mut small, (Policy::AllKeysLru, 10), |eviction, reader, turn| {
        eviction.sample(4, reader, turn);
        eviction.pool.len()
    });
    // So many of the 200 keys stand in 68 lines.
    let expected = 100 * 68 * 200 / small.store.data.stats().index_lines;
    let sum = found.iter().sum::<usize>() as u64;
    assert!((expected * 7..expected * 13).contains(&(sum * 10)), "{sum} {expected}: {found:?}");
    (6201..6400).for_each(|n| small.delete(&format!("key{n:06}")));
    let found = each(&mut small, (Policy::AllKeysLru, 5), |eviction, reader, turn| {
        eviction.sample(1, reader, turn);
        eviction.pool.len()
    });
    assert_eq!(found, [1; 100]);
}

/// Each search of a turn has other random choices, and so have those of two turns.
#[test]
fn no_two_searches_sample_the_same_keys() {
    for policy in [Policy::AllKeysLru, Policy::VolatileTtl] {
        let mut small = filled(6000, LATER_MS);
        let found = each(&mut small, (policy, 1), |eviction, reader, turn| {
            let search = |_| {
                eviction.pool.clear();
                eviction.sample(1, reader, turn);
                pool(eviction)
            };
            (0..8).map(search).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = found.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        // By chance some lines come twice.
        assert!(all.len() > 400, "{policy:?}: {} of 800 differ", all.len());
    }
}

/// Only keys with an expiry are wanted: so many as are sampled, and no more. Eight times as many
/// are looked at, at most.
#[test]
fn keys_with_an_expiry_are_sampled_by_chance() {
    let mut small = filled(6000, LATER_MS);
    let found = each(&mut small, (Policy::VolatileTtl, 5), |eviction, reader, turn| {
        eviction.sample(1, reader, turn);
        eviction.pool.len()
    });
    assert!(found.iter().all(|count| *count <= 5), "{found:?}");
    assert!(found.iter().filter(|count| **count == 5).count() > 90, "{found:?}");
    // One of 20 has an expiry: of 40 keys, two.
    let mut small = filled(5700, 0);
    (0..300).for_each(|n| small.put(&format!("over{n:06}"), 1, LATER_MS).expect("room"));
    let found = each(&mut small, (Policy::VolatileTtl, 5), |eviction, reader, turn| {
        eviction.offer(1, 0); // so that the search doesn't go on in order
        eviction.sample(1, reader, turn);
        eviction.pool.len() - 1
    });
    let sum: usize = found.iter().sum();
    assert!((100..300).contains(&sum), "{found:?}");
}

/// Chance finds none of the keys that may go: the search goes on in order, from where it was.
#[test]
fn a_search_in_order_finds_what_chance_does_not() {
    let mut small = filled(6000, 0);
    let first = small.turn(|store, turn| {
        let mut first = Vec::new();
        let mut meet = |record: Record<'_>| first.push(record.key().to_vec());
        store.reader().scan(turn.pin, 0, WALK_LINES, &mut meet);
        first
    });
    let key = std::str::from_utf8(&first[first.len() / 2]).expect("text");
    small.put(key, 1, LATER_MS).expect("room");
    let hash = small.store.hash(key.as_bytes());
    let found = each(&mut small, (Policy::VolatileTtl, 5), |eviction, reader, turn| {
        eviction.sample(1, reader, turn);
        pool(eviction).len() == 1 && eviction.pool[0].hash == hash
    });
    assert_eq!(found, [true; 100]);
    // Of 60 keys in 64 lines each is met once in a round.
    let mut small = filled(60, LATER_MS);
    let mut eviction = Eviction::new(Policy::VolatileTtl, 5);
    small.turn(|store, turn| {
        eviction.walk(32, store.reader(), turn);
        let half = eviction.pool.len();
        assert!((10..50).contains(&half), "{half} of 60");
        eviction.walk(32, store.reader(), turn);
        assert_eq!(eviction.pool.len(), 60);
    });
}

/// A key's lines are full: of what stands there only, one is chosen.
#[test]
fn only_keys_of_the_same_lines_are_sampled_for_a_place() {
    let mut small = filled(6000, 0);
    (0..3000).for_each(|n| small.put(&format!("key{n:06}"), 1, LATER_MS).expect("room"));
    for policy in [Policy::AllKeysLru, Policy::VolatileLru, Policy::VolatileTtl] {
        let mut eviction = Eviction::new(policy, 5);
        small.turn(|store, turn| {
            let (reader, hash) = (store.reader(), store.hash(b"new"));
            let mut wanted = Vec::new();
            reader.visit_probe(turn.pin, hash, &mut |hash| wanted.push(hash));
            wanted.retain(|hash| {
                let record = reader.any_of_hash(turn.pin, *hash).expect("it is there");
                policy == Policy::AllKeysLru || record.expiry_ms() != 0
            });
            wanted.truncate(POOL_KEYS);
            eviction.offer(u64::MAX, !hash);
            eviction.sample_probe(hash, reader, turn);
            let mut found: Vec<u32> = pool(&eviction).iter().map(|known| known.1).collect();
            assert!(found.len() > 10, "{policy:?}: {}", found.len());
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{policy:?}");
        });
    }
}

/// A candidate goes if it is there, and may go as soon as when it was met; a key that was used or
/// written since then stays. Without candidates keys are sampled anew.
#[test]
fn a_candidate_is_looked_at_again_before_it_goes() {
    let mut small = SmallStore::new();
    let now_ms = small.now_ms;
    for (key, expiry_ms) in [("same", 300), ("gone", 100), ("later", 200), ("sooner", 300)] {
        small.put(key, 1, now_ms + expiry_ms).expect("room");
    }
    let mut eviction = Eviction::new(Policy::VolatileTtl, 5);
    small.turn(|store, turn| eviction.walk(64, store.reader(), turn));
    assert_eq!(eviction.pool.len(), 4);
    small.delete("gone");
    small.put("later", 1, now_ms + 400).expect("room");
    small.put("sooner", 1, now_ms + 50).expect("room");
    let mut take = |small: &mut SmallStore| {
        small.turn(|store, turn| {
            let taken = eviction.take_best(store.reader(), turn);
            taken.map(|record| String::from_utf8(record.key().to_vec()).expect("text"))
        })
    };
    let mut taken = [take(&mut small), take(&mut small)];
    taken.sort_unstable();
    assert_eq!(taken, [Some("same".to_owned()), Some("sooner".to_owned())]);
    assert_eq!(take(&mut small), None);
    small.turn(|store, turn| {
        let chosen = eviction.choose(store.reader(), turn).expect("it samples again");
        assert!(chosen.expiry_ms() > 0);
    });
}
