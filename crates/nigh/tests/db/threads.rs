//! Several threads at once.

use crate::{open, small};
use nigh::{Db, DbError, Durability, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The library's threads took signals that were meant for the program's: one that waits for them in
/// a thread (`sigwait`), with all others blocking them, didn't get each, and a handler ran in a
/// thread that the program doesn't know.
#[test]
fn the_librarys_threads_take_no_signals_of_the_program() {
    let blocked = |task: &str| {
        let status = std::fs::read_to_string(format!("/proc/{task}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let before = blocked("thread-self").expect("our own");
    let dir = tempfile::tempdir().expect("a folder");
    let _db = open(&dir.path().join("data"));
    assert_eq!(blocked("thread-self"), Some(before), "ours are as they were");
    // A thread says its name soon after it has begun.
    let begin = Instant::now();
    let mut missing = vec!["nigh-upkeep\n", "nigh-log-0\n"];
    while !missing.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no {missing:?}");
        for task in std::fs::read_dir("/proc/self/task").expect("our threads") {
            let task = format!("self/task/{}", task.expect("a thread").file_name().display());
            let name = std::fs::read_to_string(format!("/proc/{task}/comm")).unwrap_or_default();
            let Some(mask) = blocked(&task).filter(|_| name.starts_with("nigh-")) else { continue };
            let [terminate, interrupt, user, bus, fault] =
                [15, 2, 10, 7, 11].map(|signal: u32| mask & (1 << (signal - 1)) != 0);
            assert!(terminate && interrupt && user && !bus && !fault, "{name}: {mask:x}");
            missing.retain(|wanted| *wanted != name);
        }
    }
}

#[test]
fn increments_of_all_threads_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    db.incr(b"n", 1).expect("incr");
                }
            });
        }
    });
    assert_eq!(db.get(b"n").expect("get").as_deref(), Some(&b"8000"[..]));
}

/// Threads that write keys of their own, in one partition, leave writes to each other: each answer
/// is that of its own write, which is there when it is given, and each write is done once.
#[test]
fn writes_that_are_left_to_another_thread_are_done_once() {
    const ROUNDS: u64 = 3000;
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    let before = db.stats().expect("stats").last_change;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let key = format!("key of {thread}");
                let key = key.as_bytes();
                for n in 0..ROUNDS {
                    assert!(!db.delete(key).expect("delete"), "it isn't there, round {n}");
                    db.put(key, &n.to_le_bytes()).expect("put");
                    let found = db.get(key).expect("get");
                    assert_eq!(found.as_deref(), Some(&n.to_le_bytes()[..]));
                    drop(found);
                    let later = WriteOptions::new().expires_in(Duration::from_secs(1000));
                    assert!(db.expire(key, &later).expect("expire"));
                    assert!(db.delete(key).expect("delete"), "it is there, round {n}");
                    assert!(db.get(key).expect("get").is_none());
                }
            });
        }
    });
    let stats = db.stats().expect("stats");
    assert_eq!((stats.keys, stats.last_change - before), (0, 4 * ROUNDS * 3));
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    // Two accounts whose sum never changes, and readers who look at both.
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    let set = |a: i64| {
        let mut batch = WriteBatch::new();
        batch.put(b"a", a.to_string().as_bytes()).put(b"b", (1000 - a).to_string().as_bytes());
        db.write(&batch).expect("write");
    };
    set(0);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut looks = 0;
                    while !ends.load(Ordering::Relaxed) {
                        let both = db.multi_get(&[b"a", b"b"]).expect("get");
                        let number = |at: usize| -> i64 {
                            let value = both[at].as_deref().expect("it is there");
                            std::str::from_utf8(value).expect("text").parse().expect("a number")
                        };
                        assert_eq!(number(0) + number(1), 1000);
                        looks += 1;
                    }
                    looks
                })
            })
            .collect();
        (0..20_000).for_each(|n| set(n % 1000));
        ends.store(true, Ordering::Relaxed);
        let looks: u64 = readers.into_iter().map(|it| it.join().expect("it ends")).sum();
        assert!(looks > 100, "{looks}");
    });
}

#[test]
fn strong_writes_of_many_threads_share_syncs() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().durability(Durability::Strong);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..50 {
                    let before = db.stats().expect("stats").last_change;
                    db.put(format!("{thread} {n}").as_bytes(), b"value").expect("put");
                    assert!(db.stats().expect("stats").durable_change > before);
                }
            });
        }
    });
    let stats = db.stats().expect("stats");
    assert_eq!((stats.keys, stats.durable_change), (400, 400));
    assert!(stats.syncs < 400, "{} syncs", stats.syncs);
}

#[test]
fn threads_come_and_go() {
    // More threads than there are seats, one after the other; then too many at once.
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small().threads_most(2)).expect("open");
    db.put(b"key", b"value").expect("put");
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| assert!(db.get(b"key").expect("get").is_some()));
            // A thread has left when it has ended, not already when its code has.
            reader.join().expect("it ends");
        });
    }
    let _own = db.get(b"key").expect("get");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _second = db.get(b"key").expect("get");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let third = db.get(b"key").map(drop);
                    assert!(matches!(third, Err(DbError::TooManyThreads { most: 2 })));
                    db.put(b"key", b"other").expect("a writer needs no seat");
                });
            });
        });
    });
}

#[test]
fn a_thread_that_does_nothing_holds_no_memory() {
    // A thread has read once, and sleeps. Others write more than memory has, many times over.
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small().capacity_bytes(8 << 20)).expect("open");
    db.put(b"key", b"value").expect("put");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            assert!(db.get(b"key").expect("get").is_some());
            while !ends.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let begin = Instant::now();
        for n in 0..5000_u32 {
            let written = db.put(&(n % 200).to_le_bytes(), &[1; 10_000]);
            if written.is_err() {
                ends.store(true, Ordering::Relaxed);
            }
            written.expect("put");
        }
        ends.store(true, Ordering::Relaxed);
        sleeper.join().expect("it ends");
        assert!(begin.elapsed() < Duration::from_secs(60));
    });
}
