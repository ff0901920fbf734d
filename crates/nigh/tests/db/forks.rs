//! A program forks while it has a database or a reader open: the child is refused, and the parent
//! loses nothing.
//!
//! The test's own program is the one that forks: it is started again with one test, since a fork
//! takes no other thread along.

use crate::{all, kept, open, shared, small};
use fork::{Fork, fork, waitpid};
use nigh::{Db, DbError, ReaderError, WriteBatch, WriteOptions};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names the folder of the program that forks.
const FOLDER: &str = "NIGH_FORKED_FOLDER";
/// What it says at its end.
const AS_EXPECTED: &str = "all is as expected";
/// Forks, one after the other.
const FORKS: u64 = 20;

#[test]
fn a_fork_is_refused_and_its_parent_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    runs("forks::child_forks", &path);
    let db = open(&path);
    let keys = all(&db).into_iter().filter(|(key, _)| key.starts_with(b"own"));
    let count = db.get(b"count").expect("get").expect("it is there");
    let count: usize = std::str::from_utf8(&count).expect("text").parse().expect("a number");
    assert_eq!(keys.count(), count, "all that the parent was told is there, and no more");
    assert!(count > 100, "{count}");
}

/// Runs a test of this program as one of its own, which tells its end.
fn runs(test: &str, path: &Path) {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args(["--exact", test, "--nocapture"]).env(FOLDER, path);
    let output = command.output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(AS_EXPECTED), "{said}");
}

#[test]
fn a_fork_is_refused_the_reader_of_its_parent_and_opens_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    runs("forks::child_forks_beside_readers", &dir.path().join("data"));
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_forks_beside_readers() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (folder, closed) = (Path::new(&folder), Path::new(&folder).with_extension("closed"));
    let db = Db::open(folder, &shared()).expect("open");
    db.put(b"key", b"value").expect("put");
    let other = Db::open(&closed, &shared()).expect("open");
    let reader = Db::open_reader(&closed).expect("it is shared");
    other.close().expect("close");
    // Each read tries to attach, with the reader's lock: a child that waits for it waits for ever.
    let ends = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert!(reader.get(b"key").is_err(), "it is closed");
            }
        });
        let mut statuses = (0..FORKS).map(|_| {
            match fork().expect("a fork") {
                Fork::Parent(child) => waitpid(child).expect("it ends"),
                Fork::Child => {
                    std::thread::spawn(|| {
                        std::thread::sleep(Duration::from_secs(30));
                        std::process::abort(); // it hangs
                    });
                    let is_refused = |it| matches!(it, Err(ReaderError::Forked { .. }));
                    let refused = [
                        reader.get(b"key").map(drop),
                        reader.multi_get(&[b"key"]).map(drop),
                        reader.scan(b"", 0, 10, |_, _| ()).map(drop),
                        reader.wait(Duration::from_secs(60)),
                        reader.clone().ttl(b"key").map(drop),
                    ];
                    let own = Db::open_reader(folder).and_then(|it| it.get(b"key"));
                    let reads = own.is_ok_and(|it| it.as_deref() == Some(b"value"));
                    std::process::exit((!refused.into_iter().all(is_refused) || !reads).into());
                }
            }
        });
        let failed = statuses.find(|it| *it != 0);
        ends.store(true, Ordering::Relaxed);
        failed
    });
    assert_eq!(failed, None, "exit status and signal");
    eprintln!("{AS_EXPECTED}");
}

