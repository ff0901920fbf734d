//! When the index changes its table, and where the next table comes from.
//!
//! ```text
//! load   0 ......... 65 %: ask for a zeroed table ......... 80 %: use it ......... no place: must have one
//! live   0 ... 12 %: move to half as many lines .......................................................
//! ```
//!
//! A table that is full of deleted entries is rebuilt at its size, or at half of it.
//!
//! 1. A table is zeroed off the request path; only small ones, or a writer that outruns the
//!    provisioner, take memory in front of a request.
//! 2. A table that can't be had is no error as long as the key finds a place in the present one.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::index::Table;
use crate::layout::{LINE_BYTES, LINE_ENTRIES, TABLE_SHIFT_MAX};
use crate::writer::{FIRST_TABLE_LINES, Writer};

/// Load of the current table at which the next one is asked for, per cent of its entries.
const PREPARE_PERCENT: u64 = 65;
/// Load at which the index moves to the next table, per cent. Above it, chains of full lines get long.
pub(crate) const GROW_PERCENT: u64 = 80;
/// Load at which a writer that still has no next table takes it itself, per cent.
const LATE_PERCENT: u64 = 90;
/// Load that a new table has at most when all entries have moved, per cent.
const NEW_PERCENT: u64 = 50;
/// Live entries below which the index moves to half as many lines, per cent: the smaller table is a
/// quarter full then, so that it neither grows nor shrinks soon.
const SHRINK_PERCENT: u64 = 12;
/// Tables up to this many bytes are taken in front of a request: some 50 microseconds.
const SMALL_TABLE_BYTES: u64 = 64 << 10;

/// The next table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    table: Table,
    ready: bool,
}

/// How often the index moved to another table, by the size of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Rebuilds {
    /// To more lines.
    pub larger: u64,
    /// To as many: to be rid of deleted entries.
    pub same: u64,
    /// To fewer.
    pub smaller: u64,
}

/// Per cent of entries as a number of entries.
fn share(entries: u64, percent: u64) -> u64 {
    entries / 100 * percent + entries % 100 * percent / 100
}

