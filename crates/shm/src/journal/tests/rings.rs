//! What goes through a ring comes out of it, round its end and back.

use super::super::layout::{Effect, JOURNAL_BYTES_MIN, RESERVE_BYTES_MIN, entry as e};
use super::{Kept, Ring, STREAM, record_of, said};
use crate::format::layout::record as r;
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn an_entry_is_read_as_it_was_published() {
    let mut ring = Ring::new();
    // The first clears: its number comes before the others'.
    ring.lsn = 1;
    let mut changes = ring.changes(&[Some(100), None, Some(0), Some(5000)]);
    changes.insert(0, Kept { lsn: 1, effect: Effect::Clear, payload: vec![] });
    ring.publish(&changes, &[(5, 77), (900, 3)], 123_456);
    let entry = ring.reader.advance().expect("whole").expect("one");
    assert_eq!((entry.position(), entry.stream(), entry.clock_ms()), (0, STREAM, 123_456));
    assert_eq!((entry.first_lsn(), entry.last_lsn(), entry.len()), (1, 5, 5));
    assert_eq!(entry.needs().collect::<Vec<_>>(), [(5, 77), (900, 3)]);
    let read: Vec<Kept> = entry.changes().map(|it| Kept::of(&it.expect("a change"))).collect();
    assert_eq!(read, changes);
    assert!(ring.reader.advance().expect("whole").is_none());
}

#[test]
fn a_plain_entry_is_one_put_or_gone_that_has_its_bytes_and_needs_nothing() {
    let plain = |changes: &[Kept], needs: &[(u32, u64)]| {
        let mut ring = Ring::new();
        ring.publish(changes, needs, 55);
        let end = ring.writer.tail();
        let read = ring.reader.advance_plain(end);
        let kept = read.map(|it| {
            assert_eq!((it.stream, it.clock_ms), (STREAM, 55));
            Kept { lsn: it.lsn, effect: it.effect, payload: it.payload.to_vec() }
        });
        assert_eq!(ring.reader.position(), if kept.is_some() { end } else { 0 });
        assert_eq!(ring.reader.advance_plain(ring.reader.position()), None, "at the tail");
        kept
    };
    let ring = Ring::new();
    for (values, is_plain) in [
        (&[Some(100)][..], true),
        (&[Some(0)], true),
        (&[None], true),
        (&[Some(1), None], false),
        (&[None, None], false),
    ] {
        let changes = ring.changes(values);
        let expected = is_plain.then(|| changes[0].clone());
        assert_eq!(plain(&changes, &[]), expected, "{values:?}");
        assert_eq!(plain(&changes, &[(5, 77)]), None, "{values:?}, with a dependency");
    }
    assert_eq!(plain(&[Kept { lsn: 1, effect: Effect::Clear, payload: vec![] }], &[]), None);
    let based = ring.changes(&[Some(9)]).remove(0);
    assert_eq!(plain(&[Kept { effect: Effect::Based, ..based }], &[]), None);
    // It names its value.
    let name = [7; r::RUN_BYTES as usize];
    let named = record_of(b"key", &name, 1, r::FLAG_RUN);
    assert_eq!(plain(&[Kept { lsn: 1, effect: Effect::Put, payload: named }], &[]), None);
}

#[test]
fn an_entry_takes_the_bytes_that_were_asked_for() {
    let mut ring = Ring::new();
    for values in [vec![Some(100)], vec![None], vec![Some(3), None, Some(70_000)]] {
        let before = ring.writer.tail();
        ring.put(&values);
        assert_eq!(ring.writer.tail() - before, said(&values, 5), "{values:?}");
    }
}

#[test]
fn an_entry_that_would_go_round_the_end_is_behind_a_skip() {
    let mut ring = Ring::new();
    let (most, mut told) = (ring.writer.most_bytes(), Vec::new());
    // Five of nearly a fourth: the fourth ends shortly before the end, the fifth begins anew.
    for _ in 0..5 {
        told.push(ring.put(&[Some(most as usize - 200)]));
        assert_eq!(ring.next().as_ref(), told.last());
        ring.leave();
    }
    assert!(ring.writer.tail() > JOURNAL_BYTES_MIN);
    assert_eq!(ring.writer.used_bytes(), 0);
    assert_eq!(ring.reader.position(), ring.writer.tail());
}

