//! The only writer of an arena.
//!
//! ```text
//! put: locate ── append record ── store tail ── change: begin ── prev, entry ── end ── count the old record out
//! ```
//!
//! 1. Until its entry is stored, a record is nobody's; a write that fails before that has changed
//!    nothing that can be seen.
//! 2. Each write moves a bounded number of lines while the index grows.
//! 3. `&mut self` is the lock: one writer per arena, on one thread at a time.

use crate::error::WriteError;
use crate::format::head::Head;
use crate::format::layout::{
    KEY_BYTES_MAX, SLOT_WORD_BYTES, VALUE_BYTES_MAX, entry, entry_reference, entry_tag, header,
    inline_record_bytes, record as r, run_record_bytes,
};
use crate::format::record::{self};
use crate::format::words::{MappedWords, SharedWords};
use crate::index::growth::ALIKE_MAX;
use crate::index::growth::FIRST_TABLE_LINES;
use crate::index::growth::{PreparedTable, Rebuilds};
use crate::index::moment;
use crate::index::{EntryPlace, Index, Located, Table, split_state};
use crate::journal::layout::{
    ENTRY_SHARE, JOURNAL_BYTES_MIN, change_bytes, entry as journal_entry,
};
use crate::qsbr::Pin;
use crate::read::reader::Reader;
use crate::region::Region;
use crate::space::Space;
use crate::write::append::Append;
use crate::write::cleaner::Cleaner;
use crate::write::journal::{Base, JournalPart, Stored};
use crate::write::lasting::Lasting;
use std::cell::Cell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Lines that a write moves while the index grows. A table begins to grow at 80 % of its entries,
/// into one that is at most half full then; so two lines a write end it long before the new one is
/// due.
pub(crate) const LINES_PER_WRITE: u32 = 2;

/// Bytes of an entry of the journal before its changes, at most.
const ENTRY_HEAD_BYTES_MOST: u64 =
    journal_entry::HEADER_BYTES + journal_entry::NEEDS_MOST as u64 * journal_entry::NEED_BYTES;
/// A record up to here fits into an entry of any journal.
const ENTRY_BYTES_SURE: u64 = JOURNAL_BYTES_MIN / ENTRY_SHARE - ENTRY_HEAD_BYTES_MOST - 64;

/// The only writer of an arena.
pub struct Writer {
    pub(crate) region: Arc<Region>,
    pub(crate) words: MappedWords,
    pub(crate) space: Space,
    pub(crate) index: Index,
    pub(crate) prepared: Option<PreparedTable>,
    pub(crate) seed: u32,
    pub(crate) lsn: u64,
    pub(crate) appended: u64,
    pub(crate) expires: u64,
    pub(crate) incarnation: u64,
    pub(crate) expire_line: u64,
    pub(crate) lasting: Lasting,
    /// Places promised to keys of a commit: line offset, entries. Kept to save allocations.
    pub(crate) promised: HashMap<u64, u32>,
    /// The records that a commit under way has unpublished. Kept to save allocations.
    pub(crate) unpublished: Vec<u64>,
    /// The bases of staged values in runs, by the references of their records.
    pub(crate) based: HashMap<u32, Base>,
    pub(crate) journal: Option<JournalPart>,
    /// First slots of runs that [`HeldValue`](crate::HeldValue)s hold.
    pub(crate) held_values: Vec<(u32, Arc<()>)>,
    pub(crate) cleaner: Cleaner,
    pub(crate) rebuilds: Rebuilds,
    /// The next table was wanted, but there was no memory for it.
    pub(crate) lacks_table: bool,
    /// The system gave no memory for the one that was asked for last.
    pub(crate) table_denied: bool,
    /// Since the last upkeep a write was refused until the next table is there.
    pub(crate) awaits_table: bool,
    /// See [`Writer::expect_keys`].
    pub(crate) expected: u64,
    /// See [`Writer::take_crowded`].
    pub(crate) crowded: Option<u32>,
    /// [`ALIKE_MAX`], but for tests.
    pub(crate) alike_max: usize,
    pub(crate) not_sync: PhantomData<Cell<()>>,
}

