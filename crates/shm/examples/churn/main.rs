//! Overwriting at random in a nearly full arena, beside one that is never cleaned: what cleaning
//! costs.
//!
//! `cargo run --release -p nigh-shm --example churn -- [keys] [per cent of use] [overwrites] [value
//! bytes] [records]`
//!
//! `cargo run --release -p nigh-shm --example churn -- --seconds N --svg FILE [keys] [per cent of
//! use]`
//!
//! The second form goes on for so long, prints a table and draws it. The arena that is never
//! cleaned is made anew, untimed, before it would have to be.
//!
//! Use is what lives, records and index, in per cent of the capacity; with the word `records`,
//! records alone. Both arenas take the same overwrites in turns of a second's fraction, so that a
//! noisy machine slows both. Time is CPU time of the thread that writes. One run prints: the ratio
//! of the two rates, write amplification, the longest step, and the most blocks that the file
//! system ever counted.

#![expect(clippy::print_stdout, reason = "it is a program")]

mod chart;
mod long;

use nigh_shm::{ArenaSpec, ArenaStats, Domain, Participant, UpkeepBudget, WriteError, Writer};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Writes between two announcements, as of a shard under load.
const TURN_WRITES: u64 = 64;
/// Overwrites that one arena takes before it is the other's turn.
const ROUND_WRITES: u64 = 50_000;
/// Of the rounds, one in so many has each write timed by itself; it doesn't count for the rate.
const TIMED_ROUNDS: u64 = 8;
/// A write or turn of so much CPU time is remembered by its number, nanoseconds.
const SLOW_NS: u64 = 100_000;
/// Seed of the hash: two arenas that take the same writes do the same steps.
const SEED: u32 = 0x6e69_6768;
/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Bytes of a record beside key and value.
const HEADER_BYTES: u64 = 32;

/// CPU time of this thread, nanoseconds.
fn thread_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

struct Arena {
    writer: Writer,
    me: Participant,
    path: std::path::PathBuf,
    spent_ns: u64,
    /// Writes whose time is in `spent_ns`.
    counted: u64,
    rounds: u64,
    /// Writes and turns so far.
    steps: u64,
    /// Those of [`SLOW_NS`] and more since somebody looked, and their CPU time.
    slow: BTreeMap<u64, u64>,
    most_blocks_bytes: u64,
    busy: u64,
    random: u64,
}

fn key(i: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut n = i;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
    }
    key
}

