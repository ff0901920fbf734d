//! Watches: each change once, in order, or told as lost; beside writers of all threads.

#![expect(clippy::cast_possible_truncation, reason = "values are made of counters")]

use crate::{open, small};
use nigh::{Db, DbError, Watch, WatchEvent, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Longest wait for an event that must come.
const SOON: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

fn database() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    (dir, db)
}

/// The next event, which must come.
fn next(watch: &Watch) -> WatchEvent {
    watch.next_within(SOON).expect("it is open").expect("it is told soon")
}

/// A put without an expiry.
fn put(change: u64, key: &str, value: &[u8]) -> WatchEvent {
    let (key, value) = (key.as_bytes().to_vec(), value.to_vec());
    WatchEvent::Put { partition: 0, change, key, value, expires_at: None }
}

fn removed(change: u64, key: &str) -> WatchEvent {
    WatchEvent::Removed { partition: 0, change, key: key.as_bytes().to_vec() }
}

#[test]
fn a_watch_tells_what_comes_under_its_prefix_and_nothing_from_before() {
    let (_dir, db) = database();
    db.put(b"a:old", b"before").expect("put");
    let (watch, all) = (db.watch(b"a:").expect("watch"), db.watch(b"").expect("watch"));
    db.put(b"a:1", b"one").expect("put");
    db.put(b"b:1", b"other").expect("put");
    db.incr(b"a:n", 5).expect("incr");
    assert!(db.compare_and_set(b"a:1", Some(b"one"), Some(b"two")).expect("set"));
    assert!(!db.compare_and_set(b"a:1", Some(b"one"), Some(b"three")).expect("set"));
    assert!(db.delete(b"a:old").expect("delete"));
    assert!(!db.delete(b"a:none").expect("delete"), "it isn't there: no change");
    let mut batch = WriteBatch::new();
    batch.put(b"a:2", b"x").delete(b"b:1").delete(b"a:1").put(b"a:long", &[7; 200_000]);
    db.write(&batch).expect("write");
    let mut told: Vec<WatchEvent> = (0..7).map(|_| next(&watch)).collect();
    let first = told[0].change();
    assert_eq!(first, 2, "the change before the watch was the first");
    told.sort_by_key(WatchEvent::change);
    let expected =
        [put(2, "a:1", b"one"), put(4, "a:n", b"5"), put(5, "a:1", b"two"), removed(6, "a:old")];
    assert_eq!(told[..4], expected);
    // A batch's changes have numbers that follow each other.
    let batch: Vec<_> = told[4..].to_vec();
    assert!(batch.iter().all(|event| (7..=10).contains(&event.change())), "{batch:?}");
    let has = |meant: &dyn Fn(u64) -> WatchEvent| (7..=10).any(|n| batch.contains(&meant(n)));
    assert!(has(&|n| put(n, "a:2", b"x")) && has(&|n| removed(n, "a:1")));
    assert!(has(&|n| put(n, "a:long", &[7; 200_000])));
    let numbers: Vec<u64> = (0..9).map(|_| next(&all).change()).collect();
    assert_eq!(numbers, (2..=10).collect::<Vec<_>>(), "each change has its number");
    assert_eq!(watch.next_within(NOW).expect("it is open"), None);
}

#[test]
fn what_expires_is_told_as_removed() {
    let (_dir, db) = database();
    let watch = db.watch(b"").expect("watch");
    let before = std::time::SystemTime::now();
    let soon = WriteOptions::new().expires_in(Duration::from_millis(50));
    db.put_with(b"soon", b"1", &soon).expect("put");
    match next(&watch) {
        WatchEvent::Put { key, expires_at: Some(at), .. } => {
            assert!(key == b"soon" && at > before && at < before + SOON);
        }
        other => panic!("{other:?}"),
    }
    // Nobody asks for the key.
    assert_eq!(next(&watch), removed(2, "soon"));
}

#[test]
fn what_expires_is_told_soon_though_nobody_does_anything() {
    // The log's thread of an idle database sleeps for a second at a time. What expired was told
    // when it woke by itself.
    let (_dir, db) = database();
    let watch = db.watch(b"").expect("watch");
    let lateness = (0..4).map(|_| {
        // Behind the second in which the put is synced, and a little behind the next one.
        let over = std::time::SystemTime::now() + Duration::from_millis(2200);
        db.put_with(b"soon", b"1", &WriteOptions::new().expires_at(over)).expect("put");
        assert!(matches!(next(&watch), WatchEvent::Put { .. }));
        assert!(matches!(next(&watch), WatchEvent::Removed { .. }));
        over.elapsed().expect("it wasn't told before")
    });
    // The machine may be busy, so one of some tries is enough.
    let late: Vec<_> = lateness.take_while(|it| it.as_millis() > 300).collect();
    assert!(late.len() < 4, "{late:?}");
}

