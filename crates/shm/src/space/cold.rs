//! The cleaner's part of the memory: a victim, room in the cold head, and when it has to work.
//!
//! 1. A victim has no staged record, and is no head.
//! 2. The cleaner may take the last ready slot if nothing is coming back by itself: its live bytes
//!    fit a segment, so that at least one comes back for it; unless damage keeps the victim (see
//!    `cleaner`), and then the cleaner stops for want of room, until clients have deleted
//!    something.
//!
//! The arena's writer only.

use super::Space;
use super::lists::{LISTS, UNFIT, UNLISTED};
use super::slots::{Need, RECLAIM_STEP, RESERVE_SEGMENTS, Shortage, Victim};
use crate::error::WriteError;
use crate::format::layout::record as r;
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::Relaxed;

/// Lists from which a victim is worth its work under pressure: below 31/32 alive. Above that, more
/// than 32 bytes would be copied for each that is won.
const WORTHWHILE_LISTS: u8 = LISTS - 2;
/// Lists from which a victim is worth being packed in idle time: less than half alive, so that it
/// gives more than it costs.
const PACKED_LISTS: u8 = LISTS / 2;
/// Live bytes up to which memory is cleaned for a table ahead of need, per cent of the capacity
/// with the table: beyond, the cleaner would copy some six bytes for each that it wins.
const TABLE_PERCENT: u64 = 85;
/// Segments are sparse if so many times their live bytes are in use, and more than
/// [`SPARSE_FROM_SEGMENTS`]: cleaning then wins four bytes for each that it copies when records are
/// overwritten at random.
const SPARSE_TIMES: u64 = 2;
const SPARSE_FROM_SEGMENTS: u32 = 8;
/// Below so many segments, packing would not give a segment back.
const PACK_FROM_SEGMENTS: u32 = 4;
/// Segments kept clean beyond the reserve, per segment in use: 1/128, which costs less than one per
/// cent of the memory.
const CLEAN_SHARE: u32 = 128;
/// At least and most segments kept clean beyond the reserve: one for each head, and what some turns
/// of a shard append (16 MiB at the largest slot).
const CLEAN_SEGMENTS: (u32, u32) = (2, 16);

impl Space {
    /// Bytes that can be taken now or after a grace period.
    pub(crate) fn available_bytes(&self) -> u64 {
        self.usable_bytes() + self.backing as u64 * self.g.slot_bytes() + self.coming
    }

    /// Bytes that can be taken now.
    fn usable_bytes(&self) -> u64 {
        // Memory that other faults keep from the arena is not missing: no key has to go for it.
        let unbacked = match self.denied {
            Some(denial) if denial.is_full() => 0,
            _ => self.g.capacity_bytes.saturating_sub(self.backed),
        };
        unbacked + self.ready.len() as u64 * self.g.slot_bytes()
    }

    /// Bytes below which the cleaner works.
    fn target_bytes(&self) -> u64 {
        let (least, most) = CLEAN_SEGMENTS;
        let ahead = (self.segments / CLEAN_SHARE).clamp(least, most) + self.hunger;
        (RESERVE_SEGMENTS as u64 + u64::from(ahead)) * self.g.slot_bytes()
    }

    /// Whether memory is short.
    pub(crate) fn is_short(&self) -> bool {
        self.available_bytes() < self.target_bytes()
    }

    /// Whether segments take much more memory than what lives in them.
    pub(crate) fn is_sparse(&self) -> bool {
        self.segments > SPARSE_FROM_SEGMENTS
            && self.segment_bytes() > SPARSE_TIMES * self.record_bytes
    }

    /// Whether appends will find no segment before something comes back that waits for the turn's
    /// end.
    pub(crate) fn waits_for_turn(&self) -> bool {
        let least = (RESERVE_SEGMENTS as u64 + 1) * self.g.slot_bytes();
        self.coming > 0 && self.usable_bytes() < least
    }

