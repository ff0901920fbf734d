//! Closed segments in lists by the bytes that emptying them wouldn't win, so that the best is found
//! by a look at one word.
//!
//! ```text
//! filled   ...0 0 1 0 1 1     a bit per list
//! list 0   segments with less than 1/64 of their bytes kept: s <-> s <-> s
//! ```
//!
//! 1. Kept are live bytes, and those at the end that no record took: the copies may leave as many.
//!    So a segment without dead records is nobody's victim, and cleaning comes to an end.
//! 2. A segment stands in the list of its kept bytes, or in none: a head, one with staged records,
//!    the cleaner's victim, and one of which damage keeps something.
//! 3. Every step costs the same, however many segments there are.
//!
//! The arena's writer only.

use crate::format::layout::Geometry;

/// log2 of the number of lists: as many as bits of a word.
const LISTS_SHIFT: u32 = 6;
/// Number of lists.
pub(super) const LISTS: u8 = 1 << LISTS_SHIFT;
/// In no list.
pub(super) const UNLISTED: u8 = u8::MAX;
/// In no list and never again in one: damage in it keeps something of it from being moved.
pub(super) const UNFIT: u8 = u8::MAX - 1;
/// No slot.
const NONE: u32 = u32::MAX;

/// Neighbours in a list.
#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// The lists.
pub(super) struct Lists {
    shift: u32,
    /// Bit i: list i has a segment.
    filled: u64,
    first: [u32; LISTS as usize],
    links: Vec<Link>,
}

impl Lists {
    pub(super) fn new(g: &Geometry) -> Lists {
        let link = Link { before: NONE, after: NONE };
        Lists {
            shift: g.slot_shift - LISTS_SHIFT,
            filled: 0,
            first: [NONE; LISTS as usize],
            links: vec![link; g.slots as usize],
        }
    }

    /// The list for so many kept bytes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    pub(super) fn of(&self, kept: u32) -> u8 {
        ((kept >> self.shift) as u8).min(LISTS - 1)
    }

    /// Whether a segment that stands in a list belongs to another.
    #[inline]
    pub(super) fn is_other(&self, list: u8, kept: u32) -> bool {
        list < LISTS && list != self.of(kept)
    }

    /// The lowest list that has a segment, and that segment.
    pub(super) fn lowest(&self) -> Option<(u8, u32)> {
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let list = self.filled.trailing_zeros() as u8;
        (list < LISTS).then(|| (list, self.first[usize::from(list)]))
    }

    pub(super) fn insert(&mut self, slot: u32, list: u8) {
        let first = std::mem::replace(&mut self.first[usize::from(list)], slot);
        if first != NONE {
            self.links[first as usize].before = slot;
        }
        self.links[slot as usize] = Link { before: NONE, after: first };
        self.filled |= 1 << list;
    }

    pub(super) fn remove(&mut self, slot: u32, list: u8) {
        let Link { before, after } = self.links[slot as usize];
        if after != NONE {
            self.links[after as usize].before = before;
        }
        if before != NONE {
            self.links[before as usize].after = after;
            return;
        }
        self.first[usize::from(list)] = after;
        if after == NONE {
            self.filled &= !(1 << list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_list_is_found_after_any_order_of_moves() {
        // Segments enter, change places and leave; the lowest is always what a scan would find.
        let g = Geometry::new(64 << 20).expect("a capacity");
        let mut lists = Lists::new(&g);
        assert!(lists.lowest().is_none());
        let mut place = [UNLISTED; 100];
        let mut n = 7u32;
        for _ in 0..20_000 {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let slot = (n >> 8) % 100;
            let at = &mut place[slot as usize];
            if *at != UNLISTED {
                lists.remove(slot, *at);
            }
            let leaves = n >> 28 == 0;
            *at = if leaves { UNLISTED } else { (n >> 20).to_le_bytes()[0] % LISTS };
            if *at != UNLISTED {
                lists.insert(slot, *at);
            }
            let least = place.iter().min().copied().filter(|&list| list != UNLISTED);
            let lowest = lists.lowest();
            assert_eq!(lowest.map(|l| l.0), least);
            assert!(lowest.is_none_or(|(list, slot)| place[slot as usize] == list));
        }
    }

    #[test]
    fn a_segment_belongs_to_the_list_of_its_64th_part() {
        let g = Geometry::new(64 << 20).expect("a capacity");
        let (lists, part, whole) = (Lists::new(&g), 1 << (18 - 6), 1 << 18);
        for (kept, list) in [(0, 0), (part - 1, 0), (part, 1), (whole - 1, 63), (whole, 63)] {
            assert_eq!((g.slot_shift, lists.of(kept)), (18, list), "{kept} bytes are kept");
            assert!(!lists.is_other(list, kept) && lists.is_other(63 - list, kept));
        }
        assert!(!lists.is_other(UNLISTED, 0) && !lists.is_other(UNFIT, 0));
    }
}
