//! The index's tables: each key finds a place, and memory that was taken ahead is given back when
//! nobody will want it any more.

use super::{Arena, directory, spec};
use crate::format::layout::{LINE_BYTES, REF_DELETED, entry};
use crate::format::words::SharedWords;
use crate::{ArenaSpec, Domain, Writer};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
/// Keys that fill a table of 2^18 entries so far that the next one is asked for, of 4 MiB.
const KEYS: u32 = 175_000;
/// How long the memory thread is held up where it is to be late.
const LATE_US: u64 = 50_000;

/// An arena that has asked for its next table, which is there or still comes.
fn about_to_grow(dir: &tempfile::TempDir, is_there: bool) -> Arena {
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    for i in 0..KEYS - 10_000 {
        a.put_soon(&i.to_le_bytes(), b"v").unwrap();
        if i.is_multiple_of(64) {
            a.turn();
        }
    }
    a.settle();
    assert!(a.writer.prepared.is_none() && !a.writer.stats().growing);
    a.domain.provisioner().slow.set(if is_there { 0 } else { LATE_US });
    for i in KEYS - 10_000..KEYS {
        a.put_soon(&i.to_le_bytes(), b"v").unwrap();
    }
    assert!(a.writer.prepared.is_some() && !a.writer.stats().growing);
    if is_there {
        a.settle();
    }
    a
}

#[test]
fn a_table_prepared_for_keys_that_were_cleared_is_given_back() {
    // FLUSHALL just before the index would have grown. The next table stayed, counted and of no
    // use, until a small one had grown as large; one that was still under way came.
    for is_there in [true, false] {
        let dir = directory();
        let mut a = about_to_grow(&dir, is_there);
        a.writer.clear();
        a.settle();
        let stats = a.writer.stats();
        assert!(a.writer.prepared.is_none(), "there: {is_there}");
        assert!(stats.backed_bytes < 2 * MIB, "there: {is_there}, {stats:?}");
        for i in 0..KEYS {
            a.put_soon(&i.to_le_bytes(), b"v").unwrap();
            if i.is_multiple_of(64) {
                a.turn();
            }
        }
        assert!((0..KEYS).all(|i| a.get(&i.to_le_bytes()).is_some()));
    }
}

#[test]
fn an_index_of_few_keys_does_not_move_to_the_table_prepared_for_more() {
    // Nearly all keys go just before the index would have grown. It moved to the table that was
    // there, twice as large as its own, instead of half.
    for is_there in [true, false] {
        let dir = directory();
        let mut a = about_to_grow(&dir, is_there);
        let before = a.writer.stats();
        for i in 0..KEYS - 100 {
            assert!(a.delete(&i.to_le_bytes()));
        }
        a.settle();
        let stats = a.writer.stats();
        assert_eq!(stats.rebuilds.larger, before.rebuilds.larger, "there: {is_there}");
        assert!(stats.index_lines * LINE_BYTES <= 64 << 10, "there: {is_there}, {stats:?}");
        assert!(a.writer.prepared.is_none(), "there: {is_there}");
        assert!((KEYS - 100..KEYS).all(|i| a.get(&i.to_le_bytes()).is_some()));
    }
}

#[test]
fn a_commit_that_waits_for_a_large_table_gets_it_though_the_index_is_nearly_empty() {
    // Of many keys a few are left, so the upkeep wants a smaller table; a commit of more keys than
    // there ever were wants a larger one. It is told to wait, and what it waits for isn't thrown
    // away meanwhile.
    for late_us in [0, 2_000] {
        let dir = directory();
        let mut a = about_to_grow(&dir, true);
        for i in 0..KEYS - 100 {
            assert!(a.delete(&i.to_le_bytes()));
        }
        a.domain.provisioner().slow.set(late_us);
        let refs: Vec<_> = (KEYS..3 * KEYS)
            .map(|i| {
                let key = i.to_le_bytes();
                let hash = a.writer.hash(&key);
                a.soon(|a| a.writer.stage(hash, &key, &[b"v"], 0)).unwrap()
            })
            .collect();
        a.soon(|a| a.writer.commit(&a.me.pin(), false, &refs)).unwrap();
        assert_eq!(a.writer.keys(), u64::from(2 * KEYS) + 100);
    }
}

#[test]
fn the_index_does_not_move_to_a_table_far_too_large() {
    // The same in front of a write: what it wants now is a quarter of what was prepared, which is
    // given back.
    let dir = directory();
    let mut a = about_to_grow(&dir, true);
    for i in 0..KEYS - 100 {
        assert!(a.delete(&i.to_le_bytes()));
    }
    assert!(a.writer.begin_growth(0, false).is_err() && a.writer.prepared.is_none());
}

/// An arena of so many keys with a table of 4,096 lines, of which DELETED entries fill so much that
/// the load asks for another.
fn full_of_deleted(dir: &tempfile::TempDir, keys: u32) -> Arena {
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    for i in 0..14_000u32 {
        a.put_soon(&i.to_le_bytes(), b"v").unwrap();
    }
    a.settle();
    for i in keys..14_000u32 {
        assert!(a.delete(&i.to_le_bytes()));
    }
    let (spec, words, table) = (a.spec.clone(), a.writer.words, a.writer.index.current());
    let entries = (table.offset..table.offset + table.bytes()).step_by(8);
    let empty: Vec<u64> = entries.filter(|&at| words.load64(at, Relaxed) == 0).collect();
    drop(a);
    let file = std::fs::OpenOptions::new().write(true).open(&spec.path).unwrap();
    let wanted = table.entries() * 66 / 100 - (table.entries() - empty.len() as u64);
    for at in empty.into_iter().take(wanted as usize) {
        file.write_all_at(&entry(0, REF_DELETED).to_le_bytes(), at).unwrap();
    }
    let (a, _) = Arena::adopt(&spec);
    assert!(a.writer.index.load() * 100 >= table.entries() * 65 && table.lines == 4096);
    a
}

