//! Making room: which keys go when memory is full, and how full it gets.
//!
//! ```text
//! write ── more than HIGH_WATER_PERCENT alive? ── sample some keys ──> pool of the 16 best ──> delete the best
//!     └── refused all the same: more at once, and again
//! ```
//!
//! 1. Nothing is evicted inside a transaction, so it sees one keyspace; its begin makes room for it.
//! 2. Each write evicts so many keys at most; then it is tried as it is. If it finds no room, more go, and it is
//!    tried again in the next turn; it is refused when nothing is left that may go.
//! 3. An evicted key is deleted like any other: watchers are told, its memory is the cleaner's.
//! 4. What is counted is what lives. Overwritten records are no reason to evict: the cleaner wins them back.
//!
//! The sampling, and the pool that outlives a write, are those of Redis (`evictionPoolPopulate`).
//!
//! Thread: the shard that owns the store; a view only knows whether hits are wanted.

use nigh_shm::{Reader, Record, WriteError};

use crate::half::WriterHalf;
use crate::hits::{HitLog, Inbox};
use crate::random::Random;
use crate::recency::{Recency, UNKNOWN};
use crate::store::{Counters, Store, Turn, is_over};
use crate::watch::Watches;

/// Share of the room for records that may be alive, per cent. The rest is the cleaner's play: at 90 % it copies 2.3
/// bytes for each that is appended (new keys of 100 bytes, 64 MiB). By design 6 that grows with 1 / (1 - share), while
/// 5 % more keys are hardly one hit more in a hundred.
const HIGH_WATER_PERCENT: u64 = 90;
/// Share of the index's entries that may be taken when it doesn't move to a larger table, per cent. It would
/// have from 80 % on, if there had been room for one; from 95 % on keys find no place.
const INDEX_HIGH_WATER_PERCENT: u64 = 88;
/// Keys that a write evicts before it, at most: some 100 µs.
const EVICTIONS_PER_WRITE: u32 = 32;
/// Keys that a write evicts when it was refused, at most: some 500 µs.
const EVICTIONS_WHEN_FULL: u32 = 256;
/// Keys that a turn's upkeep evicts, at most: some 100 µs. It catches up with writes of large values.
const EVICTIONS_PER_TURN: u32 = 64;
/// Bytes of a record beside key and value, about.
const RECORD_OVERHEAD_BYTES: u64 = 64;
/// Keys in the pool, as in Redis (`EVPOOL_SIZE`).
const POOL_KEYS: usize = 16;
/// Random keys that are looked at for each that is wanted, if only those with an expiry count.
const VOLATILE_TRIES: u32 = 8;
/// Random lines that are looked at for the samples of a key, at most: a line of a table that was just doubled has
/// some three keys.
const LINE_TRIES: u32 = 16;
/// Lines of the index that are looked at in turn if chance finds no key with an expiry: some 20 µs.
const WALK_LINES: u32 = 16;
/// Rounds of sampling without a result after which there is no candidate.
const ROUNDS: u32 = 4;

/// What happens when memory is full. Names and meanings are Redis's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Writes are refused.
    #[default]
    NoEviction,
    /// The key that was used longest ago goes.
    AllKeysLru,
    /// Of the keys with an expiry, the one that was used longest ago goes.
    VolatileLru,
    /// Of the keys with an expiry, the one whose time is over soonest goes.
    VolatileTtl,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] =
        [Policy::NoEviction, Policy::AllKeysLru, Policy::VolatileLru, Policy::VolatileTtl];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::NoEviction => "noeviction",
            Policy::AllKeysLru => "allkeys-lru",
            Policy::VolatileLru => "volatile-lru",
            Policy::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether it asks when keys were used.
    #[must_use]
    pub const fn is_lru(self) -> bool {
        matches!(self, Policy::AllKeysLru | Policy::VolatileLru)
    }
}

/// A key that may go. Its hash is enough to find it again: which of two keys with one hash goes makes no
/// difference, as both are of one age, and that it may go is looked at again.
#[derive(Clone, Copy)]
struct Candidate {
    /// The higher, the sooner it goes.
    score: u64,
    hash: u32,
}

