//! When the index changes its table: loads in per cent, and the lines that a number of keys wants.
//!
//! Pure functions: any thread.

use crate::format::layout::{LINE_ENTRIES, TABLE_LINES_MIN, TABLE_SHIFT_MAX};
use crate::index::Table;

/// Most keys with one hash that a client may add. They have sixteen lines of eight places, which in
/// each table are the same for all of them: with more, none would be left for others, and growth
/// would never end. By chance even five don't occur; by intent any number does, since keys that
/// collide with every seed are known of this hash.
pub(crate) const ALIKE_MAX: usize = 32;

/// Lines of a new arena's table: 4 KiB, one page.
pub(crate) const FIRST_TABLE_LINES: u64 = 64;
const _: () = assert!(FIRST_TABLE_LINES >= TABLE_LINES_MIN);
/// Load of the current table at which the next one is asked for, per cent of its entries.
pub(crate) const PREPARE_PERCENT: u64 = 65;
/// Load at which the index moves to the next table, per cent. Above it, chains of full lines get
/// long.
pub(crate) const GROW_PERCENT: u64 = 80;
/// Load that a new table has at most when all entries have moved, per cent.
pub(crate) const NEW_PERCENT: u64 = 50;
/// Live entries below which the index moves to half as many lines, per cent: the smaller table is a
/// quarter full then, so that it neither grows nor shrinks soon.
pub(crate) const SHRINK_PERCENT: u64 = 12;

/// The next table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedTable {
    pub(crate) table: Table,
    pub(crate) ready: bool,
    /// It is to be given back when it is there.
    pub(crate) unwanted: bool,
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
#[inline]
pub(crate) fn share(entries: u64, percent: u64) -> u64 {
    entries * percent / 100
}

/// Lines of a table that so many keys fill to half at most.
pub(crate) fn lines_for(keys: u64) -> u64 {
    let entries = keys.saturating_mul(100) / NEW_PERCENT;
    let lines = entries.div_ceil(LINE_ENTRIES).max(FIRST_TABLE_LINES);
    lines.min(1 << TABLE_SHIFT_MAX).next_power_of_two()
}

/// Lines of a table that so many keys fill without making it grow.
pub(crate) fn lines_without_growth(keys: u64) -> u64 {
    let entries = keys.saturating_mul(100) / GROW_PERCENT;
    let lines = (entries / LINE_ENTRIES + 1).max(FIRST_TABLE_LINES);
    lines.min(1 << TABLE_SHIFT_MAX).next_power_of_two()
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
        // The most that 2^20 entries hold before they grow.
        let most = share(1 << 20, GROW_PERCENT);
        assert_eq!(lines_without_growth(most - 1) * LINE_ENTRIES, 1 << 20);
        assert_eq!(lines_without_growth(most + 1) * LINE_ENTRIES, 1 << 21);
        assert_eq!(lines_without_growth(0), FIRST_TABLE_LINES);
        assert_eq!(lines_without_growth(u64::MAX), 1 << TABLE_SHIFT_MAX);
        // What made 2^20 entries grow fills the next table to less than half.
        let trigger = share(1 << 20, GROW_PERCENT);
        assert_eq!(lines_for(trigger) * LINE_ENTRIES, 1 << 21);
    }
}
