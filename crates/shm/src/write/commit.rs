//! Several keys at once: staged records, published all or nothing.
//!
//! ```text
//! append all, append intent, number all | begun, intent | publish each | committed, intent := 0 | retire
//!            nobody knows               |<--- a crash here: publish all again --->|
//! ```
//!
//! 1. Before the intent is stored, everything that publishing needs is there: places in the index,
//!    and the empty table of a commit that clears first. So publishing cannot fail.
//! 2. Publishing the list again after a crash ends in the same state: each key's last operation
//!    counts.
//! 3. Nothing that the list names is retired before the intent is 0 again.
//!
//! The arena's writer only; the protocol's stores are generic over the shared words.

use crate::error::WriteError;
use crate::format::head::{Head, RunName};
use crate::format::layout::{LINE_ENTRIES, PROBE_LINES, entry_reference, entry_tag, record as r};
use crate::format::record::{self, RecordRef};
use crate::format::words::SharedWords;
use crate::index::growth::{GROW_PERCENT, lines_for};
use crate::index::{Table, is_room};
use crate::qsbr::Pin;
use crate::write::append::Append;
use crate::write::journal::Stored;
use crate::write::writer::Writer;
use std::collections::{HashMap, HashSet};

/// What a commit that clears has replaced: the tables, and the entries that stand in the new one.
pub(crate) struct Emptied {
    tables: [Option<Table>; 2],
    puts: Vec<u64>,
}

/// Tables that a commit tries, each twice as large, before it says that too many keys have one
/// hash.
const TABLE_TRIES: u32 = 4;

impl Writer {
    /// Appends a record without publishing it.
    ///
    /// # Errors
    /// As [`Writer::put`]; nothing has changed then.
    pub fn stage(
        &mut self,
        hash: u32,
        key: &[u8],
        parts: &[&[u8]],
        expiry_ms: u64,
    ) -> Result<RecordRef, WriteError> {
        self.stage_append(&Append::string(hash, key, parts, expiry_ms))
    }

    /// Appends a record with the value of another one, published or staged, without publishing it.
    /// A run is shared, not copied.
    ///
    /// # Errors
    /// As [`Writer::put`]; nothing has changed then.
    ///
    /// # Panics
    /// If the pin is another domain's, or `from` was kept for too long.
    pub fn stage_moved_run(
        &mut self,
        pin: &Pin<'_>,
        from: RecordRef,
        hash: u32,
        key: &[u8],
        expiry_ms: u64,
    ) -> Result<RecordRef, WriteError> {
        self.stage_from(pin, from, Append::string(hash, key, &[], expiry_ms))
    }

    /// Appends a key's record, published or staged, with another expiry, without publishing it.
    /// Works when the arena is full, as long as the reserve lasts: see [`Writer::set_expiry`].
    ///
    /// # Errors
    /// As [`Writer::put`]; nothing has changed then.
    ///
    /// # Panics
    /// If the pin is another domain's, or `from` was kept for too long.
    pub fn stage_expiry(
        &mut self,
        pin: &Pin<'_>,
        from: RecordRef,
        hash: u32,
        key: &[u8],
        expiry_ms: u64,
    ) -> Result<RecordRef, WriteError> {
        let append = Append::string(hash, key, &[], expiry_ms);
        self.stage_from(pin, from, Append { urgent: true, ..append })
    }

    /// Appends the deletion of a key without making it happen. Works when the arena is full, as
    /// long as the reserve lasts.
    ///
    /// # Errors
    /// As [`Writer::put`]; nothing has changed then.
    pub fn stage_delete(&mut self, hash: u32, key: &[u8]) -> Result<RecordRef, WriteError> {
        let append = Append::string(hash, key, &[], 0);
        self.stage_append(&Append { flags: r::FLAG_TOMBSTONE, urgent: true, ..append })
    }

    pub(crate) fn stage_append(&mut self, a: &Append<'_>) -> Result<RecordRef, WriteError> {
        let (offset, head) = self.append(a, 0).map_err(|e| self.refused(e))?;
        self.space.hold(offset, &head);
        let slot = self.space.geometry().slot_of(offset);
        Ok(RecordRef {
            hash: a.hash,
            reference: record::reference_of(offset),
            generation: self.space.generation(slot),
            arena: self.region.number(),
        })
    }

