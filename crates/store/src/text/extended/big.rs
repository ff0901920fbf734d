//! Unsigned integers of any size, with the five operations that reading and printing a float need.
//!
//! Each operation works on as many digits at a time as a limb holds. The longest texts make numbers
//! of some hundred limbs; digit by digit they took milliseconds.
//!
//! 1. Limbs are little-endian, and the last one isn't zero. Zero has no limbs.
//!
//! Thread: any; it is pure.

/// The largest power of five in a limb, and its exponent.
const FIVES: u64 = 5_u64.pow(FIVES_IN_LIMB);
const FIVES_IN_LIMB: u32 = 27;
/// Decimal digits that always fit into a limb.
const DIGITS_IN_LIMB: usize = 19;
/// The part that is printed at a time: a remainder and 32 bits fit into a limb.
const CHUNK: u64 = 1_000_000_000;
/// Bits of a limb.
const LIMB_BITS: u32 = 64;

/// An unsigned integer.
#[derive(Clone, Debug, Default)]
pub(super) struct Big(Vec<u64>);

impl From<u128> for Big {
    fn from(value: u128) -> Big {
        let mut big = Big(vec![low(value), low(value >> LIMB_BITS)]);
        big.trim();
        big
    }
}

/// The low 64 bits.
fn low(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).expect("masked to 64 bits")
}

impl Big {
    /// The number of these decimal digits.
    pub(super) fn of_digits(digits: &[u8]) -> Big {
        let mut big = Big::default();
        for chunk in digits.chunks(DIGITS_IN_LIMB) {
            let value = chunk.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            let power = u32::try_from(chunk.len()).expect("a few digits");
            big.multiply_add(10_u64.pow(power), value);
        }
        big
    }

    /// Bits in use; 0 for zero.
    pub(super) fn bits(&self) -> i64 {
        let Some(last) = self.0.last() else { return 0 };
        let whole = i64::try_from(self.0.len()).expect("fits in memory") * i64::from(LIMB_BITS);
        whole - i64::from(last.leading_zeros())
    }