#[test]
fn room_counts_the_reserve_and_a_skip() {
    let mut ring = Ring::new();
    let entry = said(&[Some(1000)], 5);
    let mut n = 0;
    while ring.writer.has_room(entry, false) {
        ring.put(&[Some(1000)]);
        n += 1;
    }
    // Twice an entry and the reserve are left.
    let left = JOURNAL_BYTES_MIN - ring.writer.used_bytes();
    assert!(left < RESERVE_BYTES_MIN + 2 * entry && left + entry >= RESERVE_BYTES_MIN + 2 * entry);
    let removal = said(&[None], 5);
    assert!(!ring.writer.has_room(removal, false) || 2 * removal + RESERVE_BYTES_MIN <= left);
    let mut removed = 0;
    while ring.writer.has_room(removal, true) {
        ring.put(&[None]);
        removed += 1;
    }
    assert!(removed > 500, "{removed} removals in the reserve");
    // What the log's thread hasn't written stays.
    assert!(!ring.writer.leave());
    (0..10).for_each(|_| assert!(ring.next().is_some()));
    assert!(!ring.writer.leave() && !ring.writer.has_room(entry, true), "it wasn't written");
    ring.leave();
    assert!(ring.writer.has_room(entry, true) && !ring.writer.has_room(entry, false));
    (10..n + removed).for_each(|_| assert!(ring.next().is_some()));
    ring.leave();
    assert!(ring.writer.has_room(ring.writer.most_bytes(), false), "an empty ring takes any");
}

#[test]
fn what_is_not_settled_does_not_leave() {
    // The log's thread was so fast that it had written a commit before its stores were made.
    let mut ring = Ring::new();
    ring.put(&[Some(10)]);
    let (first, changes) = (ring.writer.tail(), ring.changes(&[Some(20)]));
    let entry = ring.writer.begin(Ring::bytes(&changes, 0), &[], 1, 0);
    let mut entry = entry;
    entry.change(super::ChangeHead {
        payload_bytes: changes[0].payload.len() as u32,
        stream: STREAM,
        lsn: 2,
        effect: Effect::Put,
        more: false,
    });
    entry.bytes(&changes[0].payload);
    entry.publish();
    (0..2).for_each(|_| assert!(ring.next().is_some()));
    ring.leave();
    assert_eq!(ring.writer.left(), first);
    ring.writer.settle();
    assert!(ring.writer.leave());
    assert_eq!(ring.writer.left(), ring.writer.tail());
}

#[test]
#[should_panic(expected = "without room")]
fn an_entry_without_room_is_a_mistake_of_ours() {
    let mut ring = Ring::new();
    for _ in 0..9 {
        ring.put(&[Some(JOURNAL_BYTES_MIN as usize / 8)]);
    }
}

#[test]
#[should_panic(expected = "too large")]
fn a_commit_of_more_than_a_fourth_is_a_mistake_of_ours() {
    Ring::new().put(&[Some(JOURNAL_BYTES_MIN as usize / 4)]);
}

#[test]
fn entries_survive_the_process() {
    let mut ring = Ring::new();
    let told: Vec<_> = (0..100).map(|n| ring.put(&[Some(n), None])).collect();
    (0..40).for_each(|_| assert!(ring.next().is_some()));
    ring.leave();
    let Ring { dir, writer, reader, .. } = ring;
    drop((writer, reader));
    let file = super::JournalFile::open(dir.path(), 2).expect("whole").expect("there");
    let contents = file.contents().expect("whole entries");
    assert_eq!((contents.commits, contents.changes), (60, 120));
    assert_eq!(contents.lsns.into_iter().collect::<Vec<_>>(), [(STREAM, (81, 200))]);
    assert_eq!(contents.clock_ms, 198);
    let mut again = Ring::over(dir, file);
    for wanted in &told[40..] {
        assert_eq!(again.next().as_ref(), Some(wanted));
    }
    assert_eq!(again.next(), None);
}

#[derive(Debug, Clone)]
enum RingStep {
    Put(Vec<Option<usize>>),
    Read(u8),
    Leave,
    Again,
}

