//! What other threads and processes read while the writer does something large, at every moment of
//! the read.
//!
//! ```text
//! load load load load load            the writer acts before the first load,
//!     └ writer acts                   then, in another read, before the second, ... until there is none more
//! ```
//!
//! Models try all orders of a few stores; here the writer's act is as long as it likes: an index
//! that moves, a segment or a run that is retired, given back and taken by something else.

use super::{Arena, TURNS_MAX, directory, spec};
use crate::format::words::{MappedWords, SharedWords};
use crate::read::cursor;
use crate::{ArenaError, ForeignReader, Pin, Reader, UpkeepBudget, WriteError, index};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// More loads than any read of these stories has.
const LOADS_MAX: u64 = 20_000;
/// Bytes that are copied out as one load.
const PIECE_BYTES: usize = 32 << 10;

/// What the writer does in the middle of a read.
type Act = Box<dyn FnOnce()>;

/// Words that let the writer act before a load.
#[derive(Clone)]
pub(super) struct Stepped {
    words: MappedWords,
    loads_left: Rc<Cell<u64>>,
    act: Rc<RefCell<Option<Act>>>,
}

impl Stepped {
    pub(super) fn over(words: MappedWords) -> Stepped {
        Stepped { words, loads_left: Rc::default(), act: Rc::default() }
    }

    /// The writer will act before the load of this number.
    pub(super) fn plan(&self, load: u64, act: impl FnOnce() + 'static) {
        self.loads_left.set(load);
        *self.act.borrow_mut() = Some(Box::new(act));
    }

    /// Whether the read was so short that the writer has not acted.
    pub(super) fn was_short(&self) -> bool {
        self.act.borrow_mut().take().is_some()
    }

    fn load(&self) {
        match self.loads_left.get() {
            0 => {
                let act = self.act.borrow_mut().take();
                act.into_iter().for_each(|act| act());
            }
            left => self.loads_left.set(left - 1),
        }
    }
}

impl SharedWords for Stepped {
    fn len(&self) -> u64 {
        self.words.len()
    }
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.load();
        self.words.load32(offset, order)
    }
    fn store32(&self, _offset: u64, _value: u32, _order: Ordering) {
        unreachable!("a reader stores nothing");
    }
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.load();
        self.words.load64(offset, order)
    }
    fn store64(&self, _offset: u64, _value: u64, _order: Ordering) {
        unreachable!("a reader stores nothing");
    }
    fn add64(&self, _offset: u64, _n: u64, _order: Ordering) -> u64 {
        unreachable!("a reader stores nothing");
    }
    fn fence(&self, order: Ordering) {
        self.words.fence(order);
    }
    fn copy_in(&self, _offset: u64, _bytes: &[u8]) {
        unreachable!("a reader stores nothing");
    }
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        for (at, piece) in (offset..).step_by(PIECE_BYTES).zip(bytes.chunks_mut(PIECE_BYTES)) {
            self.load();
            self.words.copy_out(at, piece);
        }
    }
    fn read_file(&self, file: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        for (at, piece) in (offset..).step_by(PIECE_BYTES).zip(bytes.chunks_mut(PIECE_BYTES)) {
            self.load();
            self.words.read_file(file, at, piece)?;
        }
        Ok(())
    }
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.load();
        self.words.equals(offset, bytes)
    }
}

/// Reads as often as a read has loads, with the writer acting before another of them each time.
pub(super) fn at_every_load(
    words: &Stepped,
    arena: &Rc<RefCell<Arena>>,
    act: impl Fn(&mut Arena, u64) + Clone + 'static,
    mut read: impl FnMut(u64),
) {
    for load in 0..LOADS_MAX {
        let (arena, act) = (Rc::clone(arena), act.clone());
        words.plan(load, move || act(&mut arena.borrow_mut(), load));
        read(load);
        if words.was_short() {
            assert!(load > 5, "a read of {load} loads");
            return;
        }
    }
    panic!("reads of more than {LOADS_MAX} loads");
}

/// A value that says in each byte whose it is: its key's, and the round in which it was written.
fn value(name: u8, round: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| [name, (round % 251) as u8][i % 2]).collect()
}

fn fill(a: &mut Arena, keys: impl Iterator<Item = u32>, bytes: usize) -> Result<(), WriteError> {
    for key in keys {
        a.soon(|a| a.put(&key.to_le_bytes(), &vec![b'f'; bytes], 0))?;
    }
    Ok(())
}

