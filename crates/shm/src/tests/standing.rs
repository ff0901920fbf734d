//! Records that a log takes again: as they are now, compared, and held while they are read.

use super::telling::{KeptChange, Telling, replayed, state};
use super::{Arena, assert_counted, directory, spec};
use crate::format::layout::record as r;
use crate::format::words::SharedWords;
use crate::{Effect, MendError, ReplayError, Standing, StandingRecord};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
const LONG: usize = 300_000;

fn look(a: &mut Arena, key: &[u8], lsn: Option<u64>) -> Option<StandingRecord> {
    match a.writer.standing(&a.me.pin(), key, lsn) {
        Standing::Whole(record) => Some(record),
        Standing::Other | Standing::Bad => None,
    }
}

/// The change with which a log takes a record again.
fn again(record: &StandingRecord) -> KeptChange {
    let value = record.value.as_ref().map_or(&[][..], |value| value.bytes());
    let payload = [&record.record, value].concat();
    KeptChange { lsn: record.lsn, effect: Effect::Put, payload }
}

#[test]
fn all_standing_records_make_the_same_arena() {
    // A base: each key as it is now, those too that stand on earlier changes.
    let mut t = Telling::new(16 * MIB);
    for n in 0..50u8 {
        t.a.put(&[n], &vec![n; usize::from(n)], u64::from(n % 3)).unwrap();
        t.a.put(&[n], &vec![n; usize::from(n) * 2], u64::from(n % 3)).unwrap();
    }
    t.a.put(b"long", &[1; LONG], 0).unwrap();
    let hash = t.a.writer.hash(b"long");
    t.a.writer.set_expiry(&t.a.me.pin(), hash, b"long", 55).unwrap();
    t.read();
    t.leave();
    let keys: Vec<Vec<u8>> = state(&t.a).into_keys().collect();
    let mut base = Vec::new();
    for key in &keys {
        let mut record = look(&mut t.a, key, None).expect("it is there");
        assert_eq!(record.is_based, key == b"long");
        let whole = record.value.as_mut().is_none_or(|it| it.compare(usize::MAX) == Some(true));
        assert!(whole);
        base.push(vec![again(&record)]);
    }
    let (_dir, b) = replayed(&base, 32 * MIB);
    assert!(state(&b) == state(&t.a));
    assert_eq!(b.writer.stats().lsn, t.a.writer.stats().lsn);
}

#[test]
fn only_the_version_with_this_number_stands() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"1", 0).unwrap();
    a.put(b"k", b"2", 0).unwrap();
    a.put(b"l", b"3", 0).unwrap();
    assert!(a.delete(b"l"));
    assert!(look(&mut a, b"k", Some(1)).is_none(), "an older one");
    assert!(look(&mut a, b"k", Some(2)).is_some());
    assert!(look(&mut a, b"l", Some(3)).is_none(), "it went");
}

#[test]
fn a_value_is_held_until_it_is_dropped_and_compared_in_steps() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.put(b"k", &[7; LONG], 0).unwrap();
    let mut value = look(&mut a, b"k", Some(1)).expect("it is there").value.expect("a run");
    assert!(a.delete(b"k"));
    a.writer.clear();
    (0..20).for_each(|_| _ = a.turn());
    a.put(b"other", &[8; LONG], 0).unwrap();
    assert_eq!(a.writer.stats().runs, 2);
    let mut steps = 1;
    let same = loop {
        match value.compare(4096) {
            Some(same) => break same,
            None => steps += 1,
        }
    };
    assert!(same && steps == LONG.div_ceil(4096) && value.bytes() == [7; LONG]);
    // It was given to the log's thread.
    std::thread::spawn(move || drop(value)).join().unwrap();
    a.settle();
    assert_eq!(a.writer.stats().runs, 1);
}

