//! Finding out, from what the index names, which slot is what.
//!
//! 1. Which slot is what, and whose bytes count there, is the survey's word; it has refused
//!    contradictions.
//! 2. A slot that nothing claims is free and given back, so that it reads as zeros; so are the
//!    bytes behind a run's pages.
//!
//! The adopting writer only.

use super::Space;
use super::reclaim::note_reuse;
use super::slots::{CLAIMED, FIRST_STEP_BYTES, HeadSegment, Slot, SlotState, ValueRun};
use crate::check::survey::{RunUse, SlotUse, Survey, Use};
use crate::error::Denial;
use crate::format::layout::{PAGE_BYTES, record as r, round_up};
use crate::format::words::SharedWords;
use crate::region::Region;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Slot {
    fn adopted(found: &SlotUse) -> Slot {
        let state = match found.what {
            Use::Free => SlotState::Free,
            Use::Fixed => SlotState::Fixed,
            Use::Segment => SlotState::Segment,
            Use::Run => SlotState::Run,
        };
        let (records, live, held) = (found.records, found.live(), found.held());
        Slot { records, live, held, ..Slot::new(state) }
    }
}

impl Space {
    /// The memory of an arena that another process left: gives back what nobody refers to, and goes
    /// on with the segment that has the most room.
    pub(crate) fn adopted(region: &Arc<Region>, found: &Survey) -> Result<Space, Errno> {
        let mut space = Space::new(region);
        let g = space.g;
        for (slot, found) in space.slots.iter_mut().zip(&found.slots) {
            *slot = Slot::adopted(found);
        }
        for slot in g.first_slot..g.slots {
            if space.slots[slot as usize].state == SlotState::Segment {
                space.marks.begin(slot);
            }
        }
        let segments = space.slots.iter().filter(|slot| slot.state == SlotState::Segment).count();
        space.segments = u32::try_from(segments).expect("a number of slots");
        space.backed += space.segment_bytes();
        for (&slot, run) in &found.runs {
            let RunUse { slots, end, live, held, must, .. } = *run;
            let (bytes, named) = (run.bytes(), if run.is_named { CLAIMED } else { 0 });
            space.add_run(slot, ValueRun { slots, bytes, end, live, held, named, must });
            if live == 0 && held == 0 {
                space.end_run(slot);
            }
        }
        (space.live_bytes, space.record_bytes) = (found.live_bytes, found.record_bytes);
        space.held_bytes = found.held_bytes;
        // All that nobody claims. Its fence is also that of the incarnation, which was stored
        // before.
        note_reuse(&space.words);
        space.punch_unused()?;
        let runs = found.runs.iter().map(|(&slot, run)| (slot, run.slots, run.bytes()));
        // The one that an unfinished commit clears into is in use as well, until it is the index.
        let cleared = found.intent.as_ref().and_then(|intent| intent.clear);
        let cleared = cleared.filter(|&table| found.current != Some(table));
        let tables = found.old.iter().chain(&found.current).chain(&cleared);
        let tables = tables.map(|table| (table.slot, g.slots_for(table.bytes()), table.bytes()));
        for (slot, slots, bytes) in runs.chain(tables) {
            space.backed += round_up(bytes, PAGE_BYTES);
            space.punch_behind(slot, slots, bytes)?;
        }
        // A record with a flipped length is served like any other, and no reader may meet a hole.
        for (&slot, run) in found.runs.iter().filter(|(_, run)| run.is_bad) {
            region.try_back(g.slot_offset(slot), run.bytes())?;
        }
        space.adopt_head()?;
        Ok(space)
    }

    fn adopt_head(&mut self) -> Result<(), Errno> {
        let tail =
            |s: &Space, slot| u64::from(s.words.load32(s.g.tail_offset(slot), Relaxed)) * r::UNIT;
        let is_segment = |s: &Space, slot| s.slots[slot as usize].state == SlotState::Segment;
        let segments = (self.g.first_slot..self.g.slots).filter(|&slot| is_segment(self, slot));
        let Some(roomiest) = segments.min_by_key(|&slot| tail(self, slot)) else { return Ok(()) };
        let mut in_part = None;
        for slot in self.g.first_slot..self.g.slots {
            let room = self.g.slot_bytes() - tail(self, slot).min(self.g.slot_bytes());
            if !is_segment(self, slot) || room < FIRST_STEP_BYTES {
                continue;
            }
            match self.region.try_back(self.g.slot_offset(slot), self.g.slot_bytes()) {
                Ok(()) => {}
                // The head that the last writer had backed in part: one at most. It is the head
                // again, with what it has; the rest is taken when there is some.
                Err(errno) if Denial::from(errno).is_full() && in_part.is_none() => {
                    in_part = Some(slot);
                }
                Err(errno) => return Err(errno),
            }
        }
        let slot = in_part.unwrap_or(roomiest);
        let (at, end) = (self.g.slot_offset(slot), self.g.slot_offset(slot + 1));
        let next = at + tail(self, slot);
        let mut backed_end = end;
        if in_part.is_some() {
            backed_end = round_up(next, FIRST_STEP_BYTES).min(end);
            self.region.try_back(at, backed_end - at)?;
            self.backed -= end - backed_end;
        }
        self.head = Some(HeadSegment { slot, next, backed_end, end });
        (self.g.first_slot..self.g.slots).for_each(|slot| self.list(slot));
        Ok(())
    }

    /// Gives back what lies behind the pages of a run in its slots: room that was backed ahead, or
    /// written in vain.
    fn punch_behind(&self, slot: u32, slots: u32, bytes: u64) -> Result<(), Errno> {
        let used = self.g.slot_offset(slot) + round_up(bytes, PAGE_BYTES);
        let end = self.g.slot_offset(slot + slots).min(self.region.end());
        match end.saturating_sub(used) {
            0 => Ok(()),
            rest => self.region.try_punch(used, rest),
        }
    }

    fn punch_unused(&mut self) -> Result<(), Errno> {
        let end = self.g.slot_of(self.region.end());
        let mut slot = self.g.first_slot;
        while slot < end {
            let rest = &self.slots[slot as usize..end as usize];
            let free = rest.iter().take_while(|s| s.state == SlotState::Free).count();
            let free = u32::try_from(free).expect("a number of slots");
            if free > 0 {
                // A crash may have come between the last use and the retirement, so both steps are
                // made.
                (slot..slot + free).for_each(|s| self.next_generation(s, 1));
                self.region
                    .try_punch(self.g.slot_offset(slot), u64::from(free) << self.g.slot_shift)?;
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
