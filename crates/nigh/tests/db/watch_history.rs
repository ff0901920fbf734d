//! Watches that begin at an earlier place: what was, from the log, and then what comes. These are
//! of one partition; `watch_places` has several.

use crate::watch_places::place_at;
use crate::{has_no_more, open};
use nigh::{Db, DbError, Watch, WatchEvent, WatchPlace, WriteBatch, WriteOptions};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Longest wait for an event that must come.
const SOON: Duration = Duration::from_secs(20);

fn put(db: &Db, n: u64) {
    db.put(format!("key {}", n % 50).as_bytes(), &n.to_le_bytes()).expect("put");
}

/// A watch from a change on.
fn watch_from(db: &Db, prefix: &[u8], change: u64) -> Result<Watch, DbError> {
    db.watch_from(prefix, &place_at(db, &[change]))
}

/// The change that comes next at a place.
fn change_of(place: &WatchPlace) -> u64 {
    let text = place.to_string();
    let number = text.trim_end_matches('.').rsplit(':').next().expect("its number");
    number.parse().expect("a number")
}

/// The numbers that are told next, all of puts, as long as the last one isn't there.
fn numbers(watch: &Watch, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|it| *it < last) {
        match watch.next_within(SOON).expect("it is open").expect("it is told soon") {
            WatchEvent::Put { change, value, .. } => {
                assert_eq!(value, change.to_le_bytes());
                numbers.push(change);
            }
            other => panic!("{other:?} after {numbers:?}"),
        }
    }
    numbers
}

#[test]
fn what_was_is_told_and_then_what_comes_also_behind_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let mut last = 0;
    for _ in 0..3 {
        let db = open(&path);
        (last + 1..=last + 300).for_each(|n| put(&db, n));
        last += 300;
        for from in [1, 2, last / 2, last - 299, last - 1, last, last + 1] {
            let watch = watch_from(&db, b"key", from).expect("the log has it");
            put(&db, last + 1);
            last += 1;
            let expected: Vec<u64> = (from..=last).collect();
            assert_eq!(numbers(&watch, last), expected, "from {from}");
            assert!(has_no_more(&watch));
        }
        db.close().expect("close");
    }
}

#[test]
fn a_watch_that_has_history_to_tell_keeps_no_folder_locked() {
    // A program closed its database while such a watch was there yet. Its next open was told that
    // the database is in use.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    (1..=300).for_each(|n| put(&db, n));
    let watch = watch_from(&db, b"key", 1).expect("the log has it");
    assert_eq!(numbers(&watch, 1), [1]);
    let renamed = dir.path().join("renamed");
    std::fs::rename(&path, &renamed).expect("it may be renamed");
    db.close().expect("close");
    let db = open(&renamed);
    // The log has it still.
    assert_eq!(numbers(&watch, 300), (2..=300).collect::<Vec<_>>());
    put(&db, 301);
    assert!(matches!(watch.next_within(SOON), Err(DbError::Closed)));
}

#[test]
fn each_kind_of_change_is_told_from_the_log_as_it_was_told_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    let watch = db.watch(b"a").expect("watch");
    db.put(b"a1", b"one").expect("put");
    db.put(b"b1", b"other").expect("put");
    db.put(b"along", &[7; 200_000]).expect("put");
    let brief = WriteOptions::new().expires_in(Duration::from_secs(3600));
    assert!(db.expire(b"along", &brief).expect("expire"));
    assert!(db.expire(b"a1", &brief).expect("expire"));
    let mut batch = WriteBatch::new();
    batch.put(b"a2", b"x").delete(b"b1").delete(b"a1").put(b"a3", b"y");
    db.write(&batch).expect("write");
    assert_eq!(db.incr(b"an", 5).expect("incr"), 5);
    assert!(db.delete(b"a2").expect("delete"));
    let last = db.stats().expect("stats").last_change;
    let told = |watch: &Watch| {
        let mut told = Vec::new();
        while told.last().is_none_or(|it: &WatchEvent| it.change() < last) {
            told.push(watch.next_within(SOON).expect("it is open").expect("it is told"));
        }
        told
    };
    let before = told(&watch);
    assert_eq!(before.len(), 9);
    let again = watch_from(&db, b"a", 1).expect("the log has it");
    // A task gets it, too: nothing of what was is waited for.
    let mut polled = Vec::new();
    for _ in &before {
        // Each call reads a frame of the log.
        let mut polls = (0..100).map(|_| again.poll_next(&Context::from_waker(Waker::noop())));
        let event = polls.find_map(|poll| match poll {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        });
        polled.push(event.expect("it was before the watch").expect("it is open"));
    }
    assert_eq!(polled, before);
}

