//! Retiring, reusing and giving back memory, and taking it ahead of need.
//!
//! 1. A generation goes up before the stamp is taken; the stamp passes before a byte is reused.
//!    What is reused is counted for readers in other processes before its first byte changes or
//!    its memory goes back.
//! 2. Only slots of which bytes were backed change their generation. So it lies within the file.
//! 3. The provisioner does what takes long (backing, punching), unless its queue is full.
//! 4. Each wait has an end.
//!
//! The arena's writer only.

use super::Space;
use super::slots::{
    AHEAD_SHARE, AHEAD_SLOTS_MAX, RECLAIM_STEP, RESERVE_BACKED_FROM, RESERVE_SEGMENTS, Retired,
    SlotState, WAIT_MAX, WAIT_STEP,
};
use crate::format::generation::next_generation;
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::memory::provision::{JobDone, MemoryJob, Task};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

/// Nothing is kept while less than this share of the capacity is unbacked: large values and tables
/// find it without waiting for memory to be given back first.
const LEFT_SHARE: u64 = 8;

/// Slots that were in use are about to be something else, and their generations say so.
pub(crate) fn note_reuse<W: SharedWords>(words: &W) {
    let reuses = words.load64(header::REUSES, Relaxed);
    // SYNC(reuses): what is reused was unpublished before; a moment that is read behind this says
    // so.
    words.store64(header::REUSES, reuses.wrapping_add(1), Release);
    // SYNC(reuses), SYNC(generation): both are stored before the first byte that is reused.
    words.fence(Release);
}

impl Space {
    pub(super) fn retire(&mut self, what: Retired) {
        let (slot, slots, bytes) = self.place_of(what);
        if matches!(what, Retired::Segment(_)) {
            self.unlist(slot);
            self.marks.end(slot);
            self.segments -= 1;
            self.victim = self.victim.filter(|victim| victim.slot != slot);
        }
        self.coming += bytes;
        self.given_up += bytes;
        // Odd: references to what was there are refused from now on.
        self.next_generations(slot, bytes, 1);
        (slot..slot + slots).for_each(|s| self.slot(s).state = SlotState::Retired);
        self.retired.push_back((self.region.domain().stamp(), what));
    }

    /// First slot, slots and backed bytes.
    fn place_of(&self, what: Retired) -> (u32, u32, u64) {
        match what {
            Retired::Segment(slot) => (slot, 1, self.g.slot_bytes()),
            Retired::Run { slot, slots, bytes } => (slot, slots, bytes),
        }
    }

    /// Makes the generations of so many bytes the next odd or even ones. The room of a run has none
    /// of them: nothing names a byte there, and it may lie behind the file's end, where a
    /// generation has no memory.
    fn next_generations(&self, slot: u32, bytes: u64, parity: u32) {
        (slot..slot + self.g.slots_for(bytes)).for_each(|s| self.next_generation(s, parity));
    }

    /// Makes a slot's generation the next odd or even one.
    pub(super) fn next_generation(&self, slot: u32, parity: u32) {
        next_generation(&self.words, self.g.generation_offset(slot), parity);
    }

    /// Takes the mail and reclaims at most so many retired things whose grace period is over.
    pub(crate) fn collect(&mut self, limit: u32) -> u32 {
        if self.mail.any() {
            let done = self.mail.take();
            done.into_iter().for_each(|done| self.done(done));
        }
        let mut reclaimed = 0;
        while reclaimed < limit
            && let Some(&(stamp, what)) = self.retired.front()
            && self.region.domain().passed(stamp)
        {
            self.retired.pop_front();
            reclaimed += 1;
            let (slot, slots, bytes) = self.place_of(what);
            self.coming -= bytes;
            self.next_generations(slot, bytes, 0);
            note_reuse(&self.words);
            match what {
                Retired::Segment(slot) => self.reuse_segment(slot),
                Retired::Run { .. } => self.punch(slot, slots, bytes),
            }
        }
        reclaimed
    }

    pub(super) fn reuse_segment(&mut self, slot: u32) {
        self.words.store32(self.g.tail_offset(slot), 0, Release);
        self.denied = None;
        if self.ready.len() < self.ready_kept() {
            self.slot(slot).state = SlotState::Ready;
            self.ready.insert(slot);
        } else {
            self.punch(slot, 1, self.g.slot_bytes());
        }
    }

    pub(super) fn punch(&mut self, slot: u32, slots: u32, bytes: u64) {
        (slot..slot + slots).for_each(|s| self.slot(s).state = SlotState::Moving);
        let job = self.job(Task::Punch, slot, slots, bytes);
        self.pending += 1;
        self.coming += bytes;
        if let Err(job) = self.region.domain().provisioner().send(job) {
            let done = job.run();
            self.done(done);
        }
    }

