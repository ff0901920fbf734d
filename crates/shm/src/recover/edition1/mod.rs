//! Reading an arena of edition 1, which servers wrote before (`docs/formats/arena-1.md`). `nigh
//! convert` copies what is in it into new arenas.
//!
//! ```text
//!            open: all of it is checked        scan: in steps, what counts
//! old table ──┐
//! current ────┼──> entries ──> records, runs ──> key, value, expiry
//! intent ─────┘    (its list last)
//! ```
//!
//! 1. The file is closed: no writer has it, and nothing here changes it. It is read by pieces, as
//!    it may be 64 GiB long and mostly holes.
//! 2. A change that its last writer had begun is taken as done. A commit's list replaces what the
//!    index says of its keys, or all of it if it clears first. An unfinished growth is two tables.
//! 3. An entry counts if a search for its key ends there, as it did in the server that wrote it. So
//!    a key comes once, also if it stands in both tables.
//! 4. The file isn't trusted: each offset and length is compared with its bounds before it is used,
//!    and each search and list is bounded by the file. A contradiction is an error that names it.
//! 5. Nothing of today's layout is used, which changes; this doesn't.
//!
//! Any thread.

mod arena1;
mod claims;
mod file1;
mod layout1;
mod record1;

pub use arena1::Edition1;
pub use file1::{Header1, version_of};

use crate::error::ArenaError;
use arena1::{Commit1, Table1};
use claims::{By1, Claims};
use file1::ArenaFile;
use layout1::{
    COUNT_END, LINE_BYTES, LINE_ENTRIES, REF_MOVED, TABLE_SHIFTS, eight, four, header as h,
    in_memory,
};
use record1::{Whole1, place_fault};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Words of an intent's list that are read at once.
const LIST_WORDS: u32 = 1024;

/// A key with its value and expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry1<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, Unix milliseconds; 0 if never.
    pub expiry_ms: u64,
}

/// Takes a record and its key, and says whether to go on.
type Visit<'a> = &'a mut dyn FnMut(&Whole1, &[u8]) -> Result<ControlFlow<()>, ArenaError>;

/// The tag and the reference of an entry.
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn split(entry: u64) -> (u32, u32) {
    (entry as u32, (entry >> 32) as u32)
}

impl Edition1 {
    /// Opens an arena, and checks all of it.
    ///
    /// # Errors
    /// If the file can't be read, is no arena of edition 1, or is damaged.
    pub fn open(path: &Path) -> Result<Edition1, ArenaError> {
        let file = ArenaFile::open(path)?;
        let page = file.first_page()?;
        let header = file.header(&page)?;
        let g = header.division;
        let end = file.len()?.min(g.address_bytes) & !(g.slot_bytes() - 1);
        let least = g.offset_of(g.first_slot);
        if end < least {
            return Err(file.damaged(0, "length of the file", format!("at least {least}"), end));
        }
        let slots = in_memory(g.slot_of(end));
        let mut arena = Edition1 {
            generations: file.words(h::BYTES as u64, slots)?,
            tails: file.words(g.tails, slots)?,
            file,
            header,
            end,
            tables: Vec::new(),
            commit: Commit1::default(),
            keys: 0,
            live_bytes: 0,
        };
        arena.check(&page)?;
        arena.count()?;
        Ok(arena)
    }

    /// The fields of its header.
    #[must_use]
    pub fn header(&self) -> &Header1 {
        &self.header
    }

