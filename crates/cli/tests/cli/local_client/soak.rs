//! Readers in other processes while the owner overwrites, cleans, grows, shrinks, flushes, compacts
//! its log, is killed, and starts again: the test binary runs itself as the readers.
//!
//! ```text
//! round of the writer: some of many keys │ a group, in one commit │ keys that grow, or go │ FLUSHALL
//!                      └ one pipeline; then the versions of its keys are acknowledged, in a file ─┐
//! a reader: acknowledged versions ─> keys: whole, right, not older than that, or gone <───────────┘
//!                                    the group: of one version
//! life of a server: rounds ─ BGREWRITEAOF ─ rounds ─ SIGKILL, or SIGTERM
//! ```
//!
//! `NIGH_LOCAL_SOAK_SECONDS` makes it as long as one likes, or `NIGH_LOCAL_SOAK_READS`, in
//! millions.

use super::soak_reader::{
    self, GOES, GONE, GROUP, GROUP_AT, GROWN, GROWN_AT, KEYS, SLOTS, key, value,
};
use super::{local, serve};
use crate::support::load::{Random, number, seed};
use crate::support::{Server, folder};
use nigh_client::CallError;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECONDS: &str = "NIGH_LOCAL_SOAK_SECONDS";
const READERS: usize = 3;
const MAXMEMORY: &str = "16mb";
/// Life of a server, about.
const LIFE: Duration = Duration::from_millis(600);
/// How long a client waits for the next one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds between two removals of all keys.
const CLEAR_EVERY: u64 = 70;
/// Keys that a round writes: of the many, and of those that grow.
const OVERWRITTEN: u64 = 16;
const ADDED: usize = 100;

/// How long more it takes at most until all of that has happened, on a machine with much to do.
const OVERTIME: Duration = Duration::from_secs(60);

/// What the writer has done: rounds, removals of all keys, times that the growing ones had grown.
#[derive(Default)]
struct Done {
    rounds: AtomicU64,
    flushes: AtomicU64,
    growths: AtomicU64,
}

/// What has happened to the owner.
#[derive(Default)]
struct Lives {
    deaths: u64,
    kills: u64,
    rewrites: u64,
    /// Files of the log that went away while the server lived.
    log_files_gone: usize,
    cleaned_segments: u64,
    index_rebuilds: u64,
}

#[test]
fn readers_see_whole_values_while_servers_die() {
    // Three readers compare all that they see, and end by a panic if a value is torn, wrong, older
    // than was acknowledged or seen before, or if a group isn't of one moment. All that is named
    // above has happened meanwhile.
    let seconds = std::env::var(SECONDS).map_or(2.5, |it| it.parse().expect("seconds"));
    let wanted = number("NIGH_LOCAL_SOAK_READS", 0) * 1_000_000;
    let folder = folder();
    let acked = File::create(folder.path().join("acked")).expect("our folder");
    acked.set_len(8 * SLOTS as u64).expect("our file");
    let log = folder.path().join("log").display().to_string();
    let flags = ["--maxmemory", MAXMEMORY, "--shards", "1", "--partitions", "2"];
    let logged = ["--appendonly", "yes", "--appendfsync", "everysec", "--dir", &log];
    let small = ["--log-on-tmpfs", "yes", "--log-file-size", "1mb", "--log-garbage", "50"];
    let start = || serve(folder.path(), &[&flags[..], &logged, &small].concat());
    let mut server = Some(start());
    let mut readers: Vec<Child> =
        (0..READERS).map(|number| soak_reader::spawn(folder.path(), number)).collect();
    let counts = || (0..READERS).map(|it| soak_reader::counts(folder.path(), it));
    let sum = |at: usize| counts().map(|counts| counts[at]).sum::<u64>();
    let reads = || sum(0);
    let (stop, begin, mut lives) = (AtomicBool::new(false), Instant::now(), Lives::default());
    let (done, length) = (Done::default(), Duration::from_secs_f64(seconds));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(folder.path(), &acked, &stop, &done));
        let is_long = |lives: &Lives| {
            let is_late = wanted == 0 && begin.elapsed() >= length + OVERTIME;
            let is_full = lives.has_all() && done.has_all() && reads() >= wanted;
            is_late || (begin.elapsed() >= length && is_full)
        };
        while !is_long(&lives) && !writer.is_finished() {
            lives.end_one(server.take().expect("started below"), folder.path());
            server = Some(start());
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer didn't panic");
    });
    File::create(folder.path().join("stop")).expect("our folder");
    for reader in &mut readers {
        let status = reader.wait().expect("our child");
        assert!(status.success(), "a reader says what it has seen");
    }
    let (reads, gone, views) = (reads(), sum(1), sum(2));
    let [rounds, flushes, growths] =
        [&done.rounds, &done.flushes, &done.growths].map(|it| it.load(Ordering::Relaxed));
    let (was_all, has_lived) = (done.has_all(), lives.has_all());
    let Lives { deaths, kills, rewrites, log_files_gone, cleaned_segments, index_rebuilds } = lives;
    eprintln!(
        "{reads} reads by {READERS} processes in {:?}, all whole, right, fresh and of one moment; \
         {gone} of keys that were gone, and none was back; {views} views; \
         {rounds} rounds, {flushes} flushes, {growths} growths, {index_rebuilds} rebuilds of an \
         index, {cleaned_segments} segments cleaned, {rewrites} logs rewritten, {log_files_gone} \
         files of the log compacted, {deaths} deaths, {kills} of them by SIGKILL",
        begin.elapsed(),
    );
    assert!(reads > 10_000 && gone > 0 && views > 0, "{reads} reads, {gone}, {views} views");
    assert!(was_all && has_lived, "all that has happened");
    drop(server);
}

