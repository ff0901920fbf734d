//! What a commit of several keys does beside the stores of their entries: numbers, room, what it
//! pays, and what it leaves behind.

use super::telling::Telling;
use super::{Arena, directory, spec};
use crate::failpoints::before_each_step;
use crate::format::head::Head;
use crate::format::layout::{header, inline_record_bytes, record as r};
use crate::format::words::SharedWords;
use crate::journal::layout::change_bytes;
use crate::{Domain, Effect, RecordRef, StreamChange, WriteError};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
/// A value in a run.
const LONG: usize = 200_000;

fn arena(capacity: u64) -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), capacity));
    (dir, a)
}

fn stage(a: &mut Arena, keys: &[&[u8]]) -> Vec<RecordRef> {
    let stage = |key: &&[u8]| a.writer.stage(a.writer.hash(key), key, &[b"v"], 0).unwrap();
    keys.iter().map(stage).collect()
}

fn commit(a: &mut Arena, clear_first: bool, refs: &[RecordRef]) -> Result<(), WriteError> {
    a.writer.commit(&a.me.pin(), clear_first, refs)
}

#[test]
fn an_intent_has_the_first_number_and_a_clearing_that_of_its_intent() {
    for clears in [false, true] {
        let (_dir, mut a) = arena(4 * MIB);
        (0..9u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
        let refs = stage(&mut a, &[b"a", b"b"]);
        let (words, number) = (a.writer.words, Rc::new(Cell::new(0)));
        let noted = Rc::clone(&number);
        let look = move || match words.load32(header::INTENT, Relaxed) {
            0 => {}
            intent => noted.set(Head::load(&words, u64::from(intent) * r::UNIT).lsn),
        };
        before_each_step(look, || commit(&mut a, clears, &refs)).unwrap();
        let cleared = if clears { 10 } else { 0 };
        let stamp = words.load64(header::CLEAR_STAMP, Relaxed);
        let last = 11 + u64::from(clears);
        assert_eq!((number.get(), stamp, a.writer.lsn), (10, cleared, last), "{clears}");
    }
}

#[test]
fn a_base_is_known_as_long_as_its_value_is_staged() {
    let (_dir, mut a) = arena(16 * MIB);
    a.put(b"long", &vec![1; LONG], 0).unwrap();
    let (hash, long) = (a.writer.hash(b"other"), a.writer.hash(b"long"));
    let from = a.reader.get(&a.me.pin(), long, b"long").unwrap().reference();
    let stage = |a: &mut Arena| {
        let staged = a.writer.stage_moved_run(&a.me.pin(), from, hash, b"other", 0).unwrap();
        assert_eq!(a.writer.based.len(), 1);
        staged
    };
    let staged = stage(&mut a);
    a.writer.abandon(&[staged]);
    assert!(a.writer.based.is_empty(), "abandoned");
    let staged = stage(&mut a);
    commit(&mut a, false, &[staged]).unwrap();
    assert!(a.writer.based.is_empty(), "committed");
    a.writer.set_expiry(&a.me.pin(), long, b"long", 7).unwrap();
    assert!(a.writer.based.is_empty(), "published at once");
}

#[test]
#[should_panic(expected = "a record kept longer than its value")]
fn a_record_whose_value_has_gone_is_not_staged_again() {
    let (_dir, mut a) = arena(16 * MIB);
    let (long, other) = (a.writer.hash(b"long"), a.writer.hash(b"other"));
    a.put(b"long", &vec![1; LONG], 0).unwrap();
    let kept = a.reader.get(&a.me.pin(), long, b"long").unwrap().reference();
    // Its segment is the one that takes records, and stays.
    assert!(a.delete(b"long"));
    a.settle();
    let _ = a.writer.stage_moved_run(&a.me.pin(), kept, other, b"other", 0);
}

#[test]
fn a_commit_asks_the_journal_for_a_clearing_only_if_it_clears() {
    let mut t = Telling::new(16 * MIB);
    let mut refs = Vec::new();
    for i in 0..4_000u32 {
        let (key, hash) = (i.to_le_bytes(), t.a.writer.hash(&i.to_le_bytes()));
        refs.push(t.a.writer.stage(hash, &key, &[&[1; 200]], 0).unwrap());
    }
    let mut asked = |clears| match commit(&mut t.a, clears, &refs) {
        Err(WriteError::JournalTooSmall { bytes, .. }) => bytes,
        other => panic!("{other:?}"),
    };
    let (without, with) = (asked(false), asked(true));
    // Its header, and a multiple of 32 bytes.
    let of_changes = 4_000 * change_bytes(r::KEY + 8 + 200);
    assert!((of_changes + 32..of_changes + 64).contains(&without), "{without} {of_changes}");
    assert_eq!(with - without, 32);
}

/// Every write moves lines, so growth ends without a turn, long before the next is due.
#[test]
fn each_kind_of_write_goes_on_with_growth() {
    type Write = fn(&mut Arena, u32);
    let key = |n: u32| format!("{n:04}");
    let writes: [(&str, Write); 4] = [
        ("put", |a, _| a.put(b"0000", b"v", 0).unwrap()),
        ("delete", |a, _| assert!(!a.delete(b"nobody"))),
        ("commit", |a, _| {
            let refs = stage(a, &[b"0000", b"0001"]);
            commit(a, false, &refs).unwrap();
        }),
        ("delete together", |a, n| {
            let key = format!("{n:04}");
            a.writer
                .delete_together(&a.me.pin(), &[(a.writer.hash(key.as_bytes()), key.as_bytes())]);
        }),
    ];
    for (name, write) in writes {
        let (_dir, mut a) = arena(16 * MIB);
        let mut n = 0u32;
        while !a.writer.index.growing() || a.writer.stats().index_lines < 512 {
            a.put(key(n).as_bytes(), b"v", 0).unwrap();
            n += 1;
        }
        let writes = (0..200).take_while(|&n| {
            write(&mut a, n);
            a.writer.index.growing()
        });
        assert!(writes.count() < 200, "{name}");
    }
}

#[test]
fn a_commit_that_clears_and_finds_no_room_gives_its_table_back() {
    let (_dir, mut a) = arena(4 * MIB);
    let refs = stage(&mut a, &[b"a", b"b"]);
    let mut n = 0u32;
    for bytes in [10_000, 0] {
        while a.soon(|a| a.put(&n.to_le_bytes(), &vec![1; bytes], 0)).is_ok() {
            n += 1;
        }
    }
    a.settle();
    let slots = |a: &mut Arena| {
        a.settle();
        a.writer.stats().backed_bytes
    };
    let before = slots(&mut a);
    for _ in 0..9 {
        assert_eq!(a.soon(|a| commit(a, true, &refs)), Err(WriteError::Oom));
    }
    assert_eq!(slots(&mut a), before);
    assert_eq!(a.writer.keys(), u64::from(n));
    a.writer.abandon(&refs);
}

#[test]
fn a_commit_that_clears_takes_a_table_in_which_all_keys_find_places() {
    // Of the first table's 64 lines, all these keys would stand in sixteen: 128 fit. In one of
    // twice as many, each line is the home of half of them.
    let commit_of = |keys: u32, apart: u32| {
        let (_dir, mut a) = arena(16 * MIB);
        a.put(b"before", b"v", 0).unwrap();
        let stage =
            |i: u32| a.writer.stage(64 * (i % apart), &i.to_le_bytes(), &[b"v"], 0).unwrap();
        let refs: Vec<_> = (0..keys).map(stage).collect();
        let done = commit(&mut a, true, &refs);
        let is_there = |i: &u32| {
            let pin = a.me.pin();
            a.reader.get(&pin, 64 * (i % apart), &i.to_le_bytes()).is_some()
        };
        let (found, before) = ((0..keys).filter(is_there).count(), a.get(b"before").is_some());
        (done, a.writer.stats().index_lines, found, before)
    };
    assert_eq!(commit_of(128, 2), (Ok(()), 64, 128, false));
    assert_eq!(commit_of(129, 2), (Ok(()), 128, 129, false));
    assert_eq!(commit_of(257, 4), (Ok(()), 256, 257, false));
    assert_eq!(commit_of(129, 1), (Err(WriteError::TooManyKeysWithOneHash), 64, 0, true));
}

#[test]
fn a_pin_of_another_domain_is_refused() {
    type Call = fn(&mut Arena, &crate::Pin<'_>, RecordRef, RecordRef) -> bool;
    let calls: [(&str, Call); 10] = [
        ("put", |a, pin, _, _| a.writer.put(pin, 1, b"k", &[b"v"], 0).is_ok()),
        ("delete", |a, pin, _, _| a.writer.delete(pin, 1, b"k")),
        ("delete_together", |a, pin, _, _| {
            a.writer.delete_together(pin, &[]);
            true
        }),
        ("set_expiry", |a, pin, _, _| a.writer.set_expiry(pin, 1, b"k", 1).is_ok()),
        ("extend", |a, pin, from, _| a.writer.extend(pin, from, (1, b"k"), &[], 0).is_ok()),
        ("stage_extended", |a, pin, from, _| {
            a.writer.stage_extended(pin, from, (1, b"k"), &[], 0).is_ok()
        }),
        ("stage_moved_run", |a, pin, from, _| {
            a.writer.stage_moved_run(pin, from, 1, b"k", 0).is_ok()
        }),
        ("stage_expiry", |a, pin, from, _| a.writer.stage_expiry(pin, from, 1, b"k", 0).is_ok()),
        ("mend", |a, pin, _, _| {
            let change = StreamChange { lsn: 1, effect: Effect::Clear, payload: &[], rest: &[] };
            a.writer.mend(pin, &change).is_ok()
        }),
        ("commit", |a, pin, _, staged| a.writer.commit(pin, false, &[staged]).is_ok()),
    ];
    let (_dir, mut a) = arena(4 * MIB);
    a.put(b"from", b"v", 0).unwrap();
    let from = a.reader.get(&a.me.pin(), a.reader.hash(b"from"), b"from").unwrap().reference();
    let staged = stage(&mut a, &[b"a"])[0];
    let others = Domain::new(4);
    let me = others.join();
    for (name, call) in calls {
        let pin = me.pin();
        let ended = catch_unwind(AssertUnwindSafe(|| call(&mut a, &pin, from, staged)));
        let why = ended.expect_err(name);
        let why = why.downcast_ref::<&str>().expect("a message");
        assert!(why.starts_with("a pin of another domain"), "{name}: {why}");
    }
    a.writer.abandon(&[staged]);
}

#[test]
fn nothing_is_told_of_a_deletion_of_no_keys() {
    let mut t = Telling::new(4 * MIB);
    let me = t.a.domain.join();
    t.a.writer.delete_together(&me.pin(), &[]);
    assert!(t.read().is_empty() && t.a.writer.lsn == 0);
}

#[test]
fn keys_that_a_clearing_commit_brings_are_counted_with_their_expiry() {
    let (_dir, mut a) = arena(4 * MIB);
    (0..9u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 7).unwrap());
    assert_eq!(a.writer.expires(), 9);
    let staged = a.writer.stage(a.writer.hash(b"a"), b"a", &[b"v"], 7).unwrap();
    let lasting = stage(&mut a, &[b"b"]);
    commit(&mut a, true, &[staged, lasting[0]]).unwrap();
    assert_eq!((a.writer.keys(), a.writer.expires()), (2, 1));
}

#[test]
fn tables_of_before_a_clearing_go_back() {
    let (_dir, mut a) = arena(16 * MIB);
    (0..2_000u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.writer.clear();
    a.settle();
    let backed = a.writer.stats().backed_bytes;
    for _ in 0..3 {
        a.writer.clear();
        a.settle();
        assert_eq!(a.writer.stats().backed_bytes, backed);
    }
}

#[test]
fn counts_are_stored_when_all_is_cleared_and_when_a_writer_goes() {
    let (_dir, mut a) = arena(4 * MIB);
    a.put(b"a", b"v", 7).unwrap();
    a.settle();
    let foreign = crate::ForeignReader::open(&a.spec.path).unwrap();
    assert_eq!((foreign.counters().keys, foreign.counters().expires), (1, 1));
    a.writer.clear();
    assert_eq!((foreign.counters().keys, foreign.counters().expires), (0, 0));
    a.put(b"b", b"v", 0).unwrap();
    let appended = a.writer.appended;
    let (a, _) = a.again();
    assert_eq!(a.writer.appended, appended);
}

#[test]
fn a_value_without_room_for_its_run_takes_none_for_its_record() {
    let (_dir, mut a) = arena(4 * MIB);
    a.put(b"a", b"v", 0).unwrap();
    let put = |a: &mut Arena, bytes: usize| a.put(b"k", &vec![1; bytes], 0);
    put(&mut a, 1).unwrap();
    let of = |a: &Arena| {
        let pin = a.me.pin();
        a.reader.get(&pin, a.reader.hash(b"k"), b"k").unwrap().reference().offset()
    };
    let before = of(&a);
    for _ in 0..9 {
        assert!(put(&mut a, 8 << 20).is_err());
    }
    put(&mut a, 1).unwrap();
    assert_eq!(of(&a), before + 48, "the next record stands behind the last");
}

/// Slots are of 1 MiB: a record may lie in a segment up to half of that. The journal's entries are
/// of 256 KiB at most.
#[test]
fn a_value_lies_in_a_run_if_an_entry_cannot_hold_its_record() {
    let names = Telling::new(256 * MIB);
    let holds = Telling::holding(256 * MIB);
    // An entry's header, 64 dependencies, and its only change.
    let front = 32 + 64 * 16;
    let fits = |len| front + change_bytes(inline_record_bytes(1, len)) <= MIB / 4;
    let mut longest = 0;
    for len in (1_000..520_000).step_by(8) {
        assert_eq!(names.a.writer.takes_run(1, len), !fits(len), "{len}");
        assert!(!holds.a.writer.takes_run(1, len), "{len}");
        longest = if fits(len) { len } else { longest };
    }
    assert_eq!(longest, 261_016);
}

#[test]
fn a_search_for_expired_keys_begins_anew_when_all_keys_go() {
    let (_dir, mut a) = arena(4 * MIB);
    a.put(b"a", b"v", 7).unwrap();
    a.writer.expire_step(&a.me.pin(), 1, 10);
    assert_eq!(a.writer.expire_line, 10);
    a.writer.clear();
    assert_eq!(a.writer.expire_line, 0);
}

#[test]
fn a_commit_without_places_in_a_growing_index_ends_its_growth_first() {
    let (_dir, mut a) = arena(16 * MIB);
    // In a table of 512 lines all of these have one home, in the next one two.
    let hash = |i: u32| 512 * (i % 2);
    for i in 0..70u32 {
        a.writer.put(&a.me.pin(), hash(i), &i.to_be_bytes(), &[b"v"], 0).unwrap();
    }
    let mut n = 0u32;
    while !a.writer.index.growing() || a.writer.stats().index_lines < 512 {
        a.put(&n.to_le_bytes(), b"v", 0).unwrap();
        n += 1;
    }
    let stage = |i: u32| a.writer.stage(hash(i), &i.to_be_bytes(), &[b"v"], 0).unwrap();
    let refs: Vec<_> = (70..130).map(stage).collect();
    assert!(2 * refs.len() < 256, "what the commit moves first is not all of the old table");
    commit(&mut a, false, &refs).unwrap();
    assert_eq!((a.writer.stats().index_lines, a.writer.keys()), (1024, u64::from(n) + 130));
    let is_there = |hash, key: &[u8]| a.reader.get(&a.me.pin(), hash, key).is_some();
    assert!((0..130).all(|i| is_there(hash(i), &i.to_be_bytes())));
    assert!((0..n).all(|i| is_there(a.reader.hash(&i.to_le_bytes()), &i.to_le_bytes())));
}
