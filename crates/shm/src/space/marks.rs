//! A mark where each live record of a segment begins, so that the cleaner goes from one to the next
//! and never looks at a dead one.
//!
//! ```text
//! segment  | dead | LIVE | dead | dead | LIVE | dead |
//! marks      0 0    1 0    0 0    0 0    1 0    0 0        a bit per unit of 16 bytes
//! ```
//!
//! 1. A record has a mark exactly while it is counted in as published.
//! 2. A mark is taken away some deaths later, and before marks are read: its cache line, somewhere
//!    among all, is asked for at once and waited for by nobody.
//! 3. The marks of a segment come with it and go when it is retired: 1/128 of its bytes, in this
//!    process's memory. An adopting writer makes them from the index.
//!
//! The arena's writer only.

use crate::format::layout::{Geometry, record as r};
use crate::format::words::prefetch;

/// Units of a word of marks.
const WORD_UNITS: u64 = 64;

/// Deaths that wait: while so many writes go on, memory answers.
const WAITING: usize = 16;

/// The marks of all segments.
pub(super) struct Marks {
    slot_shift: u32,
    /// By slot; nothing for one that is no segment.
    slots: Vec<Box<[u64]>>,
    /// Where records died whose marks are still there; 0: none. The one at `oldest` is the next.
    dead: [u64; WAITING],
    oldest: usize,
}

impl Marks {
    pub(super) fn new(g: &Geometry) -> Marks {
        let slots = std::iter::repeat_with(Box::default).take(g.slots as usize).collect();
        Marks { slot_shift: g.slot_shift, slots, dead: [0; WAITING], oldest: 0 }
    }

    /// A slot is a segment now, without a live record.
    pub(super) fn begin(&mut self, slot: u32) {
        let words = (1u64 << self.slot_shift) / (r::UNIT * WORD_UNITS);
        let words = usize::try_from(words).expect("words of a slot");
        self.slots[slot as usize] = vec![0; words].into_boxed_slice();
    }

    /// A slot is no segment any more.
    pub(super) fn end(&mut self, slot: u32) {
        self.take_dead();
        self.slots[slot as usize] = Box::default();
    }

    /// No record of a segment is live any more.
    pub(super) fn wipe(&mut self, slot: u32) {
        self.take_dead();
        self.slots[slot as usize].fill(0);
    }

    /// The record at an offset is live.
    #[inline]
    pub(super) fn set(&mut self, offset: u64) {
        let (word, bit) = self.word(offset);
        *word |= bit;
    }

    /// The record at an offset is live no longer.
    #[inline]
    pub(super) fn unset(&mut self, offset: u64) {
        prefetch(self.word(offset).0);
        let before = std::mem::replace(&mut self.dead[self.oldest], offset);
        self.oldest = (self.oldest + 1) % WAITING;
        self.take(before);
    }

    /// Takes away the marks of all that died: before marks are read.
    pub(super) fn take_dead(&mut self) {
        for offset in std::mem::take(&mut self.dead) {
            self.take(offset);
        }
    }

    #[inline]
    fn take(&mut self, offset: u64) {
        if offset != 0 {
            let (word, bit) = self.word(offset);
            *word &= !bit;
        }
    }

    /// Where the first live record begins in `from..end`, which lies in one segment; after
    /// [`Self::take_dead`].
    #[inline]
    pub(super) fn next(&self, from: u64, end: u64) -> Option<u64> {
        let (slot, first) = self.place(from);
        let (words, start) = (&self.slots[slot], from - from % (r::UNIT * WORD_UNITS));
        let mut word = words.get(first)? & u64::MAX << (from / r::UNIT % WORD_UNITS);
        let mut at = start;
        for next in words[first + 1..].iter().chain([&0]) {
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros()) * r::UNIT;
                return (found < end).then_some(found);
            }
            at += r::UNIT * WORD_UNITS;
            if at >= end {
                return None;
            }
            word = *next;
        }
        None
    }

    /// How many records of a segment have one.
    pub(super) fn count(&mut self, slot: u32) -> u32 {
        self.take_dead();
        self.slots[slot as usize].iter().map(|word| word.count_ones()).sum()
    }

    #[inline]
    fn word(&mut self, offset: u64) -> (&mut u64, u64) {
        let (slot, word) = self.place(offset);
        (&mut self.slots[slot][word], 1 << (offset / r::UNIT % WORD_UNITS))
    }

    /// Slot, and word within it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset's slot has 32 bits at most")]
    fn place(&self, offset: u64) -> (usize, usize) {
        let within = offset & ((1 << self.slot_shift) - 1);
        ((offset >> self.slot_shift) as usize, (within / (r::UNIT * WORD_UNITS)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::CAPACITY_MIN;
    use std::collections::BTreeSet;

    #[test]
    fn marks_are_found_in_order_like_in_a_set() {
        let g = Geometry::new(CAPACITY_MIN).unwrap();
        let (mut marks, slot) = (Marks::new(&g), g.first_slot);
        let (start, end) = (g.slot_offset(slot), g.slot_offset(slot + 1));
        marks.begin(slot);
        let (mut set, mut state) = (BTreeSet::new(), 1u64);
        let units = (end - start) / r::UNIT;
        for _ in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = start + (state >> 33) % units * r::UNIT;
            if state >> 62 == 0 {
                marks.set(at);
                set.insert(at);
            } else {
                marks.unset(at);
                set.remove(&at);
            }
            marks.take_dead();
            let till = at + (state >> 40) % (end - at + 1);
            assert_eq!(marks.next(at, till), set.range(at..till.max(at)).next().copied());
        }
        assert_eq!(marks.count(slot) as usize, set.len());
        let mut found = Vec::new();
        while let Some(at) = marks.next(found.last().map_or(start, |at| at + r::UNIT), end) {
            found.push(at);
        }
        assert!(!found.is_empty() && found.iter().eq(&set), "{} {}", found.len(), set.len());
        let last = found[found.len() - 1];
        assert_eq!((marks.next(last, last), marks.next(last, last + 1)), (None, Some(last)));
        marks.wipe(slot);
        assert_eq!((marks.count(slot), marks.next(start, end)), (0, None));
    }

    #[test]
    fn a_segments_marks_take_a_128th_of_it_as_long_as_it_is_one() {
        let g = Geometry::new(CAPACITY_MIN).unwrap();
        let (mut marks, slot) = (Marks::new(&g), g.first_slot);
        let bytes = |marks: &Marks| 8 * marks.slots[slot as usize].len() as u64;
        marks.begin(slot);
        assert_eq!(bytes(&marks), g.slot_bytes() / 128);
        marks.end(slot);
        assert_eq!(bytes(&marks), 0);
    }

    #[test]
    fn a_mark_is_taken_away_sixteen_deaths_later() {
        let g = Geometry::new(CAPACITY_MIN).unwrap();
        let (mut marks, slot) = (Marks::new(&g), g.first_slot);
        let records = (g.slot_offset(slot)..).step_by(16).take(2 * WAITING);
        marks.begin(slot);
        records.clone().for_each(|at| marks.set(at));
        for (deaths, at) in (1..).zip(records) {
            marks.unset(at);
            let left: u32 = marks.slots[slot as usize].iter().map(|word| word.count_ones()).sum();
            assert_eq!(left as usize, 2 * WAITING - deaths.max(WAITING) + WAITING);
        }
    }
}