impl Done {
    fn has_all(&self) -> bool {
        [&self.rounds, &self.flushes, &self.growths].iter().all(|it| it.load(Ordering::Relaxed) > 0)
    }
}

impl Lives {
    fn has_all(&self) -> bool {
        let memory = self.cleaned_segments > 0 && self.index_rebuilds > 0;
        let log = self.rewrites > 0 && self.log_files_gone > 0;
        memory && log && self.kills > 0 && self.deaths > self.kills
    }

    /// Lets a server live for a while; its log is rewritten meanwhile. Then it ends.
    fn end_one(&mut self, server: Server, folder: &Path) {
        let born = files(&folder.join("log"));
        std::thread::sleep(LIFE / 2);
        // It is refused while one goes on.
        server.call(&["BGREWRITEAOF"]);
        let middle = files(&folder.join("log"));
        std::thread::sleep(LIFE / 2);
        let info = server.call(&["INFO", "everything"]);
        let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|it| it.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no {name}: {info}"))
        };
        self.rewrites += field("aof_rewrites");
        self.cleaned_segments += field("cleaner_segments");
        self.index_rebuilds +=
            field("arena_index_rebuilds_larger") + field("arena_index_rebuilds_smaller");
        let late = files(&folder.join("log"));
        self.log_files_gone += born.union(&middle).filter(|it| !late.contains(*it)).count();
        if self.deaths % 4 == 1 {
            server.signal(rustix::process::Signal::TERM);
            server.ended();
        } else {
            self.kills += 1;
            server.kill();
        }
        self.deaths += 1;
    }
}

/// The names of the files in a folder, and in those in it.
fn files(folder: &Path) -> BTreeSet<std::path::PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => drop(found.insert(entry.path())),
        }
    }
    found
}

/// The writer's side of a round: keys with their versions, and the requests.
struct Round<'a> {
    acked: &'a File,
    /// What the file has.
    words: Vec<u64>,
    requests: Vec<Vec<Vec<u8>>>,
    written: Vec<(usize, u64)>,
    /// The keys that go at the round's end.
    removed: Range<usize>,
    version: u64,
}

impl Round<'_> {
    /// Another version of a key, and its value.
    fn next(&mut self, slot: usize) -> [Vec<u8>; 2] {
        self.version += 1;
        self.written.push((slot, self.version));
        [key(slot), value(slot, self.version)]
    }

    fn set(&mut self, slot: usize) {
        let [key, value] = self.next(slot);
        self.requests.push(vec![b"SET".to_vec(), key, value]);
    }

    /// These keys go by the round's last request: from now on each is there or not.
    fn remove(&mut self, slots: Range<usize>) {
        self.removed = slots.clone();
        self.written.retain(|(slot, _)| !slots.contains(slot));
        slots.for_each(|slot| self.tell(slot, self.words[slot] | GOES));
    }

    fn acknowledge(&mut self) {
        for (slot, version) in std::mem::take(&mut self.written) {
            self.tell(slot, version);
        }
        // Whatever of them was written up to here.
        let word = self.version | GONE;
        std::mem::take(&mut self.removed).for_each(|slot| self.tell(slot, word));
    }

    /// Readers see this word of a key from now on.
    fn tell(&mut self, slot: usize, word: u64) {
        self.words[slot] = word;
        self.acked.write_all_at(&word.to_le_bytes(), 8 * slot as u64).expect("our file");
    }
}

/// Writes rounds.
fn write(folder: &Path, acked: &File, stop: &AtomicBool, done: &Done) {
    let mut client = local(folder, PATIENCE);
    let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed) + 1;
    let mut grown = 0;
    let mut random = Random(seed(9));
    let (words, requests, written) = (vec![0; SLOTS], Vec::new(), Vec::new());
    let mut round = Round { acked, words, requests, written, removed: 0..0, version: 0 };
    while !stop.load(Ordering::Relaxed) {
        let number = add(&done.rounds);
        round.requests.clear();
        round.written.clear();
        round.removed = 0..0;
        for _ in 0..OVERWRITTEN {
            // A key stands once in a round, so that its last version is the one acknowledged.
            let slot = usize::try_from(random.draw(KEYS as u64)).expect("few");
            if !round.written.iter().any(|(other, _)| *other == slot) {
                round.set(slot);
            }
        }
        round.version += 1;
        let version = round.version;
        let mut group = vec![b"MSET".to_vec()];
        for slot in GROUP_AT..GROUP_AT + GROUP {
            round.written.push((slot, version));
            group.extend([key(slot), value(slot, version)]);
        }
        round.requests.push(group);
        if grown + ADDED <= GROWN {
            (grown..grown + ADDED).for_each(|it| round.set(GROWN_AT + it));
            grown += ADDED;
        } else {
            add(&done.growths);
            grown = 0;
            round.remove(GROWN_AT..GROWN_AT + GROWN);
            let keys = (0..GROWN).map(|it| key(GROWN_AT + it));
            round.requests.push([b"DEL".to_vec()].into_iter().chain(keys).collect());
        }
        if number.is_multiple_of(CLEAR_EVERY) {
            add(&done.flushes);
            grown = 0;
            round.remove(0..SLOTS);
            round.requests.push(vec![b"FLUSHALL".to_vec()]);
        }
        match client.pipeline(&round.requests) {
            Ok(replies) => {
                let refused = replies.iter().find(|it| it.error().is_some());
                assert!(refused.is_none(), "{refused:?}");
                round.acknowledge();
            }
            // A later version comes over them, whether they happened or not.
            Err(CallError::Unknown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
