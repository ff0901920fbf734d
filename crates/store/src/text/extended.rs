//! The x87's 80-bit float (C's `long double` on x86-64), as far as INCRBYFLOAT needs it: read a
//! decimal, add, print with 17 decimals.
//!
//! Redis computes in `long double`, so `0.1 + 0.2` is `0.3` and not `0.30000000000000004`. This
//! file computes with integers, so that every machine gives the same digits. Each operation rounds
//! once, to a significand of 64 bits, ties to even, with the x87's range.
//!
//! 1. A finite, non-zero value is `significand * 2^exponent`. Bit 63 of the significand is set, or
//!    `exponent == MIN_EXPONENT` (subnormal).
//! 2. A text has at most [`MAX_TEXT_BYTES`], so no number on the way has more than some 35,000
//!    bits.
//!
//! Thread: any; it is pure.

mod big;

use big::Big;

/// Redis's `MAX_LONG_DOUBLE_CHARS`, in which the text and its zero byte must fit.
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;
/// Bits of the significand.
const BITS: i64 = 64;
/// Exponent of the lowest bit of the smallest values: 2^-16445.
const MIN_EXPONENT: i64 = -16445;
/// Exponent of the lowest bit of the largest values.
const MAX_EXPONENT: i64 = 16383 - 63;
/// Decimal exponents of the first digit. A value beyond them is infinite or zero.
const DECIMAL_RANGE: std::ops::RangeInclusive<i64> = -4960..=4940;
/// Digits behind the point that Redis prints.
const DECIMALS: u32 = 17;

/// A value of the 80-bit format, without NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// Too large, or read as `inf`.
    Infinite {
        /// Below zero?
        negative: bool,
    },
    /// `significand * 2^exponent`.
    Finite {
        /// Below zero?
        negative: bool,
        /// See invariant 1.
        significand: u64,
        /// See invariant 1.
        exponent: i64,
    },
}

impl Extended {
    /// Reads a text as Redis's `string2ld` does: C's `strtold` over the whole text, without leading
    /// space. `inf` is a value; NaN is refused, and so is overflow, and underflow to zero.
    pub(crate) fn parse(text: &[u8]) -> Option<Extended> {
        if text.is_empty() || text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Extended::Infinite { negative });
        }
        let value = match text {
            [b'0', b'x' | b'X', hex @ ..] => parse_hexadecimal(negative, hex)?,
            decimal => parse_decimal(negative, decimal)?,
        };
        matches!(value, Extended::Finite { .. }).then_some(value)
    }

    /// The sum, or `None` if it isn't finite (Redis: `increment would produce NaN or Infinity`).
    pub(crate) fn add(self, other: Extended) -> Option<Extended> {
        let (
            Extended::Finite { negative: n1, significand: s1, exponent: e1 },
            Extended::Finite { negative: n2, significand: s2, exponent: e2 },
        ) = (self, other)
        else {
            return None;
        };
        if s1 == 0 {
            // -0 + -0 is printed like 0, so the sign of a zero doesn't matter.
            return Some(other);
        }
        if s2 == 0 {
            return Some(self);
        }
        let ((n1, s1, e1), (n2, s2, e2)) =
            if e1 >= e2 { ((n1, s1, e1), (n2, s2, e2)) } else { ((n2, s2, e2), (n1, s1, e1)) };
        // 62 bits below the larger one's lowest. Deeper bits only set the sticky bit.
        const GUARD: i64 = 62;
        let wide1 = u128::from(s1) << GUARD;
        let wide2 = shift_right_sticky(u128::from(s2) << GUARD, e1 - e2);
        let (negative, wide) = match (n1 == n2, wide1 >= wide2) {
            (true, _) => (n1, wide1 + wide2),
            (false, true) => (n1, wide1 - wide2),
            (false, false) => (n2, wide2 - wide1),
        };
        let sum = round(negative, wide, e1 - GUARD);
        matches!(sum, Extended::Finite { .. }).then_some(sum)
    }

    /// Appends the value with 17 decimals, rounded, without trailing zeros (Redis's
    /// `LD_STR_HUMAN`).
    pub(crate) fn print(self, out: &mut Vec<u8>) {
        let Extended::Finite { negative, significand, exponent } = self else {
            unreachable!("only sums that are finite are printed");
        };
        let (whole, mut fraction) = if exponent >= 0 {
            let mut big = Big::from(u128::from(significand));
            big.shift_left(u32::try_from(exponent).expect("an exponent within its range"));
            (big.into_decimal(), 0)
        } else {
            let unit = 10_u128.pow(DECIMALS);
            let scaled = shift_right_rounded(u128::from(significand) * unit, -exponent);
            ((scaled / unit).to_string().into_bytes(), scaled % unit)
        };
        if negative && (fraction != 0 || whole != b"0") {
            out.push(b'-');
        }
        out.extend_from_slice(&whole);
        if fraction != 0 {
            let mut width = DECIMALS as usize;
            while fraction % 10 == 0 {
                fraction /= 10;
                width -= 1;
            }
            out.extend_from_slice(format!(".{fraction:0width$}").as_bytes());
        }
    }
}

/// `value >> shift`, with the lowest bit set if any bit was lost.
fn shift_right_sticky(value: u128, shift: i64) -> u128 {
    if shift >= 128 {
        return u128::from(value != 0);
    }
    let shifted = value >> shift;
    shifted | u128::from(shifted << shift != value)
}

