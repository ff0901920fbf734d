//! Records whose bytes have changed, and a cleaner that meets them.

use super::{Arena, directory, spec};
use crate::format::head::Head;
use crate::format::layout::{entry, entry_reference, record as r};
use crate::format::words::SharedWords;
use crate::space::{Need, Victim};
use crate::{Kept, UpkeepBudget, WriteError, verify};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
/// Keys of a filled arena: eight segments and more.
const KEYS: u32 = 2000;
const VALUE_BYTES: usize = 500;
/// The key whose record is bad, and the next one that is alive, in one segment.
const BAD: u32 = 800;
const NEAR: u32 = 808;

fn key(i: u32) -> Vec<u8> {
    format!("key:{i:08}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; VALUE_BYTES]
}

/// Where a key's record lies.
fn place(a: &Arena, key: &[u8]) -> u64 {
    let pin = a.me.pin();
    a.reader.get(&pin, a.reader.hash(key), key).expect("a key").reference().offset()
}

fn bytes_at(a: &Arena, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(&a.spec.path).unwrap();
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Flips bits of one byte in memory.
fn flip(a: &Arena, at: u64, bits: u8) {
    let byte = bytes_at(a, at, 1)[0] ^ bits;
    let file = std::fs::OpenOptions::new().write(true).open(&a.spec.path).unwrap();
    file.write_all_at(&[byte], at).unwrap();
}

/// Keys of which one in eight is left, so that the cleaner comes when there is time.
fn poor(a: &mut Arena) {
    for i in 0..KEYS {
        a.put(&key(i), &value(i), 0).unwrap();
    }
    for i in (0..KEYS).filter(|i| i % 8 != 0) {
        assert!(a.delete(&key(i)));
    }
}

/// What was told since the last time; nothing beyond.
fn told(a: &Arena) -> Vec<Kept> {
    let (kept, more) = a.reader.region().take_kept();
    assert_eq!(more, 0);
    kept
}

/// Turns in which nothing is to be done any more.
fn assert_at_rest(a: &mut Arena) {
    let before = a.writer.stats().cleaner;
    for _ in 0..50 {
        let done = a.turn();
        assert!(!done.more && !done.waiting, "{done:?}");
    }
    let after = a.writer.stats().cleaner;
    assert_eq!(
        (after.relocated_records, after.segments),
        (before.relocated_records, before.segments)
    );
    assert!(!a.writer.is_gaining() && told(a).is_empty());
}

#[test]
fn a_bad_record_stays_byte_for_byte_and_its_segment_comes_back_when_it_is_overwritten() {
    // One bit of a value flips in memory. The cleaner once copied such a record and everything
    // around it.
    let dir = directory();
    for overwrite in [true, false] {
        let mut a = Arena::create(&spec(dir.path().join(format!("{overwrite}")), 8 * MIB));
        poor(&mut a);
        let (bad, near) = (key(BAD), key(NEAR));
        let (at, near_at) = (place(&a, &bad), place(&a, &near));
        let slot = a.writer.space.geometry().slot_of(at);
        assert_eq!(slot, a.writer.space.geometry().slot_of(near_at), "neighbours");
        flip(&a, at + 200, 0x10);
        let record = bytes_at(&a, at, 560);
        a.settle();
        let stats = a.writer.stats().cleaner;
        assert!(stats.bad_records == 1 && stats.segments > 4, "{stats:?}");
        assert_eq!((place(&a, &bad), bytes_at(&a, at, 560)), (at, record), "it stays as it is");
        assert!(place(&a, &near) != near_at, "others are moved");
        assert!((0..KEYS).step_by(8).all(|i| i == BAD || a.get(&key(i)) == Some(value(i))));
        let [kept] = &told(&a)[..] else { panic!("told once") };
        assert_eq!((kept.key.as_ref(), kept.finding.offset), (Some(&bad), at));
        assert!(kept.finding.what.contains("checksum of a record is "), "{kept:?}");
        assert_at_rest(&mut a);
        // What a client does with it ends the segment like any other.
        let generation = a.writer.space.generation(slot);
        if overwrite {
            a.put(&bad, b"new", 0).unwrap();
        } else {
            assert!(a.delete(&bad));
        }
        a.settle();
        assert!(a.writer.space.generation(slot) > generation, "the segment was given back");
        let report = verify(&a.spec.path).unwrap();
        assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
        assert_eq!(a.get(&bad), overwrite.then(|| b"new".to_vec()));
        a.writer.clear();
        a.settle();
        assert!(a.writer.stats().segments <= 1, "{:?}", a.writer.stats());
    }
}

#[test]
fn a_record_is_not_dropped_for_an_expiry_that_nobody_gave_it() {
    // A bit of an expiry flips, and the key looks as if its time were over long since. Neither the
    // cleaner nor active expiry nor a request that meets it deletes it.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    poor(&mut a);
    // One that really expires: active expiry looks at nothing while no key does.
    a.put(b"over", b"v", 9).unwrap();
    let at = place(&a, &key(BAD));
    flip(&a, at + r::EXPIRY, 1);
    let budget = UpkeepBudget { now_ms: 1000, ..UpkeepBudget::default() };
    for round in 0..200 {
        a.me.quiescent();
        a.writer.maintain(UpkeepBudget { now_ms: 1000 + round * 100, ..budget });
    }
    let stats = a.writer.stats().cleaner;
    assert!(stats.segments > 4 && stats.bad_records == 1, "{stats:?}");
    a.put(b"over too", b"v", 9).unwrap();
    let (expired, _) = a.writer.expire_step(&a.me.pin(), 2000, 1000);
    assert_eq!((expired, a.get(b"over")), (1, None), "only what is over");
    let hash = a.writer.hash(&key(BAD));
    assert!(!a.writer.expire(&a.me.pin(), hash, &key(BAD)));
    a.put(b"over", b"v", 9).unwrap();
    let hash = a.writer.hash(b"over");
    assert!(a.writer.expire(&a.me.pin(), hash, b"over") && a.get(b"over").is_none());
    assert_eq!((place(&a, &key(BAD)), told(&a).len()), (at, 1));
    assert!(a.delete(&key(BAD)));
    assert_eq!((a.writer.expires(), a.writer.stats().cleaner.bad_records), (0, 1));
}

#[test]
fn a_record_of_a_wrong_length_stays_and_is_told_and_those_behind_it_are_moved() {
    // A cleaner that went from each record to the next by its length left all behind a wrong one
    // where it lay, dead or alive.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    poor(&mut a);
    let (at, behind) = (place(&a, &key(BAD)), place(&a, &key(NEAR)));
    flip(&a, at + r::VALUE_LEN + 3, 0x40);
    a.settle();
    let [kept] = &told(&a)[..] else { panic!("told once") };
    assert!(kept.key.is_none() && kept.finding.offset == at, "{kept:?}");
    assert!(place(&a, &key(BAD)) == at && place(&a, &key(NEAR)) != behind);
    assert!((NEAR..KEYS).step_by(8).all(|i| a.get(&key(i)) == Some(value(i))));
    assert_at_rest(&mut a);
}

#[test]
fn a_record_that_was_counted_twice_and_once_out_is_marked() {
    // A kill leaves an entry in both tables of a growing index, and adoption counts one of them
    // out. The mark of a record that was counted out goes some deaths later: it took that of the
    // live record with it, and the cleaner passed it by.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let at = place(&a, b"k");
    let head = Head::load(&a.writer.words, at);
    a.writer.space.charge(at, &head);
    a.writer.space.discharge(at, &head);
    a.writer.mark_live();
    a.writer.space.forget_dead();
    let slot = a.writer.space.geometry().slot_of(at);
    let segment = Victim { slot, at, end: at + head.bytes() };
    assert_eq!(a.writer.space.next_live(&segment, at), Some(at));
}

#[test]
fn entries_that_damage_doubled_or_gave_another_hash_are_told() {
    // Two entries of the index name one record, or none is where its key's hash says: the cleaner
    // can't move what it can't find, and says so.
    let dir = directory();
    for doubled in [true, false] {
        let mut a = Arena::create(&spec(dir.path().join(format!("{doubled}")), 8 * MIB));
        for i in 0..KEYS {
            a.put(&key(i), &value(i), 0).unwrap();
        }
        (0..KEYS).filter(|&i| i % 8 != 0).for_each(|i| assert!(a.delete(&key(i))));
        let (bad, hash) = (key(BAD), a.writer.hash(&key(BAD)));
        let (record, words) = (place(&a, &bad), a.writer.words);
        let at = a.writer.index.locate(&words, hash, &bad).found.expect("it is there").at;
        let e = words.load64(at, Relaxed);
        if doubled {
            let line = at - at % 64;
            let room = (line..line + 64).step_by(8).find(|&at| words.load64(at, Relaxed) == 0);
            words.store64(room.expect("a line with room"), e, Relaxed);
            let spec = a.spec.clone();
            drop(a);
            a = Arena::adopt(&spec).0;
            assert!(a.delete(&bad), "by its first entry");
        } else {
            words.store64(at, entry(hash ^ 1 << 30, entry_reference(e)), Relaxed);
        }
        a.settle();
        let [kept] = &told(&a)[..] else { panic!("told once") };
        let what = ["entry of a live record is none", "didn't meet is 1, expected 0"];
        assert!(kept.finding.what.contains(what[usize::from(doubled)]), "{kept:?}");
        assert!(doubled || kept.finding.offset == record, "{kept:?}");
        assert_at_rest(&mut a);
    }
}

#[test]
fn a_full_arena_with_bad_segments_says_that_it_is_full() {
    // Every segment of an arena keeps one bad record, and else little. Cleaning them gives nothing:
    // writes are told that memory is full, not to wait for ever; and when the bad keys go, there is
    // room again.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let mut n = 0;
    while a.put_soon(&key(n), &value(n)).is_ok() {
        n += 1;
    }
    assert!(n > 5000, "{n} keys");
    // One in a hundred stays, and is bad: two or three in each segment.
    for i in (0..n).filter(|i| i % 100 == 0) {
        flip(&a, place(&a, &key(i)) + 300, 1);
    }
    for i in (0..n).filter(|i| i % 100 != 0) {
        assert!(a.delete(&key(i)));
    }
    let mut stored = 0;
    let error = loop {
        match a.put_soon(&key(n + stored), &value(stored)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, WriteError::Oom);
    assert!(stored < n / 8, "{stored} of {n}: the bad ones' segments were reused");
    // The last two segments take records, so the cleaner looks at neither.
    let (kept, more) = a.reader.region().take_kept();
    let met = a.writer.stats().cleaner.bad_records;
    assert!(met > u64::from(n / 100) * 9 / 10 && met <= u64::from(n.div_ceil(100)), "{met} of {n}");
    assert_eq!(kept.len() as u64 + more, met, "each once");
    assert!(!a.writer.is_gaining());
    for i in (0..n).step_by(100) {
        assert_eq!(a.get(&key(i)).map(|v| v.len()), Some(VALUE_BYTES));
        assert!(a.delete(&key(i)));
    }
    for i in 0..n / 2 {
        a.put_soon(&key(i), &value(i)).unwrap();
    }
    assert!((0..stored).all(|i| a.get(&key(n + i)) == Some(value(i))));
    assert!(verify(&a.spec.path).unwrap().bad_records.is_empty());
}

#[test]
fn a_header_that_changes_while_it_is_served_is_told_when_its_key_goes() {
    // A bit of a header flips in memory. The next overwrite or deletion counted its record out by
    // what stood there then, which was not what had been counted in: the writer died of a sum below
    // zero, or of a run that there wasn't.
    let flips = [(r::VALUE_LEN, 0x20), (r::VALUE_LEN + 1, 4), (r::VALUE_LEN + 3, 0x80)];
    let flips = flips.into_iter().chain([(r::FLAGS, r::FLAG_RUN)]);
    for ((at, bits), others) in flips.flat_map(|flip| [(flip, false), (flip, true)]) {
        let dir = directory();
        let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
        if others {
            // As many bytes as the flipped bit adds to a length: the segment looked as if nothing
            // lived in it.
            a.put(b"other", &[7; 1024 - 40], 0).unwrap();
        }
        a.put(b"k", &[1; 100], 0).unwrap();
        flip(&a, place(&a, b"k") + at, bits);
        a.put(b"k", b"new", 0).unwrap();
        assert_eq!((a.get(b"k"), a.writer.lsn), (Some(b"new".to_vec()), 2 + u64::from(others)));
        // The segment takes no records any more, and but for the other one they all go.
        for i in 0..400 {
            a.put_soon(b"filler", &[i as u8; 1000]).unwrap();
            a.turn();
        }
        a.put(b"k", b"newer", 0).unwrap();
        a.settle();
        for i in 0..400 {
            a.put_soon(b"filler", &[i as u8; 1000]).unwrap();
            a.turn();
        }
        assert_eq!(a.get(b"other"), others.then(|| vec![7; 1024 - 40]), "{at} {bits}");
        // With its last record the segment comes back, and nothing is counted that isn't there.
        for key in [&b"k"[..], b"other", b"filler"] {
            a.delete(key);
        }
        a.settle();
        assert!(!told(&a).is_empty(), "{at} {bits}");
        let stats = a.writer.stats();
        assert!(stats.segments <= 1 && stats.used_bytes < 200, "{at} {bits}: {stats:?}");
        assert!(verify(&a.spec.path).unwrap().findings.is_empty());
    }
}

#[test]
fn a_run_is_let_go_only_by_a_record_that_is_whole() {
    // A bit flips in the name of a run, and names the run of another key: when the key was deleted,
    // the other one's value was given back.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let keys = [b"a", b"b", b"c", b"d"];
    for (key, byte) in keys.into_iter().zip(1..) {
        a.put(key, &vec![byte; 200_000], 0).unwrap();
    }
    let slot_of = |a: &Arena, key: &[u8]| {
        let name = bytes_at(a, place(a, key) + r::KEY + 8, 4);
        u32::from_le_bytes(name.try_into().expect("4 bytes"))
    };
    let slots = keys.map(|key| slot_of(&a, key));
    let pairs = (0..4).flat_map(|i| (0..4).map(move |j| (i, j)));
    let is_bit = |&(i, j): &(usize, usize)| (slots[i] ^ slots[j]).is_power_of_two();
    let (bad, other) = pairs.into_iter().find(is_bit).expect("runs one bit apart");
    let bit = (slots[bad] ^ slots[other]) as u8;
    flip(&a, place(&a, keys[bad]) + r::KEY + 8, bit);
    assert!(a.delete(keys[bad]));
    a.settle();
    let value = vec![other as u8 + 1; 200_000];
    assert!(a.get(keys[other]) == Some(value), "another key's value");
    assert!(told(&a)[0].finding.what.contains("checksum of a record is "));
    assert_eq!(a.writer.stats().runs, 4, "the run that it had is kept");
    a.writer.clear();
    a.settle();
    assert_eq!(a.writer.stats().runs, 0);
}

#[test]
fn a_bad_record_that_goes_while_its_segment_is_cleaned_lets_it_come_back() {
    // The cleaner has met a bad record, and a client overwrites it before the cleaner comes to the
    // segment's end. A dead record on its way has a wrong length.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    for i in 0..KEYS {
        a.put(&key(i), &value(i), 0).unwrap();
    }
    let (bad, dead, near) = (key(0), place(&a, &key(100)), key(101));
    let near_at = place(&a, &near);
    let slot = a.writer.space.geometry().slot_of(near_at);
    assert_eq!(slot, a.writer.space.geometry().slot_of(place(&a, &bad)), "neighbours");
    flip(&a, place(&a, &bad) + 200, 0x10);
    // More than a batch lives before the other one.
    (50..KEYS).filter(|&i| i != 101).for_each(|i| assert!(a.delete(&key(i))));
    flip(&a, dead + r::VALUE_LEN + 3, 0x40);
    while a.writer.stats().cleaner.bad_records == 0 {
        assert!(a.writer.clean(1, Need::Pressure) > 0);
    }
    assert_eq!(place(&a, &near), near_at, "the step ended before it");
    let [kept] = &told(&a)[..] else { panic!("told once") };
    assert_eq!(kept.key.as_ref(), Some(&bad));
    let generation = a.writer.space.generation(slot);
    a.put(&bad, b"new", 0).unwrap();
    a.settle();
    assert!(told(&a).is_empty() && a.writer.space.generation(slot) > generation);
    assert_eq!((a.get(&near), a.get(&bad)), (Some(value(101)), Some(b"new".to_vec())));
}

#[test]
fn what_a_bad_record_holds_is_not_carried_on() {
    // A bit flips in a value, or in the name of its run. APPEND, EXPIRE and rename gave the value a
    // new checksum, which was right then, or panicked for a run that there isn't.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let flips = [(b"inline" as &[u8], 1000, r::KEY + 8 + 20), (b"in a run", 200_000, r::KEY + 8)];
    for (key, len, at) in flips {
        a.put(key, &vec![7; len], 0).unwrap();
        flip(&a, place(&a, key) + at, 0x10);
        let (hash, pin) = (a.writer.hash(key), a.me.pin());
        let refused = Err(WriteError::BadRecord);
        assert_eq!(a.writer.set_expiry(&pin, hash, key, 1 << 40).map(|_| ()), refused);
        let from = a.reader.get(&pin, hash, key).expect("it is served").reference();
        assert_eq!(a.writer.extend(&pin, from, (hash, key), &[b"more"], 0), refused);
        let renamed = a.writer.stage_moved_run(&pin, from, hash ^ 1, b"other", 0);
        assert_eq!(renamed.map(|_| ()), refused);
        assert_eq!(told(&a).len(), 1, "once");
        a.put(key, b"new", 0).unwrap();
        assert_eq!(a.get(key), Some(b"new".to_vec()));
    }
}
