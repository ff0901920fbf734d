//! The keys that are asked for most: a sample of all commands in a table of bounded size.
//!
//! ```text
//! window of commands ── every 128th or so, at random distances ──> its key ──> 64 counters (Space-Saving)
//! ```
//!
//! A key that isn't counted takes the counter of the rarest one and goes on from its number, so a
//! key with more than a 64th of the samples is always there, and no count is too low; `error` says
//! by how much it may be too high (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent
//! and Top-k Elements in Data Streams, 2005). Counts are halved every ten seconds, so that what was
//! hot gives way.
//!
//! 1. A command is sampled by its connection's shard, wherever it runs.
//! 2. A key's first 64 bytes are kept; keys that differ only after them share a counter if their
//!    hashes collide.
//!
//! Belongs to the shard's thread; copies of it to any.

use crate::tenant::TenantId;
use std::fmt::Write;

/// Counters. All are looked through for each sample: some 50 ns for a 128th of the commands.
const COUNTERS: usize = 64;
/// Bytes that are kept of a key.
const KEY_BYTES: usize = 64;
/// Commands for each sample, on average.
pub(crate) const ONE_IN: u32 = 128;

/// Chooses commands at random distances: at equal ones it would see one command of a periodic load
/// alone.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    left: usize,
    random: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { left: ONE_IN as usize, random: 0x9E37_79B9 }
    }
}

impl Sampler {
    /// Which of so many commands that run now is sampled, if one is.
    #[inline]
    pub(crate) fn pick(&mut self, commands: usize) -> Option<usize> {
        if self.left >= commands {
            self.left -= commands;
            return None;
        }
        let picked = self.left;
        // xorshift32 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.left = (self.random % (2 * ONE_IN)) as usize;
        Some(picked)
    }
}

/// A key and how often it was sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HotKey {
    tenant: TenantId,
    hash: u32,
    /// Bytes of the whole key.
    pub(crate) bytes: usize,
    start: [u8; KEY_BYTES],
    pub(crate) samples: u64,
    /// By how much `samples` may be too high.
    pub(crate) error: u64,
}

impl HotKey {
    /// What is kept of the key.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start[..self.bytes.min(KEY_BYTES)]
    }

    fn is(&self, other: &Self) -> bool {
        (self.tenant, self.hash, self.bytes) == (other.tenant, other.hash, other.bytes)
            && self.start() == other.start()
    }

    /// The key in quotes, with escapes for all that isn't printable ASCII.
    pub(crate) fn quoted(&self) -> String {
        let mut text = String::from("\"");
        for &byte in self.start() {
            match byte {
                b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
                b' '..=b'~' => text.push(char::from(byte)),
                other => {
                    let _ = write!(text, "\\x{other:02x}");
                }
            }
        }
        text.push('"');
        text
    }
}

/// The keys that were sampled most.
#[derive(Debug, Clone, Default)]
pub(crate) struct HotKeys {
    keys: Vec<HotKey>,
    /// All samples, halved like the counts.
    pub(crate) samples: u64,
}

impl HotKeys {
    /// Counts a sampled key.
    pub(crate) fn sample(&mut self, tenant: TenantId, key: &[u8], hash: u32) {
        let kept = key.len().min(KEY_BYTES);
        let mut new =
            HotKey { tenant, hash, bytes: key.len(), start: [0; KEY_BYTES], samples: 1, error: 0 };
        new.start[..kept].copy_from_slice(&key[..kept]);
        self.samples += 1;
        self.count(new);
    }

    /// Adds to the counter of the key, if it has one.
    fn is_added(&mut self, key: &HotKey) -> bool {
        let Some(known) = self.keys.iter_mut().find(|known| known.is(key)) else { return false };
        known.samples += key.samples;
        known.error += key.error;
        true
    }

