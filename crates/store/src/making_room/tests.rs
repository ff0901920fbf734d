//! How much goes, and when: each bound from both sides.

use super::*;
use crate::eviction::recency::UNKNOWN;
use crate::tests_store::SmallStore;

/// Keys for which an index of 65,536 entries doesn't ask for a larger table yet.
const FEW_KEYS: u32 = 42_000;

/// A full store whose keys are all of one size, which is told too.
fn full(value_bytes: usize, policy: Policy) -> (SmallStore, u64) {
    let mut small = SmallStore::new();
    small.fill_up("key", value_bytes, 0);
    small.store.data.forget_crowded();
    small.set(policy);
    let fill = small.fill();
    assert!(small.store.is_short(0) && fill.record_bytes.is_multiple_of(fill.keys), "{fill:?}");
    (small, fill.record_bytes / fill.keys)
}

/// A store whose index finds no memory for a larger table, with fewer keys than make it full.
fn without_table() -> SmallStore {
    let mut small = SmallStore::new();
    (0..FEW_KEYS).for_each(|n| small.put(&format!("key{n:06}"), 1, 0).expect("room"));
    let large = small.fill_up("large", 60_000, 0);
    // Holes in which no table fits.
    (0..large).step_by(3).for_each(|n| small.delete(&format!("large{n:06}")));
    small.end_turn();
    let mut keys = FEW_KEYS..100_000;
    while small.fill().entries == u64::MAX {
        let n = keys.next().expect("it lacks a table");
        small.put(&format!("key{n:06}"), 1, 0).expect("room");
    }
    small.set(Policy::AllKeysLru);
    small
}

fn slack(small: &mut SmallStore) -> &mut u64 {
    &mut small.store.usage.eviction.as_mut().expect("a policy").slack
}

fn has_gone(small: &SmallStore) -> bool {
    small.store.usage.eviction.as_ref().is_some_and(|eviction| eviction.has_gone)
}