fn step() -> impl Strategy<Value = RingStep> {
    let value = prop_oneof![
        6 => (0..400usize).prop_map(Some),
        3 => (0..120_000usize).prop_map(Some),
        2 => Just(None),
    ];
    prop_oneof![
        10 => proptest::collection::vec(value, 1..4).prop_map(RingStep::Put),
        6 => (1..4u8).prop_map(RingStep::Read),
        4 => Just(RingStep::Leave),
        1 => Just(RingStep::Again),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is put in comes out in order, once; after a kill from where head was.
    #[test]
    fn a_ring_is_a_queue(steps in proptest::collection::vec(step(), 1..120)) {
        let mut ring = Ring::new();
        let (mut told, mut read) = (VecDeque::new(), 0);
        for step in steps {
            match step {
                RingStep::Put(values) => {
                    let (bytes, removes) = (said(&values, 8), values.iter().all(Option::is_none));
                    if bytes <= ring.writer.most_bytes() && ring.writer.has_room(bytes, removes) {
                        told.push_back(ring.put(&values));
                    }
                }
                RingStep::Read(n) => for _ in 0..n {
                    let next = ring.next();
                    prop_assert_eq!(next.as_ref(), told.get(read));
                    read += usize::from(next.is_some());
                },
                RingStep::Leave => {
                    ring.leave();
                    told.drain(..read);
                    read = 0;
                }
                RingStep::Again => {
                    let Ring { dir, writer, reader, lsn } = ring;
                    drop((writer, reader));
                    let file = super::JournalFile::open(dir.path(), 2).unwrap().unwrap();
                    let contents = file.contents().unwrap();
                    prop_assert_eq!(contents.commits, told.len() as u64);
                    ring = Ring { lsn, ..Ring::over(dir, file) };
                    read = 0;
                }
            }
            prop_assert_eq!(ring.writer.tail() % e::ALIGN, 0);
        }
    }
}

/// The log may have less room than the ring: nothing is published beyond what it says, removals
/// neither, and what it says later counts from the shard's next look on.
#[test]
fn the_log_says_how_much_more_may_come() {
    let ring = Ring::new();
    let file = std::sync::Arc::clone(ring.writer.file());
    file.set_limit(ring.writer.tail() + 1000);
    assert!(ring.writer.has_room(2000, true), "it holds for the whole turn");
    assert!(!ring.writer.leave());
    assert!(ring.writer.has_room(500, true) && !ring.writer.has_room(501, true));
    assert!(!ring.writer.has_room(100, false), "a part is for removals");
    file.set_limit(ring.writer.tail() + 1200);
    assert!(ring.writer.leave() && ring.writer.has_room(600, true));
    file.set_limit(u64::MAX);
    assert!(ring.writer.leave() && ring.writer.has_room(JOURNAL_BYTES_MIN / 4, false));
    file.set_limit(0);
    assert!(!ring.writer.leave() && !ring.writer.has_room(1, true));
}

/// Values that entries only name take room in the log: they count as if they lay in the ring, until
/// their entries have left. One that is too long for that waits until no other is there.
#[test]
fn named_values_take_room() {
    let mut ring = Ring::new();
    let (most, long) = (JOURNAL_BYTES_MIN / 16 * 7, JOURNAL_BYTES_MIN / 16 * 7 + 1);
    assert!(ring.writer.has_room_to_name(100, long));
    for _ in 0..2 {
        assert!(ring.writer.has_room_to_name(100, most));
        ring.put(&[None]);
        ring.writer.note_named(most);
        assert!(!ring.writer.has_room_to_name(100, long));
    }
    assert!(!ring.writer.has_room_to_name(100, most));
    // An eighth of the ring is left, the reserve within it.
    let left = RESERVE_BYTES_MIN / 2;
    assert!(ring.writer.has_room(left / 2, false) && !ring.writer.has_room(left, false));
    assert!(!ring.writer.leave(), "it wasn't written");
    (0..2).for_each(|_| assert!(ring.next().is_some()));
    ring.leave();
    assert!(ring.writer.has_room_to_name(100, most) && ring.writer.has_room_to_name(100, 9 * most));
}

/// A commit that kept both limits, that of its entry and that of what it names, was refused for
/// ever: its entry twice over, the values and the reserve were together longer than the ring.
#[test]
fn an_empty_ring_has_room_for_every_commit_that_is_not_too_large() {
    let ring = Ring::new();
    for bytes in (0..=ring.writer.most_bytes()).step_by(32) {
        for named in (0..=2 * JOURNAL_BYTES_MIN).step_by(16 << 10) {
            for named in [named, named + 1] {
                assert!(ring.writer.has_room_to_name(bytes, named), "{bytes} and {named}");
            }
        }
    }
}

/// A value longer than 7/16 of the ring leaves removals the reserve, in this turn and in those that
/// follow. On a full disk it doesn't: the log has no room for both.
#[test]
fn a_long_named_value_leaves_the_reserve_to_removals() {
    let mut ring = Ring::new();
    let file = std::sync::Arc::clone(ring.writer.file());
    let most = RESERVE_BYTES_MIN / 2;
    ring.put(&[None]);
    ring.writer.note_named(9 * JOURNAL_BYTES_MIN);
    for _ in 0..2 {
        assert!(ring.writer.has_room(most, true) && !ring.writer.has_room(most + 1, true));
        assert!(!ring.writer.has_room(1, false));
        assert!(!ring.writer.leave(), "it wasn't written");
    }
    file.set_limit(ring.writer.tail() + 1000);
    assert!(!ring.writer.leave() && !ring.writer.has_room(1, true));
    file.set_limit(u64::MAX);
    assert!(ring.writer.leave(), "removals have room again");
    assert!(ring.writer.has_room(most, true) && !ring.writer.has_room(1, false));
    // What removals took of it doesn't come back before the value has left.
    ring.put(&[None]);
    assert!(!ring.writer.leave() && !ring.writer.has_room(most, true));
    (0..2).for_each(|_| assert!(ring.next().is_some()));
    ring.leave();
    assert!(ring.writer.has_room(ring.writer.most_bytes(), false));
}
