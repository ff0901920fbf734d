//! What readers are promised while the writer is at work, one story a test.

use super::{Arena, StopOnDrop, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::{ArenaError, ArenaSpec, Domain, DurableWord, LineWalk, Pin, WriteError};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

#[test]
fn a_scan_sees_every_key_that_stays_while_the_index_grows() {
    // Redis's guarantee, with insertions that make the index grow between the steps.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    for i in 0..3000u32 {
        a.put(format!("stay:{i}").as_bytes(), b"", 0).unwrap();
    }
    let mut seen = BTreeMap::<Vec<u8>, u32>::new();
    let (mut cursor, mut more) = (0, 0u32);
    let mut grew = 0;
    loop {
        let pin = a.me.pin();
        cursor = a.reader.scan(&pin, cursor, 3, &mut |record| {
            *seen.entry(record.key().to_vec()).or_default() += 1;
        });
        if cursor == 0 {
            break;
        }
        grew += u32::from(a.writer.stats().growing);
        for _ in 0..60 {
            // By chance of the hashes, room may have to come back first.
            a.put_soon(format!("new:{more}").as_bytes(), b"").unwrap();
            more += 1;
        }
    }
    assert!(grew > 10, "the index never grew under the scan");
    assert!((0..3000u32).all(|i| seen.contains_key(format!("stay:{i}").as_bytes())));
}

#[test]
fn a_reader_on_another_thread_always_finds_a_key_that_is_overwritten() {
    // One thread overwrites, makes the index grow and reuses memory; the other never misses nor
    // sees a mix.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    a.put(b"steady", &[0; 200], 0).unwrap();
    let (reader, mut other) = (a.reader.clone(), a.domain.join());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = StopOnDrop(&stop);
        let reads = scope.spawn(|| {
            let hash = reader.hash(b"steady");
            let mut reads = 0u64;
            while reads == 0 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
                {
                    let pin = other.pin();
                    let record =
                        reader.get(&pin, hash, b"steady").expect("a key that is never deleted");
                    let value = record.value();
                    assert!(value.iter().all(|&b| b == value[0]), "a mix of two versions");
                }
                other.quiescent();
                reads += 1;
            }
            reads
        });
        a.me.quiescent();
        for i in 0..60_000u32 {
            a.put(b"steady", &[i as u8; 200], 0)
                .or_else(|_| {
                    std::thread::yield_now();
                    a.turn();
                    Ok::<(), WriteError>(())
                })
                .unwrap();
            if i % 4 == 0 && i < 40_000 {
                a.put(&i.to_le_bytes(), b"grow", 0).ok();
            }
            a.turn();
        }
        drop(stops);
        assert!(reads.join().unwrap() > 0);
    });
}

#[test]
fn a_foreign_reader_copies_what_the_index_names() {
    // Another process's way of reading, beside the writer's: small, large, absent, while it is
    // overwritten.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    let foreign = crate::ForeignReader::open(&a.spec.path).unwrap();
    let mut out = vec![1];
    assert_eq!(foreign.get(b"absent", &mut out).unwrap(), None);
    a.put(b"small", b"value", 9).unwrap();
    a.put(b"large", &vec![5; 3_000_000], 0).unwrap();
    assert_eq!((foreign.get(b"small", &mut out).unwrap(), &out[..]), (Some(9), &b"value"[..]));
    assert_eq!((foreign.get(b"large", &mut out).unwrap(), out.len()), (Some(0), 3_000_000));
    a.put(b"small", &[1; 600], 9).unwrap();
    let stop = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = StopOnDrop(stop);
        let reads = scope.spawn(move || {
            let mut found = 0u64;
            while found == 0 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
                match foreign.get(b"small", &mut out) {
                    Ok(expiry) => {
                        assert_eq!(expiry, Some(9));
                        assert!(out.iter().all(|&b| b == out[0]), "a mix of two versions");
                        found += 1;
                    }
                    Err(error) => assert!(matches!(error, ArenaError::Busy { .. }), "{error}"),
                }
            }
            found
        });
        for i in 0..20_000u32 {
            a.put(b"small", &[i as u8; 600], 9).unwrap();
            a.turn();
        }
        drop(stops);
        assert!(reads.join().unwrap() > 0);
    });
}

