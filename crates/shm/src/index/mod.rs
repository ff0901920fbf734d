//! The index: from a key's hash to its record, in lines of eight entries.
//!
//! ```text
//! home line = hash & (lines - 1)      | e e e e e e e e |  full: look on, 16 lines at most
//!                                     | e e . e . . . . |  an EMPTY entry: the search ends
//! ```
//!
//! 1. An entry is published by one Release store; readers take whole lines relaxed and fence before
//!    they follow a reference.
//! 2. Past a line that holds an EMPTY entry no key was pushed, so a search ends there.
//! 3. While the epoch is odd, an entry stands in the old table, or in the current one, or for a
//!    moment in both with the same reference. Nothing else changes tables.
//! 4. Each function leaves the shared words valid after each single store.
//!
//! Readers: any thread. [`Index`]: the arena's writer. Both are generic over the shared words, so
//! that models run them.

mod ahead;
mod deleted;
pub(crate) mod growth;
mod lookup;
pub(crate) mod moment;
mod pick;

pub(crate) use ahead::prefetch_records;
pub(crate) use lookup::{Table, bits, find, match_line, split_state, tables};
pub(crate) use pick::pick;

use crate::format::layout::{
    LINE_BYTES, REF_DELETED, REF_MOVED, entry, entry_reference, entry_tag, header, record as r,
};
use crate::format::record;
use crate::format::words::SharedWords;
use lookup::probe;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Lines of an old table whose entries' new places are asked for ahead of their move.
const LINES_AHEAD: u64 = 4;
/// An entry that was deleted.
const DELETED: u64 = entry(0, REF_DELETED);
/// An entry that now stands in the current table.
const MOVED: u64 = entry(0, REF_MOVED);

fn join_state(epoch: u32, current: u32) -> u64 {
    u64::from(current) << 32 | u64::from(epoch)
}

/// Where a key stands, or could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Offset of its entry, and the reference there.
    pub(crate) found: Option<EntryPlace>,
    /// Offset of the first entry with room in the current table, and whether it is EMPTY.
    pub(crate) room: Option<(u64, bool)>,
    /// Other keys with its hash, if it isn't there.
    pub(crate) alike: usize,
}

/// A key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) at: u64,
    pub(crate) reference: u32,
    pub(crate) in_old: bool,
}

/// A table that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Growth {
    old: Table,
    /// Next line to move.
    cursor: u64,
    /// Entries of this round that found no place.
    stuck: u64,
    /// Whether an earlier round left entries behind: then only writes move on, at their own pace.
    again: bool,
}

/// The writer's view of the index.
pub(crate) struct Index {
    current: Table,
    growth: Option<Growth>,
    /// Entries of the current table that are not EMPTY.
    load: u64,
    /// Live entries of both tables.
    live: u64,
}

/// The result of a step of growing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrowthStep {
    pub(crate) lines: u32,
    /// The table that was emptied; it is to be retired.
    pub(crate) emptied: Option<Table>,
}

impl Index {
    /// An index over an empty, zeroed table, not yet stored in the header.
    pub(crate) fn new(current: Table) -> Index {
        Index { current, growth: None, load: 0, live: 0 }
    }

    /// The index as an adopting writer counted it.
    pub(crate) fn adopted(current: Table, old: Option<Table>, load: u64, live: u64) -> Index {
        let growth = old.map(|old| Growth { old, cursor: 0, stuck: 0, again: false });
        Index { current, growth, load, live }
    }

    pub(crate) fn current(&self) -> Table {
        self.current
    }

    pub(crate) fn old(&self) -> Option<Table> {
        self.growth.map(|g| g.old)
    }

    #[inline]
    pub(crate) fn growing(&self) -> bool {
        self.growth.is_some()
    }

