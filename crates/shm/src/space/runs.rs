//! Runs: contiguous slots that hold a large value or an index table.
//!
//! 1. A run is taken from free slots, so that it begins zeroed; only its pages are backed.
//! 2. No run crosses a line of 4 GiB.
//! 3. A value's run may have more slots than the value needs, so that the value can grow: its room.
//!    It costs addresses, no memory, and may lie behind the file's end. A value that could lie in a
//!    segment needs no slots, so all of its run's are room. A run with room is taken only as long
//!    as the room of all, with its own, is at most a quarter of the file's slots.
//!
//! The arena's writer only.

use super::Space;
use super::slots::{CLEANER_SEGMENTS, RECLAIM_STEP, Retired, Shortage, Slot, SlotState, ValueRun};
use crate::error::WriteError;
use crate::format::head::RunName;
use crate::format::layout::{PAGE_BYTES, VALUE_BYTES_MAX, round_up};
use crate::format::words::SharedWords;
use crate::memory::provision::{Backing, Task};

/// Of the slots, the share that runs may have beyond what their values need.
const SPARE_SHARE: u32 = 4;
/// A run that grows is backed ahead by such a share of its length, and by so many bytes at most: a
/// call to the system for some ten writes, and 1/8 of the memory.
const BACKED_SHARE: u64 = 8;
const BACKED_AHEAD_MAX: u64 = 64 << 10;

impl Space {
    /// A zeroed run; a caller that takes it for a value names it by [`Self::name_run`].
    pub(crate) fn take_run(&mut self, bytes: u64, urgent: bool) -> Result<u32, WriteError> {
        let (pages, slots) = (round_up(bytes, PAGE_BYTES), self.g.slots_for(bytes));
        self.collect(RECLAIM_STEP);
        let mut taken = self.try_run(pages, slots, urgent);
        if taken.is_err() {
            // Slots that are ready ahead give way, those too that the provisioner is about to
            // bring.
            self.wait(&mut |s| {
                s.shrink_ready();
                s.place_of_run(pages, slots, urgent).is_ok()
            });
            taken = self.try_run(pages, slots, urgent);
        }
        match taken {
            Ok(slot) => Ok(slot),
            Err(_) if urgent && bytes <= self.g.slot_bytes() => self.run_of_reserve(bytes),
            Err(lack) => Err(self.lacks(lack)),
        }
    }

    /// The same, only if it is to be had without waiting.
    pub(crate) fn take_run_now(&mut self, bytes: u64) -> Option<u32> {
        self.collect(RECLAIM_STEP);
        self.try_run(round_up(bytes, PAGE_BYTES), self.g.slots_for(bytes), false).ok()
    }

    fn place_of_run(&mut self, pages: u64, slots: u32, urgent: bool) -> Result<u32, Shortage> {
        if pages > self.budget(urgent) {
            return Err(Shortage::Bytes(pages));
        }
        self.find_free(slots).ok_or(Shortage::Place)
    }

    fn try_run(&mut self, pages: u64, slots: u32, urgent: bool) -> Result<u32, Shortage> {
        let slot = self.place_of_run(pages, slots, urgent)?;
        self.back(self.g.slot_offset(slot), pages)?;
        self.backed += pages;
        self.occupy(slot, slots);
        Ok(slot)
    }

    /// A run made of a slot of the reserve.
    pub(super) fn run_of_reserve(&mut self, bytes: u64) -> Result<u32, WriteError> {
        self.have_ready(CLEANER_SEGMENTS).map_err(|lack| self.lacks(lack))?;
        let slot = self.ready.pop_first().expect("more slots are ready than are kept");
        let (at, zeros) = (self.g.slot_offset(slot), [0u8; 4096]);
        for page in 0..bytes.div_ceil(PAGE_BYTES) {
            self.words.copy_in(at + page * PAGE_BYTES, &zeros);
        }
        // Only the run's pages are counted from now on.
        let (used, whole) = (round_up(bytes, PAGE_BYTES), self.g.slot_bytes());
        if used < whole && self.region.punch(at + used, whole - used).is_ok() {
            self.backed -= whole - used;
        }
        self.occupy(slot, 1);
        Ok(slot)
    }

    pub(super) fn occupy(&mut self, slot: u32, slots: u32) {
        for s in slot..slot + slots {
            *self.slot(s) = Slot::new(SlotState::Run);
        }
    }