impl Writer {
    pub(crate) fn assemble(region: Arc<Region>, space: Space, index: Index, seed: u32) -> Writer {
        Writer {
            words: region.words(),
            region,
            space,
            index,
            prepared: None,
            seed,
            lsn: 0,
            appended: 0,
            expires: 0,
            incarnation: 2,
            expire_line: 0,
            lasting: Lasting::default(),
            promised: HashMap::new(),
            unpublished: Vec::new(),
            based: HashMap::new(),
            journal: None,
            held_values: Vec::new(),
            cleaner: Cleaner::default(),
            rebuilds: Rebuilds::default(),
            lacks_table: false,
            table_denied: false,
            awaits_table: false,
            expected: 0,
            crowded: None,
            alike_max: ALIKE_MAX,
            not_sync: PhantomData,
        }
    }

    /// A reader of this arena, for any thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(&self.region, self.seed)
    }

    /// The arena's mapping.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Hash of a key in this arena.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u32 {
        crate::format::hash::hash(self.seed, key)
    }

    /// Sets a key to the concatenation of `parts`, with an expiry in Unix milliseconds (0: none).
    ///
    /// # Errors
    /// If the key or value is too long, memory is short or the index has no place. Nothing has
    /// changed then.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[inline]
    pub fn put(
        &mut self,
        pin: &Pin<'_>,
        hash: u32,
        key: &[u8],
        parts: &[&[u8]],
        expiry_ms: u64,
    ) -> Result<(), WriteError> {
        self.check_pin(pin);
        self.check_journal(false, |size| {
            let value_len = parts.iter().map(|part| part.len()).sum();
            size.put(key.len(), value_len, self.takes_run(key.len(), value_len));
        })?;
        self.replace(&Append::string(hash, key, parts, expiry_ms)).map_err(|e| self.refused(e))?;
        self.pay_if_due();
        Ok(())
    }

    /// Behind each write: nothing that it has located is needed any more.
    #[inline]
    pub(crate) fn pay_if_due(&mut self) {
        if self.appended >= self.cleaner.due {
            self.pay();
        }
    }

    /// Appends a record and publishes it in place of the key's.
    #[inline]
    pub(crate) fn replace(&mut self, a: &Append<'_>) -> Result<(), WriteError> {
        self.advance_growth(LINES_PER_WRITE);
        let mut at = self.index.locate(&self.words, a.hash, a.key);
        if at.found.is_none() {
            self.check_alike(at.alike)?;
            if self.make_room(a.hash, at.room.is_some())? {
                at = self.index.locate(&self.words, a.hash, a.key);
            }
        }
        let (offset, head) = self.append(a, self.lsn + 1)?;
        self.lsn = head.lsn;
        let e = entry(a.hash, record::reference_of(offset));
        let entries = [e];
        let stored = match head.has_run() {
            true => Stored::Entries { clears: false, entries: &entries },
            false => Stored::Put { head: &head, key: a.key, parts: a.parts },
        };
        let old = self.change(0, stored, |writer| writer.enter(&at, e, &head));
        self.let_go(old);
        self.forget_base(&head, entry_reference(e));
        Ok(())
    }

    /// Stores the entry of a record where its key stands or could, within a change that has begun.
    /// Returns what it replaced, for [`Self::let_go`] behind the change's end.
    #[inline]
    pub(crate) fn enter(&mut self, at: &Located, e: u64, head: &Head) -> Option<u64> {
        self.space.charge(u64::from(entry_reference(e)) * r::UNIT, head);
        self.expires += u64::from(head.expiry_ms != 0);
        let old = moment::put(&self.words, &mut self.index, at, e)?;
        Some(u64::from(old) * r::UNIT)
    }

    /// Stamps and removes an entry, within a change that has begun. Returns what it named, for
    /// [`Self::let_go`].
    pub(crate) fn take_out(&mut self, place: &EntryPlace, hash: u32, lsn: u64) -> u64 {
        moment::remove(&self.words, &mut self.index, (place, hash), lsn);
        u64::from(place.reference) * r::UNIT
    }

    /// Counts out what a change has unpublished, behind its end.
    #[inline]
    pub(crate) fn let_go(&mut self, unpublished: impl IntoIterator<Item = u64>) {
        for offset in unpublished {
            let head = Head::load(&self.words, offset);
            // Less than none: damage gave the record an expiry.
            self.expires = self.expires.saturating_sub(u64::from(head.expiry_ms != 0));
            self.space.discharge(offset, &head);
        }
    }

    /// Gives a key another expiry (0: none). Its value is not copied if it lies in a run. Works
    /// when the arena is full, as long as the reserve lasts.
    ///
    /// # Errors
    /// If memory is short, or the record's bytes are others than were written. Nothing has changed
    /// then.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn set_expiry(
        &mut self,
        pin: &Pin<'_>,
        hash: u32,
        key: &[u8],
        expiry_ms: u64,
    ) -> Result<bool, WriteError> {
        self.check_pin(pin);
        let Some(place) = self.index.locate(&self.words, hash, key).found else { return Ok(false) };
        let append = Append { urgent: true, ..Append::string(hash, key, &[], expiry_ms) };
        self.replace_based(place.reference, append)?;
        Ok(true)
    }

    /// Deletes a key; false if there is none. Never fails for lack of memory.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn delete(&mut self, pin: &Pin<'_>, hash: u32, key: &[u8]) -> bool {
        self.check_pin(pin);
        self.advance_growth(LINES_PER_WRITE);
        self.remove(hash, key)
    }

    pub(crate) fn remove(&mut self, hash: u32, key: &[u8]) -> bool {
        let Some(place) = self.index.locate(&self.words, hash, key).found else { return false };
        self.remove_at(&place, hash);
        true
    }

    /// Removes an entry: a change of its own.
    pub(crate) fn remove_at(&mut self, place: &EntryPlace, hash: u32) {
        self.lsn += 1;
        let (lsn, key) = (self.lsn, self.key_of(place.reference));
        let stored = Stored::Removals(&[(hash, key)]);
        let old = self.change(0, stored, |writer| writer.take_out(place, hash, lsn));
        self.let_go([old]);
    }

    /// Deletes every key at once. Works when the arena is full.
    pub fn clear(&mut self) {
        if self.clear_at_once().is_err() {
            self.clear_one_by_one();
        }
        self.store_counters();
    }

    /// Deletes every key by one change, which takes a page.
    pub(crate) fn clear_at_once(&mut self) -> Result<(), WriteError> {
        let table = self.take_table(FIRST_TABLE_LINES, true)?;
        self.lsn += 1;
        let lsn = self.lsn;
        let stored = Stored::Entries { clears: true, entries: &[] };
        let emptied = self.change(0, stored, |writer| writer.clear_into(table, lsn, &[]));
        self.let_all_go(emptied, &[]);
        Ok(())
    }

    /// Fills a zeroed table with what `entries` name and makes it the whole index, within a change
    /// that has begun. Returns the tables that were the index, for [`Self::let_all_go`].
    pub(crate) fn clear_into(
        &mut self,
        table: Table,
        lsn: u64,
        entries: &[u64],
    ) -> [Option<Table>; 2] {
        let mut index = Index::new(table);
        for &e in entries {
            let room = index.room(&self.words, entry_tag(e));
            let room = room.expect("the table was chosen so that each finds a place");
            index.insert(&self.words, room, entry_tag(e), entry_reference(e));
        }
        moment::clear(&self.words, &mut self.index, index, lsn)
    }

    /// Counts out all that was there, behind the end of the change that cleared, and counts in what
    /// `entries` name.
    pub(crate) fn let_all_go(&mut self, emptied: [Option<Table>; 2], entries: &[u64]) {
        for table in emptied.into_iter().flatten() {
            self.space.retire_table(table.slot, table.bytes());
        }
        self.forget_prepared();
        self.expires = 0;
        self.expire_line = 0;
        self.lasting = Lasting::default();
        self.space.clear();
        for &e in entries {
            let offset = u64::from(entry_reference(e)) * r::UNIT;
            let head = Head::load(&self.words, offset);
            self.space.charge(offset, &head);
            self.expires += u64::from(head.expiry_ms != 0);
        }
    }

    /// When not even a page can be had: one entry after the other is removed, by one change. A kill
    /// in the middle leaves some keys. Readers see all of it or nothing, as of
    /// [`Self::delete_together`].
    fn clear_one_by_one(&mut self) {
        let (words, mut unpublished) = (self.words, Vec::new());
        let stored = Stored::Entries { clears: true, entries: &[] };
        self.change_unnamed(1, stored, |writer, lsn| {
            let mut all = Vec::new();
            writer.index.each(&words, &mut |_, e| all.push(e));
            words.store64(header::CLEAR_STAMP, lsn, Release);
            for e in all {
                let (hash, key) = (entry_tag(e), writer.key_of(entry_reference(e)));
                let place = writer.index.locate(&words, hash, key).found;
                unpublished.push(writer.take_out(
                    &place.expect("an entry of the index"),
                    hash,
                    lsn,
                ));
            }
        });
        self.let_go(unpublished);
    }

    #[inline]
    pub(crate) fn check_pin(&self, pin: &Pin<'_>) {
        assert!(pin.is_of(self.region.domain()), "a pin of another domain than the arena's");
    }

    /// Writes a record at the head, and its value to a run if it is long. Nobody knows of it yet.
    /// `lsn` is its number, or 0 if that is given when its commit begins. (It is no field of
    /// `Append`: a copy of that would wait for stores.)
    #[inline]
    pub(crate) fn append(&mut self, a: &Append<'_>, lsn: u64) -> Result<(u64, Head), WriteError> {
        let inline_len: usize = a.parts.iter().map(|part| part.len()).sum();
        let value_len = inline_len + a.prefix.map_or(0, |prefix| prefix.len as usize);
        let key_len =
            u16::try_from(a.key.len()).map_err(|_| WriteError::KeyTooLong { len: a.key.len() })?;
        if value_len > VALUE_BYTES_MAX {
            return Err(WriteError::ValueTooLong { len: value_len });
        }
        let inline = inline_record_bytes(a.key.len(), value_len);
        let mut head = Head {
            value_len: u32::try_from(value_len).expect("at most 512 MiB"),
            checksum: 0,
            lsn,
            expiry_ms: a.expiry_ms,
            prev: 0,
            key_len,
            kind: a.kind,
            flags: a.flags,
        };
        let wants_run = self.lies_in_run(a, inline, value_len) || self.outgrows_entry(inline);
        let in_run = match wants_run {
            true => self.append_with_run(a, &mut head)?,
            false => None,
        };
        let offset = if let Some(offset) = in_run {
            offset
        } else {
            let offset = self.space.reserve(inline, a.urgent)?;
            head.checksum = record::write(&self.words, offset, &head, a.key, a.parts);
            offset
        };
        self.space.store_tail();
        self.appended += head.bytes();
        Ok((offset, head))
    }

    /// `None` if there is no memory for the run, and the value can do without.
    #[cold]
    fn append_with_run(
        &mut self,
        a: &Append<'_>,
        head: &mut Head,
    ) -> Result<Option<u64>, WriteError> {
        let bytes = run_record_bytes(a.key.len());
        let offset = self.space.reserve(bytes, a.urgent)?;
        let name = match self.run_for(a, head.value_len) {
            Ok(name) => name,
            Err(error) => {
                self.space.unreserve(offset);
                let len = head.value_len as usize;
                let inline = inline_record_bytes(a.key.len(), len);
                if !self.may_lie_inline(a, len) || self.outgrows_entry(inline) {
                    return Err(error);
                }
                self.space.sate();
                return Ok(None);
            }
        };
        head.flags |= r::FLAG_RUN;
        if let Some(base) = a.base.and_then(|base| self.base_of(base)) {
            head.flags |= r::FLAG_BASED;
            self.based.insert(record::reference_of(offset), base);
        }
        record::write(&self.words, offset, head, a.key, &[&name.to_bytes()]);
        Ok(Some(offset))
    }

    /// Whether a record of so many bytes, value inline, is more than an entry of the journal holds,
    /// which has room for the name of a value in a run. Only journals of 1 MiB are so small.
    #[inline]
    pub(crate) fn outgrows_entry(&self, inline: u64) -> bool {
        inline > ENTRY_BYTES_SURE && self.outgrows_journal(inline)
    }

    #[cold]
    fn outgrows_journal(&self, inline: u64) -> bool {
        let entry = ENTRY_HEAD_BYTES_MOST + change_bytes(inline);
        let names = self.journal.as_ref().filter(|part| !part.ring.holds_values());
        names.is_some_and(|part| entry > part.ring.most_bytes())
    }

    /// Expiry is judged by this time from now on, Unix ms; or by a later one, if there was one.
    #[inline]
    pub fn note_time(&mut self, now_ms: u64) {
        if now_ms > self.words.load64(header::CLOCK, Relaxed) {
            // SYNC(moment): before whatever is removed for it.
            self.words.store64(header::CLOCK, now_ms, Release);
        }
    }

    /// Number of keys, expired ones included.
    #[must_use]
    #[inline]
    pub fn keys(&self) -> u64 {
        self.index.live()
    }

    /// Number of keys with an expiry.
    #[must_use]
    #[inline]
    pub fn expires(&self) -> u64 {
        self.expires
    }

    /// The index's epoch: changes with each change of its tables.
    #[must_use]
    pub fn index_epoch(&self) -> u32 {
        split_state(self.words.load64(header::INDEX_STATE, Relaxed)).0
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store_counters();
    }
}

const _: () = assert!(SLOT_WORD_BYTES == 4 && KEY_BYTES_MAX == u16::MAX as usize);
