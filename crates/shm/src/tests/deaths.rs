//! What the next writer finds if the last one died before any of its stores, and if its successor
//! dies as well.
//!
//! ```text
//! a writer's stores   s s s s s s s s        before each, the file is copied: it is what a kill leaves
//!                         └─> copy ─> adopt: s s s s s s      before each of these, copied again
//!                                                └─> copy ─> adopt
//! ```
//!
//! Covered are, before each single store: inserts and overwrites of values in a record and in runs;
//! a new expiry; removals by deletion and by expiry; commits of one key, of several, of deletions
//! alone, and such that clear first; clearing; the index's growth with all of these in the midst of
//! it. (The cleaner, and a run that is renamed, are killed in `crash`, by SIGKILL.) What adopts
//! dies before each of its stores too. By default that is one in [`SECOND_EVERY`] of these stores,
//! others for each of the first writer's, and of a growth's stores one in seven; with
//! `NIGH_STEPS=all` it is all of them.
//!
//! Each time:
//!
//! 1. What was acknowledged is there, and what was under way is there wholly or not at all; a
//!    second adoption finds what the first one would have.
//! 2. `verify` finds nothing, before and after.
//! 3. Reads are right at once: a moment can be taken, no key is newer, and alone, by moment or by
//!    the owner each reads the same.
//! 4. begun = committed = the writer's LSN; no intent; the incarnation is even.
//! 5. No number is given again that a reader may have seen: in a record, a stamp, or as committed,
//!    at any time before.
//! 6. Counts are those of a recount, and no more memory is in use than is counted.

use super::{Arena, directory, spec};
use crate::failpoints::before_each_step;
use crate::format::layout::{GENERATIONS, entry_reference, header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaSpec, ForeignReader, index, verify};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

const CAPACITY: u64 = 2 << 20;
const PAGE: usize = 4096;
/// Of the stores of an adoption one in so many is tried; another one for each store before it.
const SECOND_EVERY: u64 = 17;
/// A value that lies in a run.
const LARGE: usize = 200_000;

/// Value and expiry by key.
type Map = BTreeMap<String, (Vec<u8>, u64)>;

