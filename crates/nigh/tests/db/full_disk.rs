//! The disk of the log runs full, and has room again later.
//!
//! A child in a mount namespace of its own has a small tmpfs for the log, and a file beside it that
//! takes the room.

use crate::mounts::{DONE, in_own_mounts};
use crate::{open, small};
use nigh::{Db, DbError, OpenError, Options, WriteBatch, WriteOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names the child's mount.
const FOLDER: &str = "NIGH_FULL_FOLDER";
/// Says how large it is.
const SIZE: &str = "NIGH_FULL_SIZE";
/// The child: mounts, then runs the test again.
const MOUNT: &str =
    "mount -t tmpfs -o size=$NIGH_FULL_SIZE none \"$NIGH_FULL_FOLDER\" && exec \"$0\" \"$@\"";
const VALUE_BYTES: usize = 10_000;

#[test]
fn a_full_disk_refuses_writes_and_nothing_told_is_lost() {
    on_a_small_disk("24m", "full_disk::child_on_a_small_disk");
}

/// With 80 to 140 MiB the first program got no `put` done. With 340 it did, but the second one's
/// was refused, and the sixth couldn't open.
#[test]
fn programs_that_run_for_a_moment_write_on_a_small_disk_each_time() {
    on_a_small_disk("100m", "full_disk::child_that_runs_again_and_again");
}

/// A batch of which a part was refused, or lost, would be seen.
#[test]
fn a_full_disk_has_each_batch_whole_or_not_at_all() {
    on_a_small_disk("24m", "full_disk::child_that_writes_batches");
}

/// Runs a test of this program with a small disk of its own, where one may mount.
fn on_a_small_disk(size: &str, test: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().as_os_str();
    in_own_mounts(MOUNT, test, &[(FOLDER, folder), (SIZE, size.as_ref())]);
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_on_a_small_disk() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 14 << 20]).expect("there is room");
    fill_and_go_on(&folder.join("data"), &ballast);
    eprintln!("{DONE}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_that_writes_batches() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 14 << 20]).expect("there is room");
    fill_by_batches(&folder.join("data"), &ballast);
    eprintln!("{DONE}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_that_runs_again_and_again() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let capacity = Options::new().capacity_bytes(64 << 20);
    run_for_moments(&folder.join("usual"), &capacity, 20);
    std::fs::remove_dir_all(folder.join("usual")).expect("it was closed");
    // Its files are as large as the disk allows at all.
    let large = capacity.clone().journal_bytes(8 << 20).log_file_bytes(15 << 20);
    run_for_moments(&folder.join("large"), &large, 20);
    std::fs::remove_dir_all(folder.join("large")).expect("it was closed");
    let path = folder.join("refused");
    let error = Db::open(&path, &capacity.clone().log_file_bytes(64 << 20)).err();
    let Some(OpenError::SmallDisk { free, needed, .. }) = error else { panic!("{error:?}") };
    assert!(free < 101 << 20 && needed >= 256 << 20, "{error:?}");
    run_for_moments(&path, &capacity, 1);
    eprintln!("{DONE}");
}

/// Opens, writes and closes as often.
fn run_for_moments(path: &Path, options: &Options, runs: usize) {
    for run in 0..runs {
        let db = Db::open(path, options).unwrap_or_else(|error| panic!("run {run}: {error}"));
        let put = db.put(format!("{run}").as_bytes(), b"value");
        put.unwrap_or_else(|error| panic!("run {run}: {error}"));
        assert_eq!(db.stats().expect("stats").keys, run as u64 + 1);
        db.close().expect("close");
    }
}

fn fill_and_go_on(path: &Path, ballast: &Path) {
    let db = Db::open(path, &small()).expect("open");
    let value = |n: usize| vec![u8::try_from(n % 251).expect("a byte"); VALUE_BYTES];
    let put = |n: usize| db.put(format!("{n}").as_bytes(), &value(n));
    let mut told = 0;
    let error = loop {
        match put(told) {
            Ok(()) => told += 1,
            Err(error) => break error,
        }
        assert!(told < 4000, "10 MiB hold no 40 MB");
    };
    assert!(matches!(error, DbError::LogFull { .. }), "{error}");
    assert!(told > 100, "{told}");
    for n in 0..told {
        assert_eq!(db.get(format!("{n}").as_bytes()).expect("get").as_deref(), Some(&*value(n)));
    }
    assert!(db.get(format!("{told}").as_bytes()).expect("get").is_none(), "it was refused");
    for n in 0..10 {
        assert!(db.delete(format!("{n}").as_bytes()).expect("a delete works"));
    }
    // The change is made: it gets to the disk if removals have won room, or the answer says that it
    // isn't there. It is never called refused.
    let begin = Instant::now();
    let strong = db.delete_with(b"10", &WriteOptions::strong());
    assert!(matches!(strong, Ok(true) | Err(DbError::NotDurable { .. })), "{strong:?}");
    assert!(begin.elapsed() < Duration::from_secs(30), "it needn't wait for long");
    // What changes nothing is never told that it is made.
    let options = WriteOptions::strong();
    for no in [
        db.compare_and_set_with(b"11", Some(b"other"), None, &options),
        db.delete_with(b"none", &options),
    ] {
        assert!(matches!(no, Ok(false) | Err(DbError::LogFull { .. })), "{no:?}");
    }
    std::fs::remove_file(ballast).expect("there is room again");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = put(told) {
        assert!(matches!(error, DbError::LogFull { .. }), "{error}");
        assert!(Instant::now() < deadline, "it stays full");
        std::thread::sleep(Duration::from_millis(20));
    }
    db.flush().expect("flush");
    db.close().expect("close");
    let db = Db::open(path, &small()).expect("open");
    for n in 11..=told {
        assert_eq!(db.get(format!("{n}").as_bytes()).expect("get").as_deref(), Some(&*value(n)));
    }
    assert_eq!(db.stats().expect("stats").keys, told as u64 + 1 - 11);
}

/// The keys of a batch, and their values, none of which is another batch's.
fn parts(thread: usize, n: usize) -> [(Vec<u8>, Vec<u8>); 3] {
    [5000, 10, 3000].map(|bytes| {
        let key = format!("{thread}.{n}.{bytes}");
        let value = key.bytes().cycle().take(bytes).collect();
        (key.into_bytes(), value)
    })
}

fn write_batch(db: &Db, thread: usize, n: usize) -> Result<(), DbError> {
    let mut batch = WriteBatch::new();
    for (key, value) in parts(thread, n) {
        batch.put(&key, &value);
    }
    db.write(&batch).map(drop)
}

/// Writes batches until one is refused. How many there are.
fn write_until_full(db: &Db, thread: usize) -> usize {
    for n in 0..4000 {
        if let Err(error) = write_batch(db, thread, n) {
            assert!(matches!(error, DbError::LogFull { .. }), "{error}");
            return n;
        }
    }
    panic!("10 MiB hold no 32 MB");
}

/// So many batches of each thread are there whole, and nothing else is.
fn has_batches(db: &Db, told: &[usize]) {
    for (thread, &told) in told.iter().enumerate() {
        for n in 0..=told {
            let parts = parts(thread, n);
            let keys = parts.each_ref().map(|(key, _)| &key[..]);
            let found = db.multi_get(&keys).expect("multi_get");
            for ((_, value), found) in parts.iter().zip(&found) {
                assert_eq!(found.as_deref(), (n < told).then_some(&value[..]), "{thread}.{n}");
            }
        }
    }
    let keys = 3 * told.iter().sum::<usize>() as u64;
    assert_eq!(db.stats().expect("stats").keys, keys);
}

/// Two threads write batches until the disk is full; then it has room again.
fn fill_by_batches(path: &Path, ballast: &Path) {
    let db = open(path);
    let mut told = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let db = &db;
            scope.spawn(move || write_until_full(db, thread))
        });
        threads.map(|it| it.join().expect("a thread"))
    });
    assert!(told.iter().sum::<usize>() > 100, "{told:?}");
    has_batches(&db, &told);
    // What the log has no room for, the journal keeps for the next open.
    let _ = db.close();
    std::fs::remove_file(ballast).expect("there is room again");
    let db = open(path);
    has_batches(&db, &told);
    write_batch(&db, 1, told[1]).expect("there is room");
    told[1] += 1;
    db.close().expect("close");
    has_batches(&open(path), &told);
}
