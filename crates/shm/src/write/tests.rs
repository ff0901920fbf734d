//! What writes owe the cleaner, how far its steps go, and when its work begins.

use super::clean::{PAY_EVERY_BYTES, STEP_BYTES, TURN_PAYS_BYTES};
use super::writer::Writer;
use crate::space::Need;
use crate::tests::{Arena, directory, spec};
use crate::{Effect, StreamChange, WriteError, tombstone_payload};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const CAPACITY: u64 = 32 << 20;
const KEYS: u32 = 30_000;
const SLOT: u64 = 128 << 10;

/// An arena of which a third is alive, in all segments alike. Nothing was cleaned yet.
fn sparse() -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), CAPACITY));
    for i in 0..KEYS {
        a.put_soon(&i.to_le_bytes(), &[1; 200]).unwrap();
    }
    for i in (0..KEYS).filter(|i| i % 3 != 0) {
        assert!(a.delete(&i.to_le_bytes()));
    }
    let stats = a.writer.stats();
    assert!(stats.cleaner.steps == 0 && !stats.growing && stats.segments > 20, "{stats:?}");
    (dir, a)
}

/// The bytes that a step goes by: the last of its batches may end behind the first number.
fn step_of(bytes: u64) -> Range<u64> {
    bytes..bytes + (48 << 10)
}

fn longest(writer: &Writer) -> u64 {
    writer.cleaner.stats.longest_step_bytes
}

#[test]
fn appended_bytes_are_paid_by_what_cleaning_wins_of_a_segment() {
    let (_dir, mut a) = sparse();
    let w = &mut a.writer;
    w.cleaner.paid = w.appended - 100_000;
    let (gain, whole) = w.space.gain();
    assert!(whole == SLOT && gain > SLOT / 2 && gain < SLOT);
    w.pay();
    assert!(step_of(100_000 * whole / gain).contains(&longest(w)), "{}", longest(w));
    let cleaner = &w.cleaner;
    let due = w.appended + PAY_EVERY_BYTES;
    assert_eq!((cleaner.owed, cleaner.paid, cleaner.due), (0, w.appended, due));
    // More than a step stays owed, but not more than eight steps.
    for (owed, left) in [(2 * STEP_BYTES, None), (100 * STEP_BYTES, Some(8 * STEP_BYTES))] {
        w.cleaner.owed = owed;
        w.cleaner.stats.longest_step_bytes = 0;
        w.pay();
        assert!(step_of(STEP_BYTES).contains(&longest(w)), "{}", longest(w));
        assert_eq!(w.cleaner.owed, left.unwrap_or(owed - longest(w)));
    }
}

#[test]
fn nothing_is_owed_while_memory_is_neither_short_nor_sparse() {
    let (_dir, mut a) = sparse();
    let w = &mut a.writer;
    w.leave_sparse();
    w.cleaner.owed = 5;
    w.pay();
    assert_eq!((w.cleaner.owed, w.cleaner.due), (0, w.appended + SLOT / 16));
    assert_eq!(w.cleaner.stats.steps, 0);
}

#[test]
fn a_turn_cleans_a_little_of_a_busy_arena_and_more_of_an_idle_one() {
    let (_dir, mut a) = sparse();
    // A write has come since the last turn; then there was none for 50 milliseconds.
    for (now_ms, bytes, steps) in [(1000, 16 << 10, 1), (1049, 16 << 10, 2), (1050, 128 << 10, 3)] {
        a.budget.now_ms = now_ms;
        a.writer.cleaner.stats.longest_step_bytes = 0;
        let more = a.turn().more;
        assert!(step_of(bytes).contains(&longest(&a.writer)), "{now_ms}: {}", longest(&a.writer));
        assert_eq!((a.writer.cleaner.stats.steps, more), (steps, steps == 3));
    }
    // A request was refused: a whole step.
    a.writer.space.lacks_table(1);
    a.turn();
    assert!(step_of(STEP_BYTES).contains(&longest(&a.writer)), "{}", longest(&a.writer));
}

/// A payment of a few bytes once went by a whole batch, so one write in thirty took 4 microseconds
/// longer than the others. And each turn did so for its share, also if it had one write only.
#[test]
fn a_payment_goes_by_the_records_that_it_owes_and_a_turn_pays_once_in_a_millisecond() {
    let (_dir, mut a) = sparse();
    let w = &mut a.writer;
    let record_bytes = w.stats().used_bytes / w.keys();
    for bytes in [1, TURN_PAYS_BYTES] {
        let before = w.cleaner.stats.relocated_records;
        w.clean(bytes, Need::Packing);
        let moved = w.cleaner.stats.relocated_records - before;
        assert!((1..=bytes / record_bytes + 1).contains(&moved), "{bytes}: {moved}");
    }
    let steps = w.cleaner.stats.steps;
    for (now_ms, bytes, more) in [(1000, 1, 1), (1000, 1, 1), (1001, 1, 2), (1001, 1023, 3)] {
        a.writer.appended += bytes;
        a.budget.now_ms = now_ms;
        a.turn();
        assert_eq!(a.writer.cleaner.stats.steps, steps + more, "{now_ms}");
    }
}

