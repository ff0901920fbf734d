//! How the index changes its table, and where the next table comes from. When it does is
//! `index::growth`.
//!
//! ```text
//! load   0 ......... 65 %: ask for a zeroed table ......... 80 %: use it ......... no place: wait for one
//! live   0 ... 12 %: move to half as many lines .......................................................
//! ```
//!
//! A table that is full of deleted entries is rebuilt at its size, or at half of it.
//!
//! 1. A table is zeroed off the request path; only small ones are taken in front of a request. A
//!    write that finds no place, and needs a large one, is refused ([`WriteError::Busy`]) until the
//!    next table is there, or for good if it can't be had.
//! 2. A table that can't be had is no error as long as the key finds a place in the present one.
//! 3. No step moves more than [`FINISH_LINES`] lines.
//! 4. A table prepared for more keys than there will be is given back: when all is cleared, when
//!    the index is to shrink, and when it moves. One that is still under way can't be called back;
//!    it is given back when it is there.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::format::layout::{
    LINE_BYTES, LINE_ENTRIES, REF_MOVED, TABLE_SHIFT_MAX, entry_reference, entry_tag,
};
use crate::format::words::SharedWords;
use crate::index::Table;
use crate::index::growth::{
    GROW_PERCENT, PREPARE_PERCENT, PreparedTable, SHRINK_PERCENT, lines_for, lines_without_growth,
    share,
};
use crate::write::writer::Writer;

/// Tables up to this many bytes are taken in front of a request: some 50 microseconds.
const SMALL_TABLE_BYTES: u64 = 64 << 10;
/// A prepared table may have so many times the lines that are wanted by then: a few keys went
/// meanwhile.
const MORE_LINES_MAX: u64 = 2;

/// Tables up to this many bytes are taken in front of a request that finds no place without one:
/// some 500 microseconds, as for a slot.
const TABLE_NOW_BYTES: u64 = 1 << 20;
/// Lines that are moved at once for a key that finds no place in the new table: some 500
/// microseconds when memory is cold.
pub(crate) const FINISH_LINES: u32 = 1024;

/// A table for keys that are only guessed takes at most this share of the arena.
pub(crate) const GUESS_SHARE: u64 = 64;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = LINE_BYTES / LINE_ENTRIES;

impl Writer {
    /// Moves lines if the index grows; returns how many.
    #[inline]
    pub(crate) fn advance_growth(&mut self, lines: u32) -> u32 {
        if self.index.growing() { self.migrate(lines) } else { 0 }
    }

    #[cold]
    pub(crate) fn migrate(&mut self, lines: u32) -> u32 {
        let step = self.index.migrate(&self.words, lines);
        if let Some(table) = step.emptied {
            self.space.retire_table(table.slot, table.bytes());
        }
        step.lines
    }

    /// Lines that the next table should have if so many keys come along.
    pub(crate) fn lines_wanted(&self, more: u64) -> u64 {
        let (now, live) = (self.index.current().lines, self.index.live());
        let lines = lines_for(live + more).max(now / 2);
        match self.expected {
            0 => lines,
            expected => {
                let bytes = self.space.geometry().capacity_bytes / GUESS_SHARE;
                let most = share(bytes / ENTRY_BYTES, GROW_PERCENT);
                lines.max(lines_without_growth(live.saturating_add(expected).min(most)))
            }
        }
    }

    /// Refuses a new key beside so many with its hash, unless the arena is being built.
    #[inline]
    pub(crate) fn check_alike(&self, alike: usize) -> Result<(), WriteError> {
        if alike < self.alike_max || self.region.temporary().is_some() {
            return Ok(());
        }
        Err(WriteError::TooManyKeysWithOneHash)
    }

    /// So many keys more than there are will come along, the caller guesses: the index doesn't grow
    /// step by step then, since its next table is for all of them. 0 for no guess. A table that
    /// takes more than a small share of the arena isn't made for a guess.
    pub fn expect_keys(&mut self, more: u64) {
        self.expected = more;
    }

    /// Sees to room for a new key, `has_room` telling whether it has found some. True if that may
    /// have changed meanwhile.
    #[inline]
    pub(crate) fn make_room(&mut self, hash: u32, has_room: bool) -> Result<bool, WriteError> {
        let entries = self.index.current().entries();
        let roomy = self.index.load() < share(entries, PREPARE_PERCENT);
        if has_room && roomy && !self.index.growing() {
            return Ok(false);
        }
        self.make_room_slowly(hash)
    }

    #[cold]
    fn make_room_slowly(&mut self, hash: u32) -> Result<bool, WriteError> {
        self.index.migrate_chain(&self.words, hash);
        let has_room = self.index.room(&self.words, hash).is_some();
        let (entries, load) = (self.index.current().entries(), self.index.load());
        if !has_room && !self.would_part(hash) {
            return self.spread(&[hash]).map(|()| true);
        }
        if self.index.growing() {
            if has_room {
                return Ok(true);
            }
            match self.finish_growth() {
                Err(WriteError::TooManyKeysWithOneHash) => {
                    return self.spread(&[hash]).map(|()| true);
                }
                done => done?,
            }
        }
        self.prepare_table();
        if has_room && load < share(entries, GROW_PERCENT) {
            return Ok(false);
        }
        match self.begin_growth(0, !has_room) {
            Ok(()) => Ok(true),
            Err(_) if has_room => Ok(false),
            Err(error) => {
                self.crowded = Some(hash);
                Err(error)
            }
        }
    }