    /// Backs a run up to `most`; to `least` if the arena may not use so much, or the system doesn't
    /// give it.
    fn back_run(
        &mut self,
        slot: u32,
        least: u64,
        most: u64,
        urgent: bool,
    ) -> Result<(), WriteError> {
        let run = self.runs[&slot];
        let needed = least - run.bytes;
        if needed > self.budget(urgent) {
            // Slots that are ready ahead give way.
            self.wait(&mut |s| {
                s.shrink_ready();
                needed <= s.budget(urgent)
            });
        }
        let budget = self.budget(urgent);
        if needed > budget {
            return Err(self.lacks(Shortage::Bytes(needed)));
        }
        let (at, ahead) = (self.g.slot_offset(slot) + run.bytes, most - run.bytes);
        let mut more = needed;
        if ahead > needed && ahead <= budget && self.region.try_back(at, ahead).is_ok() {
            (more, self.denied) = (ahead, None);
        } else {
            self.back(at, needed).map_err(|lack| self.lacks(lack))?;
        }
        self.backed += more;
        self.live_bytes += if run.live > 0 { more } else { 0 };
        self.held_bytes += if run.held > 0 { more } else { 0 };
        self.runs.get_mut(&slot).expect("looked at above").bytes += more;
        Ok(())
    }

    /// Asks the provisioner for a zeroed run; [`Self::table_done`] tells when it is there.
    pub(crate) fn ask_for_table(&mut self, bytes: u64) -> Option<u32> {
        let (pages, slots) = (round_up(bytes, PAGE_BYTES), self.g.slots_for(bytes));
        if pages > self.budget(false) {
            return None;
        }
        let slot = self.find_free(slots)?;
        self.occupy(slot, slots);
        self.backed += pages;
        let job = self.job(Task::Back, slot, slots, pages);
        self.region
            .domain()
            .provisioner()
            .send(job)
            .map_err(|_| self.undo_table(slot, slots, pages))
            .ok()?;
        self.pending += 1;
        Some(slot)
    }

    pub(super) fn undo_table(&mut self, slot: u32, slots: u32, pages: u64) {
        self.backed -= pages;
        self.free(slot, slots);
    }

    /// Whether the table at this slot is there (true) or can't be had (false); `None` while it is
    /// under way.
    pub(crate) fn table_done(&mut self, slot: u32) -> Option<bool> {
        self.collect(0);
        let i = self.tables_done.iter().position(|t| t.0 == slot)?;
        Some(self.tables_done.swap_remove(i).1)
    }

    /// A zeroed run for a value of so many bytes, which `must` lie in one or could lie in a
    /// segment; with room if it is going to grow and there is some. Returns its first slot, and how
    /// many.
    pub(crate) fn take_value_run(
        &mut self,
        value_bytes: u64,
        must: bool,
        grows: bool,
        urgent: bool,
    ) -> Result<(u32, u32), WriteError> {
        let pages = round_up(value_bytes, PAGE_BYTES);
        if grows
            && let Some(slots) = self.roomy(value_bytes, must)
            && let Ok(slot) = self.try_run(pages, slots, urgent)
        {
            return Ok((slot, slots));
        }
        Ok((self.take_run(value_bytes, urgent)?, self.g.slots_for(value_bytes)))
    }

    /// Whether a run with room could be taken now for such a value, which could lie in a segment.
    pub(crate) fn has_room(&mut self, value_bytes: u64, urgent: bool) -> bool {
        let pages = round_up(value_bytes, PAGE_BYTES);
        let slots = self.roomy(value_bytes, false);
        slots.is_some_and(|slots| self.place_of_run(pages, slots, urgent).is_ok())
    }

    /// Slots for twice the length of a value, if all runs together may have as many to spare.
    pub(super) fn roomy(&self, value_bytes: u64, must: bool) -> Option<u32> {
        let slots = self.g.slots_for((2 * value_bytes).min(VALUE_BYTES_MAX as u64));
        let spare = slots - self.needed_slots(value_bytes, must);
        (self.spare_slots + spare <= self.g.slots / SPARE_SHARE).then_some(slots)
    }

    /// Slots without which a value can't be stored: none if it could lie in a segment. `must`: its
    /// key is too long for that.
    fn needed_slots(&self, value_bytes: u64, must: bool) -> u32 {
        let must = must || value_bytes > self.g.slot_bytes() / 2;
        if must { self.g.slots_for(value_bytes) } else { 0 }
    }

