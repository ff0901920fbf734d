//! The live: bytes of published and staged records in each segment, and how many name each run.
//!
//! 1. A record that is counted in is counted out exactly once: fewer records than none are a
//!    mistake of ours. A run's memory is counted in with the first record that names it, and out
//!    with the last.
//! 2. A segment or run without live and held records is retired at once, but for the head.
//! 3. A published record is counted out by what its header says then, of which a bit may have
//!    changed. So a segment dies by the number of its records, not by their bytes; if these don't
//!    fit, it is told and no victim any more. A run is let go only by a record whose checksum is
//!    right: by another it might be another's. It stays until all is cleared or the arena is
//!    adopted.
//!
//! The arena's writer only.

use super::Space;
use super::lists::{LISTS, UNFIT, UNLISTED};
use super::slots::{HeadSegment, Retired, SlotState, ValueRun};
use crate::format::format_fault::{FormatFault, sum_fault};
use crate::format::head::{Head, RunName};
use crate::format::layout::record as r;
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::region::kept::Kept;
use std::sync::atomic::Ordering::Relaxed;

impl Space {
    /// A record was published.
    #[inline]
    pub(crate) fn charge(&mut self, offset: u64, head: &Head) {
        let (slot, bytes) = (self.g.slot_of(offset), head.bytes());
        let s = self.slot(slot);
        s.live += u32::try_from(bytes).expect("shorter than a slot");
        s.records += 1;
        debug_assert!(s.list >= LISTS, "only heads take records");
        self.marks.set(offset);
        self.live_bytes += bytes;
        self.record_bytes += bytes;
        if head.has_run() {
            let run = self.run_of(offset, head);
            run.live += 1;
            let bytes = if run.live == 1 { run.bytes } else { 0 };
            self.live_bytes += bytes;
        }
    }

    /// A record is no longer published.
    #[inline]
    pub(crate) fn discharge(&mut self, offset: u64, head: &Head) {
        let (slot, bytes) = (self.g.slot_of(offset), head.bytes());
        let s = self.slot(slot);
        s.records = s.records.checked_sub(1).expect("a record dies once");
        self.marks.unset(offset);
        let s = self.slot(slot);
        let left = s.live.checked_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        let dead = match left {
            Some(left) if (left == 0) == (s.records == 0) => {
                s.live = left;
                let (kept, list, dead) = (s.kept(), s.list, left == 0 && s.held == 0);
                if self.lists.is_other(list, kept) {
                    self.list(slot);
                }
                self.live_bytes -= bytes;
                self.record_bytes -= bytes;
                dead
            }
            _ => self.note_misfit(offset, bytes),
        };
        if head.has_run() {
            self.leave_run(offset, head);
        }
        if dead {
            self.retire_if_dead(slot);
        }
    }

    /// Marks a record that an adopted index names, and that the survey has counted in.
    pub(crate) fn mark(&mut self, offset: u64) {
        self.marks.set(offset);
    }

    /// The length of a record that went is not the one that it had when it came, or that of another
    /// one of its segment wasn't. What is left there counts as before, until the last record goes:
    /// then the segment may be dead.
    #[cold]
    fn note_misfit(&mut self, offset: u64, bytes: u64) -> bool {
        let slot = self.g.slot_of(offset);
        self.unlist(slot);
        self.victim = self.victim.filter(|victim| victim.slot != slot);
        let s = self.slot(slot);
        let is_news = s.list != UNFIT;
        s.list = UNFIT;
        let is_empty = s.records == 0;
        if is_empty {
            let gone = u64::from(std::mem::take(&mut s.live));
            self.live_bytes -= gone;
            self.record_bytes -= gone;
        }
        if is_news {
            let what = "length of a record, or of another one of its segment,";
            let finding =
                (&FormatFault::new(offset, what, "the one that was written", bytes)).into();
            self.region.note_kept(Kept { key: None, finding });
        }
        is_empty
    }

    /// A record that named a run is no longer published.
    #[cold]
    fn leave_run(&mut self, offset: u64, head: &Head) {
        if let Some(fault) = self.fault_of(offset, head) {
            let finding = (&fault).into();
            return self.region.note_kept(Kept { key: None, finding });
        }
        let run = self.run_of(offset, head);
        run.live -= 1;
        let bytes = if run.live == 0 { run.bytes } else { 0 };
        self.live_bytes -= bytes;
        self.retire_run_if_dead(offset, head);
    }

