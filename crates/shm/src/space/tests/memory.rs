//! How memory is taken, counted and given back, step by step.

use super::{CAPACITY, FREE, arena};
use crate::error::WriteError;
use crate::failpoints::before_each_step;
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::index::growth::{PREPARE_PERCENT, PreparedTable, share};
use crate::index::{Index, Table};
use crate::space::Space;
use crate::space::slots::SlotState;
use crate::tests::{Arena, directory, spec};
use crate::{ArenaSpec, Domain, Effect, ReplayError, StreamChange, Writer};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const PAGE: u64 = 4096;
/// How often in a row the memory thread may be too late for a request that waits for it.
pub(super) const LATE_MAX: u32 = 100;

/// Takes what the memory thread has done, until nothing is under way.
pub(super) fn settle(s: &mut Space) {
    for _ in 0..100_000 {
        s.collect(0);
        if !s.busy() {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("memory never comes back");
}

#[test]
fn a_new_arena_takes_its_tables_and_a_page_for_the_index() {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 1 << 30));
    // Header and stamps; a generation and a tail for each of 2,048 slots.
    assert_eq!(a.writer.space.backed, 4096 + 8192 + 2048 * (4 + 4) + PAGE);
}

#[test]
fn what_is_counted_as_backed_is_what_the_file_takes() {
    // Segments, runs, tables, what is ready; in use, after deletions, and at the next writer.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), CAPACITY));
    let check = |a: &mut Arena, step: &str| {
        a.settle();
        let blocks = a.spec.path.metadata().expect("a file").blocks();
        assert_eq!(a.writer.stats().backed_bytes, 512 * blocks, "{step}");
    };
    for i in 0..6_000u32 {
        let bytes = if i % 1_000 == 0 { 300_000 } else { 500 };
        a.put_soon(&i.to_le_bytes(), &vec![1; bytes]).unwrap();
    }
    check(&mut a, "filled");
    (0..6_000u32).filter(|i| i % 3 != 0).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    check(&mut a, "some deleted");
    let (mut a, _) = a.again();
    check(&mut a, "adopted");
    a.writer.clear();
    check(&mut a, "cleared");
}

#[test]
fn a_reservation_that_is_taken_back_is_given_again() {
    let (_dir, mut a) = arena();
    a.put(b"k", b"v", 0).unwrap();
    let s = &mut a.writer.space;
    let at = s.reserve(4 * r::UNIT, false).unwrap();
    s.unreserve(at + s.g.slot_bytes());
    assert_eq!(s.reserve(r::UNIT, false), Ok(at + 4 * r::UNIT), "it was of another segment");
    s.unreserve(at);
    assert_eq!(s.reserve(r::UNIT, false), Ok(at));
}

#[test]
fn a_segment_is_taken_only_if_the_reserve_is_left() {
    // Slots are ready, so many more may be backed. From four segments on, the reserve is backed.
    for (segments, ready, left, backs) in
        [(1, 0, 3, 1), (1, 1, 2, 0), (1, 3, 0, 0), (3, 2, 1, 0), (4, 2, 1, 1), (4, 3, 0, 0)]
    {
        let (_dir, mut a) = arena();
        a.put(b"k", b"v", 0).unwrap();
        let s = &mut a.writer.space;
        let head = s.head.as_mut().expect("a head");
        head.backed_end = head.end;
        s.segments = segments;
        s.have_made_ready(ready);
        let slot = s.g.slot_bytes();
        if left > 0 {
            s.leave(left * slot - 1);
            assert_eq!(s.open_segment(false), Err(WriteError::Oom), "{segments} {ready}");
        }
        s.leave(left * slot);
        assert_eq!(s.open_segment(false), Ok(()), "{segments} {ready}");
        assert_eq!((s.segments, s.backed_here), (segments + 1, backs), "{segments} {ready}");
    }
}

