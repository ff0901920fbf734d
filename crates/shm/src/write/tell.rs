//! Telling the journal a change, before the first of its stores.
//!
//! ```text
//! a record just written:  key, parts of the value ──> entry        one copy
//! staged records:         segment ──> entry                        as they lie, `prev` is 0
//! a value in a run:       its name ──> entry                       the run is held until that left
//!                         its bytes ──> entry                      if the arenas end with the process
//! a removal:              tombstone, made in the entry
//! ```
//!
//! 1. An entry is written straight into the journal's memory, without an allocation.
//! 2. It has all changes of a commit, in the order of their numbers.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::format::head::{Head, RunName};
use crate::format::layout::{
    Geometry, entry_reference, header, inline_record_bytes, record as r, round_up,
};
use crate::format::record;
use crate::format::words::{MappedWords, SharedWords};
use crate::journal::entry::ChangeHead;
use crate::journal::layout::{CommitSize, Effect, change_bytes};
use crate::journal::layout::{change as c, entry as e};
use crate::journal::ring_writer::{EntryEncoder, JournalWriter};
use crate::write::journal::{Base, JournalPart, Stored};
use crate::write::root_map::{Root, Roots};
use crate::write::writer::Writer;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Has every commit told to the journal of the shard from now on, as changes of a stream. The
    /// journal's entries that were there have left (journal.md, Adoption 12): runs that they name
    /// are free.
    pub fn set_journal(&mut self, ring: &JournalWriter, stream: u32) {
        self.space.forget_names(ring.left());
        let roots = self.roots_of_all();
        self.journal = Some(JournalPart { ring: ring.clone(), stream, needs: Vec::new(), roots });
    }

    /// The same, or on, for a log that begins anew with a walk over all records. So no key stands
    /// on anything of before: what the walk appends is whole.
    pub fn begin_base(&mut self, ring: &JournalWriter, stream: u32) {
        match &mut self.journal {
            Some(part) => part.roots.clear(),
            None => {
                self.space.forget_names(ring.left());
                let (needs, roots) = (Vec::new(), Roots::default());
                self.journal = Some(JournalPart { ring: ring.clone(), stream, needs, roots });
            }
        }
    }

    /// Tells no journal any more. Runs that entries name are free.
    pub fn leave_journal(&mut self) {
        self.journal = None;
        self.release_claims();
    }

    /// The runs that the journal of an earlier process names are free: its entries have left.
    pub fn release_claims(&mut self) {
        self.space.forget_names(0);
    }

    /// What the next commit depends on: stream and LSN of each. A commit that is refused leaves
    /// them as they are.
    ///
    /// # Panics
    /// If there are more than 64.
    pub fn set_needs(&mut self, needs: &[(u32, u64)]) {
        assert!(needs.len() <= e::NEEDS_MOST, "a commit has at most 64 dependencies");
        if let Some(part) = &mut self.journal {
            part.needs.clear();
            part.needs.extend_from_slice(needs);
        }
    }

    /// Whether such a value lies in a run for certain, so that an entry only names it.
    #[must_use]
    #[inline]
    pub fn takes_run(&self, key_len: usize, value_len: usize) -> bool {
        let inline = inline_record_bytes(key_len, value_len);
        self.space.geometry().wants_run(inline, value_len as u64) || self.outgrows_entry(inline)
    }

    /// Refuses a commit for which the journal has no room, before anything of it is done.
    #[inline]
    pub(crate) fn check_journal(
        &self,
        removes_only: bool,
        size: impl FnOnce(&mut CommitSize),
    ) -> Result<(), WriteError> {
        let Some(part) = &self.journal else { return Ok(()) };
        let mut bytes = CommitSize::new(part.needs.len(), part.ring.holds_values());
        size(&mut bytes);
        let (bytes, named) = (bytes.bytes(), bytes.named_bytes());
        let has_room = match named {
            0 => part.ring.has_room(bytes, removes_only),
            _ => part.ring.has_room_to_name(bytes, named),
        };
        if has_room && bytes <= part.ring.most_bytes() {
            return Ok(());
        }
        Err(match part.ring.most_bytes() {
            most if bytes > most => WriteError::JournalTooSmall { bytes, most },
            _ => WriteError::JournalFull,
        })
    }

    /// Whether the journal has room for a commit that removes keys of these lengths. One
    /// without keys is never told, and needs none.
    ///
    /// # Errors
    /// [`WriteError::JournalFull`] or [`WriteError::JournalTooSmall`].
    pub fn check_removal(&self, key_lens: impl Iterator<Item = usize>) -> Result<(), WriteError> {
        let mut key_lens = key_lens.peekable();
        if key_lens.peek().is_none() {
            return Ok(());
        }
        self.check_journal(true, |size| key_lens.for_each(|len| size.gone(len)))
    }

    /// Whether the journal has room for a commit that removes all keys.
    ///
    /// # Errors
    /// [`WriteError::JournalFull`].
    pub fn check_clear(&self) -> Result<(), WriteError> {
        self.check_journal(true, CommitSize::clear)
    }

    /// Whether the removal of a key may be told now: what the writer removes by itself doesn't wait
    /// for room in the journal, it leaves the key.
    #[inline]
    pub(crate) fn may_remove(&self, key_len: usize) -> bool {
        let Some(part) = &self.journal else { return true };
        // Those of a commit that was refused go with the next one.
        let mut size = CommitSize::new(part.needs.len(), part.ring.holds_values());
        size.gone(key_len);
        part.ring.has_room(size.bytes(), true)
    }

    /// Counts what publishing a staged record takes in the journal.
    pub(super) fn count_staged(&self, reference: u32, size: &mut CommitSize) {
        let head = Head::load(&self.words, u64::from(reference) * r::UNIT);
        let key_len = usize::from(head.key_len);
        match self.based.get(&reference) {
            Some(base) => {
                let added = head.value_len.saturating_sub(base.len);
                size.based(key_len, base.key.len(), added as usize);
            }
            None if head.is_tombstone() => size.gone(key_len),
            None => size.put(key_len, head.value_len as usize, head.has_run()),
        }
    }

    /// Publishes a change in the journal.
    #[inline]
    pub(super) fn tell(&mut self, stored: Stored<'_>) {
        match stored {
            Stored::Put { head, key, parts } => self.tell_put(head, key, parts),
            Stored::Entries { clears, entries } => self.tell_entries(clears, entries),
            Stored::Removals(keys) => self.tell_removals(keys),
        }
    }

    fn tell_put(&mut self, head: &Head, key: &[u8], parts: &[&[u8]]) {
        let clock_ms = self.words.load64(header::CLOCK, Relaxed);
        let Some(part) = &mut self.journal else { return };
        let payload = head.bytes();
        let mut entry = part.begin(change_bytes(payload), 1, clock_ms);
        entry.change(part.head(payload, head.lsn, Effect::Put));
        entry.bytes(&head.to_bytes());
        entry.bytes(key);
        entry.zeros(head.value_at() - r::KEY - key.len() as u64);
        parts.iter().for_each(|part| entry.bytes(part));
        entry.zeros(payload - head.value_at() - u64::from(head.value_len));
        entry.publish();
        part.needs.clear();
        if !part.roots.is_empty() {
            part.roots.forget(key);
        }
    }

    #[cold]
    fn tell_removals(&mut self, keys: &[(u32, &[u8])]) {
        let clock_ms = self.words.load64(header::CLOCK, Relaxed);
        let Some(part) = &mut self.journal else { return };
        let payload = |key: &[u8]| inline_record_bytes(key.len(), 0);
        let bytes = keys.iter().map(|(_, key)| change_bytes(payload(key))).sum();
        let mut entry = part.begin(bytes, keys.len(), clock_ms);
        for (lsn, &(_, key)) in (self.lsn + 1 - keys.len() as u64..).zip(keys) {
            let head = part.head(payload(key), lsn, Effect::Gone);
            entry.change(ChangeHead { more: lsn != self.lsn, ..head });
            let (words, at) = entry.take(payload(key));
            record::write(&words, at, &tombstone(key, lsn), key, &[]);
        }
        entry.publish();
        part.needs.clear();
        keys.iter().for_each(|(_, key)| part.roots.forget(key));
    }

    #[cold]
    fn tell_entries(&mut self, clears: bool, entries: &[u64]) {
        let (words, last) = (self.words, self.lsn);
        let clock_ms = words.load64(header::CLOCK, Relaxed);
        let Some(part) = &mut self.journal else { return };
        let (holds, g) = (part.ring.holds_values(), *self.space.geometry());
        let staged = || {
            let of = |&e| StagedRecord::new(&words, &self.based, entry_reference(e));
            entries.iter().map(of).map(|it| it.with_value(&words, holds.then_some(&g)))
        };
        let cleared = if clears { change_bytes(0) } else { 0 };
        let bytes = cleared + staged().map(|it| change_bytes(it.payload())).sum::<u64>();
        let count = entries.len() + usize::from(clears);
        let mut entry = part.begin(bytes, count, clock_ms);
        if clears {
            let head = part.head(0, last - entries.len() as u64, Effect::Clear);
            entry.change(ChangeHead { more: !entries.is_empty(), ..head });
        }
        for it in staged() {
            let lsn = it.head.lsn;
            let head = part.head(it.payload(), lsn, it.effect());
            entry.change(ChangeHead { more: lsn != last, ..head });
            it.encode(&words, &mut entry);
        }
        let position = entry.publish();
        part.needs.clear();
        // Bases are of before the commit.
        let rooted: Vec<(u32, Root)> = staged()
            .filter_map(|it| {
                let base = it.base?;
                let root = part.roots.of_base(&base.key, base.lsn);
                Some((record::reference_of(it.offset), root))
            })
            .collect();
        if clears {
            part.roots.clear();
        }
        if !part.roots.is_empty() {
            let all = entries.iter().map(|&e| key_of(&words, entry_reference(e)));
            all.for_each(|key| part.roots.forget(key));
        }
        rooted.iter().for_each(|(it, root)| part.roots.set(key_of(&words, *it), *root));
        let mut named_bytes = 0;
        for it in staged().filter(|it| it.head.has_run() && !holds) {
            let base = it.base.map_or(0, |base| base.len);
            named_bytes += u64::from(it.head.value_len.saturating_sub(base));
            let name = RunName::load(&words, it.offset, &it.head);
            self.space.name_in_journal(name.slot, position);
        }
        if named_bytes > 0 {
            part.ring.note_named(named_bytes);
        }
    }
}