/// A foreign reader beside a writer that acts in the middle of each read: it copies one of the two
/// versions, or finds nothing if that may be, and never needs more tries than it has.
fn foreign_story(bytes: usize, act: fn(&mut Arena, u64), may_miss: bool) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", &value(b'k', 0, bytes), 0).unwrap();
    let path = a.spec.path.clone();
    let arena = Rc::new(RefCell::new(a));
    let foreign = ForeignReader::open(&path).unwrap().over(Stepped::over);
    let words = foreign.words().clone();
    let mut out = Vec::new();
    at_every_load(&words, &arena, act, |load| {
        match foreign.get(b"k", &mut out) {
            Ok(Some(_)) => {
                // The act of this read wrote `load + 1`, the one before it `load`.
                let is = |round| out == value(b'k', round, bytes);
                assert!(is(load) || is(load + 1), "the writer acted before load {load}");
            }
            Ok(None) => assert!(may_miss, "missed: the writer acted before load {load}"),
            Err(error) => panic!("the writer acted before load {load}: {error}"),
        }
    });
    assert_eq!(foreign.get(b"absent", &mut out).unwrap(), None);
}

/// Keys with records as long as that of `k`, so that theirs stand where it stood.
const OTHERS: u32 = 1000;

/// Takes and gives back memory, so that what was retired before holds others' records.
fn churn(a: &mut Arena, bytes: usize) {
    a.settle();
    fill(a, 0..OTHERS, bytes - 3).unwrap();
    a.settle();
    (0..OTHERS).for_each(|key| assert!(a.delete(&key.to_le_bytes())));
    a.settle();
}

#[test]
fn a_foreign_reader_takes_no_bytes_of_a_segment_that_was_reused() {
    // Its record's segment dies, is given back and holds others' values, between any two of its
    // loads.
    let act = |a: &mut Arena, load| {
        a.soon(|a| a.put(b"k", &value(b'k', load + 1, 500), 0)).unwrap();
        churn(a, 500);
        churn(a, 500);
    };
    foreign_story(500, act, false);
}

#[test]
fn a_foreign_reader_takes_no_bytes_of_a_run_that_was_reused() {
    // The same for a value that lies in a run. The segment of the record that names the run stays
    // in use and the index stays as it is: only the run's own generations tell.
    let act = |a: &mut Arena, load| {
        a.soon(|a| a.put(b"k", &value(b'k', load + 1, 300_000), 0)).unwrap();
        a.settle();
        fill(a, 0..1, 300_000).unwrap();
        assert!(a.delete(&0u32.to_le_bytes()));
        a.settle();
    };
    foreign_story(300_000, act, false);
}

#[test]
fn a_foreign_reader_takes_no_bytes_of_a_record_that_was_only_staged() {
    // Where its record stood, one of the same key is appended that nobody publishes: key and hash
    // are right, only the entry and the generation tell.
    let act = |a: &mut Arena, load| {
        a.soon(|a| a.put(b"k", &value(b'k', load + 1, 500), 0)).unwrap();
        a.settle();
        let (hash, staged) = (a.writer.hash(b"k"), value(b's', load, 500));
        let refs: Vec<_> =
            std::iter::from_fn(|| a.writer.stage(hash, b"k", &[&staged], 0).ok()).collect();
        assert!(refs.len() > 1000, "{} staged", refs.len());
        // What they took is given back in the next act only.
        a.writer.abandon(&refs);
    };
    foreign_story(500, act, false);
}

