//! Keys with one hash, which a client may choose: how many there may be, and that others keep their
//! places.

use super::{Arena, directory, spec};
use crate::WriteError;
use crate::index::growth::ALIKE_MAX;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;
const HASH: u32 = 42;

fn arena() -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    a.writer.alike_max = ALIKE_MAX;
    (dir, a)
}

fn key(i: usize) -> Vec<u8> {
    format!("same {i}").into_bytes()
}

fn put(a: &mut Arena, i: usize) -> Result<(), WriteError> {
    a.writer.put(&a.me.pin(), HASH, &key(i), &[b"v"], 0)
}

/// Commits these keys, all of one hash, behind a clearing if `clears`.
fn commit(
    a: &mut Arena,
    clears: bool,
    keys: impl Iterator<Item = usize>,
) -> Result<(), WriteError> {
    let pin = a.me.pin();
    let stage = |i| a.writer.stage(HASH, &key(i), &[b"w"], 0).expect("room");
    let refs: Vec<_> = keys.map(stage).collect();
    let done = a.writer.commit(&pin, clears, &refs);
    if done.is_err() {
        a.writer.abandon(&refs);
    }
    done
}

fn count(a: &Arena) -> usize {
    let pin = a.me.pin();
    (0..1000).filter(|i| a.reader.get(&pin, HASH, &key(*i)).is_some()).count()
}

/// One lane of four bytes in each of two stripes that follow each other. With the other values the
/// accumulator of xxHash32 is the same behind them, for one half of the seeds or the other: the
/// highest bit of the first becomes a difference of 2^12 by the rotation, which the second takes
/// back.
fn unit(number: usize, way: usize) -> [u32; 2] {
    const P1: u32 = 0x9E37_79B1;
    const P2: u32 = 0x85EB_CA77;
    // Newton's iteration doubles the right bits: 3, 6, 12, 24, 48.
    let inverse = (0..4).fold(P2, |x, _| x.wrapping_mul(2u32.wrapping_sub(P2.wrapping_mul(x))));
    let step = (1u32 << 12).wrapping_mul(P1).wrapping_mul(inverse);
    let (a, b) = (number as u32 + 7, number as u32 + 99);
    match way {
        0 => [a, b],
        1 => [a ^ 1 << 31, b.wrapping_add(step)],
        _ => [a ^ 1 << 31, b.wrapping_sub(step)],
    }
}

/// Of 6,561 keys, 256 have one hash, whatever the seed. So a seed that nobody knows isn't enough.
#[test]
fn keys_collide_whatever_the_seed() {
    let keys = (0..3usize.pow(8)).map(|n| {
        let mut key = [0u8; 64];
        for number in 0..8 {
            let way = n / 3usize.pow(number as u32) % 3;
            // Four units in each pair of stripes of 16 bytes.
            let at = number / 4 * 32 + number % 4 * 4;
            for (at, word) in [at, at + 16].into_iter().zip(unit(number, way)) {
                key[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
        key
    });
    let keys: Vec<[u8; 64]> = keys.collect();
    for seed in [0, 1, 0xDEAD_BEEF, 0x1234_5678] {
        let mut groups = HashMap::<u32, usize>::new();
        for key in &keys {
            *groups.entry(crate::format::hash::hash(seed, key)).or_default() += 1;
        }
        assert_eq!(groups.into_values().max(), Some(256), "seed {seed:#x}");
    }
}

/// 128 keys of one hash had all places that they can have, in each table. So growth never ended,
/// and most new keys of others were refused, in an arena that was nearly empty.
#[test]
fn keys_of_one_hash_leave_places_for_others() {
    for others_first in [0, 400u32] {
        let (_dir, mut a) = arena();
        for i in 0..others_first {
            a.put(&i.to_le_bytes(), b"x", 0).expect("room");
        }
        for i in 0..128 {
            let done = put(&mut a, i);
            let is_one_too_many = i >= ALIKE_MAX;
            let refused = Err(WriteError::TooManyKeysWithOneHash);
            assert_eq!(done, if is_one_too_many { refused } else { Ok(()) }, "key {i}");
        }
        for i in others_first..20_000 {
            a.put_soon(&i.to_le_bytes(), b"x").expect("a place, and memory");
            assert_eq!(put(&mut a, 500), Err(WriteError::TooManyKeysWithOneHash), "in any table");
        }
        let turns = (0..5000).take_while(|_| {
            a.turn();
            a.writer.stats().growing
        });
        assert!(turns.count() < 5000, "growth ends");
        assert_eq!(put(&mut a, 7), Ok(()), "one that is there is none too many");
        assert!(a.writer.delete(&a.me.pin(), HASH, &key(7)));
        assert_eq!(
            (put(&mut a, 500), count(&a)),
            (Ok(()), ALIKE_MAX),
            "it has the place of another"
        );
    }
}

/// The same of keys that come together. What is there may be written and deleted together.
#[test]
fn a_commit_brings_no_more_than_may_be() {
    let refused = Err(WriteError::TooManyKeysWithOneHash);
    let (_dir, mut a) = arena();
    assert_eq!(commit(&mut a, false, 0..ALIKE_MAX + 1), refused);
    assert_eq!(commit(&mut a, true, 0..ALIKE_MAX + 1), refused);
    assert_eq!(count(&a), 0);
    assert_eq!(commit(&mut a, false, (0..ALIKE_MAX).chain(0..ALIKE_MAX)), Ok(()), "each twice");
    assert_eq!(count(&a), ALIKE_MAX);
    assert_eq!(commit(&mut a, false, [0, 500].into_iter()), refused, "one more");
    assert_eq!(commit(&mut a, false, 0..ALIKE_MAX), Ok(()), "all are there");
    assert_eq!(commit(&mut a, true, 100..100 + ALIKE_MAX), Ok(()), "instead of them");
    assert_eq!(count(&a), ALIKE_MAX);
    // Two commits may bring twice as many: they count what is there, and what they bring.
    let (_dir, mut a) = arena();
    assert_eq!(commit(&mut a, false, 0..ALIKE_MAX - 1), Ok(()));
    assert_eq!(commit(&mut a, false, 100..100 + ALIKE_MAX), Ok(()));
    assert_eq!(put(&mut a, 500), refused);
    let pin = a.me.pin();
    let refs: Vec<_> = (0..ALIKE_MAX - 1)
        .chain(100..100 + ALIKE_MAX)
        .map(|i| a.writer.stage_delete(HASH, &key(i)).expect("room"))
        .collect();
    a.writer.commit(&pin, false, &refs).expect("deletions are never too many");
    assert_eq!(count(&a), 0);
}

/// Each of a commit's keys was compared with all others of its hash, before they were refused.
#[test]
fn the_last_of_each_key_counts_among_many_of_one_hash() {
    let (_dir, mut a) = arena();
    a.writer.alike_max = usize::MAX;
    let stage = |i: usize| a.writer.stage(HASH, &key(i), &[b"w"], 0).expect("room");
    let refs: Vec<_> = (0..30_000).chain(0..100).map(stage).collect();
    let entries = refs.iter().map(crate::RecordRef::entry).collect();
    let last = a.writer.last_of_each_key(entries);
    let expected: Vec<u64> = refs[100..].iter().map(crate::RecordRef::entry).collect();
    assert_eq!(last, expected);
    a.writer.abandon(&refs);
}
