//! The pool, and what a change of the policy keeps.

use super::*;

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