    /// Makes a run a value's.
    pub(crate) fn name_run(
        &mut self,
        (slot, slots): (u32, u32),
        must: bool,
        value_len: u32,
        checksum: u32,
    ) -> RunName {
        let (end, bytes) = (u64::from(value_len), round_up(value_len.into(), PAGE_BYTES));
        self.add_run(slot, ValueRun { slots, bytes, end, live: 0, held: 0, named: 0, must });
        RunName { slot, slots, generation: self.generation(slot), checksum }
    }

    pub(super) fn add_run(&mut self, slot: u32, run: ValueRun) {
        self.spare_slots += run.slots - self.needed_slots(run.end, run.must);
        self.runs.insert(slot, run);
    }

    /// Whether a run has room for a value that has `from` bytes and will have `to`, and wasn't
    /// written behind them before.
    pub(crate) fn reaches(&self, slot: u32, from: u64, to: u64) -> bool {
        let run = &self.runs[&slot];
        run.end == from && to <= u64::from(run.slots) * self.g.slot_bytes()
    }

    /// Makes a run longer for a value that has `from` bytes and will have `to`; false if it doesn't
    /// reach so far.
    pub(crate) fn extend_run(
        &mut self,
        slot: u32,
        from: u32,
        to: u32,
        urgent: bool,
    ) -> Result<bool, WriteError> {
        let (from, to, run) = (u64::from(from), u64::from(to), self.runs[&slot]);
        if !self.reaches(slot, from, to) {
            return Ok(false);
        }
        if to > run.bytes {
            let most = u64::from(run.slots) * self.g.slot_bytes();
            let ahead = to + (to / BACKED_SHARE).min(BACKED_AHEAD_MAX);
            self.back_run(
                slot,
                round_up(to, PAGE_BYTES),
                round_up(ahead, PAGE_BYTES).min(most),
                urgent,
            )?;
        }
        self.spare_slots -= self.needed_slots(to, run.must) - self.needed_slots(from, run.must);
        self.runs.get_mut(&slot).expect("looked at above").end = to;
        Ok(true)
    }

    /// Retires a run that nothing names any more: see `named`.
    pub(super) fn retire_run(&mut self, slot: u32) {
        let run = self.runs.remove(&slot).expect("a run that is a value's");
        self.spare_slots -= run.slots - self.needed_slots(run.end, run.must);
        self.retire(Retired::Run { slot, slots: run.slots, bytes: run.bytes });
    }

    /// Retires a table.
    pub(crate) fn retire_table(&mut self, slot: u32, bytes: u64) {
        let slots = self.g.slots_for(bytes);
        self.retire(Retired::Run { slot, slots, bytes: round_up(bytes, PAGE_BYTES) });
    }

    /// The lowest free slots in a row that don't cross a line of 4 GiB.
    pub(super) fn find_free(&mut self, slots: u32) -> Option<u32> {
        let window = self.g.slots_per_window();
        while self.lowest_free < self.g.slots
            && self.slots[self.lowest_free as usize].state != SlotState::Free
        {
            self.lowest_free += 1;
        }
        let mut start = self.lowest_free;
        while slots <= window && start + slots <= self.g.slots {
            if start / window != (start + slots - 1) / window {
                start = (start / window + 1) * window;
                continue;
            }
            let range = start as usize..(start + slots) as usize;
            match self.slots[range].iter().rposition(|s| s.state != SlotState::Free) {
                None => return Some(start),
                Some(taken) => start += u32::try_from(taken).expect("a slot number") + 1,
            }
        }
        None
    }

    pub(super) fn free(&mut self, slot: u32, slots: u32) {
        for s in slot..slot + slots {
            *self.slot(s) = Slot::new(SlotState::Free);
        }
        self.lowest_free = self.lowest_free.min(slot);
    }
}

#[cfg(test)]
impl Space {
    /// Has all free slots below one as if they were runs'.
    pub(crate) fn occupy_below(&mut self, slot: u32) {
        let is_free = |s: &Space, n: u32| s.slots[n as usize].state == SlotState::Free;
        (0..slot)
            .filter(|&n| is_free(self, n))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|n| self.occupy(n, 1));
    }

    pub(crate) fn spare_slots(&self) -> u32 {
        self.spare_slots
    }
}