#[test]
fn another_expiry_is_told_with_a_short_value_and_without_a_long_one() {
    let (_dir, db) = database();
    let long = vec![7; 200_000];
    db.put(b"short", b"1").expect("put");
    db.put(b"long", &long).expect("put");
    let watch = db.watch(b"").expect("watch");
    let at = std::time::UNIX_EPOCH + Duration::from_secs(7_000_000_000);
    for key in [&b"short"[..], b"long"] {
        assert!(db.expire(key, &WriteOptions::new().expires_at(at)).expect("expire"));
        assert!(db.expire(key, &WriteOptions::new()).expect("expire"));
    }
    let told: Vec<_> = (0..4).map(|_| next(&watch)).collect();
    for (n, expires_at) in [(0, Some(at)), (1, None)] {
        let (key, value) = (b"short".to_vec(), b"1".to_vec());
        let change = 3 + n as u64;
        assert_eq!(told[n], WatchEvent::Put { partition: 0, change, key, value, expires_at });
        let (key, change) = (b"long".to_vec(), 5 + n as u64);
        assert_eq!(told[2 + n], WatchEvent::Expires { partition: 0, change, key, expires_at });
    }
}

#[test]
fn each_change_of_all_threads_is_told_once_in_order() {
    // Four threads write keys of their own, with counts as values; a watch begins in the midst of
    // that, others from the start, each taken by a thread. A thread that has seen the late watch
    // begin notes its count: all later ones must be told.
    const THREADS: u64 = 4;
    const WRITES: u64 = 3000;
    let (_dir, db) = database();
    let (middle, begun) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    let taker = |watch: Watch| std::thread::spawn(move || watch.collect::<Vec<_>>());
    let takers = [&b""[..], b"1"].map(|prefix| taker(db.watch(prefix).expect("watch")));
    let write = |thread: u64| {
        for n in 0..WRITES {
            if n == WRITES / 2 {
                middle.wait();
                begun.wait();
            }
            let key = |k: u64| format!("{thread}:{}", k % 7).into_bytes();
            if n % 5 == 0 {
                let mut batch = WriteBatch::new();
                batch.put(&key(n), n.to_string().as_bytes()).delete(&key(n + 1));
                db.write(&batch).expect("write");
            } else {
                db.put(&key(n), n.to_string().as_bytes()).expect("put");
            }
        }
    };
    let (from, late) = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let write = &write;
            scope.spawn(move || write(thread));
        }
        middle.wait();
        let from = db.stats().expect("stats").last_change;
        let late = taker(db.watch(b"").expect("watch"));
        begun.wait();
        (from, late)
    });
    let last = db.stats().expect("stats").last_change;
    db.close().expect("close");
    let [all, of_prefix] = takers.map(|taker| taker.join().expect("it takes"));
    let late = late.join().expect("it takes");
    let numbers = |events: &[WatchEvent]| events.iter().map(WatchEvent::change).collect::<Vec<_>>();
    assert_eq!(numbers(&late), (from + 1..=last).collect::<Vec<_>>());
    assert_eq!(numbers(&all), (1..=last).collect::<Vec<_>>());
    assert_eq!(all[from as usize..], late);
    let key_of = |event: &WatchEvent| match event {
        WatchEvent::Put { key, .. } | WatchEvent::Removed { key, .. } => key.clone(),
        other => panic!("{other:?}"),
    };
    let meant: Vec<_> = all.iter().filter(|event| key_of(event)[0] == b'1').cloned().collect();
    assert_eq!(of_prefix, meant);
    // What one thread wrote comes in its order.
    let mut counts = BTreeMap::new();
    for event in &all {
        if let WatchEvent::Put { key, value, .. } = event {
            let count: u64 = std::str::from_utf8(value).expect("text").parse().expect("a number");
            let before = counts.insert(key[0], count);
            assert_eq!(before.map_or(0, |before| before + 1), count, "thread {}", key[0]);
        }
    }
    assert!(counts.len() as u64 == THREADS && counts.values().all(|last| last + 1 == WRITES));
}