    /// Whether a key that finds no room would find some in a table twice as large: a quarter of the
    /// entries of its lines would stand elsewhere there. By chance it is half of them, also where
    /// lines are full in a table that is half empty, since a sweep over it deletes while others
    /// come. Of keys with one hash it is none, and they would never all move. A table with so few
    /// keys that the larger one would shrink again doesn't grow for it.
    pub(crate) fn would_part(&self, hash: u32) -> bool {
        let table = self.index.current();
        if self.index.live() <= share(table.entries(), 2 * SHRINK_PERCENT) {
            return false;
        }
        let parts = |e: u64| u64::from(entry_tag(e) ^ hash) & table.lines != 0;
        let lines = || table.probe(hash).map(|at| self.words.line(at));
        let apart = lines().flatten().filter(|&e| entry_reference(e) > REF_MOVED && parts(e));
        apart.count() * 4 >= lines().flatten().count()
    }

    /// The hash of a key that was refused since the last call because its lines of the index are
    /// full of live keys, and no larger table could be had: one of them has to go.
    #[inline]
    pub fn take_crowded(&mut self) -> Option<u32> {
        let crowded = self.crowded.take();
        if crowded.is_some() {
            // The caller makes a place; memory for a table isn't wanted then.
            self.space.sate();
        }
        crowded
    }

    /// Forgets a key that was refused: the next writer asks for its own key only.
    #[inline]
    pub fn forget_crowded(&mut self) {
        self.crowded = None;
    }

    /// Moves much of what is left. Refuses if that wasn't all: the upkeep goes on with it, unless
    /// entries are stuck.
    pub(crate) fn finish_growth(&mut self) -> Result<(), WriteError> {
        self.migrate(FINISH_LINES);
        match (self.index.growing(), self.index.stuck()) {
            (false, _) => Ok(()),
            (true, true) => Err(WriteError::TooManyKeysWithOneHash),
            (true, false) => Err(self.space.lacks_place()),
        }
    }

    /// Once per turn: asks for the next table, and sees to memory for one that is late.
    pub(crate) fn prepare_table_in_turn(&mut self) {
        if self.prepared.is_some_and(|prepared| prepared.unwanted) {
            self.is_prepared();
        }
        self.prepare_table();
        let fills = self.index.load() >= share(self.index.current().entries(), PREPARE_PERCENT);
        if fills && !self.is_about_to_grow() {
            self.space.clean_for_table(self.lines_wanted(0) * LINE_BYTES);
        }
    }

    /// Asks for the next table if the present one fills up.
    pub(crate) fn prepare_table(&mut self) {
        let table = self.index.current();
        if self.index.growing() || self.index.load() < share(table.entries(), PREPARE_PERCENT) {
            return;
        }
        // The live entries will have grown as much as the load until the table is needed; unless it
        // is to shrink before.
        let more = match self.is_sparse() {
            true => 0,
            false => share(table.entries(), GROW_PERCENT).saturating_sub(self.index.load()),
        };
        let lines = self.lines_wanted(more);
        // A larger one may be what a commit waits for.
        let is_there =
            |prepared: PreparedTable| prepared.table.lines >= lines && !prepared.unwanted;
        let is_there = self.prepared.is_some_and(is_there);
        if lines * LINE_BYTES > SMALL_TABLE_BYTES && !is_there {
            self.ask_for_lines(lines);
        }
    }

    /// Asks for a table of so many lines, unless it is under way.
    fn ask_for_lines(&mut self, lines: u64) {
        if let Some(prepared) = &mut self.prepared {
            if prepared.table.lines == lines {
                prepared.unwanted = false;
                return;
            }
            if !self.is_prepared() && self.prepared.is_some() {
                return;
            }
            self.drop_prepared();
        }
        let shift = self.space.geometry().slot_shift;
        self.prepared = self.space.ask_for_table(lines * LINE_BYTES).map(|slot| {
            let table = Table::new(slot, lines, shift);
            PreparedTable { table, ready: false, unwanted: false }
        });
        self.lacks_table = self.prepared.is_none();
    }

    /// Whether the next table is there. Forgets one that can't be had, and gives back one that
    /// nobody wants.
    fn is_prepared(&mut self) -> bool {
        let Some(prepared) = &mut self.prepared else { return false };
        if !prepared.ready {
            match self.space.table_done(prepared.table.slot) {
                Some(true) => prepared.ready = true,
                Some(false) => (self.prepared, self.table_denied) = (None, true),
                None => {}
            }
        }
        if self.prepared.is_some_and(|prepared| prepared.ready && prepared.unwanted) {
            self.drop_prepared();
        }
        self.prepared.is_some_and(|prepared| prepared.ready)
    }

