//! Readers beside a writer that overwrites, deletes, commits and cleans in an arena that is nearly
//! full.
//!
//! Each value tells its key, the number of the write, and a checksum over all of it. Readers on
//! other threads and one that reads as another process would check every value that they see:
//! whole, of the right key, and never older than one seen before. At the end, and after adoption, a
//! full scan equals the model.
//!
//! Those on other threads compare the record's own checksum too, and its run's.

use super::{Arena, StopOnDrop, directory, spec};
use crate::format::head::{Head, RunName};
use crate::format::sum;
use crate::{ForeignReader, Participant, Reader, Record, UpkeepBudget, WriteError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CAPACITY: u64 = 8 << 20;
/// Writes of the story, unless the environment says how many.
const WRITES: u64 = 60_000;
/// Names the number of writes, for a long run.
const WRITES_VARIABLE: &str = "NIGH_SHM_CHURN_WRITES";
/// Reads of each reader at least, behind the last write if it had no time before.
const READS_MIN: u64 = 400;
/// Keys that are always there.
const STEADY: u64 = 35_000;
/// Keys that come and go.
const PASSING: u64 = 1_500;
/// Keys with large values, always there.
const LARGE: u64 = 8;

/// A cheap hash (FNV-1a over words): good enough to find a mix of two values.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xCBF2_9CE4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17)
    })
}

/// Key number, number of the write, filler, checksum.
fn value(key: u64, number: u64, len: usize) -> Vec<u8> {
    let mut value: Vec<u8> = [key, number].iter().flat_map(|n| n.to_le_bytes()).collect();
    value.resize(16 + len, (key.wrapping_mul(31) ^ number) as u8);
    value.extend(checksum(&value).to_le_bytes());
    value
}

/// Checks a value; returns the number of its write.
fn number_of(key: u64, value: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    let end = value.len() - 8;
    assert_eq!(word(0), key, "a value of another key");
    assert_eq!(word(end), checksum(&value[..end]), "a torn value of key {key}");
    word(8)
}

fn name(key: u64) -> [u8; 16] {
    let mut name = *b"k_______________";
    name[8..].copy_from_slice(&key.to_be_bytes());
    name
}

struct Shared {
    stop: AtomicBool,
    reads: AtomicU64,
}

/// The key to look at, by a cheap random number.
fn any_key(random: &mut u64) -> u64 {
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((u128::from(*random) * u128::from(STEADY + PASSING + LARGE)) >> 64) as u64
}

fn is_passing(key: u64) -> bool {
    (STEADY..STEADY + PASSING).contains(&key)
}

/// Compares the sums of a record that is lent out, and of its run, with what their bytes have.
fn check_sums(reader: &Reader, record: &Record<'_>) {
    let (words, offset) = (&reader.words, record.reference().offset());
    let head = Head::load(words, offset);
    assert_eq!(sum::expected(words, offset, &head), head.checksum, "of the record at {offset}");
    if head.has_run() {
        let name = RunName::load(words, offset, &head);
        let at = reader.region().geometry().slot_offset(name.slot);
        let found = sum::of_bytes(words, at, head.value_len.into());
        assert_eq!(found, name.checksum, "of the run at {at}");
    }
}

fn read_in_process(reader: &Reader, mut me: Participant, shared: &Shared, seed: u64) {
    let (mut seen, mut random, mut reads, mut pairs) = (BTreeMap::new(), seed, 0u64, 0u64);
    while reads < READS_MIN || !shared.stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
        let key = any_key(&mut random);
        {
            let (pin, name) = (me.pin(), name(key));
            let found = reader.get(&pin, reader.hash(&name), &name);
            assert!(found.is_some() || is_passing(key), "key {key} is lost");
            if let Some(record) = found {
                check_sums(reader, &record);
                let number = number_of(key, record.value());
                let last = seen.insert(key, number).unwrap_or(0);
                assert!(number >= last, "key {key}: {last} came back as {number}");
            }
            // Two steady keys that are always written together.
            if let Some(moment) = reader.moment(&pin) {
                let [first, second] = [STEADY + PASSING, STEADY + PASSING + 1].map(|key| {
                    let name = self::name(key);
                    let found = reader.get_at(&pin, &moment, reader.hash(&name), &name).ok()?;
                    let record = found.expect("a steady key");
                    check_sums(reader, &record);
                    Some(number_of(key, record.value()))
                });
                if first.is_some() && second.is_some() {
                    assert_eq!(first, second, "of one moment");
                    pairs += 1;
                }
            }
        }
        me.quiescent();
        reads += 1;
    }
    me.offline();
    assert!(pairs > 0, "no pair was compared in {reads} reads");
    shared.reads.fetch_add(reads, Ordering::Relaxed);
}

fn read_from_outside(foreign: &ForeignReader, shared: &Shared) {
    let (mut seen, mut random, mut reads) = (BTreeMap::new(), 99, 0u64);
    let mut out = Vec::new();
    while reads < READS_MIN || !shared.stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
        let key = any_key(&mut random);
        match foreign.get(&name(key), &mut out) {
            Ok(found) => {
                assert!(found.is_some() || is_passing(key), "key {key} is lost outside");
                if found.is_some() {
                    let number = number_of(key, &out);
                    let last = seen.insert(key, number).unwrap_or(0);
                    assert!(number >= last, "key {key}: {last} came back as {number} outside");
                    reads += 1;
                }
            }
            Err(error) => assert!(matches!(error, crate::ArenaError::Busy { .. }), "{error}"),
        }
    }
    shared.reads.fetch_add(reads, Ordering::Relaxed);
}

