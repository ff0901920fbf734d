//! A writer dies between any two of its stores, and another takes over, under a reader in another
//! process.
//!
//! ```text
//! store store store ✝   survey ── begun ── (the intent's list) ── committed ── the next change
//! ```
//!
//! The reader doesn't look at the incarnation: so it sees all that lies in between. What adoption
//! does before its first store is the shipped survey; its stores are those of a change, by the
//! shipped functions.

use super::{LoomWords, SHIFT, SMALL, Setting, check, head, home, offset, reference};
use crate::check::survey::{Survey, survey};
use crate::format::head::Head;
use crate::format::layout::{Geometry, entry, header, record as r, stamp_offset};
use crate::format::record;
use crate::format::words::{HeapWords, SharedWords};
use crate::index::moment;
use crate::index::{Index, Table, find};
use std::sync::atomic::Ordering;

/// What the next writer does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// It leaves begun and committed as they are.
    NotEnded,
    /// It numbers from the committed LSN on.
    NumbersAgain,
    /// It says that an interrupted commit is over before it has ended it.
    CommittedEarly,
}

/// Stores of the longest change here, and one more: a writer that doesn't die.
const STORES_MAX: u64 = 8;
/// Where the intent record lies.
const INTENT: u64 = 8;

fn hash(key: &[u8]) -> u32 {
    crate::format::hash::hash(0, key)
}

/// The entry of a key, in the line where its hash wants it.
fn place(key: &[u8], i: u64) -> u64 {
    home(SMALL, hash(key), i)
}

/// A segment that holds the records, and keys `a` and `b` with number 1.
fn setting() -> Setting {
    let mut setting = Setting::new(&[place(b"a", 0), place(b"b", 1)]).moments(1);
    let g = geometry();
    let half = if g.tail_offset(3) & 4 == 0 { 0 } else { 32 };
    setting.cold.insert(g.tail_offset(3) & !7, u64::from(record::reference_of(4096)) << half);
    setting.record(0, b"a", 0).record(1, b"b", 0)
}

fn geometry() -> Geometry {
    Geometry::new(2 << 20).expect("the least capacity")
}

fn surveyed(words: &LoomWords) -> Survey {
    survey(words, &geometry(), 1 << 20, 0, &mut Err).expect("no writer leaves damage")
}

/// Stores a key's entry, as a change does.
fn put(words: &LoomWords, index: &mut Index, key: &[u8], n: u64) {
    let at = index.locate(words, hash(key), key);
    moment::put(words, index, &at, entry(hash(key), reference(n)));
}

fn index(words: &LoomWords, keys: &[(&[u8], u64, u64)]) -> Index {
    let mut index = Index::new(SMALL);
    for &(key, i, n) in keys {
        index.insert(words, (place(key, i), true), hash(key), reference(n));
    }
    index
}

/// The next writer: ends what it finds, and returns its index and its LSN.
fn adopt(words: &LoomWords, mistake: Mistake) -> (Index, u64) {
    let found = surveyed(words);
    let current: Table = found.current.expect("a table");
    let mut index = Index::adopted(current, found.old, found.load, found.entries);
    let mut lsn = found.lsn();
    if mistake == Mistake::NumbersAgain {
        lsn = found.counts.committed_lsn;
    }
    if mistake == Mistake::NotEnded {
        return (index, lsn);
    }
    let Some(intent) = found.intent else {
        moment::begin(words, lsn, 0);
        moment::end(words, lsn, 0);
        return (index, lsn);
    };
    let reference = record::reference_of(intent.record.offset);
    moment::begin(words, lsn, reference);
    if mistake == Mistake::CommittedEarly {
        moment::end(words, lsn, reference);
    }
    for whole in &intent.list {
        let key: &[u8] = if whole.offset == offset(2) { b"a" } else { b"b" };
        let at = index.locate(words, hash(key), key);
        let reference = record::reference_of(whole.offset);
        if at.found.is_none_or(|place| place.reference != reference) {
            moment::put(words, &mut index, &at, entry(hash(key), reference));
        }
    }
    moment::end(words, lsn, reference);
    (index, lsn)
}