/// The key of a staged record.
fn key_of(words: &MappedWords, reference: u32) -> &[u8] {
    let offset = u64::from(reference) * r::UNIT;
    let len = words.load32(offset + r::KEY_LEN, Relaxed) & 0xFFFF;
    // SAFETY: a staged record, which stays as it is; the slice doesn't leave the call that asks.
    unsafe { words.bytes(offset + r::KEY, len as usize) }
}

impl JournalPart {
    /// An entry with changes of so many bytes together.
    #[inline]
    fn begin(&self, bytes: u64, changes: usize, clock_ms: u64) -> EntryEncoder<'_> {
        let needs = self.needs.len() as u64 * e::NEED_BYTES;
        let changes = u32::try_from(changes).expect("fewer than an entry has bytes");
        self.ring.begin(e::HEADER_BYTES + needs + bytes, &self.needs, changes, clock_ms)
    }

    /// The header of a commit's last change.
    #[inline]
    fn head(&self, payload: u64, lsn: u64, effect: Effect) -> ChangeHead {
        let payload_bytes = u32::try_from(payload).expect("less than an entry has");
        ChangeHead { payload_bytes, stream: self.stream, lsn, effect, more: false }
    }
}

/// The header of the tombstone of a key.
fn tombstone(key: &[u8], lsn: u64) -> Head {
    let key_len = u16::try_from(key.len()).expect("the key of a record");
    let (kind, flags) = (r::KIND_STRING, r::FLAG_TOMBSTONE);
    Head { lsn, key_len, kind, flags, ..Head::EMPTY }
}

