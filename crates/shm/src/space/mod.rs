//! The writer's memory: which slot is what, the head segment, runs, and what waits to be reused.
//!
//! ```text
//! Free ── back ──> Ready ── open ──> Segment ── no live bytes ──> Retired ── grace ──> Ready, or punch ──> Free
//! Free ── back ──────────> Run ───── no record names it ────────> Retired ── grace ──> punch ──> Free
//! ```
//!
//! 1. Free slots are not backed and read as zeros; so a run begins zeroed.
//! 2. `backed` never exceeds the capacity, and counts memory from the moment that it is asked for.
//! 3. Two segments stay in reserve for what must work when the arena is full ("urgent"). So does
//!    what a head that is backed in part lacks: else records would take it of the reserve.
//! 4. A slot's generation gets odd when it is retired, before the stamp that its reuse waits for,
//!    and even again before its reuse.
//! 5. A record counts in its segment while it is published ("live") or staged ("held"), and the run
//!    that it names counts as long as any record does.
//! 6. Two heads take records: the hot one what is appended, the cold one what the cleaner moves.
//!
//! The arena's writer only.

mod alive;
mod cold;
mod from_survey;
mod lists;
mod marks;
mod named;
mod reclaim;
mod runs;
mod slots;
mod warm;

#[cfg(test)]
mod tests;

use self::lists::Lists;
use self::marks::Marks;
#[cfg(test)]
pub(crate) use self::reclaim::note_reuse;
use self::slots::{
    CLEANER_SEGMENTS, FIRST_STEP_BYTES, HeadSegment, NamedRuns, RECLAIM_STEP, RESERVE_BACKED_FROM,
    Retired, Shortage, Slot, SlotState, ValueRun, WAIT_STEP,
};
pub(crate) use self::slots::{Need, RESERVE_SEGMENTS, Victim};
use self::warm::Demand;
use crate::error::{Denial, WriteError};
use crate::format::layout::{Geometry, PAGE_BYTES, record as r, round_up};
use crate::format::words::{MappedWords, SharedWords};
use crate::memory::provision::{Backing, Mail};
use crate::region::Region;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

/// A part of the arena's memory.
pub(crate) struct Space {
    region: Arc<Region>,
    words: MappedWords,
    g: Geometry,
    slots: Vec<Slot>,
    ready: BTreeSet<u32>,
    head: Option<HeadSegment>,
    /// Takes what the cleaner moves.
    cold: Option<HeadSegment>,
    /// The segment that the cleaner is emptying.
    victim: Option<Victim>,
    lists: Lists,
    marks: Marks,
    runs: HashMap<u32, ValueRun>,
    named: NamedRuns,
    /// Slots of runs beyond what their values need.
    spare_slots: u32,
    retired: VecDeque<(u64, Retired)>,
    demand: Demand,
    mail: Arc<Mail>,
    /// Jobs under way.
    pending: u32,
    /// Slots among them that will be ready segments.
    backing: usize,
    segments: u32,
    backed: u64,
    /// Bytes that are retired or being punched: they come back after a grace period.
    coming: u64,
    /// Bytes of all that was ever retired.
    given_up: u64,
    /// Slots that a refused request lacked: cleaned beyond the target until they are there, and
    /// nothing is made ready ahead that would take them.
    hunger: u32,
    /// The memory that the last refused request lacked.
    lacked: Shortage,
    /// A request was refused since the last turn.
    refused: bool,
    /// Bytes of staged records and of their runs.
    held_bytes: u64,
    live_bytes: u64,
    /// Bytes of live records without their runs.
    record_bytes: u64,
    /// No free slot lies below.
    lowest_free: u32,
    /// Why the last backing failed; asked ahead again when one went well or something was given
    /// back.
    denied: Option<Denial>,
    /// Tables asked for and done: first slot, whether it worked.
    tables_done: Vec<(u32, bool)>,
    /// Slots that were backed in front of requests.
    #[cfg(test)]
    pub(crate) backed_here: u32,
    /// Slots that the provisioner was asked for.
    #[cfg(test)]
    pub(crate) asked_slots: u32,
}

