//! Some entry of the index, each about as likely as another.
//!
//! 1. Each line of both tables is as likely, and each of its eight entries: a full line is as
//!    likely to be hit as its entries are many.
//! 2. In an index that is nearly empty chance finds nothing: then the first entry from some line on
//!    is taken.
//! 3. No entry is found only if there was none: an index that moved meanwhile is looked at again.
//!
//! Any thread with a pin.

use super::{Table, tables};
use crate::format::layout::{REF_MOVED, entry_reference, header};
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Random lines that are tried before all are looked at, from a random one on.
const TRIES: u32 = 64;

/// The reference of some record; `None` if there is none.
pub(crate) fn pick<W: SharedWords>(
    words: &W,
    slot_shift: u32,
    rng: &mut dyn FnMut() -> u64,
) -> Option<u32> {
    loop {
        // SYNC(index-state)
        let state = words.load64(header::INDEX_STATE, Acquire);
        let (current, old) = tables(words, slot_shift);
        let found = by_chance(words, current, old, rng)
            .or_else(|| first_from(words, rng(), old.into_iter().chain([current])));
        // SYNC(index-publish)
        words.fence(Acquire);
        if found.is_some() || words.load64(header::INDEX_STATE, Relaxed) == state {
            return found;
        }
    }
}

fn by_chance<W: SharedWords>(
    words: &W,
    current: Table,
    old: Option<Table>,
    rng: &mut dyn FnMut() -> u64,
) -> Option<u32> {
    (0..TRIES).find_map(|_| {
        let line = rng() % (current.lines + old.map_or(0, |table| table.lines));
        let at = match (line.checked_sub(current.lines), old) {
            (Some(line), Some(old)) => old.line_offset(line),
            _ => current.line_offset(line),
        };
        let reference = entry_reference(words.line(at)[usize::try_from(rng() % 8).unwrap_or(0)]);
        (reference > REF_MOVED).then_some(reference)
    })
}

/// The first entry from some line on. The old table comes first: what moves meanwhile is then met
/// in the current one.
fn first_from<W: SharedWords>(
    words: &W,
    start: u64,
    tables: impl Iterator<Item = Table>,
) -> Option<u32> {
    for table in tables {
        for i in 0..table.lines {
            let line = start.wrapping_add(i) & (table.lines - 1);
            let entries = words.line(table.line_offset(line));
            let live = entries.into_iter().map(entry_reference).find(|&r| r > REF_MOVED);
            if live.is_some() {
                return live;
            }
        }
        // SYNC(index-moved)
        words.fence(Acquire);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::{REF_DELETED, entry};
    use crate::format::words::HeapWords;
    use crate::index::Index;
    use std::sync::atomic::Ordering::Release;

    const SHIFT: u32 = 17;
    const OLD_LINES: u64 = 8;
    const LINES: u64 = 16;

    /// An index that grows, without an entry.
    fn growing(words: &HeapWords) -> [Table; 2] {
        let (old, current) = (Table::new(1, OLD_LINES, SHIFT), Table::new(2, LINES, SHIFT));
        let mut index = Index::new(old);
        index.install(words);
        index.begin_growth(words, current);
        [old, current]
    }

    fn set(words: &HeapWords, table: Table, line: u64, number: u64, reference: u32) {
        words.store64(table.line_offset(line) + 8 * number, entry(7, reference), Release);
    }

    #[test]
    fn each_entry_of_both_tables_is_picked_by_its_own_numbers() {
        let words = HeapWords::new(3 << SHIFT);
        let [old, current] = growing(&words);
        let places = (0..LINES).map(|line| (current, line));
        let places = places.chain((0..OLD_LINES).map(|line| (old, line)));
        for (line, (table, line_there)) in (0..).zip(places) {
            for number in 0..8 {
                let reference = REF_MOVED + 1 + u32::try_from(8 * line + number).expect("few");
                set(&words, table, line_there, number, reference);
                for round in 0..3 {
                    let mut numbers =
                        [line + (LINES + OLD_LINES) * round, number + 8 * round].into_iter();
                    let mut rng = || numbers.next().expect("two numbers");
                    assert_eq!(pick(&words, SHIFT, &mut rng), Some(reference));
                }
            }
        }
    }

    #[test]
    fn the_first_entry_from_some_line_on_is_picked_if_chance_finds_none() {
        // Chance meets the first entry of the current table, which isn't there or has moved. The
        // last number that it gives is where the search begins.
        let words = HeapWords::new(3 << SHIFT);
        let [old, current] = growing(&words);
        let pick_from = |start: u64| {
            let mut numbers = 0;
            let mut rng = || {
                numbers += 1;
                if numbers <= 2 * TRIES { 0 } else { start }
            };
            (pick(&words, SHIFT, &mut rng), numbers)
        };
        let numbers = 2 * TRIES + 1;
        assert_eq!(pick_from(3), (None, numbers));
        for table in [current, old] {
            // What went, or has moved, is none.
            (0..table.lines).for_each(|line| set(&words, table, line, 1, REF_DELETED));
            (0..table.lines).for_each(|line| set(&words, table, line, 0, REF_MOVED));
            assert_eq!(pick_from(3).0.is_some(), table == old, "those of the table before");
            let (two, five) = (u32::try_from(table.lines).expect("few"), 1000);
            set(&words, table, 2, 7, two);
            set(&words, table, 5, 3, five);
            set(&words, table, 5, 4, 2000);
            for (start, found) in [(0, two), (2, two), (3, five), (5, five), (6, two), (7, two)] {
                assert_eq!(pick_from(start), (Some(found), numbers), "from line {start} on");
                assert_eq!(pick_from(start + LINES).0, Some(found), "lines go round");
            }
        }
    }
}
