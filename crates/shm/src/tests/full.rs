//! A full arena: what it refuses, what makes room in it, and when its memory goes back.

use super::cleaning::{MIB, blocks, fill, key, value};
use super::{Arena, directory, spec};
use crate::WriteError;

#[test]
fn a_really_full_arena_says_so_and_deleting_makes_room() {
    // Live data fills the arena: OOM, and no endless "try again". All is there. A tenth deleted at
    // random gives room for as much again, though no segment has died by itself.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    let mut n = 0;
    let refused = loop {
        match a.put_soon(&key(n), &value(n, 0, 1000)) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
        if n.is_multiple_of(64) {
            a.turn();
        }
    };
    assert_eq!(refused, WriteError::Oom);
    let stats = a.writer.stats();
    assert!(stats.used_bytes * 100 >= 85 * stats.capacity_bytes, "{stats:?}");
    assert_eq!(a.put_soon(&key(n), &value(n, 0, 1000)), Err(WriteError::Oom));
    assert!((0..n).all(|i| a.get(&key(i)).is_some()));
    let hash = a.writer.hash(&key(3));
    assert!(a.soon(|a| a.writer.set_expiry(&a.me.pin(), hash, &key(3), 77)).unwrap());
    for i in (0..n).step_by(10) {
        assert!(a.delete(&key(i)));
    }
    for i in 0..n / 11 {
        a.put_soon(&key(n + i), &value(n + i, 0, 1000)).unwrap();
        if i.is_multiple_of(16) {
            a.turn();
        }
    }
    assert!((0..n).filter(|i| i % 10 != 0).all(|i| a.get(&key(i)) == Some(value(i, 0, 1000))));
    assert!((0..n / 11).all(|i| a.get(&key(n + i)).is_some()));
    assert!(a.writer.stats().cleaner.segments > 0);
}

#[test]
fn memory_goes_back_after_everything_or_nearly_everything_was_deleted() {
    // A large delete at random leaves each segment a few records: they are packed, and the rest is
    // given back. Clearing gives back the rest.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let n = fill(&mut a, 60);
    let full = blocks(&a);
    for i in 0..n {
        if i % 20 != 0 {
            assert!(a.delete(&key(i)));
        }
        if i.is_multiple_of(256) {
            a.turn();
        }
    }
    a.settle();
    let (stats, left) = (a.writer.stats(), blocks(&a));
    assert!(left < full / 5, "{left} of {full} bytes: {stats:?}");
    assert!(stats.rebuilds.smaller >= 1, "{stats:?}");
    assert!(left <= stats.backed_bytes);
    assert!((0..n).step_by(20).all(|i| a.get(&key(i)) == Some(value(i, 0, 100))));
    a.writer.clear();
    a.settle();
    let left = blocks(&a);
    assert!(left < 2 * MIB, "{left} of {full} bytes: {:?}", a.writer.stats());
}

#[test]
fn a_commit_too_large_for_what_is_clean_gets_room_in_a_few_turns() {
    // Half of the arena is dead but in no segment wholly. A commit of a fifth of the arena is told
    // to wait, changes nothing until then, and succeeds.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let n = fill(&mut a, 85);
    for i in (0..n).step_by(2) {
        assert!(a.delete(&key(i)));
    }
    let mut waits = 0;
    let several = |a: &mut Arena| {
        let mut staged = Vec::new();
        for i in 0..80 {
            let (k, v) = (key(i), value(i, 5, 40_000));
            match a.writer.stage(a.writer.hash(&k), &k, &[&v], 0) {
                Ok(one) => staged.push(one),
                Err(error) => {
                    a.writer.abandon(&staged);
                    return Err(error);
                }
            }
        }
        a.writer.commit(&a.me.pin(), false, &staged).inspect_err(|_| a.writer.abandon(&staged))
    };
    a.soon(|a| several(a).inspect_err(|_| waits += 1)).unwrap();
    assert!(waits > 0, "there was room at once");
    assert!((0..80).all(|i| a.get(&key(i)) == Some(value(i, 5, 40_000))));
    assert!((81..n).step_by(2).all(|i| a.get(&key(i)) == Some(value(i, 0, 100))));
}

#[test]
fn a_value_of_many_slots_gets_room_by_cleaning() {
    // Dead bytes are spread over all segments; a value larger than all that is clean comes.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let n = fill(&mut a, 85);
    for i in (0..n).filter(|i| i % 3 != 0) {
        assert!(a.delete(&key(i)));
    }
    a.put_soon(b"large", &vec![1; 5_000_000]).unwrap();
    assert_eq!(a.get(b"large").unwrap(), vec![1; 5_000_000]);
    assert!((0..n).step_by(3).all(|i| a.get(&key(i)) == Some(value(i, 0, 100))));
    assert_eq!(a.put_soon(b"larger", &vec![1; 12_000_000]), Err(WriteError::Oom));
}

#[test]
fn short_records_behind_long_values_leave_the_reserve() {
    // Long values filled the arena while of its only segment a step was backed. Short records took
    // the rest of it, out of the reserve: no expiry and no tombstone ever found room again.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let mut n = 0;
    // Not even the shortest record finds room in the end.
    for bytes in [140_000, 4000, 0] {
        let refused = loop {
            match a.put_soon(&key(n), &vec![1; bytes]) {
                Ok(()) => n += 1,
                Err(error) => break error,
            }
            a.turn();
        };
        assert_eq!(refused, WriteError::Oom, "{n} keys");
    }
    assert!(n > 450 && a.writer.stats().segments == 1, "{:?}", a.writer.stats());
    for i in [0, n - 1] {
        let hash = a.writer.hash(&key(i));
        assert!(a.soon(|a| a.writer.set_expiry(&a.me.pin(), hash, &key(i), 77)).unwrap());
        let gone = a.soon(|a| a.writer.stage_delete(hash, &key(i))).unwrap();
        a.soon(|a| a.writer.commit(&a.me.pin(), false, &[gone])).unwrap();
        assert_eq!(a.get(&key(i)), None);
    }
}

#[test]
fn no_write_backs_more_than_one_slot_itself_when_the_memory_thread_is_late() {
    // Three slots of 1 MiB in front of one write were a step of nearly two milliseconds.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 256 * MIB));
    a.domain.provisioner().slow.set(100_000);
    let mut most = 0;
    for i in 0..60 {
        let before = a.writer.space.backed_here;
        a.put(&key(i), &value(i, 0, 400_000), 0).unwrap();
        most = most.max(a.writer.space.backed_here - before);
        a.turn();
    }
    a.domain.provisioner().slow.set(0);
    assert!(most <= 1, "{most} slots: {:?}", a.writer.stats());
}
