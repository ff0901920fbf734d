//! What another process learns of an arena besides values: numbers of changes, counts, and what the
//! owner promises.

use super::stepped::Stepped;
use super::{Arena, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::{DurableWord, ForeignCounters, ForeignReader, ForeignVersion};
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

#[test]
fn another_process_sees_what_the_owner_counts_and_promises() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    for (key, expiry_ms) in [(b"a", 0), (b"b", 5000), (b"c", 6000), (b"d", 0)] {
        a.put(key, &[7; 1000], expiry_ms).unwrap();
    }
    assert!(a.delete(b"d"));
    a.settle();
    let durable = DurableWord::of(a.writer.region());
    durable.store(3);
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let stats = a.writer.stats();
    let counters = ForeignCounters {
        keys: 3,
        expires: 2,
        live_bytes: stats.used_bytes,
        appended_bytes: stats.appended_bytes,
        backed_bytes: stats.backed_bytes,
        committed_lsn: 5,
        durable_lsn: 3,
    };
    assert_eq!(foreign.counters(), counters);
    assert_eq!((foreign.begun_lsn(), foreign.durable_lsn(), durable.load()), (5, 3, 3));
    assert_eq!((foreign.hash(b"a"), foreign.incarnation()), (a.writer.hash(b"a"), 2));
    for wait in [false, true, false] {
        a.writer.set_replies_wait(wait);
        assert_eq!(foreign.replies_wait(), wait);
    }
    let seed = a.writer.words.load32(header::SEED, Relaxed);
    assert_eq!((foreign.info().seed, a.reader.seed()), (seed, seed));
}

#[test]
fn a_version_is_the_change_that_set_its_key() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"a", b"1", 0).unwrap();
    a.put(b"b", b"2", 5000).unwrap();
    a.put(b"a", b"3", 0).unwrap();
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let (a3, b2) =
        (ForeignVersion { lsn: 3, expiry_ms: 0 }, ForeignVersion { lsn: 2, expiry_ms: 5000 });
    let mut out = Vec::new();
    for (key, version, value) in [(b"a", a3, b"3"), (b"b", b2, b"2")] {
        assert_eq!(foreign.version(key).unwrap(), Some(version));
        assert_eq!(foreign.get_version(key, &mut out).unwrap(), Some(version));
        assert_eq!(out, value);
    }
    assert_eq!(foreign.version(b"c").unwrap(), None);
    assert_eq!(foreign.get_version(b"c", &mut out).unwrap(), None);
    assert!(out.is_empty(), "no value is left of another key");
}

#[test]
fn only_a_value_that_is_wanted_is_copied() {
    // A copy of such a value takes a load for each 32 KiB of it.
    const LONG: usize = 3_000_000;
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    a.put(b"k", &[1; LONG], 0).unwrap();
    let foreign = ForeignReader::open(&a.spec.path).unwrap().over(Stepped::over);
    let words = foreign.words().clone();
    words.plan(60, || panic!("a value is copied that nobody asked for"));
    assert_eq!(foreign.version(b"k").unwrap(), Some(ForeignVersion { lsn: 1, expiry_ms: 0 }));
    assert!(words.was_short());
    // A view goes by a value that is newer than its moment.
    a.put(b"k", b"old", 0).unwrap();
    let mut out = Vec::new();
    let found = foreign.view(|view| {
        a.put(b"k", &[2; LONG], 0).unwrap();
        words.plan(60, || panic!("a newer value is copied"));
        let found = view.get(b"k", &mut out);
        assert!(words.was_short());
        found
    });
    assert_eq!((found.unwrap(), &out[..]), (Some(0), &b"old"[..]));
}