/// `value >> shift`, rounded to the nearest, ties to even.
fn shift_right_rounded(value: u128, shift: i64) -> u128 {
    if shift <= 0 {
        return value;
    }
    if shift > 128 {
        return 0;
    }
    let kept = if shift == 128 { 0 } else { value >> shift };
    let half = 1_u128 << (shift - 1);
    let lost = if shift == 128 { value } else { value & ((1 << shift) - 1) };
    kept + u128::from(lost > half || (lost == half && kept & 1 == 1))
}

/// The nearest value of `wide * 2^exponent`. The lowest bit of `wide` may be sticky if more than 66
/// bits are in use.
fn round(negative: bool, wide: u128, exponent: i64) -> Extended {
    if wide == 0 {
        return Extended::Finite { negative: false, significand: 0, exponent: MIN_EXPONENT };
    }
    let used = 128 - i64::from(wide.leading_zeros());
    let target = (exponent + used - BITS).max(MIN_EXPONENT);
    let (mut significand, mut exponent) = if target >= exponent {
        (shift_right_rounded(wide, target - exponent), target)
    } else {
        (wide << (exponent - target), target)
    };
    if significand >> BITS != 0 {
        significand >>= 1;
        exponent += 1;
    }
    let significand = u64::try_from(significand).expect("64 bits, as rounded above");
    if exponent > MAX_EXPONENT {
        return Extended::Infinite { negative };
    }
    Extended::Finite { negative, significand, exponent }
}

/// `digits[.digits][e[+-]digits]`.
fn parse_decimal(negative: bool, text: &[u8]) -> Option<Extended> {
    let (digits, behind_point, rest) = digits_and_point(text, |byte| byte.is_ascii_digit())?;
    let power = match rest {
        [] => 0,
        [b'e' | b'E', power @ ..] => exponent_text(power)?,
        _ => return None,
    };
    let digits = &digits[digits.iter().take_while(|&&digit| digit == b'0').count()..];
    if digits.is_empty() {
        return Some(Extended::Finite { negative, significand: 0, exponent: MIN_EXPONENT });
    }
    let power = power - behind_point;
    let first_digit = power + i64::try_from(digits.len()).expect("bounded text") - 1;
    if !DECIMAL_RANGE.contains(&first_digit) {
        return None;
    }
    let (mut numerator, mut denominator) = (Big::of_digits(digits), Big::from(1));
    let scaled = if power >= 0 { &mut numerator } else { &mut denominator };
    scaled.scale(u32::try_from(power.unsigned_abs()).expect("bounded range and text"));
    finite_and_not_lost(quotient(negative, numerator, denominator))
}

/// Refuses infinity, and zero from non-zero digits: `strtold` gives ERANGE, and Redis refuses it.
fn finite_and_not_lost(value: Extended) -> Option<Extended> {
    match value {
        Extended::Finite { significand: 1.., .. } => Some(value),
        _ => None,
    }
}

/// `numerator / denominator`, rounded.
fn quotient(negative: bool, mut numerator: Big, mut denominator: Big) -> Extended {
    // 100 to 101 bits of quotient: enough for 64, the bit that rounds, and a sticky one.
    const QUOTIENT_BITS: i64 = 100;
    let shift = QUOTIENT_BITS - (numerator.bits() - denominator.bits());
    let amount = u32::try_from(shift.unsigned_abs()).expect("bounded text");
    if shift >= 0 {
        numerator.shift_left(amount)
    } else {
        denominator.shift_left(amount)
    }
    let (quotient, exact) = numerator.divide(denominator);
    round(negative, quotient | u128::from(!exact), -shift)
}

/// `digits[.digits][p[+-]digits]`, where the digits are hexadecimal, but not the power's.
fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<Extended> {
    let (digits, behind_point, rest) = digits_and_point(text, |byte| byte.is_ascii_hexdigit())?;
    let power = match rest {
        [] => 0,
        [b'p' | b'P', power @ ..] => exponent_text(power)?,
        _ => return None,
    };
    let (mut wide, mut exponent) = (0_u128, power - 4 * behind_point);
    for &digit in &digits {
        let value = char::from(digit).to_digit(16).expect("a hexadecimal digit");
        if wide >> 120 == 0 {
            wide = wide << 4 | u128::from(value);
        } else {
            wide |= u128::from(value != 0);
            exponent += 4;
        }
    }
    if wide == 0 {
        return Some(Extended::Finite { negative, significand: 0, exponent: MIN_EXPONENT });
    }
    finite_and_not_lost(round(negative, wide, exponent))
}

/// The digits without the point, the number of them behind it, and the rest of the text; `None`
/// without a digit.
fn digits_and_point(text: &[u8], is_digit: fn(u8) -> bool) -> Option<(Vec<u8>, i64, &[u8])> {
    let count = |text: &[u8]| text.iter().take_while(|&&byte| is_digit(byte)).count();
    let (whole, rest) = text.split_at(count(text));
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => rest.split_at(count(rest)),
        rest => (&[][..], rest),
    };
    let digits = [whole, fraction].concat();
    (!digits.is_empty())
        .then(|| (digits, i64::try_from(fraction.len()).expect("bounded text"), rest))
}

/// The power behind `e` or `p`. A huge one is cut, which doesn't change the outcome.
fn exponent_text(text: &[u8]) -> Option<i64> {
    const BEYOND_ANY_USE: i64 = 1_000_000;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits
        .iter()
        .fold(0, |sum, &digit| (sum * 10 + i64::from(digit - b'0')).min(BEYOND_ANY_USE));
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests;