#[test]
fn a_call_that_finds_nothing_in_the_log_comes_back_in_time() {
    // A call read the whole log for an event under a rare prefix, whatever its time.
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    for n in 0..50 {
        put(&db, n);
        db.flush().expect("flush");
    }
    db.put(b"rare", b"1").expect("put");
    let watch = watch_from(&db, b"rare", 1).expect("the log has it");
    let calls = (0..1000).take_while(|_| {
        let event = watch.next_within(Duration::ZERO).expect("it is open");
        event.is_none()
    });
    let calls = calls.count();
    assert!((20..1000).contains(&calls), "{calls} calls that found nothing");
}

#[test]
fn writers_of_all_the_while_leave_no_gap_between_both() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=20_000).for_each(|n| put(&db, n)));
        for from in [1, 50, 700] {
            while db.stats().expect("stats").last_change < from + 100 {
                std::thread::yield_now();
            }
            let watch = watch_from(&db, b"", from).expect("the log has it");
            assert_eq!(numbers(&watch, from + 3000), (from..=from + 3000).collect::<Vec<_>>());
        }
    });
}

/// Compacts the log: keys are overwritten until the first change isn't there any more.
fn compact(db: &Db) {
    for _ in 0..200 {
        (0..20).for_each(|n: u64| db.put(&n.to_le_bytes(), &[1; 60_000]).expect("put"));
        if matches!(watch_from(db, b"", 1), Err(DbError::ChangesGone { .. })) {
            return;
        }
    }
    panic!("the log is never compacted");
}

#[test]
fn what_was_compacted_away_is_an_error_that_says_what_is_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    put(&db, 1);
    compact(&db);
    let oldest = || match watch_from(&db, b"", 1) {
        Err(DbError::ChangesGone { oldest }) => oldest,
        other => panic!("{other:?}"),
    };
    let first = change_of(&oldest());
    let error = watch_from(&db, b"", first - 1).expect_err("it is gone, too");
    let is_left = |oldest: &WatchPlace| change_of(oldest) >= first;
    assert!(matches!(&error, DbError::ChangesGone { oldest } if is_left(oldest)), "{error}");
    assert!(error.to_string().contains("read the keys by a snapshot"), "{error}");
    // More may go meanwhile: what it says is left then.
    let (watch, oldest) = (0..100)
        .find_map(|_| {
            let oldest = oldest();
            db.watch_from(b"", &oldest).ok().map(|watch| (watch, oldest))
        })
        .expect("something is left");
    assert_eq!(watch.place().expect("a place"), oldest);
    let event = watch.next_within(SOON).expect("open").expect("told");
    assert_eq!(event.change(), change_of(&oldest));
}

#[test]
fn what_is_compacted_away_before_it_is_read_is_told_as_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    (1..=100).for_each(|n| put(&db, n));
    let watch = watch_from(&db, b"", 1).expect("the log has it");
    assert_eq!(numbers(&watch, 10), (1..=10).collect::<Vec<_>>());
    compact(&db);
    // More than the files that are held for it.
    for _ in 0..10 {
        compact(&db);
    }
    let last = db.stats().expect("stats").last_change;
    let (mut next, mut lost) = (11, 0);
    while next <= last {
        let event = watch.next_within(SOON).expect("it is open").expect("it is told");
        let first = match &event {
            WatchEvent::Lost { first, .. } => *first,
            other => other.change(),
        };
        assert_eq!(first, next, "{last} is the last one");
        lost += event.change() - first;
        next = event.change() + 1;
    }
    assert!(lost > 0, "it was compacted away, or found no room");
    put(&db, last + 1);
    assert_eq!(numbers(&watch, last + 1), [last + 1]);
}
