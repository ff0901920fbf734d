//! Several partitions: each key lies in one, and each has a lock, a journal and a log.

use crate::{all, made_with, open, shared, small};
use nigh::{Db, DbError, OpenError, WatchEvent, WriteBatch, WriteOptions};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Partitions of these tests.
const PARTITIONS: usize = 3;
/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(30);

fn key(n: u32) -> Vec<u8> {
    format!("key {n}").into_bytes()
}

#[test]
fn keys_are_spread_and_found_again_with_the_number_that_was_chosen() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = made_with(&path, PARTITIONS);
    (0..300).for_each(|n| db.put(&key(n), &n.to_le_bytes()).expect("put"));
    let stats = db.stats().expect("stats");
    assert_eq!((stats.partitions.len(), stats.keys, stats.last_change), (PARTITIONS, 300, 300));
    assert!(stats.partitions.iter().all(|it| it.keys > 60 && it.last_change == it.keys));
    db.flush().expect("flush");
    assert_eq!(db.stats().expect("stats").durable_change, 300);
    let keys: Vec<Vec<u8>> = (0..301).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let check = |db: &Db| {
        let values = db.multi_get(&keys).expect("get");
        for (n, value) in (0..300_u32).zip(&values) {
            assert_eq!(value.as_deref(), Some(&n.to_le_bytes()[..]));
        }
        assert!(values[300].is_none());
        assert_eq!((all(db).len(), db.snapshot().expect("snapshot").count()), (300, 300));
    };
    check(&db);
    db.close().expect("close");
    let other = Db::open(&path, &small().partitions(2)).map(drop).expect_err("it has three");
    assert!(matches!(other, OpenError::Partitions { found: 3, wanted: 2, .. }));
    assert!(other.to_string().contains("has 3 partitions, not 2"), "{other}");
    check(&open(&path));
    check(&made_with(&path, PARTITIONS));
    let none = Db::open(&path, &small().partitions(0)).map(drop).expect_err("none");
    assert!(matches!(none, OpenError::Option { name: "partitions", given: 0, least: 1, most: 64 }));
    let small_one = Db::open(dir.path().join("b"), &small().partitions(9)).map(drop);
    assert!(matches!(small_one, Err(OpenError::Option { name: "capacity_bytes", .. })));
}

#[test]
fn a_batch_is_one_partitions() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = made_with(&dir.path().join("data"), PARTITIONS);
    let mut batch = WriteBatch::new();
    (0..40).for_each(|n| _ = batch.put(&key(n), b"1"));
    let error = db.write(&batch).expect_err("its keys are spread");
    assert!(matches!(error, DbError::ManyPartitions { .. }));
    assert!(error.to_string().contains("\"key 0\""), "{error}");
    assert_eq!(db.stats().expect("stats").keys, 0, "nothing of it was done");
    db.write(&WriteBatch::new()).expect("an empty one");
    for tag in 0..20 {
        let mut batch = WriteBatch::new();
        (0..40).for_each(|n| _ = batch.put(format!("{{{tag}}} {n}").as_bytes(), b"1"));
        db.write(&batch).expect("its keys lie together");
    }
    let stats = db.stats().expect("stats");
    assert_eq!(stats.keys, 800);
    assert!(stats.partitions.iter().all(|it| it.keys > 0 && it.keys % 40 == 0));
}

#[test]
fn a_snapshot_is_one_moment_of_all_partitions() {
    // A writer gives keys of all partitions a number, one after the other. A snapshot that has the
    // number of one has it of all before.
    const KEYS: u32 = 8;
    let dir = tempfile::tempdir().expect("a folder");
    let db = made_with(&dir.path().join("data"), PARTITIONS);
    (0..KEYS).for_each(|n| db.put(&key(n), &0_u32.to_be_bytes()).expect("put"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=1000_u32 {
                (0..KEYS).for_each(|n| db.put(&key(n), &round.to_be_bytes()).expect("put"));
            }
        });
        let mut seen = 0;
        while !writer.is_finished() {
            let snapshot = db.snapshot().expect("snapshot");
            let map: BTreeMap<_, _> = snapshot.map(|pair| pair.expect("a pair")).collect();
            let numbers: Vec<&Vec<u8>> = (0..KEYS).map(|n| &map[&key(n)]).collect();
            assert!(numbers.is_sorted_by(|a, b| a >= b), "{numbers:?}");
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    });
}

#[test]
fn a_watch_tells_the_changes_of_all_partitions_each_in_its_order() {
    const THREADS: u32 = 4;
    const WRITES: u32 = 500;
    let dir = tempfile::tempdir().expect("a folder");
    let db = made_with(&dir.path().join("data"), PARTITIONS);
    db.put(&key(0), b"before").expect("put");
    let watch = db.watch(b"key").expect("watch");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for n in 0..WRITES {
                    let key = key(n % 20 * THREADS + thread);
                    db.put(&key, &n.to_le_bytes()).expect("put");
                }
            });
        }
    });
    let mut newest = BTreeMap::new();
    for told in 0..THREADS * WRITES {
        let event = watch.next_within(SOON).expect("it is open");
        let Some(WatchEvent::Put { key, value, change, .. }) = event else {
            panic!("{event:?} after {told}")
        };
        let n = u32::from_le_bytes(value[..].try_into().expect("a number"));
        let before = newest.insert(key, (change, n));
        assert!(before.is_none_or(|before| before.0 < change && before.1 < n));
    }
    assert_eq!(newest.len(), 80);
    assert_eq!(watch.next_within(Duration::ZERO).expect("it is open"), None);
}