/// A staged record, whose number is known.
struct StagedRecord<'a> {
    offset: u64,
    head: Head,
    base: Option<&'a Base>,
    /// The key of its base, if it isn't its own.
    source: &'a [u8],
    is_other: bool,
    /// Bytes of the value that the entry holds besides the record.
    value: Range<u64>,
}

impl<'a> StagedRecord<'a> {
    fn new(words: &MappedWords, based: &'a HashMap<u32, Base>, reference: u32) -> StagedRecord<'a> {
        let offset = u64::from(reference) * r::UNIT;
        let head = Head::load(words, offset);
        let based = if head.flags & r::FLAG_BASED == 0 { None } else { based.get(&reference) };
        let is_other = based.is_some_and(|base| !record::key_is(words, reference, &base.key));
        let source = based.filter(|_| is_other).map_or(&[][..], |base| &base.key);
        StagedRecord { offset, head, base: based, source, is_other, value: 0..0 }
    }

    /// The same for an entry that holds what is new of its value, if that lies in a run of such an
    /// arena.
    fn with_value(self, words: &MappedWords, g: Option<&Geometry>) -> StagedRecord<'a> {
        let Some(g) = g.filter(|_| self.head.has_run()) else { return self };
        let run = g.slot_offset(RunName::load(words, self.offset, &self.head).slot);
        let had = self.base.map_or(0, |base| base.len).min(self.head.value_len);
        let value = run + u64::from(had)..run + u64::from(self.head.value_len);
        StagedRecord { value, ..self }
    }

    fn effect(&self) -> Effect {
        match self.base {
            _ if self.head.is_tombstone() => Effect::Gone,
            Some(_) => Effect::Based,
            None => Effect::Put,
        }
    }

    /// Bytes of its change's payload.
    fn payload(&self) -> u64 {
        let base = if self.base.is_some() { c::BASE_BYTES } else { 0 };
        base + self.head.bytes() + self.source.len() as u64 + self.value.end - self.value.start
    }

    fn encode(&self, words: &MappedWords, entry: &mut EntryEncoder<'_>) {
        if let Some(base) = self.base {
            let source_len = self.source.len() as u64;
            let rest = u64::from(base.len) | source_len << 32 | u64::from(self.is_other) << 48;
            entry.bytes(&base.lsn.to_le_bytes());
            entry.bytes(&rest.to_le_bytes());
        }
        let len = usize::try_from(self.head.bytes()).expect("shorter than a slot");
        // SAFETY: a staged record of this arena: nothing of it is written before this change's own
        // stores; the slice doesn't leave this call.
        entry.bytes(unsafe { words.bytes(self.offset, len) });
        entry.bytes(self.source);
        let value_len = usize::try_from(self.value.end - self.value.start).expect("of a value");
        // SAFETY: a staged value, below its length: as above.
        entry.bytes(unsafe { words.bytes(self.value.start, value_len) });
        entry.end_change();
    }
}

const _: () = assert!(c::BASE_BYTES == 16 && round_up(r::UNIT, c::ALIGN) == r::UNIT);
