//! The log of a database breaks, since its disk gives errors, and heals without closing.
//!
//! A child limits the length of its own files: what is written behind that is an error (EFBIG), as
//! a broken disk gives. It has memory and journal already, so only the log feels it. Then it takes
//! the limit away.

use crate::{all, small};
use nigh::{Db, DbError, WatchEvent, WriteBatch, WriteOptions};
use nigh_log::simulated::HeldSyncs;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names the child's folder.
const FOLDER: &str = "NIGH_BROKEN_FOLDER";
/// The child: a write behind the limit is an error, not a signal that kills.
const IGNORE: &str = "trap '' XFSZ && exec \"$0\" \"$@\"";
/// What a child says at its end.
const DONE: &str = "all was done on a bad disk";
/// Longest time to the next try, and some more.
const HEALS: Duration = Duration::from_secs(30);
/// Within this, calls have begun to wait for the disk.
const BEGIN: Duration = Duration::from_millis(500);
/// A call that waits for a broken log waits for longer.
const WAITS: Duration = Duration::from_secs(1);

#[test]
fn a_log_that_broke_is_written_anew_and_nothing_is_lost() {
    in_a_child("broken_log::child_whose_disk_gives_errors");
}

/// A lock by `compare_and_set`: one has won it and another one found it taken, when the log broke
/// under both. The second was told that its change was made too: two held the lock.
#[test]
fn what_changed_nothing_isnt_told_as_made_when_the_log_breaks() {
    in_a_child("broken_log::child_whose_disk_gives_errors_to_calls_that_wait");
}

/// Runs a test of this program that limits its files.
fn in_a_child(test: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.args(["-c", IGNORE]).arg(own).args(["--exact", test, "--nocapture"]);
    let output = command.env(FOLDER, dir.path()).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(DONE), "{said}");
}

fn limit(bytes: Option<u64>) {
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("it is ours");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_whose_disk_gives_errors() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    break_and_heal(&folder.join("data"));
    eprintln!("{DONE}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_whose_disk_gives_errors_to_calls_that_wait() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    break_under_calls(&folder.join("data"));
    eprintln!("{DONE}");
}

fn break_under_calls(path: &Path) {
    let db = Db::open(path, &small()).expect("open");
    let strong = WriteOptions::strong();
    (0..40).for_each(|n| put(&db, n, &strong).expect("the disk is well"));
    let take = |name: &[u8]| db.compare_and_set_with(b"leader", None, Some(name), &strong);
    let hold = HeldSyncs::of(path);
    std::thread::scope(|scope| {
        // Who syncs has the log until that returns, so nothing that comes later is written. Mostly
        // it is this one, which is on disk then; or the log's thread, and this one waits for it.
        let before = scope.spawn(|| put(&db, 40, &strong));
        hold.wait_for_one();
        limit(Some(8 << 10));
        let winner = scope.spawn(|| take(b"first"));
        while db.get(b"leader").expect("reads go on").is_none() {
            assert!(!winner.is_finished(), "it waits for the disk");
            std::thread::sleep(Duration::from_millis(1));
        }
        let others = [
            scope.spawn(|| take(b"second")),
            scope.spawn(|| db.delete_with(b"none", &strong)),
            scope.spawn(|| db.expire(b"none", &strong)),
            scope.spawn(|| {
                let mut batch = WriteBatch::new();
                batch.delete(b"none");
                db.write_with(&batch, &strong)
            }),
        ];
        std::thread::sleep(BEGIN);
        drop(hold);
        let before = before.join().expect("it ends");
        assert!(matches!(before, Ok(()) | Err(DbError::NotDurable { .. })), "{before:?}");
        let won = winner.join().expect("it ends");
        assert!(matches!(won, Err(DbError::NotDurable { .. })), "{won:?}");
        for other in others {
            let no = other.join().expect("it ends");
            assert!(matches!(no, Err(DbError::LogBroken { .. })), "{no:?}");
        }
    });
    assert_eq!(db.get(b"leader").expect("reads go on").as_deref(), Some(&b"first"[..]));
    // It may be called again and again: it waits each time.
    let begin = Instant::now();
    let error = db.flush().expect_err("the disk gives errors");
    assert!(matches!(error, DbError::NotDurable { .. }) && begin.elapsed() > WAITS, "{error}");
    limit(None);
    while db.flush().is_err() {
        assert!(begin.elapsed() < HEALS, "it stays broken");
    }
    assert!(!take(b"second").expect("the log is well"));
}

fn break_and_heal(path: &Path) {
    let db = Db::open(path, &small()).expect("open");
    let (begin, ends) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Others wait for the disk all the while: when the log breaks, and when another one takes
        // its place.
        let waits = || {
            while !ends.load(Ordering::Relaxed) && begin.elapsed() < 3 * HEALS {
                let _ = db.flush();
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(waits)));
        break_and_heal_once(&db);
        ends.store(true, Ordering::Relaxed);
    });
    (502..1000).for_each(|n| put(&db, n, &WriteOptions::new()).expect("the new log takes it"));
    assert!(db.delete(&0_u32.to_le_bytes()).expect("delete"));
    let before = all(&db);
    db.close().expect("close");
    // Memory went with the close: all comes from the new log.
    let db = Db::open(path, &small()).expect("open");
    assert_eq!(all(&db).len(), 999);
    assert_eq!(all(&db), before);
}

/// Puts a key with a number.
fn put(db: &Db, n: u32, options: &WriteOptions) -> Result<(), DbError> {
    db.put_with(&n.to_le_bytes(), &[7; 500], options)
}

fn break_and_heal_once(db: &Db) {
    (0..500).for_each(|n| put(db, n, &WriteOptions::strong()).expect("the disk is well"));
    let watch = db.watch(b"").expect("watch");
    limit(Some(8 << 10));
    // The first write that meets the error is made, and not on disk; later ones are refused.
    let error = put(db, 500, &WriteOptions::strong()).expect_err("it can't get to the disk");
    assert!(matches!(error, DbError::NotDurable { .. }), "{error}");
    let error = put(db, 501, &WriteOptions::new()).expect_err("it is refused");
    assert!(matches!(error, DbError::LogBroken { .. }), "{error}");
    assert!(error.to_string().contains("written from memory"), "{error}");
    assert!(matches!(db.delete(&0_u32.to_le_bytes()), Err(DbError::LogBroken { .. })));
    assert!(db.get(&500_u32.to_le_bytes()).expect("reads go on").is_some());
    assert!(db.get(&501_u32.to_le_bytes()).expect("reads go on").is_none());
    assert_eq!(db.snapshot().expect("so do snapshots").count(), 501);
    limit(None);
    let begin = Instant::now();
    while let Err(error) = db.flush() {
        assert!(matches!(error, DbError::NotDurable { .. }), "{error}");
        assert!(begin.elapsed() < HEALS, "it stays broken: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = db.stats().expect("stats");
    assert_eq!((stats.keys, stats.durable_change, stats.last_change), (501, 501, 501));
    // The watch has each change, or says that it may have lost some.
    let mut next = 501;
    while next <= stats.last_change {
        let event = watch.next_within(HEALS).expect("it is open").expect("it goes on");
        match &event {
            WatchEvent::Lost { first, .. } => assert_eq!(*first, next),
            other => assert_eq!(other.change(), next),
        }
        next = event.change() + 1;
    }
    put(db, 501, &WriteOptions::strong()).expect("it is well");
    assert_eq!(watch.next_within(HEALS).expect("it is open").expect("it is told").change(), 502);
}
