//! Unsigned integers of any size, with the five operations that reading and printing a float need.
//!
//! Invariant: limbs are little-endian, the last one isn't zero; zero has none.
//!
//! Thread: any; it is pure.

use std::cmp::Ordering;

/// The largest power of ten in a limb, and its digits.
const CHUNK: u32 = 1_000_000_000;
const CHUNK_DIGITS: u64 = 9;

/// An unsigned integer.
#[derive(Clone, Debug, Default)]
pub(super) struct Big(Vec<u32>);

impl From<u128> for Big {
    fn from(mut value: u128) -> Big {
        let mut limbs = Vec::new();
        while value != 0 {
            limbs.push(low(value));
            value >>= 32;
        }
        Big(limbs)
    }
}

/// The low 32 bits.
fn low(value: u128) -> u32 {
    u32::try_from(value & u128::from(u32::MAX)).expect("masked to 32 bits")
}

impl Big {
    /// Bits in use; 0 for zero.
    pub(super) fn bits(&self) -> i64 {
        let Some(last) = self.0.last() else { return 0 };
        let whole = i64::try_from(self.0.len()).expect("fits in memory") * 32;
        whole - i64::from(last.leading_zeros())
    }

    /// `self * factor + summand`.
    pub(super) fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = low(carry.into());
            carry >>= 32;
        }
        if carry != 0 {
            self.0.push(low(carry.into()));
        }
    }

    /// `self * 10^power`.
    pub(super) fn scale(&mut self, power: u64) {
        for _ in 0..power / CHUNK_DIGITS {
            self.multiply_add(CHUNK, 0);
        }
        for _ in 0..power % CHUNK_DIGITS {
            self.multiply_add(10, 0);
        }
    }

    /// `self << amount`.
    pub(super) fn shift_left(&mut self, amount: u32) {
        if self.0.is_empty() {
            return;
        }
        self.multiply_add(1 << (amount % 32), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (amount / 32) as usize));
    }

    /// `self / divisor` if it has at most `bits` (and 127) bits, and whether nothing remains.
    pub(super) fn divide(mut self, mut divisor: Big, bits: i64) -> (u128, bool) {
        divisor.shift_left(u32::try_from(bits).expect("few bits"));
        let mut quotient = 0_u128;
        for _ in 0..=bits {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            divisor.halve();
        }
        (quotient, self.0.is_empty())
    }

    /// Decimal digits, `0` for zero.
    pub(super) fn into_decimal(mut self) -> Vec<u8> {
        let mut chunks = Vec::new();
        while !self.0.is_empty() {
            let mut remainder = 0_u64;
            for limb in self.0.iter_mut().rev() {
                let dividend = remainder << 32 | u64::from(*limb);
                *limb = low(u128::from(dividend / u64::from(CHUNK)));
                remainder = dividend % u64::from(CHUNK);
            }
            self.trim();
            chunks.push(remainder);
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:09}"));
        }
        text.into_bytes()
    }

    fn compare(&self, other: &Big) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// `self - other`, which must not be larger.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let take = other.0.get(at).copied().unwrap_or(0);
            let (once, under1) = limb.overflowing_sub(take);
            let (twice, under2) = once.overflowing_sub(u32::from(borrow));
            *limb = twice;
            borrow = under1 || under2;
        }
        assert!(!borrow, "subtracted a larger number");
        self.trim();
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            let next = *limb << 31;
            *limb = *limb >> 1 | carry;
            carry = next;
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}
