//! Moments: what readers see beside changes, by the shipped stores and loads of `moment`.
//!
//! Each story is told a second time with a mistake of its writer or reader, which must be found.

use super::{LARGE, LoomWords, SHIFT, SMALL, Setting, check, home, offset, reference, value_at};
use crate::format::layout::{entry, header, record as r, stamp_offset};
use crate::format::words::SharedWords;
use crate::index::moment::{self, MomentSample, TooNew};
use crate::index::{EntryPlace, Index, find};
use crate::qsbr::Qsbr;
use std::sync::atomic::Ordering;

/// Reference of the intent of a commit of several: only that it isn't 0 counts here.
const INTENT: u32 = 9;

/// What a story does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A record's `prev` is stored behind its entry.
    PrevLate,
    /// The stamp is stored behind the removal.
    StampLate,
    /// A change begins behind its entry.
    BegunLate,
    /// A commit of several has its entries in front of its intent.
    IntentLate,
    /// A commit is over before its last entry.
    CommittedEarly,
    /// What a change unpublished is retired before its end.
    RetiredEarly,
    /// The reader of a single key doesn't look at the intent.
    Blind,
}

/// The two keys: their hashes differ, and so do their lines.
const A: (u32, &[u8]) = (1, b"a");
const B: (u32, &[u8]) = (2, b"b");

/// The writer of a story: what it does between two changes is the arena's writer's own.
struct Author {
    words: LoomWords,
    index: Index,
    mistake: Mistake,
}

impl Author {
    /// `keys` are there already, with these records.
    fn new(words: LoomWords, keys: &[((u32, &[u8]), u64)], mistake: Mistake) -> Author {
        let mut index = Index::new(SMALL);
        for &((hash, _), n) in keys {
            index.insert(&words, (home(SMALL, hash, 0), true), hash, reference(n));
        }
        Author { words, index, mistake }
    }

    fn put(&mut self, (hash, key): (u32, &[u8]), n: u64) {
        let e = entry(hash, reference(n));
        let at = self.index.locate(&self.words, hash, key);
        match at.found {
            Some(place) if self.mistake == Mistake::PrevLate => {
                self.index.replace(&self.words, &place, hash, reference(n));
                self.words.store32(offset(n) + r::PREV, place.reference, Ordering::Release);
            }
            _ => {
                moment::put(&self.words, &mut self.index, &at, e);
            }
        }
    }

    fn place(&self, (hash, key): (u32, &[u8])) -> EntryPlace {
        self.index.locate(&self.words, hash, key).found.expect("a key")
    }

    fn remove(&mut self, key: (u32, &[u8]), lsn: u64) {
        let place = self.place(key);
        if self.mistake == Mistake::StampLate {
            self.index.remove(&self.words, &place);
            self.words.store64(stamp_offset(key.0), lsn, Ordering::Release);
        } else {
            moment::remove(&self.words, &mut self.index, (&place, key.0), lsn);
        }
    }

    fn clear(&mut self, lsn: u64) {
        let empty = Index::new(LARGE);
        if self.mistake == Mistake::StampLate {
            self.index.switch(&self.words, empty);
            self.words.store64(header::CLEAR_STAMP, lsn, Ordering::Release);
        } else {
            moment::clear(&self.words, &mut self.index, empty, lsn);
        }
    }

    /// A change of one key.
    fn single(&mut self, lsn: u64, store: impl FnOnce(&mut Author)) {
        if self.mistake == Mistake::BegunLate {
            store(self);
            moment::begin(&self.words, lsn, 0);
        } else {
            moment::begin(&self.words, lsn, 0);
            store(self);
        }
        moment::end(&self.words, lsn, 0);
    }

