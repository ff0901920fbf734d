//! Models: loom runs the shipped functions over its own words, in every order that the memory model
//! allows (up to a number of preemptions).
//!
//! Only the words that threads share in a story are loom's ("hot"); all others are constants of it, which
//! keeps the number of orders small. Words that the arena accesses with 4 bytes are 4 bytes here too.
//!
//! The writer's view answers its loads of words that only it stores from a copy of its own: loom takes a
//! thread's load for the last access of a word, and would not try a later store of that thread before
//! another thread's load.

use crate::cleaner::move_record;
use crate::foreign::guarded;
use crate::index::{Index, Table, find};
use crate::layout::{entry, entry_reference, generation_offset, header, record as r};
use crate::moment;
use crate::reclaim::Qsbr;
use crate::record::{self, Head};
use crate::space::next_generation;
use crate::words::{Words, byte_of, copy_in_by_words};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::collections::BTreeMap;
use std::sync::Mutex;

const SHIFT: u32 = 17;
/// Table words: slot 1 with 8 lines, slot 2 with 16.
const SMALL: Table = Table { slot: 1, offset: 1 << SHIFT, lines: 8 };
const LARGE: Table = Table { slot: 2, offset: 2 << SHIFT, lines: 16 };
/// Records lie in slot 3, this far apart.
const RECORD_BYTES: u64 = 64;

enum Cell {
    Wide(AtomicU64),
    Narrow(AtomicU32, AtomicU32),
}

/// Hot words are loom's, the others are constants.
#[derive(Clone)]
struct LoomWords {
    hot: Arc<BTreeMap<u64, Cell>>,
    cold: Arc<BTreeMap<u64, u64>>,
    /// The writer's copy of what only it stores.
    own: Option<std::sync::Arc<Mutex<BTreeMap<u64, u64>>>>,
}

impl LoomWords {
    fn own(&self, offset: u64) -> Option<u64> {
        self.own.as_ref()?.lock().unwrap().get(&(offset & !7)).copied()
    }

    fn keep(&self, offset: u64, mask: u64, value: u64) {
        if let Some(own) = &self.own
            && let Some(word) = own.lock().unwrap().get_mut(&(offset & !7))
        {
            *word = *word & !mask | value & mask;
        }
    }

    fn cell(&self, offset: u64) -> Option<&Cell> {
        self.hot.get(&(offset & !7))
    }

    fn cold(&self, offset: u64) -> u64 {
        self.cold.get(&(offset & !7)).copied().unwrap_or(0)
    }
}

impl Words for LoomWords {
    fn len(&self) -> u64 {
        1 << 30
    }
    #[expect(clippy::cast_possible_truncation, reason = "one half is wanted")]
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        let high = offset & 4 != 0;
        if let Some(own) = self.own(offset) {
            return (own >> (8 * (offset & 4))) as u32;
        }
        match self.cell(offset) {
            Some(Cell::Narrow(low, _)) if !high => low.load(order),
            Some(Cell::Narrow(_, high)) => high.load(order),
            Some(Cell::Wide(wide)) => (wide.load(order) >> (8 * (offset & 4))) as u32,
            None => (self.cold(offset) >> (8 * (offset & 4))) as u32,
        }
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        let shift = 8 * (offset & 4);
        self.keep(offset, 0xFFFF_FFFF << shift, u64::from(value) << shift);
        match self.cell(offset).expect("a hot word") {
            Cell::Narrow(low, _) if offset & 4 == 0 => low.store(value, order),
            Cell::Narrow(_, high) => high.store(value, order),
            Cell::Wide(_) => panic!("4 bytes of a word of 8 at {offset}"),
        }
    }
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        if let Some(own) = self.own(offset) {
            return own;
        }
        match self.cell(offset) {
            Some(Cell::Wide(wide)) => wide.load(order),
            Some(Cell::Narrow(..)) => panic!("8 bytes of two words at {offset}"),
            None => self.cold(offset),
        }
    }
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        self.keep(offset, u64::MAX, value);
        match self.cell(offset).expect("a hot word") {
            Cell::Wide(wide) => wide.store(value, order),
            Cell::Narrow(..) => panic!("8 bytes of two words at {offset}"),
        }
    }
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        match self.cell(offset).expect("a hot word") {
            Cell::Wide(wide) => wide.fetch_add(n, order).wrapping_add(n),
            Cell::Narrow(..) => panic!("8 bytes of two words at {offset}"),
        }
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        copy_in_by_words(self, offset, bytes);
    }
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = byte_of(self, offset + i as u64);
        }
    }
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        bytes.iter().enumerate().all(|(i, &b)| byte_of(self, offset + i as u64) == b)
    }
    fn prefetch(&self, _offset: u64) {}
}