    fn drop_prepared(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.space.retire_table(prepared.table.slot, prepared.table.bytes());
        }
    }

    /// Gives the next table back, if there is one: now, or when it is there (invariant 4).
    pub(crate) fn forget_prepared(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.unwanted = true;
            self.is_prepared();
        }
    }

    /// Whether the next table is under way or there, or the index is moving to one.
    fn is_about_to_grow(&self) -> bool {
        self.index.growing() || self.prepared.is_some()
    }

    /// Whether the index would move to another table, but there is no memory for one.
    #[inline]
    pub(crate) fn cannot_grow(&self) -> bool {
        self.lacks_table && !self.is_about_to_grow()
    }

    /// Starts to grow into a table with room for so many keys more. Takes memory here and now only
    /// if the table is small; if it `must`, as a key finds no place, it gets larger, and what is
    /// lacking is noted.
    pub(crate) fn begin_growth(&mut self, more: u64, must: bool) -> Result<(), WriteError> {
        let least = if must { 2 * self.index.current().lines } else { 0 };
        let lines = self.lines_wanted(more).max(least);
        if lines > 1 << TABLE_SHIFT_MAX {
            return Err(WriteError::TooManyKeysWithOneHash);
        }
        let table = match self.take_prepared(lines) {
            Some(table) => table,
            None if must => self.table_now(lines)?,
            None => self.small_table_now(lines)?,
        };
        if self.prepared.is_some_and(|prepared| prepared.table.lines <= table.lines) {
            self.forget_prepared();
        }
        self.lacks_table = false;
        let count = match table.lines.cmp(&self.index.current().lines) {
            std::cmp::Ordering::Greater => &mut self.rebuilds.larger,
            std::cmp::Ordering::Equal => &mut self.rebuilds.same,
            std::cmp::Ordering::Less => &mut self.rebuilds.smaller,
        };
        *count += 1;
        self.index.begin_growth(&self.words, table);
        Ok(())
    }

    /// The next table, if it is there and has so many lines. One with more than twice as many is
    /// given back.
    fn take_prepared(&mut self, lines: u64) -> Option<Table> {
        let table = self.is_prepared().then_some(self.prepared).flatten()?.table;
        if table.lines < lines {
            return None;
        }
        if table.lines > MORE_LINES_MAX * lines {
            self.drop_prepared();
            return None;
        }
        self.prepared = None;
        Some(table)
    }

    /// A table that is taken here and now, if it is small and memory is there.
    fn small_table_now(&mut self, lines: u64) -> Result<Table, WriteError> {
        if lines * LINE_BYTES > SMALL_TABLE_BYTES {
            return Err(WriteError::Oom);
        }
        let slot = self.space.take_run_now(lines * LINE_BYTES);
        self.lacks_table = slot.is_none();
        let shift = self.space.geometry().slot_shift;
        slot.map(|slot| Table::new(slot, lines, shift)).ok_or(WriteError::Oom)
    }

    /// A table that a write must have: at once if that is quick, else it is asked for. The refusal
    /// is for good only if none can come.
    #[cold]
    fn table_now(&mut self, lines: u64) -> Result<Table, WriteError> {
        let bytes = lines * LINE_BYTES;
        if bytes <= TABLE_NOW_BYTES
            && let Some(slot) = self.space.take_run_now(bytes)
        {
            return Ok(Table::new(slot, lines, self.space.geometry().slot_shift));
        }
        // Each attempt asks once: the next one asks again.
        if std::mem::take(&mut self.table_denied) {
            return Err(self.space.lacks_table(bytes));
        }
        self.ask_for_lines(lines);
        self.awaits_table = true;
        Err(match self.prepared {
            Some(_) => self.space.lacks_place(),
            None => self.space.lacks_table(bytes),
        })
    }

    /// Moves to half as many lines if nearly all entries are gone: in upkeep, never in front of a
    /// write.
    pub(crate) fn shrink_table(&mut self) {
        // A write that is refused for lack of a larger table is repeated in the next turn, and must
        // find it then.
        let is_awaited = std::mem::take(&mut self.awaits_table);
        if self.index.growing() || !self.is_sparse() || is_awaited {
            return;
        }
        let lines = self.lines_wanted(0);
        if self.prepared.is_some_and(|prepared| prepared.table.lines != lines) {
            self.forget_prepared();
        }
        if lines * LINE_BYTES > SMALL_TABLE_BYTES && !self.is_prepared() {
            return self.ask_for_lines(lines);
        }
        // If it can't be had now, the next upkeep tries again.
        let _ = self.begin_growth(0, false);
    }

    /// Whether nearly all entries are gone and a smaller table would do.
    fn is_sparse(&self) -> bool {
        let table = self.index.current();
        let few = self.index.live() < share(table.entries(), SHRINK_PERCENT);
        few && self.lines_wanted(0) < table.lines
    }

    /// A zeroed table, here and now.
    pub(crate) fn take_table(&mut self, lines: u64, urgent: bool) -> Result<Table, WriteError> {
        let slot = self.space.take_run(lines * LINE_BYTES, urgent)?;
        Ok(Table::new(slot, lines, self.space.geometry().slot_shift))
    }
}
