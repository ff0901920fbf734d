//! The candidates of eviction: random samples, and a pool of the best of them that outlives the
//! write.
//!
//! 1. A batch prefetches all its samples before it looks at the first, and then all records that
//!    will go. So a batch waits for memory a few times, not a few times for each key.
//! 2. Each search is bounded. It may find nothing.
//!
//! The sampling and the pool are Redis's (`evictionPoolPopulate`).
//!
//! Thread: the shard that owns the store.

use nigh_shm::{Reader, Record};
use smallvec::SmallVec;

use crate::eviction::policy::Policy;
use crate::eviction::recency::{Recency, UNKNOWN};
use crate::split_mix::SplitMix;
use crate::turn::Turn;
use nigh_shm::layout::is_over;

/// Most keys for which one batch samples: as many cache misses as a core has under way.
pub(crate) const BATCH_KEYS: u32 = 16;
/// Keys in the pool: those of a batch, and three times as many that stay for the next. Redis evicts
/// one key at a time and has 16 (`EVPOOL_SIZE`).
const POOL_KEYS: usize = 64;
/// Random keys that are looked at for each wanted one, if only keys with an expiry count.
const VOLATILE_TRIES: u32 = 8;
/// Most random lines that are looked at for the samples of a key. A line of a table that was just
/// doubled has some three keys.
const LINE_TRIES: u32 = 16;
/// Lines of the index that are looked at in order if chance finds no key with an expiry: some 20
/// µs.
const WALK_LINES: u32 = 16;
/// Rounds of sampling without a result after which a search gives up.
const ROUNDS: u32 = 4;

/// A key that may go. Its hash is enough to find it again. Two keys with one hash have one age, so
/// either may go; whether it still may is checked again.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// The higher, the sooner it goes.
    score: u64,
    hash: u32,
}

/// The state of an owner under a policy that evicts.
pub(crate) struct Eviction {
    policy: Policy,
    samples: u32,
    /// In the order of their scores, the best last.
    pool: Vec<Candidate>,
    random: u64,
    /// The cursor of the walk over the index.
    walked: u64,
    /// Bytes that may be written before it is looked again whether there is room.
    pub(crate) slack: u64,
    /// A write of this turn was refused, and keys went for it: the others wait too.
    pub(crate) has_gone: bool,
    pub(crate) recency: Option<Recency>,
}

impl Eviction {
    pub(crate) fn new(policy: Policy, samples: u32) -> Eviction {
        Eviction {
            policy,
            samples,
            pool: Vec::with_capacity(POOL_KEYS),
            random: 0,
            walked: 0,
            slack: 0,
            has_gone: false,
            recency: policy.is_lru().then(Recency::new),
        }
    }