/// What a story's memory is like when it begins.
#[derive(Default)]
struct Setting {
    hot: BTreeMap<u64, Cell>,
    cold: BTreeMap<u64, u64>,
    /// Hot words that only the writer stores, and their first values.
    own: BTreeMap<u64, u64>,
}

impl Setting {
    /// The index's own words: hot; and the entries that the story changes.
    fn new(entries: &[u64]) -> Setting {
        let mut setting = Setting::default();
        let state = u64::from(SMALL.word()) << 32;
        setting.hot.insert(header::INDEX_STATE, Cell::Wide(AtomicU64::new(state)));
        setting.hot.insert(header::OLD, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        setting.hot.insert(header::INTENT, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        for &at in entries {
            setting.hot.insert(at, Cell::Wide(AtomicU64::new(0)));
        }
        setting.own = setting.hot.keys().map(|&at| (at, 0)).collect();
        setting.own.insert(header::INDEX_STATE, state);
        setting
    }

    /// A record that is there from the beginning: constant words.
    fn record(mut self, n: u64, key: &[u8], value: u64) -> Setting {
        let words = crate::words::HeapWords::new(64);
        write_record(&words, 0, key, value);
        for at in (0..RECORD_BYTES).step_by(8) {
            self.cold.insert(offset(n) + at, words.load64(at, Ordering::Relaxed));
        }
        self
    }

    /// The same, of which number and predecessor are known: as if its change were being published.
    fn numbered(mut self, n: u64, key: &[u8], prev: u64, lsn: u64) -> Setting {
        self = self.record(n, key, 0);
        self.cold.insert(offset(n) + r::LSN, lsn);
        let at = offset(n) + r::PREV;
        let word = self.cold[&at] & !0xFFFF_FFFF | u64::from(reference(prev));
        self.cold.insert(at, word);
        self
    }

    /// The words of the moment, hot; what is there from the beginning is number 1.
    fn moments(mut self) -> Setting {
        for at in [header::BEGUN_LSN, header::COMMITTED_LSN] {
            self.hot.insert(at, Cell::Wide(AtomicU64::new(1)));
            self.own.insert(at, 1);
        }
        self
    }

    /// Room for a record that a thread writes or reuses.
    fn hot_record(mut self, n: u64) -> Setting {
        for at in (0..RECORD_BYTES).step_by(8) {
            let value = self.cold.remove(&(offset(n) + at)).unwrap_or(0);
            self.hot.insert(offset(n) + at, Cell::Wide(AtomicU64::new(value)));
            self.own.insert(offset(n) + at, value);
        }
        self
    }

    fn hot_word(mut self, at: u64) -> Setting {
        self.hot.insert(at, Cell::Wide(AtomicU64::new(0)));
        self
    }

    /// A pair of words of 4 bytes that only the writer stores.
    fn hot_pair(mut self, at: u64) -> Setting {
        self.hot.insert(at & !7, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        self.own.insert(at & !7, 0);
        self
    }

    /// The reader's view and the writer's.
    fn words(self) -> (LoomWords, LoomWords) {
        let reader = LoomWords { hot: Arc::new(self.hot), cold: Arc::new(self.cold), own: None };
        let own = Some(std::sync::Arc::new(Mutex::new(self.own)));
        (reader.clone(), LoomWords { own, ..reader })
    }
}

fn offset(n: u64) -> u64 {
    (3 << SHIFT) + n * RECORD_BYTES
}

fn reference(n: u64) -> u32 {
    record::reference_of(offset(n))
}

/// A record of 48 bytes: a key of at most 8, a value of 8.
fn write_record<W: Words>(words: &W, at: u64, key: &[u8], value: u64) {
    let head = Head {
        value_len: 8,
        lsn: 1,
        key_len: u16::try_from(key.len()).expect("short"),
        kind: r::KIND_STRING,
        ..Head::EMPTY
    };
    record::write(words, at, &head, key, &[&value.to_le_bytes()]);
}

fn value_at(words: &LoomWords, reference: u32) -> u64 {
    words.load64(u64::from(reference) * r::UNIT + r::KEY + 8, Ordering::Relaxed)
}

/// Where entry `i` of a hash's home line lies.
fn home(table: Table, hash: u32, i: u64) -> u64 {
    table.line_offset(table.home(hash)) + 8 * i
}

fn check(preemptions: usize, story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = orders.clone();
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        story();
    });
    assert!(orders.load(Ordering::Relaxed) > 1, "loom tried one order only");
}

#[test]
fn model_a_published_record_is_whole() {
    // One thread appends and publishes; the other finds nothing, or the whole record.
    check(3, || {
        let (words, writer) = Setting::new(&[home(SMALL, 5, 0)]).hot_record(0).words();
        let thread = loom::thread::spawn(move || {
            let mut index = Index::new(SMALL);
            write_record(&writer, offset(0), b"k", 77);
            let room = index.locate(&writer, 5, b"k").room.expect("an empty table");
            index.insert(&writer, room, 5, reference(0));
        });
        if let Some(found) = find(&words, SHIFT, 5, b"k") {
            assert_eq!((found, value_at(&words, found)), (reference(0), 77));
        }
        thread.join().unwrap();
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
    });
}

/// A small table with the keys `k` (hash 5) and `m` (hash 13, same home line in the small table only).
fn two_keys() -> (LoomWords, LoomWords, Index) {
    let entries = [home(SMALL, 5, 0), home(SMALL, 5, 1), home(LARGE, 5, 0), home(LARGE, 13, 0)];
    let setting = Setting::new(&entries).record(0, b"k", 1).record(1, b"m", 2);
    let (words, writer) = setting.record(2, b"m", 3).words();
    let mut index = Index::new(SMALL);
    index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
    index.insert(&writer, (home(SMALL, 5, 1), true), 13, reference(1));
    (words, writer, index)
}

#[test]
fn model_growth_hides_no_key_and_invents_none() {
    // The table is emptied into a larger one under a reader: it finds what is there, misses what isn't.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            assert_eq!(index.migrate(&writer, 8).emptied, Some(SMALL));
        });
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
        assert_eq!(find(&words, SHIFT, 13, b"absent"), None);
        assert_eq!(find(&words, SHIFT, 13, b"m"), Some(reference(1)));
        thread.join().unwrap();
    });
}