/// The number of a record, as its bytes say.
fn number(words: &LoomWords, reference: u32) -> u64 {
    words.load64(u64::from(reference) * r::UNIT + r::LSN, Ordering::Relaxed)
}

/// A key's overwriting is cut off; the next writer takes over and overwrites it too.
fn one_key(stores: u64, mistake: Mistake) {
    let setting = setting().numbered(2, b"a", 0, 2).hot_prev(2);
    // The next writer's record has number 2 or 3.
    let setting = setting.numbered(4, b"a", 0, 2).numbered(5, b"a", 0, 3);
    let (words, writer) = setting.hot_prev(4).hot_prev(5).words();
    let mut dying = index(&writer, &[(b"a", 0, 0)]);
    let thread = loom::thread::spawn(move || {
        let writer = writer.dying_after(stores);
        moment::begin(&writer, 2, 0);
        put(&writer, &mut dying, b"a", 2);
        moment::end(&writer, 2, 0);
        let next = writer.successor();
        let (mut index, lsn) = adopt(&next, mistake);
        // Before it writes: no key is newer than what is committed.
        let now = moment::sample_within(&next, 1).expect("nothing is under way");
        let newest = find(&next, SHIFT, hash(b"a"), b"a").expect("a key");
        assert!(number(&next, newest) <= now.lsn, "a key stays too new");
        moment::begin(&next, lsn + 1, 0);
        put(&next, &mut index, b"a", lsn + 3);
        moment::end(&next, lsn + 1, 0);
        lsn + 1
    });
    let (found, _) =
        moment::find_alone(&words, SHIFT, (hash(b"a"), b"a")).expect("no commit of several");
    let mut seen = vec![(number(&words, found.expect("a key")), found)];
    if let Some(now) = moment::sample_within(&words, 2) {
        let found = moment::find(&words, SHIFT, &now, (hash(b"a"), b"a")).expect("no removal");
        let lsn = number(&words, found.expect("a key"));
        assert!(lsn <= now.lsn, "{lsn} at {}", now.lsn);
        assert!(seen[0].0 <= now.lsn, "a moment from before what was read");
        seen.push((lsn, found));
    }
    let newest = thread.join().unwrap();
    let now = moment::sample_within(&words, 1).expect("nothing is under way");
    assert_eq!(now.lsn, newest);
    let found = moment::find(&words, SHIFT, &now, (hash(b"a"), b"a")).expect("no key is too new");
    seen.push((number(&words, found.expect("a key")), found));
    for (lsn, found) in &seen {
        let again = seen.iter().any(|(other, of)| other == lsn && of != found);
        assert!(!again, "a number was given twice: {seen:?}");
    }
}

#[test]
fn model_a_write_is_cut_off_between_any_two_stores() {
    for stores in 0..=5 {
        check(2, move || one_key(stores, Mistake::None));
    }
}

#[test]
#[should_panic(expected = "nothing is under way")]
fn model_a_writer_that_ends_nothing_leaves_keys_too_new() {
    check(2, || one_key(3, Mistake::NotEnded));
}

#[test]
#[should_panic(expected = "a key stays too new")]
fn model_a_writer_that_numbers_from_committed_hides_a_key() {
    check(2, || one_key(3, Mistake::NumbersAgain));
}

/// A key's removal is cut off; the next writer takes over and puts the key.
fn removal(stores: u64, mistake: Mistake) {
    let setting = setting().hot(stamp_offset(hash(b"a")));
    let setting = setting.numbered(4, b"a", 0, 2).numbered(5, b"a", 0, 3);
    let (words, writer) = setting.hot_prev(4).hot_prev(5).words();
    let mut dying = index(&writer, &[(b"a", 0, 0)]);
    let key: (u32, &[u8]) = (hash(b"a"), b"a");
    let thread = loom::thread::spawn(move || {
        let writer = writer.dying_after(stores);
        moment::begin(&writer, 2, 0);
        let place = dying.locate(&writer, key.0, key.1).found.expect("a key");
        moment::remove(&writer, &mut dying, (&place, key.0), 2);
        moment::end(&writer, 2, 0);
        let next = writer.successor();
        let (mut index, lsn) = adopt(&next, mistake);
        moment::begin(&next, lsn + 1, 0);
        put(&next, &mut index, b"a", lsn + 3);
        moment::end(&next, lsn + 1, 0);
    });
    let mut stamped = 0;
    let alone = moment::find_alone(&words, SHIFT, key).expect("no commit of several").0;
    if alone.is_none() {
        stamped = words.load64(stamp_offset(key.0), Ordering::Acquire);
    }
    if let Some(now) = moment::sample_within(&words, 2) {
        match moment::find(&words, SHIFT, &now, key) {
            Ok(Some(found)) => assert!(number(&words, found) <= now.lsn),
            // Absent from the removal on, and not before.
            Ok(None) => assert_eq!(now.lsn, 2, "an absence that wasn't"),
            Err(moment::TooNew) => assert!(now.lsn < 3, "nothing goes any more"),
        }
    }
    thread.join().unwrap();
    let now = moment::sample_within(&words, 1).expect("nothing is under way");
    let found = moment::find(&words, SHIFT, &now, key).expect("no key is too new").expect("a key");
    assert!(number(&words, found) > stamped, "a number was given twice");
}

