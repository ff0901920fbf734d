//! The choice of keys, and the bytes of keys and values.
//!
//! ```text
//! key   key:000000123456      decimal number of the key, in a field of fixed width
//! value 000000123456opqrst…   the same number, then letters from an offset that depends on it
//! ```
//!
//! Invariants:
//! 1. Keys and values have a fixed width, so the generator patches requests in place.
//! 2. The key's number determines the value, so the generator can verify any reply.
//! 3. A seed determines the sequence of keys.

use anyhow::{Result, bail};

/// Digits of a key's number: 10^12 keys are more than a partition holds.
const DIGITS: usize = 12;
/// Start of a key, if the key has room for it.
const PREFIX: &[u8] = b"key:";
/// Letters that fill a value.
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
#[derive(Clone)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; biased by less than bound / 2^64.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Widths and bytes of keys and values.
pub(super) struct RecordShape {
    key_bytes: usize,
    value_bytes: usize,
    filler: Vec<u8>,
}

impl RecordShape {
    /// # Errors
    /// `key_bytes` are too few for `count` different keys.
    pub(super) fn new(key_bytes: usize, value_bytes: usize, count: u64) -> Result<Self> {
        let digits = u32::try_from(key_bytes.min(DIGITS))?;
        if key_bytes == 0 || count == 0 || 10u64.pow(digits) < count {
            bail!("keys of {key_bytes} bytes can't tell {count} keys apart; raise --key-size");
        }
        let filler = LETTERS.iter().copied().cycle().take(value_bytes + LETTERS.len()).collect();
        Ok(Self { key_bytes, value_bytes, filler })
    }

    pub(super) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    pub(super) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Writes all of key `number` to `field`.
    pub(super) fn key(&self, number: u64, field: &mut [u8]) {
        field.fill(b'0');
        if field.len() >= DIGITS + PREFIX.len() {
            field[..PREFIX.len()].copy_from_slice(PREFIX);
        }
        self.key_digits(number, field);
    }

    /// Writes only the digits of key `number`. [`Self::key`] has written the rest of `field`.
    #[inline]
    pub(super) fn key_digits(&self, number: u64, field: &mut [u8]) {
        let start = field.len() - field.len().min(DIGITS);
        digits(number, &mut field[start..]);
    }

    /// Writes the value of key `number` to `field`.
    #[inline]
    pub(super) fn value(&self, number: u64, field: &mut [u8]) {
        let offset = usize::from((number % 26) as u8);
        field.copy_from_slice(&self.filler[offset..offset + field.len()]);
        if field.len() >= DIGITS {
            digits(number, &mut field[..DIGITS]);
        }
    }

    /// Whether `bytes` is the value of key `number`.
    pub(super) fn is_value(&self, number: u64, bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.resize(self.value_bytes, 0);
        self.value(number, scratch);
        scratch == bytes
    }
}

/// Writes the last digits of `number`, with leading zeros.
#[inline]
pub(super) fn digits(mut number: u64, field: &mut [u8]) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// A distribution of key numbers.
#[derive(Clone)]
pub(super) enum Keys {
    /// Each key in turn, and 0 again after the last.
    Sequential { next: u64, count: u64 },
    /// All keys with the same probability.
    Uniform { count: u64 },
    /// A few keys often.
    Zipfian(Zipf),
}

impl Keys {
    #[inline]
    pub(super) fn draw(&mut self, random: &mut SplitMix64) -> u64 {
        match self {
            Self::Sequential { next, count } => {
                let number = *next;
                *next = if number + 1 == *count { 0 } else { number + 1 };
                number
            }
            Self::Uniform { count } => random.below(*count),
            Self::Zipfian(zipf) => zipf.draw(random),
        }
    }
}

/// Zipf's law by the method of Gray et al., Quickly Generating Billion-Record Synthetic Databases
/// (SIGMOD 1994), figure 3. A permutation then spreads ranks over the key numbers, since otherwise
/// the keys that were loaded first would be the frequent ones.
#[derive(Clone)]
pub(super) struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    second: f64,
    spread: u64,
}

impl Zipf {
    /// `theta` is in (0, 1); YCSB takes 0.99. The time is proportional to `count`.
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a u64 fits in one")]
    pub(super) fn new(count: u64, theta: f64) -> Result<Self> {
        if !(theta > 0.0 && theta < 1.0) {
            bail!("--theta must be above 0 and below 1, not {theta}");
        }
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
        let second = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - second / zeta);
        // A factor near the golden section of `count`, without a common divisor.
        let mut spread = ((count as f64 * 0.618_033_988) as u64).max(1);
        while gcd(spread, count) != 1 {
            spread += 1;
        }
        Ok(Self { count, zeta, alpha: 1.0 / (1.0 - theta), eta, second, spread })
    }

    #[expect(clippy::cast_possible_truncation, reason = "clamped to the last rank")]
    fn rank(&self, random: &mut SplitMix64) -> u64 {
        let unit = random.unit();
        let mass = unit * self.zeta;
        if mass < 1.0 {
            return 0;
        }
        if mass < self.second {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u64 fits in one")]
    #[inline]
    fn draw(&self, random: &mut SplitMix64) -> u64 {
        let rank = u128::from(self.rank(random));
        (rank * u128::from(self.spread) % u128::from(self.count)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Zipf's law rank k has the probability k^-theta / zeta. The first ranks are most of the
    /// draws, and follow the law within sampling noise.
    #[test]
    fn zipf_draws_follow_the_law() {
        let (count, theta, draws) = (1000, 0.99, 400_000);
        let zipf = Zipf::new(count, theta).expect("theta is in range");
        let mut random = SplitMix64::new(7);
        let mut seen = vec![0u64; 1000];
        for _ in 0..draws {
            seen[usize::try_from(zipf.rank(&mut random)).expect("small")] += 1;
        }
        for (rank, &hits) in seen.iter().enumerate().take(2) {
            let expected = draws as f64 * ((rank + 1) as f64).powf(-theta) / zipf.zeta;
            let error = (hits as f64 - expected).abs() / expected;
            assert!(error < 0.03, "rank {rank}: {hits} draws, {expected:.0} expected");
        }
        let top: u64 = seen[..100].iter().sum();
        let law: f64 = (1..=100).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>() / zipf.zeta;
        assert!((top as f64 / draws as f64 - law).abs() < 0.02, "top 100: {top} of {draws}");
    }

    /// Each key number has exactly one rank.
    #[test]
    fn spreading_ranks_is_a_permutation() {
        for count in [1, 2, 3, 10, 97, 1000] {
            let zipf = Zipf::new(count, 0.5).expect("theta is in range");
            let mut keys: Vec<u64> = (0..count).map(|rank| rank * zipf.spread % count).collect();
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..count), "{count} keys");
        }
    }

    /// Keys and values have the requested width, and contain their number.
    #[test]
    fn keys_and_values_are_of_fixed_width() {
        let shape = RecordShape::new(16, 20, 1_000_000).expect("fits");
        let (mut key, mut value) = ([0; 16], [0; 20]);
        shape.key(123_456, &mut key);
        shape.value(123_456, &mut value);
        assert_eq!(&key, b"key:000000123456");
        assert_eq!(&value[..12], b"000000123456");
        assert!(shape.is_value(123_456, &value, &mut Vec::new()));
        assert!(!shape.is_value(123_457, &value, &mut Vec::new()));
        let mut short = [0; 3];
        RecordShape::new(3, 1, 1000).expect("fits").key(42, &mut short);
        assert_eq!(&short, b"042");
        assert!(RecordShape::new(3, 1, 1001).is_err());
    }
}