    /// The fault of a record, if it has one; its value in a run is not looked at.
    fn fault_of(&self, offset: u64, head: &Head) -> Option<FormatFault> {
        if let Some(what) = head.fault(&self.g, offset) {
            return Some(FormatFault::new(offset, what, "what arena.md says", format!("{head:?}")));
        }
        let expected = sum::expected(&self.words, offset, head);
        (expected != head.checksum).then(|| sum_fault(offset, head, expected))
    }

    /// A record was staged, or is a part of an intent.
    pub(crate) fn hold(&mut self, offset: u64, head: &Head) {
        let slot = self.g.slot_of(offset);
        self.slot(slot).held += u32::try_from(head.bytes()).expect("shorter than a slot");
        self.held_bytes += head.bytes();
        if head.has_run() {
            let run = self.run_of(offset, head);
            run.held += 1;
            let bytes = if run.held == 1 { run.bytes } else { 0 };
            self.held_bytes += bytes;
        }
    }

    /// A staged record was published or abandoned.
    pub(crate) fn release(&mut self, offset: u64, head: &Head) {
        let slot = self.g.slot_of(offset);
        let units = u32::try_from(head.bytes()).expect("shorter than a slot");
        let s = self.slot(slot);
        s.held = s.held.checked_sub(units).expect("a staged record is committed or abandoned once");
        self.held_bytes -= head.bytes();
        if head.has_run() {
            let run = self.run_of(offset, head);
            run.held = run.held.checked_sub(1).expect("a staged run is released once");
            let bytes = if run.held == 0 { run.bytes } else { 0 };
            self.held_bytes -= bytes;
            self.retire_run_if_dead(offset, head);
        }
        self.close(slot);
    }

    #[cold]
    pub(super) fn run_of(&mut self, offset: u64, head: &Head) -> &mut ValueRun {
        let name = RunName::load(&self.words, offset, head);
        self.runs.get_mut(&name.slot).expect("a record's run is known")
    }

    #[cold]
    pub(super) fn retire_run_if_dead(&mut self, offset: u64, head: &Head) {
        let name = RunName::load(&self.words, offset, head);
        if self.runs.get(&name.slot).is_some_and(|run| run.live == 0 && run.held == 0) {
            self.end_run(name.slot);
        }
    }

    /// Whether a segment takes records.
    pub(super) fn is_head(&self, slot: u32) -> bool {
        let is = |head: Option<HeadSegment>| head.is_some_and(|head| head.slot == slot);
        is(self.head) || is(self.cold)
    }

    pub(super) fn retire_if_dead(&mut self, slot: u32) {
        let s = self.slots[slot as usize];
        if s.state == SlotState::Segment && s.live == 0 && s.held == 0 && !self.is_head(slot) {
            self.retire(Retired::Segment(slot));
        }
    }

    /// Everything published is gone: what is not held is retired.
    pub(crate) fn clear(&mut self) {
        (self.live_bytes, self.record_bytes) = (0, 0);
        self.cold = None;
        for slot in self.g.first_slot..self.g.slots {
            if self.slots[slot as usize].state == SlotState::Segment {
                let s = self.slot(slot);
                (s.records, s.live) = (0, 0);
                self.marks.wipe(slot);
                self.retire_if_dead(slot);
            }
        }
        let mut dead = Vec::new();
        for (&slot, run) in &mut self.runs {
            run.live = 0;
            if run.held == 0 {
                dead.push(slot);
            }
        }
        dead.into_iter().for_each(|slot| self.end_run(slot));
    }

    /// Puts a segment into the list in which it belongs, if it belongs in one.
    #[cold]
    pub(super) fn list(&mut self, slot: u32) {
        let s = self.slots[slot as usize];
        let is_victim = self.victim.is_some_and(|victim| victim.slot == slot);
        let fits = s.state == SlotState::Segment && s.held == 0 && s.list != UNFIT;
        if !fits || is_victim || self.is_head(slot) {
            return;
        }
        self.unlist(slot);
        let used = u64::from(self.words.load32(self.g.tail_offset(slot), Relaxed)) * r::UNIT;
        let unused = u32::try_from(self.g.slot_bytes().saturating_sub(used)).unwrap_or(0);
        self.slot(slot).unused = unused;
        let list = self.lists.of(self.slots[slot as usize].kept());
        self.slot(slot).list = list;
        self.lists.insert(slot, list);
    }

    /// Takes a segment out of its list.
    pub(super) fn unlist(&mut self, slot: u32) {
        let list = self.slots[slot as usize].list;
        if list < LISTS {
            self.lists.remove(slot, list);
            self.slot(slot).list = UNLISTED;
        }
    }
}
