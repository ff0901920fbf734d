//! What cleaning promises, one story a test.

use super::{Arena, directory, spec};
use crate::format::layout::{generation_offset, header, record as r};
use crate::format::words::SharedWords;
use crate::write::clean::STEP_BYTES;
use crate::{Domain, WriteError, Writer, verify};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering::Relaxed;

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn key(i: u32) -> Vec<u8> {
    format!("key:{i:08}").into_bytes()
}

pub(super) fn value(i: u32, version: u32, len: usize) -> Vec<u8> {
    let mut value = vec![(i ^ version) as u8; len];
    value[..4].copy_from_slice(&version.to_le_bytes());
    value
}

/// Puts keys of 100 bytes until so many per cent of the capacity are live.
pub(super) fn fill(a: &mut Arena, percent: u64) -> u32 {
    let mut n = 0;
    while a.writer.stats().used_bytes * 100 < a.spec.capacity_bytes * percent {
        let put = a.put_soon(&key(n), &value(n, 0, 100));
        assert!(put.is_ok(), "{put:?} after {n} keys: {:?}", a.writer.stats());
        n += 1;
        if n.is_multiple_of(64) {
            a.turn();
        }
    }
    n
}

/// A sequence of numbers below `n` that looks random.
fn numbers(n: u32) -> impl FnMut() -> u32 {
    let mut random = 1u32;
    move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(random) * u64::from(n)) >> 32) as u32
    }
}

pub(super) fn blocks(a: &Arena) -> u64 {
    std::fs::metadata(&a.spec.path).unwrap().blocks() * 512
}

#[test]
fn a_nearly_full_arena_takes_overwrites_for_ever() {
    // More than three quarters of the capacity are live records, and all of them are overwritten at
    // random, six times over. Nothing is lost, and never is more memory taken than there may be.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let n = fill(&mut a, 78);
    let mut versions = vec![0; n as usize];
    let mut next = numbers(n);
    for version in 1..=n * 6 {
        let i = next();
        a.put_soon(&key(i), &value(i, version, 100)).unwrap();
        versions[i as usize] = version;
        if version.is_multiple_of(64) {
            a.turn();
        }
        if version.is_multiple_of(10_000) {
            assert!(blocks(&a) <= 8 * MIB, "{} bytes", blocks(&a));
        }
    }
    let stats = a.writer.stats();
    assert!(stats.cleaner.segments > 100, "{stats:?}");
    assert!(stats.cleaner.longest_step_bytes <= STEP_BYTES + (128 << 10), "{stats:?}");
    let (a, adoption) = a.again();
    assert_eq!(adoption.keys, u64::from(n));
    for (i, version) in (0..n).zip(versions) {
        assert_eq!(a.get(&key(i)).unwrap(), value(i, version, 100));
    }
    assert!(verify(&a.spec.path).unwrap().findings.is_empty());
}

#[test]
fn expired_records_are_dropped_on_the_way() {
    // Keys whose time is over count as dead to the cleaner: it deletes them rather than move them.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let n = 40_000;
    for i in 0..n {
        a.soon(|a| a.put(&key(i), &value(i, 0, 100), u64::from(i % 2) * 1000)).unwrap();
    }
    // In each turn, those too in which a write waits for memory.
    a.budget.now_ms = 1001;
    let (mut next, mut expired) = (numbers(n / 2), 0);
    for version in 0.. {
        // Overwriting keys without expiry makes the cleaner work.
        let i = next() * 2;
        a.put_soon(&key(i), &value(i, version, 100)).unwrap();
        if version.is_multiple_of(64) {
            expired += u64::from(a.turn().expired);
        }
        assert!(version < 10 * n, "{:?}", a.writer.stats());
        if a.writer.stats().cleaner.expired_keys > u64::from(n / 4) {
            break;
        }
    }
    let stats = a.writer.stats();
    assert_eq!(stats.keys, u64::from(n) - stats.cleaner.expired_keys);
    assert!(expired <= stats.cleaner.expired_keys && expired > 0);
    assert!((0..n).step_by(2).all(|i| a.get(&key(i)).is_some()), "what does not expire stays");
}

#[test]
fn expired_keys_make_room_in_a_full_arena() {
    // Everything is full, and every second key is over. A write is refused; soon after there is
    // room.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let mut n = 0;
    let refused = loop {
        let write = |a: &mut Arena| a.put(&key(n), &value(n, 0, 100), u64::from(n % 2) * 1000);
        match a.soon(write) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, WriteError::Oom);
    a.budget.now_ms = 1001;
    // Turns in which it waits for the thread that moves memory don't count.
    a.soon(|a| a.put(&key(n), &value(n, 0, 100), 0).map_err(|_| WriteError::Busy)).unwrap();
    let stats = a.writer.stats();
    assert!(
        stats.cleaner.expired_keys > 0
            && stats.keys + stats.cleaner.expired_keys == u64::from(n) + 1
    );
    assert!((0..n).step_by(2).all(|i| a.get(&key(i)) == Some(value(i, 0, 100))));
}