    pub(crate) fn set(&mut self, policy: Policy, samples: u32) {
        self.samples = samples;
        if policy == self.policy {
            return;
        }
        self.policy = policy;
        self.pool.clear();
        if !policy.is_lru() {
            self.recency = None;
        } else if self.recency.is_none() {
            self.recency = Some(Recency::new());
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// A record's score: the higher, the sooner it goes; `None` if it may not go.
    pub(crate) fn score(&self, record: &Record<'_>, now_ms: u64) -> Option<u64> {
        let expiry_ms = record.expiry_ms();
        if is_over(expiry_ms, now_ms) {
            return Some(u64::MAX);
        }
        if expiry_ms == 0 && self.policy != Policy::AllKeysLru {
            return None;
        }
        Some(match &self.recency {
            Some(recency) => u64::from(recency.age(record.hash())),
            // The sooner its time is over, the higher; the highest if it is over.
            None => u64::MAX - 1 - expiry_ms,
        })
    }

    /// Takes a record into the pool if it may go and is better than the worst there. False if it
    /// may not.
    fn consider(&mut self, record: &Record<'_>, now_ms: u64) -> bool {
        let score = self.score(record, now_ms);
        if let Some(score) = score {
            self.offer(score, record.hash());
        }
        score.is_some()
    }

    /// Takes a candidate into the pool if it is better than the worst there.
    fn offer(&mut self, score: u64, hash: u32) {
        let is_full = self.pool.len() >= POOL_KEYS;
        if is_full && self.pool[0].score >= score {
            return;
        }
        if self.pool.iter().any(|known| known.hash == hash) {
            return;
        }
        if is_full {
            self.pool.remove(0);
        }
        let at = self.pool.partition_point(|known| known.score < score);
        self.pool.insert(at, Candidate { score, hash });
    }

    /// Samples random keys for so many that are to go.
    pub(crate) fn sample(&mut self, keys: u32, reader: &Reader, turn: &Turn<'_>) {
        let mut random = SplitMix(self.random ^ turn.random);
        if self.policy == Policy::AllKeysLru {
            self.sample_lines(keys, reader, &mut random, turn);
        } else {
            (0..keys).for_each(|_| self.sample_volatile(reader, &mut random, turn));
        }
        self.random = random.0 ^ turn.random;
    }

    /// Samples all keys of some lines of the index. Keys of a line share only bits of their hash,
    /// so they are a random sample. The same bits lead to one bucket of clocks, so their ages are
    /// compared without a look at their records.
    fn sample_lines(&mut self, keys: u32, reader: &Reader, random: &mut SplitMix, turn: &Turn<'_>) {
        let wanted = (self.samples * keys) as usize;
        let lines: SmallVec<[u64; BATCH_KEYS as usize]> =
            (0..keys.min(BATCH_KEYS)).map(|_| random.next()).collect();
        lines.iter().for_each(|line| reader.prefetch_any_line(*line));
        let mut hashes: SmallVec<[u32; 256]> = SmallVec::new();
        let recency = self.recency.as_ref();
        let mut visit = |line| {
            reader.visit_line(turn.pin, line, &mut |hash| {
                recency.inspect(|recency| recency.prefetch(hash));
                hashes.push(hash);
            });
            hashes.len() < wanted
        };
        let is_short = lines.into_iter().fold(true, |_, line| visit(line));
        if is_short {
            let _ = (0..keys * LINE_TRIES).try_for_each(|_| visit(random.next()).then_some(()));
        }
        for hash in hashes {
            self.offer_aged(hash);
        }
        if self.pool.is_empty()
            && let Some(record) = reader.random(turn.pin, &mut || random.next())
        {
            self.consider(&record, turn.now_ms);
        }
    }

    /// Takes a key into the pool if it was used longer ago than the worst there.
    fn offer_aged(&mut self, hash: u32) {
        let age = self.recency.as_ref().map_or(UNKNOWN, |recency| recency.age(hash));
        self.offer(u64::from(age), hash);
    }

    /// Samples only the keys of the lines in which a key with this hash would stand.
    pub(crate) fn sample_probe(&mut self, hash: u32, reader: &Reader, turn: &Turn<'_>) {
        self.pool.clear();
        let mut near: SmallVec<[u32; 128]> = SmallVec::new();
        reader.visit_probe(turn.pin, hash, &mut |hash| near.push(hash));
        for hash in near {
            if self.policy == Policy::AllKeysLru {
                self.offer_aged(hash);
            } else if let Some(record) = reader.any_of_hash(turn.pin, hash) {
                self.consider(&record, turn.now_ms);
            }
        }
    }

    /// Prefetches the lines and records of the best of the pool, for their deletion.
    pub(crate) fn prefetch_best(&self, keys: u32, reader: &Reader) {
        let best = self.pool.iter().rev().take(keys as usize);
        Reader::prefetch(best.map(|candidate| (reader, candidate.hash)));
    }

    fn sample_volatile(&mut self, reader: &Reader, random: &mut SplitMix, turn: &Turn<'_>) {
        let mut wanted = self.samples;
        for _ in 0..self.samples * VOLATILE_TRIES {
            let Some(record) = reader.random(turn.pin, &mut || random.next()) else { break };
            wanted -= u32::from(self.consider(&record, turn.now_ms));
            if wanted == 0 {
                break;
            }
        }
        if self.pool.is_empty() {
            self.walk(WALK_LINES, reader, turn);
        }
    }

    /// Samples the keys of the next lines of the index.
    pub(crate) fn walk(&mut self, lines: u32, reader: &Reader, turn: &Turn<'_>) {
        let mut met = Vec::new();
        self.walked = reader.scan(turn.pin, self.walked, lines, &mut |record| met.push(record));
        met.iter().for_each(|record| {
            self.consider(record, turn.now_ms);
        });
    }

    /// The next key to go: the best of the pool that is still there, with a score as high as then.
    pub(crate) fn take_best<'p>(&mut self, reader: &Reader, turn: &Turn<'p>) -> Option<Record<'p>> {
        while let Some(best) = self.pool.pop() {
            let record = reader.any_of_hash(turn.pin, best.hash);
            if let Some(record) = record
                && self.score(&record, turn.now_ms).is_some_and(|score| score >= best.score)
            {
                return Some(record);
            }
        }
        None
    }

    /// The same; samples again if the pool has none left.
    pub(crate) fn choose<'p>(&mut self, reader: &Reader, turn: &Turn<'p>) -> Option<Record<'p>> {
        for _ in 0..ROUNDS {
            if let Some(record) = self.take_best(reader, turn) {
                return Some(record);
            }
            self.sample(1, reader, turn);
        }
        self.take_best(reader, turn)
    }
}

/// What the tests of making room look at.
#[cfg(test)]
impl Eviction {
    /// Keys in the pool.
    pub(crate) fn pooled(&self) -> usize {
        self.pool.len()
    }

    /// The state of the random choices; 0 before the first.
    pub(crate) fn seed(&self) -> u64 {
        self.random
    }
}

#[cfg(test)]
mod tests;
