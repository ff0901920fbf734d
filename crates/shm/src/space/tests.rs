//! The numbers at which the upkeep of memory begins and ends, each looked at from both sides: no
//! story of a whole arena notices that one of them is off by one.

mod jobs;
mod memory;
mod runs;
mod turns;

use super::slots::{FIRST_STEP_BYTES, Need, SlotState, Victim};
use super::{Shortage, Space};
use crate::error::{Denial, WriteError};
use crate::format::layout::record as r;
use crate::format::words::SharedWords;
use crate::tests::{Arena, directory, spec};
use std::sync::atomic::Ordering::Relaxed;

const CAPACITY: u64 = 64 << 20;
/// A slot that nothing uses.
const FREE: u32 = 20;
const VICTIM: Victim = Victim { slot: FREE, at: 0, end: 0 };

/// An arena whose counts a test may set: it isn't used behind that.
fn arena() -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), CAPACITY));
    (dir, a)
}

impl Space {
    /// From now on so many bytes aren't backed.
    fn leave(&mut self, bytes: u64) {
        self.backed = CAPACITY - bytes;
    }

    /// So many slots are ready.
    fn have_made_ready(&mut self, slots: u32) {
        self.ready = (FREE..FREE + slots).collect();
        (FREE..FREE + slots).for_each(|slot| self.slot(slot).state = SlotState::Ready);
    }
}

#[test]
fn memory_is_short_below_the_reserve_and_what_is_kept_clean() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    // Two slots in reserve; two to sixteen more, by the segments in use; and what a request lacked.
    for (segments, hunger, slots) in
        [(0, 0, 4), (383, 0, 4), (384, 0, 5), (1 << 14, 0, 18), (0, 3, 7)]
    {
        (s.segments, s.hunger) = (segments, hunger);
        s.leave(slots * slot);
        assert!(!s.is_short(), "{segments} {hunger}");
        s.leave(slots * slot - 1);
        assert!(s.is_short(), "{segments} {hunger}");
    }
    // Ready slots, those that are being backed, and what comes back count like what is unbacked.
    s.hunger = 0;
    s.leave(0);
    s.have_made_ready(1);
    (s.backing, s.coming) = (2, slot);
    assert!(s.available_bytes() == 4 * slot && !s.is_short());
    s.coming -= 1;
    assert!(s.is_short());
    // What a full file system keeps from the arena is missing; what other faults do isn't.
    s.leave(9 * slot);
    for (denied, bytes) in [(Denial::Full, 4 * slot - 1), (Denial::Gone, 13 * slot - 1)] {
        s.denied = Some(denied);
        assert_eq!(s.available_bytes(), bytes);
    }
}

#[test]
fn segments_are_sparse_from_nine_on_that_are_less_than_half_alive() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let half = s.g.slot_bytes() / 2;
    for (segments, record_bytes, is_sparse) in
        [(8, 0, false), (9, 9 * half, false), (9, 9 * half - 1, true)]
    {
        (s.segments, s.record_bytes) = (segments, record_bytes);
        assert_eq!(s.is_sparse(), is_sparse, "{segments} {record_bytes}");
    }
}

#[test]
fn a_turns_end_is_wanted_while_appends_find_less_than_a_slot_beyond_the_reserve() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    for (left, coming, waits) in
        [(3 * slot, 1, false), (3 * slot - 1, 1, true), (3 * slot - 1, 0, false)]
    {
        s.leave(left);
        s.coming = coming;
        assert_eq!(s.waits_for_turn(), waits, "{left} {coming}");
    }
}

