//! A reader in another process, which nobody waits for, beside a writer that changes, retires and
//! reuses: the shipped [`ForeignReader`] with its `ReadCheck` and `Copier`, over loom's words.
//!
//! ```text
//! writer: change ── generation odd ── (grace) ── generation even ── reuses += 1 ── fence ── another's bytes
//! ```
//!
//! The writer waits for no reader, so the grace is over at once. What it reuses has the bytes that
//! deceive a reader most: a record of the same key that nobody publishes. Each story is told again
//! with mistakes of the writer, and with checks of the reader that are left out.

mod one_key;
mod two_keys;

use super::lapse::Lapse;
use super::{LARGE, LoomWords, SHIFT, SMALL, Setting, check, head, home, offset, reference};
use crate::format::generation::next_generation;
use crate::format::head::{Head, RunName};
use crate::format::layout::{
    Geometry, INCARNATION_OVER, entry, generation_offset, header, record as r, stamp_offset,
};
use crate::format::record;
use crate::format::words::{HeapWords, SharedWords};
use crate::index::moment::{self, TooNew};
use crate::index::{Index, Table};
use crate::space::note_reuse;
use crate::tests::{Arena, directory, spec};
use crate::{ArenaError, ForeignReader};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The slot of the records that are there at the beginning, and of new ones.
const FIRST_SLOT: u32 = 3;
/// Records of the new slot have numbers from here on.
const NEW: u64 = (1 << SHIFT) / super::RECORD_BYTES;
/// The slot of a value.
const RUN_SLOT: u32 = 5;
/// A record that no index names.
const WRONG: u64 = 7;
/// The value that nobody may read.
const REUSED: u64 = 666;
/// Only that it isn't 0 counts here.
const INTENT: u32 = 9;

const A: &[u8] = b"a";
const B: &[u8] = b"b";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The generation is stored behind the first byte that is another's.
    GenerationLate,
    /// The count of reuses is stored behind it.
    CountLate,
    /// What a change unpublishes is retired and reused before its end.
    ReusedEarly,
    /// The writer has no fence in front of what it reuses.
    NoFence,
}

fn hash(key: &[u8]) -> u32 {
    crate::format::hash::hash(0, key)
}

/// Entry `i` of a key's home line.
fn place(table: Table, key: &[u8], i: u64) -> u64 {
    home(table, hash(key), i)
}

/// Keys `a` and `b` with number 1 and values 1 and 2, and an owner.
fn setting() -> Setting {
    let setting = Setting::new(&[place(SMALL, A, 0), place(SMALL, B, 1)]).moments(1);
    let mut setting = setting.record(0, A, 1).record(1, B, 2);
    setting.cold.insert(header::INCARNATION, 2);
    setting.hot(header::REUSES).hot_pair(generation_offset(FIRST_SLOT))
}

/// The same with the value of `a`'s first record in a run.
fn in_run() -> Setting {
    let mut setting = setting().numbered(NEW, A, 3, 2).hot_prev(NEW);
    let run = RunName { slot: RUN_SLOT, slots: 1, generation: 0, checksum: 0 };
    let whole = Head { flags: r::FLAG_RUN, ..head(A, 1) };
    let heap = HeapWords::new(64);
    record::write(&heap, 0, &whole, A, &[&run.to_bytes()]);
    for at in (0..64).step_by(8) {
        setting.cold.insert(offset(0) + at, heap.load64(at, Ordering::Relaxed));
    }
    let at = u64::from(RUN_SLOT) << SHIFT;
    setting.cold.insert(at, 1);
    setting.hot(at).hot_pair(generation_offset(RUN_SLOT))
}

/// The setting in which the first records of both keys are replaced, and the bytes of `a`'s used
/// again.
fn both_replaced() -> Setting {
    let setting = setting().numbered(NEW, A, 3, 2).numbered(NEW + 1, B, 4, 3);
    let setting = setting.hot_prev(NEW).hot_prev(NEW + 1);
    setting.hot(offset(0) + r::LSN).hot(offset(0) + r::KEY + 8)
}

/// The setting in which `a` goes.
fn removable() -> Setting {
    let setting = setting().hot(stamp_offset(hash(A)));
    setting.hot(offset(0) + r::LSN).hot(offset(0) + r::KEY + 8)
}

/// The setting in which the index moves to the large table: `a` has another record of nobody's.
fn movable() -> Setting {
    let setting = setting().numbered(WRONG, A, REUSED, 1).hot_pair(generation_offset(SMALL.slot));
    let places = [A, B].into_iter().flat_map(|key| [0, 1].map(|i| place(LARGE, key, i)));
    places.fold(setting, Setting::hot)
}

/// The setting in which the file is given up.
fn ending() -> Setting {
    setting().hot(header::INCARNATION)
}

/// The setting in which the bytes of `a`'s first record are used again.
fn reused() -> Setting {
    let setting = setting().numbered(NEW, A, 3, 2).hot_prev(NEW);
    setting.hot(offset(0) + r::LSN).hot(offset(0) + r::KEY + 8)
}

/// A file as long as an arena's addresses: readers ask for its length.
struct ArenaFile {
    file: File,
    _dir: tempfile::TempDir,
}