    fn count(&mut self, mut new: HotKey) {
        if self.is_added(&new) {
            return;
        }
        if self.keys.len() < COUNTERS {
            return self.keys.push(new);
        }
        if let Some(rarest) = self.keys.iter_mut().min_by_key(|known| known.samples) {
            new.error += rarest.samples;
            new.samples += rarest.samples;
            *rarest = new;
        }
    }

    /// Adds another shard's. What neither has counted among its most may be missing.
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        for key in &other.keys {
            if !self.is_added(key) {
                self.keys.push(*key);
            }
        }
        self.keys = self.hottest().into_iter().take(COUNTERS).copied().collect();
    }

    /// Halves the counts.
    pub(crate) fn age(&mut self) {
        self.samples /= 2;
        for key in &mut self.keys {
            key.samples /= 2;
            key.error /= 2;
        }
        self.keys.retain(|key| key.samples > 0);
    }

    /// The keys, the hottest first.
    pub(crate) fn hottest(&self) -> Vec<&HotKey> {
        let mut keys: Vec<&HotKey> = self.keys.iter().collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.samples));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(keys: &mut HotKeys, key: &str) {
        keys.sample(TenantId::DEFAULT, key.as_bytes(), u32::try_from(key.len()).expect("short"));
    }

    /// Among thousands of keys that come once, one in ten is found and its count is bracketed.
    #[test]
    fn a_hot_key_is_found_among_many() {
        let mut keys = HotKeys::default();
        for round in 0..5000 {
            sample(&mut keys, &format!("cold:{round}"));
            if round % 10 == 0 {
                sample(&mut keys, "hot");
            }
        }
        let hottest = keys.hottest();
        assert_eq!(hottest.len(), COUNTERS);
        assert_eq!(hottest[0].start(), b"hot");
        assert!(hottest[0].samples >= 500 && hottest[0].samples - hottest[0].error <= 500);
        assert_eq!(keys.samples, 5500);
    }

    /// Shards' tables are added key by key; ages pass until nothing is left.
    #[test]
    fn tables_are_added_and_age() {
        let (mut first, mut second) = (HotKeys::default(), HotKeys::default());
        (0..3).for_each(|_| sample(&mut first, "both"));
        (0..2).for_each(|_| sample(&mut first, "one"));
        (0..4).for_each(|_| sample(&mut second, "both"));
        (0..200).for_each(|n| sample(&mut second, &format!("other{n}")));
        first.add(&second);
        let hottest = first.hottest();
        assert!(hottest.len() <= COUNTERS && hottest[0].start() == b"both");
        (0..20).for_each(|_| first.age());
        assert!(first.hottest().is_empty() && first.samples == 0);
    }

    /// Whatever a key's bytes, INFO's line stays one line of ASCII, and bounded.
    #[test]
    fn keys_are_escaped_and_cut() {
        let mut keys = HotKeys::default();
        keys.sample(TenantId::DEFAULT, b"a\"\\\r\n\xff,:", 1);
        assert_eq!(keys.hottest()[0].quoted(), r#""a\"\\\x0d\x0a\xff,:""#);
        keys.sample(TenantId::DEFAULT, &[0; 1000], 2);
        assert_eq!(keys.hottest()[1].quoted().len(), 2 + 4 * KEY_BYTES);
        assert_eq!(keys.hottest()[1].bytes, 1000);
    }

    /// A load with a period of 64 is sampled at all its places, one command in 128.
    #[test]
    fn samples_fall_on_all_places_of_a_window() {
        let mut sampler = Sampler::default();
        let mut places = [0; 64];
        let windows = 200_000;
        for _ in 0..windows {
            if let Some(at) = sampler.pick(places.len()) {
                places[at] += 1;
            }
        }
        let all: i32 = places.iter().sum();
        let even = all / 64;
        assert!(places.iter().all(|place| (even / 2..even * 2).contains(place)), "{places:?}");
        assert!((60_000..140_000).contains(&all), "{all}");
        // One at a time, exactly one in so many.
        let picked = (0..128_000).filter(|_| sampler.pick(1).is_some()).count();
        assert!((900..1100).contains(&picked), "{picked}");
    }
}
