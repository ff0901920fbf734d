//! What a payment, a refused write and a turn's upkeep make of the memory that they find.

use super::{CAPACITY, VICTIM, arena};
use crate::WriteError;
use crate::format::layout::record as r;
use crate::space::Need;
use crate::tests::Arena;
use std::time::Duration;

/// Takes what comes back by itself. Nothing is cleaned meanwhile.
fn wait_for_memory(a: &mut Arena) {
    for _ in 0..100_000 {
        a.me.quiescent();
        a.writer.space.collect(u32::MAX);
        if !a.writer.is_reclaiming() {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("memory never comes back");
}

/// An arena of which a third is alive, in all segments alike. Nothing was cleaned yet, and nothing
/// is under way.
fn poor() -> (tempfile::TempDir, Arena) {
    let (dir, mut a) = arena();
    (0..6_000u32).for_each(|i| a.put_soon(&i.to_le_bytes(), &[1; 200]).unwrap());
    (0..6_000u32).filter(|i| i % 3 != 0).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    while a.writer.index.growing() {
        a.writer.advance_growth(64);
    }
    wait_for_memory(&mut a);
    assert_eq!(a.writer.stats().cleaner.steps, 0);
    (dir, a)
}

#[test]
fn a_payment_asks_for_the_turns_end_if_memory_waits_for_that() {
    // With a victim to clean, and without.
    for victim in [None, Some(VICTIM)] {
        let (_dir, mut a) = arena();
        let w = &mut a.writer;
        w.pay();
        assert!(!w.wants_turn());
        w.space.leave(0);
        (w.space.coming, w.space.victim) = (1, victim);
        w.pay();
        assert!(w.wants_turn());
        w.pay();
        assert!(w.wants_turn(), "until the turn ends");
        (w.space.coming, w.space.victim, w.space.hunger) = (0, None, 4);
        assert!(!w.clean_in_turn(0) && !w.wants_turn());
        assert_eq!(w.space.hunger, 2, "nothing was refused in it");
    }
}

#[test]
fn memory_is_gained_by_what_comes_back_by_a_growth_and_by_cleaning() {
    let (_dir, mut a) = arena();
    assert!(!a.writer.is_gaining());
    a.writer.space.victim = Some(VICTIM);
    assert!(a.writer.is_gaining());
    (a.writer.space.victim, a.writer.space.pending) = (None, 1);
    assert!(a.writer.is_gaining() && a.writer.is_reclaiming());
    a.writer.space.pending = 0;
    (0..).find(|i: &u32| {
        a.put(&i.to_le_bytes(), b"v", 0).unwrap();
        a.writer.index.growing()
    });
    wait_for_memory(&mut a);
    assert!(a.writer.index.growing() && !a.writer.space.has_victim(Need::Pressure));
    assert!(a.writer.is_gaining() && !a.writer.is_reclaiming());
    // The old table comes back, so a write that lacks a place is to wait for that.
    a.writer.space.lacks_place();
    assert_eq!(a.writer.refused(WriteError::Oom), WriteError::Busy);
}

#[test]
fn a_step_meets_the_records_that_begin_within_its_bytes() {
    let (_dir, mut a) = poor();
    let s = &mut a.writer.space;
    let victim = s.take_victim(Need::Packing).expect("one");
    s.forget_dead();
    let first = s.next_live(&victim, victim.at);
    let live: Vec<_> =
        std::iter::successors(first, |at| s.next_live(&victim, at + r::UNIT)).collect();
    // Two batches, and a half.
    let bytes = live[80] - victim.at;
    assert_eq!(a.writer.clean(bytes, Need::Packing), bytes);
    let at = |a: &Arena| a.writer.space.victim.expect("it isn't empty yet").at;
    assert_eq!((a.writer.cleaner.stats.relocated_records, at(&a)), (80, live[80]));
    assert_eq!(a.writer.clean(1, Need::Packing), live[81] - live[80]);
    assert_eq!((a.writer.cleaner.stats.relocated_records, at(&a)), (81, live[81]));
}

#[test]
fn a_turn_goes_on_as_long_as_it_moves_something_and_memory_is_short() {
    let (_dir, mut a) = poor();
    let w = &mut a.writer;
    let slot = w.space.g.slot_bytes();
    // There is no segment into which anything could be moved.
    w.space.have_made_ready(0);
    w.space.leave(0);
    assert!(!w.clean_in_turn(slot) && w.cleaner.stuck && w.space.has_victim(Need::Pressure));
    let victim = w.space.victim.expect("it has begun");
    let begin = w.space.g.slot_offset(victim.slot);
    assert_eq!(w.space.next_live(&victim, begin), Some(victim.at), "all is still to be moved");
    // One segment is taken, and one comes back: it is short by a byte. Then it isn't.
    w.space.leave(4 * slot - 1);
    w.cleaner.owed = 3 * slot;
    w.cleaner.stats.longest_step_bytes = 0;
    assert!(w.clean_in_turn(slot) && !w.cleaner.stuck && w.space.is_short());
    assert_eq!(w.cleaner.owed, 3 * slot - w.cleaner.stats.longest_step_bytes);
    assert!(!w.clean_in_turn(slot) && !w.space.is_short() && w.space.has_victim(Need::Pressure));
    assert!(w.space.backed <= CAPACITY);
}

#[test]
fn a_step_meets_2048_records_at_most() {
    // Nearly all of the first segment is alive, in batches of 32.
    let (_dir, mut a) = arena();
    (0..12_000u32).for_each(|i| a.put_soon(&i.to_le_bytes(), b"").unwrap());
    (0..5_000u32).filter(|i| i % 10 == 0).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    wait_for_memory(&mut a);
    a.writer.clean(u64::MAX, Need::Pressure);
    assert_eq!(a.writer.stats().cleaner.relocated_records, 2048);
}

#[test]
fn a_turn_tells_the_keys_whose_time_was_over() {
    // The cleaner meets them in its victims, and looks for them where there is no victim.
    let (_dir, mut a) = arena();
    let put = |a: &mut Arena, i: u32| a.put(&i.to_le_bytes(), &[1; 200], 5);
    (0..6_000).for_each(|i| a.soon(|a| put(a, i)).unwrap());
    (0..6_000u32).filter(|i| i % 3 != 0).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    wait_for_memory(&mut a);
    a.writer.space.have_made_ready(0);
    a.writer.space.leave(0);
    a.budget.now_ms = 6;
    let (expired, more) = (a.turn().expired, a.writer.stats().cleaner);
    assert!(expired > 0 && u64::from(expired) == more.expired_keys, "{expired} {more:?}");

    let (_dir, mut a) = arena();
    (0..10u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 5).unwrap());
    a.writer.space.leave(0);
    a.budget.now_ms = 6;
    assert_eq!((a.turn().expired, a.writer.stats().cleaner.expired_keys), (10, 10));
}
