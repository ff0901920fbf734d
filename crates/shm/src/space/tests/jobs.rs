//! What comes of memory that is retired, asked for and given back.

use super::{CAPACITY, FREE, VICTIM, arena};
use crate::RecordRef;
use crate::error::{Denial, WriteError};
use crate::failpoints::SlowJobs;
use crate::format::head::Head;
use crate::format::layout::{record as r, run_record_bytes};
use crate::format::words::SharedWords;
use crate::memory::provision::{JobDone, QUEUE_JOBS, Task};
use crate::space::Space;
use crate::space::lists::UNFIT;
use crate::space::slots::{
    FIRST_STEP_BYTES, HeadSegment, Retired, Shortage, Slot, SlotState, Victim, WAIT_MAX,
};
use crate::tests::Arena;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Jobs that the memory thread's queue takes, and the one that the thread has taken.
const UNDER_WAY_MAX: usize = QUEUE_JOBS + 1;

/// An arena's memory thread is late as long as this lives: a test that fails doesn't wait for it.
struct Late(SlowJobs);

impl Late {
    fn by_us(us: u64, a: &Arena) -> Late {
        let slow = a.domain.provisioner().slow.clone();
        slow.set(us);
        Late(slow)
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

/// A key with a value in a run, and two staged records of it that name the same run.
fn two_expiries_of_one_run(a: &mut Arena) -> [RecordRef; 2] {
    a.put(b"long", &[1; 200_000], 0).unwrap();
    let (pin, hash) = (a.me.pin(), a.writer.hash(b"long"));
    let from = a.reader.get(&pin, hash, b"long").expect("a key").reference();
    [5, 6].map(|expiry| a.writer.stage_expiry(&pin, from, hash, b"long", expiry).unwrap())
}

/// Has two slots be segments.
fn two_segments(s: &mut Space) {
    for slot in [FREE, FREE + 1] {
        *s.slot(slot) = Slot::new(SlotState::Segment);
        s.marks.begin(slot);
    }
    s.segments += 2;
}

#[test]
fn what_the_memory_thread_did_or_was_denied_is_counted() {
    use SlotState::{Fixed, Free, Moving, Ready, Run};
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let (bytes, end) = (s.g.slot_bytes(), s.g.slots);
    let (half, gone, full) = (CAPACITY / 2, Some(Denial::Gone), Some(Denial::Full));
    // The task, its outcome, what the slot is for; then slots that are on their way to be segments,
    // backed and coming bytes, the last denial, the slot, and the lowest one that is free.
    for (task, denied, before, after) in [
        (Task::Back, None, Moving, (0, half, bytes, None, Ready, end)),
        (Task::Back, None, Run, (1, half, bytes, None, Run, end)),
        (Task::Back, full, Moving, (0, half - bytes, bytes, full, Free, FREE)),
        (Task::Back, full, Run, (1, half - bytes, bytes, full, Free, FREE)),
        (Task::Punch, None, Moving, (1, half - bytes, 0, None, Free, FREE)),
        // The pages stay, and so does what is counted of them.
        (Task::Punch, full, Moving, (1, half, 0, gone, Fixed, end)),
    ] {
        (s.pending, s.backing, s.backed, s.coming) = (3, 1, half, bytes);
        (s.denied, s.lowest_free) = (gone, end);
        s.ready.clear();
        s.slot(FREE).state = before;
        let result = denied.map_or(Ok(()), Err);
        s.done(JobDone { task, slot: FREE, slots: 1, bytes, result });
        let state = s.slots[FREE as usize].state;
        let found = (s.backing, s.backed, s.coming, s.denied, state, s.lowest_free);
        assert_eq!(found, after, "{task:?} {denied:?} {before:?}");
        assert_eq!((s.pending, s.ready.contains(&FREE)), (2, state == Ready));
        let told = (before == Run).then_some(denied.is_none());
        assert_eq!(s.table_done(FREE), told, "{task:?} {denied:?} {before:?}");
    }
    s.pending = 0;
}

#[test]
fn a_segment_that_comes_back_is_ready_again_or_given_back_if_there_are_enough() {
    for (ready, state, pending) in [(2, SlotState::Ready, 0), (3, SlotState::Moving, 1)] {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        let (slot, bytes) = (FREE + 9, s.g.slot_bytes());
        s.have_made_ready(ready);
        s.words.store32(s.g.tail_offset(slot), 7, Relaxed);
        s.denied = Some(Denial::Full);
        s.reuse_segment(slot);
        assert_eq!((s.slots[slot as usize].state, s.pending), (state, pending));
        assert_eq!((s.ready.len(), s.coming), (3, u64::from(pending) * bytes));
        assert_eq!((s.words.load32(s.g.tail_offset(slot), Relaxed), s.denied), (0, None));
    }
}

#[test]
fn a_segment_that_is_retired_is_no_victim_any_more() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    two_segments(s);
    let begin = s.g.slot_offset(FREE);
    let whole = Victim { at: begin, end: begin + s.g.slot_bytes(), ..VICTIM };
    s.mark(begin);
    assert_eq!(s.next_live(&whole, begin), Some(begin));
    s.list(FREE + 1);
    s.victim = Some(VICTIM);
    s.retire(Retired::Segment(FREE + 1));
    assert!(s.is_victim(FREE) && s.lists.lowest().is_none());
    s.retire(Retired::Segment(FREE));
    let bytes = 2 * s.g.slot_bytes();
    assert!(s.victim.is_none() && s.busy() && s.next_live(&whole, begin).is_none());
    assert_eq!((s.segments, s.coming, s.given_up, s.retired()), (0, bytes, bytes, 2));
    assert!(s.slots[FREE as usize].state == SlotState::Retired);
}

#[test]
fn a_wait_ends_when_it_has_what_it_wants_or_nothing_is_under_way_or_after_two_milliseconds() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let looks = |s: &mut Space, pending: u32, enough: bool| {
        s.pending = pending;
        let mut looks = 0;
        s.wait(&mut |_| {
            looks += 1;
            enough
        });
        looks
    };
    assert_eq!((looks(s, 0, false), looks(s, 1, true)), (1, 1));
    let began = Instant::now();
    looks(s, 1, false);
    assert!(began.elapsed() >= WAIT_MAX);
    // What comes back is taken meanwhile.
    two_segments(s);
    s.retire(Retired::Segment(FREE));
    a.me.quiescent();
    let s = &mut a.writer.space;
    s.wait(&mut |s| s.retired() == 0);
    assert!(s.ready.contains(&FREE));
    s.pending = 0;
}

