//! Doubles as C's `printf("%.17g")` prints them, which is how Redis 7.0 answers them.
//!
//! 1. Infinities are `inf` and `-inf`; a NaN is `nan`, whatever its sign.
//! 2. 17 significant digits, so the number reads back as the same bits.

use std::io::Write as _;

/// The longest text: sign, 17 digits, point, `e-308`, and the zeros of 0.000123….
pub(super) const DOUBLE_BYTES: usize = 32;
/// Significant digits: enough to tell any two doubles apart.
const PRECISION: i32 = 17;

/// Appends `number` as `%.17g`.
pub fn format_double(out: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if number.is_infinite() {
        return out.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
    }
    if let Some(whole) = whole(number) {
        return out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    }
    general(out, number);
}

/// The number as an integer if it is one that every digit of `%.17g` shows as such. −0 is not.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: below it a double holds any integer
    if number.abs() >= EXACT
        || number.fract() != 0.0
        || (number == 0.0 && number.is_sign_negative())
    {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole, and below 2^53")]
    let whole = number as i64;
    Some(whole)
}

/// C's `%g`: digits and exponent from the exact scientific form, trailing zeros dropped, and the
/// exponent written only below 10^-4 and from 10^17 on.
fn general(out: &mut Vec<u8>, number: f64) {
    let text = format!("{:.*e}", 16, number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: Vec<u8> = mantissa.bytes().filter(|byte| *byte != b'.').collect();
    let zeros = digits.iter().rev().take_while(|byte| **byte == b'0').count();
    let kept = digits.len().saturating_sub(zeros).max(1);
    let digits = digits.get(..kept).unwrap_or(&digits);
    if number.is_sign_negative() {
        out.push(b'-');
    }
    if !(-4..PRECISION).contains(&exponent) {
        point(out, digits, 1);
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a Vec can't fail.
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else if let Ok(before) = usize::try_from(exponent + 1)
        && before > 0
    {
        point(out, digits, before);
    } else {
        out.extend_from_slice(b"0.");
        out.extend((exponent + 1..0).map(|_| b'0'));
        out.extend_from_slice(digits);
    }
}

/// Appends `digits` with the point after `before` of them, filled up with zeros; without a point if
/// nothing follows it.
fn point(out: &mut Vec<u8>, digits: &[u8], before: usize) {
    match digits.split_at_checked(before) {
        Some((whole, [])) => out.extend_from_slice(whole),
        Some((whole, fraction)) => {
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        None => {
            out.extend_from_slice(digits);
            out.resize(out.len() + before - digits.len(), b'0');
        }
    }
}