    pub(super) fn job(&self, task: Task, slot: u32, slots: u32, bytes: u64) -> MemoryJob {
        let offset = self.g.slot_offset(slot);
        let (region, mail) = (self.region.clone(), Arc::clone(&self.mail));
        MemoryJob { task, region, slot, slots, offset, bytes, mail }
    }

    pub(super) fn done(&mut self, done: JobDone) {
        let JobDone { task, slot, slots, bytes, result } = done;
        self.pending -= 1;
        match (task, result) {
            (_, Ok(())) => self.denied = None,
            (Task::Back, Err(denial)) => self.denied = Some(denial),
            (Task::Punch, Err(_)) => {}
        }
        let is_table = self.slots[slot as usize].state == SlotState::Run;
        match (task, result) {
            (Task::Back, Ok(())) if is_table => self.tables_done.push((slot, true)),
            (Task::Back, Ok(())) => {
                self.backing -= 1;
                self.slot(slot).state = SlotState::Ready;
                self.ready.insert(slot);
            }
            (Task::Back, Err(_)) => {
                if is_table {
                    self.tables_done.push((slot, false));
                } else {
                    self.backing -= 1;
                }
                self.backed -= bytes;
                self.free(slot, slots);
            }
            (Task::Punch, Ok(())) => {
                self.coming -= bytes;
                self.backed -= bytes;
                self.free(slot, slots);
            }
            // The system kept the pages: they stay counted, and the slots are never used again.
            (Task::Punch, Err(_)) => {
                self.coming -= bytes;
                (slot..slot + slots).for_each(|s| self.slot(s).state = SlotState::Fixed);
            }
        }
    }

    /// Waits a short while for jobs under way, at the brink of being full.
    pub(super) fn wait(&mut self, until: &mut dyn FnMut(&mut Space) -> bool) {
        let end = Instant::now() + WAIT_MAX;
        loop {
            self.collect(RECLAIM_STEP);
            if until(self) || self.pending == 0 || Instant::now() >= end {
                return;
            }
            std::thread::sleep(WAIT_STEP);
        }
    }

    /// Gives ready slots beyond the reserve back, for a run.
    pub(super) fn shrink_ready(&mut self) {
        while self.ready.len() > RESERVE_SEGMENTS
            && let Some(slot) = self.ready.pop_last()
        {
            self.punch(slot, 1, self.g.slot_bytes());
        }
    }

    /// Ready slots that aren't given back.
    fn ready_kept(&self) -> usize {
        (self.ready_wanted() + RESERVE_SEGMENTS).max(self.kept_warm())
    }

    /// Gives one ready slot back if there are many more than wanted; true if it did.
    pub(crate) fn give_back(&mut self) -> bool {
        let surplus = self.ready.len() > self.ready_kept();
        if surplus && let Some(slot) = self.ready.pop_last() {
            self.punch(slot, 1, self.g.slot_bytes());
        }
        surplus
    }

    pub(super) fn ready_wanted(&self) -> usize {
        if self.segments < RESERVE_BACKED_FROM {
            return 1;
        }
        RESERVE_SEGMENTS + (self.segments as usize / AHEAD_SHARE).clamp(2, AHEAD_SLOTS_MAX)
    }

    /// Asks for slots ahead of need.
    pub(crate) fn provision(&mut self) {
        let half = self.g.slot_bytes() / 2;
        let started =
            self.head.is_some_and(|head| self.segments > 1 || head.end - head.next < half);
        // While a request hungers it gets what there is, but for the reserve.
        let most = if self.hungers() { RESERVE_SEGMENTS } else { usize::MAX };
        let wanted = self.ready_wanted().min(most);
        while started
            && self.denied.is_none()
            && self.ready.len() + self.backing < wanted
            && self.backed + self.g.slot_bytes() <= self.g.capacity_bytes
            && let Some(slot) = self.find_free(1)
        {
            let bytes = self.g.slot_bytes();
            let job = self.job(Task::Back, slot, 1, bytes);
            if self.region.domain().provisioner().send(job).is_err() {
                return;
            }
            #[cfg(test)]
            {
                self.asked_slots += 1;
            }
            self.slot(slot).state = SlotState::Moving;
            self.pending += 1;
            self.backing += 1;
            self.backed += bytes;
        }
    }

    /// Whether maintenance has something to wait for or do.
    pub(crate) fn busy(&self) -> bool {
        !self.retired.is_empty() || self.pending > 0 || self.named.any_wait()
    }

    /// The time, by which demand is forgotten.
    pub(crate) fn tell_time(&mut self, now_ms: u64) {
        self.demand.tell(now_ms);
    }

    /// Ready slots that are kept for the next burst.
    pub(super) fn kept_warm(&self) -> usize {
        let left = self.g.capacity_bytes.saturating_sub(self.backed);
        if self.hungers() || left < self.g.capacity_bytes / LEFT_SHARE {
            return 0;
        }
        self.demand.recent().min(self.segments as usize)
    }
}