#[test]
fn large_values_stay_where_they_are() {
    // The small records that name runs are moved; the runs are not, and die with their keys.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    for i in 0..20u32 {
        a.put(format!("large:{i}").as_bytes(), &vec![i as u8; 200_000], 0).unwrap();
        for j in 0..200 {
            a.put(&key(i * 200 + j), &value(j, 0, 100), 0).unwrap();
        }
    }
    let place = |a: &Arena| {
        let pin = a.me.pin();
        let hash = a.reader.hash(b"large:0");
        let record = a.reader.get(&pin, hash, b"large:0").unwrap();
        (record.reference().offset(), record.value_ref().offset(), record.lsn())
    };
    let before = place(&a);
    let mut next = numbers(4000);
    for version in 0..100_000 {
        let i = next();
        a.put_soon(&key(i), &value(i, version, 100)).unwrap();
        a.turn();
    }
    let after = place(&a);
    assert!(before.0 != after.0, "the record was never moved: {:?}", a.writer.stats());
    assert_eq!((before.1, before.2), (after.1, after.2));
    for i in 0..20u32 {
        let name = format!("large:{i}");
        assert_eq!(a.get(name.as_bytes()).unwrap(), vec![i as u8; 200_000]);
        assert!(a.delete(name.as_bytes()));
    }
    a.settle();
    assert_eq!(a.writer.stats().runs, 0);
}

#[test]
fn staged_records_survive_cleaning_around_them() {
    // A transaction stays open while the arena is overwritten many times; then it is committed.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let n = fill(&mut a, 75);
    let staged: Vec<_> = (0..50)
        .map(|i| {
            let (k, v) = (key(i), value(i, 99, 100));
            a.writer.stage(a.writer.hash(&k), &k, &[&v], 0).unwrap()
        })
        .collect();
    let mut next = numbers(n);
    for version in 0..n * 4 {
        let i = next();
        a.put_soon(&key(i), &value(i, version, 100)).unwrap();
        a.turn();
    }
    assert!(a.writer.stats().cleaner.segments > 50, "{:?}", a.writer.stats());
    a.soon(|a| a.writer.commit(&a.me.pin(), false, &staged)).unwrap();
    assert!((0..50).all(|i| a.get(&key(i)) == Some(value(i, 99, 100))));
}

#[test]
fn a_key_that_is_deleted_and_put_again_in_one_commit_keeps_its_place() {
    // All sixteen lines of a key are full. Another new key, whose lines reach one further, must not
    // get the place that the deletion seems to free.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    for i in 0..128 {
        a.writer.put(&a.me.pin(), 0, &key(i), &[b"old"], 0).unwrap();
    }
    let refused = a.writer.put(&a.me.pin(), 0, &key(128), &[b"more"], 0);
    assert_eq!(refused, Err(WriteError::TooManyKeysWithOneHash));
    for again in 0..128 {
        let (k, new) = (key(again), format!("new {again}"));
        let list = [
            a.writer.stage_delete(0, &k).unwrap(),
            a.writer.stage(1, new.as_bytes(), &[b"n"], 0).unwrap(),
            a.writer.stage(0, &k, &[b"first"], 0).unwrap(),
            a.writer.stage_delete(0, &k).unwrap(),
            a.writer.stage(0, &k, &[b"last"], 0).unwrap(),
        ];
        a.writer.commit(&a.me.pin(), false, &list).unwrap();
        let pin = a.me.pin();
        assert_eq!(a.reader.get(&pin, 0, &k).unwrap().value(), b"last");
        assert_eq!(a.reader.get(&pin, 1, new.as_bytes()).unwrap().value(), b"n");
        assert!(a.writer.delete(&pin, 1, new.as_bytes()));
    }
    assert_eq!(a.writer.keys(), 128);
}

#[test]
fn leftovers_that_are_no_records_are_left_alone() {
    // A file whose dead bytes were damaged is adopted, since the index is whole; the cleaner stops
    // at the damage, and what is alive behind it stays.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let n = fill(&mut a, 70);
    let (words, shift) = (a.writer.words, a.writer.space.geometry().slot_shift);
    for i in (0..n).filter(|i| i % 8 == 0) {
        let (k, pin) = (key(i), a.me.pin());
        let at = a.reader.get(&pin, a.writer.hash(&k), &k).unwrap().reference().offset();
        assert!(a.delete(&k));
        words.store32(at + r::VALUE_LEN, 0xFFFF_FFFF, Relaxed);
        words.store32(at + r::PREV, i, Relaxed);
    }
    let (mut a, _) = a.again();
    for version in 0..n * 4 {
        let i = version * 8 % n + 1;
        match a.soon(|a| a.put(&key(i), &value(i, version, 100), 0)) {
            Ok(()) => {}
            Err(error) => assert_eq!(error, WriteError::Oom),
        }
        a.turn();
    }
    assert!((0..n).filter(|i| i % 8 != 0).all(|i| a.get(&key(i)).is_some()));
    let slots = a.writer.space.geometry().slots;
    let generations = (0..slots).map(|s| a.writer.words.load32(generation_offset(s), Relaxed));
    assert!(generations.sum::<u32>() > 0 && shift == 17);
    assert!(verify(&a.spec.path).unwrap().findings.is_empty());
}

