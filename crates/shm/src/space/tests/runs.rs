//! How a run is taken, and what gives way to it.

use super::arena;
use super::memory::{LATE_MAX, settle};
use std::time::Duration;

const PAGE: u64 = 4096;

#[test]
fn what_was_retired_is_looked_at_in_front_of_a_run() {
    // All have announced, so it is on its way back, though there is memory without it.
    for without_waiting in [false, true] {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        let slot = s.take_run(PAGE, false).unwrap();
        s.retire_table(slot, PAGE);
        a.me.quiescent();
        let s = &mut a.writer.space;
        assert_eq!(s.retired(), 1);
        let taken =
            if without_waiting { s.take_run_now(PAGE) } else { s.take_run(PAGE, false).ok() };
        assert!(taken.is_some() && s.retired() == 0);
    }
}

#[test]
fn ready_slots_give_way_to_a_run_but_for_the_reserve() {
    // Nothing else is left. The memory thread gives two of four back, and the run waits for that.
    let give_way_in_time = || {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        (0..4).for_each(|_| s.back_slot_now().expect("memory"));
        s.leave(0);
        let taken = s.take_run(PAGE, false);
        assert_eq!(s.ready.len(), 2);
        settle(s);
        taken.is_ok() || {
            assert!(s.take_run(PAGE, false).is_ok());
            false
        }
    };
    assert!((0..LATE_MAX).any(|_| give_way_in_time()));
}

#[test]
fn what_is_urgent_takes_a_run_of_the_reserve_if_one_slot_is_enough() {
    // Nothing is left but the two slots of the reserve.
    for (urgent, more, is_taken) in [(false, 0, false), (true, 0, true), (true, 1, false)] {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        (0..2).for_each(|_| s.back_slot_now().expect("memory"));
        s.leave(0);
        let taken = s.take_run(s.g.slot_bytes() + more, urgent);
        assert_eq!(taken.is_ok(), is_taken, "urgent: {urgent}, {more} bytes more than a slot");
        assert_eq!(s.ready.len(), if is_taken { 1 } else { 2 });
    }
}

#[test]
fn a_table_is_there_without_anything_else_being_done() {
    // The question whether it is there also takes what the memory thread has done.
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let slot = s.ask_for_table(PAGE).expect("memory");
    for _ in 0..100_000 {
        if let Some(done) = s.table_done(slot) {
            assert!(done);
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("the table never comes");
}

#[test]
fn a_value_has_room_only_if_it_grows_and_its_room_is_anothers_when_it_goes() {
    // It takes one slot: with room, twice as many.
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let bytes = u32::try_from(s.g.slot_bytes()).expect("small");
    for (grows, slots) in [(false, 1), (true, 2)] {
        let taken = s.take_value_run(bytes.into(), true, grows, false).unwrap();
        s.name_run(taken, true, bytes, 0);
        assert_eq!((taken.1, s.spare_slots), (slots, slots - 1), "grows: {grows}");
        s.retire_run(taken.0);
        assert_eq!(s.spare_slots, 0);
    }
}