    /// Forgets staged records that won't be committed, and frees what they took.
    ///
    /// # Panics
    /// If one of them was committed or abandoned before.
    pub fn abandon(&mut self, refs: &[RecordRef]) {
        for &reference in refs {
            let head = self.check_ref(reference);
            self.space.release(reference.offset(), &head);
            self.forget_base(&head, reference.reference);
        }
    }

    /// A staged or published record's header.
    pub(crate) fn check_ref(&self, reference: RecordRef) -> Head {
        let g = self.space.geometry();
        assert!(reference.arena == self.region.number(), "a record of another arena");
        let slot = g.slot_of(reference.offset());
        let in_use = reference.generation & 1 == 0;
        let same = self.space.generation(slot) == reference.generation;
        assert!(in_use && same, "a record kept too long");
        let head = Head::load(&self.words, reference.offset());
        if head.has_run() {
            let name = RunName::load(&self.words, reference.offset(), &head);
            let now = self.space.generation(name.slot);
            assert!(now == name.generation, "a record kept longer than its value");
        }
        head
    }

    /// Publishes staged records in order, all or nothing, after deleting every key if
    /// `clear_first`. Of several for one key the last counts. They are no longer staged then; if it
    /// fails they still are.
    ///
    /// # Errors
    /// If memory is short or the index has no place. Nothing has changed then.
    ///
    /// # Panics
    /// If the pin is another domain's, or a reference is not a staged record's.
    pub fn commit(
        &mut self,
        pin: &Pin<'_>,
        clear_first: bool,
        refs: &[RecordRef],
    ) -> Result<(), WriteError> {
        self.check_pin(pin);
        if refs.is_empty() {
            if clear_first {
                self.check_clear()?;
                self.clear();
            }
            return Ok(());
        }
        self.advance_growth(u32::try_from(refs.len()).unwrap_or(u32::MAX).saturating_mul(2));
        let mut only_deletes = true;
        for &reference in refs {
            only_deletes &= self.check_ref(reference).is_tombstone();
        }
        let entries = self.last_of_each_key(refs.iter().map(RecordRef::entry).collect());
        self.check_journal(only_deletes, |size| {
            if clear_first {
                size.clear();
            }
            entries.iter().for_each(|e| self.count_staged(entry_reference(*e), size));
        })?;
        let table = self
            .prepare_commit(clear_first, &entries, only_deletes)
            .map_err(|e| self.refused(e))?;
        // One key is one store: it needs no intent.
        let intent = if entries.len() == 1 && table.is_none() {
            None
        } else {
            match self.append_intent(&entries, table, only_deletes) {
                Ok(intent) => Some(intent),
                Err(error) => {
                    if let Some(table) = table {
                        self.space.retire_table(table.slot, table.bytes());
                    }
                    return Err(error);
                }
            }
        };
        self.number(intent, table, &entries);
        self.publish_all(intent.map_or(0, |intent| intent.reference), table, &entries);
        self.abandon(intent.as_slice());
        self.abandon(refs);
        self.pay_if_due();
        Ok(())
    }

    /// Gives what is committed its numbers, densely: a clearing first, then the list in order. The
    /// intent has the first.
    pub(crate) fn number(
        &mut self,
        intent: Option<RecordRef>,
        clear: Option<Table>,
        entries: &[u64],
    ) {
        if let Some(intent) = intent {
            record::seal(&self.words, intent.offset(), self.lsn + 1);
        }
        self.lsn += u64::from(clear.is_some());
        for &e in entries {
            self.lsn += 1;
            record::seal(&self.words, u64::from(entry_reference(e)) * r::UNIT, self.lsn);
        }
    }