/// The writer's side: the arena, what it should hold, and the time.
struct Story {
    a: Arena,
    model: BTreeMap<u64, (Vec<u8>, u64)>,
    now_ms: u64,
    random: u64,
}

impl Story {
    fn turn(&mut self) {
        self.a.me.quiescent();
        let budget = UpkeepBudget { now_ms: self.now_ms, ..UpkeepBudget::default() };
        self.a.writer.maintain(budget);
    }

    fn try_put(&mut self, key: u64, value: Vec<u8>, expiry: u64) {
        loop {
            match self.a.put(&name(key), &value, expiry) {
                Ok(()) => break,
                Err(WriteError::Busy) => {
                    self.turn();
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}: key {key}, {:?}", self.a.writer.stats()),
            }
        }
        self.model.insert(key, (value, expiry));
    }

    fn commit_pair(&mut self, number: u64) {
        let keys = [STEADY + PASSING, STEADY + PASSING + 1];
        let len = if number.is_multiple_of(5) { 90_000 } else { 300 };
        let values = keys.map(|key| value(key, number, len));
        loop {
            let mut staged = Vec::new();
            let mut outcome = Ok(());
            for (key, value) in keys.iter().zip(&values) {
                let name = name(*key);
                let hash = self.a.writer.hash(&name);
                outcome = self.a.writer.stage(hash, &name, &[value], 0).map(|one| staged.push(one));
                if outcome.is_err() {
                    break;
                }
            }
            let writer = &mut self.a.writer;
            match outcome.and_then(|()| writer.commit(&self.a.me.pin(), false, &staged)) {
                Ok(()) => break,
                Err(error) => {
                    assert!(error == WriteError::Busy, "{error}: {:?}", writer.stats());
                    writer.abandon(&staged);
                    self.turn();
                    std::thread::yield_now();
                }
            }
        }
        for (key, value) in keys.into_iter().zip(values) {
            self.model.insert(key, (value, 0));
        }
    }

    fn write(&mut self, number: u64) {
        let key = any_key(&mut self.random);
        match number % 64 {
            0 => self.commit_pair(number),
            1 => {
                let key = STEADY + PASSING + 2 + number / 64 % (LARGE - 2);
                self.try_put(key, value(key, number, 70_000 + key as usize), 0);
            }
            _ if is_passing(key) && number.is_multiple_of(3) => {
                let there = self.a.delete(&name(key));
                let was = self.model.remove(&key);
                let over = was.as_ref().is_some_and(|w| w.1 != 0 && w.1 < self.now_ms);
                assert!(there == was.is_some() || over && !there, "key {key}");
            }
            _ if is_passing(key) => {
                self.try_put(key, value(key, number, 50), self.now_ms + 400);
            }
            _ if key < STEADY => self.try_put(key, value(key, number, 40 + key as usize % 90), 0),
            _ => {}
        }
    }

    /// All that should be there is, and nothing else.
    fn check(&self) {
        let mut found = BTreeMap::new();
        self.a.reader.scan(&self.a.me.pin(), 0, u32::MAX, &mut |record| {
            let key = u64::from_be_bytes(record.key()[8..].try_into().expect("8 bytes"));
            found.insert(key, record.value().to_vec());
        });
        for (key, (value, expiry)) in &self.model {
            let over = *expiry != 0 && *expiry < self.now_ms;
            match found.remove(key) {
                Some(found) => assert!(found == *value, "key {key}"),
                None => assert!(over, "key {key} is lost"),
            }
        }
        assert!(found.is_empty(), "{} keys came back", found.len());
    }
}

#[test]
fn readers_see_whole_values_in_order_while_a_nearly_full_arena_is_cleaned() {
    // 85 to 90 % of the arena lives; see the head of this file.
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), CAPACITY));
    let mut story = Story { a, model: BTreeMap::new(), now_ms: 1, random: 7 };
    for key in 0..STEADY {
        story.try_put(key, value(key, 0, 40 + key as usize % 90), 0);
        if key.is_multiple_of(32) {
            story.turn();
        }
    }
    for key in STEADY + PASSING..STEADY + PASSING + LARGE {
        story.try_put(key, value(key, 0, 90_000), 0);
    }
    let stats = story.a.writer.stats();
    let lives = (stats.used_bytes + stats.index_lines * 64) * 100 / CAPACITY;
    assert!((80..92).contains(&lives), "{lives} % live: {stats:?}");
    let shared = Shared { stop: AtomicBool::new(false), reads: AtomicU64::new(0) };
    let foreign = ForeignReader::open(&story.a.spec.path).expect("an arena");
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&shared.stop);
        for seed in [3, 4] {
            let (reader, me, shared) = (story.a.reader.clone(), story.a.domain.join(), &shared);
            scope.spawn(move || read_in_process(&reader, me, shared, seed));
        }
        scope.spawn(|| read_from_outside(&foreign, &shared));
        let writes =
            std::env::var(WRITES_VARIABLE).map_or(WRITES, |n| n.parse().expect("a number"));
        for number in 1..=writes {
            story.write(number);
            if number.is_multiple_of(16) || story.a.writer.wants_turn() {
                story.now_ms += 1;
                story.turn();
            }
        }
    });
    let stats = story.a.writer.stats();
    assert!(stats.cleaner.segments > 100 && stats.cleaner.expired_keys > 0, "{stats:?}");
    assert!(shared.reads.load(Ordering::Relaxed) >= 3 * READS_MIN);
    assert!(stats.backed_bytes <= CAPACITY);
    story.check();
    let Story { a, model, now_ms, random } = story;
    let (a, _) = a.again();
    Story { a, model, now_ms, random }.check();
}