#[test]
fn model_an_overwrite_in_growth_is_seen_in_order() {
    // A key is overwritten where it stands while its table is emptied: once the new version was seen, the
    // old one is never seen again.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            let place = index.locate(&writer, 13, b"m").found.expect("a key");
            index.replace(&writer, &place, 13, reference(2));
            index.migrate(&writer, 8);
        });
        let first = find(&words, SHIFT, 13, b"m").expect("a key");
        let second = find(&words, SHIFT, 13, b"m").expect("a key");
        assert!(first == reference(1) || second == reference(2), "{first} then {second}");
        thread.join().unwrap();
    });
}

#[test]
fn model_clearing_in_growth_is_one_moment() {
    // Everything is deleted while the index grows: who has missed one key finds no other.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        index.begin_growth(&writer, LARGE);
        // `m` has moved, `k` has not.
        writer.store64(home(LARGE, 13, 0), entry(13, reference(1)), Ordering::Release);
        writer.store64(home(SMALL, 5, 1), entry(0, 2), Ordering::Release);
        let thread = loom::thread::spawn(move || {
            let empty = Index::new(Table { slot: 5, offset: 5 << SHIFT, lines: 8 });
            index.switch(&writer, empty);
        });
        let (first, second) = (find(&words, SHIFT, 5, b"k"), find(&words, SHIFT, 13, b"m"));
        assert!(first.is_some() || second.is_none());
        let (third, fourth) = (find(&words, SHIFT, 13, b"m"), find(&words, SHIFT, 5, b"k"));
        assert!(third.is_some() || fourth.is_none());
        thread.join().unwrap();
    });
}

#[test]
fn model_several_keys_are_read_together_or_again() {
    // A commit replaces two keys; who reads both at one moment has both old or both new.
    check(3, || {
        let entries = [home(SMALL, 1, 0), home(SMALL, 2, 0)];
        let setting = Setting::new(&entries).record(0, b"a", 0).record(1, b"b", 0);
        let setting = setting.numbered(2, b"a", 0, 2).numbered(3, b"b", 1, 3);
        let (words, writer) = setting.moments().words();
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 1, 0), true), 1, reference(0));
        index.insert(&writer, (home(SMALL, 2, 0), true), 2, reference(1));
        let thread = loom::thread::spawn(move || {
            moment::begin(&writer, 3, 9);
            for (hash, key, n) in [(1, b"a", 2), (2, b"b", 3)] {
                let place = index.locate(&writer, hash, key).found.expect("a key");
                index.replace(&writer, &place, hash, reference(n));
            }
            moment::end(&writer, 3, 9);
        });
        if let Some(now) = moment::sample_within(&words, 2) {
            let a = moment::find(&words, SHIFT, &now, (1, b"a")).expect("no key goes");
            let b = moment::find(&words, SHIFT, &now, (2, b"b")).expect("no key goes");
            assert_eq!(a == Some(reference(2)), b == Some(reference(3)));
            assert_eq!(a == Some(reference(2)), now.lsn == 3);
        }
        thread.join().unwrap();
    });
}