#[test]
#[should_panic(expected = "another turn")]
fn a_value_is_not_lent_out_in_a_later_turn() {
    // A reply noted by reference must be copied before the shard announces.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let value = a.reader.get(&a.me.pin(), a.reader.hash(b"k"), b"k").unwrap().value_ref();
    assert_eq!(a.reader.bytes(&a.me.pin(), value), b"v");
    a.me.quiescent();
    let _ = a.reader.bytes(&a.me.pin(), value);
}

#[test]
fn a_reference_kept_over_its_segments_end_is_refused() {
    // The record's segment dies and is retired: its reference leads nowhere any more.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let reference = a.reader.get(&a.me.pin(), a.reader.hash(b"k"), b"k").unwrap().reference();
    assert!(a.reader.record(&a.me.pin(), reference).is_some());
    for _ in 0..20 {
        a.put(b"k", &[0; 60_000], 0).unwrap();
        a.turn();
    }
    assert!(a.reader.record(&a.me.pin(), reference).is_none());
}

#[test]
fn a_walk_meets_each_key_once_at_any_moment_of_a_growth() {
    // Nobody writes while the walk goes on, but the index is half-way to a larger table, or to a
    // smaller one: line after line moves, and after each of them every key is met, and none twice.
    // (KEYS has no other look at that.)
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let (mut keys, mut growths) = (0u32, [0, 0]);
    let check = |a: &Arena, keys: std::ops::Range<u32>| {
        let (pin, mut met) = (a.me.pin(), Vec::new());
        let end = a.reader.scan(&pin, 0, u32::MAX, &mut |record| met.push(record.key().to_vec()));
        assert_eq!(end, 0);
        met.sort_unstable();
        let mut wanted: Vec<Vec<u8>> = keys.map(|i| i.to_le_bytes().to_vec()).collect();
        wanted.sort_unstable();
        assert!(met == wanted, "{} met of {}", met.len(), wanted.len());
    };
    while growths[0] < 100 {
        a.put(&keys.to_le_bytes(), b"", 0).unwrap();
        keys += 1;
        if a.writer.stats().growing {
            growths[0] += 1;
            check(&a, 0..keys);
        }
    }
    a.settle();
    let budget = crate::UpkeepBudget { lines: 1, ..crate::UpkeepBudget::default() };
    for i in 0..keys - 10 {
        assert!(a.delete(&i.to_le_bytes()));
    }
    for _ in 0..1000 {
        a.me.quiescent();
        a.writer.maintain(budget);
        if a.writer.stats().growing {
            growths[1] += 1;
            check(&a, keys - 10..keys);
        }
    }
    assert!(growths[1] > 50 && a.writer.stats().rebuilds.smaller > 0, "{growths:?}");
}

#[test]
fn a_foreign_reader_tells_keys_apart_by_all_of_their_bytes() {
    // Long keys are compared piece by piece; another key stands under the hash of one that isn't
    // there.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let foreign = crate::ForeignReader::open(&a.spec.path).unwrap();
    let mut out = Vec::new();
    for len in [1, 63, 64, 65, 128, 129, 200, 5000] {
        let key: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let hash = a.writer.hash(&key);
        let mut others = vec![key[..len - 1].to_vec(), [&key[..], &[0]].concat()];
        for at in [0, len / 2, len - 1] {
            let mut other = key.clone();
            other[at] ^= 1;
            others.push(other);
        }
        others.sort_unstable();
        others.dedup();
        for other in &others {
            a.writer.put(&a.me.pin(), hash, other, &[b"other"], 0).unwrap();
        }
        assert_eq!(foreign.get(&key, &mut out).unwrap(), None, "{len} bytes");
        a.put(&key, b"mine", 7).unwrap();
        assert_eq!((foreign.get(&key, &mut out).unwrap(), &out[..]), (Some(7), &b"mine"[..]));
        for other in &others {
            assert!(a.writer.delete(&a.me.pin(), hash, other));
        }
    }
}