/// One that others read.
fn shared_with(path: &Path, partitions: usize) -> Db {
    Db::open(path, &shared().partitions(partitions)).expect("it can be made")
}

#[test]
fn a_reader_reads_all_partitions() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = shared_with(&path, PARTITIONS);
    let reader = Db::open_reader(&path).expect("a reader");
    (0..200).for_each(|n| db.put(&key(n), &n.to_le_bytes()).expect("put"));
    let keys: Vec<Vec<u8>> = (0..201).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = reader.multi_get(&keys).expect("get");
    for n in 0..200_u32 {
        let expected = Some(n.to_le_bytes().to_vec());
        assert_eq!(reader.get(&key(n)).expect("get"), expected);
        assert_eq!(values[n as usize], expected);
    }
    assert_eq!((reader.get(&key(200)).expect("get"), &values[200]), (None, &None));
    let (mut met, mut cursor) = (Vec::new(), 0);
    loop {
        let found = |key: &[u8], _: &[u8]| met.push(key.to_vec());
        cursor = reader.scan(b"key", cursor, 10, found).expect("scan");
        if cursor == 0 {
            break;
        }
    }
    met.sort();
    met.dedup();
    assert_eq!(met.len(), 200);
    db.close().expect("close");
    assert!(reader.get(&key(0)).expect_err("it is closed").is_passing());
    let db = Db::open(&path, &shared()).expect("open");
    reader.wait(SOON).expect("it is there again");
    db.put(&key(7), b"new").expect("put");
    assert_eq!(reader.get(&key(7)).expect("get").as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_reader_goes_on_with_a_new_database_that_has_another_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = shared_with(&path, PARTITIONS);
    let reader = Db::open_reader(&path).expect("a reader");
    db.close().expect("close");
    for partitions in [1, 5, 2] {
        std::fs::remove_dir_all(&path).expect("it is removed");
        let db = shared_with(&path, partitions);
        (0..50).for_each(|n| db.put(&key(n), &partitions.to_le_bytes()).expect("put"));
        reader.wait(SOON).expect("it is there");
        let values = (0..50).map(|n| reader.get(&key(n)).expect("get"));
        assert!(values.into_iter().all(|it| it == Some(partitions.to_le_bytes().to_vec())));
        db.close().expect("close");
    }
}

#[test]
fn a_partition_that_rests_holds_no_memory_of_another() {
    // All keys lie in one partition, which is written anew again and again. No write may meet
    // memory that waits for the owners of the others: nobody calls them.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(32 << 20).journal_bytes(64 << 20).partitions(4);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let hasty = WriteOptions::new().without_waiting();
    for round in 0..15_u8 {
        for n in 0..300 {
            let key = format!("{{tag}} {n}");
            db.put_with(key.as_bytes(), &[round; 10_000], &hasty).expect("nobody holds memory");
        }
    }
}

/// Names the child's folder.
const FOLDER: &str = "NIGH_PARTITIONS_FOLDER";
/// The child: a write behind the limit is an error, not a signal that kills.
const IGNORE: &str = "trap '' XFSZ && exec \"$0\" \"$@\"";

#[test]
fn all_logs_are_written_anew_if_one_broke() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.args(["-c", IGNORE]).arg(own);
    command.args(["--exact", "partitions::child_whose_disk_gives_errors", "--nocapture"]);
    let output = command.env(FOLDER, dir.path()).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all logs are well"), "{said}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_whose_disk_gives_errors() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let path = folder.join("data");
    let db = made_with(&path, PARTITIONS);
    let limit = |bytes| {
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("it is ours");
    };
    let put = |n: u32, options: &WriteOptions| db.put_with(&key(n), &[7; 500], options);
    (0..300).for_each(|n| put(n, &WriteOptions::strong()).expect("the disk is well"));
    limit(Some(8 << 10));
    let error = put(300, &WriteOptions::strong()).expect_err("it can't get to the disk");
    assert!(matches!(error, DbError::NotDurable { .. }), "{error}");
    assert!((0..300).all(|n| db.get(&key(n)).expect("reads go on").is_some()));
    limit(None);
    let begin = Instant::now();
    while let Err(error) = (301..340).try_for_each(|n| put(n, &WriteOptions::strong())) {
        assert!(matches!(error, DbError::LogBroken { .. }), "{error}");
        assert!(begin.elapsed() < SOON, "it stays broken: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    db.flush().expect("all logs are well");
    db.close().expect("close");
    // Memory went with the close: all comes from the new logs.
    assert_eq!(all(&open(&path)).len(), 340);
    eprintln!("all logs are well");
}
