//! Snapshots: as of one moment, beside writers, within their bound.

#![expect(clippy::cast_possible_truncation, reason = "values are made of counters")]

use crate::{all, open, small};
use nigh::{Db, DbError, Snapshot, WriteBatch, WriteOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// All of a snapshot, which has each key once.
fn read(snapshot: Snapshot) -> Map {
    let pairs: Result<Vec<_>, _> = snapshot.collect();
    let pairs = pairs.expect("it holds back little");
    let (count, map) = (pairs.len(), Map::from_iter(pairs));
    assert_eq!(count, map.len(), "each key is there once");
    map
}

/// Ends the other threads of a story when its thread ends, also by a failure.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A write of the model test: a key's new value, or none.
fn writes() -> impl Strategy<Value = Vec<(u8, Option<Vec<u8>>)>> {
    let short = proptest::collection::vec(any::<u8>(), 0..60);
    let long = (any::<u8>(), 30_000..80_000_usize).prop_map(|(byte, len)| vec![byte; len]);
    let value = prop_oneof![9 => short.prop_map(Some), 1 => long.prop_map(Some), 5 => Just(None)];
    proptest::collection::vec((any::<u8>(), value), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_is_the_map_of_its_moment(
        before in writes(), after in writes(), steps in 0..100_usize, prefix in 0..4_u8,
    ) {
        // Some writes; a snapshot, of which some is read; more writes, and then the rest.
        let dir = tempfile::tempdir().expect("a folder");
        let db = open(&dir.path().join("data"));
        let mut map = Map::new();
        let key = |n: u8| vec![n % 4, n];
        let write = |map: &mut Map, writes: &[(u8, Option<Vec<u8>>)]| {
            for (n, value) in writes {
                match value {
                    Some(value) => {
                        db.put(&key(*n), value).expect("put");
                        map.insert(key(*n), value.clone());
                    }
                    None => {
                        let was_there = map.remove(&key(*n)).is_some();
                        assert_eq!(db.delete(&key(*n)).expect("delete"), was_there);
                    }
                }
            }
        };
        write(&mut map, &before);
        let at_moment = map.clone();
        let mut snapshot = db.snapshot().expect("snapshot");
        let of_prefix = db.snapshot_of(&[prefix]).expect("snapshot");
        let now = db.watch(b"").and_then(|watch| watch.place());
        prop_assert_eq!(snapshot.place(), &now.expect("a place"));
        let mut found: Vec<_> =
            snapshot.by_ref().take(steps).map(|pair| pair.expect("a pair")).collect();
        write(&mut map, &after);
        found.extend(snapshot.map(|pair| pair.expect("a pair")));
        found.sort();
        prop_assert_eq!(&found, &at_moment.clone().into_iter().collect::<Vec<_>>());
        let meant = at_moment.into_iter().filter(|(key, _)| key[0] == prefix);
        prop_assert_eq!(read(of_prefix), meant.collect::<Map>());
        prop_assert_eq!(all(&db), map.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn batches_of_writers_beside_are_whole_and_in_order() {
    // Two writers move amounts among their accounts, so that each one's sum never changes, and
    // count in the same batch. Between, they make and remove other keys, so that the index grows.
    // Snapshots see whole batches, and a later one never less than an earlier one.
    const ACCOUNTS: u64 = 40;
    const WRITERS: u64 = 2;
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    let account = |writer: u64, n: u64| format!("account {writer} {n}").into_bytes();
    let number = |value: &[u8]| -> u64 {
        std::str::from_utf8(value).expect("text").parse().expect("a number")
    };
    for writer in 0..WRITERS {
        let mut batch = WriteBatch::new();
        for n in 0..ACCOUNTS {
            batch.put(&account(writer, n), b"100");
        }
        batch.put(format!("count {writer}").as_bytes(), b"0");
        db.write(&batch).expect("write");
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, ends) = (&db, &ends);
            scope.spawn(move || {
                let mut amounts = [100; 40];
                let mut count = 0_u64;
                while !ends.load(Ordering::Relaxed) {
                    count += 1;
                    let (from, to) = (count * 7 % ACCOUNTS, (count * 13 + 1) % ACCOUNTS);
                    let mut batch = WriteBatch::new();
                    if from != to && amounts[from as usize] > 0 {
                        amounts[from as usize] -= 1;
                        amounts[to as usize] += 1;
                    }
                    for n in [from, to] {
                        let amount = amounts[n as usize].to_string();
                        batch.put(&account(writer, n), amount.as_bytes());
                    }
                    let text = count.to_string();
                    batch.put(format!("count {writer}").as_bytes(), text.as_bytes());
                    db.write(&batch).expect("write");
                    let other = format!("other {writer} {}", count % 5000).into_bytes();
                    db.put(&other, &[7; 100]).expect("put");
                    if count.is_multiple_of(3) {
                        db.delete(&other).expect("delete");
                    }
                }
            });
        }
        let _ends = EndsAll(&ends);
        let mut counts = [0; WRITERS as usize];
        for _ in 0..60 {
            let snapshot = db.snapshot().expect("snapshot");
            let map = read(snapshot);
            for writer in 0..WRITERS {
                let sum: u64 = (0..ACCOUNTS).map(|n| number(&map[&account(writer, n)])).sum();
                assert_eq!(sum, 100 * ACCOUNTS);
                let count = number(&map[format!("count {writer}").as_bytes()]);
                assert!(count >= counts[writer as usize]);
                counts[writer as usize] = count;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(counts.iter().all(|count| *count > 60), "{counts:?}: they wrote meanwhile");
    });
}

#[test]
fn a_snapshot_that_holds_back_too_much_ends_and_the_writer_goes_on() {
    // All is overwritten again and again, with a snapshot that nobody reads on: no write is
    // refused, and the snapshot says why it ended. A new one is as good as ever.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().snapshot_hold_bytes(2 << 20);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let put = |n: u32, byte: u8| db.put(&n.to_le_bytes(), &[byte; 1000]).expect("put");
    (0..1000).for_each(|n| put(n, 0));
    let mut snapshot = db.snapshot().expect("snapshot");
    let (mut key, mut value) = (Vec::new(), Vec::new());
    // What it holds back is less than its bound: a MB of values.
    (0..1000).for_each(|n| put(n, 1));
    assert!(snapshot.next_into(&mut key, &mut value).expect("it holds back little"));
    assert_eq!(value, [0; 1000]);
    for round in 2..20 {
        (0..1000).for_each(|n| put(n, round));
    }
    let error = snapshot.next_into(&mut key, &mut value).expect_err("it held back 18 MB");
    assert!(matches!(error, DbError::SnapshotTooOld { most } if most == 2 << 20), "{error}");
    assert!(error.to_string().contains("snapshot_hold_bytes"), "{error}");
    assert!(matches!(snapshot.next(), Some(Err(DbError::SnapshotTooOld { .. }))));
    assert!(snapshot.next().is_none());
    let again = read(db.snapshot().expect("snapshot"));
    assert!(again.len() == 1000 && again.values().all(|value| *value == [19; 1000]));
}

#[test]
fn a_snapshot_ends_before_a_write_is_refused_for_memory() {
    // The bound is larger than all memory that there is.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(8 << 20).snapshot_hold_bytes(1 << 30);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let put = |n: u32, byte: u8| db.put(&n.to_le_bytes(), &[byte; 10_000]).expect("put");
    (0..300).for_each(|n| put(n, 0));
    let (older, newer) = (db.snapshot().expect("snapshot"), db.snapshot().expect("snapshot"));
    let begin = Instant::now();
    for round in 1..10 {
        (0..300).for_each(|n| put(n, round));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    for mut snapshot in [older, newer] {
        assert!(matches!(snapshot.next(), Some(Err(DbError::SnapshotTooOld { .. }))));
    }
}

#[test]
fn a_write_that_mustnt_wait_says_so_and_ends_no_snapshot() {
    // All memory is held back. A caller with other things to do is told at once, and waits later.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(8 << 20).journal_bytes(64 << 20);
    let options = options.snapshot_hold_bytes(1 << 30);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let hasty = WriteOptions::new().without_waiting();
    let patient = WriteOptions::new();
    let put = |n: u32, byte, how: &_| db.put_with(&n.to_le_bytes(), &[byte; 10_000], how);
    (0..300).for_each(|n| put(n, 0, &patient).expect("put"));
    let mut snapshot = db.snapshot().expect("snapshot");
    let mut writes = (1..10).flat_map(|round| (0..300).map(move |n| (n, round)));
    let refused = writes.find_map(|(n, round)| Some((n, round, put(n, round, &hasty).err()?)));
    let (n, round, error) = refused.expect("8 MiB don't hold 3 MB nine times");
    assert!(matches!(error, DbError::Held), "{error}");
    let (_, value) = snapshot.next().expect("a key").expect("it goes on");
    assert_eq!(value, [0; 10_000]);
    put(n, round, &patient).expect("it waits, which ends the snapshot");
    // Where the cleaner was late, one of the next ones does.
    writes.for_each(|(n, round)| put(n, round, &patient).expect("put"));
    assert!(matches!(snapshot.next(), Some(Err(DbError::SnapshotTooOld { .. }))));
}

#[test]
fn memory_comes_back_when_a_snapshot_is_dropped_or_read() {
    // Each round writes half of the memory, under a snapshot: that can go on only if what the
    // snapshots held back is used again.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(16 << 20).snapshot_hold_bytes(16 << 20);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let put = |n: u32, byte: u8| db.put(&n.to_le_bytes(), &[byte; 5_000]).expect("put");
    (0..800).for_each(|n| put(n, 0));
    let mut kept = None;
    for round in 1..30 {
        let snapshot = db.snapshot().expect("snapshot");
        (0..800).for_each(|n| put(n, round));
        if round % 2 == 0 {
            let mut values = 0;
            kept = Some(snapshot);
            for pair in kept.as_mut().expect("it was just kept") {
                assert_eq!(pair.expect("it holds back less than it may").1, [round - 1; 5_000]);
                values += 1;
            }
            assert_eq!(values, 800);
        } // else it is dropped, unread
    }
    assert!(kept.is_some_and(|mut snapshot| snapshot.next().is_none()));
}

#[test]
fn a_snapshot_that_has_ended_keeps_no_memory_though_it_isnt_dropped() {
    // One was read to its end, and one had been begun when the database was closed. Both kept its
    // memory mapped, and their copies of the index, as long as a garbage collector left them.
    let dir = tempfile::tempdir().expect("a folder");
    let memory = dir.path().join("memory");
    let options = small().memory_dir(&memory);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    (0..1000_u32).for_each(|n| db.put(&n.to_le_bytes(), b"value").expect("put"));
    let (mut whole, mut begun) = (db.snapshot().expect("one"), db.snapshot().expect("another"));
    assert_eq!(whole.by_ref().count(), 1000);
    assert!(begun.next().is_some_and(|it| it.is_ok()));
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel tells it");
        maps.contains(memory.to_str().expect("text"))
    };
    assert!(is_mapped());
    db.close().expect("close");
    assert!(!is_mapped(), "the whole arena stays");
    assert!(whole.next().is_none() && whole.next().is_none());
    assert!(matches!(begun.next(), Some(Err(DbError::Closed))));
}

#[test]
fn a_snapshot_judges_expiry_by_its_moment() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    let within = |ms| WriteOptions::new().expires_in(Duration::from_millis(ms));
    db.put_with(b"over", b"1", &within(20)).expect("put");
    db.put_with(b"soon", b"2", &within(3_000)).expect("put");
    db.put(b"stays", b"3").expect("put");
    std::thread::sleep(Duration::from_millis(40));
    let snapshot = db.snapshot().expect("snapshot");
    let begin = Instant::now();
    while db.get(b"soon").expect("get").is_some() {
        assert!(begin.elapsed() < Duration::from_secs(60), "its time is over");
        std::thread::sleep(Duration::from_millis(20));
    }
    let map = read(snapshot);
    assert_eq!(map.into_keys().collect::<Vec<_>>(), [&b"soon"[..], b"stays"]);
}

#[test]
fn a_snapshot_goes_to_another_thread_and_ends_with_its_database() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    (0..10_000_u32).for_each(|n| db.put(&n.to_le_bytes(), b"value").expect("put"));
    let mut early = db.snapshot().expect("snapshot");
    let whole = db.snapshot().expect("snapshot");
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(whole).len());
        assert_eq!(reader.join().expect("it ends"), 10_000);
    });
    assert!(early.next().expect("there are many").is_ok());
    db.close().expect("close");
    assert!(matches!(early.next(), Some(Err(DbError::Closed))));
    // It holds nothing: the folder can be opened again.
    assert_eq!(all(&open(&path)).len(), 10_000);
    assert!(early.next().is_none());
}

#[test]
fn so_many_snapshots_are_open_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small().threads_most(1)).expect("open");
    db.put(b"key", b"value").expect("put");
    let _reads = db.get(b"key").expect("get");
    let mut all: Vec<_> = (0..16).map(|_| db.snapshot().expect("snapshot")).collect();
    let error = db.snapshot().expect_err("there are sixteen");
    assert!(matches!(error, DbError::TooManySnapshots { most: 16 }), "{error}");
    // They took no thread's seat, and no thread takes theirs.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = db.get(b"key").map(drop);
            assert!(matches!(other, Err(DbError::TooManyThreads { most: 1 })));
        });
    });
    all.pop();
    assert_eq!(read(db.snapshot().expect("one has gone")).len(), 1);
}
