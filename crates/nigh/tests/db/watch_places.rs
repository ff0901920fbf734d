//! Places of watches over several partitions: a watch goes on where another was, and misses
//! nothing.
//!
//! ```text
//! threads: puts, batches, deletes, keys that expire ── db ── watch ── follower: map, place
//!                                                       └── closed, opened, compacted ──┘ goes on from any place that it had
//! ```
//!
//! A follower applies what it is told to a map. Each change must have the number behind the last
//! one of its partition, and at the end the map must be what the database has.

use crate::{has_no_more, made_with, open, small};
use nigh::{Db, DbError, Options, Watch, WatchEvent, WatchPlace, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Partitions of these databases.
const PARTITIONS: usize = 3;
/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(30);
/// How long what expires soon is there.
const BRIEF: Duration = Duration::from_millis(3);
/// Says how many databases the model makes.
const MODELS: &str = "NIGH_WATCH_MODELS";

/// The place of a database with these changes as the next ones. Its text is documented so that
/// this can be made.
pub(crate) fn place_at(db: &Db, next: &[u64]) -> WatchPlace {
    let text = now(db).to_string();
    let (whose, _) = text.rsplit_once(':').expect("numbers");
    let numbers: String = next.iter().map(|next| format!("{next}.")).collect();
    format!("{whose}:{numbers}").parse().expect("a place")
}

/// Where a database is now.
fn now(db: &Db) -> WatchPlace {
    db.watch(b"").and_then(|watch| watch.place()).expect("a place")
}

fn next(watch: &Watch) -> WatchEvent {
    watch.next_within(SOON).expect("it is open").expect("it is told soon")
}

/// Numbers that are as good as random ones.
struct Dice(u64);

impl Dice {
    /// Less than `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Values, and when they are gone.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, Option<SystemTime>)>;

/// What follows a database.
#[derive(Clone)]
struct Follower {
    prefix: &'static [u8],
    place: WatchPlace,
    map: Map,
    /// The last change that was told, of each partition.
    last: Vec<u64>,
    /// It has followed from the beginning.
    is_whole: bool,
}

/// How often something happened.
#[derive(Debug, Default)]
struct Counts {
    told: u64,
    resumed: u64,
    gone: u64,
    lost: u64,
    batches: u64,
}

/// Of each partition the next change.
fn numbers(place: &WatchPlace) -> Vec<u64> {
    let text = place.to_string();
    let numbers = text.trim_end_matches('.').rsplit(':').next().expect("numbers");
    numbers.split('.').map(|next| next.parse().expect("a number")).collect()
}

impl Follower {
    /// Of a database as it is now.
    fn of(db: &Db, prefix: &'static [u8]) -> Follower {
        let snapshot = db.snapshot_of(prefix).expect("a snapshot");
        let place = snapshot.place().clone();
        let last = numbers(&place).into_iter().map(|next| next - 1);
        // A snapshot doesn't tell an expiry, and hasn't a key whose time is over; its removal may
        // be told later.
        let map = snapshot.map(|pair| pair.expect("a pair"));
        let map = map.map(|(key, value)| (key, (value, None))).collect();
        Follower { prefix, place, map, last: last.collect(), is_whole: false }
    }

    /// A watch from its place on; where that is gone, it begins anew.
    fn begin(&mut self, db: &Db, counts: &mut Counts) -> Watch {
        let watch = db.watch_from(self.prefix, &self.place);
        let watch = watch.unwrap_or_else(|error| {
            let DbError::ChangesGone { oldest } = &error else { panic!("{error}") };
            assert_ne!(*oldest, self.place);
            counts.gone += 1;
            *self = Follower::of(db, self.prefix);
            db.watch_from(self.prefix, &self.place).expect("it is the moment of a snapshot")
        });
        counts.resumed += 1;
        let place = watch.place().expect("a place");
        if self.prefix.is_empty() {
            assert_eq!(place, self.place);
        } else {
            // What others write meanwhile isn't under the prefix: it has gone on behind that.
            let (now, before) = (numbers(&place), numbers(&self.place));
            assert!(now.iter().zip(&before).all(|(now, before)| now >= before), "{place}");
        }
        watch
    }

    /// Applies an event. False: something was lost.
    fn apply(&mut self, event: WatchEvent) -> bool {
        let (last, change) = (&mut self.last[event.partition()], event.change());
        let first = match &event {
            WatchEvent::Lost { first, .. } => *first,
            other => other.change(),
        };
        match self.prefix {
            b"" => assert_eq!(first, *last + 1, "none is missing, and none comes twice: {event:?}"),
            _ => assert!(first > *last, "none comes twice: {event:?}"),
        }
        *last = change;
        match event {
            WatchEvent::Put { key, value, expires_at, .. } => {
                self.map.insert(key, (value, expires_at));
            }
            WatchEvent::Expires { key, expires_at, .. } => {
                self.map.get_mut(&key).expect("it has a value").1 = expires_at;
            }
            WatchEvent::Removed { key, .. } => {
                let was_there = self.map.remove(&key).is_some();
                assert!(was_there || !self.is_whole, "it was there: {key:?}");
            }
            WatchEvent::Lost { .. } => return false,
            other => panic!("{other:?}"),
        }
        true
    }

    /// Takes so many events, or as long as there are any, and stands at the place behind them.
    fn take(&mut self, watch: &Watch, most: u64, counts: &mut Counts) -> bool {
        let mut batch = BatchSeen::default();
        for _ in 0..most {
            let Some(event) = watch.next_within(Duration::from_millis(5)).expect("open") else {
                break;
            };
            batch.see(&event, counts);
            counts.told += 1;
            if !self.apply(event) {
                counts.lost += 1;
                return false;
            }
        }
        self.place = watch.place().expect("a place");
        true
    }

    /// Takes all that there is, and compares with the database.
    fn catch_up(&mut self, db: &Db, watch: &Watch, counts: &mut Counts) -> bool {
        let begin = Instant::now();
        loop {
            if !self.take(watch, u64::MAX, counts) {
                return false;
            }
            let (at, snapshot) = (SystemTime::now(), db.snapshot_of(self.prefix).expect("one"));
            // What expires comes meanwhile, too.
            if *snapshot.place() == self.place {
                let found: BTreeMap<_, _> = snapshot.map(|pair| pair.expect("a pair")).collect();
                let here = self.map.iter().filter(|(_, (_, over))| over.is_none_or(|it| it > at));
                let here: BTreeMap<_, _> =
                    here.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
                if here == found {
                    return true;
                }
                // A key whose time is over may not be removed yet.
                let (here, found) = (here.len(), found.len());
                assert!(begin.elapsed() < SOON, "{here} keys, {found} in the database");
            }
            assert!(begin.elapsed() < SOON, "{} stays where it is", self.place);
        }
    }
}

/// Sees the puts of batches, whose values say which one and how many: nothing comes between, unless
/// the watch began in the midst of one.
#[derive(Default)]
struct BatchSeen {
    name: Vec<u8>,
    left: u64,
    partitions: [bool; PARTITIONS],
}

impl BatchSeen {
    fn see(&mut self, event: &WatchEvent, counts: &mut Counts) {
        let has_begun = std::mem::replace(&mut self.partitions[event.partition()], true);
        let value = match event {
            WatchEvent::Put { value, .. } => &value[..],
            _ => b"",
        };
        if self.left > 0 {
            assert_eq!(self.name, value, "something comes between the changes of a batch");
            self.left -= 1;
            counts.batches += u64::from(self.left == 0);
        } else if let Some(rest) = value.strip_prefix(b"batch ")
            && self.name != value
        {
            self.name = value.to_vec();
            self.left = if has_begun { u64::from(rest[0] - b'0') - 1 } else { 0 };
        }
    }
}

/// Writes of a thread, of keys that only it has.
fn write(db: &Db, thread: u64, mut dice: Dice, writes: u64) {
    for n in 0..writes {
        let side = if dice.roll(3) == 0 { "b" } else { "a" };
        let key = format!("{side} {thread} {}", dice.roll(40)).into_bytes();
        let value = format!("{thread} {n} {}", dice.roll(1000)).into_bytes();
        match dice.roll(20) {
            0..8 => db.put(&key, &value).expect("put"),
            8..11 => _ = db.delete(&key).expect("delete"),
            11 => {
                let brief = WriteOptions::new().expires_in(BRIEF);
                db.put_with(&key, &value, &brief).expect("put");
            }
            12 => {
                let far = WriteOptions::new().expires_in(Duration::from_secs(3600));
                _ = db.expire(&key, &far).expect("expire");
            }
            13 => db.put(&key, &vec![value[0]; 70_000]).expect("put"),
            14 => {
                let far = WriteOptions::new().expires_in(BRIEF);
                _ = db.expire(&key, &far).expect("expire");
            }
            other => {
                let mut batch = WriteBatch::new();
                let puts = 2 + dice.roll(7);
                for put in 0..puts {
                    let key = format!("{side} {{{thread} {other}}} {put}").into_bytes();
                    batch.put(&key, format!("batch {puts} of {thread} {n} {other}").as_bytes());
                }
                db.write(&batch).expect("write");
            }
        }
    }
}

/// Writes of all threads; with `fill`, enough for the logs to be compacted.
fn write_all(db: &Db, dice: &mut Dice, fill: bool) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (dice, writes) = (Dice(dice.roll(u64::MAX >> 33)), dice.roll(400));
            scope.spawn(move || write(db, thread, dice, writes));
        }
        if fill {
            scope.spawn(|| {
                for n in 0..150 {
                    db.put(format!("c {}", n % 9).as_bytes(), &[7; 60_000]).expect("put");
                }
            });
        }
    });
}

