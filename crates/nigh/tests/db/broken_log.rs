//! The log of a database breaks, since its disk gives errors, and heals without closing.
//!
//! A child limits the length of its own files: what is written behind that is an error (EFBIG), as
//! a broken disk gives. It has memory and journal already, so only the log feels it. Then it takes
//! the limit away.

use crate::{all, small};
use nigh::{Db, DbError, WatchEvent, WriteOptions};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names the child's folder.
const FOLDER: &str = "NIGH_BROKEN_FOLDER";
/// The child: a write behind the limit is an error, not a signal that kills.
const IGNORE: &str = "trap '' XFSZ && exec \"$0\" \"$@\"";
/// Longest time to the next try, and some more.
const HEALS: Duration = Duration::from_secs(30);

#[test]
fn a_log_that_broke_is_written_anew_and_nothing_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.args(["-c", IGNORE]).arg(own);
    command.args(["--exact", "broken_log::child_whose_disk_gives_errors", "--nocapture"]);
    let output = command.env(FOLDER, dir.path()).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the log is well"), "{said}");
}

fn limit(bytes: Option<u64>) {
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("it is ours");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_whose_disk_gives_errors() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    break_and_heal(&folder.join("data"));
    eprintln!("the log is well");
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
    assert!(matches!(error, DbError::LogBroken { .. }), "{error}");
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
        assert!(matches!(error, DbError::LogBroken { .. }), "{error}");
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