/// What an owner with a policy knows.
pub(crate) struct Eviction {
    policy: Policy,
    samples: u32,
    /// In the order of their scores, the best last.
    pool: Vec<Candidate>,
    random: u64,
    /// Where the walk over the index goes on.
    walk: u64,
    /// Bytes that may be written before it is looked again whether there is room.
    slack: u64,
    pub(crate) recency: Option<Recency>,
    inbox: Inbox,
}

impl Eviction {
    fn new(policy: Policy, samples: u32, inbox: Inbox) -> Eviction {
        Eviction {
            policy,
            samples,
            pool: Vec::with_capacity(POOL_KEYS + 1),
            random: 0,
            walk: 0,
            slack: 0,
            recency: policy.is_lru().then(Recency::new),
            inbox,
        }
    }

    fn set(&mut self, policy: Policy, samples: u32) {
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

    /// How much a record deserves to go; `None` if it may not.
    fn score(&self, record: &Record<'_>, now_ms: u64) -> Option<u64> {
        let expiry_ms = record.expiry_ms();
        if is_over(expiry_ms, now_ms) {
            return Some(u64::MAX);
        }
        if expiry_ms == 0 && self.policy != Policy::AllKeysLru {
            return None;
        }
        Some(match &self.recency {
            Some(recency) => u64::from(recency.age(record.hash())),
            // Sooner is better, and nothing is better than what is over.
            None => u64::MAX - 1 - expiry_ms,
        })
    }

    /// Takes a record into the pool if it may go and is better than the worst there. False if it may not.
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

    /// Looks at some keys at random.
    fn sample(&mut self, reader: &Reader, turn: &Turn<'_>) {
        let mut random = Random(self.random ^ turn.random);
        if self.policy == Policy::AllKeysLru {
            self.sample_lines(reader, &mut random, turn);
        } else {
            self.sample_volatile(reader, &mut random, turn);
        }
        self.random = random.0 ^ turn.random;
    }

    /// All keys of some lines of the index. Keys of a line have nothing in common but bits of their hash, which also
    /// lead to the same bucket of clocks: so they are compared without a look at their records.
    fn sample_lines(&mut self, reader: &Reader, random: &mut Random, turn: &Turn<'_>) {
        let mut wanted = self.samples;
        for _ in 0..LINE_TRIES {
            reader.visit_line(turn.pin, random.next(), &mut |hash| {
                wanted = wanted.saturating_sub(1);
                let age = self.recency.as_ref().map_or(UNKNOWN, |recency| recency.age(hash));
                self.offer(u64::from(age), hash);
            });
            if wanted == 0 {
                return;
            }
        }
        if self.pool.is_empty()
            && let Some(record) = reader.random(turn.pin, &mut || random.next())
        {
            self.consider(&record, turn.now_ms);
        }
    }

    fn sample_volatile(&mut self, reader: &Reader, random: &mut Random, turn: &Turn<'_>) {
        let mut wanted = self.samples;
        for _ in 0..self.samples * VOLATILE_TRIES {
            let Some(record) = reader.random(turn.pin, &mut || random.next()) else { break };
            wanted -= u32::from(self.consider(&record, turn.now_ms));
            if wanted == 0 {
                break;
            }
        }
        if self.pool.is_empty() {
            let mut met = Vec::new();
            self.walk =
                reader.scan(turn.pin, self.walk, WALK_LINES, &mut |record| met.push(record));
            met.iter().for_each(|record| {
                self.consider(record, turn.now_ms);
            });
        }
    }

    /// The next key to go: the best of the pool that is still there, and as good as it was.
    fn choose<'p>(&mut self, reader: &Reader, turn: &Turn<'p>) -> Option<Record<'p>> {
        for _ in 0..ROUNDS {
            self.sample(reader, turn);
            while let Some(best) = self.pool.pop() {
                let record = reader.any_of_hash(turn.pin, best.hash);
                if let Some(record) = record
                    && self.score(&record, turn.now_ms).is_some_and(|score| score >= best.score)
                {
                    return Some(record);
                }
            }
        }
        None
    }
}

