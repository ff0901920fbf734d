//! What a busy arena takes beyond what lives in it, and what it keeps for the next burst of writes.
//! A story a test.

use super::{Arena, directory, spec};
use crate::{Upkeep, UpkeepBudget, verify};

const MIB: u64 = 1 << 20;
const KEYS: u32 = 60_000;
/// A second after 1970: the time of the first turn.
const BEGAN_MS: u64 = 1000;

fn key(i: u32) -> Vec<u8> {
    format!("key:{i:08}").into_bytes()
}

fn filled(name: &str, capacity_bytes: u64) -> (tempfile::TempDir, Arena) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join(name), capacity_bytes));
    turn(&mut a, BEGAN_MS);
    for i in 0..KEYS {
        a.put_soon(&key(i), &[1; 100]).unwrap();
        if i % 64 == 0 {
            turn(&mut a, BEGAN_MS);
        }
    }
    (dir, a)
}

fn turn(a: &mut Arena, now_ms: u64) -> Upkeep {
    a.me.quiescent();
    a.writer.maintain(UpkeepBudget { now_ms, ..UpkeepBudget::default() })
}

/// Overwrites so many keys in a random order, without a turn that finds nothing written. Returns
/// the most bytes backed.
fn overwrite(a: &mut Arena, writes: u32, now_ms: u64) -> u64 {
    // Another order each time.
    let (mut random, mut most) = (a.writer.stats().lsn as u32, 0);
    for n in 0..writes {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let i = ((u64::from(random) * u64::from(KEYS)) >> 32) as u32;
        a.put_soon(&key(i), &n.to_le_bytes().repeat(25)).unwrap();
        if n % 64 == 0 {
            turn(a, now_ms);
            most = most.max(a.writer.stats().backed_bytes);
        }
    }
    most
}

/// Turns until nothing is to be done a while after that time.
fn rest(a: &mut Arena, now_ms: u64) {
    turn(a, now_ms);
    loop {
        let done = turn(a, now_ms + 100);
        if !done.more && !done.waiting {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(if done.more { 0 } else { 50 }));
    }
}

#[test]
fn an_arena_that_is_never_idle_takes_twice_what_lives() {
    // Writes came all the time, so nothing was ever packed: 10 MiB of records took all the memory
    // that there was.
    let (_dir, mut a) = filled("a", 128 * MIB);
    let live = a.writer.stats().used_bytes;
    let most = overwrite(&mut a, KEYS * 10, BEGAN_MS);
    assert!(most < 2 * live + 12 * MIB, "{most} bytes for {live}: {:?}", a.writer.stats());
    assert!(a.writer.stats().appended_bytes > 9 * live);
    assert!(verify(&a.spec.path).unwrap().findings.is_empty());

    // One that leaves the dead where they are takes all that was written.
    let (_dir, mut b) = filled("b", 128 * MIB);
    b.writer.leave_sparse();
    assert!(overwrite(&mut b, KEYS * 10, BEGAN_MS) > 5 * live);
    assert_eq!(b.writer.stats().cleaner.steps, 0);
    for i in (0..KEYS).step_by(7) {
        assert_eq!(a.get(&key(i)), b.get(&key(i)), "the same writes in the same order");
    }
}

#[test]
fn the_rest_of_a_large_delete_is_packed_while_a_few_writes_go_on() {
    let (_dir, mut a) = filled("a", 64 * MIB);
    for i in (0..KEYS).filter(|i| i % 8 != 0) {
        assert!(a.delete(&key(i)));
    }
    let before = a.writer.stats();
    // A write a millisecond: never idle, and 200 KiB in all.
    for now_ms in BEGAN_MS..BEGAN_MS + 1500 {
        a.put(&key(0), &[2; 100], 0).unwrap();
        turn(&mut a, now_ms);
    }
    let after = a.writer.stats();
    assert!(after.segments * 2 < before.segments, "{before:?} {after:?}");
    assert_eq!(after.keys, u64::from(KEYS / 8));
}

#[test]
fn a_burst_finds_the_memory_of_the_last_and_none_is_kept_for_long() {
    // Each burst took its memory from the system and gave it back when it was over, which cost more
    // than the writes.
    let (_dir, mut a) = filled("a", 64 * MIB);
    let mut now_ms = BEGAN_MS;
    let mut bursts = |a: &mut Arena, n: u32| {
        for _ in 0..n {
            overwrite(a, KEYS / 2, now_ms);
            now_ms += 1000;
            rest(a, now_ms);
        }
        now_ms
    };
    bursts(&mut a, 5);
    let (asked, appended) = (a.writer.space.asked_slots, a.writer.stats().appended_bytes);
    let now_ms = bursts(&mut a, 5);
    let asked = a.writer.space.asked_slots - asked;
    let taken =
        (a.writer.stats().appended_bytes - appended) / a.writer.space.geometry().slot_bytes();
    assert!(u64::from(asked) * 5 < taken, "the system was asked for {asked} slots of {taken}");

    let kept = a.writer.stats().backed_bytes;
    rest(&mut a, now_ms + 20_000);
    let stats = a.writer.stats();
    assert!(stats.backed_bytes < kept, "{stats:?}");
    let needed = u64::from(stats.segments + 8) * a.writer.space.geometry().slot_bytes() + MIB;
    assert!(stats.backed_bytes < needed, "{needed} would do: {stats:?}");
}

#[test]
fn nothing_is_kept_of_an_arena_that_was_cleared() {
    let (_dir, mut a) = filled("a", 64 * MIB);
    overwrite(&mut a, KEYS, BEGAN_MS);
    a.writer.clear();
    rest(&mut a, BEGAN_MS + 100);
    let stats = a.writer.stats();
    assert!(stats.backed_bytes < 4 * MIB, "{stats:?}");
}
