//! A disk that doesn't answer for long: eventual writes wait when more than two seconds of them
//! could be lost, whoever waits for the disk meanwhile, and go on when it answers.

use crate::{open, small};
use nigh::{Db, DbError, Durability, WriteBatch, WriteOptions};
use nigh_log::simulated::HeldSyncs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Behind a sync the log's thread looks for a while what follows; then it sleeps.
const SLEEPS: Duration = Duration::from_millis(500);
/// From when on writes must wait: two seconds, and the time between two looks.
const LATE: Duration = Duration::from_millis(2500);
/// Longest time to it on a slow machine.
const LATE_MOST: Duration = Duration::from_secs(9);

/// Has a thread wait for the disk, which doesn't answer: other threads' eventual writes are taken
/// for two seconds, and then wait.
fn writes_wait(db: &Db, path: &Path, waits: impl FnOnce() -> Result<(), DbError> + Send) {
    std::thread::sleep(SLEEPS);
    let eventual = WriteOptions::eventual().without_waiting();
    std::thread::scope(|scope| {
        let hold = HeldSyncs::of(path);
        let begin = Instant::now();
        let waiting = scope.spawn(waits);
        hold.wait_for_one();
        let error = loop {
            if let Err(error) = db.put_with(b"eventual", b"value", &eventual) {
                break error;
            }
            assert!(begin.elapsed() < LATE_MOST, "{LATE_MOST:?} of writes may be lost");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(matches!(error, DbError::Late), "{error}");
        assert!(begin.elapsed() > LATE - Duration::from_secs(1), "they are taken at first");
        assert!(!waiting.is_finished());
        drop(hold);
        waiting.join().expect("it ends").expect("the disk answers");
    });
    db.put(b"eventual", b"value").expect("it waits until the disk has taken what was there");
    db.flush().expect("the disk answers");
}

/// A strong write that is too long for its writer to sync was taken by the log's thread, which told
/// the age only when its sync had ended.
#[test]
fn eventual_writes_wait_while_a_strong_write_waits_for_a_late_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put_with(b"a", b"1", &WriteOptions::strong()).expect("put");
    writes_wait(&db, &path, || db.put_with(b"long", &[7; 100_000], &WriteOptions::strong()));
}

/// The same where a file of the log ends: it and the next one's beginning are synced at once.
#[test]
fn eventual_writes_wait_while_the_end_of_a_file_waits_for_a_late_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    // Of a MiB. What is left is less than the batch.
    (0..9_u32).for_each(|n| db.put(&n.to_le_bytes(), &[7; 100_000]).expect("put"));
    db.flush().expect("flush");
    let mut batch = WriteBatch::new();
    (0..2_u32).for_each(|n| _ = batch.put(&n.to_le_bytes(), &[8; 100_000]));
    writes_wait(&db, &path, || {
        db.write(&batch)?;
        db.flush()
    });
}

/// In a database whose writes are strong, those that say that they aren't were never held back.
#[test]
fn eventual_writes_of_a_strong_database_wait_for_a_late_disk_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &small().durability(Durability::Strong)).expect("open");
    db.put(b"a", b"1").expect("put");
    writes_wait(&db, &path, || db.put(b"a", b"2"));
}