#[test]
fn what_finds_no_place_in_the_memory_threads_queue_is_done_at_once_or_not_begun() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    // Its first job is still to come at the end, however slow this thread is.
    let _late = Late::by_us(60_000_000, &a);
    let s = &mut a.writer.space;
    let bytes = s.g.slot_bytes();
    s.back_slot_now().expect("memory");
    let slot = s.ready.pop_first().expect("a slot");
    // The queue is full, and stays so: the thread has taken a job out of it already. The last was
    // done here.
    let is_full = (0..100_000).any(|_| {
        let before = s.pending as usize;
        s.backed = CAPACITY;
        s.punch(slot, 1, bytes);
        let done_here = s.pending as usize == before;
        if done_here && before < UNDER_WAY_MAX {
            std::thread::sleep(Duration::from_micros(50));
        }
        done_here && before == UNDER_WAY_MAX
    });
    assert!(is_full, "{} jobs are under way", s.pending);
    assert!(s.slots[slot as usize].state == SlotState::Free);
    let coming = u64::from(s.pending) * bytes;
    assert_eq!((s.backed, s.coming), (CAPACITY - bytes, coming));
    // Nothing new is begun.
    s.leave(20 * bytes);
    s.segments = 2;
    let found = |s: &mut Space| (s.backed, s.pending, s.backing, s.asked_slots, s.find_free(2));
    let before = found(s);
    s.provision();
    assert_eq!((s.ask_for_table(bytes + 1), found(s)), (None, before));
}

