//! Copying keys out of an arena that somebody else writes.
//!
//! ```text
//! state ── entry ── generation ── entry again ── copy ── fence ── generation again, state again
//! ```
//!
//! 1. A copy of what an entry names counts only if entry, generations (of the record's slot and of
//!    its run's) and the index's state are the same after it as before.
//! 2. A copy of what a `prev` names counts only if the generations are the same; whether the bytes
//!    were reused before it began, `reuses` tells the caller.
//! 3. Every offset is compared with the file's length, and every probe is bounded.
//! 4. Values in runs and what a `prev` names are read by a call to the system: a hole that is read
//!    through the mapping would take memory.

use super::read_check::ReadCheck;
use super::room::Room;
use crate::format::head::{HEADER_LEN, Head, RunName};
use crate::format::layout::{
    Geometry, LINE_BYTES, REF_MOVED, TABLE_LINES_MIN, TABLE_SHIFT_MAX, entry_reference, entry_tag,
    header, is_over, record as r,
};
use crate::format::words::SharedWords;
use crate::index::{Table, bits, match_line, prefetch_records, split_state};
use crate::read::cursor::{last_of_group, visit};
use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Looks at a key before a reader gives up: each fails only if the owner reused memory meanwhile.
pub(super) const LOOKS_MAX: u32 = 64;

/// Bytes that are asked for ahead, from the beginning of a record's first line on: header, a short
/// key and a short value.
const PREFETCH_BYTES: u64 = 256;

/// The bytes of an arena.
pub(super) struct Copier<W: SharedWords> {
    pub(super) words: W,
    pub(super) g: Geometry,
    /// Length of the file when it was last asked for.
    end: AtomicU64,
    file: File,
}

/// A key, and of which of its versions the value is copied.
pub(super) struct Wanted<'a> {
    pub(super) hash: u32,
    pub(super) key: &'a [u8],
    /// Of those numbered up to here.
    pub(super) lsn: u64,
    /// Of those whose time isn't over then.
    pub(super) clock_ms: u64,
    /// Whether the value is copied at all.
    pub(super) with_value: bool,
}

impl Wanted<'_> {
    /// Whether a version is the one.
    pub(super) fn wants(&self, head: &Head) -> bool {
        head.lsn <= self.lsn && !is_over(head.expiry_ms, self.clock_ms)
    }

    fn copies(&self, head: &Head) -> bool {
        self.with_value && self.wants(head)
    }
}

/// A record that was copied out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it expires, Unix milliseconds; 0 if never.
    pub expiry_ms: u64,
}

/// Which version of a key was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignVersion {
    /// The number of the change that set it.
    pub lsn: u64,
    /// When it expires, Unix milliseconds; 0 if never.
    pub expiry_ms: u64,
}

/// What a step of a scan passes on.
pub(super) struct ScanStep<'a> {
    /// Of keys that begin so.
    pub(super) prefix: &'a [u8],
    /// Of those whose time isn't over then.
    pub(super) clock_ms: u64,
    pub(super) watch: ReadCheck,
    pub(super) record: ForeignRecord,
    /// Bytes for which the system gave no memory.
    pub(super) denied: Option<usize>,
}

/// Where a record lies that was current at that time.
#[derive(Clone, Copy)]
pub(super) struct RecordPlace {
    pub(super) offset: u64,
    /// Of its slot, while the entry named the record.
    pub(super) generation: u32,
}

/// The result of one look at the index.
pub(super) enum Look {
    /// The record, and where it lies.
    Hit(Head, RecordPlace),
    Miss,
    Again,
}

/// Which generation a run may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunIs {
    InUse,
    /// Its record was replaced: it may wait to be reused.
    InUseOrRetired,
}

/// The order of a reader that the writer never waits for: an entry's slot, copied under its
/// generation, which `copy` is told. `None` if the entry names something else by now, or the slot
/// was reused meanwhile.
pub(crate) fn guarded<W: SharedWords, T>(
    words: &W,
    generation_at: u64,
    (entry_at, entry): (u64, u64),
    copy: impl FnOnce(u32) -> T,
) -> Option<T> {
    // SYNC(generation): a slot that was reused had lost its entry before.
    let generation = words.load32(generation_at, Acquire);
    if words.load64(entry_at, Acquire) != entry {
        return None;
    }
    let copied = copy(generation);
    // SYNC(generation): what was copied belongs to this generation if it is still the same.
    words.fence(Acquire);
    (words.load32(generation_at, Relaxed) == generation).then_some(copied)
}