#[test]
fn counts_that_nobody_has_counted_are_damage() {
    // An LSN or a count near 2^64 was adopted, and the first write after it overflowed.
    let dir = directory();
    for at in 0..7 {
        let mut a = Arena::create(&spec(dir.path().join("a"), 2 * MIB));
        a.put(b"k", b"v", 0).unwrap();
        let lsn = {
            let pin = a.me.pin();
            a.reader.get(&pin, a.writer.hash(b"k"), b"k").unwrap().reference().offset() + r::LSN
        };
        let spec = a.spec.clone();
        let counts = [
            header::COMMITTED_LSN,
            header::CLEAR_STAMP,
            header::BYTES, // the first stamp
            header::APPENDED_BYTES,
            header::RELOCATED_BYTES,
            header::CLEANED_SEGMENTS,
            lsn,
        ];
        let file = std::fs::OpenOptions::new().write(true).open(&spec.path).unwrap();
        drop(a);
        file.write_all_at(&u64::MAX.to_le_bytes(), counts[at]).unwrap();
        let error = Writer::adopt(&spec, &Domain::new(1)).err().expect("it is damaged").to_string();
        let what = match counts[at] {
            at if at == lsn => "LSN of a record",
            header::COMMITTED_LSN | header::CLEAR_STAMP | header::BYTES => "less than 2^53",
            _ => "less than 2^62",
        };
        assert!(error.contains(what), "{at}: {error}");
        assert_eq!(verify(&spec.path).unwrap().findings.len(), 1);
        std::fs::remove_file(&spec.path).unwrap();
    }
}

#[test]
fn what_lies_behind_a_table_is_not_in_the_next_one() {
    // Somebody has written into the slot of the index, behind its pages. When another table has
    // taken its place and a larger one comes to lie in that slot, it begins empty all the same.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let (spec, table) = (a.spec.clone(), a.writer.index.current());
    let file = std::fs::OpenOptions::new().write(true).open(&spec.path).unwrap();
    drop(a);
    let behind = table.offset + table.bytes().next_multiple_of(4096);
    file.write_all_at(&vec![0xFF; 64 << 10], behind).unwrap();
    let (mut a, _) = Arena::adopt(&spec);
    for i in 0..20_000 {
        a.put_soon(&key(i), b"v").unwrap();
        a.turn();
    }
    assert!(a.writer.stats().rebuilds.larger > 3);
    assert!(verify(&spec.path).unwrap().findings.is_empty());
}

#[test]
fn a_busy_arena_is_not_packed() {
    // Most of the older keys are deleted, and nobody needs the memory. In turns without a write
    // between writes, the cleaner has nothing to do; once nothing was written for a while it packs
    // what is left.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let n = fill(&mut a, 40);
    for i in (0..n / 3).filter(|i| i % 4 != 0) {
        assert!(a.delete(&key(i)));
    }
    let turn_at = |a: &mut Arena, now_ms| {
        a.budget.now_ms = now_ms;
        a.turn()
    };
    for now_ms in 1..200 {
        a.put(&key(0), &value(0, 1, 100), 0).unwrap();
        for _ in 0..5 {
            turn_at(&mut a, now_ms);
        }
    }
    assert_eq!(a.writer.stats().cleaner.steps, 0);
    while turn_at(&mut a, 300).more {}
    assert!(a.writer.stats().cleaner.segments > 0);
}

#[test]
fn a_cleaner_that_had_to_stop_is_counted_on_again_when_there_is_room() {
    // A reader holds all that was retired, until the cleaner has nowhere to move anything. The
    // reader lets go. Before the cleaner has tried again, a large value comes: it is told to wait,
    // not that the arena were full.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let n = fill(&mut a, 74);
    let mut reader = a.domain.join();
    let mut next = numbers(n);
    while !a.writer.cleaner.stuck {
        let i = next();
        let _ = a.put(&key(i), &value(i, 1, 100), 0);
        a.turn();
    }
    reader.offline();
    a.me.quiescent();
    while a.writer.space.busy() {
        a.writer.space.collect(100);
        std::thread::yield_now();
    }
    assert!(a.writer.cleaner.stuck && a.put(b"large", &vec![1; 900_000], 0).is_err());
    a.put_soon(b"large", &vec![1; 900_000]).unwrap();
    assert!((0..n).all(|i| a.get(&key(i)).is_some()));
}

#[test]
fn room_that_no_record_fits_is_not_cleaned_for() {
    // Six records of 20 kB take nearly all of a segment of 128 KiB; copied, they leave as much at
    // its end. The cleaner once took that for something to win, and writes were told to wait for
    // ever.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let mut stored = 0u32;
    let error = loop {
        match a.put_soon(&stored.to_le_bytes(), &[b'v'; 20_000]) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, WriteError::Oom);
    assert!(stored > 300, "{stored} values of 20 kB in 8 MiB");
}