impl Store {
    /// Sets what happens when memory is full, and how many keys are looked at for each that goes. On a view:
    /// whether hits are told to the owner.
    pub fn set_eviction(&mut self, policy: Policy, samples: u32) {
        self.tracks = policy.is_lru();
        self.tracks_reads = self.tracks;
        if !self.is_owner() {
            if self.tracks && self.hit_log.is_none() {
                self.hit_log = Some(Box::new(HitLog::new(&self.new_rings)));
            }
            return;
        }
        let samples = samples.max(1);
        match &mut self.eviction {
            _ if policy == Policy::NoEviction => self.eviction = None,
            Some(eviction) => eviction.set(policy, samples),
            None => {
                let inbox = Inbox::new(std::sync::Arc::clone(&self.new_rings));
                self.eviction = Some(Box::new(Eviction::new(policy, samples, inbox)));
            }
        }
    }

    /// What happens when memory is full.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.eviction.as_ref().map_or(Policy::NoEviction, |eviction| eviction.policy)
    }

    /// Whether keys may go.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.eviction.is_some()
    }

    /// A key is used: for whoever reads it past the store, such as a function that names it.
    #[inline]
    pub fn touch(&mut self, hash: u32) {
        if self.tracks {
            self.touch_tracked(hash);
        }
    }

    /// A key is read.
    #[inline]
    pub(crate) fn touch_read(&mut self, hash: u32) {
        if self.tracks_reads {
            self.touch_tracked(hash);
        }
    }

    /// From now on reads leave keys as old as they are, or make them young again. Writes, and TOUCH, always do.
    pub fn keep_ages(&mut self, keep: bool) {
        self.tracks_reads = self.tracks && !keep;
    }

    #[inline]
    fn touch_tracked(&mut self, hash: u32) {
        if let Some(eviction) = &mut self.eviction {
            if let Some(recency) = &mut eviction.recency {
                recency.touch(hash);
            }
        } else if let Some(log) = &mut self.hit_log {
            log.note(hash);
        }
    }

    /// Asks for what [`Store::touch`] needs.
    #[inline]
    pub(crate) fn prefetch_recency(&self, hash: u32) {
        if let Some(Eviction { recency: Some(recency), .. }) = self.eviction.as_deref() {
            recency.prefetch(hash);
        }
    }

    /// How long ago a key was used, ms, if that is known here.
    pub(crate) fn idle_ms(&self, hash: u32, turn: &Turn<'_>) -> Option<u64> {
        let recency = self.eviction.as_ref()?.recency.as_ref()?;
        Some(recency.idle_ms(hash, turn.now_ms))
    }

    /// Memory of the clocks of keys, bytes.
    pub(crate) fn recency_bytes(&self) -> u64 {
        let recency = self.eviction.as_ref().and_then(|eviction| eviction.recency.as_ref());
        recency.map_or(0, Recency::bytes)
    }

    /// Whether so many bytes more would be too many.
    #[inline]
    fn is_short(&self, bytes: u64) -> bool {
        let fill = self.data.fill();
        let room = fill.room_bytes.saturating_sub(bytes);
        let index_is_full =
            fill.entries != u64::MAX && fill.keys * 100 >= fill.entries * INDEX_HIGH_WATER_PERCENT;
        (fill.record_bytes * 100 >= room * HIGH_WATER_PERCENT || index_is_full) && fill.keys > 0
    }

    /// Before a write of about so many bytes: evicts what is too much.
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize, turn: &Turn<'_>) {
        let Some(eviction) = &mut self.eviction else { return };
        let takes = bytes as u64 + RECORD_OVERHEAD_BYTES;
        match eviction.slack.checked_sub(takes) {
            Some(left) => eviction.slack = left,
            None => self.look_for_room(bytes as u64, turn),
        }
    }

    fn look_for_room(&mut self, bytes: u64, turn: &Turn<'_>) {
        if self.transaction.is_none() && self.is_short(bytes) {
            self.evict(bytes, 0, EVICTIONS_PER_WRITE, turn);
        }
        self.note_slack();
    }

    /// Notes how much may be written unseen: half of what is free, since the index may take of it too.
    fn note_slack(&mut self) {
        let is_short = self.is_short(0);
        let fill = self.data.fill();
        let mark = fill.room_bytes / 100 * HIGH_WATER_PERCENT;
        if let Some(eviction) = &mut self.eviction {
            let free = mark.saturating_sub(fill.record_bytes);
            eviction.slack = if is_short { 0 } else { free / 2 };
        }
    }

    /// Before a transaction, or whatever else writes: makes room if a policy says so.
    pub fn prepare_writes(&mut self, turn: &Turn<'_>) {
        self.make_room(0, turn);
    }

    /// A write of about so many bytes, `attempt`, with room made before it, and again if it was refused. If that
    /// wasn't enough, but something went, its memory comes back: the write is to be tried again in the next turn.
    pub(crate) fn with_room<E: Refused>(
        &mut self,
        bytes: usize,
        turn: &Turn<'_>,
        mut attempt: impl FnMut(&mut Store) -> Result<(), E>,
    ) -> Result<(), E> {
        self.make_room(bytes, turn);
        match attempt(self) {
            Err(error) if error.is_oom() && self.make_room_after(bytes, turn) => {
                attempt(self).map_err(Refused::try_again)
            }
            outcome => outcome,
        }
    }

    /// After a write was refused: true if something went.
    #[cold]
    fn make_room_after(&mut self, bytes: usize, turn: &Turn<'_>) -> bool {
        if self.eviction.is_none() || self.transaction.is_some() {
            return false;
        }
        // Below the mark, memory is there, but in pieces: as much as is wanted goes, and more the next time.
        let least = self.data.fill().segment_bytes.max(bytes as u64);
        self.evict(bytes as u64, least, EVICTIONS_WHEN_FULL, turn) > 0
    }

    /// Evicts keys until there is room for `bytes` below the mark and `least` bytes are gone, but `most` keys at
    /// most.
    #[cold]
    fn evict(&mut self, bytes: u64, least: u64, most: u32, turn: &Turn<'_>) -> u32 {
        let Some(mut eviction) = self.eviction.take() else { return 0 };
        let (mut evicted, mut gone) = (0, 0);
        while evicted < most && (gone < least || self.is_short(bytes)) {
            if eviction.policy != Policy::AllKeysLru && self.data.expires() == 0 {
                break;
            }
            let Some(record) = eviction.choose(&self.reader, turn) else { break };
            let (data, watches, counters) = (&mut self.data, &mut self.watches, &mut self.counters);
            remove(&record, data, watches, counters, turn);
            if let Some(recency) = &mut eviction.recency {
                recency.forget(record.hash());
            }
            evicted += 1;
            gone += self.reader.footprint(&record).0;
        }
        self.eviction = Some(eviction);
        evicted
    }

    /// Once per turn: clocks, hits of views, and what writes have left to evict.
    pub(crate) fn maintain_recency(&mut self, turn: &Turn<'_>) -> bool {
        if let Some(log) = &mut self.hit_log {
            log.flush();
        }
        let Some(eviction) = &mut self.eviction else { return false };
        eviction.inbox.drain(eviction.recency.as_mut());
        let keys = self.data.keys();
        let more = eviction.recency.as_mut().is_some_and(|r| r.maintain(turn.now_ms, keys));
        if self.is_short(0) {
            self.evict(0, 0, EVICTIONS_PER_TURN, turn);
        }
        self.note_slack();
        more
    }
}

/// The error of a write.
pub(crate) trait Refused {
    /// Whether memory is full.
    fn is_oom(&self) -> bool;
    /// What to say instead of that when something was evicted for it.
    fn try_again(self) -> Self;
}

impl Refused for WriteError {
    fn is_oom(&self) -> bool {
        *self == WriteError::Oom
    }

    fn try_again(self) -> WriteError {
        if self.is_oom() { WriteError::Busy } else { self }
    }
}

/// Deletes a key that was chosen. One whose time is over counts as expired.
fn remove(
    record: &Record<'_>,
    data: &mut WriterHalf,
    watches: &mut Watches,
    counters: &mut Counters,
    turn: &Turn<'_>,
) {
    data.delete(turn.pin, record.hash(), record.key());
    if is_over(record.expiry_ms(), turn.now_ms) {
        counters.expired += 1;
    } else {
        counters.evicted += 1;
    }
    watches.touch(record.key());
}

const _: () = assert!(UNKNOWN as u64 > u16::MAX as u64, "what is unknown goes first");
