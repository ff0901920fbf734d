//! The numbers at which the index changes its table, each looked at from both sides: no story of
//! many keys notices that one of them is off by one.

use super::{Arena, directory, spec};
use crate::WriteError;
use crate::format::layout::TABLE_SHIFT_MAX;
use crate::index::growth::{GROW_PERCENT, PREPARE_PERCENT, PreparedTable, share};
use crate::index::{Index, Table};

const MIB: u64 = 1 << 20;

fn arena() -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    (dir, a)
}

/// Puts keys whose entries stand in the first table's lines from 20 on, a few in each.
fn put_apart(a: &mut Arena, keys: u32) {
    for i in 0..keys {
        a.writer.put(&a.me.pin(), 20 + i % 40, &i.to_le_bytes(), &[b"v"], 0).unwrap();
    }
}

/// Puts keys of one hash.
fn put_alike(a: &mut Arena, hash: u32, keys: std::ops::Range<u32>) {
    for i in keys {
        a.writer.put(&a.me.pin(), hash, format!("same {i}").as_bytes(), &[b"v"], 0).unwrap();
    }
}

#[test]
fn the_index_moves_at_80_per_cent_and_asks_for_a_large_table_at_65() {
    let (_dir, mut a) = arena();
    let mut moves = 0;
    for i in 0..6_000u32 {
        let (lines, load) = (a.writer.stats().index_lines, a.writer.index.load());
        let was_growing = a.writer.index.growing();
        a.put(&i.to_le_bytes(), b"v", 0).unwrap();
        let (growing, entries) = (a.writer.index.growing(), lines * 8);
        if !was_growing {
            // A table of 64 KiB is taken when it is needed, a larger one is asked for.
            let (moves_now, asks) = match lines {
                1024 => (false, load >= share(entries, PREPARE_PERCENT)),
                _ => (load >= share(entries, GROW_PERCENT), false),
            };
            let prepared = a.writer.prepared.is_some();
            assert_eq!((growing, prepared), (moves_now, asks), "{lines} lines, load {load}");
            moves += u32::from(moves_now);
        }
    }
    assert!(moves == 4 && a.writer.prepared.is_some());
    assert_eq!(a.writer.stats().index_lines, 1024);
}

#[test]
fn a_commit_moves_the_index_if_it_fills_more_than_80_per_cent() {
    for (new, grows) in [(209u32, false), (210, true)] {
        let (_dir, mut a) = arena();
        (0..200u32).for_each(|i| a.put(&i.to_le_bytes(), b"old", 0).unwrap());
        let staged: Vec<_> = (150..200 + new)
            .map(|i| a.writer.stage(a.writer.hash(&i.to_le_bytes()), &i.to_le_bytes(), &[b"v"], 0))
            .collect::<Result<_, _>>()
            .unwrap();
        a.writer.commit(&a.me.pin(), false, &staged).unwrap();
        assert_eq!(a.writer.index.growing(), grows, "{new} new keys");
        assert_eq!(a.writer.keys(), u64::from(200 + new));
    }
}

