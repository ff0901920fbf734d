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