impl<W: SharedWords> Copier<W> {
    pub(super) fn new(words: W, g: Geometry, file: File) -> Copier<W> {
        Copier { words, g, end: AtomicU64::new(0), file }
    }

    #[cfg(test)]
    pub(super) fn over<V: SharedWords>(self, wrap: impl FnOnce(W) -> V) -> Copier<V> {
        let Copier { words, g, end, file } = self;
        Copier { words: wrap(words), g, end, file }
    }

    /// Whether the file has all that lies before its slots.
    pub(super) fn has_tables(&self) -> bool {
        self.reaches(self.g.slot_offset(self.g.first_slot))
    }

    /// Asks for the memory of keys that are read next: their home lines, then what those name. Only
    /// hints, by whatever stands there.
    pub(super) fn prefetch(&self, hashes: &[u32]) {
        let (_, current) = split_state(self.words.load64(header::INDEX_STATE, Acquire));
        let Some(table) = self.table(current) else { return };
        prefetch_records(hashes.iter().map(|hash| (&self.words, table, *hash)));
    }

    /// Asks for the record that the first of some entries names, whatever that is by now.
    #[inline]
    fn prefetch_record(&self, line: &[u64; 8], hits: u32) {
        let entry = line[(hits.trailing_zeros() & 7) as usize];
        let at = (u64::from(entry_reference(entry)) * r::UNIT) & !(LINE_BYTES - 1);
        if at < self.g.address_bytes - PREFETCH_BYTES {
            (0..PREFETCH_BYTES).step_by(64).for_each(|line| self.words.prefetch(at + line));
        }
    }

    /// Looks for the record that the index names for a key, and copies its value to `out` if it is
    /// wanted.
    pub(super) fn look(&self, wanted: &Wanted<'_>, out: &mut Room<'_>) -> Look {
        // SYNC(index-state)
        let state = self.words.load64(header::INDEX_STATE, Acquire);
        let (epoch, current) = split_state(state);
        let old = if epoch & 1 == 1 { self.words.load32(header::OLD, Acquire) } else { 0 };
        let mut result = Look::Miss;
        for word in [old, current] {
            if word == 0 {
                continue;
            }
            let Some(table) = self.table(word) else { return Look::Again };
            result = self.probe(table, wanted, out);
            if !matches!(result, Look::Miss) {
                break;
            }
            // SYNC(index-moved)
            self.words.fence(Acquire);
        }
        // SYNC(index-state): tables that were probed had not been reused if the state is the same.
        self.words.fence(Acquire);
        if self.words.load64(header::INDEX_STATE, Relaxed) == state { result } else { Look::Again }
    }

    /// Passes the records of a step of a scan to `found`: those of one home line of the smaller
    /// table, and of all lines of the larger that share its bits. Returns the next cursor, or
    /// `None` if the tables or the writer changed meanwhile; then the step is to be done again.
    pub(super) fn scan_step(
        &self,
        cursor: u64,
        step: &mut ScanStep<'_>,
        found: &mut dyn FnMut(&ForeignRecord),
    ) -> Option<u64> {
        // SYNC(index-state)
        let state = self.words.load64(header::INDEX_STATE, Acquire);
        let (epoch, current) = split_state(state);
        let old = if epoch & 1 == 1 { self.words.load32(header::OLD, Acquire) } else { 0 };
        let current = self.table(current)?;
        let old = if old == 0 { None } else { Some(self.table(old)?) };
        let old_mask = old.map_or(current.lines, |old| old.lines) - 1;
        let (small, large) = (old_mask.min(current.lines - 1), old_mask.max(current.lines - 1));
        let mut is_whole = true;
        // The old table first: what moves meanwhile is then met in the current one.
        for table in old.into_iter().chain([current]) {
            visit(&self.words, table, cursor, small, &mut |entry_at, e| {
                is_whole = is_whole && self.pass(entry_at, e, step, found);
            });
            // SYNC(index-moved)
            self.words.fence(Acquire);
        }
        // SYNC(index-state): as for a key.
        self.words.fence(Acquire);
        let is_same = self.words.load64(header::INDEX_STATE, Relaxed) == state;
        (is_whole && is_same).then(|| last_of_group(cursor, small, large))
    }