/// Lines of a table that so many keys fill to half at most.
pub(crate) fn lines_for(keys: u64) -> u64 {
    let entries = keys.saturating_mul(100) / NEW_PERCENT;
    let lines = entries.div_ceil(LINE_ENTRIES).max(FIRST_TABLE_LINES);
    lines.min(1 << TABLE_SHIFT_MAX).next_power_of_two()
}

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
        let now = self.index.current().lines;
        lines_for(self.index.live() + more).max(now / 2)
    }

    /// Sees to room for a new key, `has_room` telling whether it has found some. True if that may have
    /// changed meanwhile.
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
        if self.index.growing() {
            if has_room {
                return Ok(true);
            }
            if load <= entries / 2 {
                return Err(WriteError::TooManyKeysWithOneHash);
            }
            self.finish_growth();
            if self.index.growing() {
                return Err(WriteError::TooManyKeysWithOneHash);
            }
            return self.begin_growth(0, true).map(|()| true);
        }
        if !has_room && load <= entries / 2 {
            return Err(WriteError::TooManyKeysWithOneHash);
        }
        self.prepare_table();
        if has_room && load < share(entries, GROW_PERCENT) {
            return Ok(false);
        }
        let must = !has_room || load >= share(entries, LATE_PERCENT);
        match self.begin_growth(0, must) {
            Ok(()) => Ok(true),
            Err(_) if has_room => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves all that is left, in one go, or once around if some entries are stuck.
    pub(crate) fn finish_growth(&mut self) {
        let lines = self.index.old().map_or(0, |old| old.lines);
        let lines = u32::try_from(lines).unwrap_or(u32::MAX).saturating_mul(2);
        self.migrate(lines);
    }

    /// Asks for the next table if the present one fills up.
    pub(crate) fn prepare_table(&mut self) {
        let table = self.index.current();
        if self.index.growing() || self.index.load() < share(table.entries(), PREPARE_PERCENT) {
            return;
        }
        // What is live will have grown as much as the load until the table is needed.
        let more = share(table.entries(), GROW_PERCENT).saturating_sub(self.index.load());
        let lines = self.lines_wanted(more);
        if lines * LINE_BYTES > SMALL_TABLE_BYTES {
            self.ask_for_lines(lines);
        }
    }

    /// Asks for a table of so many lines, unless it is under way.
    fn ask_for_lines(&mut self, lines: u64) {
        if let Some(prepared) = self.prepared {
            if prepared.table.lines == lines || !self.is_prepared(false) {
                return;
            }
            self.drop_prepared();
        }
        let shift = self.space.geometry().slot_shift;
        self.prepared = self.space.ask_for_table(lines * LINE_BYTES).map(|slot| {
            let table = Table::new(slot, lines, shift);
            Prepared { table, ready: false }
        });
    }

    /// Whether the next table is there. Forgets one that can't be had.
    fn is_prepared(&mut self, wait: bool) -> bool {
        let Some(prepared) = &mut self.prepared else { return false };
        if prepared.ready {
            return true;
        }
        match self.space.table_done(prepared.table.slot, wait) {
            Some(true) => prepared.ready = true,
            Some(false) => {
                self.prepared = None;
                return false;
            }
            None => return false,
        }
        true
    }

    pub(crate) fn drop_prepared(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.space.retire_table(prepared.table.slot, prepared.table.bytes());
        }
    }

    /// Starts to grow into a table with room for so many keys more. Takes memory here and now only if it
    /// must or the table is small.
    pub(crate) fn begin_growth(&mut self, more: u64, must: bool) -> Result<(), WriteError> {
        let lines = self.lines_wanted(more);
        let table =
            if self.is_prepared(must) && self.prepared.is_some_and(|p| p.table.lines >= lines) {
                self.prepared.take().map(|p| p.table).ok_or(WriteError::Oom)?
            } else {
                if !must && lines * LINE_BYTES > SMALL_TABLE_BYTES {
                    return Err(WriteError::Oom);
                }
                self.take_table(lines, false)?
            };
        let count = match table.lines.cmp(&self.index.current().lines) {
            std::cmp::Ordering::Greater => &mut self.rebuilds.larger,
            std::cmp::Ordering::Equal => &mut self.rebuilds.same,
            std::cmp::Ordering::Less => &mut self.rebuilds.smaller,
        };
        *count += 1;
        self.index.begin_growth(&self.words, table);
        Ok(())
    }

    /// Moves to half as many lines if nearly all entries are gone: in upkeep, never in front of a write.
    pub(crate) fn shrink_table(&mut self) {
        let table = self.index.current();
        let sparse = self.index.live() < share(table.entries(), SHRINK_PERCENT);
        if self.index.growing() || !sparse || self.lines_wanted(0) >= table.lines {
            return;
        }
        if self.lines_wanted(0) * LINE_BYTES > SMALL_TABLE_BYTES && !self.is_prepared(false) {
            return self.ask_for_lines(self.lines_wanted(0));
        }
        // If it can't be had now, the next upkeep tries again.
        let _ = self.begin_growth(0, false);
    }

    /// A zeroed table, here and now.
    pub(crate) fn take_table(&mut self, lines: u64, urgent: bool) -> Result<Table, WriteError> {
        let slot = self.space.take_run(lines * LINE_BYTES, urgent)?;
        Ok(Table::new(slot, lines, self.space.geometry().slot_shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_keys_fit_two_to_the_21_entries() {
        // Memory per key is promised: a table is not larger than needed.
        assert_eq!(lines_for(1_000_000) * LINE_ENTRIES, 1 << 21);
        assert_eq!(lines_for(0), FIRST_TABLE_LINES);
        assert_eq!(lines_for(u64::MAX), 1 << TABLE_SHIFT_MAX);
        // What made 2^20 entries grow fills the next table to less than half.
        let trigger = share(1 << 20, GROW_PERCENT);
        assert_eq!(lines_for(trigger) * LINE_ENTRIES, 1 << 21);
    }
}