#[test]
fn a_refused_request_hungers_for_what_it_lacked_and_twice_what_it_had_staged() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    s.held_bytes = 3 * slot;
    assert_eq!(s.lacks(Shortage::Place), WriteError::Oom);
    assert!(!s.hungers());
    for (lack, error, hunger) in [
        (Shortage::Bytes(2 * slot), WriteError::Oom, 8),
        (Shortage::Bytes(1), WriteError::Oom, 8),
        (Shortage::Denied(3 * slot, Denial::Full), WriteError::Denied(Denial::Full), 9),
    ] {
        assert_eq!((s.lacks(lack), s.hunger, s.lacked), (error, hunger, lack));
    }
    // It is calmed by half in each turn in which nothing was refused, unless cleaning goes on.
    s.calm();
    assert_eq!(s.hunger, 9, "it was refused in this turn");
    s.leave(0);
    s.victim = Some(VICTIM);
    s.calm();
    assert_eq!(s.hunger, 9, "memory is short, and is being cleaned");
    s.victim = None;
    s.calm();
    assert_eq!(s.hunger, 4, "memory is short, and nothing can be cleaned");
    (s.victim, s.backed) = (Some(VICTIM), 0);
    s.calm();
    assert_eq!(s.hunger, 2, "there is memory");
    s.sate();
    assert!(!s.hungers());
    s.held_bytes = CAPACITY;
    s.lacks(Shortage::Bytes(slot));
    assert_eq!(u64::from(s.hunger) * slot, CAPACITY, "never for more than there may be");
}

/// Nothing is cleaned for a request for which live data leaves no room. It was, under pressure: one
/// that was repeated (`SETRANGE nokey 536870000 x`) had each turn clean, and each write pay, for
/// nothing.
#[test]
fn a_request_that_can_never_fit_hungers_for_nothing() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    s.live_bytes = CAPACITY - slot;
    for lack in [Shortage::Bytes(slot + 1), Shortage::Denied(slot + 1, Denial::Full)] {
        s.lacks(lack);
        assert_eq!((s.hunger, s.lacked, s.refused), (0, lack, false));
    }
    assert_eq!(s.lacks_table(slot + 1), WriteError::Oom);
    assert!(!s.hungers() && !s.has_hope(true, false));
    s.lacks(Shortage::Bytes(slot));
    assert!(s.hunger == 1 && s.refused, "it fits when all else is clean");
    s.calm();
    s.lacks(Shortage::Bytes(slot + 1));
    s.calm();
    assert!(!s.hungers(), "what is refused for good keeps no hunger up");
}

#[test]
fn a_table_that_may_have_its_memory_was_denied_it() {
    // What the arena may not use is lacking; what it may use and doesn't get was denied.
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    s.leave(2 * s.g.slot_bytes() + 4096);
    assert_eq!(s.lacks_table(4096), WriteError::Oom);
    s.denied = Some(Denial::Full);
    assert_eq!(s.lacks_table(4096), WriteError::Denied(Denial::Full));
    assert_eq!(s.lacks_table(4097), WriteError::Oom);
}

#[test]
fn memory_is_cleaned_for_a_table_up_to_85_per_cent() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    s.have_made_ready(4);
    s.live_bytes = CAPACITY / 100 * 85 - slot - 1;
    s.clean_for_table(slot + 2);
    assert!(!s.hungers() && !s.refused);
    s.clean_for_table(slot + 1);
    assert!(s.hunger == 2 && s.refused && s.ready.len() == 4);
    // Ready slots beyond the reserve are given back for it only if nothing else is left.
    s.leave(slot);
    s.clean_for_table(slot);
    assert_eq!(s.ready.len(), 4);
    s.hunger = 0;
    s.live_bytes = CAPACITY;
    s.clean_for_table(slot + 1);
    assert_eq!(s.ready.len(), 4, "nothing hungers");
    s.hunger = 1;
    s.clean_for_table(slot + 1);
    assert_eq!(s.ready.len(), 2);
}