#[test]
fn model_a_removal_is_cut_off_between_any_two_stores() {
    for stores in 0..=5 {
        check(2, move || removal(stores, Mistake::None));
    }
}

#[test]
#[should_panic(expected = "a number was given twice")]
fn model_a_writer_that_forgets_stamps_gives_a_number_twice() {
    check(2, || removal(3, Mistake::NumbersAgain));
}

/// A commit of two keys is cut off; the next writer ends it.
fn commit(stores: u64, mistake: Mistake) {
    let mut setting = setting().numbered(2, b"a", 0, 2).numbered(3, b"b", 0, 3);
    let heap = HeapWords::new(64);
    let list: Vec<u8> =
        [0, reference(2), reference(3)].iter().flat_map(|word| word.to_le_bytes()).collect();
    let intent = Head { value_len: 12, kind: r::KIND_INTENT, ..head(b"", 2) };
    record::write(&heap, 0, &intent, b"", &[&list]);
    for at in (0..64).step_by(8) {
        setting.cold.insert(offset(INTENT) + at, heap.load64(at, Ordering::Relaxed));
    }
    let (words, writer) = setting.hot_prev(2).hot_prev(3).words();
    let mut dying = index(&writer, &[(b"a", 0, 0), (b"b", 1, 1)]);
    let thread = loom::thread::spawn(move || {
        let writer = writer.dying_after(stores);
        moment::begin(&writer, 3, reference(INTENT));
        put(&writer, &mut dying, b"a", 2);
        put(&writer, &mut dying, b"b", 3);
        moment::end(&writer, 3, reference(INTENT));
        let next = writer.successor();
        let (_, lsn) = adopt(&next, mistake);
        assert_eq!(next.load32(header::INTENT, Ordering::Relaxed), 0);
        lsn
    });
    if let Some(now) = moment::sample_within(&words, 2) {
        let keys = [b"a", b"b"].map(|key| {
            let found = moment::find(&words, SHIFT, &now, (hash(key), key)).expect("no removal");
            number(&words, found.expect("a key"))
        });
        let right = if now.lsn < 3 { [1, 1] } else { [2, 3] };
        assert_eq!(keys, right, "at {}", now.lsn);
    }
    let lsn = thread.join().unwrap();
    // Before its intent nobody knew of it.
    let now = moment::sample_within(&words, 1).expect("nothing is under way");
    assert_eq!(now.lsn, if stores < 2 { 1 } else { 3 });
    assert_eq!(lsn, now.lsn);
    for (key, n) in [(b"a", 2), (b"b", 3)] {
        let found = moment::find(&words, SHIFT, &now, (hash(key), key)).expect("none is too new");
        assert_eq!(number(&words, found.expect("a key")), if stores < 2 { 1 } else { n });
    }
}

#[test]
fn model_a_commit_is_cut_off_between_any_two_stores() {
    for stores in 0..=STORES_MAX {
        check(2, move || commit(stores, Mistake::None));
    }
}

#[test]
#[should_panic(expected = "at 3")]
fn model_a_commit_that_is_said_to_be_over_before_it_was_ended_is_seen_in_part() {
    check(2, || commit(3, Mistake::CommittedEarly));
}
