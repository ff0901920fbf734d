//! Finding out, from what the index names, which slot is what.
//!
//! 1. A slot is one thing: whoever claims it for another finds a contradiction.
//! 2. What nobody claims is free, and is given back, so that it reads as zeros; so is what lies behind a run's pages.
//!
//! The adopting writer only.

use super::{FIRST_STEP_BYTES, HeadSegment, Space, State, ValueRun};
use crate::index::Table;
use crate::layout::{PAGE_BYTES, record as r, round_up};
use crate::words::Words;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Space {
    /// Marks a slot as a segment that holds a record of so many bytes. The sum stays within the slot.
    pub(crate) fn adopt_segment(&mut self, slot: u32) -> Result<(), State> {
        match self.slots[slot as usize].state {
            State::Segment => Ok(()),
            State::Free => {
                self.slot(slot).state = State::Segment;
                self.segments += 1;
                self.backed += self.g.slot_bytes();
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Bytes of live and held records in a segment.
    pub(crate) fn used_of(&self, slot: u32) -> u64 {
        let s = &self.slots[slot as usize];
        u64::from(s.live) + u64::from(s.held)
    }

    /// Marks slots as a run; for a value, other records may name the same.
    pub(crate) fn adopt_run(&mut self, slot: u32, bytes: u64, value: bool) -> Result<(), State> {
        let (slots, pages) = (self.g.slots_for(bytes), round_up(bytes, PAGE_BYTES));
        let same = |run: &ValueRun| run.slots == slots && run.bytes == pages;
        if value && self.runs.get(&slot).is_some_and(same) {
            return Ok(());
        }
        let range = slot as usize..(slot + slots) as usize;
        if let Some(taken) = self.slots[range].iter().find(|s| s.state != State::Free) {
            return Err(taken.state);
        }
        self.occupy(slot, slots);
        self.backed += pages;
        if value {
            self.runs.insert(slot, ValueRun { slots, bytes: pages, live: 0, held: 0 });
        }
        Ok(())
    }

    /// After all is marked: gives back what nobody refers to, and goes on with the segment that has the
    /// most room.
    pub(crate) fn adopt_rest(&mut self, tables: &[Table]) -> Result<(), rustix::io::Errno> {
        self.punch_unused()?;
        let runs = self.runs.iter().map(|(slot, run)| (*slot, run.bytes));
        for (slot, bytes) in runs.chain(tables.iter().map(|table| (table.slot, table.bytes()))) {
            self.punch_behind(slot, bytes)?;
        }
        let tail =
            |s: &Space, slot| u64::from(s.words.load32(s.g.tail_offset(slot), Relaxed)) * r::UNIT;
        let segments = (self.g.first_slot..self.g.slots)
            .filter(|&slot| self.slots[slot as usize].state == State::Segment);
        let Some(slot) = segments.min_by_key(|&slot| tail(self, slot)) else { return Ok(()) };
        let (at, end) = (self.g.slot_offset(slot), self.g.slot_offset(slot + 1));
        let next = at + tail(self, slot);
        // Only a head may be backed in part.
        for slot in self.g.first_slot..self.g.slots {
            let room = self.g.slot_bytes() - tail(self, slot).min(self.g.slot_bytes());
            if self.slots[slot as usize].state == State::Segment && room >= FIRST_STEP_BYTES {
                self.region.back(self.g.slot_offset(slot), self.g.slot_bytes())?;
            }
        }
        self.head = Some(HeadSegment { slot, next, backed_end: end, end });
        (self.g.first_slot..self.g.slots).for_each(|slot| self.list(slot));
        Ok(())
    }

    /// Gives back what lies behind the pages of a run in its last slot: there is nothing in an arena that nobody has
    /// damaged, and nobody would ever look there again.
    fn punch_behind(&self, slot: u32, bytes: u64) -> Result<(), rustix::io::Errno> {
        let (used, slots) = (round_up(bytes, PAGE_BYTES), self.g.slots_for(bytes));
        match (u64::from(slots) << self.g.slot_shift) - used {
            0 => Ok(()),
            rest => self.region.punch(self.g.slot_offset(slot) + used, rest),
        }
    }

    pub(super) fn punch_unused(&mut self) -> Result<(), rustix::io::Errno> {
        let end = self.g.slot_of(self.region.end());
        let mut slot = self.g.first_slot;
        while slot < end {
            let rest = &self.slots[slot as usize..end as usize];
            let free = rest.iter().take_while(|s| s.state == State::Free).count();
            let free = u32::try_from(free).expect("a number of slots");
            if free > 0 {
                // A crash may have come between the last use and the retirement, so both steps are made.
                (slot..slot + free).for_each(|s| self.next_generation(s, 1));
                self.region
                    .punch(self.g.slot_offset(slot), u64::from(free) << self.g.slot_shift)?;
                for s in slot..slot + free {
                    self.next_generation(s, 0);
                    if self.words.load32(self.g.tail_offset(s), Relaxed) != 0 {
                        self.words.store32(self.g.tail_offset(s), 0, Release);
                    }
                }
            }
            slot += free.max(1);
        }
        Ok(())
    }
}