#[test]
fn a_refused_request_has_hope_if_something_comes_back_and_is_enough() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    s.lacked = Shortage::Place;
    assert!(!s.has_hope(false, false) && s.has_hope(true, true));
    s.pending = 1;
    assert!(s.has_hope(false, true), "a job is under way");
    s.pending = 0;
    for lacked in [Shortage::Bytes(slot), Shortage::Denied(slot, Denial::Full)] {
        s.lacked = lacked;
        s.live_bytes = CAPACITY - slot;
        assert!(!s.has_hope(false, false) && s.has_hope(true, true));
        s.victim = Some(VICTIM);
        assert!(s.has_hope(false, false));
        s.live_bytes += 1;
        assert!(!s.has_hope(true, false), "live data leaves too little");
        s.live_bytes -= 1;
        // Cleaning has stopped for want of a segment, and may find one now.
        s.leave(slot);
        assert!(s.has_hope(false, true));
        s.leave(slot - 1);
        assert!(!s.has_hope(false, true));
        s.have_made_ready(1);
        assert!(s.has_hope(false, true));
        s.coming = 1;
        assert!(!s.has_hope(false, true), "the last ready slot stays if something comes back");
        s.have_made_ready(2);
        assert!(s.has_hope(false, true));
        s.have_made_ready(0);
        s.leave(slot);
        s.denied = Some(Denial::Full);
        assert!(!s.has_hope(false, true));
        (s.denied, s.coming, s.victim) = (None, 0, None);
    }
}

#[test]
fn a_victim_is_worth_its_work_below_62_or_32_of_64_parts() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    s.segments = 4;
    for (list, pressure, packing) in
        [(62, false, false), (61, true, false), (32, true, false), (31, true, true)]
    {
        s.lists.insert(FREE, list);
        let has = (s.has_victim(Need::Pressure), s.has_victim(Need::Packing));
        assert_eq!(has, (pressure, packing), "{list}");
        s.lists.remove(FREE, list);
    }
    s.segments = 3;
    s.lists.insert(FREE, 0);
    assert!(s.has_victim(Need::Pressure) && !s.has_victim(Need::Packing));
    assert!(s.take_victim(Need::Packing).is_none());
}

#[test]
fn a_victim_is_gone_through_up_to_its_tail() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let (at, slot) = (s.g.slot_offset(FREE), s.g.slot_bytes());
    assert_eq!(s.gain(), (slot, slot));
    for (tail, used) in [(5, 5 * r::UNIT), (u32::MAX, slot)] {
        s.words.store32(s.g.tail_offset(FREE), tail, Relaxed);
        s.lists.insert(FREE, 3);
        let it = s.slot(FREE);
        (it.list, it.live, it.unused) = (3, 100, 28);
        assert_eq!(s.gain(), (slot - 128, slot));
        let victim = s.take_victim(Need::Pressure).expect("one");
        assert_eq!((victim.slot, victim.at, victim.end), (FREE, at, at + used));
        assert!(s.is_victim(FREE) && !s.is_victim(FREE + 1) && s.lists.lowest().is_none());
        assert_eq!(s.gain(), (slot - 128, slot));
        s.victim = None;
    }
}

#[test]
fn ready_slots_are_kept_by_the_segments_and_by_what_was_taken_of_late() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    for (segments, wanted) in [(3, 1), (4, 4), (95, 4), (96, 5), (1 << 14, 66)] {
        s.segments = segments;
        assert_eq!(s.ready_wanted(), wanted, "{segments}");
    }
    s.segments = 0;
    s.have_made_ready(3);
    assert!(!s.give_back());
    s.have_made_ready(4);
    assert!(s.give_back() && (s.ready.len(), s.pending) == (3, 1));
    // Nine segments were opened of late, and so many are in use.
    s.tell_time(1);
    (0..9).for_each(|_| s.demand.note());
    for segments in [8, 9, 10] {
        s.segments = segments;
        assert_eq!(s.kept_warm(), segments.min(9) as usize);
    }
    s.have_made_ready(9);
    assert!(!s.give_back());
    s.leave(CAPACITY / 8);
    assert_eq!(s.kept_warm(), 9);
    s.leave(CAPACITY / 8 - 1);
    assert_eq!(s.kept_warm(), 0, "little is left");
    s.leave(CAPACITY);
    s.hunger = 1;
    assert_eq!(s.kept_warm(), 0, "a request lacks some");
}