    /// Keys, those whose time is over included.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of the keys' records, and of their values if those lie in runs.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Calls `f` for each key in the next `places` places of the index, until it breaks. Start at
    /// 0.
    ///
    /// Returns where to go on: at the key at which `f` broke, or behind the last place; `None` when
    /// all were visited.
    ///
    /// # Errors
    /// If the file can't be read, or has changed since it was checked.
    pub fn scan(
        &self,
        from: u64,
        places: u64,
        f: &mut dyn FnMut(Entry1<'_>) -> ControlFlow<()>,
    ) -> Result<Option<u64>, ArenaError> {
        let mut value = Vec::new();
        self.walk(from, places, &mut |whole, key| {
            value.resize(whole.head.value_len as usize, 0);
            self.file.read(self.value_at(whole), &mut value)?;
            Ok(f(Entry1 { key, value: &value, expiry_ms: whole.head.expiry_ms }))
        })
    }

    /// Visits what counts; see [`Self::scan`].
    fn walk(&self, from: u64, places: u64, f: Visit<'_>) -> Result<Option<u64>, ArenaError> {
        let all = self.places();
        let end = from.saturating_add(places).min(all);
        let (mut line_at, mut line, mut key) = (u64::MAX, [0; LINE_ENTRIES], Vec::new());
        for place in from..end {
            let whole = match self.entry_at(place) {
                Ok(at) => {
                    let of = at & !(LINE_BYTES - 1);
                    if of != line_at {
                        (line_at, line) = (of, self.line(of)?);
                    }
                    self.counting(at, line[in_memory((at - of) / 8)], &mut key)?
                }
                Err(put) => {
                    let reference = self.commit.puts[in_memory(put)];
                    Some(self.listed(h::INTENT as u64, reference, &mut key)?)
                }
            };
            if let Some(whole) = whole
                && f(&whole, &key)?.is_break()
            {
                return Ok(Some(place));
            }
        }
        Ok((end < all).then_some(end))
    }

    /// Places at which a key may stand: the entries of the tables, then the records of a commit.
    fn places(&self) -> u64 {
        self.tables.iter().map(Table1::entries).sum::<u64>() + self.commit.puts.len() as u64
    }

    /// Offset of the entry at a place, or which record of the commit is there.
    fn entry_at(&self, mut place: u64) -> Result<u64, u64> {
        for table in &self.tables {
            if place < table.entries() {
                return Ok(table.offset + place * 8);
            }
            place -= table.entries();
        }
        Err(place)
    }

    fn line(&self, at: u64) -> Result<[u64; LINE_ENTRIES], ArenaError> {
        let mut bytes = [0; LINE_ENTRIES * 8];
        self.file.read(at, &mut bytes)?;
        Ok(std::array::from_fn(|i| eight(&bytes, i * 8)))
    }

    /// The record of an entry, if it counts.
    fn counting(
        &self,
        at: u64,
        entry: u64,
        key: &mut Vec<u8>,
    ) -> Result<Option<Whole1>, ArenaError> {
        let (tag, reference) = split(entry);
        if reference <= REF_MOVED {
            return Ok(None);
        }
        let whole = self.record(at, reference, Some(tag), key)?;
        let counts = !self.is_committed(tag, key)? && self.search(tag, key)? == Some(at);
        Ok(counts.then_some(whole))
    }

    /// Whether the commit says something of a key.
    fn is_committed(&self, hash: u32, key: &[u8]) -> Result<bool, ArenaError> {
        for &reference in self.commit.last.get(&hash).into_iter().flatten() {
            if self.key_is(reference, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where a search for a key ends: the offset of its entry.
    fn search(&self, hash: u32, key: &[u8]) -> Result<Option<u64>, ArenaError> {
        for table in &self.tables {
            for line_at in table.probe(hash) {
                let line = self.line(line_at)?;
                for (at, (tag, reference)) in (line_at..).step_by(8).zip(line.map(split)) {
                    if tag == hash && reference > REF_MOVED && self.key_is(reference, key)? {
                        return Ok(Some(at));
                    }
                }
                if line.contains(&0) {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Checks the index and all that it, or an interrupted commit, names.
    fn check(&mut self, page: &[u8; h::BYTES]) -> Result<(), ArenaError> {
        let mut claims = Claims::new(self.header.division.slots, self.header.division.first_slot);
        let is_growing = four(page, h::EPOCH) % 2 == 1;
        let places = [(h::OLD, By1::OldTable), (h::CURRENT, By1::CurrentTable)];
        let mut named = Vec::new();
        for (at, by) in places.into_iter().skip(usize::from(!is_growing)) {
            let table = self.table(at as u64, four(page, at), &mut claims)?;
            named.push((table, by));
            self.tables.push(table);
        }
        for (at, what) in [
            (h::COMMITTED_LSN, "committed LSN"),
            (h::APPENDED_BYTES, "bytes appended"),
            (h::RELOCATED_BYTES, "bytes moved to clean segments"),
            (h::CLEANED_SEGMENTS, "segments emptied"),
        ] {
            let count = eight(page, at);
            if count >= COUNT_END {
                return Err(self.file.damaged(at as u64, what, "less than 2^62", count));
            }
        }
        for (table, by) in named {
            self.check_entries(table, by, &mut claims)?;
        }
        let intent = four(page, h::INTENT);
        if intent != 0 {
            self.commit = self.read_commit(intent, &mut claims)?;
        }
        if self.commit.clears_first {
            self.tables.clear();
        }
        Ok(())
    }

    /// The table that a word of the header names.
    fn table(&self, at: u64, word: u32, claims: &mut Claims) -> Result<Table1, ArenaError> {
        let (g, slot, shift) = (&self.header.division, u64::from(word >> 6), word & 63);
        if !TABLE_SHIFTS.contains(&shift) {
            return Err(self.file.damaged(at, "log2 of a table's lines", "3 to 26", shift));
        }
        let table = Table1 { offset: g.offset_of(slot), lines: 1 << shift };
        let bytes = table.lines * LINE_BYTES;
        let slots = g.slots_for(bytes);
        if table.offset + bytes > self.end || place_fault(g, slot, slots).is_some() {
            let expected = format!("a run below {}", self.end);
            return Err(self.file.damaged(at, "place of a table", expected, table.offset));
        }
        self.in_use(slot)?;
        let taken = |what| {
            self.file.damaged(table.offset, "slots of a table", "its own", format!("{what:?}"))
        };
        claims.run(slot, slots).map_err(taken)?;
        Ok(table)
    }

    fn check_entries(&self, table: Table1, by: By1, claims: &mut Claims) -> Result<(), ArenaError> {
        let mut key = Vec::new();
        for line_at in (0..table.lines).map(|line| table.offset + line * LINE_BYTES) {
            let line = self.line(line_at)?;
            for (at, (tag, reference)) in (line_at..).step_by(8).zip(line.map(split)) {
                if reference > REF_MOVED {
                    let whole = self.record(at, reference, Some(tag), &mut key)?;
                    claims.record(self, &whole, by)?;
                } else if tag != 0 {
                    let what = "tag of an entry without a record";
                    return Err(self.file.damaged(at, what, 0, tag));
                }
            }
        }
        Ok(())
    }

    /// The commit whose intent record is at a reference.
    fn read_commit(&self, intent: u32, claims: &mut Claims) -> Result<Commit1, ArenaError> {
        let intent = self.intent(intent)?;
        let (at, count) = (self.value_at(&intent), intent.head.value_len / 4);
        let (mut clears_first, mut list, mut key) = (false, Vec::new(), Vec::new());
        for from in (0..count).step_by(LIST_WORDS as usize) {
            let words_at = at + u64::from(from) * 4;
            let words = self.file.words(words_at, LIST_WORDS.min(count - from) as usize)?;
            for (at, reference) in (words_at..).step_by(4).zip(words) {
                if at == self.value_at(&intent) {
                    clears_first = reference == 1;
                    continue;
                }
                let whole = self.listed(at, reference, &mut key)?;
                claims.record(self, &whole, By1::Intent)?;
                list.push((reference, whole.head.hash, whole.head.is_tombstone()));
            }
        }
        claims.record(self, &intent, By1::Intent)?;
        self.last_of_each_key(clears_first, &list)
    }

    /// The result of a list of records and tombstones: the last word on each key counts.
    fn last_of_each_key(
        &self,
        clears_first: bool,
        list: &[(u32, u32, bool)],
    ) -> Result<Commit1, ArenaError> {
        let (mut last, mut puts) = (HashMap::<u32, Vec<u32>>::new(), Vec::new());
        let mut key = Vec::new();
        for &(reference, hash, is_tombstone) in list.iter().rev() {
            let later = last.entry(hash).or_default();
            if !later.is_empty() {
                self.listed(h::INTENT as u64, reference, &mut key)?;
            }
            let mut is_last = true;
            for &known in &*later {
                is_last &= !self.key_is(known, &key)?;
            }
            if is_last {
                later.push(reference);
                puts.extend((!is_tombstone).then_some(reference));
            }
        }
        Ok(Commit1 { clears_first, last, puts })
    }

    /// Counts keys and bytes.
    fn count(&mut self) -> Result<(), ArenaError> {
        let (mut keys, mut live_bytes) = (0, 0);
        self.walk(0, u64::MAX, &mut |whole, _| {
            let in_run = whole.run.map_or(0, |_| u64::from(whole.head.value_len));
            (keys, live_bytes) = (keys + 1, live_bytes + whole.head.bytes() + in_run);
            Ok(ControlFlow::Continue(()))
        })?;
        (self.keys, self.live_bytes) = (keys, live_bytes);
        Ok(())
    }
}
