//! Decimal integers in headers, read as strictly as Redis reads them.

/// Reads a signed decimal integer that fills `text`: no spaces, no plus, no leading zeros, no −0.
/// `None` if it isn't one, or doesn't fit.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] => Some(0),
        [b'-', first @ b'1'..=b'9', rest @ ..] => digits(*first, rest, i64::checked_sub),
        [first @ b'1'..=b'9', rest @ ..] => digits(*first, rest, i64::checked_add),
        _ => None,
    }
}

fn digits(first: u8, rest: &[u8], step: fn(i64, i64) -> Option<i64>) -> Option<i64> {
    let mut number = step(0, i64::from(first - b'0'))?;
    for &byte in rest {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = step(number.checked_mul(10)?, i64::from(byte - b'0'))?;
    }
    Some(number)
}

/// Reads `kind`, a number of one to three digits and CRLF from the front of `rest`: the header of
/// nearly every argument. Gives the number and the header's width; `None` for any other shape, which
/// the slow way then reads.
#[inline(always)]
pub(super) fn short_header(rest: &[u8], kind: u8) -> Option<(u32, usize)> {
    let digit = |byte: u8| u32::from(byte - b'0');
    match *rest {
        [k, a @ b'0'..=b'9', b'\r', b'\n', ..] if k == kind => Some((digit(a), 4)),
        [k, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] if k == kind => {
            Some((digit(a) * 10 + digit(b), 5))
        }
        [k, a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', b'\n', ..] if k == kind => {
            Some((digit(a) * 100 + digit(b) * 10 + digit(c), 6))
        }
        _ => None,
    }
}