#[test]
fn a_watch_that_nobody_takes_loses_changes_says_so_and_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small().watch_bytes(64 << 10)).expect("open");
    let (slow, quick) = (db.watch(b"k").expect("watch"), db.watch(b"").expect("watch"));
    let begin = Instant::now();
    let mut seen = 0;
    for n in 1..=1000_u64 {
        db.put(b"k", &[n as u8; 1000]).expect("no writer waits for it");
        while let Some(event) = quick.next_within(NOW).expect("it is open") {
            assert!(event.change() > seen);
            seen = event.change();
        }
    }
    assert!(begin.elapsed() < SOON);
    while seen < 1000 {
        seen = next(&quick).change(); // it loses nothing for the other one's sake, or says so
    }
    let mut expected = 1;
    let mut events = 0;
    let (first, last) = loop {
        match next(&slow) {
            WatchEvent::Put { change, value, .. } => {
                assert_eq!((change, value), (expected, vec![expected as u8; 1000]));
                (expected, events) = (expected + 1, events + 1);
            }
            WatchEvent::Lost { first, last, .. } => break (first, last),
            other => panic!("{other:?}"),
        }
    };
    assert!((30..=65).contains(&events), "{events} of 1 KB are kept of 64 KiB");
    assert_eq!((first, last), (expected, 1000));
    db.put(b"k", b"later").expect("put");
    assert_eq!(next(&slow), put(1001, "k", b"later"));
    // A value longer than all that may wait is told, if nothing else does.
    db.put(b"k", &[1; 200_000]).expect("put");
    assert_eq!(next(&slow), put(1002, "k", &[1; 200_000]));
}

#[test]
fn a_strong_write_that_has_returned_was_told() {
    // The journal comes before the disk: an event is there when a strong write of another thread
    // returns.
    let (_dir, db) = database();
    let watch = db.watch(b"").expect("watch");
    for n in 1..=50_u64 {
        db.put_with(b"key", &n.to_le_bytes(), &WriteOptions::strong()).expect("put");
        let event = watch.next_within(NOW).expect("it is open").expect("it is there");
        assert_eq!(event, put(n, "key", &n.to_le_bytes()));
        assert!(db.stats().expect("stats").durable_change >= n);
    }
}

#[test]
fn watches_end_with_their_database_and_are_counted() {
    let (_dir, db) = database();
    let mut watches: Vec<_> = (0..256).map(|_| db.watch(b"").expect("watch")).collect();
    let error = db.watch(b"").map(drop).expect_err("there are 256");
    assert!(matches!(error, DbError::TooManyWatches { most: 256 }), "{error}");
    watches.truncate(2);
    watches.push(db.watch(b"").expect("others have gone"));
    db.put(b"key", b"value").expect("put");
    let waiting = watches.pop().expect("three");
    std::thread::scope(|scope| {
        let taker = scope.spawn(move || waiting.collect::<Vec<_>>());
        db.close().expect("close");
        assert_eq!(taker.join().expect("it ends"), [put(1, "key", b"value")]);
    });
    for watch in watches {
        assert_eq!(next(&watch), put(1, "key", b"value"), "what came before the end is told");
        assert!(matches!(watch.next_within(SOON), Err(DbError::Closed)));
    }
}

/// A task's waker that counts.
#[derive(Default)]
struct CountingWaker(AtomicU64);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_once_for_what_comes_and_for_the_end() {
    let (_dir, db) = database();
    let watch = db.watch(b"a").expect("watch");
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counting));
    let poll = || watch.poll_next(&Context::from_waker(&waker));
    let woken = |times| {
        let begin = Instant::now();
        while counting.0.load(Ordering::SeqCst) < times && begin.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(counting.0.load(Ordering::SeqCst), times);
    };
    assert!(poll().is_pending());
    let all = db.watch(b"").expect("watch");
    db.put(b"b", b"another prefix").expect("put");
    assert_eq!(next(&all), put(1, "b", b"another prefix"));
    woken(0);
    db.put(b"a1", b"").expect("put");
    woken(1);
    db.put(b"a2", b"").expect("put");
    (0..2).for_each(|_| drop(next(&all)));
    woken(1); // it hasn't asked again
    for key in ["a1", "a2"] {
        assert!(
            matches!(poll(), Poll::Ready(Ok(WatchEvent::Put { key: it, .. })) if it == key.as_bytes())
        );
    }
    assert!(poll().is_pending());
    db.close().expect("close");
    woken(2);
    assert!(matches!(poll(), Poll::Ready(Err(DbError::Closed))));
}