    /// A commit of both keys, with number 3 at its end: `a` is record 2 then, `b` record 3.
    fn commit_both(&mut self) {
        if self.mistake == Mistake::IntentLate {
            moment::begin(&self.words, 3, 0);
            self.put(A, 2);
            moment::begin(&self.words, 3, INTENT);
        } else {
            moment::begin(&self.words, 3, INTENT);
            self.put(A, 2);
        }
        if self.mistake == Mistake::CommittedEarly {
            moment::end(&self.words, 3, INTENT);
            self.put(B, 3);
        } else {
            self.put(B, 3);
            moment::end(&self.words, 3, INTENT);
        }
    }
}

/// A moment of now, in few looks: loom tries all that a reader could see in each.
fn sample(words: &LoomWords) -> Option<MomentSample> {
    moment::sample_within(words, 2)
}

fn at(words: &LoomWords, now: &MomentSample, key: (u32, &[u8])) -> Result<Option<u32>, TooNew> {
    moment::find(words, SHIFT, now, key)
}

/// A single key's version by the rule for one key, or by the index alone.
fn alone(words: &LoomWords, key: (u32, &[u8]), mistake: Mistake) -> Result<Option<u32>, TooNew> {
    if mistake == Mistake::Blind {
        return Ok(find(words, SHIFT, key.0, key.1));
    }
    moment::find_alone(words, SHIFT, key).map(|(found, _)| found)
}

/// Lines of the keys, and the words of the moment.
fn two_keys() -> Setting {
    let setting = Setting::new(&[home(SMALL, 1, 0), home(SMALL, 2, 0)]).moments(1);
    setting.record(0, b"a", 0).record(1, b"b", 0)
}

/// A key is overwritten twice; a reader of moments finds what was current at each, and moments
/// rise.
fn overwritten(mistake: Mistake) {
    let setting = two_keys().numbered(2, b"a", 0, 2).numbered(3, b"a", 0, 3);
    let (words, writer) = setting.hot_prev(2).hot_prev(3).words();
    let mut author = Author::new(writer, &[(A, 0)], mistake);
    let thread = loom::thread::spawn(move || {
        author.single(2, |author| author.put(A, 2));
        author.single(3, |author| author.put(A, 3));
    });
    let mut last = 0;
    for _ in 0..2 {
        let Some(now) = sample(&words) else { continue };
        let record = [0, 2, 3][usize::try_from(now.lsn).unwrap() - 1];
        assert_eq!(at(&words, &now, A), Ok(Some(reference(record))), "at {}", now.lsn);
        assert!(now.lsn >= last, "moments rise");
        last = now.lsn;
    }
    thread.join().unwrap();
    assert_eq!(sample(&words).map(|now| now.lsn), Some(3));
}