impl Space {
    /// All slots free.
    pub(crate) fn new(region: &Arc<Region>) -> Space {
        let g = *region.geometry();
        let mut slots = vec![Slot::new(SlotState::Free); g.slots as usize];
        for slot in &mut slots[..g.first_slot as usize] {
            slot.state = SlotState::Fixed;
        }
        let tables = round_up(g.tails + u64::from(g.slots) * 4, PAGE_BYTES);
        Space {
            region: Arc::clone(region),
            words: region.words(),
            g,
            slots,
            ready: BTreeSet::new(),
            head: None,
            cold: None,
            victim: None,
            lists: Lists::new(&g),
            marks: Marks::new(&g),
            runs: HashMap::new(),
            named: NamedRuns::default(),
            spare_slots: 0,
            retired: VecDeque::new(),
            demand: Demand::default(),
            mail: Arc::default(),
            pending: 0,
            backing: 0,
            segments: 0,
            backed: tables,
            coming: 0,
            given_up: 0,
            hunger: 0,
            lacked: Shortage::Bytes(0),
            refused: false,
            held_bytes: 0,
            live_bytes: 0,
            record_bytes: 0,
            lowest_free: g.first_slot,
            denied: None,
            tables_done: Vec::new(),
            #[cfg(test)]
            backed_here: 0,
            #[cfg(test)]
            asked_slots: 0,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.g
    }

    pub(crate) fn backed_bytes(&self) -> u64 {
        self.backed
    }

    pub(crate) fn given_up_bytes(&self) -> u64 {
        self.given_up
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn live_segment_bytes(&self) -> u64 {
        self.record_bytes
    }

    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer than slots")]
    pub(crate) fn runs(&self) -> u32 {
        self.runs.len() as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer than slots")]
    pub(crate) fn retired(&self) -> u32 {
        self.retired.len() as u32
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.segments) * self.g.slot_bytes()
    }

    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.words.load32(self.g.generation_offset(slot), Relaxed)
    }

    fn slot(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// Room for a record in the head segment; opens another when it is full.
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: u64, urgent: bool) -> Result<u64, WriteError> {
        if let Some(head) = &mut self.head
            && bytes <= head.backed_end - head.next
        {
            let at = head.next;
            head.next += bytes;
            return Ok(at);
        }
        self.reserve_slowly(bytes, urgent)
    }

    #[cold]
    fn reserve_slowly(&mut self, bytes: u64, urgent: bool) -> Result<u64, WriteError> {
        assert!(bytes <= self.g.slot_bytes(), "a record of {bytes} bytes fits no segment");
        if self.head.is_none_or(|head| bytes > head.end - head.next) {
            self.open_segment(urgent)?;
        }
        let head = self.head.expect("one that has room");
        if bytes > head.backed_end - head.next {
            self.back_more_of_head(head, bytes)?;
        }
        let head = self.head.as_mut().expect("one that has room");
        let at = head.next;
        head.next += bytes;
        Ok(at)
    }

    /// Backs the head for so many bytes more, which reach beyond what is backed of it.
    fn back_more_of_head(&mut self, head: HeadSegment, bytes: u64) -> Result<(), WriteError> {
        let to = round_up(head.next + bytes, FIRST_STEP_BYTES).min(head.end);
        let more = to - head.backed_end;
        if self.backed + more > self.g.capacity_bytes {
            return Err(self.lacks(Shortage::Bytes(more)));
        }
        self.back(head.backed_end, more).map_err(|lack| self.lacks(lack))?;
        self.backed += more;
        self.head = Some(HeadSegment { backed_end: to, ..head });
        Ok(())
    }

    /// Takes back the newest reservation.
    pub(crate) fn unreserve(&mut self, at: u64) {
        if let Some(head) = &mut self.head
            && self.g.slot_of(at) == head.slot
        {
            head.next = at;
        }
    }

    /// The head's used part ends behind what was reserved: to be stored before it is published.
    #[inline]
    pub(crate) fn store_tail(&self) {
        if let Some(head) = &self.head {
            self.store_tail_of(head);
        }
    }

    #[inline]
    fn store_tail_of(&self, head: &HeadSegment) {
        let used = head.next - self.g.slot_offset(head.slot);
        let units = u32::try_from(used / r::UNIT).expect("at most a slot");
        self.words.store32(self.g.tail_offset(head.slot), units, Release);
    }

    fn open_segment(&mut self, urgent: bool) -> Result<(), WriteError> {
        self.complete_head()?;
        let first = self.segments == 0 && self.ready.is_empty();
        let slot = if first { self.first_segment()? } else { self.take_ready(urgent)? };
        if let Some(old) = self.head.take() {
            self.close(old.slot);
        }
        let head = self.head_at(slot);
        let backed_end = if first { head.next + FIRST_STEP_BYTES } else { head.end };
        self.head = Some(HeadSegment { backed_end, ..head });
        self.provision();
        Ok(())
    }

    /// Makes a slot an empty segment.
    fn head_at(&mut self, slot: u32) -> HeadSegment {
        *self.slot(slot) = Slot::new(SlotState::Segment);
        self.marks.begin(slot);
        self.segments += 1;
        self.demand.note();
        let (next, end) = (self.g.slot_offset(slot), self.g.slot_offset(slot + 1));
        self.words.store32(self.g.tail_offset(slot), 0, Release);
        HeadSegment { slot, next, backed_end: end, end }
    }

    /// A segment is no head any more: it dies, or the cleaner may choose it.
    fn close(&mut self, slot: u32) {
        self.retire_if_dead(slot);
        self.list(slot);
    }

    /// Backs what the head lacks: only a head may be backed in part, since a closed segment is
    /// reused whole.
    fn complete_head(&mut self) -> Result<(), WriteError> {
        match self.head {
            Some(head) if head.backed_end < head.end => {
                self.back_more_of_head(head, head.end - head.next)
            }
            _ => Ok(()),
        }
    }

    /// A slot of which only the first step is backed.
    fn first_segment(&mut self) -> Result<u32, WriteError> {
        let Some(slot) = self.find_free(1) else { return Err(self.lacks(Shortage::Place)) };
        let backed = self.back(self.g.slot_offset(slot), FIRST_STEP_BYTES);
        backed.map_err(|lack| self.lacks(lack))?;
        self.backed += FIRST_STEP_BYTES;
        Ok(slot)
    }

    /// A ready slot for a new segment; leaves the reserve alone unless it is urgent.
    fn take_ready(&mut self, urgent: bool) -> Result<u32, WriteError> {
        self.collect(RECLAIM_STEP);
        if !urgent {
            self.keep_reserve()?;
        } else {
            self.have_ready(CLEANER_SEGMENTS).map_err(|lack| self.lacks(lack))?;
        }
        Ok(self.ready.pop_first().expect("more slots are ready than are kept"))
    }

    /// Sees to more ready slots than `keep`; backs some if it may.
    fn have_ready(&mut self, keep: usize) -> Result<(), Shortage> {
        let bytes = self.g.slot_bytes();
        while self.ready.len() <= keep {
            if self.budget(true) < bytes {
                return Err(Shortage::Bytes(bytes));
            }
            self.back_slot_now().map_err(|lack| match lack {
                Shortage::Place => Shortage::Bytes(bytes),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Takes memory. What the system says against it is remembered until it gives some again.
    fn back(&mut self, offset: u64, bytes: u64) -> Result<(), Shortage> {
        let outcome = self.region.back(offset, bytes);
        self.denied = outcome.err();
        outcome.map_err(|denial| Shortage::Denied(bytes, denial))
    }

    /// Sees to it that a slot can be taken and the reserve is left.
    fn keep_reserve(&mut self) -> Result<(), WriteError> {
        let fits = |s: &Space| {
            let lacking = (RESERVE_SEGMENTS + 1).saturating_sub(s.ready.len()) as u64;
            s.backed + lacking * s.g.slot_bytes() <= s.g.capacity_bytes
        };
        if !fits(self) && self.backing > 0 {
            self.wait(&mut |s| fits(s) || s.backing == 0);
        }
        if !fits(self) {
            return Err(self.lacks(Shortage::Bytes(self.g.slot_bytes())));
        }
        let keep = if self.segments >= RESERVE_BACKED_FROM { RESERVE_SEGMENTS } else { 0 };
        // One at most in front of a request: at the largest slot it takes half a millisecond. What
        // the reserve lacks beyond is counted, and the provisioner's.
        if self.ready.len() <= keep {
            self.back_slot_now().map_err(|lack| self.lacks(lack))?;
        }
        Ok(())
    }

    fn back_slot_now(&mut self) -> Result<(), Shortage> {
        let slot = self.find_free(1).ok_or(Shortage::Place)?;
        let bytes = self.g.slot_bytes();
        self.back(self.g.slot_offset(slot), bytes)?;
        #[cfg(test)]
        {
            self.backed_here += 1;
        }
        self.backed += bytes;
        self.slot(slot).state = SlotState::Ready;
        self.ready.insert(slot);
        Ok(())
    }

    /// Bytes that may still be backed; what the reserve and the head lack is kept back unless it is
    /// urgent.
    fn budget(&self, urgent: bool) -> u64 {
        let missing = RESERVE_SEGMENTS.saturating_sub(self.ready.len() + self.backing) as u64;
        let of_head = self.head.map_or(0, |head| head.end - head.backed_end);
        let reserved = if urgent { 0 } else { missing * self.g.slot_bytes() + of_head };
        self.g.capacity_bytes.saturating_sub(self.backed + reserved)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Jobs under way hold the mapping; without this wait, adopting again at once would find the
        // arena in use. That a job was told of is not enough: it lets go of the region first, of
        // the mail last (so does a thread that dies). There are few, and each is some calls to the
        // system.
        while Arc::strong_count(&self.mail) > 1 {
            std::thread::sleep(WAIT_STEP);
        }
        // SYNC(job-over): with the job's own decrement, so that ours of the region's count comes
        // later.
        fence(Acquire);
    }
}
