//! Reading an arena from another process, which nobody waits for.
//!
//! ```text
//! state ── entry ── generation ── entry again ── copy ── fence ── generation again, state again
//! ```
//!
//! 1. No reference to mapped bytes is ever formed: words are copied out and then validated.
//! 2. A copy counts only if entry, generations (of the record's slot and of its run's) and the index's
//!    state are the same after it as before.
//! 3. Every offset is compared with the file's length, every probe and every retry is bounded.
//!
//! The owner never shrinks the file; who may do so may as well kill this process. Any thread, any
//! process that may read the file.

use crate::adopt::header_of;
use crate::check::HeaderInfo;
use crate::error::ArenaError;
use crate::index::{Table, match_line, split_state};
use crate::layout::{
    Geometry, REF_MOVED, TABLE_LINES_MIN, TABLE_SHIFT_MAX, entry_reference, header, record as r,
};
use crate::record::{Head, RunName};
use crate::region::{Mapping, io};
use crate::words::{MappedWords, Words};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Tries before a reader gives up: each fails only if the owner reused what was being read.
const TRIES_MAX: u32 = 64;

/// Reads the keys of one arena by copying them out.
#[expect(private_bounds, reason = "words are sealed: crate::words says why")]
pub struct ForeignReader<W: Words = MappedWords> {
    words: W,
    g: Geometry,
    seed: u32,
    /// Length of the file when it was last asked for.
    end: AtomicU64,
    file: File,
    path: PathBuf,
    _mapping: Mapping,
}

/// What one try gave.
enum Try {
    Hit { expiry_ms: u64 },
    Miss,
    Again,
}

/// The order of a reader that the writer never waits for: an entry's slot, copied under its generation.
/// `None` if the entry names something else by now, or the slot was reused meanwhile.
pub(crate) fn guarded<W: Words, T>(
    words: &W,
    generation_at: u64,
    (entry_at, entry): (u64, u64),
    copy: impl FnOnce() -> T,
) -> Option<T> {
    // SYNC(generation): a slot that was reused had lost its entry before.
    let generation = words.load32(generation_at, Acquire);
    if words.load64(entry_at, Acquire) != entry {
        return None;
    }
    let copied = copy();
    // SYNC(generation): what was copied belongs to this generation if it is still the same.
    words.fence(Acquire);
    (words.load32(generation_at, Relaxed) == generation).then_some(copied)
}

impl ForeignReader {
    /// Opens an arena read-only.
    ///
    /// # Errors
    /// If the file can't be read or is no arena.
    pub fn open(path: &Path) -> Result<ForeignReader, ArenaError> {
        let HeaderInfo { g, seed, .. } = header_of(path)?;
        let failed =
            |source| ArenaError::Io { path: path.to_path_buf(), doing: "opening the file", source };
        let file = File::open(path).map_err(failed)?;
        let len = usize::try_from(g.address_bytes)
            .map_err(|_| io(path, "mapping the file", Errno::NOMEM))?;
        let mapping =
            Mapping::read_only(&file, len).map_err(|e| io(path, "mapping the file", e))?;
        Ok(ForeignReader {
            words: mapping.words(),
            g,
            seed,
            end: AtomicU64::new(0),
            file,
            path: path.to_path_buf(),
            _mapping: mapping,
        })
    }
}

#[expect(private_bounds, reason = "words are sealed: crate::words says why")]
impl<W: Words> ForeignReader<W> {
    #[cfg(test)]
    pub(crate) fn words(&self) -> &W {
        &self.words
    }

    /// The same reader over other words.
    #[cfg(test)]
    pub(crate) fn over<V: Words>(self, wrap: impl FnOnce(W) -> V) -> ForeignReader<V> {
        let ForeignReader { words, g, seed, end, file, path, _mapping } = self;
        ForeignReader { words: wrap(words), g, seed, end, file, path, _mapping }
    }

    /// Copies a key's value to `out`, whose content is replaced. Returns its expiry (Unix milliseconds, 0: none), or
    /// `None` if there is no such key. Whether it has expired is for the caller to say.
    ///
    /// # Errors
    /// [`ArenaError::Busy`] if the owner reused the memory under each of many tries, or the arena is damaged.
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u64>, ArenaError> {
        let hash = crate::hash::hash(self.seed, key);
        for _ in 0..TRIES_MAX {
            match self.attempt(hash, key, out) {
                Try::Hit { expiry_ms } => return Ok(Some(expiry_ms)),
                Try::Miss => {
                    out.clear();
                    return Ok(None);
                }
                Try::Again => std::hint::spin_loop(),
            }
        }
        out.clear();
        Err(ArenaError::Busy { path: self.path.clone(), tries: TRIES_MAX })
    }