#[test]
fn what_was_retired_comes_back_when_all_have_announced() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let (backed, bytes) = (s.backed, 3 * PAGE);
    let runs = [(); 3].map(|()| s.take_run(bytes, false).unwrap());
    assert_eq!((s.backed, s.generation(runs[0])), (backed + 3 * bytes, 0));
    runs.iter().for_each(|&slot| s.retire_table(slot, bytes));
    assert_eq!((s.coming, s.given_up, s.retired()), (3 * bytes, 3 * bytes, 3));
    assert_eq!((s.collect(9), s.generation(runs[0])), (0, 1), "somebody may still read it");
    a.me.quiescent();
    let s = &mut a.writer.space;
    assert_eq!((s.collect(2), s.retired()), (2, 1));
    assert_eq!((s.collect(9), s.collect(9)), (1, 0));
    settle(s);
    assert_eq!((s.coming, s.given_up, s.backed), (0, 3 * bytes, backed));
    assert_eq!((s.generation(runs[0]), s.find_free(3)), (2, Some(runs[0])));
}

#[test]
fn a_run_is_taken_if_its_pages_may_be() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let (bytes, reserve) = (3 * PAGE - 1, 2 * s.g.slot_bytes());
    s.leave(reserve + 3 * PAGE - 1);
    assert_eq!((s.take_run_now(bytes), s.ask_for_table(bytes)), (None, None));
    s.leave(reserve + 3 * PAGE);
    assert!(s.take_run_now(bytes).is_some() && s.backed == CAPACITY - reserve);
    s.leave(reserve + 3 * PAGE);
    let slot = s.ask_for_table(bytes).expect("it may");
    assert!(s.backed == CAPACITY - reserve && s.pending == 1);
    settle(s);
    assert_eq!((s.table_done(slot), s.table_done(slot), s.pending), (Some(true), None, 0));
}

#[test]
fn ready_slots_give_way_to_a_run_that_grows_only_if_it_needs_that() {
    let gives_way_in_time = || {
        let (_dir, mut a) = arena();
        let s = &mut a.writer.space;
        let taken = s.take_value_run(64 * PAGE, true, true, false).unwrap();
        s.name_run(taken, true, 64 * 4096, 0);
        (0..4).for_each(|_| s.back_slot_now().expect("memory"));
        s.leave(PAGE);
        assert_eq!(s.extend_run(taken.0, 64 * 4096, 65 * 4096, false), Ok(true));
        assert_eq!((s.backed, s.ready.len()), (CAPACITY, 4));
        assert_eq!((s.live_bytes, s.held_bytes), (0, 0), "no record names it");
        let extended = s.extend_run(taken.0, 65 * 4096, 66 * 4096, false);
        assert_eq!(s.ready.len(), 2, "the reserve stays");
        settle(s);
        extended == Ok(true) || {
            assert_eq!(s.extend_run(taken.0, 65 * 4096, 66 * 4096, false), Ok(true));
            false
        }
    };
    assert!((0..LATE_MAX).any(|_| gives_way_in_time()));
}

#[test]
fn a_value_up_to_half_a_slot_could_lie_in_a_segment() {
    // All the slots of its run are room then; else those behind its first one.
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    let (half, most) = (s.g.slot_bytes() / 2, s.g.slots / 4);
    for (value, must, slots, spare) in
        [(half, false, 1, 1), (half + 1, false, 2, 1), (half, true, 1, 0)]
    {
        s.spare_slots = most - spare;
        assert_eq!(s.roomy(value, must), Some(slots), "{value} {must}");
        s.spare_slots += 1;
        assert_eq!(s.roomy(value, must), None, "{value} {must}");
    }
}

