//! Values that grow in place.

use super::{Arena, directory, spec};
use crate::format::words::SharedWords;
use crate::{RecordRef, verify};

const MIB: u64 = 1 << 20;

fn reference(a: &Arena, key: &[u8]) -> RecordRef {
    let pin = a.me.pin();
    a.reader.get(&pin, a.reader.hash(key), key).expect("a key").reference()
}

fn extend(a: &mut Arena, key: &[u8], bytes: &[u8]) {
    a.soon(|a| {
        let (from, hash) = (reference(a, key), a.writer.hash(key));
        a.writer.extend(&a.me.pin(), from, (hash, key), &[bytes], 0)
    })
    .expect("room");
}

fn stage(a: &mut Arena, key: &[u8], bytes: &[u8]) -> RecordRef {
    let (from, hash) = (reference(a, key), a.writer.hash(key));
    a.writer.stage_extended(&a.me.pin(), from, (hash, key), &[bytes], 0).expect("room")
}

/// Where a key's value begins.
fn place(a: &Arena, key: &[u8]) -> u64 {
    let pin = a.me.pin();
    a.reader.get(&pin, a.reader.hash(key), key).expect("a key").value_ref().offset()
}

fn clean(a: &Arena) {
    let report = verify(&a.spec.path).unwrap();
    assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
}

#[test]
fn a_long_value_grows_where_it_lies_and_its_readers_keep_their_prefix() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let mut wanted = vec![b'-'; 100_000];
    a.put(b"log", &wanted, 0).unwrap();
    extend(&mut a, b"log", b"0");
    wanted.push(b'0');
    let at = place(&a, b"log");
    let reader = a.reader.clone();
    let me = a.domain.join();
    let pin = me.pin();
    let early = reader.get(&pin, reader.hash(b"log"), b"log").unwrap();
    for n in 1..5000u32 {
        extend(&mut a, b"log", &n.to_le_bytes());
        wanted.extend(n.to_le_bytes());
    }
    assert_eq!(place(&a, b"log"), at, "within twice its length it stays where it is");
    assert_eq!((early.value(), early.value_len()), (&wanted[..100_001], 100_001));
    assert_eq!(a.get(b"log").unwrap(), wanted);
    clean(&a);
}

#[test]
fn bytes_that_were_staged_in_vain_are_never_written_again() {
    // A reader may have followed a version that was staged behind the value; a rollback doesn't
    // take its bytes back.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    a.put(b"log", &vec![b'-'; 100_000], 0).unwrap();
    extend(&mut a, b"log", b"one");
    let at = place(&a, b"log");
    let staged = stage(&mut a, b"log", b"in vain");
    a.writer.abandon(&[staged]);
    extend(&mut a, b"log", b"two");
    assert_ne!(place(&a, b"log"), at, "the run has been written behind the value: it is copied");
    assert!(a.get(b"log").unwrap().ends_with(b"-onetwo"));
    let at = place(&a, b"log");
    let first = stage(&mut a, b"log", b"three");
    let other = stage(&mut a, b"log", b"THREE");
    a.writer.commit(&a.me.pin(), false, &[other]).unwrap();
    a.writer.abandon(&[first]);
    assert!(a.get(b"log").unwrap().ends_with(b"-onetwoTHREE"));
    assert_ne!(place(&a, b"log"), at);
    clean(&a);
}

#[test]
fn a_grown_value_is_adopted_and_grows_on() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let mut wanted = vec![b'-'; 300_000];
    a.put(b"log", &wanted, 0).unwrap();
    a.put(b"other", b"o", 0).unwrap();
    extend(&mut a, b"log", b"one");
    wanted.extend(b"one");
    // The killed writer had written more than it published.
    let staged = stage(&mut a, b"log", &[b'#'; 50_000]);
    let (mut a, _) = a.again();
    assert_ne!(staged.arena, reference(&a, b"log").arena);
    assert_eq!(a.get(b"log").unwrap(), wanted);
    let (at, backed) = (place(&a, b"log"), a.writer.stats().backed_bytes);
    for _ in 0..100 {
        extend(&mut a, b"log", &[b'+'; 1000]);
        wanted.extend([b'+'; 1000]);
    }
    assert_eq!((place(&a, b"log"), a.get(b"log").unwrap()), (at, wanted));
    let more = a.writer.stats().backed_bytes - backed;
    assert!((100_000..300_000).contains(&more), "{more}: what was given back is taken again");
    clean(&a);
}