    /// Notes what a request lacked. What it has staged before it will give back now and want again,
    /// and nobody knows how much more: twice as much is a guess that is soon right. For what live
    /// data leaves no room, cleaning makes none.
    #[cold]
    pub(super) fn lacks(&mut self, lack: Shortage) -> WriteError {
        self.lacked = lack;
        match lack {
            Shortage::Place => self.refused = true,
            Shortage::Bytes(bytes) | Shortage::Denied(bytes, _) if self.may_hold(bytes) => {
                let most = self.g.slots_for(self.g.capacity_bytes);
                let slots = self.g.slots_for(bytes) + self.g.slots_for(2 * self.held_bytes);
                self.hunger = self.hunger.max(slots.min(most));
                self.refused = true;
            }
            Shortage::Bytes(_) | Shortage::Denied(..) => {}
        }
        match lack {
            Shortage::Denied(_, denial) => WriteError::Denied(denial),
            Shortage::Bytes(_) | Shortage::Place => WriteError::Oom,
        }
    }

    /// Notes that a request lacked a place that is under way.
    #[cold]
    pub(crate) fn lacks_place(&mut self) -> WriteError {
        self.lacks(Shortage::Place)
    }

    /// Notes that a request lacked memory for a table.
    #[cold]
    pub(crate) fn lacks_table(&mut self, bytes: u64) -> WriteError {
        match self.denied {
            Some(denial) if bytes <= self.budget(false) => {
                self.lacks(Shortage::Denied(bytes, denial))
            }
            _ => self.lacks(Shortage::Bytes(bytes)),
        }
    }

    /// Nothing is lacking any more: the refused request has found another way.
    #[cold]
    pub(crate) fn sate(&mut self) {
        (self.hunger, self.refused) = (0, false);
    }

    /// Has memory made for a table: cleaned, if live data leaves so much that it costs little, and
    /// ready slots beyond the reserve given back.
    pub(crate) fn clean_for_table(&mut self, bytes: u64) {
        if self.live_bytes + bytes <= self.g.capacity_bytes / 100 * TABLE_PERCENT {
            self.refused = true;
            self.hunger = self.hunger.max(self.g.slots_for(bytes));
        }
        if self.hungers() && bytes > self.budget(false) {
            self.shrink_ready();
        }
    }

    /// Whether a request was refused of late.
    pub(crate) fn hungers(&self) -> bool {
        self.hunger > 0
    }

    /// Whether what was lacked last may come: live data leaves room for it, and something comes
    /// back by itself (the caller knows of more) or by cleaning, unless that has stopped for lack
    /// of room. It ends: what is under way gets done, hunger keeps anything new from being begun,
    /// and victims get fewer.
    pub(crate) fn has_hope(&self, more_comes: bool, stopped: bool) -> bool {
        let comes = more_comes || self.busy();
        match self.lacked {
            Shortage::Place => comes,
            Shortage::Bytes(bytes) | Shortage::Denied(bytes, _) => {
                let cleans = self.has_victim(Need::Pressure) && (!stopped || self.can_open_cold());
                self.may_hold(bytes) && (comes || cleans)
            }
        }
    }

    /// Whether live data leaves room for so many bytes.
    fn may_hold(&self, bytes: u64) -> bool {
        self.live_bytes + bytes <= self.g.capacity_bytes
    }

    /// Memory that nobody has taken since, or that cleaning can't give, is no longer cleaned for.
    pub(crate) fn calm(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        let wants_more = self.is_short() && self.has_victim(Need::Pressure);
        if !refused && !wants_more {
            self.hunger /= 2;
        }
    }

    /// Whether the cleaner has something to do that is worth it.
    pub(crate) fn has_victim(&self, need: Need) -> bool {
        let below = match need {
            Need::Pressure => WORTHWHILE_LISTS,
            Need::Packing if self.segments < PACK_FROM_SEGMENTS => 0,
            Need::Packing => PACKED_LISTS,
        };
        self.victim.is_some() || self.lists.lowest().is_some_and(|(list, _)| list < below)
    }