#[test]
fn an_index_of_few_keys_and_many_deleted_entries_shrinks() {
    // The load asks for a table of the same size, since it could grow until that is needed; that
    // few are alive asks for half of it. Both agree on the half: else each would throw away what
    // the other has asked for.
    let dir = directory();
    let mut a = full_of_deleted(&dir, 3_700);
    for _ in 0..2_000 {
        if a.writer.stats().index_lines < 4096 {
            break;
        }
        a.turn();
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    assert_eq!(a.writer.stats().index_lines, 2048);
    a.settle();
    assert!(a.writer.prepared.is_none() && a.writer.keys() == 3_700);
}

#[test]
fn an_index_of_few_keys_does_not_move_to_the_table_prepared_for_as_many() {
    // A table of the same size is there when most keys go: the index moves to half of it, and does
    // so once.
    let dir = directory();
    let mut a = full_of_deleted(&dir, 6_500);
    a.settle();
    assert!(a.writer.prepared.is_some() && a.writer.stats().index_lines == 4096);
    for i in 3_000..6_500u32 {
        assert!(a.delete(&i.to_le_bytes()));
    }
    a.settle();
    let stats = a.writer.stats();
    assert_eq!((stats.index_lines, stats.rebuilds.same, stats.rebuilds.smaller), (2048, 0, 1));
    assert!(a.writer.prepared.is_none());
}

#[test]
fn keys_that_come_and_go_always_find_a_place() {
    // A sweep over the table deletes what is over, while other keys come: where it has not been for
    // long, lines are full though the table is half empty. A key that met sixteen of them was
    // refused for its hash.
    let dir = directory();
    for seed in 1..8u64 {
        let spec = ArenaSpec { seed: Some(seed as u32), ..spec(dir.path().join("a"), 32 * MIB) };
        let mut a = Arena::create(&spec);
        let (mut random, mut now_ms, mut number) = (seed, 1_000_000, 0);
        let mut below = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % most
        };
        for _ in 0..200 {
            for _ in 0..below(300) {
                number += 1;
                let key = format!("key{number}");
                a.put(key.as_bytes(), b"v", now_ms + 1 + below(50)).unwrap();
            }
            now_ms += below(20);
            a.writer.expire_step(&a.me.pin(), now_ms, below(40) as u32);
            if below(3) > 0 {
                a.turn();
            }
        }
        drop(a);
        std::fs::remove_file(&spec.path).unwrap();
    }
}

#[test]
fn keys_in_the_order_of_another_table_find_places_while_an_arena_is_built() {
    // A log's base has its keys in the order of the table that they stood in. In a smaller one they
    // filled sixteen lines, and a table twice as large didn't part them: the start from the log was
    // refused for keys with one hash, each of which had its own.
    let dir = directory();
    let (domain, spec) = (Domain::new(4), spec(dir.path().join("a"), 16 * MIB));
    let writer = Writer::build(&spec, &domain).unwrap();
    let mut a = Arena::of(writer, domain, spec);
    let of_line = |line, count: std::ops::Range<u32>| count.map(move |n| n << 7 | line);
    let mut hashes: Vec<u32> = (0..16).flat_map(|line| of_line(line, 0..8)).collect();
    hashes.extend(of_line(0, 8..40));
    for together in [1, 2] {
        let key = |hash: u32| format!("{hash} {together}").into_bytes();
        for some in hashes.chunks(together) {
            let put = |a: &mut Arena| match *some {
                [hash] => a.writer.put(&a.me.pin(), hash, &key(hash), &[b"v"], 0),
                _ => {
                    let staged = some.iter().map(|&h| a.writer.stage(h, &key(h), &[b"v"], 0));
                    let staged: Vec<_> = staged.collect::<Result<_, _>>()?;
                    let done = a.writer.commit(&a.me.pin(), false, &staged);
                    done.inspect_err(|_| a.writer.abandon(&staged))
                }
            };
            a.soon(put).unwrap();
        }
        let is_there = |&hash: &u32| a.reader.get(&a.me.pin(), hash, &key(hash)).is_some();
        assert!(hashes.iter().all(is_there));
        a.writer.clear();
        a.settle();
    }
}

#[test]
fn an_index_for_keys_that_are_expected_grows_once_within_a_share_of_the_arena() {
    // A log is replayed: as its first keys come, the caller guesses how many will. Without a guess
    // the index grew ten times. One for more keys than the arena could hold made no larger table.
    let grown = |capacity, guess| {
        let dir = directory();
        let mut a = Arena::create(&spec(dir.path().join("a"), capacity));
        a.writer.expect_keys(guess);
        for i in 0..20_000u32 {
            a.put_soon(&i.to_le_bytes(), b"v").unwrap();
            if i.is_multiple_of(64) {
                a.turn();
            }
        }
        assert!((0..20_000u32).all(|i| a.get(&i.to_le_bytes()).is_some()));
        let stats = a.writer.stats();
        (stats.rebuilds.larger, stats.index_lines * LINE_BYTES)
    };
    let (steps, least) = grown(64 * MIB, 0);
    assert!(steps >= 5, "{steps}");
    assert_eq!(grown(64 * MIB, 20_000), (1, least));
    let (steps, bytes) = grown(64 * MIB, u64::MAX);
    assert!(steps == 1 && bytes <= 64 * MIB / 64, "{steps} steps, {bytes} bytes");
}