    /// Whether growth waits only for places that writes may free.
    pub(crate) fn stuck(&self) -> bool {
        self.growth.is_some_and(|g| g.again)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    pub(crate) fn load(&self) -> u64 {
        self.load
    }

    /// Stores the first table of a new arena in the header.
    pub(crate) fn install<W: SharedWords>(&self, words: &W) {
        // SYNC(index-state)
        words.store64(header::INDEX_STATE, join_state(0, self.current.word()), Release);
    }

    /// Finds a key and, if it isn't there, room for it.
    #[inline]
    pub(crate) fn locate<W: SharedWords>(&self, words: &W, hash: u32, key: &[u8]) -> Located {
        let mut alike = 0;
        if let Some(growth) = &self.growth {
            let is_it = |it| {
                alike += 1;
                record::key_is(words, it, key)
            };
            if let Some((at, reference)) = probe(words, growth.old, hash, is_it) {
                let place = EntryPlace { at, reference, in_old: true };
                return Located { found: Some(place), room: None, alike: 0 };
            }
        }
        let mut room = None;
        for at in self.current.probe(hash) {
            let line = words.line(at);
            let (hits, empty) = match_line(&line, hash);
            for i in bits(hits) {
                #[expect(clippy::cast_possible_truncation, reason = "below 8")]
                let reference = entry_reference(line[i as usize]);
                if reference > REF_MOVED {
                    if record::key_is(words, reference, key) {
                        let place = EntryPlace { at: at + 8 * i, reference, in_old: false };
                        return Located { found: Some(place), room, alike: 0 };
                    }
                    alike += 1;
                }
            }
            room = room.or_else(|| first_room(&line, at));
            if empty {
                break;
            }
        }
        Located { found: None, room, alike }
    }

    /// Finds a record by its number, among those with this hash: it may have lost its key.
    #[cold]
    pub(crate) fn locate_number<W: SharedWords>(
        &self,
        words: &W,
        hash: u32,
        lsn: u64,
    ) -> Option<EntryPlace> {
        let is_it = |it: u32| words.load64(u64::from(it) * r::UNIT + r::LSN, Relaxed) == lsn;
        let old = self.growth.as_ref().map(|growth| (growth.old, true));
        let mut tables = old.into_iter().chain([(self.current, false)]);
        tables.find_map(|(table, in_old)| {
            let (at, reference) = probe(words, table, hash, is_it)?;
            Some(EntryPlace { at, reference, in_old })
        })
    }

    /// Replaces the entry of a key.
    #[inline]
    pub(crate) fn replace<W: SharedWords>(
        &mut self,
        words: &W,
        place: &EntryPlace,
        hash: u32,
        reference: u32,
    ) {
        // SYNC(index-publish): the record's bytes are written before.
        words.store64(place.at, entry(hash, reference), Release);
    }

    /// Inserts an entry where [`Self::locate`] found room.
    #[inline]
    pub(crate) fn insert<W: SharedWords>(
        &mut self,
        words: &W,
        room: (u64, bool),
        hash: u32,
        reference: u32,
    ) {
        // SYNC(index-publish): the record's bytes are written before.
        words.store64(room.0, entry(hash, reference), Release);
        self.load += u64::from(room.1);
        self.live += 1;
    }

    /// Deletes an entry.
    pub(crate) fn remove<W: SharedWords>(&mut self, words: &W, place: &EntryPlace) {
        let line_at = place.at & !(LINE_BYTES - 1);
        let hash = entry_tag(words.load64(place.at, Relaxed));
        let line = words.line(line_at);
        // EMPTY at once only if the line has another (invariant 2): else a search may have to look
        // on behind it.
        let empty = line.contains(&0);
        words.store64(place.at, if empty { 0 } else { DELETED }, Release);
        self.load -= u64::from(empty && !place.in_old);
        self.live -= 1;
        let is_at_home = line_at == self.current.line_offset(self.current.home(hash));
        if !(place.in_old || empty && is_at_home) {
            self.free_deleted(words, hash, line_at);
        }
    }

    /// Starts to empty the current table into a zeroed one.
    pub(crate) fn begin_growth<W: SharedWords>(&mut self, words: &W, new: Table) {
        assert!(self.growth.is_none(), "one growth at a time");
        let state = words.load64(header::INDEX_STATE, Relaxed);
        let (epoch, current) = split_state(state);
        words.store32(header::OLD, current, Release);
        // SYNC(index-state): the new table's zeros and `old` are stored before.
        words.store64(header::INDEX_STATE, join_state(epoch.wrapping_add(1), new.word()), Release);
        self.growth = Some(Growth { old: self.current, cursor: 0, stuck: 0, again: false });
        self.current = new;
        self.load = 0;
    }

    /// Loads the lines that searches for these hashes begin with, all at once: then they are in
    /// the cache. For a replay that takes less time than asking for them (design 18); for a window
    /// of commands more.
    pub(crate) fn load_lines<W: SharedWords>(
        &self,
        words: &W,
        hashes: impl Iterator<Item = u32> + Clone,
    ) {
        let mut all = 0;
        for table in self.old().into_iter().chain([self.current]) {
            for hash in hashes.clone() {
                all ^= words.load64(table.line_offset(table.home(hash)), Relaxed);
            }
        }
        std::hint::black_box(all);
    }

    /// Asks for the record that the line names which a search for a hash begins with.
    #[inline]
    pub(crate) fn prefetch_record<W: SharedWords>(&self, words: &W, hash: u32) {
        for table in self.old().into_iter().chain([self.current]) {
            let line = words.line(table.line_offset(table.home(hash)));
            let (hits, _) = match_line(&line, hash);
            for i in bits(hits).take(1) {
                #[expect(clippy::cast_possible_truncation, reason = "below 8")]
                let reference = entry_reference(line[i as usize]);
                words.prefetch(u64::from(reference) * r::UNIT);
            }
        }
    }

    /// Asks for the lines that the entries of an old table's line will move to.
    fn prefetch_rooms<W: SharedWords>(&self, words: &W, old: Table, line: u64) {
        if line < old.lines {
            for e in words.line(old.line_offset(line)) {
                let current = self.current;
                words.prefetch(current.line_offset(current.home(entry_tag(e))));
            }
        }
    }

    /// Moves the entries of so many lines, and ends the growth with the last.
    pub(crate) fn migrate<W: SharedWords>(&mut self, words: &W, lines: u32) -> GrowthStep {
        let mut step = GrowthStep::default();
        while step.lines < lines
            && let Some(mut growth) = self.growth
        {
            self.prefetch_rooms(words, growth.old, growth.cursor + LINES_AHEAD);
            growth.stuck += self.move_line(words, growth.old.line_offset(growth.cursor));
            growth.cursor += 1;
            step.lines += 1;
            if growth.cursor == growth.old.lines && growth.stuck == 0 {
                step.emptied = Some(self.end_growth(words, growth.old));
                break;
            }
            if growth.cursor == growth.old.lines {
                growth = Growth { cursor: 0, stuck: 0, again: true, ..growth };
            }
            self.growth = Some(growth);
        }
        step
    }

    /// Moves the entries that a new key would meet, so that it takes none of their places.
    #[cold]
    pub(crate) fn migrate_chain<W: SharedWords>(&mut self, words: &W, hash: u32) {
        let Some(growth) = self.growth else { return };
        for at in growth.old.probe(hash) {
            let last = words.line(at).contains(&0);
            self.move_line(words, at);
            if last {
                break;
            }
        }
    }

    /// Moves a line's entries; returns how many found no place.
    fn move_line<W: SharedWords>(&mut self, words: &W, at: u64) -> u64 {
        let mut stuck = 0;
        for (i, e) in (0u64..).zip(words.line(at)) {
            if entry_reference(e) <= REF_MOVED {
                continue;
            }
            let Some((to, empty)) = self.room(words, entry_tag(e)) else {
                stuck += 1;
                continue;
            };
            // SYNC(index-publish): the record was published before; its bytes stay so.
            words.store64(to, e, Release);
            // SYNC(index-moved): a reader that sees MOVED finds the entry in the current table.
            words.store64(at + 8 * i, MOVED, Release);
            self.load += u64::from(empty);
        }
        stuck
    }

    /// The first room for a hash in the current table, and whether it is EMPTY.
    pub(crate) fn room<W: SharedWords>(&self, words: &W, hash: u32) -> Option<(u64, bool)> {
        self.current.probe(hash).find_map(|at| first_room(&words.line(at), at))
    }

    fn end_growth<W: SharedWords>(&mut self, words: &W, old: Table) -> Table {
        let (epoch, current) = split_state(words.load64(header::INDEX_STATE, Relaxed));
        // SYNC(index-state): every entry stands in the current table by now.
        words.store64(header::INDEX_STATE, join_state(epoch.wrapping_add(1), current), Release);
        words.store32(header::OLD, 0, Release);
        self.growth = None;
        old
    }

    /// Makes another index, empty or filled, of which nobody knows yet, the whole index; returns
    /// the tables to retire.
    pub(crate) fn switch<W: SharedWords>(&mut self, words: &W, new: Index) -> [Option<Table>; 2] {
        let (epoch, _) = split_state(words.load64(header::INDEX_STATE, Relaxed));
        let even = epoch.wrapping_add(2 - (epoch & 1));
        // SYNC(index-state): the one store with which everything is gone.
        words.store64(header::INDEX_STATE, join_state(even, new.current.word()), Release);
        words.store32(header::OLD, 0, Release);
        let retired = [Some(self.current), self.growth.map(|g| g.old)];
        *self = new;
        retired
    }

    /// After a crash between an entry's insertion and its MOVED: marks what already stands in the
    /// current table. Returns the references of these entries.
    pub(crate) fn mark_moved_twins<W: SharedWords>(&mut self, words: &W) -> Vec<u32> {
        let mut twins = Vec::new();
        let Some(growth) = self.growth else { return twins };
        each_entry(words, growth.old, &mut |at, e| {
            if self.current.probe(entry_tag(e)).any(|to| words.line(to).contains(&e)) {
                words.store64(at, MOVED, Release);
                twins.push(entry_reference(e));
            }
        });
        self.live -= twins.len() as u64;
        twins
    }

    /// Every live entry, old table first: offset of the entry, and the entry.
    pub(crate) fn each<W: SharedWords>(&self, words: &W, f: &mut dyn FnMut(u64, u64)) {
        for table in self.old().into_iter().chain([self.current]) {
            each_entry(words, table, f);
        }
    }
}

/// Every live entry of a table.
pub(crate) fn each_entry<W: SharedWords>(words: &W, table: Table, f: &mut dyn FnMut(u64, u64)) {
    for line in 0..table.lines {
        let at = table.line_offset(line);
        for (i, e) in (0u64..).zip(words.line(at)) {
            if entry_reference(e) > REF_MOVED {
                f(at + 8 * i, e);
            }
        }
    }
}

/// Whether an entry can be taken.
#[inline]
pub(crate) fn is_room(e: u64) -> bool {
    e == 0 || e == DELETED
}

#[inline]
fn first_room(line: &[u64; 8], at: u64) -> Option<(u64, bool)> {
    let i = (0u64..).zip(line).find(|&(_, &e)| is_room(e));
    i.map(|(i, &e)| (at + 8 * i, e == 0))
}
