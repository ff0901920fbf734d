//! Reads decimal integers in headers, as strictly as Redis. Any thread.

/// Reads a signed decimal integer that fills `text`: no spaces, no plus, no leading zeros, no −0.
/// `None` if it is none, or doesn't fit.
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
/// nearly every argument. Returns the number and the header's width; `None` for any other shape,
/// which the caller reads the slow way.
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

#[cfg(test)]
mod tests {
    use super::{integer, short_header};

    #[test]
    fn a_short_header_is_read_by_its_own_kind_and_width() {
        // The quick way reads at most three digits, without leading zeros. The slow way would read
        // the same, so only a test of the quick way alone tells whether it works.
        for number in 0..1200u32 {
            let text = format!("${number}\r\n");
            let read = (number < 1000).then_some((number, text.len()));
            assert_eq!(short_header(text.as_bytes(), b'$'), read, "{text:?}");
            assert_eq!(short_header(text.as_bytes(), b'*'), None, "{text:?} is no array");
            let zero = format!("$0{number}\r\n");
            assert_eq!(short_header(zero.as_bytes(), b'$'), None, "{zero:?}");
            let short = text.trim_end_matches('\n');
            assert_eq!(short_header(short.as_bytes(), b'$'), None, "{short:?}");
        }
    }

    #[test]
    fn an_integer_is_read_up_to_its_limits() {
        for number in [i64::MIN, -10, -1, 0, 1, 9, 10, i64::MAX] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "-0", "00", "01", "-01", "+1", " 1", "1 ", "1a", "1-", "a"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
        for text in ["9223372036854775808", "-9223372036854775809", "92233720368547758070"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