#[test]
fn an_index_shrinks_when_fewer_than_12_per_cent_of_its_entries_live() {
    let (_dir, mut a) = arena();
    (0..500u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.settle();
    assert_eq!((a.writer.stats().index_lines, share(1024, 12)), (128, 122));
    (122..500u32).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    a.settle();
    assert_eq!(a.writer.stats().rebuilds.smaller, 0);
    assert!(a.delete(&0u32.to_le_bytes()));
    a.settle();
    assert_eq!((a.writer.stats().rebuilds.smaller, a.writer.stats().index_lines), (1, 64));
    assert!((1..122u32).all(|i| a.get(&i.to_le_bytes()).is_some()));
    // A larger one shrinks by half at a time.
    (0..900u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.settle();
    assert_eq!(a.writer.stats().index_lines, 256);
    (10..900u32).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    a.settle();
    assert_eq!((a.writer.stats().rebuilds.smaller, a.writer.stats().index_lines), (3, 64));
}

#[test]
fn keys_of_full_lines_part_if_a_quarter_of_their_entries_would_stand_elsewhere() {
    // All sixteen lines of a hash are full; some of their keys have another bit in the larger
    // table.
    for apart in [0, 31, 32, 97, 128] {
        let (_dir, mut a) = arena();
        put_alike(&mut a, 64, 0..apart);
        put_alike(&mut a, 0, apart..128);
        let parts = (a.writer.would_part(0), a.writer.would_part(64));
        assert_eq!(parts, (apart >= 32, 128 - apart >= 32), "{apart} of 128");
    }
    // In a table that would shrink again, nobody parts.
    let (_dir, mut a) = arena();
    put_alike(&mut a, 64, 0..122);
    assert!(!a.writer.would_part(0));
    put_alike(&mut a, 64, 122..123);
    assert!(a.writer.would_part(0));
    // What was deleted is no key.
    (0..100).for_each(|i| assert!(a.writer.remove(64, format!("same {i}").as_bytes())));
    put_apart(&mut a, 200);
    assert!(!a.writer.would_part(0) && !a.writer.would_part(64));
}

#[test]
fn a_commit_of_a_key_too_many_of_its_hash_grows_a_table_that_is_half_full_only() {
    for (others, lines) in [(127, 64), (128, 128)] {
        let (_dir, mut a) = arena();
        put_apart(&mut a, others);
        put_alike(&mut a, 0, 0..128);
        let one_more = a.writer.stage(0, b"one more", &[b"v"], 0).unwrap();
        let refused = a.writer.commit(&a.me.pin(), false, &[one_more]);
        assert_eq!(refused, Err(WriteError::TooManyKeysWithOneHash));
        assert_eq!(a.writer.stats().index_lines, lines, "beside {others} others");
        a.writer.abandon(&[one_more]);
    }
}

#[test]
fn a_growth_ends_at_once_for_a_key_without_a_place_and_another_begins() {
    // The index moves to a table of the same size, in which the key's sixteen lines get as full.
    let (_dir, mut a) = arena();
    put_alike(&mut a, 64, 0..128);
    a.writer.begin_growth(0, false).unwrap();
    assert_eq!(a.writer.stats().index_lines, 64);
    put_alike(&mut a, 0, 128..129);
    assert_eq!((a.writer.stats().index_lines, a.writer.keys()), (128, 129));
}

#[test]
fn a_key_without_a_place_is_refused_if_the_growth_cannot_end() {
    // The keys of two hashes have places apart, and the same ones in a table of half as many lines:
    // those of the second hash stay where they are.
    let (_dir, mut a) = arena();
    put_alike(&mut a, 0, 0..128);
    put_alike(&mut a, 32, 128..256);
    let table = a.writer.take_table(32, false).unwrap();
    a.writer.index.begin_growth(&a.writer.words, table);
    a.writer.migrate(16);
    let refused = a.writer.put(&a.me.pin(), 32, b"one more", &[b"v"], 0);
    assert_eq!(refused, Err(WriteError::TooManyKeysWithOneHash));
    assert!(a.writer.index.growing() && a.writer.index.stuck() && a.writer.keys() == 256);
}

/// The table to which the index moves for some keys more, which want 128 lines, if one with so many
/// lines was prepared: whether it is that one, its lines, and what is left of what was prepared.
fn moved(there: u64, ready: bool) -> (bool, u64, Option<PreparedTable>) {
    let (_dir, mut a) = arena();
    let table = a.writer.take_table(there, false).unwrap();
    a.writer.prepared = Some(PreparedTable { table, ready, unwanted: false });
    a.writer.begin_growth(400, false).unwrap();
    let current = a.writer.index.current();
    (current == table, current.lines, a.writer.prepared)
}

#[test]
fn the_index_moves_to_a_prepared_table_of_at_most_twice_the_lines() {
    for (there, is_it, lines) in
        [(64, false, 128), (128, true, 128), (256, true, 256), (512, false, 128)]
    {
        let (found, of, left) = moved(there, true);
        assert_eq!((found, of, left.is_none()), (is_it, lines, true), "{there} lines");
    }
    // One that is under way stays, unless nobody will want it.
    for (there, unwanted) in [(64, true), (128, true), (256, false)] {
        let (found, of, left) = moved(there, false);
        let left = left.expect("it isn't there yet");
        assert_eq!((found, of, left.unwanted), (false, 128, unwanted), "{there} lines");
    }
}

#[test]
fn a_table_of_the_most_lines_is_a_matter_of_memory() {
    let (_dir, mut a) = arena();
    assert_eq!(a.writer.begin_growth(1 << 40, false), Err(WriteError::Oom));
    // For a larger one it isn't. (Nobody looks into the table.)
    let most = Table::new(1, 1 << TABLE_SHIFT_MAX, a.writer.space.geometry().slot_shift);
    let index = std::mem::replace(&mut a.writer.index, Index::new(most));
    assert_eq!(a.writer.begin_growth(0, true), Err(WriteError::TooManyKeysWithOneHash));
    a.writer.index = index;
}

#[test]
fn a_table_of_a_mib_is_taken_at_once_for_a_key_without_a_place() {
    // So many keys want so many lines. A larger table is asked for.
    let (_dir, mut a) = arena();
    let keys_of = |lines: u64| 4 * lines;
    assert_eq!(a.writer.begin_growth(keys_of(1 << 15), true), Err(WriteError::Oom));
    assert!(a.writer.prepared.is_some_and(|prepared| prepared.table.lines == 1 << 15));
    a.writer.prepared = None;
    assert_eq!(a.writer.begin_growth(keys_of(1 << 14), false), Err(WriteError::Oom));
    assert_eq!(a.writer.begin_growth(keys_of(1 << 14), true), Ok(()));
    assert_eq!(a.writer.index.current().lines, 1 << 14);
}

#[test]
fn memory_is_made_for_a_table_that_is_late_only() {
    let (_dir, mut a) = arena();
    (0..332u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.turn();
    assert!(a.writer.index.load() == share(512, PREPARE_PERCENT) && a.writer.space.hungers());
    let (_dir, mut a) = arena();
    (0..331u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.turn();
    assert!(!a.writer.space.hungers(), "it isn't wanted yet");
    // A large one is under way, or there.
    (0..5_400u32).for_each(|i| a.put_soon(&i.to_le_bytes(), b"v").unwrap());
    assert!(a.writer.prepared.is_some() && !a.writer.index.growing());
    a.writer.space.sate();
    a.turn();
    assert!(!a.writer.space.hungers());
}

#[test]
fn a_prepared_table_of_too_few_lines_gives_way_unless_it_is_under_way() {
    let (_dir, mut a) = arena();
    (0..5_400u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    let lines = |a: &Arena| a.writer.prepared.map(|prepared| prepared.table.lines);
    assert_eq!(lines(&a), Some(2048));
    for (there, ready, then) in [(512, false, 512), (4096, true, 4096), (512, true, 2048)] {
        let backed = a.writer.space.backed_bytes();
        let table = a.writer.take_table(there, false).unwrap();
        assert_eq!(a.writer.space.backed_bytes() - backed, table.bytes());
        a.writer.prepared = Some(PreparedTable { table, ready, unwanted: false });
        let retired = a.writer.space.retired();
        a.writer.prepare_table();
        assert_eq!(lines(&a), Some(then), "{there} lines");
        assert_eq!(a.writer.space.retired() - retired, u32::from(then != there), "{there} lines");
    }
    // One that nobody wanted any more is wanted again, whether it is there or not.
    for ready in [false, true] {
        let prepared = a.writer.prepared.as_mut().expect("asked for");
        (prepared.ready, prepared.unwanted) = (ready, true);
        let table = prepared.table;
        a.writer.prepare_table();
        assert!(a.writer.prepared.is_some_and(|it| it.table == table && !it.unwanted));
    }
}

#[test]
fn a_turn_asks_for_the_next_table() {
    // The last key came when the load was just below.
    let (_dir, mut a) = arena();
    let keys = share(8192, PREPARE_PERCENT);
    (0..keys).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    assert!(a.writer.index.load() == keys && a.writer.prepared.is_none());
    a.turn();
    assert!(a.writer.prepared.is_some());
}

#[test]
fn an_index_does_not_shrink_while_a_write_waits_for_a_larger_table() {
    // The write that was refused is repeated in the next turn, or never.
    let (_dir, mut a) = arena();
    (0..500u32).for_each(|i| a.put(&i.to_le_bytes(), b"v", 0).unwrap());
    a.settle();
    (10..500u32).for_each(|i| assert!(a.delete(&i.to_le_bytes())));
    assert_eq!(a.writer.begin_growth(4 << 15, true), Err(WriteError::Oom));
    // Whether it shrinks, and whether the larger table is still wanted.
    let state = |a: &Arena| {
        (a.writer.index.growing(), a.writer.prepared.is_some_and(|prepared| !prepared.unwanted))
    };
    a.writer.shrink_table();
    assert_eq!(state(&a), (false, true));
    a.writer.shrink_table();
    assert_eq!(state(&a), (true, false));
}

#[test]
fn a_table_that_was_denied_is_asked_for_at_every_second_attempt() {
    // The first one tells that there was none. The write is refused for good, and tried again.
    let (_dir, mut a) = arena();
    a.writer.table_denied = true;
    for asks in [false, true] {
        assert_eq!(a.writer.begin_growth(4 << 15, true), Err(WriteError::Oom));
        assert_eq!(a.writer.prepared.is_some(), asks);
    }
}

#[test]
fn a_smaller_table_of_64_kib_is_taken_at_once() {
    // The index is said to have 2,048 lines, or 4,096, and no key.
    for (lines, at_once) in [(2048, true), (4096, false)] {
        let (_dir, mut a) = arena();
        let table = a.writer.take_table(lines, false).unwrap();
        a.writer.index = Index::new(table);
        a.writer.shrink_table();
        assert_eq!(a.writer.index.growing(), at_once, "{lines} lines");
        assert_eq!(a.writer.prepared.map(|it| it.table.lines), (!at_once).then_some(2048));
    }
}
