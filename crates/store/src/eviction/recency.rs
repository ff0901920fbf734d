//! When keys were last used: a coarse clock for each, in the owner's private memory.
//!
//! ```text
//! hash: | upper 16 bits: tag | ...... low bits: bucket |
//! bucket: 8 entries of 32 bits: tag (its lowest bit is 1: taken) and clock
//! chunk: 1,024 buckets; as many chunks as keys need (linear hashing)
//! ```
//!
//! 1. A new key takes a free entry of its bucket, else the entry that was used longest ago. So a
//!    key without an entry was used before all keys of its full bucket. The table has an entry for
//!    each key and a third more (5.3 bytes a key), so the keys without one are those that are
//!    evicted first anyway.
//! 2. Two keys share an entry only if bucket and tag are equal. (Without tags, a cold key that
//!    shares its entry with a hot one would stay for ever. With each eviction there would be more
//!    of them.)
//! 3. The clock moves with use, so that it is as fine at any speed. It moves 128 times while each
//!    entry is used once on average, and at least once a second. It goes round after 65,536 moves.
//!    A sweep visits each entry more often than that, and cuts its age.
//! 4. Growing and shrinking take a chunk at a time, so that no step is long.
//!
//! Thread: the shard that owns the store.

/// Entries of a bucket: half a cache line.
const BUCKET_ENTRIES: usize = 8;
/// Buckets of a chunk, 32 KiB: some 10 µs to copy.
const CHUNK_BUCKETS: usize = 1024;
/// The same as a shift.
const CHUNK_SHIFT: u32 = CHUNK_BUCKETS.trailing_zeros();
/// Entries of a chunk.
const CHUNK_ENTRIES: u64 = (CHUNK_BUCKETS * BUCKET_ENTRIES) as u64;
/// The table has at least this many entries for each `KEYS_PER` keys.
const ENTRIES_PER: u64 = 4;
/// See [`ENTRIES_PER`].
const KEYS_PER: u64 = 3;
/// It gives chunks back when it has this many times the chunks that it needs.
const SHRINK_FACTOR: u64 = 4;
/// Chunks that a turn adds or takes away, at most: some 100 µs.
const CHUNKS_PER_TURN: u64 = 8;
/// Moves of the clock while each entry is used once on average.
const TICKS_PER_ROUND: u64 = 128;
/// The clock moves at least once in this time, ms. OBJECT IDLETIME is no finer.
const LONGEST_TICK_MS: u64 = 1000;
/// Moves of the clock in which the sweep visits all entries.
const SWEEP_TICKS: usize = 8192;
/// Greatest age that an entry keeps, in moves of the clock.
const MOST_AGE: u16 = 40_000;
/// Moves of the clock for each time that is remembered.
const TICKS_PER_STAMP: u16 = 64;
/// Times that are remembered: they cover all values of the clock.
const STAMPS: usize = 1024;

const TAG: u32 = 0xFFFF_0000;
const TAKEN: u32 = 0x0001_0000;

const _: () = {
    assert!(CHUNK_BUCKETS.is_power_of_two());
    assert!(STAMPS * TICKS_PER_STAMP as usize == 65_536, "all values of a clock");
    assert!(MOST_AGE as usize + 2 * SWEEP_TICKS < 65_536, "an age is cut before it begins anew");
};

type Bucket = [u32; BUCKET_ENTRIES];

/// How long ago, in moves of the clock.
pub(crate) type Age = u32;

/// The age of a key without an entry: above all others.
pub(crate) const UNKNOWN: Age = 65_536;
const _: () = assert!(UNKNOWN > u16::MAX as Age, "an unknown key goes first");

/// The clocks of an arena's keys.
pub(crate) struct Recency {
    chunks: Vec<Box<[Bucket]>>,
    /// Buckets.
    count: usize,
    /// The least power of two that isn't below `count`, minus one.
    mask: usize,
    now: u16,
    /// Uses until the clock moves.
    left: u64,
    /// The bucket at which the sweep goes on.
    swept: usize,
    /// Unix ms when the clock came to each 64th of its values.
    stamps: Box<[u64]>,
    /// Unix ms, as it was last told; 0 before that.
    now_ms: u64,
    ticked_ms: u64,
    began_ms: u64,
}

