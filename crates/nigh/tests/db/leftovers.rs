//! What a database leaves in `/dev/shm` when it is killed and then removed.

use crate::opening::memory_of;
use crate::{all, kept, open};
use nigh::Db;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where an arena's header says up to which change all was on disk: docs/formats/arena.md.
const DURABLE_LSN: u64 = 384;

/// A database with one key whose memory is left as by a kill; the memory folder. The log has all of
/// it, or lacks something.
fn left(path: &Path, log_has_all: bool) -> PathBuf {
    let db = Db::open(path, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    let memory = memory_of(path).expect("it is kept");
    if !log_has_all {
        let arena = File::options().write(true).open(memory.join("default.0.arena"));
        arena.expect("it is there").write_all_at(&[0; 8], DURABLE_LSN).expect("a word");
    }
    memory
}

/// Opens a database elsewhere and closes it again.
fn open_another(dir: &Path) {
    open(&dir.join("another")).close().expect("close");
}

#[test]
fn memory_of_a_database_that_was_removed_goes_when_another_is_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("some/where/data");
    let memory = left(&path, true);
    open_another(dir.path());
    assert!(memory.is_dir(), "the database is there");
    let reader = Db::open_reader(&path).expect("its memory is there");
    std::fs::remove_dir_all(dir.path().join("some")).expect("it is removed");
    open_another(dir.path());
    assert!(!memory.exists());
    let error = reader.get(b"key").expect_err("it is gone");
    assert!(matches!(error, nigh::ReaderError::NoDatabase { .. }), "{error}");
}

#[test]
fn what_the_log_lacks_goes_an_hour_later() {
    // The database may have been moved where nobody finds it. There it still has its last second.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let memory = left(&path, false);
    std::fs::remove_dir_all(&path).expect("it is removed");
    open_another(dir.path());
    open_another(dir.path());
    assert!(memory.is_dir());
    let found = File::open(memory.join("gone")).expect("it was noted");
    let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
    found.set_modified(hours(1) + Duration::from_secs(60)).expect("a time");
    open_another(dir.path());
    assert!(memory.is_dir(), "not quite");
    found.set_modified(hours(1)).expect("a time");
    open_another(dir.path());
    assert!(!memory.exists());
}

#[test]
fn a_database_that_was_moved_keeps_its_memory() {
    // Renamed, with a folder above it, or moved elsewhere; another one stands in its place.
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    for (from, to, moved, log_has_all) in [
        ("a/data", "a/other", ("a/data", "a/other"), true),
        ("b/data", "c/data", ("b", "c"), true),
        ("d/data", "e/f/data", ("d/data", "e/f/data"), false),
    ] {
        let memory = left(&at(from), log_has_all);
        std::fs::create_dir_all(at("e/f")).expect("a folder");
        std::fs::rename(at(moved.0), at(moved.1)).expect("it is moved");
        open(&at(from)).close().expect("another in its place");
        open_another(dir.path());
        assert!(memory.is_dir(), "{to}");
        let db = open(&at(to));
        assert!(!memory.join("gone").exists());
        assert_eq!(all(&db).len(), 1);
        // From now on it is known under its new name.
        open_another(dir.path());
        db.put(b"other", b"value").expect("its memory is there");
        db.close().expect("close");
        assert!(!memory.exists());
    }
}

#[test]
fn memory_that_is_in_use_or_not_a_databases_stays() {
    // The folder of one that is open was removed; and there are others with such names.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put(b"key", b"value").expect("put");
    let memory = memory_of(&path).expect("it is open");
    let name = memory.file_name().expect("a name").to_string_lossy().into_owned();
    let other = memory.with_file_name(name.replace("nigh-", "nigh-0"));
    std::fs::create_dir(&other).expect("a folder");
    db.flush().expect("flush");
    // Its log's thread makes files meanwhile.
    assert!((0..1000).any(|_| std::fs::remove_dir_all(&path).is_ok()), "it is removed");
    let gone = left(&dir.path().join("gone"), true);
    std::fs::write(gone.join("notes"), b"mine").expect("a file");
    std::fs::remove_dir_all(dir.path().join("gone")).expect("it is removed");
    open_another(dir.path());
    assert!(memory.is_dir() && other.is_dir() && gone.is_dir());
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    std::fs::remove_file(gone.join("notes")).expect("a file");
    let _ = db.close();
    std::fs::remove_dir(other).expect("it is empty");
    open_another(dir.path());
    assert!(!gone.exists());
    let _ = std::fs::remove_dir_all(memory);
}

#[test]
fn opens_at_one_time_remove_leftovers_and_nothing_else() {
    // Some threads open and close databases, of which each has memory that was left, while there
    // are leftovers to remove all the time.
    const ROUNDS: u64 = 6;
    let dir = tempfile::tempdir().expect("a folder");
    let mut gone = Vec::new();
    for round in 0..ROUNDS {
        for n in 0..3 {
            let path = dir.path().join(format!("gone {n}"));
            gone.push(left(&path, true));
            std::fs::remove_dir_all(&path).expect("it is removed");
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = dir.path().join(format!("data {thread}"));
                scope.spawn(move || {
                    let db = Db::open(&path, &kept()).expect("open");
                    assert_eq!(all(&db).len() as u64, round);
                    db.put(format!("{round}").as_bytes(), b"value").expect("put");
                    db.close().expect("close");
                });
            }
        });
        gone.retain(|memory| memory.exists());
        assert!(gone.is_empty(), "{gone:?}");
    }
    for thread in 0..4 {
        let path = dir.path().join(format!("data {thread}"));
        assert!(memory_of(&path).is_some());
        open(&path).close().expect("close");
    }
}