#[test]
fn a_watch_goes_on_from_any_place_and_its_changes_make_the_database() {
    let models = std::env::var(MODELS).map_or(2, |text| text.parse::<u64>().expect("a number"));
    let mut counts = Counts::default();
    let is_enough = |counts: &Counts| {
        let clean = counts.resumed - counts.gone - counts.lost;
        clean > models * 8 && counts.batches > models && counts.gone > 0
    };
    // On a busy machine compaction may be ahead of most places: then there are further models.
    for seed in 1..=4 * models {
        if seed > models && is_enough(&counts) {
            break;
        }
        model(seed, &mut counts);
    }
    eprintln_counts(&counts);
    assert!(is_enough(&counts), "{counts:?}");
}

#[expect(clippy::print_stderr, reason = "figures of a long run")]
fn eprintln_counts(counts: &Counts) {
    eprintln!("{counts:?}");
}

fn model(seed: u64, counts: &mut Counts) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let opened = || Db::open(&path, &small().watch_bytes(64 << 20)).expect("open");
    drop(made_with(&path, PARTITIONS));
    let (mut db, mut dice) = (opened(), Dice(seed));
    let start = Follower { is_whole: true, ..Follower::of(&db, b"") };
    let mut followers = vec![start.clone(), start, Follower::of(&db, b"a")];
    for _ in 0..8 {
        let (fill, at_once) = (dice.roll(4) == 0, dice.roll(2) == 0);
        if at_once {
            // They look on while the threads write, and stop anywhere.
            std::thread::scope(|scope| {
                let db = &db;
                for follower in &mut followers {
                    let most = dice.roll(500);
                    scope.spawn(move || {
                        let mut counts = Counts::default();
                        let watch = follower.begin(db, &mut counts);
                        if !follower.take(&watch, most, &mut counts) {
                            *follower = Follower::of(db, follower.prefix);
                        }
                    });
                }
                write_all(db, &mut dice, fill);
            });
        } else {
            write_all(&db, &mut dice, fill);
        }
        if dice.roll(2) == 0 {
            db.close().expect("close");
            db = opened();
        }
        // One of them goes on, and is left with others for later; or one that stays behind.
        let at = usize::try_from(dice.roll(followers.len() as u64)).expect("few");
        let mut follower = followers[at].clone();
        let watch = follower.begin(&db, counts);
        if follower.take(&watch, dice.roll(900), counts) {
            followers.push(follower);
        }
    }
    for mut follower in followers {
        let watch = follower.begin(&db, counts);
        if !follower.catch_up(&db, &watch, counts) {
            follower = Follower::of(&db, follower.prefix);
            let watch = follower.begin(&db, counts);
            assert!(follower.catch_up(&db, &watch, counts), "nobody writes now");
        }
    }
}