    /// `self * factor + summand`.
    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = summand;
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
            (*limb, carry) = (low(product), low(product >> LIMB_BITS));
        }
        if carry != 0 {
            self.0.push(carry);
        }
    }

    /// `self * 10^power`: by fives, which take fewer bits, and the twos at the end.
    pub(super) fn scale(&mut self, power: u32) {
        for _ in 0..power / FIVES_IN_LIMB {
            self.multiply_add(FIVES, 0);
        }
        self.multiply_add(5_u64.pow(power % FIVES_IN_LIMB), 0);
        self.shift_left(power);
    }

    /// `self << amount`.
    pub(super) fn shift_left(&mut self, amount: u32) {
        if self.0.is_empty() {
            return;
        }
        self.multiply_add(1 << (amount % LIMB_BITS), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (amount / LIMB_BITS) as usize));
    }

    /// `self / divisor`, and whether nothing remains. (Knuth, The Art of Computer Programming 2,
    /// 4.3.1, algorithm D.)
    ///
    /// # Panics
    ///
    /// If the divisor is zero, or the quotient has more than 127 bits.
    pub(super) fn divide(mut self, mut divisor: Big) -> (u128, bool) {
        assert!(self.bits() - divisor.bits() < 127, "the quotient fits into two limbs");
        // The estimate of a digit is near enough if the divisor's highest bit is set.
        let shift = divisor.0.last().expect("a divisor isn't zero").leading_zeros();
        divisor.shift_left(shift);
        self.shift_left(shift);
        let divisor = divisor.0;
        self.0.resize(divisor.len() + 2, 0);
        let high = divide_digit(&mut self.0[1..], &divisor);
        let low = divide_digit(&mut self.0[..=divisor.len()], &divisor);
        (u128::from(high) << LIMB_BITS | u128::from(low), self.0.iter().all(|limb| *limb == 0))
    }

    /// Decimal digits, `0` for zero.
    pub(super) fn into_decimal(mut self) -> Vec<u8> {
        let mut chunks = Vec::new();
        while !self.0.is_empty() {
            let mut remainder = 0;
            for limb in self.0.iter_mut().rev() {
                let high = remainder << 32 | *limb >> 32;
                let low = (high % CHUNK) << 32 | *limb & u64::from(u32::MAX);
                *limb = ((high / CHUNK) << 32) | (low / CHUNK);
                remainder = low % CHUNK;
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

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

/// One digit of a quotient. Subtracts so many divisors from `dividend`, which has one limb more.
fn divide_digit(dividend: &mut [u64], divisor: &[u64]) -> u64 {
    let (count, top) = (divisor.len(), u128::from(divisor[divisor.len() - 1]));
    let high = u128::from(dividend[count]) << LIMB_BITS | u128::from(dividend[count - 1]);
    // The estimate is at most two too large, and no digit has more than a limb.
    let mut digit = low((high / top).min(u128::from(u64::MAX)));
    let mut over = take(dividend, divisor, digit);
    while over {
        digit -= 1;
        over = !give_back(dividend, divisor);
    }
    digit
}

/// `dividend - digit * divisor`, modulo its size; true if that is below zero.
fn take(dividend: &mut [u64], divisor: &[u64], digit: u64) -> bool {
    let (mut carry, mut borrow) = (0, false);
    let digits = divisor.iter().copied().chain([0]);
    for (limb, part) in dividend.iter_mut().zip(digits) {
        let product = u128::from(part) * u128::from(digit) + u128::from(carry);
        carry = low(product >> LIMB_BITS);
        let (once, under1) = limb.overflowing_sub(low(product));
        let (twice, under2) = once.overflowing_sub(u64::from(borrow));
        (*limb, borrow) = (twice, under1 || under2);
    }
    borrow
}

/// `dividend + divisor`, modulo its size; true if it is above zero again.
fn give_back(dividend: &mut [u64], divisor: &[u64]) -> bool {
    let mut carry = false;
    let digits = divisor.iter().copied().chain([0]);
    for (limb, part) in dividend.iter_mut().zip(digits) {
        let (once, over1) = limb.overflowing_add(part);
        let (twice, over2) = once.overflowing_add(u64::from(carry));
        (*limb, carry) = (twice, over1 || over2);
    }
    carry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of `limbs` limbs whose bits are many ones, many zeros, or mixed. There the
    /// estimates of a quotient's digits are too large.
    fn odd(seed: &mut u64, limbs: usize) -> Big {
        let mut big = Big::default();
        for _ in 0..limbs {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let limb = match *seed >> 62 {
                0 => u64::MAX,
                1 => 0,
                2 => 1 << 63,
                _ => *seed,
            };
            big.0.push(limb);
        }
        big.0.push(1 + (*seed >> 40));
        big
    }

    /// Division inverts multiplication, `(divisor * quotient + remainder) / divisor`, also where
    /// the estimate of a digit is worst.
    #[test]
    fn division_gives_back_what_was_multiplied() {
        let mut seed = 3;
        for step in 0..20_000_usize {
            let divisor = odd(&mut seed, step % 5);
            let quotient = odd(&mut seed, step % 2);
            let len = divisor.0.len() + quotient.0.len() + 1;
            let padded = |limbs: &[u64]| [limbs, &vec![0; len - limbs.len()]].concat();
            let mut product = Big(vec![0; len]);
            for (at, digit) in quotient.0.iter().enumerate() {
                let mut part = divisor.clone();
                part.multiply_add(*digit, 0);
                part.0.splice(0..0, std::iter::repeat_n(0, at));
                assert!(!give_back(&mut product.0, &padded(&part.0)));
            }
            let is_exact = step % 3 == 0;
            if !is_exact {
                // One below the next multiple: the largest remainder.
                assert!(!give_back(&mut product.0, &padded(&divisor.0)));
                assert!(!take(&mut product.0, &padded(&[1]), 1));
            }
            product.trim();
            let wanted = quotient.0.iter().rev().fold(0, |sum, limb| sum << 64 | u128::from(*limb));
            let exact = is_exact || divisor.bits() == 1;
            assert_eq!(product.divide(divisor), (wanted, exact), "step {step}");
        }
    }

    /// Digits are printed as they were read, at each length.
    #[test]
    fn digits_come_back() {
        for len in 1..400 {
            let digits: Vec<u8> =
                (0..len).map(|at| b'1' + u8::try_from(at * len % 9).expect("a digit")).collect();
            assert_eq!(Big::of_digits(&digits).into_decimal(), digits);
            let mut scaled = Big::of_digits(&digits);
            scaled.scale(u32::try_from(len).expect("small"));
            assert_eq!(scaled.into_decimal(), [digits, vec![b'0'; len]].concat());
        }
        assert_eq!(Big::of_digits(b"000").into_decimal(), b"0");
    }
}
