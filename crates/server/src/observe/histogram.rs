//! How long the calls of one command took, in buckets of nanoseconds.
//!
//! ```text
//! ns  -> highest bit (7 to 29) and the 3 bits below it -> one of 184 buckets, each 1/8 to 1/16 wide
//! ```
//!
//! 1. Memory is taken when a command first runs: 1.5 KiB, whatever comes.
//! 2. Like Redis's, it ends at a second: what takes longer counts as that.
//!
//! The crate `hdrhistogram` was measured beside it, over the rows of 250 commands: a count takes it
//! 13 ns and this 4 ns, a sum takes it two to four times as long, and it needs 2.6 KiB for each row
//! and shard.
//!
//! Belongs to the shard's thread; copies of it to any.

/// Less than 2^7 ns = 128 ns is one bucket: no command takes less, and no clock tells more.
const LEAST_BITS: u32 = 7;
/// From 2^30 ns on, about a second, all is one bucket.
const MOST_BITS: u32 = 30;
/// Bits below the highest that tell buckets apart: they are 6 to 12 % wide.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (MOST_BITS - LEAST_BITS) as usize * SUBS;
/// Redis's first bucket of LATENCY HISTOGRAM ends at 2^10 ns.
const FIRST_POWER: u32 = 10;

/// How many calls took how long.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram(Option<Box<[u64; BUCKETS]>>);

fn bucket(ns: u64) -> usize {
    let ns = ns.clamp(1 << LEAST_BITS, (1 << MOST_BITS) - 1);
    let highest = ns.ilog2();
    let sub = (ns >> (highest - SUB_BITS)) as usize % SUBS;
    (highest - LEAST_BITS) as usize * SUBS + sub
}

/// The longest time of a bucket, ns.
fn longest_ns(bucket: usize) -> u64 {
    let shift = bucket / SUBS + (LEAST_BITS - SUB_BITS) as usize;
    (((SUBS + bucket % SUBS + 1) as u64) << shift) - 1
}

impl Histogram {
    /// Counts calls that took so long each.
    #[inline]
    pub(crate) fn count(&mut self, each_ns: u64, calls: u64) {
        self.0.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket(each_ns)] += calls;
    }

    /// Adds another one's.
    pub(crate) fn add(&mut self, other: &Self) {
        let Some(counts) = &other.0 else { return };
        let sums = self.0.get_or_insert_with(|| Box::new([0; BUCKETS]));
        sums.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count);
    }

    fn counts(&self) -> &[u64] {
        self.0.as_deref().map_or(&[], |counts| counts.as_slice())
    }

    /// Calls that were counted.
    pub(crate) fn calls(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// How many calls took no longer than each power of two, as LATENCY HISTOGRAM answers: the
    /// power in µs as Redis rounds it (1, 2, 4, 8, 16, 33, 66, ...) and the calls up to it, where
    /// there are more than before.
    pub(crate) fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers = Vec::new();
        let (mut calls, mut told, mut at) = (0, 0, 0);
        let counts = self.counts();
        for power in FIRST_POWER..=MOST_BITS {
            let end = (power - LEAST_BITS) as usize * SUBS;
            calls += counts.get(at..end).unwrap_or_default().iter().sum::<u64>();
            at = end;
            if calls > told {
                // The end of what Redis's histogram of two digits can't tell from the power.
                let end_ns = (1u64 << power) + (1 << (power - LEAST_BITS)) - 1;
                powers.push((end_ns / 1000, calls));
                told = calls;
            }
        }
        powers
    }

    /// The time in ns that so many thousandths of the calls didn't exceed; 0 if there are none.
    pub(crate) fn percentile(&self, thousandths: u64) -> u64 {
        let rank = (self.calls() * thousandths).div_ceil(1000).max(1);
        let mut calls = 0;
        let found = self.counts().iter().position(|count| {
            calls += count;
            calls >= rank
        });
        found.map_or(0, longest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each time lies in a bucket whose end is no more than an eighth longer, and buckets follow
    /// each other.
    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (128..2_000_000).chain((0..29).map(|bit| 1 << bit)).filter(|ns| *ns >= 128) {
            let end = longest_ns(bucket(ns));
            assert!(end >= ns && end <= ns + ns / 8, "{ns} ns is in the bucket up to {end}");
        }
        for at in 0..BUCKETS {
            assert!(longest_ns(at) > last);
            assert_eq!(bucket(longest_ns(at)), at);
            last = longest_ns(at);
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// What Redis answers for times of these sizes, seen from one.
    #[test]
    fn powers_are_cumulative_and_named_as_in_redis() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.powers(), histogram.percentile(500)), (vec![], 0));
        for (ns, calls) in
            [(300, 1), (7_000, 1), (15_000, 1), (30_000, 3), (60_000, 1), (500_000, 2)]
        {
            histogram.count(ns, calls);
        }
        let expected = [(1, 1), (8, 2), (16, 3), (33, 6), (66, 7), (528, 9)];
        assert_eq!(histogram.powers(), expected);
        histogram.count(u64::MAX, 1);
        assert_eq!(histogram.powers().last(), Some(&(1_082_130, 10)));
        assert_eq!(histogram.calls(), 10);
    }

    /// The sum of two says what one would that had seen both; percentiles are where they must be.
    #[test]
    fn percentiles_of_a_sum_are_those_of_all_calls() {
        let (mut first, mut second) = (Histogram::default(), Histogram::default());
        first.count(1_000, 99);
        second.count(100_000, 1);
        first.add(&second);
        first.add(&Histogram::default());
        assert!((1_000..1_125).contains(&first.percentile(500)));
        assert!((1_000..1_125).contains(&first.percentile(990)));
        assert!((100_000..112_500).contains(&first.percentile(999)));
    }
}