/// How many keys go while `f` runs.
fn gone<T>(small: &mut SmallStore, f: impl FnOnce(&mut Store, &Turn<'_>) -> T) -> (u64, T) {
    let before = small.fill().keys;
    let result = small.turn(f);
    (before - small.fill().keys, result)
}

/// Evicts all that is above the mark.
fn down_to_the_mark(small: &mut SmallStore) {
    small.turn(|store, turn| store.evict(0, 0..u64::MAX, u32::MAX, turn));
    assert!(!small.store.is_short(0));
}

/// Nine tenths of the room are the mark: it is reached by records, or by bytes that are to come.
#[test]
fn memory_is_short_from_the_mark_on_if_there_is_a_key() {
    let mut small = SmallStore::new();
    assert!(!small.store.is_short(u64::MAX), "nothing could go");
    (0..1000).for_each(|n| small.put(&format!("key{n:06}"), 1000, 0).expect("room"));
    for n in 0..9 {
        if small.fill().record_bytes.is_multiple_of(9) {
            break;
        }
        small.put(&format!("more{n:06}"), 1, 0).expect("room");
    }
    let fill = small.fill();
    assert!(fill.record_bytes.is_multiple_of(9) && fill.entries == u64::MAX, "{fill:?}");
    let enough = fill.room_bytes - fill.record_bytes / 9 * 10;
    assert!(small.store.is_short(enough) && !small.store.is_short(enough - 1), "{fill:?}");
}

/// An index without memory for its next table is full with three quarters of its entries. What may
/// be written unseen is no more than the new keys that it may take, or a batch.
#[test]
fn an_index_that_cannot_grow_is_full_at_three_quarters() {
    // Cleaning may join the holes, or find none for a key: then another store is asked.
    let found = (0..20).find_map(|_| {
        let mut small = without_table();
        let entries = small.fill().entries;
        let most = entries * 3 / 4;
        let put = |small: &mut SmallStore, until: u64| {
            let mut keys = small.fill().keys..until;
            let all_fit = keys.all(|n| small.put(&format!("new{n}"), 1, 0).is_ok());
            (all_fit && small.fill().entries == entries).then_some(())
        };
        put(&mut small, most - 1000)?;
        small.store.note_slack(0);
        let keys = entries / 100 * 75 - (most - 1000);
        let is_for_keys = *slack(&mut small) == keys * RECORD_OVERHEAD_BYTES;
        put(&mut small, most - 1)?;
        let is_early = small.store.is_short(0);
        put(&mut small, most)?;
        let is_short = small.store.is_short(0);
        small.store.note_slack(1_000_000);
        Some((is_for_keys, is_early, is_short, *slack(&mut small)))
    });
    let batch_bytes = WRITES_AHEAD * RECORD_OVERHEAD_BYTES;
    assert_eq!(found, Some((true, false, true, batch_bytes)));
}

/// A write takes its bytes, and some for its record, of what may be written unseen. If that isn't
/// enough, it looks.
#[test]
fn a_write_looks_for_room_when_it_has_used_up_what_it_may_write_unseen() {
    let (mut small, _) = full(2000, Policy::AllKeysLru);
    for (before, after) in [(1000, 836), (164, 0)] {
        *slack(&mut small) = before;
        assert_eq!(gone(&mut small, |store, turn| store.make_room(100, turn)).0, 0);
        assert_eq!(*slack(&mut small), after);
    }
    *slack(&mut small) = 163;
    assert_ne!(gone(&mut small, |store, turn| store.make_room(100, turn)).0, 0);
}

/// Much is too much: four times as much goes as a write brings, with those after it in a batch, but
/// no more than a part of all room. A fourth of it may be written then.
#[test]
fn what_is_too_much_goes_four_times_as_fast_as_writes_bring_new_data() {
    let (mut small, size) = full(2000, Policy::AllKeysLru);
    for (bytes, is_capped) in [(1000, true), (10, false)] {
        *slack(&mut small) = 0;
        let takes = bytes as u64 + 64;
        let cap = small.fill().room_bytes / 1024;
        assert_eq!(16 * takes > cap, is_capped);
        let keys = (4 * (takes + cap.min(16 * takes))).div_ceil(size);
        assert!((2..32).contains(&keys), "{keys}");
        assert_eq!(gone(&mut small, |store, turn| store.make_room(bytes, turn)).0, keys);
        assert!(small.store.is_short(0));
        assert_eq!(*slack(&mut small), keys * size / 4);
    }
    // Of small keys, a write takes 32.
    let (mut small, _) = full(100, Policy::AllKeysLru);
    assert_eq!(gone(&mut small, |store, turn| store.make_room(1000, turn)).0, 32);
}

/// At the mark, so much goes that there is room for a batch of writes, and none for a write that
/// finds room itself. What was made free may be written unseen, or half of all that is free.
#[test]
fn a_write_at_the_mark_makes_room_for_a_batch() {
    let (mut small, size) = full(2000, Policy::AllKeysLru);
    down_to_the_mark(&mut small);
    let before = small.fill();
    *slack(&mut small) = 0;
    let takes = 3064;
    let room = before.room_bytes - takes - before.room_bytes / 1024;
    let is_enough = |keys: &u64| (before.record_bytes - keys * size) * 100 < room * 90;
    let keys = (0..32).find(is_enough).expect("a few");
    assert_eq!(gone(&mut small, |store, turn| store.make_room(3000, turn)).0, keys);
    let after = small.fill();
    let free = after.room_bytes / 100 * 90 - after.record_bytes;
    assert!(keys > 2 && keys * size > free / 2);
    assert_eq!(*slack(&mut small), free.min(keys * size));
    small.store.note_slack(0);
    assert_eq!(*slack(&mut small), free / 2);
    *slack(&mut small) = 0;
    let bytes = usize::try_from(free - 64).expect("few");
    assert_eq!(gone(&mut small, |store, turn| store.make_room(bytes, turn)).0, 0);
}

/// A write that couldn't have its room if all keys went takes none: values beside the segments and
/// the index could give theirs too.
#[test]
fn room_is_made_for_what_all_memory_could_hold() {
    let mut small = SmallStore::new();
    small.put("large", 1_000_000, 0).expect("room");
    let fill = small.fill();
    assert!(fill.run_bytes > 0 && fill.index_bytes > 0, "{fill:?}");
    let most = fill.room_bytes + fill.run_bytes + fill.index_bytes;
    assert!(small.store.may_fit(most) && !small.store.may_fit(most + 1));
}

/// A transaction that begins again waits until no memory is on its way any more; a first attempt
/// doesn't. A view has none to wait for.
#[test]
fn a_transaction_that_begins_again_waits_for_memory_on_its_way() {
    let mut small = SmallStore::new();
    let keys = small.fill_up("key", 2000, 0);
    small.set(Policy::AllKeysLru);
    (0..keys).for_each(|n| small.delete(&format!("key{n:06}")));
    small.turn(|store, turn| {
        store.maintain(turn);
        assert!(store.data.is_reclaiming());
        assert!(store.prepare_writes(10, false, turn) && store.take_busy().is_none());
        assert!(!store.prepare_writes(10, true, turn));
        assert_eq!(store.take_busy(), Some(Scarce::Memory));
        let mut view = Store::view(store.views());
        assert!(view.prepare_writes(10, true, turn));
    });
    let mut turns = 0..10_000;
    while small.store.data.is_reclaiming() {
        turns.next().expect("it comes back");
        small.end_turn();
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    assert!(small.turn(|store, turn| store.prepare_writes(10, true, turn)));
}

/// A transaction of more than a segment waits if memory is short and something goes for it. It is
/// told by its commands if nothing may go.
#[test]
fn a_large_transaction_waits_for_what_goes_for_it() {
    let (mut small, _) = full(2000, Policy::AllKeysLru);
    let segment = usize::try_from(small.fill().segment_bytes).expect("64 KiB");
    for (bytes, waits) in [(10, false), (segment, false), (segment + 1, true)] {
        *slack(&mut small) = 0;
        let (keys, begins) = gone(&mut small, |s, turn| s.prepare_writes(bytes, false, turn));
        assert_eq!((begins, small.store.take_busy()), (!waits, waits.then_some(Scarce::Memory)));
        assert!(if waits { keys > 32 } else { (1..=32).contains(&keys) }, "{bytes}: {keys} keys");
        small.end_turn();
    }
    down_to_the_mark(&mut small);
    small.turn(|store, turn| store.evict(0, 1_000_000..u64::MAX, u32::MAX, turn));
    *slack(&mut small) = 0;
    let (keys, begins) = gone(&mut small, |s, turn| s.prepare_writes(segment + 1, false, turn));
    assert!(keys == 0 && begins, "there is room");
    let (mut small, _) = full(2000, Policy::VolatileTtl);
    let (keys, begins) = gone(&mut small, |s, turn| s.prepare_writes(segment + 1, false, turn));
    assert!(keys == 0 && begins && small.store.take_busy().is_none(), "nothing may go");
    let (keys, again) = gone(&mut small, |s, turn| s.prepare_again(segment + 1, turn));
    assert!(keys == 0 && !again && small.store.take_busy().is_none(), "nothing may go");
    small.set(Policy::AllKeysLru);
    let (keys, again) = gone(&mut small, |s, turn| s.prepare_again(segment + 1, turn));
    assert!(keys > 0 && again && small.store.take_busy() == Some(Scarce::Memory));
}

/// Room is made before a write. It is tried again only if something went for it. Then it waits for
/// the next turn if it finds no room. Errors of other kinds are told as they are.
#[test]
fn a_refused_write_is_tried_again_if_something_went() {
    let too_long = WriteError::KeyTooLong { len: 70_000 };
    let (oom, busy) = (WriteError::Oom, WriteError::Busy);
    let (all, volatile) = (Policy::AllKeysLru, Policy::VolatileTtl);
    for (policy, first, second, outcome, attempts) in [
        (all, Some(oom), None, Ok(()), 2),
        (all, Some(oom), Some(oom), Err(busy), 2),
        (all, Some(oom), Some(too_long), Err(too_long), 2),
        (all, Some(busy), None, Err(busy), 1),
        (all, Some(too_long), None, Err(too_long), 1),
        (all, None, None, Ok(()), 1),
        (volatile, Some(oom), None, Err(oom), 1),
        (Policy::NoEviction, Some(oom), None, Err(oom), 1),
    ] {
        let (mut small, _) = full(20_000, policy);
        let mut tried = 0;
        let found = small.turn(|store, turn| {
            store.with_room(10, turn, |store| {
                tried += 1;
                assert_eq!(store.counters.evicted > 0, policy == all, "room is made before it");
                [first, second][tried - 1].map_or(Ok(()), Err)
            })
        });
        assert_eq!((found, tried), (outcome, attempts), "{policy:?} {first:?} {second:?}");
    }
}

/// In a transaction nothing goes. It notes how much a write wanted that found no room, but not one
/// that was refused for another reason.
#[test]
fn a_transaction_notes_what_its_refused_write_wanted() {
    let (mut small, _) = full(2000, Policy::AllKeysLru);
    for (error, wanted) in [(WriteError::KeyTooLong { len: 70_000 }, 0), (WriteError::Oom, 5000)] {
        let (keys, found) = gone(&mut small, |store, turn| {
            store.begin();
            let refused = store.with_room(5000, turn, |_| Err(error));
            assert_eq!(refused, Err(error));
            let found = store.bytes_wanted(turn);
            store.rollback();
            found
        });
        assert_eq!((keys, found), (0, wanted), "{error:?}");
    }
}

/// For a write that found no memory, a segment's bytes go at least, or its own, but no more than
/// 256 keys, and once in a turn. Nothing goes for one that waits for memory on its way.
#[test]
fn a_segment_goes_for_a_refused_write_once_in_a_turn() {
    let after = |small: &mut SmallStore, bytes: usize, error: WriteError| {
        gone(small, |store, turn| store.make_room_after(bytes, &error, turn))
    };
    for (value_bytes, bytes) in [(2000, 10), (2000, 100_000), (100, 10)] {
        let (mut small, size) = full(value_bytes, Policy::AllKeysLru);
        down_to_the_mark(&mut small);
        // So it isn't short of those bytes either.
        small.turn(|store, turn| store.evict(0, 1_000_000..u64::MAX, u32::MAX, turn));
        assert_eq!(after(&mut small, bytes, WriteError::Busy), (0, Ok(false)));
        let least = small.fill().segment_bytes.max(bytes as u64);
        let keys = least.div_ceil(size).min(256);
        assert_eq!(after(&mut small, bytes, WriteError::Oom), (keys, Ok(true)));
        assert!(has_gone(&small));
        assert_eq!(after(&mut small, bytes, WriteError::Oom), (0, Ok(true)));
        small.end_turn();
        assert!(!has_gone(&small));
    }
    let (mut small, _) = full(2000, Policy::VolatileLru);
    assert_eq!(after(&mut small, 10, WriteError::Oom), (0, Ok(false)), "nothing may go");
    assert!(!has_gone(&small));
    let mut empty = SmallStore::new();
    empty.set(Policy::AllKeysLru);
    assert_eq!(after(&mut empty, 10, WriteError::Oom), (0, Ok(false)), "nothing is there");
}

/// The only key that may go stands where chance hardly meets it, behind the lines at which a search
/// for a batch looks, but within those at which one turn looks more. It goes in that turn.
#[test]
fn a_rare_key_goes_in_the_turn_that_finds_it() {
    let mut small = SmallStore::new();
    (0..20_000).for_each(|n| small.put(&format!("key{n:06}"), 1, 0).expect("room"));
    (0..100).for_each(|_| small.end_turn());
    let rare = small.turn(|store, turn| {
        let (mut cursor, mut met) = (0, Vec::new());
        for line in 0..500 {
            let meet = &mut |record: Record<'_>| met.push(record.key().to_vec());
            cursor = store.reader.scan(turn.pin, cursor, 1, meet);
            if line < 400 {
                met.clear();
            }
        }
        met.swap_remove(0)
    });
    let rare = String::from_utf8(rare).expect("text");
    small.put(&rare, 1, small.now_ms + 1000).expect("room");
    small.set(Policy::VolatileTtl);
    let (keys, goes) = gone(&mut small, |s, turn| s.make_room_after(10, &WriteError::Oom, turn));
    assert_eq!((keys, goes, small.has(&rare)), (1, Ok(true), false));
}

/// Keys go until there is room below the mark and the least is gone, or the most, or so many keys.
#[test]
fn eviction_ends_at_each_of_its_bounds() {
    let (mut small, size) = full(2000, Policy::AllKeysLru);
    for (bytes, most, keys) in [
        (0..2 * size, 100, 2),
        (0..2 * size + 1, 100, 3),
        (0..u64::MAX, 5, 5),
        (0..0, 100, 0),
        (0..u64::MAX, 0, 0),
    ] {
        let (fewer, gone) = gone(&mut small, |store, turn| store.evict(0, bytes, most, turn));
        assert_eq!((fewer, gone.keys, gone.bytes), (keys, most.min(gone.keys), keys * size));
        assert!(small.store.is_short(0));
    }
    down_to_the_mark(&mut small);
    small.turn(|store, turn| store.evict(0, 100_000..u64::MAX, u32::MAX, turn));
    for (least, keys) in [(0, 0), (2 * size, 2), (2 * size + 1, 3)] {
        let (fewer, _) = gone(&mut small, |s, turn| s.evict(0, least..u64::MAX, 100, turn));
        assert_eq!(fewer, keys, "{least} bytes at least");
    }
}

/// Keys are sampled for a batch of 16, which fills the pool, and for the next when it has gone. No
/// search begins when no key may go.
#[test]
fn each_batch_samples_anew() {
    let (mut small, _) = full(2000, Policy::AllKeysLru);
    let mut pooled = |most: u32, policy: Policy| {
        small.set(Policy::VolatileTtl); // another policy forgets the pool
        small.set(policy);
        small.turn(|store, turn| store.evict(0, 0..u64::MAX, most, turn));
        small.store.usage.eviction.as_ref().expect("a policy").pooled()
    };
    assert_eq!(pooled(1, Policy::AllKeysLru), 63);
    assert_eq!(pooled(16, Policy::AllKeysLru), 48);
    assert_eq!(pooled(17, Policy::AllKeysLru), 63);
    let seed = |small: &SmallStore| small.store.usage.eviction.as_ref().expect("a policy").seed();
    let (mut small, _) = full(2000, Policy::VolatileLru);
    small.turn(|store, turn| store.evict(0, 0..u64::MAX, 100, turn));
    assert_eq!(seed(&small), 0, "no key may go");
    small.set(Policy::AllKeysLru);
    small.turn(|store, turn| store.evict(0, 0..u64::MAX, 100, turn));
    assert_ne!(seed(&small), 0);
}

/// A batch has as many keys of average size as have to go, one at least and 16 at most.
#[test]
fn a_batch_is_as_large_as_what_has_to_go() {
    let (mut small, size) = full(2000, Policy::AllKeysLru);
    down_to_the_mark(&mut small);
    small.turn(|store, turn| store.evict(0, 100_000..u64::MAX, u32::MAX, turn));
    for (least, keys) in [(0, 1), (size - 1, 1), (size, 2), (5 * size, 6), (15 * size, 16)] {
        assert_eq!(small.store.batch_for(0, least), keys, "{least} bytes");
    }
    assert_eq!(small.store.batch_for(0, 1000 * size), BATCH_KEYS);
    assert_eq!(small.store.batch_for(u64::MAX, 0), BATCH_KEYS);
    let fill = small.fill();
    // The mark lies two and a half keys below what is there.
    let bytes = fill.room_bytes - (fill.record_bytes - size * 5 / 2) / 90 * 100;
    assert_eq!(small.store.batch_for(bytes, 0), 3);
    assert_eq!(SmallStore::new().store.batch_for(0, 5), 6, "no key has a size");
}

/// What goes is deleted, and its clock forgotten. A key whose time was over counts as expired, any
/// other as evicted.
#[test]
fn a_key_that_goes_is_forgotten_and_counted() {
    let mut small = SmallStore::new();
    small.set(Policy::AllKeysLru);
    small.put("old", 10, 0).expect("room");
    small.put("over", 10, small.now_ms + 1).expect("room");
    small.now_ms += 2;
    for (key, counts) in [("over", (1, 0)), ("old", (1, 1))] {
        let hash = small.store.hash(key.as_bytes());
        let age = |small: &SmallStore| {
            let eviction = small.store.usage.eviction.as_ref().expect("a policy");
            eviction.recency.as_ref().expect("an LRU policy").age(hash)
        };
        assert_ne!(age(&small), UNKNOWN);
        let counted = small.turn(|store, turn| {
            let record = store.reader.any_of_hash(turn.pin, hash).expect("it is there");
            store.delete_evicted(&record, turn);
            (store.counters.expired, store.counters.evicted)
        });
        assert_eq!((counted, age(&small), small.has(key)), (counts, UNKNOWN, false));
    }
}

/// A turn's upkeep takes 64 keys of what is too much, and notes anew what may be written. It tells
/// whether the clocks have more to do: they grow for many keys in several turns.
#[test]
fn upkeep_takes_some_of_what_is_too_much() {
    let (mut small, _) = full(2000, Policy::AllKeysLru);
    *slack(&mut small) = 1 << 40;
    assert_eq!(gone(&mut small, |store, turn| store.maintain_usage(turn)), (64, false));
    assert_eq!(*slack(&mut small), 0, "it is short still");
    down_to_the_mark(&mut small);
    assert_eq!(gone(&mut small, |store, turn| store.maintain_usage(turn)), (0, false));
    let mut small = SmallStore::new();
    (0..60_000).for_each(|n| small.put(&format!("key{n:06}"), 1, 0).expect("room"));
    assert!(!small.turn(|store, turn| store.maintain_usage(turn)), "nobody asks for ages");
    small.set(Policy::AllKeysLru);
    let more: Vec<bool> =
        (0..3).map(|_| small.turn(|store, turn| store.maintain_usage(turn))).collect();
    assert_eq!(more, [true, false, false]);
    assert!(*slack(&mut small) > 100_000);
}
