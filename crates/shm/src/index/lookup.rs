//! Finding a key's record: the probe of a table, and the search over both tables while one is being
//! emptied.
//!
//! See [`super`] for the order of loads and stores. Any thread with a pin; generic over the shared
//! words, so that models run it.

use crate::format::layout::{
    LINE_BYTES, LINE_ENTRIES, PROBE_LINES, REF_MOVED, entry_reference, entry_tag, header,
};
use crate::format::record;
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Where a table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) slot: u32,
    pub(crate) offset: u64,
    pub(crate) lines: u64,
}

impl Table {
    pub(crate) fn new(slot: u32, lines: u64, slot_shift: u32) -> Table {
        debug_assert!(lines.is_power_of_two());
        Table { slot, offset: u64::from(slot) << slot_shift, lines }
    }

    #[inline]
    pub(crate) fn from_word(word: u32, slot_shift: u32) -> Table {
        let slot = word >> 6;
        Table { slot, offset: u64::from(slot) << slot_shift, lines: 1 << (word & 63) }
    }

    pub(crate) fn word(&self) -> u32 {
        self.slot << 6 | self.lines.trailing_zeros()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lines * LINE_BYTES
    }

    pub(crate) fn entries(&self) -> u64 {
        self.lines * LINE_ENTRIES
    }

    #[inline]
    pub(crate) fn home(&self, hash: u32) -> u64 {
        u64::from(hash) & (self.lines - 1)
    }

    #[inline]
    pub(crate) fn line_offset(&self, line: u64) -> u64 {
        self.offset + line * LINE_BYTES
    }

    /// Offsets of the lines that a probe for this hash visits, in order.
    #[inline]
    pub(crate) fn probe(self, hash: u32) -> impl Iterator<Item = u64> {
        let (home, mask) = (self.home(hash), self.lines - 1);
        (0..PROBE_LINES.min(self.lines)).map(move |i| self.line_offset((home + i) & mask))
    }
}

/// The epoch and the current table, as one loaded word says.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
pub(crate) fn split_state(state: u64) -> (u32, u32) {
    (state as u32, (state >> 32) as u32)
}

/// Which entries of a line have this tag (bits 0 to 7), and whether one is EMPTY.
#[inline]
pub(crate) fn match_line(line: &[u64; 8], hash: u32) -> (u32, bool) {
    let (mut hits, mut empty) = (0, false);
    for (i, &e) in line.iter().enumerate() {
        hits |= u32::from(entry_tag(e) == hash) << i;
        empty |= e == 0;
    }
    (hits, empty)
}

/// Bits that are set, lowest first.
#[inline]
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let i = mask.trailing_zeros();
            mask &= mask - 1;
            u64::from(i)
        })
    })
}

/// Finds the record with this hash that is the right one, in one table: its entry's offset and its
/// reference.
#[inline]
pub(super) fn probe<W: SharedWords>(
    words: &W,
    table: Table,
    hash: u32,
    mut is_it: impl FnMut(u32) -> bool,
) -> Option<(u64, u32)> {
    for at in table.probe(hash) {
        let line = words.line(at);
        let (hits, empty) = match_line(&line, hash);
        for i in bits(hits) {
            #[expect(clippy::cast_possible_truncation, reason = "below 8")]
            let reference = entry_reference(line[i as usize]);
            if reference > REF_MOVED {
                // SYNC(index-publish): the record was written before its entry was stored.
                words.fence(Acquire);
                if is_it(reference) {
                    return Some((at + 8 * i, reference));
                }
            }
        }
        if empty {
            return None;
        }
    }
    None
}

/// Finds the published record of a key. Starts again only if the index changed tables meanwhile.
#[inline]
pub(crate) fn find<W: SharedWords>(
    words: &W,
    slot_shift: u32,
    hash: u32,
    key: &[u8],
) -> Option<u32> {
    loop {
        // SYNC(index-state): the table that it names was prepared, and `old` stored, before.
        let state = words.load64(header::INDEX_STATE, Acquire);
        let (epoch, current) = split_state(state);
        if epoch & 1 == 1
            && let Some(reference) = find_in_old(words, slot_shift, hash, key)
        {
            return Some(reference);
        }
        let table = Table::from_word(current, slot_shift);
        let is_it = |reference| record::key_is(words, reference, key);
        if let Some((_, reference)) = probe(words, table, hash, is_it) {
            return Some(reference);
        }
        // SYNC(index-state): an entry that had moved or vanished with a table was stored after the
        // state.
        words.fence(Acquire);
        if words.load64(header::INDEX_STATE, Relaxed) == state {
            return None;
        }
    }
}

#[cold]
fn find_in_old<W: SharedWords>(words: &W, slot_shift: u32, hash: u32, key: &[u8]) -> Option<u32> {
    // SYNC(index-state): zero when growth ended meanwhile.
    let old = words.load32(header::OLD, Acquire);
    if old == 0 {
        return None;
    }
    let is_it = |reference| record::key_is(words, reference, key);
    let found = probe(words, Table::from_word(old, slot_shift), hash, is_it);
    // SYNC(index-moved): an entry was stored in the current table before the old one said MOVED.
    words.fence(Acquire);
    found.map(|(_, reference)| reference)
}

/// The current table, and the one that is being emptied if the index grows.
pub(crate) fn tables<W: SharedWords>(words: &W, slot_shift: u32) -> (Table, Option<Table>) {
    // SYNC(index-state)
    let (epoch, current) = split_state(words.load64(header::INDEX_STATE, Acquire));
    let old = if epoch & 1 == 1 { words.load32(header::OLD, Acquire) } else { 0 };
    let table = |word| Table::from_word(word, slot_shift);
    (table(current), (old != 0).then(|| table(old)))
}
