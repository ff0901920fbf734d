//! Keys and values, and orders in which keys come.
//!
//! 1. Key `n` is 16 hexadecimal digits, so keys sort as their numbers do.
//! 2. A value begins with the number of its key: a read that gives another key's value is noticed.
//! 3. [`Shuffle`] is a permutation: each number below its length comes once.

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;
/// Bytes of a value that tell its key.
const TAG_BYTES: usize = 8;

/// A key.
pub(crate) type Key = [u8; KEY_BYTES];
/// A value.
pub(crate) type Value = [u8; VALUE_BYTES];

/// Key number `n`.
#[inline]
pub(crate) fn key(n: u64) -> Key {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = [b'0'; KEY_BYTES];
    let mut left = n;
    for digit in key.iter_mut().rev() {
        *digit = DIGITS[usize::from(left as u8 & 15)];
        left >>= 4;
    }
    key
}

/// A value of key number `n`.
#[inline]
pub(crate) fn value(n: u64) -> Value {
    let mut value = [b'v'; VALUE_BYTES];
    value[..TAG_BYTES].copy_from_slice(&n.to_le_bytes());
    value
}

/// Whether these bytes are a value of key number `n`.
#[inline]
pub(crate) fn is_value_of(bytes: &[u8], n: u64) -> bool {
    bytes.len() == VALUE_BYTES && bytes[..TAG_BYTES] == n.to_le_bytes()
}

/// A sequence of random numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// A number below `end`.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let product = u128::from(mix(self.0)) * u128::from(end);
        (product >> 64) as u64
    }
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The numbers below `length` in an order without a pattern: a Feistel network of four rounds over
/// the next power of four. A number beyond the length is put in again; as the network is a
/// permutation, that ends.
#[derive(Clone, Copy)]
pub(crate) struct Shuffle {
    length: u64,
    half_bits: u32,
}

impl Shuffle {
    /// Of the numbers below `length`.
    pub(crate) fn new(length: u64) -> Shuffle {
        let bits = u64::BITS - length.saturating_sub(1).leading_zeros();
        Shuffle { length, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The number at a place of the order.
    #[inline]
    pub(crate) fn at(&self, place: u64) -> u64 {
        assert!(place < self.length, "the place is one of the order");
        let mut number = self.network(place);
        while number >= self.length {
            number = self.network(number);
        }
        number
    }

    #[inline]
    fn network(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 1..=4_u64 {
            let mixed = mix(right.wrapping_add(round << 60)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fill in random order meets each key once, for lengths of all kinds.
    #[test]
    fn a_shuffle_meets_each_number_once() {
        for length in [1, 2, 3, 4, 5, 100, 1024, 1025, 5000] {
            let shuffle = Shuffle::new(length);
            let mut met: Vec<u64> = (0..length).map(|place| shuffle.at(place)).collect();
            let steps = met.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(length < 100 || steps < 20, "{steps} steps of one in {length}");
            met.sort_unstable();
            assert_eq!(met, (0..length).collect::<Vec<u64>>());
        }
    }

    /// fillseq is sequential because keys sort as their numbers.
    #[test]
    fn keys_sort_as_their_numbers() {
        assert!([0, 9, 10, 15, 16, 255, 4096, 999_999].map(key).is_sorted());
        assert_eq!(&key(0xab), b"00000000000000ab");
    }

    /// A read is checked by the value's first bytes, so that the wrong record is noticed.
    #[test]
    fn a_value_tells_its_key() {
        assert!(is_value_of(&value(7), 7));
        assert!(!is_value_of(&value(7), 8));
        assert!(!is_value_of(&value(7)[..99], 7));
    }
}