    /// Leaves the last entry of each key, in order: so a key that is there is never deleted and put
    /// again, and keeps its place.
    pub(crate) fn last_of_each_key(&self, mut entries: Vec<u64>) -> Vec<u64> {
        let mut order: Vec<(u32, usize)> =
            entries.iter().enumerate().map(|(i, &e)| (entry_tag(e), i)).collect();
        order.sort_unstable();
        let (mut doubles, mut last) = (Vec::new(), HashSet::new());
        for same in order.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
            last.clear();
            let is_double = |&i: &usize| !last.insert(self.key_of(entry_reference(entries[i])));
            doubles.extend(same.iter().rev().map(|(_, i)| *i).filter(is_double));
        }
        if !doubles.is_empty() {
            doubles.sort_unstable();
            let mut at = 0;
            entries.retain(|_| {
                at += 1;
                doubles.binary_search(&(at - 1)).is_err()
            });
        }
        entries
    }

    pub(crate) fn append_intent(
        &mut self,
        entries: &[u64],
        clear: Option<Table>,
        urgent: bool,
    ) -> Result<RecordRef, WriteError> {
        let list: Vec<u8> = std::iter::once(clear.map_or(0, |table| table.word()))
            .chain(entries.iter().map(|&e| entry_reference(e)))
            .flat_map(u32::to_le_bytes)
            .collect();
        let parts = [list.as_slice()];
        let append = Append::string(self.hash(b""), b"", &parts, 0);
        self.stage_append(&Append { kind: r::KIND_INTENT, urgent, ..append })
    }

    /// The stores of a commit whose records are numbered up to the writer's LSN, in order.
    /// Everything that they need is there.
    pub(crate) fn publish_all(&mut self, intent: u32, clear: Option<Table>, entries: &[u64]) {
        let stored = Stored::Entries { clears: clear.is_some(), entries };
        let lsn = self.lsn - entries.len() as u64;
        let clear = clear.map(|table| (table, lsn));
        let emptied = self.change(intent, stored, |writer| writer.publish_within(clear, entries));
        self.let_unpublished_go(emptied);
    }

    /// The stores of a commit's keys, within a change that has begun; behind those of a clearing
    /// with this number, if it clears.
    pub(crate) fn publish_within(
        &mut self,
        clear: Option<(Table, u64)>,
        entries: &[u64],
    ) -> Option<Emptied> {
        let Some((table, lsn)) = clear else {
            entries.iter().for_each(|&e| self.publish(e));
            return None;
        };
        let is_put = |e: &u64| !self.head_of(*e).is_tombstone();
        let puts: Vec<u64> = entries.iter().copied().filter(is_put).collect();
        Some(Emptied { tables: self.clear_into(table, lsn, &puts), puts })
    }

    /// Counts out what [`Self::publish_within`] has unpublished.
    pub(crate) fn let_unpublished_go(&mut self, emptied: Option<Emptied>) {
        if let Some(Emptied { tables, puts }) = emptied {
            self.let_all_go(tables, &puts);
        }
        let mut unpublished = std::mem::take(&mut self.unpublished);
        self.let_go(unpublished.drain(..));
        self.unpublished = unpublished;
    }

    /// Makes the index say what a staged record says. Saying it again changes nothing.
    fn publish(&mut self, e: u64) {
        let (hash, reference) = (entry_tag(e), entry_reference(e));
        let (head, key) = (self.head_of(e), self.key_of(reference));
        let at = self.index.locate(&self.words, hash, key);
        let unpublished = match at.found {
            Some(place) if head.is_tombstone() => Some(self.take_out(&place, hash, head.lsn)),
            None if head.is_tombstone() => return,
            Some(place) if place.reference == reference => return,
            _ => self.enter(&at, e, &head),
        };
        self.unpublished.extend(unpublished);
    }

    /// The header of the record that an entry names.
    fn head_of(&self, e: u64) -> Head {
        Head::load(&self.words, u64::from(entry_reference(e)) * r::UNIT)
    }

    /// Sees to a place for every key. Returns the empty table if the commit clears first.
    pub(crate) fn prepare_commit(
        &mut self,
        clear_first: bool,
        entries: &[u64],
        urgent: bool,
    ) -> Result<Option<Table>, WriteError> {
        if clear_first {
            return self.table_for_all(entries, urgent).map(Some);
        }
        for _ in 0..TABLE_TRIES {
            self.migrate_chains(entries);
            let (new, unplaced) = self.promise_places(entries, urgent)?;
            let placed = unplaced.is_none();
            let places = self.index.current().entries();
            let full = (self.index.load() + new) * 100 > places * GROW_PERCENT;
            if placed && (!full || self.index.growing()) {
                return Ok(None);
            }
            if self.index.growing() {
                match self.finish_growth() {
                    Err(WriteError::TooManyKeysWithOneHash) => break,
                    done => done?,
                }
                continue;
            }
            let few = !full && self.index.load() + new <= places / 2;
            if few && unplaced.is_some_and(|hash| !self.would_part(hash)) {
                break;
            }
            self.prepare_table();
            match self.begin_growth(new, !placed) {
                Ok(()) => {}
                Err(_) if placed => return Ok(None),
                Err(error) => {
                    self.crowded = unplaced;
                    return Err(error);
                }
            }
        }
        self.spread(&self.hashes_put(entries)).map(|()| None)
    }

    /// Moves what the keys would meet in the table that is being emptied: promises count on what is
    /// left.
    fn migrate_chains(&mut self, entries: &[u64]) {
        if !self.index.growing() {
            return;
        }
        for &entry in entries {
            self.index.migrate_chain(&self.words, entry_tag(entry));
        }
    }

    /// Promises each new key the place that publishing in order would give it, deletions apart:
    /// they only make more room. Returns the number of new keys, and the hash of one that has no
    /// place. Refuses too many with one hash, unless they were promised places before.
    fn promise_places(
        &mut self,
        entries: &[u64],
        urgent: bool,
    ) -> Result<(u64, Option<u32>), WriteError> {
        let mut promised = std::mem::take(&mut self.promised);
        promised.clear();
        let (mut unplaced, mut hashes, mut most_alike) = (None, Vec::new(), 0);
        for &entry in entries {
            let (hash, head) = (entry_tag(entry), self.head_of(entry));
            let key = self.key_of(entry_reference(entry));
            let at = self.index.locate(&self.words, hash, key);
            if head.is_tombstone() || at.found.is_some() {
                continue;
            }
            hashes.push(hash);
            most_alike = most_alike.max(at.alike);
            if !self.promise(&mut promised, hash) {
                unplaced = Some(hash);
            }
        }
        self.promised = promised;
        let new = hashes.len() as u64;
        if !urgent {
            self.check_alike(most_alike)?;
            self.check_new_alike(hashes)?;
        }
        Ok((new, unplaced))
    }

    /// Refuses a commit that brings too many new keys with one hash.
    fn check_new_alike(&self, mut hashes: Vec<u32>) -> Result<(), WriteError> {
        let most = self.alike_max;
        if hashes.len() <= most {
            return Ok(());
        }
        hashes.sort_unstable();
        let are_alike = hashes.windows(most + 1).any(|some| some.first() == some.last());
        self.check_alike(if are_alike { most } else { 0 })
    }

    fn promise(&self, promised: &mut HashMap<u64, u32>, hash: u32) -> bool {
        self.index.current().probe(hash).any(|at| {
            let free = self.words.line(at).into_iter().filter(|&e| is_room(e)).count();
            let taken = promised.entry(at).or_default();
            let fits = (*taken as usize) < free;
            *taken += u32::from(fits);
            fits
        })
    }

    /// An empty table in which each key of the list finds a place.
    fn table_for_all(&mut self, entries: &[u64], urgent: bool) -> Result<Table, WriteError> {
        let hashes = self.hashes_put(entries);
        if !urgent {
            self.check_new_alike(hashes.clone())?;
        }
        let mut lines = lines_for(hashes.len() as u64);
        for _ in 0..TABLE_TRIES {
            if all_fit(&hashes, lines, &mut self.promised) {
                return self.take_table(lines, urgent || lines == lines_for(0));
            }
            lines *= 2;
        }
        Err(WriteError::TooManyKeysWithOneHash)
    }
}

impl Writer {
    /// Whether each key of the list finds a place in an empty table.
    pub(crate) fn fit_all(&mut self, entries: &[u64], table: Table) -> Result<(), WriteError> {
        let hashes = self.hashes_put(entries);
        let fit = all_fit(&hashes, table.lines, &mut self.promised);
        if fit { Ok(()) } else { Err(WriteError::TooManyKeysWithOneHash) }
    }

    fn hashes_put(&self, entries: &[u64]) -> Vec<u32> {
        let puts = entries.iter().filter(|&&e| !self.head_of(e).is_tombstone());
        puts.map(|&e| entry_tag(e)).collect()
    }
}

/// Whether so many keys find places in an empty table of `lines` lines.
pub(crate) fn all_fit(hashes: &[u32], lines: u64, taken: &mut HashMap<u64, u32>) -> bool {
    taken.clear();
    hashes.iter().all(|&hash| {
        (0..PROBE_LINES.min(lines)).any(|i| {
            let line = (u64::from(hash) + i) & (lines - 1);
            let taken = taken.entry(line).or_default();
            let fits = u64::from(*taken) < LINE_ENTRIES;
            *taken += u32::from(fits);
            fits
        })
    })
}