#[test]
fn a_segment_stands_in_a_list_unless_it_takes_records_or_something_of_it_stays() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    two_segments(s);
    let (at, bytes) = (s.g.slot_offset(FREE), s.g.slot_bytes());
    (s.slot(FREE).records, s.slot(FREE).live) = (1, 100);
    let units = u32::try_from(bytes / 4 / r::UNIT).expect("a few");
    s.words.store32(s.g.tail_offset(FREE), units, Relaxed);
    let unused = u32::try_from(bytes / 4 * 3).expect("less than a slot");
    let list = s.lists.of(100 + unused);
    // Twice is once. Another one may be the head or the victim.
    let head = |slot| Some(HeadSegment { slot, next: at, backed_end: at, end: at });
    (s.head, s.victim) = (head(FREE + 1), Some(Victim { slot: FREE + 1, ..VICTIM }));
    (0..2).for_each(|_| s.list(FREE));
    assert_eq!((s.slots[FREE as usize].unused, s.lists.lowest()), (unused, Some((list, FREE))));
    (0..2).for_each(|_| s.unlist(FREE));
    assert_eq!(s.lists.lowest(), None);
    (s.head, s.victim) = (None, None);
    let hindrances: [fn(&mut Space, Option<HeadSegment>); 7] = [
        |s, _| s.slot(FREE).state = SlotState::Run,
        |s, _| s.slot(FREE).held = 1,
        |s, _| s.slot(FREE).list = UNFIT,
        |s, _| s.victim = Some(VICTIM),
        |s, _| {
            // The cleaner has met something that it couldn't move.
            s.victim = Some(VICTIM);
            s.give_up_victim();
        },
        |s, head| s.head = head,
        |s, head| s.cold = head,
    ];
    let as_it_was = s.slots[FREE as usize];
    for hinder in hindrances {
        hinder(s, head(FREE));
        s.list(FREE);
        assert_eq!(s.lists.lowest(), None);
        *s.slot(FREE) = as_it_was;
        (s.head, s.cold, s.victim) = (None, None, None);
    }
    s.list(FREE);
    assert_eq!(s.lists.lowest(), Some((list, FREE)));
}

#[test]
fn nothing_of_what_is_cleared_counts_but_what_is_staged() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let [long, longer] = two_expiries_of_one_run(&mut a);
    let staged = a.writer.stage(a.writer.hash(b"s"), b"s", &[b"v"], 0).unwrap();
    a.writer.abandon(&[longer]);
    a.writer.clear();
    let s = &mut a.writer.space;
    let head = s.head.expect("a head");
    let it = s.slots[head.slot as usize];
    assert_eq!((it.records, it.live, u64::from(it.held)), (0, 0, s.held_bytes - 49 * 4096));
    assert_eq!((s.live_bytes, s.record_bytes, s.runs.len()), (0, 0, 1));
    let at = s.g.slot_offset(head.slot);
    let whole = Victim { slot: head.slot, at, end: head.end };
    s.forget_dead();
    assert_eq!(s.next_live(&whole, at), None);
    a.writer.abandon(&[long]);
    assert_eq!(a.writer.space.runs.len(), 0);
    a.writer.commit(&a.me.pin(), false, &[staged]).unwrap();
    assert_eq!(a.get(b"s").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_run_is_held_once_however_many_staged_records_name_it() {
    let (_dir, mut a) = arena();
    let staged = two_expiries_of_one_run(&mut a);
    let (record, run) = (run_record_bytes(b"long".len()), 49 * 4096);
    let abandon = |a: &mut Arena, reference: RecordRef| {
        a.writer.abandon(&[reference]);
        a.writer.space.held_bytes
    };
    assert_eq!(a.writer.space.held_bytes, 2 * record + run);
    assert_eq!((abandon(&mut a, staged[1]), abandon(&mut a, staged[0])), (record + run, 0));
    assert_eq!(a.writer.space.live_bytes, record + run);
    let fill = a.writer.fill();
    assert_eq!((fill.record_bytes, fill.run_bytes), (record, run));
}

#[test]
fn a_segment_whose_records_do_not_fit_its_bytes_is_left_alone_until_the_last_has_gone() {
    // Damage made one of its records longer, and it was counted in before.
    for victim in [FREE, FREE + 1] {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        two_segments(s);
        let at = s.g.slot_offset(FREE);
        (s.slot(FREE).records, s.slot(FREE).live) = (2, 96);
        (s.live_bytes, s.record_bytes) = (1000, 500);
        s.list(FREE);
        s.victim = Some(Victim { slot: victim, ..VICTIM });
        let long = Head { value_len: 1000, ..Head::EMPTY };
        s.discharge(at, &long);
        let it = s.slots[FREE as usize];
        assert_eq!((it.state, it.list, it.live), (SlotState::Segment, UNFIT, 96));
        assert_eq!((s.lists.lowest(), s.is_victim(victim)), (None, victim != FREE));
        assert_eq!((s.live_bytes, s.record_bytes), (1000, 500), "what is left counts as before");
        assert_eq!(s.region.take_kept().0.len(), 1, "it is told");
        s.discharge(at, &long);
        assert_eq!((s.live_bytes, s.record_bytes), (904, 404));
        assert!(s.slots[FREE as usize].state == SlotState::Retired);
        assert_eq!(s.region.take_kept().0.len(), 0, "it is told once");
    }
}

#[test]
fn the_cold_head_is_filled_to_its_last_byte_and_another_is_made_of_what_comes_back() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    two_segments(s);
    let (end, full) = (s.g.slot_offset(FREE + 1), s.g.slot_offset(FREE + 1) - r::UNIT);
    s.cold = Some(HeadSegment { slot: FREE, next: full, backed_end: end, end });
    assert_eq!(s.reserve_cold(r::UNIT), Some(full));
    s.leave(0);
    assert_eq!(s.reserve_cold(r::UNIT), None);
    s.retire(Retired::Segment(FREE + 1));
    a.me.quiescent();
    assert_eq!(a.writer.space.reserve_cold(r::UNIT), Some(end));
}