/// The index moves to a larger table and, in the next act, to a smaller one. A pin may be held, so
/// what is left waits.
fn move_index(a: &mut Arena, load: u64) {
    let epoch = a.writer.index_epoch();
    for key in 0..600u32 {
        if load.is_multiple_of(2) {
            a.put_soon(&key.to_le_bytes(), b"").unwrap();
        } else {
            assert!(a.delete(&key.to_le_bytes()));
        }
    }
    // The thread that moves memory may take its time.
    let mut turns = 0;
    while turns < 40 || a.writer.index_epoch() == epoch || a.writer.stats().growing {
        a.turn();
        turns += 1;
        assert!(turns < TURNS_MAX, "the index never moves");
        if turns >= 40 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[test]
fn a_foreign_reader_misses_no_key_while_the_index_moves() {
    // The index moves to another table, and the one that it leaves is given back.
    let act = |a: &mut Arena, load| {
        move_index(a, load);
        a.settle();
        a.soon(|a| a.put(b"k", &value(b'k', load + 1, 20), 0)).unwrap();
    };
    foreign_story(20, act, false);
}

#[test]
fn a_foreign_reader_misses_no_key_half_way_to_another_table() {
    // Line after line moves: the key stands in the old table, then in the current one, in one epoch
    // after another.
    let act = |a: &mut Arena, load| {
        a.put(b"k", &value(b'k', load + 1, 20), 0).unwrap();
        move_lines(a, load);
    };
    foreign_story(20, act, false);
}

#[test]
fn a_foreign_reader_misses_what_is_deleted_only() {
    // The key is deleted and comes again, or everything is.
    let act = |a: &mut Arena, load: u64| {
        if load.is_multiple_of(2) {
            a.writer.clear();
        } else {
            assert!(a.delete(b"k"));
        }
        a.settle();
        a.soon(|a| a.put(b"k", &value(b'k', load + 1, 20), 0)).unwrap();
    };
    foreign_story(20, act, true);
}

/// A foreign reader gets two keys at one moment, beside a writer that changes both in the middle of
/// that: it has both from before or both from behind.
fn foreign_pair_story(bytes: usize, act: fn(&mut Arena, u64, usize)) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    set_pair(&mut a, 0, bytes);
    let path = a.spec.path.clone();
    let arena = Rc::new(RefCell::new(a));
    let foreign = ForeignReader::open(&path).unwrap().over(Stepped::over);
    let words = foreign.words().clone();
    let act = move |a: &mut Arena, load| act(a, load, bytes);
    at_every_load(&words, &arena, act, |load| {
        let found = foreign.multi_get(&[b"one", b"two"]);
        let found = found.unwrap_or_else(|e| panic!("the writer acted before load {load}: {e}"));
        let is = |round| {
            let wanted = [value(b'1', round, bytes), value(b'2', round, bytes)];
            found.iter().zip(wanted).all(|(f, wanted)| f.as_ref().unwrap().value == wanted)
        };
        // The act of this read wrote `load + 1`, the one before it `load`.
        assert!(is(load) || is(load + 1), "the writer acted before load {load}");
    });
}

fn set_pair(a: &mut Arena, round: u64, bytes: usize) {
    a.soon(|a| {
        let mut refs = Vec::new();
        for (key, name) in [(b"two", b'2'), (b"one", b'1')] {
            let (hash, value) = (a.writer.hash(key), value(name, round, bytes));
            match a.writer.stage(hash, key, &[&value], 0) {
                Ok(one) => refs.push(one),
                Err(error) => {
                    a.writer.abandon(&refs);
                    return Err(error);
                }
            }
        }
        a.writer.commit(&a.me.pin(), false, &refs).inspect_err(|_| a.writer.abandon(&refs))
    })
    .unwrap();
}

#[test]
fn a_foreign_reader_has_two_keys_from_one_commit() {
    // The commit comes between any two loads. What was current before is still behind `prev`.
    foreign_pair_story(500, |a, load, bytes| set_pair(a, load + 1, bytes));
}

#[test]
fn a_foreign_reader_has_two_values_in_runs_from_one_commit() {
    // The same; the runs that the commit replaced wait to be reused, and are read until then.
    foreign_pair_story(150_000, |a, load, bytes| set_pair(a, load + 1, bytes));
}

#[test]
fn a_foreign_reader_has_two_keys_from_one_commit_though_their_segments_are_reused() {
    // Behind the commit, what was current before is reused by others' records. Only the count of
    // reuses tells that to a reader that stands before a `prev`.
    foreign_pair_story(500, |a, load, bytes| {
        set_pair(a, load + 1, bytes);
        churn(a, bytes);
        churn(a, bytes);
    });
}

#[test]
fn a_foreign_reader_has_two_keys_from_one_commit_though_the_index_moves() {
    // The index moves to another table behind the commit, and the one that it leaves is given back.
    foreign_pair_story(20, |a, load, bytes| {
        set_pair(a, load + 1, bytes);
        move_index(a, load);
        a.settle();
    });
}

#[test]
fn a_foreign_reader_has_two_keys_from_one_commit_though_both_were_deleted_between() {
    // Both go and come again. At the moment of before they were there, and nothing names any more
    // what they were.
    foreign_pair_story(20, |a, load, bytes| {
        if load.is_multiple_of(2) {
            a.writer.clear();
        } else {
            let refs = [b"one", b"two"].map(|key| {
                let hash = a.writer.hash(key);
                a.writer.stage_delete(hash, key).unwrap()
            });
            a.writer.commit(&a.me.pin(), false, &refs).unwrap();
        }
        set_pair(a, load + 1, bytes);
    });
}

const STAY: u32 = 20;

fn stay(i: u32) -> Vec<u8> {
    format!("stay{i}").into_bytes()
}

/// The index begins to move, or some of its lines do: the next read meets it in the middle of that.
pub(super) fn move_lines(a: &mut Arena, _load: u64) {
    if a.writer.stats().growing {
        a.writer.advance_growth(8);
    } else {
        a.me.quiescent();
        a.writer.maintain(UpkeepBudget::default());
        a.writer.begin_growth(0, false).expect("a small table");
    }
}

/// What a reader with a pin meets while the index moves, as a whole or in part, before one of its
/// loads.
fn pinned_story(read: impl Fn(&Stepped, &Reader, &Pin<'_>, u64)) {
    pinned_story_of(move_index, &read);
    pinned_story_of(move_lines, &read);
}

fn pinned_story_of(act: fn(&mut Arena, u64), read: impl Fn(&Stepped, &Reader, &Pin<'_>, u64)) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    (0..STAY).for_each(|i| a.put(&stay(i), b"", 0).unwrap());
    let (reader, mut other) = (a.reader.clone(), a.domain.join());
    let words = Stepped::over(reader.words);
    let arena = Rc::new(RefCell::new(a));
    at_every_load(&words, &arena, act, |load| {
        read(&words, &reader, &other.pin(), load);
        other.quiescent();
    });
}

#[test]
fn a_find_misses_no_key_while_the_index_moves() {
    pinned_story(|words, reader, pin, load| {
        let key = stay(7);
        let found = index::find(words, reader.slot_shift, reader.hash(&key), &key);
        let found = found.map(|reference| reader.lend(pin, reference).key());
        assert_eq!(found, Some(&key[..]), "the index moved before load {load}");
    });
}

#[test]
fn a_page_of_a_walk_misses_no_key_while_the_index_moves() {
    // One page of the walk is what the test looks at: a key that moves behind it is met later. The
    // walk that the page belongs to ends before or after the index has moved.
    pinned_story(|words, reader, pin, load| {
        let (mut cursor, mut met) = (0, BTreeSet::new());
        loop {
            cursor = cursor::step(words, reader.slot_shift, cursor, &mut |reference| {
                met.insert(reader.lend(pin, reference).key());
            });
            if cursor == 0 {
                break;
            }
        }
        let missed = (0..STAY).find(|&i| !met.contains(&stay(i)[..]));
        assert_eq!(missed, None, "the index moved before load {load}");
    });
}

#[test]
fn a_random_pick_finds_some_key_while_the_index_moves() {
    // Chance and the search behind it look at a table that is emptied meanwhile: once, RANDOMKEY of
    // a view said that there were no keys.
    pinned_story(|words, reader, pin, load| {
        let mut random = load;
        let mut rng = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let found = index::pick(words, reader.slot_shift, &mut rng);
        let found = found.map(|reference| reader.lend(pin, reference).key().len());
        assert!(found.is_some(), "the index moved before load {load}");
    });
}

#[test]
fn a_file_that_is_cut_off_is_read_up_to_its_end() {
    // A copy of an arena ends too soon, at any page: what lies before the end is read, what would
    // lie behind is refused, and no read faults.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    for i in 0..300u32 {
        a.put(&i.to_le_bytes(), &value(b'v', u64::from(i), 900), 0).unwrap();
    }
    a.put(b"large", &value(b'l', 1, 300_000), 0).unwrap();
    a.put(b"last", &value(b'l', 2, 50_000), 0).unwrap();
    let cut = dir.path().join("cut");
    std::fs::copy(&a.spec.path, &cut).unwrap();
    let file = std::fs::File::options().write(true).open(&cut).unwrap();
    let mut left = std::fs::metadata(&cut).unwrap().len();
    let (mut whole, mut refused) = (0, 0);
    while left >= 8192 {
        let foreign = ForeignReader::open(&cut).unwrap();
        let mut out = Vec::new();
        let mut read = |key: &[u8], wanted: Vec<u8>| match foreign.get(key, &mut out) {
            Ok(expiry) => {
                assert!(expiry == Some(0) && out == wanted, "{key:?} of {left} bytes");
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error, ArenaError::Busy { .. }), "{error}");
                refused += 1;
            }
        };
        read(b"large", value(b'l', 1, 300_000));
        read(b"last", value(b'l', 2, 50_000));
        for i in (0..300u32).step_by(7) {
            read(&i.to_le_bytes(), value(b'v', u64::from(i), 900));
        }
        drop(foreign);
        left = (left - 1) & !4095;
        file.set_len(left).unwrap();
    }
    assert!(whole > 1000 && refused > 1000, "{whole} read, {refused} refused");
    // Without its tables it has no keys, and needs no look at one to say so.
    let checked = ForeignReader::open(&cut).unwrap().check();
    assert!(matches!(checked, Err(ArenaError::Busy { tries: 1, .. })), "{checked:?}");
}