    /// The segment to empty; the one with the fewest live bytes if none is being emptied yet.
    pub(crate) fn take_victim(&mut self, need: Need) -> Option<Victim> {
        if self.victim.is_none() && self.has_victim(need) {
            let (_, slot) = self.lists.lowest()?;
            self.unlist(slot);
            let at = self.g.slot_offset(slot);
            let tail = self.words.load32(self.g.tail_offset(slot), Relaxed);
            let used = (u64::from(tail) * r::UNIT).min(self.g.slot_bytes());
            self.victim = Some(Victim { slot, at, end: at + used });
        }
        self.victim
    }

    /// Bytes that emptying the next victim wins, and bytes of a segment.
    pub(crate) fn gain(&self) -> (u64, u64) {
        let slot = self.victim.map(|victim| victim.slot);
        let slot = slot.or_else(|| self.lists.lowest().map(|(_, slot)| slot));
        let kept = slot.map_or(0, |slot| u64::from(self.slots[slot as usize].kept()));
        (self.g.slot_bytes().saturating_sub(kept), self.g.slot_bytes())
    }

    /// What died has no mark any more: before [`Self::next_live`].
    pub(crate) fn forget_dead(&mut self) {
        self.marks.take_dead();
    }

    /// Where the victim's next live record begins, from `at` on.
    #[inline]
    pub(crate) fn next_live(&self, victim: &Victim, at: u64) -> Option<u64> {
        self.marks.next(at, victim.end)
    }

    /// The cleaner has come so far with its victim.
    pub(crate) fn advance_victim(&mut self, at: u64) {
        if let Some(victim) = &mut self.victim {
            victim.at = at;
        }
    }

    /// Whether a segment is still being emptied.
    #[inline]
    pub(crate) fn is_victim(&self, slot: u32) -> bool {
        self.victim.is_some_and(|victim| victim.slot == slot)
    }

    /// A victim in which something stays that can't be moved is left alone until it dies. Returns
    /// how many of its live records have no mark: damage made two entries name one.
    pub(crate) fn give_up_victim(&mut self) -> u32 {
        let Some(victim) = self.victim.take() else { return 0 };
        let slot = self.slot(victim.slot);
        debug_assert!(slot.list == UNLISTED);
        slot.list = UNFIT;
        let records = slot.records;
        records.saturating_sub(self.marks.count(victim.slot))
    }

    /// Room in the cold head; `None` if there is no segment to be had now.
    #[inline]
    pub(crate) fn reserve_cold(&mut self, bytes: u64) -> Option<u64> {
        if self.cold.is_none_or(|cold| bytes > cold.end - cold.next) {
            self.open_cold()?;
        }
        let cold = self.cold.as_mut()?;
        let at = cold.next;
        cold.next += bytes;
        Some(at)
    }

    #[cold]
    fn open_cold(&mut self) -> Option<()> {
        self.collect(RECLAIM_STEP);
        self.have_ready(self.kept_from_cold()).ok()?;
        let slot = self.ready.pop_first()?;
        if let Some(old) = self.cold.take() {
            self.close(old.slot);
        }
        self.cold = Some(self.head_at(slot));
        Some(())
    }

    /// Ready slots that the cold head leaves (invariant 2).
    fn kept_from_cold(&self) -> usize {
        usize::from(self.coming > 0)
    }

    /// Whether there is a slot for another cold head.
    fn can_open_cold(&self) -> bool {
        let unbacked = self.denied.is_none() && self.budget(true) >= self.g.slot_bytes();
        unbacked || self.ready.len() > self.kept_from_cold()
    }

    /// The cold head's used part ends behind what was reserved: to be stored before it is
    /// published.
    #[inline]
    pub(crate) fn store_cold_tail(&self) {
        if let Some(cold) = &self.cold {
            self.store_tail_of(cold);
        }
    }
}