/// One reader, one writer that replaces a record and reuses its memory as soon as it may.
fn reuse_under_a_reader(sleeps: bool) {
    let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1).record(1, b"k", 2);
    let (words, writer) = setting.hot_record(0).hot_word(0).hot_word(64).words();
    let qsbr = Qsbr::new(words.clone(), 1);
    let mut index = Index::new(SMALL);
    index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
    if !sleeps {
        qsbr.online(0);
    }
    let reclaim = qsbr.clone();
    let thread = loom::thread::spawn(move || {
        let place = index.locate(&writer, 5, b"k").found.expect("a key");
        index.replace(&writer, &place, 5, reference(1));
        let stamp = reclaim.stamp();
        if reclaim.passed(stamp) {
            writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
        }
    });
    for _ in 0..2 {
        if sleeps {
            qsbr.online(0);
        }
        let found = find(&words, SHIFT, 5, b"k").expect("a key");
        let value = value_at(&words, found);
        assert_eq!(value, if found == reference(0) { 1 } else { 2 });
        if sleeps {
            qsbr.offline(0);
        } else {
            qsbr.announce(0);
        }
    }
    thread.join().unwrap();
}

#[test]
fn model_nothing_is_reused_under_a_reader_that_announces() {
    // The reader stays online and announces between two finds.
    check(3, || reuse_under_a_reader(false));
}

#[test]
fn model_nothing_is_reused_under_a_reader_that_wakes_up() {
    // The reader is offline, comes back to read, and leaves again.
    check(3, || reuse_under_a_reader(true));
}

/// Moves the record 0 of key `k` to place 1, as the cleaner does.
fn move_k(writer: &LoomWords, index: &mut Index) {
    let place = index.locate(writer, 5, b"k").found.expect("a key");
    let head = Head::load(writer, offset(0));
    move_record(writer, index, (&place, 5), &head, offset(1), || {});
}

#[test]
fn model_a_record_moved_by_the_cleaner_is_found_whole() {
    // A record moves to another segment, its old one is retired and reused as soon as it may be, all under a
    // reader that announces between two finds: it finds the value each time, wherever it lies.
    check(3, || {
        let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1);
        let setting = setting.hot_record(0).hot_record(1).hot_word(0).hot_word(64);
        let (words, writer) = setting.words();
        let qsbr = Qsbr::new(words.clone(), 1);
        qsbr.online(0);
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let reclaim = qsbr.clone();
        let thread = loom::thread::spawn(move || {
            move_k(&writer, &mut index);
            let stamp = reclaim.stamp();
            if reclaim.passed(stamp) {
                writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
            }
        });
        for _ in 0..2 {
            let found = find(&words, SHIFT, 5, b"k").expect("a key that is never deleted");
            assert_eq!(value_at(&words, found), 1);
            qsbr.announce(0);
        }
        thread.join().unwrap();
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(1)));
    });
}

#[test]
fn model_a_reader_that_nobody_waits_for_copies_a_moved_record_or_tries_again() {
    // The same, but the old segment is reused at once: the reader, in another process, has only the
    // generation to tell.
    check(3, || {
        let generation = generation_offset(3);
        let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1);
        let setting = setting.hot_record(0).hot_record(1).hot_pair(generation);
        let (words, writer) = setting.words();
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let thread = loom::thread::spawn(move || {
            move_k(&writer, &mut index);
            next_generation(&writer, generation, 1);
            next_generation(&writer, generation, 0);
            writer.fence(Ordering::Release);
            writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
        });
        let at = home(SMALL, 5, 0);
        let entry = words.load64(at, Ordering::Acquire);
        let copied =
            guarded(&words, generation, (at, entry), || value_at(&words, entry_reference(entry)));
        assert!(copied.is_none_or(|value| value == 1), "{copied:?}");
        thread.join().unwrap();
    });
}

#[test]
fn model_a_retired_table_is_not_reused_under_a_reader() {
    // The index moves to another table; the old one is retired, and filled with what would be a wrong entry
    // as soon as it may be. A reader that announces between two finds never meets that.
    check(3, || {
        let entries = [home(SMALL, 5, 0), home(LARGE, 5, 0)];
        let setting = Setting::new(&entries).record(0, b"k", 1).record(1, b"k", 666);
        let (words, writer) = setting.hot_word(0).hot_word(64).words();
        let qsbr = Qsbr::new(words.clone(), 1);
        qsbr.online(0);
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let reclaim = qsbr.clone();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            assert_eq!(index.migrate(&writer, 8).emptied, Some(SMALL));
            let stamp = reclaim.stamp();
            if reclaim.passed(stamp) {
                let wrong = entry(5, reference(1));
                writer.store64(home(SMALL, 5, 0), wrong, Ordering::Relaxed);
            }
        });
        for _ in 0..2 {
            assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
            qsbr.announce(0);
        }
        thread.join().unwrap();
    });
}