#[test]
fn a_run_of_the_reserve_begins_zeroed_and_takes_its_pages() {
    let (_dir, mut a) = arena();
    let s = &mut a.writer.space;
    (0..3).for_each(|_| s.back_slot_now().expect("memory"));
    let (first, backed, whole) = (*s.ready.first().expect("three"), s.backed, s.g.slot_bytes());
    let at = s.g.slot_offset(first);
    s.words.copy_in(at, &[7; 5 * 4096]);
    assert_eq!(s.run_of_reserve(2 * PAGE + 1), Ok(first));
    let blocks = a.spec.path.metadata().expect("a file").blocks();
    assert_eq!(s.backed, 512 * blocks, "nothing else was given back");
    let mut bytes = vec![7; 5 * 4096];
    s.words.copy_out(at, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!((backed - s.backed, s.ready.len()), (whole - 3 * PAGE, 2));
    assert!(s.slots[first as usize].state == SlotState::Run);
    // One that takes all of its slot gives nothing back.
    let backed = s.backed;
    assert_eq!(s.run_of_reserve(whole), Ok(first + 1));
    assert_eq!((s.backed, s.ready.len(), s.backed_here), (backed, 1, 3));
}

#[test]
fn an_index_without_memory_for_its_next_table_says_how_many_keys_fit() {
    let (_dir, mut a) = arena();
    let put = |a: &mut Arena, i: u32| a.put(&i.to_le_bytes(), b"v", 0).unwrap();
    (0..409).for_each(|i| put(&mut a, i));
    assert_eq!(a.writer.fill().entries, u64::MAX);
    let backed = a.writer.space.backed;
    a.writer.space.leave(0);
    put(&mut a, 409);
    assert_eq!((a.writer.fill().entries, a.writer.index.growing()), (512, false));
    a.writer.space.backed = backed;
    put(&mut a, 410);
    assert_eq!((a.writer.fill().entries, a.writer.index.growing()), (u64::MAX, true));
    // The same for one that is large: it couldn't be asked for, until one is taken that must be.
    (411..5_324).for_each(|i| put(&mut a, i));
    let backed = a.writer.space.backed;
    a.writer.space.leave(0);
    put(&mut a, 5_324);
    assert_eq!(a.writer.fill().entries, 8_192);
    a.writer.space.backed = backed;
    assert_eq!(a.writer.begin_growth(0, true), Ok(()));
    while a.writer.migrate(1024) > 0 {}
    assert_eq!((a.writer.fill().entries, a.writer.index.growing()), (u64::MAX, false));
}

#[test]
fn memory_is_made_for_all_of_a_table_that_cannot_be_asked_for() {
    // Its 2^14 lines take a MiB. While the index moves, nothing is asked for.
    let (_dir, mut a) = arena();
    let shift = a.writer.space.g.slot_shift;
    let (small, large) = (a.writer.index.current(), Table::new(FREE, 1 << 13, shift));
    let load = share(large.entries(), PREPARE_PERCENT);
    a.writer.index = Index::adopted(large, Some(small), load, load);
    a.writer.prepare_table_in_turn();
    assert!(a.writer.prepared.is_none() && a.writer.space.hunger == 0);
    a.writer.space.leave(0);
    a.writer.index = Index::adopted(large, None, load, load);
    a.writer.prepare_table_in_turn();
    assert!(a.writer.prepared.is_none());
    assert_eq!(a.writer.space.hunger, a.writer.space.g.slots_for(1 << 20));
    a.writer.index = Index::new(small);
}

#[test]
fn a_table_that_was_denied_is_asked_for_again_when_it_is_needed() {
    // Not in each turn; at once if another size is wanted by now.
    let (_dir, mut a) = arena();
    (0..5_400u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    for lines in [2048, 512] {
        let table = Table::new(FREE, lines, a.writer.space.g.slot_shift);
        a.writer.prepared = Some(PreparedTable { table, ready: false, unwanted: false });
        a.writer.space.tables_done = vec![(FREE, false)];
        a.writer.prepare_table_in_turn();
        let prepared = a.writer.prepared.expect("a table");
        assert_eq!((prepared.table.lines, prepared.table == table), (2048, lines == 2048));
    }
}

#[test]
fn a_key_that_is_refused_for_want_of_a_table_tells_its_hash_once() {
    // Its sixteen lines are full of keys of which a larger table would move some.
    let (_dir, mut a) = arena();
    for i in 0..128u32 {
        a.writer.put(&a.me.pin(), 64, &i.to_le_bytes(), &[b"v"], 0).unwrap();
    }
    a.writer.space.leave(0);
    let refuse = |a: &mut Arena| {
        let refused = a.writer.put(&a.me.pin(), 0, b"k", &[b"v"], 0);
        assert_eq!(refused, Err(WriteError::Oom));
    };
    refuse(&mut a);
    assert!(a.writer.space.hungers());
    assert_eq!((a.writer.take_crowded(), a.writer.take_crowded()), (Some(0), None));
    assert!(!a.writer.space.hungers(), "one of the keys has to go, and no memory is wanted");
    refuse(&mut a);
    a.writer.forget_crowded();
    assert_eq!(a.writer.take_crowded(), None);
    assert!(a.writer.space.hungers(), "nobody makes a place");
}

#[test]
fn a_key_that_is_refused_at_the_end_of_a_growth_tells_its_hash_too() {
    // The index moves to a table of the same size, in which the sixteen lines get as full. For a
    // larger one live data leaves no room. (It told nothing then, so no key went for it.)
    let (_dir, mut a) = arena();
    for i in 0..128u32 {
        a.writer.put(&a.me.pin(), 64, &i.to_le_bytes(), &[b"v"], 0).unwrap();
    }
    a.writer.begin_growth(0, false).unwrap();
    a.writer.space.leave(0);
    a.writer.space.live_bytes = CAPACITY;
    assert_eq!(a.writer.put(&a.me.pin(), 0, b"k", &[b"v"], 0), Err(WriteError::Oom));
    assert_eq!((a.writer.index.growing(), a.writer.take_crowded()), (false, Some(0)));
}

#[test]
fn a_commit_for_which_there_is_no_larger_table_goes_on_if_each_key_has_a_place() {
    for alike in [64, 65] {
        let (_dir, mut a) = arena();
        // Each hash's sixteen lines hold 128 keys, of which a larger table would move half.
        for i in 0..128 + 64u32 {
            let hash = if i < 64 { 64 } else { 20 + i % 40 };
            a.writer.put(&a.me.pin(), hash, &i.to_le_bytes(), &[b"v"], 0).unwrap();
        }
        let key = |i: u32| (1_000 + i).to_le_bytes();
        let stage = |i| a.writer.stage(0, &key(i), &[b"v"], 0).unwrap();
        let refs: Vec<_> = (0..alike).map(stage).collect();
        let more: Vec<_> = (0..160u32)
            .map(|i| a.writer.stage(20 + i % 40, &i.to_be_bytes(), &[b"v"], 0).unwrap())
            .collect();
        a.writer.space.leave(0);
        let all = [refs, more].concat();
        let done = a.writer.commit(&a.me.pin(), false, &all);
        let (keys, crowded) = (a.writer.keys(), a.writer.take_crowded());
        match alike {
            64 => assert_eq!((done, keys, crowded), (Ok(()), 416, None)),
            _ => assert_eq!((done, keys, crowded), (Err(WriteError::Oom), 192, Some(0))),
        }
    }
}

#[test]
fn all_keys_go_one_by_one_where_no_table_can_be_had() {
    let (_dir, mut a) = arena();
    (0..100u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", u64::from(i)).unwrap());
    let used = a.writer.stats().used_bytes;
    a.writer.space.leave(0);
    assert_eq!(a.writer.clear_at_once(), Err(WriteError::Oom));
    a.writer.clear();
    let stamp = a.writer.words.load64(header::CLEAR_STAMP, Relaxed);
    assert_eq!((a.writer.keys(), a.writer.expires(), stamp), (0, 0, a.writer.lsn));
    assert!(used > 0 && a.writer.stats().used_bytes == 0);
}

#[test]
fn nothing_of_a_change_is_held_behind_its_end() {
    let (_dir, mut a) = arena();
    let (ha, hb) = (a.writer.hash(b"a"), a.writer.hash(b"b"));
    for clears in [false, true] {
        let refs = [(ha, b"a"), (hb, b"b")];
        let refs = refs.map(|(hash, key)| a.writer.stage(hash, key, &[b"v"], 0).unwrap());
        assert!(a.writer.space.held_bytes > 0);
        a.writer.commit(&a.me.pin(), clears, &refs).unwrap();
        assert_eq!(a.writer.space.held_bytes, 0, "{clears}");
    }
    a.writer.delete_together(&a.me.pin(), &[(ha, b"a"), (hb, b"b")]);
    assert_eq!((a.writer.space.held_bytes, a.writer.stats().used_bytes), (0, 0));
}

#[test]
fn tombstones_that_are_taken_back_leave_their_room() {
    let (_dir, mut a) = arena();
    let stage = |a: &mut Arena, key: &[u8]| a.writer.stage_delete(a.writer.hash(key), key).unwrap();
    let (first, second) = (stage(&mut a, b"first"), stage(&mut a, b"a longer second key"));
    a.writer.take_back(&[first, second]);
    assert_eq!(a.writer.space.held_bytes, 0);
    assert_eq!(stage(&mut a, b"first").reference, first.reference);
}

#[test]
fn a_commit_that_clears_takes_the_first_table_of_the_reserve_and_no_larger_one() {
    for (keys, wanted) in [(2u32, Ok(())), (500, Err(WriteError::Oom))] {
        let (_dir, mut a) = arena();
        let stage = |i: u32| {
            let key = i.to_le_bytes();
            a.writer.stage(a.writer.hash(&key), &key, &[b"v"], 0).unwrap()
        };
        let refs: Vec<_> = (0..keys).map(stage).collect();
        a.writer.space.leave(16 * PAGE);
        assert_eq!(a.writer.commit(&a.me.pin(), true, &refs), wanted, "{keys} keys");
    }
}

/// An arena of a writer that died within a commit of two keys, which had an intent.
fn left_within_a_commit(clears: bool) -> (tempfile::TempDir, Arena) {
    let (dir, mut t) = arena();
    t.put(b"old", b"v", 0).unwrap();
    let keys = [b"a", b"b"];
    let refs = keys.map(|key| t.writer.stage(t.writer.hash(key), key, &[b"v"], 0).unwrap());
    let copy = ArenaSpec { path: t.spec.path.with_extension("copy"), ..t.spec.clone() };
    let (words, from, to) = (t.writer.words, t.spec.path.clone(), copy.path.clone());
    let look = move || {
        if words.load32(header::INTENT, Relaxed) != 0 {
            std::fs::copy(&from, &to).unwrap();
        }
    };
    before_each_step(look, || t.writer.commit(&t.me.pin(), clears, &refs)).unwrap();
    let (left, adoption) = Arena::adopt(&copy);
    assert!(adoption.redone_intent && adoption.keys == 2 + u64::from(!clears));
    (dir, left)
}

#[test]
fn nothing_is_held_of_what_is_done_again() {
    let (_dir, left) = left_within_a_commit(false);
    assert_eq!(left.writer.space.held_bytes, 0);
}

#[test]
fn the_table_into_which_a_dead_writer_cleared_is_counted_once() {
    let (_dir, mut left) = left_within_a_commit(true);
    left.settle();
    // A copy has no holes, so its file can't be asked: a segment more than a new arena takes.
    let (_dir, new) = arena();
    let segment = new.writer.space.g.slot_bytes();
    assert_eq!(left.writer.space.backed, new.writer.space.backed + segment);
}

#[test]
fn nothing_is_held_of_a_commit_that_a_log_has() {
    let (_dir, mut a) = arena();
    [b"a", b"b"].iter().for_each(|key| a.put(*key, b"v", 0).unwrap());
    let mut records = Vec::new();
    let mut take = |lsn, pieces: &[&[u8]]| {
        records.push((lsn, pieces.concat()));
        Ok::<(), ReplayError>(())
    };
    a.writer.each_record(&mut take).unwrap();
    records.sort_unstable();
    let change = |(lsn, payload)| StreamChange { lsn, effect: Effect::Put, payload, rest: &[] };
    let changes = records.iter().map(|(lsn, payload)| change((*lsn, payload.as_slice())));
    let path = a.spec.path.with_extension("built");
    let built = Writer::build(&ArenaSpec { path, ..a.spec.clone() }, &Domain::new(4));
    let mut built = built.expect("an arena");
    assert!(built.replay(&changes.collect::<Vec<_>>()).expect("memory").dangling.is_empty());
    assert_eq!((built.keys(), built.space.held_bytes), (2, 0));
}
