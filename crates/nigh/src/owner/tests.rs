//! Writes that are left to the owner, through the lock: the disk, and panics.

use super::*;
use crate::db::Db;
use crate::left_writes::PANICS;
use crate::options::{Durability, Options};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Threads that write, and how many of their writes another one has done in the end.
const THREADS: usize = 16;
const LEFT: u64 = 200;
/// A hang, no slow machine.
const HANGS: Duration = Duration::from_secs(120);

fn small() -> Options {
    Options::new().capacity_bytes(64 << 20).journal_bytes(1 << 20).log_file_bytes(1 << 20)
}

fn lock(db: &Db) -> &OwnerLock {
    &db.shared.partitions[0].owner
}

/// Ends the threads that write, also if one fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A strong write is on disk when it returns, whichever thread has done it.
#[test]
fn a_strong_write_that_was_left_waits_for_the_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().durability(Durability::Strong);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let (ends, begin) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, ends) = (&db, &ends);
            scope.spawn(move || {
                let _ends = Ends(ends);
                while !ends.load(Relaxed) {
                    let before = db.stats().expect("stats").last_change;
                    db.put(format!("key {thread}").as_bytes(), b"value").expect("put");
                    let durable = db.stats().expect("stats").durable_change;
                    assert!(durable > before, "{before} had been given, {durable} is on disk");
                }
            });
        }
        let _ends = Ends(&ends);
        while lock(&db).left.done.load(Relaxed) < LEFT && !ends.load(Relaxed) {
            assert!(begin.elapsed() < HANGS, "nothing is left to another thread");
            // A writer that comes now finds the lock taken.
            let owning = lock(&db).take().expect("no thread has panicked");
            std::thread::yield_now();
            drop(owning);
            std::thread::yield_now();
        }
    });
}

/// A database with a key.
fn with_a_key(path: &Path) -> Db {
    let db = Db::open(path, &small()).expect("open");
    db.put(b"before", b"value").expect("put");
    db
}

/// Everybody is told that the database has stopped; reads go on; it closes, and opens again with
/// what came before.
fn assert_stopped(db: Db, path: &Path) {
    for key in [&b"other"[..], b"before"] {
        assert!(matches!(db.put(key, b"other"), Err(DbError::Stopped)));
        assert!(matches!(db.delete(key), Err(DbError::Stopped)));
    }
    assert_eq!(db.get(b"before").expect("get").as_deref(), Some(&b"value"[..]));
    assert!(matches!(db.close(), Err(DbError::Stopped)));
    let db = Db::open(path, &small()).expect("it opens again");
    assert_eq!(db.get(b"before").expect("get").as_deref(), Some(&b"value"[..]));
    assert!(db.get(PANICS).expect("get").is_none());
    db.put(b"after", b"value").expect("put");
    db.close().expect("close");
}

/// The thread that has the lock panics within a write that another one has left to it.
#[test]
fn a_panic_within_a_left_write_stops_the_database_for_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = with_a_key(&path);
    let put = KeyWrite::Put { key: PANICS, value: b"value", expiry_ms: 0 };
    let left = lock(&db).left.leave(&put).expect("a slot");
    let owning = lock(&db).take().expect("it is free");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(owning))).is_err());
    assert!(matches!(lock(&db).await_left(left), Err(DbError::Stopped)));
    assert_stopped(db, &path);
}

/// A thread that unwinds already gives the lock back, and leaves alone what was left to it: a panic
/// there would end the process.
#[test]
fn a_thread_that_unwinds_does_nothing_for_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = with_a_key(&path);
    let put = KeyWrite::Put { key: PANICS, value: b"value", expiry_ms: 0 };
    let left = lock(&db).left.leave(&put).expect("a slot");
    let owning = lock(&db).take().expect("it is free");
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _owning = owning;
        panic!("of the application");
    }));
    assert!(unwound.is_err());
    assert!(matches!(lock(&db).await_left(left), Err(DbError::Stopped)));
    assert_stopped(db, &path);
}
