//! Walking all keys in steps, with Redis's guarantee: a key that is there all the time is seen.
//!
//! The cursor counts home lines in reverse-binary order: from the highest bit of the mask down, so
//! that a table twice as large continues where its half-size predecessor stopped (Pieter Noordhuis'
//! algorithm, described in Redis's `dict.c`). While the index grows, a line of the smaller table
//! and all lines of the larger one that share its bits are visited together.
//!
//! 1. A key belongs to its home line, wherever in the probe sequence its entry stands.
//! 2. A key that changes meanwhile is seen or not; one that moves between the tables, once or
//!    twice.
//!
//! A [`LineWalk`] visits the lines in their order instead. So what it meets spreads evenly over a
//! smaller table into which it is put; in reverse-binary order, keys that come one after the other
//! would stand at the same lines there, and find no room.
//!
//! Any thread with a pin. The steps are generic over the shared words, so that tests stop them at
//! any load.

use crate::format::layout::{REF_MOVED, entry_reference, entry_tag, header};
use crate::format::record::Record;
use crate::format::words::SharedWords;
use crate::index::{Table, match_line, tables};
use crate::qsbr::Pin;
use crate::read::reader::Reader;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The next cursor under a mask.
fn next(cursor: u64, mask: u64) -> u64 {
    ((cursor | !mask).reverse_bits().wrapping_add(1)).reverse_bits()
}

/// The cursor behind all lines of the larger table that share a line of the smaller.
pub(super) fn last_of_group(cursor: u64, small: u64, large: u64) -> u64 {
    let mut at = next(cursor, large);
    while at & (small ^ large) != 0 {
        at = next(at, large);
    }
    at
}

/// Where a walk in the order of the lines is.
#[derive(Debug, Default)]
pub struct LineWalk {
    /// The next home line of the smaller table.
    line: u64,
    /// The lines of that table at the last step.
    of: u64,
}

impl LineWalk {
    /// The next line of a table with so many, if any is left. If it is larger now, what was visited
    /// stands at lines that were visited, or behind them. If it is smaller, what is left stands at
    /// its last lines.
    fn next(&mut self, lines: u64) -> Option<u64> {
        if lines < self.of {
            self.line = lines.saturating_sub(self.of - self.line);
        }
        self.of = lines;
        (self.line < lines).then(|| {
            self.line += 1;
            self.line - 1
        })
    }
}

impl Reader {
    /// Calls `f` for the records of the next `lines` home lines of a walk, each with the hash that
    /// its entry has. True if that was the end. While it lasts, nobody else changes the index.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn walk<'p>(
        &self,
        pin: &'p Pin<'_>,
        place: &mut LineWalk,
        lines: u32,
        f: &mut dyn FnMut(u32, Record<'p>),
    ) -> bool {
        self.check_pin(pin);
        let (current, old) = tables(&self.words, self.slot_shift);
        let small = old.map_or(current.lines, |old| old.lines.min(current.lines));
        for _ in 0..lines.max(1) {
            let Some(line) = place.next(small) else { return true };
            for table in old.into_iter().chain([current]) {
                let lent = &mut |_, e| f(entry_tag(e), self.lend(pin, entry_reference(e)));
                visit(&self.words, table, line, small - 1, lent);
            }
        }
        false
    }

    /// Calls `f` for the records of the next `lines` home lines; returns the next cursor, 0 when
    /// all were visited. Start with 0.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn scan<'p>(
        &self,
        pin: &'p Pin<'_>,
        cursor: u64,
        lines: u32,
        f: &mut dyn FnMut(Record<'p>),
    ) -> u64 {
        self.check_pin(pin);
        let mut cursor = cursor;
        for _ in 0..lines.max(1) {
            let lent = &mut |reference| f(self.lend(pin, reference));
            cursor = step(&self.words, self.slot_shift, cursor, lent);
            if cursor == 0 {
                break;
            }
        }
        cursor
    }
}

/// Visits one home line of the smaller table and all lines of the larger that share its bits; again
/// if the index changed tables meanwhile, since what moved would be missed.
pub(crate) fn step<W: SharedWords>(
    words: &W,
    slot_shift: u32,
    cursor: u64,
    f: &mut impl FnMut(u32),
) -> u64 {
    loop {
        // SYNC(index-state)
        let state = words.load64(header::INDEX_STATE, Acquire);
        let (current, old) = tables(words, slot_shift);
        let old_mask = old.map_or(current.lines, |old| old.lines) - 1;
        let (small, large) = (old_mask.min(current.lines - 1), old_mask.max(current.lines - 1));
        // The old table first: what moves meanwhile is then met in the current one.
        for table in old.into_iter().chain([current]) {
            visit(words, table, cursor, small, &mut |_, e| f(entry_reference(e)));
        }
        words.fence(Acquire);
        if words.load64(header::INDEX_STATE, Relaxed) == state {
            return last_of_group(cursor, small, large);
        }
    }
}

/// The entries whose home is a line of the table that shares the cursor's bits under the smaller
/// mask: where each stands, and what it was.
pub(super) fn visit<W: SharedWords>(
    words: &W,
    table: Table,
    cursor: u64,
    small: u64,
    f: &mut impl FnMut(u64, u64),
) {
    let mask = table.lines - 1;
    let mut at = cursor;
    loop {
        home_line(words, table, at, f);
        at = next(at, mask);
        if at & (small ^ mask) == 0 {
            return;
        }
    }
}

/// The entries of records whose home is this line.
fn home_line<W: SharedWords>(words: &W, table: Table, line: u64, f: &mut impl FnMut(u64, u64)) {
    let home = line & (table.lines - 1);
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 lines")]
    for at in table.probe(home as u32) {
        let entries = words.line(at);
        // SYNC(index-publish)
        words.fence(Acquire);
        for (entry_at, e) in (at..).step_by(8).zip(entries) {
            if entry_reference(e) > REF_MOVED && table.home(entry_tag(e)) == home {
                f(entry_at, e);
            }
        }
        if match_line(&entries, 0).1 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index shrank behind a walk's step. What is left stands at the last lines of the smaller
    /// table: the walk goes on there, and not from the beginning.
    #[test]
    fn a_walk_goes_on_at_the_last_lines_of_a_table_that_shrank() {
        let mut place = LineWalk::default();
        assert!((0..6).all(|line| place.next(8) == Some(line)));
        assert_eq!([place.next(4), place.next(4), place.next(4)], [Some(2), Some(3), None]);
    }

    /// Lines of a table by their numbers in the largest one: a key of that home is met in all.
    #[test]
    fn a_walk_misses_nothing_of_tables_that_grow_and_shrink() {
        const MOST: u64 = 64;
        for seed in 0..2_000_u64 {
            let mut chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut draw = |end: u64| {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                chance % end
            };
            let (mut place, mut lines) = (LineWalk::default(), 1 << draw(7));
            let mut met = std::collections::BTreeSet::new();
            let mut steps = 0;
            while let Some(line) = place.next(lines) {
                met.extend((0..MOST).filter(|key| key % lines == line));
                if draw(5) == 0 {
                    lines = if draw(2) == 0 { (lines * 2).min(MOST) } else { (lines / 2).max(1) };
                }
                steps += 1;
                assert!(steps < 10_000, "seed {seed} never ends");
            }
            assert_eq!(met.len() as u64, MOST, "seed {seed}: {met:?}");
        }
    }
}