/// A child that lives on had the lock of the memory folder with its parent's descriptors, so memory
/// that was kept couldn't be opened again before that child ended.
#[test]
fn kept_memory_opens_again_while_a_child_lives() {
    let dir = tempfile::tempdir().expect("a folder");
    runs("forks::child_closes_and_opens", &dir.path().join("data"));
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_closes_and_opens() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let ends = folder.with_extension("ends");
    let db = Db::open(folder, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    match fork().expect("a fork") {
        Fork::Parent(child) => {
            db.close().expect("close");
            let again = Db::open(folder, &kept()).map_err(|error| error.to_string());
            std::fs::write(&ends, "").expect("the folder is ours");
            assert_eq!(waitpid(child).expect("it ends"), 0);
            let again = again.expect("open");
            assert_eq!(again.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
            again.close().expect("close");
            // The next open removes it.
            Db::open(folder, &small()).expect("open").close().expect("close");
        }
        Fork::Child => {
            let looks = (0..6000).find(|_| {
                std::thread::sleep(Duration::from_millis(10));
                ends.exists()
            });
            std::process::exit(looks.is_none().into());
        }
    }
    eprintln!("{AS_EXPECTED}");
}

/// A child took its parent's arenas for its own: it couldn't open the memory that its parent had
/// kept, however long that was closed.
#[test]
fn a_child_opens_the_memory_that_its_parent_has_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    runs("forks::child_opens_what_was_kept", &dir.path().join("data"));
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_opens_what_was_kept() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let closed = folder.with_extension("closed");
    let db = Db::open(folder, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    match fork().expect("a fork") {
        Fork::Parent(child) => {
            db.close().expect("close");
            std::fs::write(&closed, "").expect("the folder is ours");
            assert_eq!(waitpid(child).expect("it ends"), 0);
            // The next open removes it.
            Db::open(folder, &small()).expect("open").close().expect("close");
        }
        Fork::Child => {
            let looks = (0..6000).find(|_| {
                std::thread::sleep(Duration::from_millis(10));
                closed.exists()
            });
            let own = Db::open(folder, &kept()).map_err(|error| eprintln!("{error}"));
            let reads = own.is_ok_and(|own| {
                let reads = own.get(b"key").is_ok_and(|it| it.as_deref() == Some(b"value"));
                reads && own.close().is_ok()
            });
            std::process::exit((looks.is_none() || !reads).into());
        }
    }
    eprintln!("{AS_EXPECTED}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_forks() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let db = open(folder);
    db.put(b"key", b"value").expect("put");
    // Others write, read and take snapshots all the while, so that forks happen while they have
    // locks.
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) || count < 200 {
                db.put(format!("own {count}").as_bytes(), &[1; 100]).expect("put");
                count += 1;
                if count % 16 == 0 {
                    drop(db.snapshot().expect("snapshot"));
                }
                assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
            }
            count
        });
        let mut snapshot = db.snapshot().expect("snapshot");
        let watch = db.watch(b"").expect("watch");
        let place = watch.place().expect("place");
        let earlier = db.watch_from(b"own", &place).expect("watch");
        for n in 0..FORKS {
            match fork().expect("a fork") {
                Fork::Parent(child) => {
                    let status = waitpid(child).expect("it ends");
                    assert_eq!(status, 0, "fork {n}: exit status and signal");
                    db.put_with(b"parent", b"goes on", &WriteOptions::strong()).expect("put");
                }
                Fork::Child => {
                    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        is_refused(&db, folder);
                        assert!(matches!(snapshot.next(), Some(Err(DbError::Forked))));
                        let event = watch.next_within(Duration::from_secs(9));
                        assert!(matches!(event, Err(DbError::Forked)));
                        assert!(matches!(watch.place(), Err(DbError::Forked)));
                    }));
                    drop((snapshot, watch, earlier));
                    std::process::exit(refused.is_err().into());
                }
            }
        }
        assert!(snapshot.next().expect("keys are there").is_ok(), "the parent's goes on");
        assert!(watch.next_within(Duration::ZERO).expect("it is open").is_some());
        ends.store(true, Ordering::Relaxed);
        let count: u64 = writer.join().expect("it writes");
        db.put(b"count", count.to_string().as_bytes()).expect("put");
    });
    match fork().expect("a fork") {
        Fork::Parent(child) => assert_eq!(waitpid(child).expect("it ends"), 0),
        Fork::Child => {
            drop(db);
            std::process::exit(0);
        }
    }
    match fork().expect("a fork") {
        Fork::Parent(child) => assert_eq!(waitpid(child).expect("it ends"), 0),
        Fork::Child => {
            let closed = db.close();
            let is_refused = matches!(closed, Err(DbError::Forked));
            // Its own one, in another folder, works.
            let other = open(&folder.with_extension("child"));
            other.put_with(b"key", b"child", &WriteOptions::strong()).expect("put");
            let is_there = other.get(b"key").expect("get").as_deref() == Some(&b"child"[..]);
            other.close().expect("close");
            std::process::exit((!is_refused || !is_there).into());
        }
    }
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    db.put(b"parent", b"is there").expect("put");
    db.close().expect("close");
    eprintln!("{AS_EXPECTED}");
}

/// Each call, in the child.
fn is_refused(db: &Db, folder: &Path) {
    let refused = |what: &str, result: Result<(), DbError>| {
        assert!(matches!(result, Err(DbError::Forked)), "{what}: {result:?}");
    };
    refused("get", db.get(b"key").map(drop));
    refused("get_into", db.get_into(b"key", &mut Vec::new()).map(drop));
    refused("multi_get", db.multi_get(&[b"key"]).map(drop));
    refused("put", db.put(b"key", b"child"));
    refused("put, strong", db.put_with(b"key", b"child", &WriteOptions::strong()));
    refused("delete", db.delete(b"key").map(drop));
    refused("write", db.write(WriteBatch::new().put(b"key", b"child")).map(drop));
    refused("incr", db.incr(b"n", 1).map(drop));
    refused("expire", db.expire(b"key", &WriteOptions::new()).map(drop));
    refused("compare_and_set", db.compare_and_set(b"n", None, Some(b"1")).map(drop));
    refused("scan", db.scan(b"", 0, 10, |_, _| panic!("nothing is told")).map(drop));
    refused("snapshot", db.snapshot().map(drop));
    refused("watch", db.watch(b"").map(drop));
    refused("flush", db.flush());
    refused("stats", db.stats().map(drop));
    let error = Db::open(folder, &small()).map(drop).expect_err("the parent has it");
    assert!(matches!(error, nigh::OpenError::InUse { .. }), "{error}");
    assert!(DbError::Forked.to_string().contains("forked"));
}