    /// Passes on the record that an entry names, or the one that has replaced it. False if there
    /// was no stable copy.
    fn pass(
        &self,
        entry_at: u64,
        seen: u64,
        step: &mut ScanStep<'_>,
        found: &mut dyn FnMut(&ForeignRecord),
    ) -> bool {
        let mut entry = seen;
        for _ in 0..LOOKS_MAX.min(W::TRIES_MAX) {
            if entry_reference(entry) <= REF_MOVED || entry_tag(entry) != entry_tag(seen) {
                return true; // it went; if it moved, it is met where it is now
            }
            let copied = self.copy_record(entry_at, entry, step);
            if !step.watch.has_same_writer(&self.words) {
                return false;
            }
            match copied {
                Some(true) => {
                    found(&step.record);
                    return true;
                }
                Some(false) => return true,
                None => std::hint::spin_loop(),
            }
            // SYNC(index-publish)
            entry = self.words.load64(entry_at, Acquire);
        }
        false
    }

    /// Copies the record that an entry names. Whether it is one of the step's; `None` if it isn't
    /// there any more.
    fn copy_record(&self, entry_at: u64, entry: u64, step: &mut ScanStep<'_>) -> Option<bool> {
        let offset = u64::from(entry_reference(entry)) * r::UNIT;
        let slot = self.g.slot_of(offset);
        if slot < self.g.first_slot || !self.reaches(offset + r::HEADER_BYTES) {
            return None;
        }
        let at = self.g.generation_offset(slot);
        guarded(&self.words, at, (entry_at, entry), |_| {
            let head = Head::load(&self.words, offset);
            if !self.is_version(&head, offset) {
                return None;
            }
            let ForeignRecord { key, value, expiry_ms } = &mut step.record;
            let mut room = Room::of(value);
            key.resize(head.key_len.into(), 0);
            self.words.copy_out(offset + r::KEY, key);
            *expiry_ms = head.expiry_ms;
            if !key.starts_with(step.prefix) || is_over(head.expiry_ms, step.clock_ms) {
                return Some(false);
            }
            let is_copied = self.copy_value(offset, &head, &mut room);
            step.denied = room.denied();
            is_copied.then_some(true)
        })?
    }

    /// Copies the version that another one has replaced: its header, and its value to `out` if it
    /// is wanted. `None` if it isn't an older one of the same key, or its memory changes hands.
    pub(super) fn older(
        &self,
        newer: &Head,
        wanted: &Wanted<'_>,
        out: &mut Room<'_>,
    ) -> Option<Head> {
        let offset = u64::from(newer.prev) * r::UNIT;
        let slot = self.g.slot_of(offset);
        if slot < self.g.first_slot || slot >= self.g.slots {
            return None;
        }
        let generation = self.generation(slot);
        let mut bytes = vec![0; HEADER_LEN + wanted.key.len()];
        self.read(offset, &mut bytes)?;
        let (header, key) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let head = Head::from_bytes(header);
        let falls = 0 < head.lsn && head.lsn < newer.lsn;
        let same = usize::from(head.key_len) == key.len() && key == wanted.key;
        if !self.is_version(&head, offset) || !falls || !same {
            return None;
        }
        if wanted.copies(&head) {
            self.read_value(offset, &head, out)?;
        }
        // SYNC(generation)
        self.words.fence(Acquire);
        (self.generation(slot) == generation).then_some(head)
    }

    /// Whether a header may be that of a key's version at an offset.
    fn is_version(&self, head: &Head, offset: u64) -> bool {
        let whole = head.fault(&self.g, offset).is_none() && self.reaches(offset + head.bytes());
        whole && head.kind == r::KIND_STRING && !head.is_tombstone()
    }

    fn read_value(&self, offset: u64, head: &Head, out: &mut Room<'_>) -> Option<()> {
        let at = offset + head.value_at();
        if head.has_run() {
            let mut name = [0; 16];
            self.read(at, &mut name)?;
            return self.read_run(&RunName::from_bytes(&name), head, RunIs::InUseOrRetired, out);
        }
        self.read(at, out.sized(head.value_len as usize)?)
    }