#[test]
fn the_place_goes_on_where_nothing_comes_under_the_prefix() {
    // A program watches a prefix under which hardly anything comes. Its place must not stay behind:
    // the log would be compacted away before it.
    let dir = tempfile::tempdir().expect("a folder");
    let db = made_with(&dir.path().join("data"), PARTITIONS);
    let (watch, all) = (db.watch(b"rare").expect("watch"), db.watch(b"").expect("watch"));
    let begun = watch.place().expect("a place");
    assert_eq!((&begun, &begun), (&now(&db), &all.place().expect("a place")));
    for n in 0..100_u32 {
        db.put(format!("often {n}").as_bytes(), b"1").expect("put");
    }
    db.put(b"rare", b"1").expect("put");
    for n in 0..100_u32 {
        db.put(format!("often {n}").as_bytes(), b"2").expect("put");
    }
    (0..201).for_each(|_| drop(next(&all)));
    assert_eq!(all.place().expect("a place"), now(&db));
    // Its own event waits: it isn't behind that, and it goes on in the other partitions.
    let waits = watch.place().expect("a place");
    assert!(waits != begun && waits != now(&db), "{waits}");
    assert!(matches!(next(&watch), WatchEvent::Put { key, .. } if key == b"rare"));
    assert_eq!(watch.place().expect("a place"), now(&db));
    for (place, puts) in [(&begun, 1), (&waits, 1), (&now(&db), 0)] {
        let again = db.watch_from(b"rare", place).expect("the log has it");
        for _ in 0..puts {
            assert!(matches!(next(&again), WatchEvent::Put { key, .. } if key == b"rare"));
        }
        assert!(has_no_more(&again));
        assert_eq!(again.place().expect("a place"), now(&db));
    }
}