#[test]
fn a_step_meets_some_two_thousand_records_and_is_timed() {
    static NOW_NS: AtomicU64 = AtomicU64::new(5);
    let (_dir, mut a) = sparse();
    let w = &mut a.writer;
    let record_bytes = w.stats().used_bytes / w.keys();
    assert_eq!(w.stats().used_bytes, record_bytes * w.keys());
    w.measure_steps(|| NOW_NS.fetch_add(7, Ordering::Relaxed));
    w.clean(u64::MAX, Need::Packing);
    let stats = w.cleaner.stats;
    assert!((2048..2048 + 32).contains(&stats.relocated_records), "{stats:?}");
    assert_eq!(stats.relocated_bytes, stats.relocated_records * record_bytes);
    // One of them may be half way.
    let whole = stats.longest_step_bytes / SLOT;
    assert!((whole..whole + 2).contains(&stats.segments), "{stats:?}");
    assert_eq!((stats.steps, stats.longest_step_ns), (1, 7));
    w.measure_steps(|| NOW_NS.load(Ordering::Relaxed));
    assert!(w.clean(1, Need::Packing) > 0);
    assert_eq!((w.cleaner.stats.steps, w.cleaner.stats.longest_step_ns), (2, 7));
}

#[test]
fn a_refusal_for_lack_of_memory_is_for_good_only_without_hope() {
    let (_dir, mut a) = sparse();
    a.me.quiescent();
    let w = &mut a.writer;
    let is_calm = |_| {
        w.space.collect(u32::MAX);
        std::thread::sleep(std::time::Duration::from_micros(50));
        !w.is_reclaiming()
    };
    assert!((0..100_000).any(is_calm), "old tables never come back");
    assert!(w.is_gaining() && !w.is_reclaiming());
    w.cleaner.due = u64::MAX;
    let other = WriteError::KeyTooLong { len: 1 };
    assert!(w.refused(other) == other && w.cleaner.due == u64::MAX);
    w.space.lacks_place();
    assert!(w.refused(WriteError::Oom) == WriteError::Oom && !w.wants_turn());
    assert_eq!(w.cleaner.due, w.appended, "the next write pays");
    w.space.lacks_table(1);
    assert!(w.refused(WriteError::Oom) == WriteError::Busy && w.wants_turn());
}

#[test]
fn a_writer_owes_nothing_for_what_the_one_before_it_appended() {
    let (_dir, mut a) = sparse();
    a.settle();
    let before = a.writer.stats();
    assert!(before.cleaner.segments > 0 && before.cleaner.relocated_bytes > 0, "{before:?}");
    let (a, _) = a.again();
    let (w, after) = (&a.writer, a.writer.stats());
    assert_eq!((w.cleaner.paid, w.cleaner.seen), (before.appended_bytes, before.appended_bytes));
    assert_eq!(after.cleaner.segments, before.cleaner.segments);
    assert_eq!(after.cleaner.relocated_bytes, before.cleaner.relocated_bytes);
}

#[test]
fn each_kind_of_change_pays_for_what_it_appends() {
    let (_dir, mut a) = sparse();
    let key = |i: u32| (i * 3).to_le_bytes();
    for round in 0..4u32 {
        a.writer.cleaner.due = a.writer.appended;
        let steps = a.writer.cleaner.stats.steps;
        let (hash, pin) = (a.writer.hash(&key(round)), a.me.pin());
        match round {
            0 => a.writer.put(&pin, hash, &key(0), &[b"v"], 0).unwrap(),
            1 => {
                let staged = a.writer.stage(hash, &key(1), &[b"v"], 0).unwrap();
                a.writer.commit(&pin, false, &[staged]).unwrap();
            }
            2 => a.writer.delete_together(&pin, &[(hash, &key(2))]),
            _ => {
                let (lsn, effect) = (a.writer.lsn + 1, Effect::Gone);
                let payload = tombstone_payload(&key(3), lsn);
                let change = StreamChange { lsn, effect, payload: &payload, rest: &[] };
                assert!(a.writer.replay(&[change]).unwrap().dangling.is_empty());
            }
        }
        assert_eq!(a.writer.cleaner.stats.steps, steps + 1, "{round}");
    }
}