#[inline]
fn tag(hash: u32) -> u32 {
    (hash & TAG) | TAKEN
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn clock(entry: u32) -> u16 {
    entry as u16
}

impl Recency {
    /// An empty table, which doesn't know the time yet.
    pub(crate) fn new() -> Recency {
        let mut recency = Recency {
            chunks: Vec::new(),
            count: 0,
            mask: 0,
            now: 0,
            left: u64::MAX,
            swept: 0,
            stamps: vec![0; STAMPS].into_boxed_slice(),
            now_ms: 0,
            ticked_ms: 0,
            began_ms: 0,
        };
        recency.chunks.push(empty_chunk());
        recency.resized();
        recency
    }

    fn resized(&mut self) {
        self.count = self.chunks.len() * CHUNK_BUCKETS;
        self.mask = self.count.next_power_of_two() - 1;
        self.left = self.left.min(self.uses_per_tick()).max(1);
    }

    fn uses_per_tick(&self) -> u64 {
        (self.count * BUCKET_ENTRIES) as u64 / TICKS_PER_ROUND
    }

    #[inline]
    fn place(&self, hash: u32) -> (usize, usize) {
        let mut at = hash as usize & self.mask;
        if at >= self.count {
            at &= self.mask >> 1;
        }
        (at >> CHUNK_SHIFT, at & (CHUNK_BUCKETS - 1))
    }

    #[inline]
    fn bucket(&self, hash: u32) -> &Bucket {
        let (chunk, at) = self.place(hash);
        &self.chunks[chunk][at]
    }

    /// Asks for the bucket that [`Recency::touch`] needs. No result depends on the load, so the
    /// core doesn't wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        std::hint::black_box(self.bucket(hash)[0]);
    }

    /// A key is used now.
    #[inline]
    pub(crate) fn touch(&mut self, hash: u32) {
        let (wanted, now) = (tag(hash), self.now);
        let (chunk, at) = self.place(hash);
        let bucket = &mut self.chunks[chunk][at];
        match bucket.iter().position(|entry| entry & TAG == wanted) {
            Some(found) => bucket[found] = wanted | u32::from(now),
            None => *oldest(bucket, now) = wanted | u32::from(now),
        }
        self.left -= 1;
        if self.left == 0 {
            self.tick();
        }
    }

    /// A key is gone.
    pub(crate) fn forget(&mut self, hash: u32) {
        let (chunk, at) = self.place(hash);
        if let Some(entry) = self.chunks[chunk][at].iter_mut().find(|e| **e & TAG == tag(hash)) {
            *entry = 0;
        }
    }

    fn find(&self, hash: u32) -> Option<u16> {
        let found = self.bucket(hash).iter().find(|entry| **entry & TAG == tag(hash));
        found.map(|entry| clock(*entry))
    }

    /// How long ago a key was used.
    #[inline]
    pub(crate) fn age(&self, hash: u32) -> Age {
        self.find(hash).map_or(UNKNOWN, |clock| u32::from(self.now.wrapping_sub(clock)))
    }

    /// How long ago a key was used, ms; the age of this table for a key without an entry.
    pub(crate) fn idle_ms(&self, hash: u32, now_ms: u64) -> u64 {
        let Some(clock) = self.find(hash) else { return now_ms.saturating_sub(self.began_ms) };
        let stamp = clock / TICKS_PER_STAMP;
        let from = self.stamps[usize::from(stamp)];
        let (to, ticks) = if stamp == self.now / TICKS_PER_STAMP {
            (now_ms, self.now % TICKS_PER_STAMP + 1)
        } else {
            (self.stamps[(usize::from(stamp) + 1) % STAMPS], TICKS_PER_STAMP)
        };
        // Between two remembered times the clock is taken to have moved evenly. A use lies between
        // its value and the next.
        let passed = u64::from(clock % TICKS_PER_STAMP + 1);
        let part = to.saturating_sub(from) * passed / u64::from(ticks);
        now_ms.saturating_sub(from + part)
    }

    /// Moves the clock.
    #[cold]
    fn tick(&mut self) {
        self.now = self.now.wrapping_add(1);
        self.left = self.uses_per_tick();
        self.ticked_ms = self.now_ms;
        if self.now.is_multiple_of(TICKS_PER_STAMP) {
            self.stamps[usize::from(self.now / TICKS_PER_STAMP)] = self.now_ms;
        }
        for _ in 0..self.count.div_ceil(SWEEP_TICKS) {
            self.swept = if self.swept + 1 >= self.count { 0 } else { self.swept + 1 };
            let (now, at) = (self.now, self.swept);
            let bucket = &mut self.chunks[at >> CHUNK_SHIFT][at & (CHUNK_BUCKETS - 1)];
            for entry in bucket.iter_mut().filter(|entry| **entry != 0) {
                if now.wrapping_sub(clock(*entry)) > MOST_AGE {
                    *entry = (*entry & TAG) | u32::from(now.wrapping_sub(MOST_AGE));
                }
            }
        }
    }

    /// Once per turn: notes the time, and takes a step of growing or shrinking to the size for so
    /// many keys. Returns whether there is more to do.
    pub(crate) fn maintain(&mut self, now_ms: u64, keys: u64) -> bool {
        if self.began_ms == 0 {
            self.stamps.fill(now_ms);
            (self.ticked_ms, self.began_ms) = (now_ms, now_ms);
        }
        self.now_ms = now_ms;
        if now_ms.saturating_sub(self.ticked_ms) >= LONGEST_TICK_MS {
            self.tick();
        }
        let wanted = (keys * ENTRIES_PER / KEYS_PER).div_ceil(CHUNK_ENTRIES).max(1);
        let chunks = self.chunks.len() as u64;
        if chunks < wanted {
            (0..(wanted - chunks).min(CHUNKS_PER_TURN)).for_each(|_| self.grow());
            return chunks + CHUNKS_PER_TURN < wanted;
        }
        if chunks > wanted * SHRINK_FACTOR {
            (0..(chunks - wanted).min(CHUNKS_PER_TURN)).for_each(|_| self.shrink());
            return true;
        }
        false
    }

    /// Adds a chunk: a copy of the chunk that its keys have used. Of an entry and its copy, one is
    /// in the wrong bucket. It is never used again, and so it is replaced as the oldest.
    fn grow(&mut self) {
        let copy = self.chunks[parent(self.chunks.len())].clone();
        self.chunks.push(copy);
        self.resized();
    }

    /// Takes the last chunk away. The youngest of its entries go back to the chunk it was copied
    /// from.
    fn shrink(&mut self) {
        let Some(gone) = self.chunks.pop() else { return };
        let now = self.now;
        let to = parent(self.chunks.len());
        for (bucket, gone) in self.chunks[to].iter_mut().zip(gone) {
            for entry in gone.into_iter().filter(|entry| *entry != 0) {
                let same = bucket.iter_mut().find(|e| **e & TAG == entry & TAG);
                let place = match same {
                    Some(same) => same,
                    None => oldest(bucket, now),
                };
                if age_of(*place, now) > age_of(entry, now) {
                    *place = entry;
                }
            }
        }
        self.swept = 0;
        self.resized();
    }

    /// Memory of the table, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.count * size_of::<Bucket>() + STAMPS * size_of::<u64>()) as u64
    }
}