#[test]
fn slots_are_asked_for_ahead_once_the_first_segment_is_half_full() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let s = &mut a.writer.space;
    let (head, slot) = (s.head.expect("a head"), s.g.slot_bytes());
    let asked_at = |s: &mut Space, left: u64| {
        s.head.as_mut().expect("a head").next = head.end - left;
        let before = s.asked_slots;
        s.provision();
        s.asked_slots - before
    };
    assert_eq!(asked_at(s, slot / 2), 0);
    assert_eq!(asked_at(s, slot / 2 - r::UNIT), 1);
    assert_eq!((asked_at(s, 0), s.backing), (0, 1), "one is enough for few segments");
    s.segments = 2;
    s.backing = 0;
    assert_eq!(asked_at(s, slot), 1, "the second segment has begun");
    // Behind that, as many as the segments want.
    (s.segments, s.backing) = (9, 1);
    s.have_made_ready(1);
    assert_eq!((asked_at(s, 0), s.backing), (2, 3));
    // A request hungers: the reserve, and no more.
    (s.hunger, s.backing) = (1, 0);
    assert_eq!((asked_at(s, 0), s.backing), (1, 1));
    s.hunger = 0;
    s.leave(slot - 1);
    assert_eq!(asked_at(s, 0), 0, "the arena may not use so much");
    s.leave(slot);
    assert_eq!((asked_at(s, 0), s.backed), (1, CAPACITY));
    s.leave(9 * slot);
    s.denied = Some(Denial::Full);
    assert_eq!(asked_at(s, 0), 0, "the system refused some");
}

#[test]
fn what_the_reserve_lacks_is_kept_back() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.g.slot_bytes();
    let is_kept_back = |s: &mut Space, of_head: u64| {
        s.leave(5 * slot);
        for (ready, backing, left) in [(0, 0, 3), (1, 0, 4), (0, 1, 4), (1, 1, 5), (2, 1, 5)] {
            s.have_made_ready(ready);
            s.backing = backing;
            assert_eq!((s.budget(false), s.budget(true)), (left * slot - of_head, 5 * slot));
        }
    };
    is_kept_back(s, 0);
    // So is what the first head lacks, of which a step is backed.
    s.have_made_ready(0);
    (s.backed, s.backing) = (0, 0);
    s.reserve(r::UNIT, false).unwrap();
    is_kept_back(s, slot - FIRST_STEP_BYTES);
    s.have_made_ready(0);
    (s.backing, s.backed) = (0, CAPACITY - slot);
    assert_eq!(s.budget(false), 0);
}

#[test]
fn the_head_is_filled_to_its_last_byte() {
    // A record that just fits is taken where it fits: in what is backed, in what can be, and not
    // beyond the capacity.
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let s = &mut a.writer.space;
    let head = s.head.expect("a head");
    assert_eq!(head.backed_end - s.g.slot_offset(head.slot), FIRST_STEP_BYTES);
    let (at, backed) = (head.next, s.backed);
    assert_eq!(s.reserve(head.backed_end - at, false), Ok(at));
    assert_eq!(s.backed, backed, "nothing was taken");
    // The next step is backed whole; twice that for a record that is longer than one.
    s.leave(FIRST_STEP_BYTES - 1);
    assert_eq!(s.reserve(r::UNIT, false), Err(WriteError::Oom));
    s.leave(FIRST_STEP_BYTES);
    assert_eq!(s.reserve(r::UNIT, false), Ok(head.backed_end));
    assert_eq!(s.backed, CAPACITY);
    let step = s.head.expect("a head");
    assert_eq!(step.backed_end - head.backed_end, FIRST_STEP_BYTES);
    s.leave(CAPACITY / 2);
    s.reserve(FIRST_STEP_BYTES * 2, false).unwrap();
    let long = s.head.expect("a head");
    assert_eq!(long.backed_end - step.backed_end, 2 * FIRST_STEP_BYTES);
    assert_eq!(s.backed, CAPACITY / 2 + 2 * FIRST_STEP_BYTES);
    // What is left of the slot is just enough.
    let rest = long.end - long.next;
    assert_eq!((s.reserve(rest, false), s.segments), (Ok(long.next), 1));
    assert_eq!(s.head.expect("a head").next, long.end);
}