impl Arena {
    fn new(dir: &Path, name: &str, capacity_bytes: u64) -> Arena {
        let path = dir.join(name);
        let spec = ArenaSpec {
            path: path.clone(),
            tenant: "churn".into(),
            partition: 0,
            partitions: 1,
            seed: Some(SEED),
            capacity_bytes,
        };
        let domain = Domain::new(1);
        let mut writer = Writer::create(&spec, &domain).expect("an arena");
        writer.measure_steps(thread_ns);
        let me = domain.join();
        Arena {
            writer,
            me,
            path,
            spent_ns: 0,
            counted: 0,
            rounds: 0,
            steps: 0,
            slow: BTreeMap::new(),
            most_blocks_bytes: 0,
            busy: 0,
            random: 88_172_645_463_325_252,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u64::try_from((u128::from(self.random) * u128::from(below)) >> 64).unwrap_or(0)
    }

    fn turn(&mut self) {
        self.me.quiescent();
        self.writer.maintain(UpkeepBudget::default());
    }

    fn put(&mut self, i: u64, value: &[u8]) {
        let key = key(i);
        let hash = self.writer.hash(&key);
        loop {
            match self.writer.put(&self.me.pin(), hash, &key, &[value], 0) {
                Ok(()) => break,
                Err(WriteError::Busy) => {
                    self.busy += 1;
                    self.turn();
                }
                Err(error) => panic!("{error}: {:?}", self.writer.stats()),
            }
        }
        if self.writer.wants_turn() {
            self.turn();
        }
    }

    fn fill(&mut self, keys: u64, value: &[u8]) {
        for i in 0..keys {
            self.watched(|arena| arena.put(i, value));
            if i.is_multiple_of(TURN_WRITES) {
                self.watched(Arena::turn);
            }
        }
        // So that the index has stopped growing.
        for _ in 0..keys / 8 {
            self.watched(Arena::turn);
        }
    }

    /// Overwrites; turns are timed, and in some rounds each write is.
    fn overwrite(&mut self, writes: u64, keys: u64, value: &[u8]) {
        let timed = self.rounds.is_multiple_of(TIMED_ROUNDS);
        self.rounds += 1;
        let began = thread_ns();
        for n in 0..writes {
            let i = self.next(keys);
            if timed {
                self.watched(|arena| arena.put(i, value));
            } else {
                self.put(i, value);
            }
            if n % TURN_WRITES == 0 {
                self.watched(Arena::turn);
            }
        }
        if !timed {
            self.spent_ns += thread_ns() - began;
            self.counted += writes;
        }
        let blocks = std::fs::metadata(&self.path).map_or(0, |m| m.blocks() * 512);
        self.most_blocks_bytes = self.most_blocks_bytes.max(blocks);
    }

    fn watched(&mut self, step: impl FnOnce(&mut Arena)) {
        let before = thread_ns();
        step(self);
        let taken = thread_ns() - before;
        self.steps += 1;
        if taken >= SLOW_NS {
            self.slow.insert(self.steps, taken);
        }
    }

    /// The longest write or turn since the last look, at least [`SLOW_NS`].
    fn longest_ns(&mut self) -> u64 {
        std::mem::take(&mut self.slow).into_values().max().unwrap_or(SLOW_NS)
    }
}

/// The longest that a loop which does nothing appears to take between two looks at the clock: what
/// the machine adds to any step.
fn noise_ns(for_ns: u64) -> u64 {
    let began = thread_ns();
    let (mut last, mut longest) = (began, 0);
    while last - began < for_ns {
        let now = thread_ns();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, (bytes >> 10 & 1023) * 10 / 1024)
}

fn report(name: &str, a: &mut Arena, before: &ArenaStats) {
    let now = a.writer.stats();
    let appended = now.appended_bytes - before.appended_bytes;
    let moved = now.cleaner.relocated_bytes - before.cleaner.relocated_bytes;
    println!(
        "{name}: {} ns per write; write amplification {}.{:02}; segments cleaned {}; blocks at most {} of {}; \
         longest step {} us ({} walked), longest write or turn {} us; told to wait {}",
        a.spent_ns / a.counted.max(1),
        (appended + moved) / appended,
        (appended + moved) * 100 / appended % 100,
        now.cleaner.segments,
        mib(a.most_blocks_bytes),
        mib(now.capacity_bytes),
        now.cleaner.longest_step_ns / 1000,
        mib(now.cleaner.longest_step_bytes),
        a.longest_ns() / 1000,
        a.busy,
    );
}

fn main() {
    let number = |at: usize, or: u64| {
        std::env::args().nth(at).map_or(or, |a| a.parse().expect("a number as argument"))
    };
    if std::env::args().nth(1).is_some_and(|word| word == "--seconds") {
        let svg = std::env::args().nth(4).expect("--seconds N --svg FILE");
        return long::run(number(2, 600), Path::new(&svg), number(5, 1_000_000), number(6, 85));
    }
    let (keys, percent) = (number(1, 200_000), number(2, 85));
    let (writes, value_bytes) = (number(3, 2_000_000), number(4, 100));
    let value = vec![7; usize::try_from(value_bytes).expect("a length")];
    let record = (HEADER_BYTES + KEY_BYTES as u64 + value_bytes).next_multiple_of(16);
    let records_alone = std::env::args().nth(5).is_some_and(|word| word == "records");
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs directory");
    let mut roomy =
        Arena::new(dir.path(), "roomy", (writes + 4 * keys) * (record + 16) + (64 << 20));
    roomy.writer.leave_sparse();
    roomy.fill(keys, &value);
    let before = roomy.writer.stats();
    let index = before.index_lines * 64;
    let counted = if records_alone { 0 } else { index };
    let capacity = (keys * record + counted) * 100 / percent;
    let mut full = Arena::new(dir.path(), "full", capacity);
    full.fill(keys, &value);
    let before = [full.writer.stats(), before];
    println!(
        "{keys} keys of {KEY_BYTES} + {value_bytes} bytes: live records {} are {} %, with the index {} % of {}",
        mib(before[0].used_bytes),
        before[0].used_bytes * 100 / capacity,
        (before[0].used_bytes + index) * 100 / capacity,
        mib(capacity),
    );
    let rounds = writes.div_ceil(ROUND_WRITES);
    for _ in 0..rounds {
        full.overwrite(ROUND_WRITES, keys, &value);
        roomy.overwrite(ROUND_WRITES, keys, &value);
    }
    report("full ", &mut full, &before[0]);
    report("roomy", &mut roomy, &before[1]);
    let ratio = roomy.spent_ns * 100 / full.spent_ns.max(1);
    println!(
        "longest look at the clock alone, in as much time: {} us",
        noise_ns(full.spent_ns) / 1000
    );
    println!("throughput ratio {}.{:02}", ratio / 100, ratio % 100);
    assert!(full.most_blocks_bytes <= capacity, "more blocks than the capacity");
}