#[test]
fn bad_memory_is_told_and_mended_by_the_logs_version() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"short", b"a short value", 9).unwrap();
    t.a.put(b"long", &[1; LONG], 0).unwrap();
    let wanted = state(&t.a);
    let told = t.read();
    t.leave();
    let at = |a: &Arena, key: &[u8]| {
        let (pin, hash) = (a.me.pin(), a.reader.hash(key));
        a.reader.get(&pin, hash, key).unwrap().value_ref().offset()
    };
    let file = std::fs::OpenOptions::new().write(true).open(&t.a.spec.path).unwrap();
    for key in [&b"short"[..], b"long"] {
        file.write_all_at(b"X", at(&t.a, key) + 3).unwrap();
    }
    assert!(matches!(t.a.writer.standing(&t.a.me.pin(), b"short", Some(1)), Standing::Bad));
    let mut long = look(&mut t.a, b"long", Some(2)).expect("its record is right");
    assert_eq!(long.value.as_mut().unwrap().compare(usize::MAX), Some(false));
    drop(long);
    for commit in &told {
        assert_eq!(t.a.writer.mend(&t.a.me.pin(), &commit[0].change()), Ok(true));
    }
    assert!(state(&t.a) == wanted);
    assert_eq!((t.a.writer.stats().lsn, t.a.writer.keys(), t.a.writer.expires()), (2, 2, 1));
    assert!(look(&mut t.a, b"short", Some(1)).is_some());
    assert!(t.read().is_empty(), "mending is no change");
    // Another version is there now, or none.
    t.a.put(b"short", b"new", 0).unwrap();
    assert!(t.a.delete(b"long"));
    for commit in &told {
        assert_eq!(t.a.writer.mend(&t.a.me.pin(), &commit[0].change()), Ok(false));
    }
    t.a.put(b"long", &[2; LONG], 0).unwrap();
    t.read();
    t.leave();
    let (wanted, Telling { a, ring, reader, dir: _dir }) = (state(&t.a), t);
    drop((ring, reader));
    assert!(state(&a.again().0) == wanted);
}

#[test]
fn a_mended_record_has_the_predecessor_and_the_counts_of_the_bad_one() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"k", b"one", 0).unwrap();
    t.a.put(b"k", b"a short value", 9).unwrap();
    let told = t.read();
    let place = |a: &Arena| {
        let pin = a.me.pin();
        let record = a.reader.get(&pin, a.reader.hash(b"k"), b"k").unwrap();
        (record.reference().offset(), record.value_ref().offset())
    };
    let (bad, value) = place(&t.a);
    let prev = |a: &Arena, at| a.writer.words.load32(at + r::PREV, Relaxed);
    let before = prev(&t.a, bad);
    let file = std::fs::OpenOptions::new().write(true).open(&t.a.spec.path).unwrap();
    file.write_all_at(b"X", value + 3).unwrap();
    t.a.writer.cleaner.due = t.a.writer.appended;
    assert_eq!(t.a.writer.mend(&t.a.me.pin(), &told[1][0].change()), Ok(true));
    let (right, _) = place(&t.a);
    assert!(before != 0 && right != bad && prev(&t.a, right) == before);
    assert!(t.a.writer.cleaner.due > t.a.writer.appended, "it was paid for");
    assert_counted(&t.a);
}

/// A flipped bit of its key hides a record from writes: none of them says whether its key is gone.
#[test]
fn a_record_that_lost_its_key_is_mended_unless_a_key_of_its_hash_was_removed() {
    for removed in [false, true] {
        let mut t = Telling::new(16 * MIB);
        t.a.put(b"k", b"a short value", 0).unwrap();
        let wanted = state(&t.a);
        let (told, hash) = (t.read(), t.a.writer.hash(b"k"));
        let pin = t.a.me.pin();
        let at = t.a.reader.get(&pin, hash, b"k").unwrap().reference().offset();
        let file = std::fs::OpenOptions::new().write(true).open(&t.a.spec.path).unwrap();
        file.write_all_at(b"X", at + r::KEY).unwrap();
        assert!(matches!(t.a.writer.standing(&t.a.me.pin(), b"k", Some(1)), Standing::Bad));
        if removed {
            t.a.writer.put(&t.a.me.pin(), hash, b"other", &[b"v"], 0).unwrap();
            assert!(t.a.writer.delete(&t.a.me.pin(), hash, b"other"));
        }
        let mended = t.a.writer.mend(&t.a.me.pin(), &told[0][0].change());
        match removed {
            false => assert_eq!((mended, state(&t.a)), (Ok(true), wanted)),
            true => {
                assert_eq!(mended, Err(MendError::MayBeRemoved));
                assert!(!MendError::MayBeRemoved.is_lasting(), "the key may be set anew");
                let wrong = ReplayError::Record { lsn: 1, what: "wrong" };
                assert!(MendError::from(wrong).is_lasting());
            }
        }
    }
}