/// The chunk from which keys moved on to this one, by linear hashing.
fn parent(chunk: usize) -> usize {
    chunk - (1 << chunk.ilog2())
}

fn empty_chunk() -> Box<[Bucket]> {
    vec![[0; BUCKET_ENTRIES]; CHUNK_BUCKETS].into_boxed_slice()
}

/// How old an entry is; a free one is oldest.
#[inline]
fn age_of(entry: u32, now: u16) -> u32 {
    if entry == 0 { UNKNOWN } else { u32::from(now.wrapping_sub(clock(entry))) }
}

/// The free entry of a bucket, or else the one that was used longest ago.
fn oldest(bucket: &mut Bucket, now: u16) -> &mut u32 {
    let [first, rest @ ..] = bucket;
    rest.iter_mut().fold(first, |oldest, entry| {
        if age_of(*entry, now) > age_of(*oldest, now) { entry } else { oldest }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split_mix::SplitMix;

    fn hashes(seed: u64, count: usize) -> Vec<u32> {
        let mut random = SplitMix(seed);
        #[expect(clippy::cast_possible_truncation, reason = "any 32 bits")]
        (0..count).map(|_| random.next() as u32).collect()
    }

    fn grown(keys: u64) -> Recency {
        let mut recency = Recency::new();
        while recency.maintain(1, keys) {}
        recency
    }

    /// Of keys that were used one after the other, the order is kept, and few are forgotten.
    #[test]
    fn the_order_of_uses_is_kept() {
        let keys = hashes(1, 30_000);
        let mut recency = grown(keys.len() as u64);
        keys.iter().for_each(|key| recency.touch(*key));
        let known = keys.iter().filter(|key| recency.age(**key) != UNKNOWN).count();
        assert!(known > 27_000, "{known} of 30000 are known");
        let (early, late) = (&keys[..10_000], &keys[20_000..]);
        let ages = late.iter().map(|key| recency.age(*key)).filter(|age| *age != UNKNOWN);
        let oldest_late = ages.max().expect("some");
        let older = early.iter().filter(|key| recency.age(**key) > oldest_late).count();
        assert!(older > 9_990, "{older} of 10000 early ones are older than all late ones");
    }

    /// A key that is used all the time never makes another one look young.
    #[test]
    fn a_hot_key_shares_its_age_with_nobody() {
        let (hot, cold) = (hashes(2, 2000), hashes(3, 2000));
        let mut recency = grown(4000);
        cold.iter().for_each(|key| recency.touch(*key));
        for _ in 0..50 {
            hot.iter().for_each(|key| recency.touch(*key));
        }
        let young = cold.iter().filter(|key| recency.age(**key) < 100).count();
        assert!(young <= 1, "{young}");
        assert!(hot.iter().all(|key| recency.age(*key) <= 128));
    }

    /// The clock goes round many times. Keys that were used before the last rounds stay old.
    #[test]
    fn old_ages_stay_old_when_the_clock_goes_round() {
        let (busy, idle) = (hashes(4, 100), hashes(5, 1000));
        let mut recency = Recency::new();
        idle.iter().for_each(|key| recency.touch(*key));
        for round in 0..400_000_u32 {
            recency.touch(busy[round as usize % 100]);
            if round % 16 == 0 {
                recency.tick();
            }
            if round % 50_000 == 49_999 {
                let young = idle.iter().filter(|key| recency.age(**key) < 3000).count();
                assert_eq!(young, 0, "round {round}");
            }
        }
    }

    /// The table follows the number of keys up and down, and its entries survive both.
    #[test]
    fn growing_and_shrinking_keep_what_is_known() {
        let keys = hashes(6, 5000);
        let mut recency = Recency::new();
        keys.iter().for_each(|key| recency.touch(*key));
        while recency.maintain(1, 1_000_000) {}
        assert!(recency.bytes() > 5_000_000 && recency.bytes() < 6_000_000);
        let old = recency.now;
        for _ in 0..100 {
            recency.tick();
        }
        keys[..100].iter().for_each(|key| recency.touch(*key));
        while recency.maintain(1, 1000) {}
        assert!(recency.bytes() < 200_000, "{}", recency.bytes());
        assert!(keys[..100].iter().all(|key| recency.age(*key) <= 1));
        let known = keys[100..].iter().filter(|key| recency.age(**key) < UNKNOWN).count();
        assert!(known > 4700, "{known}");
        assert!(u32::from(recency.now.wrapping_sub(old)) >= 100);
    }

    /// Idle time is known in milliseconds, whether keys are used often or the clock moves by time
    /// alone.
    #[test]
    fn idle_time_is_known_to_about_a_second() {
        let mut recency = Recency::new();
        recency.maintain(1_000_000, 1);
        recency.touch(77 << 16);
        for second in 1..=300 {
            let now_ms = 1_000_000 + second * 1000;
            recency.maintain(now_ms, 1);
            let idle_ms = recency.idle_ms(77 << 16, now_ms);
            assert!(idle_ms.abs_diff(second * 1000) <= 1500, "{idle_ms} after {second} s");
        }
        recency.touch(77 << 16);
        assert!(recency.idle_ms(77 << 16, 1_300_000) <= 1500);
        assert_eq!(recency.idle_ms(1, 1_300_000), 300_000, "unknown: the age of the table");
    }

    /// A key that is deleted leaves its entry to other keys.
    #[test]
    fn a_forgotten_key_is_unknown() {
        let mut recency = Recency::new();
        recency.touch(5);
        assert_eq!(recency.age(5), 0);
        recency.forget(5);
        assert_eq!(recency.age(5), UNKNOWN);
    }
}