/// Something that happens wholly or not at all.
enum Op {
    Put(&'static str, usize, u64),
    /// Gives a key another expiry.
    SetExpiry(&'static str, u64),
    Delete(&'static str),
    /// The key's time is over, and its owner meets it.
    Expire(&'static str),
    /// Clears first, if so; then puts values of so many bytes, or deletes.
    Commit(bool, &'static [(&'static str, Option<usize>)]),
    Clear,
    /// So many keys of a series.
    Fill(std::ops::Range<u32>),
    Settle,
}

fn value(key: &str, bytes: usize) -> Vec<u8> {
    key.bytes().chain([bytes as u8]).cycle().take(bytes).collect()
}

fn filler(i: u32) -> String {
    format!("filler {i}")
}

impl Op {
    /// Does it to an arena.
    fn run(&self, a: &mut Arena) {
        match self {
            Op::Put(key, bytes, expiry) => {
                a.put(key.as_bytes(), &value(key, *bytes), *expiry).expect("room");
            }
            Op::SetExpiry(key, expiry) => {
                let hash = a.writer.hash(key.as_bytes());
                let set = a.writer.set_expiry(&a.me.pin(), hash, key.as_bytes(), *expiry);
                assert!(set.expect("room"));
            }
            Op::Delete(key) => _ = a.delete(key.as_bytes()),
            Op::Expire(key) => {
                let hash = a.writer.hash(key.as_bytes());
                assert!(a.writer.expire(&a.me.pin(), hash, key.as_bytes()));
            }
            Op::Commit(clear_first, changes) => commit(a, *clear_first, changes),
            Op::Clear => a.writer.clear(),
            Op::Fill(range) => range.clone().for_each(|i| {
                a.put(filler(i).as_bytes(), b"filler", 0).expect("room");
            }),
            Op::Settle => a.settle(),
        }
    }

    /// Does it to a map.
    fn note(&self, map: &mut Map) {
        match self {
            Op::Put(key, bytes, expiry) => {
                map.insert((*key).into(), (value(key, *bytes), *expiry));
            }
            Op::SetExpiry(key, expiry) => map.get_mut(*key).expect("a key").1 = *expiry,
            Op::Delete(key) | Op::Expire(key) => _ = map.remove(*key),
            Op::Commit(clear_first, changes) => {
                if *clear_first {
                    map.clear();
                }
                for (key, bytes) in *changes {
                    match bytes {
                        Some(bytes) => _ = map.insert((*key).into(), (value(key, *bytes), 0)),
                        None => _ = map.remove(*key),
                    }
                }
            }
            Op::Clear => map.clear(),
            Op::Fill(range) => {
                map.extend(range.clone().map(|i| (filler(i), (b"filler".to_vec(), 0))));
            }
            Op::Settle => {}
        }
    }
}

fn commit(a: &mut Arena, clear_first: bool, changes: &[(&str, Option<usize>)]) {
    let mut refs = Vec::new();
    for (key, bytes) in changes {
        let hash = a.writer.hash(key.as_bytes());
        let staged = match bytes {
            Some(bytes) => {
                let value = value(key, *bytes);
                a.writer.stage(hash, key.as_bytes(), &[&value], 0)
            }
            None => a.writer.stage_delete(hash, key.as_bytes()),
        };
        refs.push(staged.expect("room"));
    }
    a.writer.commit(&a.me.pin(), clear_first, &refs).expect("room");
}

/// What a kill leaves: a copy of a file, holes as holes.
fn copy(from: &Path, to: &Path) {
    let bytes = std::fs::read(from).expect("the arena");
    let file = std::fs::File::create(to).expect("a copy");
    file.set_len(bytes.len() as u64).expect("its length");
    for (at, page) in (0u64..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
        if page != &[0; PAGE][..page.len()] {
            file.write_all_at(page, at).expect("room for a copy");
        }
    }
}

/// The largest number that a reader of this file may see.
fn largest_number(path: &Path) -> u64 {
    let foreign = ForeignReader::open(path).expect("an arena");
    let words = foreign.words();
    let shift = words.load32(header::SLOT_SHIFT, Acquire);
    let stamps = (header::BYTES..GENERATIONS).step_by(8);
    let mut largest = stamps.map(|at| words.load64(at, Acquire)).max().expect("stamps");
    for at in [header::COMMITTED_LSN, header::CLEAR_STAMP] {
        largest = largest.max(words.load64(at, Acquire));
    }
    let (current, old) = index::tables(words, shift);
    for table in old.into_iter().chain([current]) {
        index::each_entry(words, table, &mut |_, e| {
            let at = u64::from(entry_reference(e)) * r::UNIT;
            largest = largest.max(words.load64(at + r::LSN, Acquire));
        });
    }
    largest
}

fn spec_at(path: &Path) -> ArenaSpec {
    spec(path.to_path_buf(), CAPACITY)
}

/// What all of a history's deaths have in common.
struct History {
    folder: PathBuf,
    /// Keys that are looked for.
    keys: BTreeSet<String>,
    /// What is there before and after the operation that is under way.
    allowed: RefCell<[Map; 2]>,
    /// The largest number that was seen.
    seen: Cell<u64>,
    first: Cell<u64>,
    second: Cell<u64>,
    /// Stores that the writer was about to do.
    stores: Cell<u64>,
    /// Deaths of which the one outcome or the other came.
    outcomes: Cell<[u64; 2]>,
    redone: Cell<u64>,
    /// Of the writer's stores, and of its successor's, one in so many is tried.
    every: [u64; 2],
}

impl History {
    /// The writer of `path` dies now.
    fn die(self: &Rc<Self>, path: &Path) {
        let (first, second) = (self.folder.join("first"), self.folder.join("second"));
        copy(path, &first);
        let seen = self.seen.get().max(largest_number(&first));
        self.seen.set(seen);
        let outcomes: Rc<RefCell<Vec<(u64, usize)>>> = Rc::default();
        let (history, from, all, store) =
            (Rc::clone(self), first.clone(), Rc::clone(&outcomes), Cell::new(0));
        let again = move || {
            store.set(store.get() + 1);
            if !(history.first.get() + store.get()).is_multiple_of(history.every[1]) {
                return;
            }
            copy(&from, &second);
            let seen = seen.max(largest_number(&second));
            let (mut a, _) = Arena::adopt(&spec_at(&second));
            all.borrow_mut().push((store.get(), history.check(&mut a, seen)));
            drop(a);
            std::fs::remove_file(&second).expect("the copy");
            history.second.set(history.second.get() + 1);
        };
        let report = verify(&first).expect("an arena");
        assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
        let (mut a, adoption) = before_each_step(again, || Arena::adopt(&spec_at(&first)));
        let outcome = self.check(&mut a, seen);
        drop(a);
        std::fs::remove_file(&first).expect("the copy");
        for (store, other) in outcomes.borrow().iter() {
            assert_eq!(*other, outcome, "a successor killed before its store {store}");
        }
        let mut counts = self.outcomes.get();
        counts[outcome] += 1;
        self.outcomes.set(counts);
        self.redone.set(self.redone.get() + u64::from(adoption.redone_intent));
        self.first.set(self.first.get() + 1);
    }

    /// Compares what was adopted. Returns which of the two outcomes it is.
    fn check(&self, a: &mut Arena, seen: u64) -> usize {
        let words = a.writer.words;
        let lsn = |at| words.load64(at, Acquire);
        let (begun, committed) = (lsn(header::BEGUN_LSN), lsn(header::COMMITTED_LSN));
        assert_eq!((begun, committed), (a.writer.lsn, a.writer.lsn));
        let incarnation = words.load64(header::INCARNATION, Acquire);
        assert!(incarnation.is_multiple_of(2) && words.load32(header::INTENT, Acquire) == 0);
        let found = self.read(a);
        let allowed = self.allowed.borrow();
        let outcome = allowed.iter().position(|map| *map == found);
        let outcome = outcome.unwrap_or_else(|| {
            panic!("{:?} is neither of {:?}", shape(&found), allowed.each_ref().map(shape))
        });
        check_counts(a, &found);
        // All kinds of changes go on, and are read at once.
        self.write_on(a, seen);
        outcome
    }

    /// All keys, each read in three ways.
    fn read(&self, a: &Arena) -> Map {
        let (pin, mut found) = (a.me.pin(), Map::new());
        let moment = a.reader.moment(&pin).expect("a moment can be taken");
        for key in &self.keys {
            let (hash, bytes) = (a.reader.hash(key.as_bytes()), key.as_bytes());
            let at = a.reader.get_at(&pin, &moment, hash, bytes).expect("no key is newer");
            let alone = a.reader.get_alone(&pin, hash, bytes).expect("nor alone").0;
            let owner = a.reader.get(&pin, hash, bytes);
            let places = [at, alone, owner].map(|record| record.map(|record| record.reference()));
            assert!(places[0] == places[1] && places[1] == places[2], "{key}: {places:?}");
            if let Some(record) = at {
                found.insert(key.clone(), (record.value().to_vec(), record.expiry_ms()));
            }
        }
        found
    }

    fn write_on(&self, a: &mut Arena, seen: u64) {
        let next = |a: &Arena, key: &str| {
            let pin = a.me.pin();
            let record = a.reader.get(&pin, a.reader.hash(key.as_bytes()), key.as_bytes());
            record.expect("it was put").lsn()
        };
        Op::Put("next", 30, 0).run(a);
        let number = next(a, "next");
        assert!(number > seen, "{number} was seen: up to {seen}");
        Op::Commit(false, &[("next", None), ("after", Some(LARGE)), ("before", None)]).run(a);
        assert!(next(a, "after") > number);
        self.read(a);
        Op::Delete("after").run(a);
        let pin = a.me.pin();
        let moment = a.reader.moment(&pin).expect("a moment can be taken");
        for key in ["next", "after"] {
            let hash = a.reader.hash(key.as_bytes());
            assert!(a.reader.get_at(&pin, &moment, hash, key.as_bytes()).expect("old").is_none());
        }
    }
}

/// What a map holds, for messages.
fn shape(map: &Map) -> Vec<(&String, usize, u64)> {
    map.iter().map(|(key, (value, expiry))| (key, value.len(), *expiry)).take(20).collect()
}

/// Counts are those of a recount.
fn check_counts(a: &Arena, found: &Map) {
    let (stats, report) = (a.writer.stats(), verify(&a.spec.path).expect("an arena"));
    assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
    assert!(!report.unfinished_commit);
    let expires = found.values().filter(|(_, expiry)| *expiry != 0).count() as u64;
    assert_eq!((stats.keys, stats.expires), (found.len() as u64, expires));
    assert_eq!((stats.keys, stats.expires), (report.keys, report.expires));
    assert_eq!(stats.used_bytes, report.live_bytes);
    let words = a.writer.words;
    let counters = [header::KEYS, header::EXPIRES, header::LIVE_BYTES];
    let counters = counters.map(|at| words.load64(at, Acquire));
    assert_eq!(counters, [stats.keys, stats.expires, stats.used_bytes]);
    let blocks = std::fs::metadata(&a.spec.path).expect("the file").blocks() * 512;
    assert!(
        blocks <= stats.backed_bytes,
        "{blocks} bytes are in use, {} counted",
        stats.backed_bytes
    );
}

/// Runs a history, whose writer dies before its stores in `dying`: before one in so many of them,
/// as its successor does, if not all are asked for.
fn die_everywhere(before: &[Op], dying: &[Op], every: [u64; 2]) -> Rc<History> {
    let folder = directory();
    let path = folder.path().join("arena");
    let mut a = Arena::create(&spec_at(&path));
    let mut map = Map::new();
    for op in before {
        op.run(&mut a);
        op.note(&mut map);
    }
    let mut keys: BTreeSet<String> = map.keys().cloned().collect();
    let mut all = map.clone();
    for op in dying {
        op.note(&mut all);
        keys.extend(all.keys().cloned());
    }
    keys.extend(["absent".into(), "missing".into()]);
    let asked_for_all = std::env::var("NIGH_STEPS").is_ok_and(|steps| steps == "all");
    let history = Rc::new(History {
        folder: folder.path().to_path_buf(),
        keys,
        allowed: RefCell::new([map.clone(), map.clone()]),
        seen: Cell::new(0),
        first: Cell::new(0),
        second: Cell::new(0),
        outcomes: Cell::default(),
        redone: Cell::new(0),
        stores: Cell::new(0),
        every: if asked_for_all { [1, 1] } else { every },
    });
    for op in dying {
        op.note(&mut map);
        history.allowed.borrow_mut()[1] = map.clone();
        let (watcher, of) = (Rc::clone(&history), path.clone());
        let look = move || {
            watcher.stores.set(watcher.stores.get() + 1);
            if watcher.stores.get().is_multiple_of(watcher.every[0]) {
                watcher.die(&of);
            }
        };
        before_each_step(look, || op.run(&mut a));
        history.allowed.borrow_mut()[0] = map.clone();
        // Acknowledged: it stays.
        history.die(&path);
    }
    let (first, second) = (history.first.get(), history.second.get());
    let [old, new] = history.outcomes.get();
    eprintln!("{first} deaths ({old} before, {new} after), {second} second ones");
    history
}

#[test]
fn single_changes_killed_before_any_store_are_none_or_whole_and_read_at_once() {
    // Inserts, overwrites and removals, of values in records and in runs.
    let before = [Op::Put("a", 10, 0), Op::Put("run", LARGE, 0), Op::Put("over", 10, 7)];
    let dying = [
        Op::Put("b", 300, 0),
        Op::Put("a", 700, 9),
        Op::Put("new run", LARGE, 0),
        Op::Put("run", LARGE + 999, 0),
        Op::SetExpiry("run", 11),
        Op::Put("run", 40, 0),
        Op::Delete("a"),
        Op::Delete("missing"),
        Op::Delete("new run"),
        Op::Expire("over"),
        Op::Put("a", 20, 0),
        Op::Settle,
    ];
    let history = die_everywhere(&before, &dying, [1, SECOND_EVERY]);
    let [old, new] = history.outcomes.get();
    assert!(old > 30 && new > 10 && history.second.get() > 50, "{old} before, {new} after");
}

#[test]
fn commits_killed_before_any_store_are_none_or_whole_and_read_at_once() {
    // Of several keys, with and without deletions, and such that clear first.
    let before = [Op::Put("a", 10, 5), Op::Put("run", LARGE, 0), Op::Put("c", 10, 0)];
    let dying = [
        Op::Commit(
            false,
            &[("a", Some(20)), ("b", Some(30)), ("run", Some(LARGE + 1)), ("d", None)],
        ),
        Op::Commit(false, &[("a", None), ("b", None), ("c", Some(50))]),
        Op::Commit(false, &[("c", Some(60))]),
        Op::Commit(false, &[("c", None)]),
        Op::Put("a", 10, 3),
        Op::Commit(false, &[("run", None), ("a", None), ("missing", None)]),
        Op::Put("b", 10, 3),
        Op::Commit(true, &[("b", Some(40)), ("e", Some(50)), ("a", None), ("run", Some(LARGE))]),
        Op::Commit(true, &[("b", Some(41))]),
        Op::Commit(true, &[("b", None), ("e", None)]),
        Op::Settle,
    ];
    let history = die_everywhere(&before, &dying, [1, SECOND_EVERY]);
    let [old, new] = history.outcomes.get();
    assert!(old > 100 && new > 50 && history.second.get() > 150, "{old} before, {new} after");
    assert!(history.redone.get() > 30, "{} intents were ended", history.redone.get());
}

#[test]
fn a_clearing_killed_before_any_store_leaves_all_or_nothing() {
    let before = [Op::Put("a", 10, 5), Op::Put("run", LARGE, 0), Op::Fill(0..30)];
    let dying = [Op::Clear, Op::Put("a", 10, 0), Op::Clear, Op::Clear, Op::Settle];
    let history = die_everywhere(&before, &dying, [1, SECOND_EVERY]);
    let [old, new] = history.outcomes.get();
    assert!(old > 10 && new > 5, "{old} before, {new} after");
}

#[test]
fn changes_while_the_index_grows_killed_before_any_store_are_none_or_whole() {
    // 410 keys are 80 % of the first table: with some more it moves, and ends that behind all kinds
    // of changes.
    let before = [Op::Put("a", 10, 5), Op::Put("c", 10, 0), Op::Fill(0..408)];
    let dying = [
        Op::Fill(408..409),
        Op::Fill(409..410),
        Op::Fill(410..411),
        Op::Put("a", 20, 0),
        Op::Delete("c"),
        Op::Commit(false, &[("a", None), ("b", Some(30)), ("c", Some(10)), ("filler 7", None)]),
        Op::Settle,
        Op::Fill(411..412),
    ];
    let history = die_everywhere(&before, &dying, [7, 40]);
    assert!(history.stores.get() > 800, "{} stores", history.stores.get());
}

#[test]
fn clearing_while_the_index_grows_killed_before_any_store_leaves_all_or_nothing() {
    let before = [Op::Put("a", 10, 5), Op::Fill(0..412)];
    let dying = [Op::Put("b", 20, 0), Op::Clear, Op::Fill(0..1)];
    die_everywhere(&before, &dying, [1, SECOND_EVERY]);
    let dying =
        [Op::Commit(true, &[("a", Some(9)), ("filler 1", Some(9)), ("c", None)]), Op::Settle];
    let history = die_everywhere(&before, &dying, [1, SECOND_EVERY]);
    assert!(history.redone.get() > 5, "{} intents were ended", history.redone.get());
}

#[test]
fn an_unfinished_commit_doesnt_replace_what_is_newer() {
    // An intent is left, and behind it a key of its list was changed. (So a later step of an
    // adoption leaves it, if that is cut off.) Ending it again leaves the newer one, and publishes
    // the rest.
    let dir = directory();
    let mut a = Arena::create(&spec_at(&dir.path().join("a")));
    let header = |a: &Arena, at| a.writer.words.load32(at, Acquire);
    let (words, intent) = (a.writer.words, Rc::new(Cell::new(0)));
    let seen = Rc::clone(&intent);
    let look = move || match words.load32(header::INTENT, Acquire) {
        0 => {}
        reference => seen.set(reference),
    };
    let op = Op::Commit(false, &[("a", Some(10)), ("b", Some(20))]);
    before_each_step(look, || op.run(&mut a));
    assert!(intent.get() != 0 && header(&a, header::INTENT) == 0);
    Op::Put("a", 30, 0).run(&mut a);
    a.writer.words.store32(header::INTENT, intent.get(), Release);
    let (a, adoption) = a.again();
    assert!(adoption.redone_intent && header(&a, header::INTENT) == 0);
    assert_eq!([a.get(b"a"), a.get(b"b")], [Some(value("a", 30)), Some(value("b", 20))]);
    assert_eq!((adoption.keys, verify(&a.spec.path).unwrap().bad_records.len()), (2, 0));
}