#[test]
fn what_a_watch_has_lost_is_told_from_the_place_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().watch_bytes(8 << 10).partitions(PARTITIONS);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let watch = db.watch(b"").expect("watch");
    (0..300_u32).for_each(|n| db.put(&n.to_le_bytes(), &[1; 100]).expect("put"));
    db.flush().expect("flush");
    let (mut told, mut place) = (0, watch.place().expect("a place"));
    loop {
        match next(&watch) {
            WatchEvent::Lost { .. } => break,
            _ => (told, place) = (told + 1, watch.place().expect("a place")),
        }
    }
    assert!((1..200).contains(&told), "{told}");
    // Once it was told, the place is behind it, also while something waits.
    while let Some(event) = watch.next_within(Duration::ZERO).expect("open") {
        assert!(matches!(event, WatchEvent::Lost { .. }), "{event:?}");
    }
    let all = db.watch(b"").expect("watch");
    (0..3).for_each(|_| db.put(&0_u32.to_le_bytes(), b"new").expect("put"));
    (0..3).for_each(|_| drop(next(&all)));
    let behind = watch.place().expect("a place");
    let later = db.watch_from(b"", &behind).expect("the log has it");
    for it in [&later, &watch] {
        (0..3).for_each(|_| {
            assert!(matches!(next(it), WatchEvent::Put { value, .. } if value == b"new"));
        });
        assert!(has_no_more(it));
    }
    let again = db.watch_from(b"", &place).expect("the log has it");
    for n in told..303 {
        assert!(matches!(next(&again), WatchEvent::Put { .. }), "{n}");
    }
    assert!(has_no_more(&again));
}

#[test]
fn a_place_that_means_nothing_here_is_refused_and_the_error_says_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let refused = |db: &Db, place: &WatchPlace| db.watch_from(b"", place).expect_err("refused");
    let db = made_with(&path, PARTITIONS);
    let place = now(&db);
    // Behind the last change.
    for n in 0..30_u32 {
        db.put(&n.to_le_bytes(), b"1").expect("put");
    }
    let last: Vec<u64> =
        db.stats().expect("stats").partitions.iter().map(|it| it.last_change).collect();
    let ahead = place_at(&db, &[last[0] + 1, last[1] + 3, last[2] + 1]);
    let error = refused(&db, &ahead);
    let DbError::PlaceAhead { partition: 1, change, last: found } = error else {
        panic!("{error}")
    };
    assert_eq!((change, found), (last[1] + 2, last[1]));
    assert!(error.to_string().contains("a power cut took"), "{error}");
    drop(db.watch_from(b"", &place_at(&db, &[1, last[1] + 1, 1])).expect("all is there"));
    // Another number of partitions.
    let single = open(&dir.path().join("single"));
    let error = refused(&single, &place);
    assert!(matches!(error, DbError::PlacePartitions { place: 3, database: 1 }), "{error}");
    let error = refused(&db, &now(&single));
    assert!(matches!(error, DbError::PlacePartitions { place: 1, database: 3 }), "{error}");
    // Another database, and one that was made anew in the same folder.
    let other = made_with(&dir.path().join("other"), PARTITIONS);
    assert!(matches!(refused(&other, &place), DbError::PlaceOfOther));
    db.close().expect("close");
    std::fs::remove_dir_all(&path).expect("it is removed");
    let db = made_with(&path, PARTITIONS);
    let error = refused(&db, &place);
    assert!(matches!(error, DbError::PlaceOfOther), "{error}");
    assert!(error.to_string().contains("an earlier one in this folder"), "{error}");
}

#[test]
fn a_place_is_of_the_database_also_where_its_folder_is_renamed_and_memory_is_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, moved) = (dir.path().join("data"), dir.path().join("moved"));
    let db = Db::open(&path, &crate::kept().partitions(PARTITIONS)).expect("open");
    let watch = db.watch(b"").expect("watch");
    (0..9_u32).for_each(|n| db.put(&n.to_le_bytes(), b"1").expect("put"));
    (0..4).for_each(|_| drop(next(&watch)));
    let kept = watch.place().expect("a place").to_string();
    db.close().expect("close");
    assert_eq!(watch.place().expect("a place").to_string(), kept, "it outlives the database");
    let rest = |path: &Path, options: &Options| {
        let db = Db::open(path, options).expect("open");
        let watch = db.watch_from(b"", &kept.parse().expect("a place")).expect("the log has it");
        (0..5).for_each(|_| drop(next(&watch)));
        assert!(has_no_more(&watch));
    };
    rest(&path, &crate::kept());
    std::fs::rename(&path, &moved).expect("it is renamed");
    rest(&moved, &crate::shared()); // nothing stays in /dev/shm
}