#[test]
fn all_runs_together_have_a_bounded_room() {
    // A value of 80 KB that grows in a run takes the addresses of a whole slot: without a bound
    // they were gone long before the memory was, and then no large value and no larger index found
    // a place.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let key = |n: u32| format!("key{n}").into_bytes();
    for n in 0..400 {
        a.soon(|a| a.put(&key(n), &vec![n as u8; 80_000], 0)).unwrap();
        extend(&mut a, &key(n), b"more");
        a.turn();
    }
    let slots = a.writer.space.geometry().slots;
    assert_eq!(a.writer.stats().runs, slots / 4, "the others lie in segments");
    for n in 0..400 {
        let wanted = [vec![n as u8; 80_000], b"more".to_vec()].concat();
        assert_eq!(a.get(&key(n)).unwrap(), wanted);
    }
    clean(&a);
    (0..400).for_each(|n| assert!(a.delete(&key(n))));
    a.settle();
    let stats = a.writer.stats();
    assert_eq!((stats.runs, stats.used_bytes), (0, 0));
    // The room is there for others.
    a.soon(|a| a.put(b"new", &vec![1; 80_000], 0)).unwrap();
    extend(&mut a, b"new", b"more");
    assert_eq!(a.writer.stats().runs, 1);
}

#[test]
fn a_run_counts_once_by_its_memory() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    a.put(b"log", &vec![b'-'; 1_000_000], 0).unwrap();
    extend(&mut a, b"log", b"+");
    let used = a.writer.stats().used_bytes;
    let hash = a.writer.hash(b"log");
    assert!(a.writer.set_expiry(&a.me.pin(), hash, b"log", 9_000_000_000_000).unwrap());
    assert_eq!(a.writer.stats().used_bytes, used, "two records name it for a while");
    for _ in 0..40 {
        extend(&mut a, b"log", &[b'+'; 10_000]);
    }
    let grown = a.writer.stats().used_bytes - used;
    assert!((400_000..500_000).contains(&grown), "{grown}");
    assert!(a.delete(b"log"));
    assert_eq!(a.writer.stats().used_bytes, 0);
}

#[test]
fn damage_of_a_value_is_still_told_when_it_was_extended_and_copied() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    a.put(b"log", &vec![b'-'; 300_000], 0).unwrap();
    extend(&mut a, b"log", b"one");
    let at = place(&a, b"log");
    a.writer.words.copy_in(at + 1000, b"#");
    extend(&mut a, b"log", b"in place");
    let named = |a: &Arena| verify(&a.spec.path).unwrap().bad_records.len();
    assert_eq!((named(&a), place(&a, b"log")), (1, at));
    extend(&mut a, b"log", &vec![b'+'; 1_000_000]);
    assert_eq!(named(&a), 1, "a copy with a sum of its own would hide it");
    assert_ne!(place(&a, b"log"), at);
}

#[test]
fn a_value_grows_until_memory_ends_and_says_so() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"log", &vec![b'-'; 100_000], 0).unwrap();
    for n in 0..20_000u32 {
        a.soon(|a| a.put(format!("key{}", n % 2000).as_bytes(), &[b'v'; 500], 0)).unwrap();
    }
    let mut len = 100_000;
    let error = loop {
        let hash = a.writer.hash(b"log");
        let extended = a.soon(|a| {
            let from = reference(a, b"log");
            a.writer.extend(&a.me.pin(), from, (hash, b"log"), &[&[b'+'; 5000]], 0)
        });
        match extended {
            Ok(()) => len += 5000,
            Err(error) => break error,
        }
    };
    assert_eq!((error, a.get(b"log").unwrap().len()), (crate::WriteError::Oom, len));
    // Twice its length was the last that it was copied to; all but that and the other keys is its
    // own.
    assert!(len > 1_500_000, "{len}");
    assert!(a.delete(b"log"));
    a.settle();
    a.soon(|a| a.put(b"again", &vec![b'-'; 1_000_000], 0)).unwrap();
    clean(&a);
}