#[test]
fn model_a_version_is_found_by_its_successors() {
    check(3, || overwritten(Mistake::None));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_a_version_whose_successor_names_it_late_is_missed() {
    check(3, || overwritten(Mistake::PrevLate));
}

/// A commit replaces two keys; a reader of both at one moment has both old or both new.
fn committed(mistake: Mistake) {
    let setting = two_keys().numbered(2, b"a", 0, 2).numbered(3, b"b", 0, 3);
    let (words, writer) = setting.hot_prev(2).hot_prev(3).words();
    let mut author = Author::new(writer, &[(A, 0), (B, 1)], mistake);
    let thread = loom::thread::spawn(move || author.commit_both());
    if let Some(now) = sample(&words) {
        let (a, b) = (at(&words, &now, A), at(&words, &now, B));
        let records = match now.lsn {
            1 => (0, 1),
            3 => (2, 3),
            lsn => panic!("the moment {lsn} is within a commit"),
        };
        let both = (Ok(Some(reference(records.0))), Ok(Some(reference(records.1))));
        assert_eq!((a, b), both, "at {}", now.lsn);
    }
    thread.join().unwrap();
}

#[test]
fn model_several_keys_are_read_together_or_again() {
    check(3, || committed(Mistake::None));
}

#[test]
#[should_panic(expected = "at 3")]
fn model_a_commit_that_ends_early_is_seen_in_part() {
    check(3, || committed(Mistake::CommittedEarly));
}

/// Beside a write of one key, a removal of the other and a commit of both, a reader of two keys
/// sees a state that was.
fn mixed(order: [(u32, &'static [u8]); 2]) {
    let setting = two_keys().numbered(2, b"a", 0, 2).numbered(4, b"a", 0, 4);
    let setting = setting.numbered(5, b"b", 0, 5).hot_prev(2).hot_prev(4).hot_prev(5);
    let (words, writer) = setting.hot(stamp_offset(B.0)).words();
    let mut author = Author::new(writer, &[(A, 0), (B, 1)], Mistake::None);
    let thread = loom::thread::spawn(move || {
        author.single(2, |author| author.put(A, 2));
        author.single(3, |author| author.remove(B, 3));
        moment::begin(&author.words, 5, INTENT);
        author.put(A, 4);
        author.put(B, 5);
        moment::end(&author.words, 5, INTENT);
    });
    if let Some(now) = sample(&words) {
        let (a, b) = match now.lsn {
            1 => (0, Some(1)),
            2 => (2, Some(1)),
            3 => (2, None),
            5 => (4, Some(5)),
            lsn => panic!("the moment {lsn} is within a commit"),
        };
        for key in order {
            let was = if key == A { Some(a) } else { b };
            // A key that has gone since can't be told as it was; what is told is right.
            let found = at(&words, &now, key);
            let gone = key == B && now.lsn < 3;
            let right = found == Ok(was.map(reference)) || gone && found == Err(TooNew);
            assert!(right, "{found:?} at {}", now.lsn);
        }
    }
    thread.join().unwrap();
}

#[test]
fn model_two_keys_are_as_they_were_beside_writes_removals_and_a_commit() {
    check(2, || mixed([A, B]));
    check(2, || mixed([B, A]));
}

/// A key is removed and comes again; a reader that misses it says "absent" only of moments at
/// which it was.
fn removed(mistake: Mistake) {
    let setting = two_keys().numbered(2, b"a", 0, 3).hot_prev(2);
    let (words, writer) = setting.hot(stamp_offset(A.0)).words();
    let mut author = Author::new(writer, &[(A, 0)], mistake);
    let thread = loom::thread::spawn(move || {
        author.single(2, |author| author.remove(A, 2));
        author.single(3, |author| author.put(A, 2));
    });
    if let Some(now) = sample(&words) {
        let found = at(&words, &now, A);
        let right = match now.lsn {
            1 => found == Ok(Some(reference(0))) || found == Err(TooNew),
            2 => found == Ok(None),
            _ => found == Ok(Some(reference(2))),
        };
        assert!(right, "{found:?} at {}", now.lsn);
    }
    thread.join().unwrap();
}

#[test]
fn model_an_absence_is_told_of_its_own_moments_only() {
    check(3, || removed(Mistake::None));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_a_removal_that_is_stamped_late_is_seen_too_early() {
    check(3, || removed(Mistake::StampLate));
}

/// All keys go at once.
fn cleared(mistake: Mistake) {
    let setting = two_keys().hot(header::CLEAR_STAMP).hot(home(LARGE, 1, 0));
    let (words, writer) = setting.words();
    let mut author = Author::new(writer, &[(A, 0), (B, 1)], mistake);
    let thread = loom::thread::spawn(move || author.single(2, |author| author.clear(2)));
    if let Some(now) = sample(&words) {
        for (key, n) in [(A, 0), (B, 1)] {
            let found = at(&words, &now, key);
            let right = match now.lsn {
                1 => found == Ok(Some(reference(n))) || found == Err(TooNew),
                _ => found == Ok(None),
            };
            assert!(right, "{found:?} at {}", now.lsn);
        }
    }
    thread.join().unwrap();
}

#[test]
fn model_a_clearing_is_seen_by_its_own_moments_only() {
    check(3, || cleared(Mistake::None));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_a_clearing_that_is_stamped_late_is_seen_too_early() {
    check(3, || cleared(Mistake::StampLate));
}

/// Two reads of single keys beside a commit of both: the second isn't older than the first.
fn one_by_one(order: [(u32, &'static [u8]); 2], mistake: Mistake) {
    let setting = two_keys().numbered(2, b"a", 0, 2).numbered(3, b"b", 0, 3);
    let (words, writer) = setting.hot_prev(2).hot_prev(3).words();
    let mut author = Author::new(writer, &[(A, 0), (B, 1)], mistake);
    let thread = loom::thread::spawn(move || author.commit_both());
    let [first, second] = order.map(|key| alone(&words, key, mistake).expect("no key goes"));
    let is_new = |found: Option<u32>| found.expect("no key goes") >= reference(2);
    assert!(is_new(second) || !is_new(first), "{order:?}: new, then old");
    thread.join().unwrap();
}

#[test]
fn model_single_keys_read_beside_a_commit_never_go_back() {
    check(3, || one_by_one([A, B], Mistake::None));
    check(3, || one_by_one([B, A], Mistake::None));
}

#[test]
#[should_panic(expected = "new, then old")]
fn model_single_keys_read_without_the_intent_go_back() {
    check(3, || one_by_one([A, B], Mistake::Blind));
}

#[test]
#[should_panic(expected = "new, then old")]
fn model_single_keys_go_back_beside_an_intent_that_comes_late() {
    check(3, || one_by_one([A, B], Mistake::IntentLate));
}

/// Once a single read has seen a change, no moment that is taken then is from before it.
fn alone_then_together(mistake: Mistake) {
    let setting = two_keys().numbered(2, b"a", 0, 2).hot_prev(2);
    let (words, writer) = setting.words();
    let mut author = Author::new(writer, &[(A, 0)], mistake);
    let thread = loom::thread::spawn(move || author.single(2, |author| author.put(A, 2)));
    let first = alone(&words, A, mistake).expect("no key goes");
    if let Some(now) = sample(&words) {
        let second = at(&words, &now, A).expect("no key goes");
        assert!(second >= first, "new, then old");
    }
    thread.join().unwrap();
}

#[test]
fn model_a_moment_is_not_from_before_what_was_read() {
    check(3, || alone_then_together(Mistake::None));
}

#[test]
#[should_panic(expected = "new, then old")]
fn model_a_change_that_begins_late_is_read_and_then_missed() {
    check(3, || alone_then_together(Mistake::BegunLate));
}

/// A commit replaces a key's record, and reuses its bytes as soon as it may: a reader whose moment
/// is from before finds them as they were, as long as it has not announced.
fn retired(mistake: Mistake) {
    let setting = two_keys().record(0, b"a", 1).numbered(2, b"a", 2, 2).hot_prev(2);
    let setting = setting.hot(offset(0) + r::KEY + 8).hot_word(0).hot_word(64);
    let (words, writer) = setting.words();
    let qsbr = Qsbr::new(words.clone(), 1);
    qsbr.online(0);
    let mut author = Author::new(writer, &[(A, 0)], mistake);
    let reclaim = qsbr.clone();
    let thread = loom::thread::spawn(move || {
        moment::begin(&author.words, 2, INTENT);
        author.put(A, 2);
        let early = (mistake == Mistake::RetiredEarly).then(|| reclaim.stamp());
        moment::end(&author.words, 2, INTENT);
        let stamp = early.unwrap_or_else(|| reclaim.stamp());
        if reclaim.passed(stamp) {
            author.words.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
        }
    });
    for _ in 0..2 {
        if let Some(now) = sample(&words) {
            let found = at(&words, &now, A).expect("no key goes").expect("a key");
            assert_eq!(value_at(&words, found), now.lsn, "the value at a moment");
        }
        qsbr.announce(0);
    }
    thread.join().unwrap();
}

#[test]
fn model_what_was_current_at_a_moment_is_kept_until_its_reader_announces() {
    check(3, || retired(Mistake::None));
}

#[test]
#[should_panic(expected = "the value at a moment")]
fn model_what_is_retired_before_its_change_ends_is_reused_under_a_reader() {
    check(3, || retired(Mistake::RetiredEarly));
}