#[test]
fn a_head_that_is_dead_when_another_is_opened_is_retired() {
    let (_dir, mut a) = arena();
    a.writer.space.tell_time(1);
    a.put(b"k", b"v", 0).unwrap();
    assert!(a.delete(b"k"));
    let s = &mut a.writer.space;
    assert_eq!((s.demand.recent(), s.retired()), (1, 0));
    s.open_segment(false).unwrap();
    assert_eq!((s.demand.recent(), s.retired(), s.segments), (2, 1, 1));
}

#[test]
fn what_is_urgent_leaves_the_cleaner_its_segment() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let s = &mut a.writer.space;
    let head = s.head.as_mut().expect("a head");
    head.backed_end = head.end;
    s.have_made_ready(1);
    s.leave(s.g.slot_bytes() - 1);
    assert_eq!((s.open_segment(true), s.ready.len()), (Err(WriteError::Oom), 1));
    s.leave(s.g.slot_bytes());
    assert_eq!((s.open_segment(true), s.ready.len(), s.backed_here), (Ok(()), 1, 1));
}

#[test]
fn a_segment_is_made_of_what_has_come_back() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let s = &mut a.writer.space;
    let head = s.head.as_mut().expect("a head");
    head.backed_end = head.end;
    // Two slots that were segments, and one that is ready.
    two_segments(s);
    [FREE, FREE + 1].into_iter().for_each(|slot| s.retire(Retired::Segment(slot)));
    s.slot(FREE + 2).state = SlotState::Ready;
    s.ready = [FREE + 2].into();
    s.leave(0);
    a.me.quiescent();
    assert_eq!(a.writer.space.open_segment(false), Ok(()));
}

#[test]
fn a_write_waits_for_the_reserve_that_is_on_its_way() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    s.have_made_ready(2);
    let (slot, bytes) = (FREE + 2, s.g.slot_bytes());
    s.slot(slot).state = SlotState::Moving;
    (s.pending, s.backing) = (1, 1);
    s.leave(0);
    let job = s.job(Task::Back, slot, 1, bytes);
    assert!(s.region.domain().provisioner().send(job).is_ok());
    while !s.mail.any() {
        std::thread::yield_now();
    }
    assert_eq!((s.keep_reserve(), s.ready.len()), (Ok(()), 3));
}

#[test]
fn a_denial_is_remembered_until_memory_is_given_again() {
    let (_dir, mut a) = arena();
    let (path, aside) = (a.spec.path.clone(), a.spec.path.with_extension("aside"));
    let s = &mut a.writer.space;
    let (at, bytes) = (s.g.slot_offset(FREE), s.g.slot_bytes());
    std::fs::rename(&path, &aside).unwrap();
    assert_eq!(s.back(at, bytes), Err(Shortage::Denied(bytes, Denial::Gone)));
    assert_eq!(s.denied, Some(Denial::Gone));
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!((s.back(at, bytes), s.denied), (Ok(()), None));
}

#[test]
fn the_first_record_takes_no_more_than_the_steps_that_it_lies_in() {
    for (bytes, steps) in [(FIRST_STEP_BYTES, 1), (FIRST_STEP_BYTES + r::UNIT, 2)] {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        let backed = s.backed;
        s.reserve(bytes, false).unwrap();
        assert_eq!(s.backed - backed, steps * FIRST_STEP_BYTES, "{bytes}");
    }
}