#[test]
fn a_run_lies_in_free_slots_of_one_window() {
    // The lowest place that is long enough, on one side of a line of 4 GiB, and within the file.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 << 30));
    let s = &mut a.writer.space;
    let (window, slots) = (s.g.slots_per_window(), s.g.slots);
    s.occupy_below(window - 2);
    assert_eq!(s.find_free(2), Some(window - 2));
    assert_eq!(s.find_free(3), Some(window));
    assert_eq!((s.find_free(window), s.find_free(window + 1)), (Some(window), None));
    s.occupy(window + 2, 1);
    assert_eq!((s.find_free(2), s.find_free(3)), (Some(window - 2), Some(window + 3)));
    s.occupy_below(slots - 4);
    assert_eq!((s.find_free(4), s.find_free(5)), (Some(slots - 4), None));
    s.free(window, 2);
    assert_eq!((s.find_free(2), s.find_free(3)), (Some(window), Some(slots - 4)));
    s.occupy_below(slots);
    assert_eq!(s.find_free(1), None);
    // The last window is short.
    let mut a = Arena::create(&spec(dir.path().join("b"), (5 << 30) + (16 << 20)));
    let s = &mut a.writer.space;
    let last = s.g.slots / window * window;
    let rest = s.g.slots - last;
    assert!((1..window).contains(&rest));
    s.occupy_below(last - 2);
    assert_eq!((s.find_free(rest), s.find_free(rest + 1)), (Some(last), None));
}

#[test]
fn a_run_that_grows_is_backed_an_eighth_ahead() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let backed = s.backed;
    let (slot, slots) = s.take_value_run(100 * 4096, true, true, false).unwrap();
    assert_eq!((slots, s.backed - backed), (4, 100 * 4096));
    s.name_run((slot, slots), true, 100 * 4096, 0);
    assert_eq!(s.spare_slots, 2);
    // Up to its pages nothing is taken; then an eighth more, but 64 KiB at most, and no more than
    // the slots have.
    for (from, to, pages) in [
        (100 * 4096, 100 * 4096, 100),
        (100 * 4096, 104 * 4096, 117),
        (104 * 4096, 117 * 4096, 117),
        (117 * 4096, 200 * 4096, 216),
        (200 * 4096, 250 * 4096, 256),
    ] {
        assert_eq!(s.extend_run(slot, from, to, false), Ok(true));
        assert_eq!((s.runs[&slot].bytes, s.backed - backed), (pages * 4096, pages * 4096));
    }
    assert_eq!(s.spare_slots, 0, "the value takes all of them");
    assert_eq!(s.extend_run(slot, 250 * 4096, 256 * 4096 + 1, false), Ok(false), "it is too short");
    assert_eq!(s.extend_run(slot, 249 * 4096, 251 * 4096, false), Ok(false), "it was written to");
    assert_eq!(s.extend_run(slot, 250 * 4096, 256 * 4096, false), Ok(true));
}

#[test]
fn a_run_takes_what_it_must_if_there_is_not_more() {
    // Ready slots give way to it; it isn't backed ahead then.
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot_bytes = s.g.slot_bytes();
    let (slot, slots) = s.take_value_run(64 * 4096, true, true, false).unwrap();
    s.name_run((slot, slots), true, 64 * 4096, 0);
    let run = s.runs.get_mut(&slot).unwrap();
    (run.live, run.held) = (1, 1);
    (s.live_bytes, s.held_bytes) = (run.bytes, run.bytes);
    s.leave(2 * slot_bytes + 4096);
    assert_eq!(s.extend_run(slot, 64 * 4096, 66 * 4096, false), Err(WriteError::Oom));
    assert_eq!(s.extend_run(slot, 64 * 4096, 65 * 4096, false), Ok(true));
    assert_eq!((s.runs[&slot].bytes, s.backed), (65 * 4096, CAPACITY - 2 * slot_bytes));
    assert_eq!((s.live_bytes, s.held_bytes), (65 * 4096, 65 * 4096));
    // What is urgent takes of the reserve.
    assert_eq!(s.extend_run(slot, 65 * 4096, 66 * 4096, true), Ok(true));
    // All the room of runs together is a quarter of the slots.
    s.spare_slots = s.g.slots / 4;
    assert_eq!(s.roomy(64 * 4096, true), None);
    s.spare_slots -= 1;
    assert_eq!(s.roomy(64 * 4096, true), Some(2));
}
