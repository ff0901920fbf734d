//! Runs: contiguous slots that hold a large value or an index table.
//!
//! 1. A run is taken from free slots, so that it begins zeroed; only its pages are backed.
//! 2. No run crosses a line of 4 GiB.
//!
//! The arena's writer only.

use super::cold::Lack;
use super::{CLEANER_SEGMENTS, RECLAIM_STEP, Slot, Space, State, ValueRun, What};
use crate::error::WriteError;
use crate::layout::{PAGE_BYTES, round_up};
use crate::provision::Task;
use crate::record::RunName;
use crate::words::Words;

impl Space {
    /// A zeroed run; who takes it for a value names it by [`Self::name_run`].
    pub(crate) fn take_run(&mut self, bytes: u64, urgent: bool) -> Result<u32, WriteError> {
        let (pages, slots) = (round_up(bytes, PAGE_BYTES), self.g.slots_for(bytes));
        self.collect(RECLAIM_STEP);
        let mut taken = self.try_run(pages, slots, urgent);
        if taken.is_err() {
            // Slots that are ready ahead give way, those too that the provisioner is about to bring.
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

    fn place_of_run(&mut self, pages: u64, slots: u32, urgent: bool) -> Result<u32, Lack> {
        if pages > self.budget(urgent) {
            return Err(Lack::Bytes(pages));
        }
        self.find_free(slots).ok_or(Lack::Place)
    }

    fn try_run(&mut self, pages: u64, slots: u32, urgent: bool) -> Result<u32, Lack> {
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
            *self.slot(s) = Slot::new(State::Run);
        }
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

    /// Makes a run a value's.
    pub(crate) fn name_run(&mut self, slot: u32, value_bytes: u64, checksum: u32) -> RunName {
        let slots = self.g.slots_for(value_bytes);
        let bytes = round_up(value_bytes, PAGE_BYTES);
        self.runs.insert(slot, ValueRun { slots, bytes, live: 0, held: 0 });
        RunName { slot, slots, generation: self.generation(slot), checksum }
    }

    /// Retires a run that no record names (any more).
    pub(crate) fn retire_run(&mut self, slot: u32) {
        let run = self.runs.remove(&slot).expect("a run that is a value's");
        self.retire(What::Run { slot, slots: run.slots, bytes: run.bytes });
    }

    /// Retires a table.
    pub(crate) fn retire_table(&mut self, slot: u32, bytes: u64) {
        let slots = self.g.slots_for(bytes);
        self.retire(What::Run { slot, slots, bytes: round_up(bytes, PAGE_BYTES) });
    }

    /// The lowest free slots in a row that don't cross a line of 4 GiB.
    pub(super) fn find_free(&mut self, slots: u32) -> Option<u32> {
        let window = self.g.slots_per_window();
        while self.lowest_free < self.g.slots
            && self.slots[self.lowest_free as usize].state != State::Free
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
            match self.slots[range].iter().rposition(|s| s.state != State::Free) {
                None => return Some(start),
                Some(taken) => start += u32::try_from(taken).expect("a slot number") + 1,
            }
        }
        None
    }

    pub(super) fn free(&mut self, slot: u32, slots: u32) {
        for s in slot..slot + slots {
            *self.slot(s) = Slot::new(State::Free);
        }
        self.lowest_free = self.lowest_free.min(slot);
    }
}