impl ArenaFile {
    fn new() -> Arc<ArenaFile> {
        let dir = directory();
        let mut spec = spec(dir.path().join("a"), 2 << 20);
        spec.seed = Some(0);
        drop(Arena::create(&spec));
        let file = File::options().read(true).write(true).open(&spec.path).unwrap();
        file.set_len(Geometry::new(2 << 20).unwrap().address_bytes).unwrap();
        Arc::new(ArenaFile { file, _dir: dir })
    }

    /// A reader of it over a story's words.
    fn reader(&self, words: LoomWords) -> ForeignReader<LoomWords> {
        let file = self.file.try_clone().unwrap();
        ForeignReader::of_file(file, Path::new("model")).unwrap().over(|_| words)
    }
}

/// The owner of a story.
struct Owner {
    words: LoomWords,
    index: Index,
    mistake: Mistake,
}

impl Owner {
    fn new(words: LoomWords, mistake: Mistake) -> Owner {
        let mut index = Index::new(SMALL);
        for (key, i, n) in [(A, 0, 0), (B, 1, 1)] {
            index.insert(&words, (place(SMALL, key, i), true), hash(key), reference(n));
        }
        Owner { words, index, mistake }
    }

    fn put(&mut self, key: &[u8], n: u64) {
        let at = self.index.locate(&self.words, hash(key), key);
        moment::put(&self.words, &mut self.index, &at, entry(hash(key), reference(n)));
    }

    fn remove(&mut self, key: &[u8], lsn: u64) {
        let place = self.index.locate(&self.words, hash(key), key).found.expect("a key");
        moment::remove(&self.words, &mut self.index, (&place, hash(key)), lsn);
    }

    /// A change up to number `last`, behind which the first slot is reused: `bytes` stores what is
    /// another's.
    fn change_and_reuse(
        &mut self,
        (last, intent): (u64, u32),
        store: impl FnOnce(&mut Owner),
        bytes: impl FnOnce(&LoomWords),
    ) {
        moment::begin(&self.words, last, intent);
        store(self);
        if self.mistake == Mistake::ReusedEarly {
            self.reuse(FIRST_SLOT, bytes);
            moment::end(&self.words, last, intent);
        } else {
            moment::end(&self.words, last, intent);
            self.reuse(FIRST_SLOT, bytes);
        }
    }

    /// Retires a slot and uses it again, as nobody in this process reads it.
    fn reuse(&self, slot: u32, bytes: impl FnOnce(&LoomWords)) {
        let at = generation_offset(slot);
        let words = match self.mistake {
            Mistake::NoFence => self.words.clone().with(Lapse::no_fences()),
            _ => self.words.clone(),
        };
        let generations = || {
            next_generation(&words, at, 1);
            next_generation(&words, at, 0);
        };
        match self.mistake {
            Mistake::GenerationLate => {
                note_reuse(&words);
                bytes(&words);
                generations();
            }
            Mistake::CountLate => {
                generations();
                words.fence(Ordering::Release);
                bytes(&words);
                note_reuse(&words);
            }
            _ => {
                generations();
                note_reuse(&words);
                bytes(&words);
            }
        }
    }
}

/// Where `a`'s first record lay, another one of `a` is written, which nobody publishes. Its number
/// is not given yet.
fn another_a(words: &LoomWords) {
    words.store64(offset(0) + r::LSN, 0, Ordering::Relaxed);
    words.store64(offset(0) + r::KEY + 8, REUSED, Ordering::Relaxed);
}

/// A key's value as a single read tells it; `None` if the reader gave up.
fn get(reader: &ForeignReader<LoomWords>, key: &[u8]) -> Option<Option<u64>> {
    let mut value = Vec::new();
    match reader.get(key, &mut value) {
        Ok(Some(_)) => Some(Some(number_of(&value))),
        Ok(None) => Some(None),
        Err(ArenaError::Busy { .. } | ArenaError::TooNew { .. } | ArenaError::Over { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// The moment and the values of keys then, of one attempt; `None` if it was over.
fn together(
    reader: &ForeignReader<LoomWords>,
    keys: [&[u8]; 2],
) -> Option<(u64, [Option<u64>; 2])> {
    let mut view = reader.begin_view().ok()??;
    let mut value = Vec::new();
    let mut read = |key| -> Result<Option<u64>, TooNew> {
        Ok(view.get(key, &mut value)?.map(|_| number_of(&value)))
    };
    let values = [read(keys[0]).ok()?, read(keys[1]).ok()?];
    (!view.is_over()).then_some((view.lsn(), values))
}

/// What a story's writer does wrong, and what its reader leaves out.
type Wrong = (Mistake, fn() -> Lapse);

const RIGHT: Wrong = (Mistake::None, Lapse::none);

/// Tells a story in all orders up to so many preemptions: `read` looks at what it is answered.
fn tell(
    (preemptions, setting): (usize, fn() -> Setting),
    (mistake, lapse): Wrong,
    write: impl Fn(Owner) + Copy + Send + Sync + 'static,
    read: impl Fn(&ForeignReader<LoomWords>) + Send + Sync + 'static,
) {
    let file = ArenaFile::new();
    check(preemptions, move || {
        let (words, writer) = setting().words();
        let reader = file.reader(words.with(lapse()));
        let owner = Owner::new(writer, mistake);
        let thread = loom::thread::spawn(move || write(owner));
        read(&reader);
        thread.join().unwrap();
    });
}
