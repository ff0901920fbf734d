//! The format's tests: what is encoded is parsed again, a bit that flips is noticed, and no bytes
//! make a parser panic.

mod frames;
mod texts;

use crate::format::sum::{Secret, SumKey};

const SECRET: Secret = Secret(*b"0123456789abcdef");
const KEY: SumKey = SumKey { secret: SECRET, salt: 0x5A17 };

/// Each byte string with one bit flipped.
fn flipped(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (0..bytes.len() * 8).map(|bit| {
        let mut other = bytes.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        (bit, other)
    })
}