    fn attempt(&self, hash: u32, key: &[u8], out: &mut Vec<u8>) -> Try {
        // SYNC(index-state)
        let state = self.words.load64(header::INDEX_STATE, Acquire);
        let (epoch, current) = split_state(state);
        let old = if epoch & 1 == 1 { self.words.load32(header::OLD, Acquire) } else { 0 };
        let mut result = Try::Miss;
        for word in [old, current] {
            if word == 0 {
                continue;
            }
            let Some(table) = self.table(word) else { return Try::Again };
            result = self.probe(table, hash, key, out);
            if !matches!(result, Try::Miss) {
                break;
            }
            // SYNC(index-moved)
            self.words.fence(Acquire);
        }
        // SYNC(index-state): tables that were probed had not been reused if the state is the same.
        self.words.fence(Acquire);
        if self.words.load64(header::INDEX_STATE, Relaxed) == state { result } else { Try::Again }
    }

    /// Whether the file reaches so far; asks for its length again if not.
    fn reaches(&self, end: u64) -> bool {
        if end <= self.end.load(Relaxed) {
            return true;
        }
        let len = self.file.metadata().map_or(0, |m| m.len()).min(self.g.address_bytes);
        self.end.store(len, Relaxed);
        end <= len
    }

    fn table(&self, word: u32) -> Option<Table> {
        let shift = word & 63;
        if shift < TABLE_LINES_MIN.ilog2() || shift > TABLE_SHIFT_MAX {
            return None;
        }
        let table = Table::from_word(word, self.g.slot_shift);
        self.reaches(table.offset.checked_add(table.bytes())?).then_some(table)
    }

    fn probe(&self, table: Table, hash: u32, key: &[u8], out: &mut Vec<u8>) -> Try {
        for at in table.probe(hash) {
            let line = self.words.line(at);
            let (hits, empty) = match_line(&line, hash);
            for i in (0..8u64).filter(|i| hits >> i & 1 == 1) {
                let entry_at = at + 8 * i;
                // SYNC(index-publish)
                let entry = self.words.load64(entry_at, Acquire);
                if entry_reference(entry) <= REF_MOVED {
                    continue;
                }
                match self.copy(entry_at, entry, key, out) {
                    Try::Miss => {}
                    result => return result,
                }
            }
            if empty {
                return Try::Miss;
            }
        }
        Try::Miss
    }

    /// Copies the record that an entry names, if it is the key's.
    fn copy(&self, entry_at: u64, entry: u64, key: &[u8], out: &mut Vec<u8>) -> Try {
        let offset = u64::from(entry_reference(entry)) * r::UNIT;
        let slot = self.g.slot_of(offset);
        if slot < self.g.first_slot || !self.reaches(offset + r::HEADER_BYTES) {
            return Try::Again;
        }
        let at = self.g.generation_offset(slot);
        guarded(&self.words, at, (entry_at, entry), || self.copy_at(offset, key, out))
            .unwrap_or(Try::Again)
    }

    /// Copies the record at an offset, which may be anything by now.
    fn copy_at(&self, offset: u64, key: &[u8], out: &mut Vec<u8>) -> Try {
        let head = Head::load(&self.words, offset);
        if head.fault(&self.g, offset).is_some() || !self.reaches(offset + head.bytes()) {
            return Try::Again;
        }
        let mine = self.key_is(offset, &head, key);
        if mine && head.has_run() {
            let run = RunName::load(&self.words, offset, &head);
            if !self.copy_run(&run, &head, out) {
                return Try::Again;
            }
        }
        if mine && !head.has_run() {
            out.resize(head.value_len as usize, 0);
            self.words.copy_out(offset + head.value_at(), out);
        }
        if mine { Try::Hit { expiry_ms: head.expiry_ms } } else { Try::Miss }
    }

    fn generation(&self, slot: u32) -> u32 {
        self.words.load32(self.g.generation_offset(slot), Acquire)
    }

    fn key_is(&self, offset: u64, head: &Head, key: &[u8]) -> bool {
        let mut at = offset + r::KEY;
        let mut piece = [0; 64];
        usize::from(head.key_len) == key.len()
            && key.chunks(piece.len()).all(|part| {
                let copy = &mut piece[..part.len()];
                self.words.copy_out(at, copy);
                at += part.len() as u64;
                copy == part
            })
    }

    /// Copies a value from its run; false if the run was reused.
    fn copy_run(&self, run: &RunName, head: &Head, out: &mut Vec<u8>) -> bool {
        let at = self.g.slot_offset(run.slot.min(self.g.slots));
        let end = at + u64::from(head.value_len);
        if run.fault(&self.g, head.value_len).is_some() || !self.reaches(end) {
            return false;
        }
        let slots = || (run.slot..run.slot + run.slots).map(|slot| self.generation(slot));
        let before: Vec<u32> = slots().collect();
        out.resize(head.value_len as usize, 0);
        self.words.copy_out(at, out);
        // SYNC(generation)
        self.words.fence(Acquire);
        before.first() == Some(&run.generation) && slots().eq(before.iter().copied())
    }
}