#[test]
fn a_foreign_reader_follows_no_table_that_is_none() {
    // The header of a damaged copy names tables of every size at every slot: what can't be one is
    // refused, what can, and is none, has no such key; no read faults, and none goes on for ever.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let cut = dir.path().join("cut");
    std::fs::copy(&a.spec.path, &cut).unwrap();
    let file = std::fs::File::options().write(true).open(&cut).unwrap();
    let (foreign, mut out) = (crate::ForeignReader::open(&cut).unwrap(), Vec::new());
    let right = a.writer.index.current().word();
    for slot in [0, 1, right >> 6, 20, 31, 32, 33, 1 << 20, u32::MAX >> 6] {
        for shift in 0..64u32 {
            let word = slot << 6 | shift;
            let at = header::CURRENT;
            std::os::unix::fs::FileExt::write_all_at(&file, &word.to_le_bytes(), at).unwrap();
            let end = (u128::from(slot) << 17) + (64 << shift);
            let fits = (3..=26).contains(&shift) && end <= file.metadata().unwrap().len().into();
            match foreign.get(b"k", &mut out) {
                Ok(found) if word == right => assert_eq!(found, Some(0)),
                Ok(_) => assert!(word == 0 || fits, "table {slot} of 2^{shift} lines"),
                Err(error) => assert!(matches!(error, ArenaError::Busy { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn a_reader_learns_which_changes_are_begun_and_which_are_on_disk() {
    // A reader of any shard compares both: what it has found is on disk, or is not yet.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.put(b"k", b"1", 0).unwrap();
    assert_eq!((a.reader.begun_lsn(), a.reader.durable_lsn()), (1, 0), "there is no log yet");
    let log = DurableWord::of(a.writer.region());
    log.clone().store(1);
    assert!(a.writer.delete(&a.me.pin(), a.reader.hash(b"k"), b"k"));
    assert_eq!((a.reader.begun_lsn(), a.reader.durable_lsn()), (2, 1), "a removal is a change too");
    log.store(2);
    assert_eq!(a.reader.durable_lsn(), 2);
}

#[test]
#[should_panic(expected = "change 5 was on disk")]
fn what_is_on_disk_stays_there() {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let log = DurableWord::of(a.writer.region());
    log.store(5);
    log.store(4);
}

#[test]
fn a_single_key_is_judged_by_the_arenas_time_if_it_has_an_expiry() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.writer.note_time(1000);
    a.put(b"stays", b"1", 0).unwrap();
    a.put(b"goes", b"2", 5000).unwrap();
    let alone = |a: &Arena, key: &[u8]| {
        let (pin, hash) = (a.me.pin(), a.reader.hash(key));
        let (found, clock_ms) = a.reader.get_alone(&pin, hash, key).expect("a moment");
        (found.map(|record| record.value().to_vec()), clock_ms)
    };
    assert_eq!(alone(&a, b"stays"), (Some(b"1".to_vec()), 0));
    assert_eq!(alone(&a, b"goes"), (Some(b"2".to_vec()), 1000));
    assert_eq!(alone(&a, b"none"), (None, 0));
    // In the midst of a commit of several keys it is as it was before, by the time of then.
    let before = a.writer.stats().lsn;
    a.put(b"stays", b"new", 0).unwrap();
    a.writer.words.store64(header::COMMITTED_LSN, before, Relaxed);
    a.writer.words.store32(header::INTENT, 1 << 20, Relaxed);
    assert_eq!(alone(&a, b"stays"), (Some(b"1".to_vec()), 1000));
}

/// Any thread asks its reader what the arena is (seed, part, capacity) and how it stands: the keys
/// that the writer has counted, its clock, and whether keys move to another table.
#[test]
fn a_reader_tells_what_its_arena_is_and_how_it_stands() {
    let dir = directory();
    let spec = spec(dir.path().join("a"), 16 * MIB);
    let mut a =
        Arena::create(&ArenaSpec { partition: 2, partitions: 3, seed: Some(77), ..spec.clone() });
    assert_eq!((a.reader.seed(), a.reader.partition()), (77, 2));
    assert_eq!(a.reader.capacity_bytes(), spec.capacity_bytes);
    assert_eq!(a.reader.clock_ms(), 0);
    a.writer.note_time(1000);
    assert_eq!(a.reader.clock_ms(), 1000);
    let moment = a.reader.moment(&a.me.pin()).expect("no commit is under way");
    assert_eq!(moment.clock_ms(), 1000);
    let (calm, mut keys) = (a.reader.index_epoch(), 0_u64);
    assert_eq!(calm % 2, 0);
    while !a.writer.stats().growing {
        a.put(&keys.to_le_bytes(), b"", 0).unwrap();
        keys += 1;
    }
    assert_eq!(a.reader.index_epoch(), calm + 1, "keys move");
    a.settle();
    assert_eq!(a.reader.index_epoch(), calm + 2, "they have moved");
    assert_eq!(a.reader.keys(), keys);
}

/// A long value has a run of its own, which is retired as soon as the key is overwritten. The
/// record's segment is still in use then, but the reference to the record is no good any more.
#[test]
fn a_reference_is_refused_when_the_run_of_its_value_has_gone() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.put(b"k", &[7; 1 << 20], 0).unwrap();
    let reference = a.reader.get(&a.me.pin(), a.reader.hash(b"k"), b"k").unwrap().reference();
    let found = |a: &Arena| {
        let pin = a.me.pin();
        a.reader.record(&pin, reference).map(|record| record.value().to_vec())
    };
    assert!(found(&a).is_some_and(|value| value == [7; 1 << 20]));
    a.put(b"k", b"short", 0).unwrap();
    let slot = a.reader.region().geometry().slot_of(reference.offset());
    let generation = a.reader.region().geometry().generation_offset(slot);
    assert_eq!(a.writer.words.load32(generation, Relaxed), reference.generation, "its segment");
    assert_eq!(found(&a), None);
}

/// A pin of another domain keeps nothing of this arena alive. Each way to read refuses it.
#[test]
fn a_reader_refuses_a_pin_of_another_domain() {
    type Read<'a> = &'a dyn Fn(&Pin<'_>);
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let (r, hash, stranger) = (&a.reader, a.reader.hash(b"k"), Domain::new(1).join());
    let pin = a.me.pin();
    let (moment, copy) = (r.moment(&pin).expect("a moment"), r.copy_index(&pin, Vec::new()));
    let record = r.get(&pin, hash, b"k").expect("it was put");
    let (reference, value) = (record.reference(), record.value_ref());
    let calls: [(&str, Read<'_>); 11] = [
        ("get", &|pin| assert!(r.get(pin, hash, b"k").is_some())),
        ("record", &|pin| assert!(r.record(pin, reference).is_some())),
        ("bytes", &|pin| assert_eq!(r.bytes(pin, value), b"v")),
        ("moment", &|pin| assert_eq!(r.moment(pin), Some(moment))),
        ("get_at", &|pin| assert!(r.get_at(pin, &moment, hash, b"k").is_ok())),
        ("get_alone", &|pin| assert!(r.get_alone(pin, hash, b"k").is_ok())),
        ("random", &|pin| assert!(r.random(pin, &mut || 0).is_some())),
        ("scan", &|pin| assert_ne!(r.scan(pin, 0, 1, &mut |_| {}), 0)),
        ("walk", &|pin| assert!(!r.walk(pin, &mut LineWalk::default(), 1, &mut |_, _| {}))),
        ("copy_index", &|pin| assert_eq!(r.copy_index(pin, Vec::new()).len(), 1)),
        ("record_of", &|pin| assert!(r.record_of(pin, &copy, 0).is_some())),
    ];
    for (name, call) in calls {
        call(&pin);
        let refused = catch_unwind(AssertUnwindSafe(|| call(&stranger.pin())));
        let why = refused.expect_err(name);
        let why = why.downcast_ref::<&str>().expect("a text");
        assert!(why.contains("a pin of another domain"), "{name}: {why}");
    }
}

/// Compaction walks an arena line by line, also half-way to a larger table. Each step meets the
/// keys of so many lines, each key once and under its hash. Only the last step says that it was
/// the last.
#[test]
fn a_walk_by_lines_meets_each_key_once_under_its_hash() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let (mut keys, mut growths) = (0_u32, 0);
    while growths < 20 {
        a.put(&keys.to_be_bytes(), b"", 0).unwrap();
        keys += 1;
        growths += u32::from(a.writer.stats().growing);
        if growths == 0 && keys != 10 {
            continue;
        }
        let (current, old) = a.reader.tables();
        let lines = old.map_or(current.lines, |old| old.lines.min(current.lines));
        let (pin, mut place, mut met) = (a.me.pin(), LineWalk::default(), Vec::new());
        let mut take = |hash, record: crate::Record<'_>| {
            assert_eq!(hash, a.reader.hash(record.key()));
            met.push(record.key().to_vec());
        };
        let steps = (0..=lines).find(|_| a.reader.walk(&pin, &mut place, 3, &mut take));
        assert_eq!(steps, Some(lines / 3));
        met.sort_unstable();
        assert!(met.into_iter().eq((0..keys).map(|key| key.to_be_bytes())), "of {keys} keys");
    }
}