    /// Reads bytes of the file; `None` if it doesn't reach so far.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Option<()> {
        self.words.read_file(&self.file, offset, to).ok()
    }

    /// Whether the file reaches so far; asks for its length again if not.
    pub(super) fn reaches(&self, end: u64) -> bool {
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

    fn probe(&self, table: Table, wanted: &Wanted<'_>, out: &mut Room<'_>) -> Look {
        for at in table.probe(wanted.hash) {
            let line = self.words.line(at);
            let (hits, empty) = match_line(&line, wanted.hash);
            // Before any branch that may be foretold wrongly.
            self.prefetch_record(&line, hits);
            for i in bits(hits) {
                let entry_at = at + 8 * i;
                // SYNC(index-publish)
                let entry = self.words.load64(entry_at, Acquire);
                if entry_reference(entry) <= REF_MOVED {
                    continue;
                }
                match self.copy(entry_at, entry, wanted, out) {
                    Look::Miss => {}
                    result => return result,
                }
            }
            if empty {
                return Look::Miss;
            }
        }
        Look::Miss
    }

    /// Copies the record that an entry names, if it is the key's.
    fn copy(&self, entry_at: u64, entry: u64, wanted: &Wanted<'_>, out: &mut Room<'_>) -> Look {
        let offset = u64::from(entry_reference(entry)) * r::UNIT;
        let slot = self.g.slot_of(offset);
        if slot < self.g.first_slot || !self.reaches(offset + r::HEADER_BYTES) {
            return Look::Again;
        }
        let at = self.g.generation_offset(slot);
        guarded(&self.words, at, (entry_at, entry), |generation| {
            self.copy_at(RecordPlace { offset, generation }, wanted, out)
        })
        .unwrap_or(Look::Again)
    }

    /// Copies the record at a place, which may be anything by now.
    fn copy_at(&self, place: RecordPlace, wanted: &Wanted<'_>, out: &mut Room<'_>) -> Look {
        let offset = place.offset;
        let head = Head::load(&self.words, offset);
        if !self.is_version(&head, offset) {
            return Look::Again;
        }
        if !self.key_is(offset, &head, wanted.key) {
            return Look::Miss;
        }
        if wanted.copies(&head) && !self.copy_value(offset, &head, out) {
            return Look::Again;
        }
        Look::Hit(head, place)
    }

    /// Copies the value of the record at an offset. False if it lies in a run that was reused, or
    /// if there is no room for it.
    fn copy_value(&self, offset: u64, head: &Head, out: &mut Room<'_>) -> bool {
        if head.has_run() {
            let run = RunName::load(&self.words, offset, head);
            return self.read_run(&run, head, RunIs::InUse, out).is_some();
        }
        let Some(to) = out.sized(head.value_len as usize) else { return false };
        self.words.copy_out(offset + head.value_at(), to);
        true
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.words.load32(self.g.generation_offset(slot), Acquire)
    }

    #[inline]
    fn key_is(&self, offset: u64, head: &Head, key: &[u8]) -> bool {
        let at = offset + r::KEY;
        let word = |at| self.words.load64(at, Relaxed).to_le_bytes();
        let (words, rest) = key.as_chunks::<8>();
        usize::from(head.key_len) == key.len()
            && (at..).step_by(8).zip(words).all(|(at, part)| word(at) == *part)
            && (rest.is_empty() || word(at + 8 * words.len() as u64)[..rest.len()] == *rest)
    }

    /// Copies a value from its run; `None` if the run was reused, or if there is no room for it.
    fn read_run(&self, run: &RunName, head: &Head, is: RunIs, out: &mut Room<'_>) -> Option<()> {
        let at = self.g.slot_offset(run.slot.min(self.g.slots));
        let end = at + u64::from(head.value_len);
        if run.fault(&self.g, head.value_len).is_some() || !self.reaches(end) {
            return None;
        }
        // Those of the value: the run's room may lie behind the file's end, where a generation that
        // is read takes memory.
        let slots = run.slot..run.slot + self.g.slots_for(head.value_len.max(1).into());
        let slots = || slots.clone().map(|slot| self.generation(slot));
        let before: Vec<u32> = slots().collect();
        self.read(at, out.sized(head.value_len as usize)?)?;
        // SYNC(generation)
        self.words.fence(Acquire);
        let first = *before.first()?;
        let retired = run.generation.wrapping_add(1);
        let in_time = first == run.generation || is == RunIs::InUseOrRetired && first == retired;
        (in_time && slots().eq(before)).then_some(())
    }
}
