//! Reads arguments of clients: integers, options, cursors.
//!
//! 1. As strict as Redis: an integer has no sign `+`, no leading zero and no space, so each number
//!    has one spelling.
//! 2. An option ends at a zero byte, since Redis compares options as C strings.
//!
//! Thread: any; it is pure.

/// Longest spelling of an `i64`: sign and 19 digits.
const MAX_INTEGER_BYTES: usize = 20;

/// Longest part of a client's argument that an error repeats. Redis has no bound here. Without one,
/// a single command could fill a reply buffer.
const MAX_ECHO_BYTES: usize = 1024;

/// The integer that `text` spells (Redis's `string2ll`).
#[inline]
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    if text.len() > MAX_INTEGER_BYTES {
        return None;
    }
    let (negative, digits) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    let mut magnitude = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// True if `argument` is the option `name` in any case. `name` is in upper case.
#[inline]
pub(crate) fn is_option(argument: &[u8], name: &str) -> bool {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    argument[..end].eq_ignore_ascii_case(name.as_bytes())
}

/// A SCAN cursor as C's `strtoul` reads it: an optional sign, digits, and nothing behind them. The
/// empty string is 0. A minus wraps around.
pub(crate) fn cursor(argument: &[u8]) -> Option<u64> {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    let (negative, digits) = match &argument[..end] {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

/// A client's argument as an error repeats it: on one line, up to a zero byte, bounded.
pub(crate) fn echo(argument: &[u8], limit_bytes: usize) -> String {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    let shown = &argument[..end.min(limit_bytes).min(MAX_ECHO_BYTES)];
    String::from_utf8_lossy(shown).replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each integer has one spelling. Other ways to write it are refused.
    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "+1",
            "01",
            "-0",
            "-",
            "--1",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "a",
            "1a",
            "00",
            "-01",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "1\0",
            "184467440737095516160",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    /// The spelling of every integer is read back as that integer.
    #[test]
    fn every_spelled_integer_is_read_back() {
        let mut value = 1_u64;
        for _ in 0..10_000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let wanted = i64::from_ne_bytes((value >> (value % 64)).to_ne_bytes());
            assert_eq!(integer(wanted.to_string().as_bytes()), Some(wanted));
        }
    }

    /// A cursor is any text that strtoul reads to its end.
    #[test]
    fn cursors_are_what_strtoul_takes() {
        for (text, value) in [
            ("0", 0),
            ("", 0),
            ("007", 7),
            ("+5", 5),
            ("-1", u64::MAX),
            ("18446744073709551615", u64::MAX),
            ("3\0x", 3),
        ] {
            assert_eq!(cursor(text.as_bytes()), Some(value), "{text:?}");
        }
        for text in ["a", "-", "+", " 1", "1 ", "1a", "18446744073709551616", "+-1"] {
            assert_eq!(cursor(text.as_bytes()), None, "{text:?}");
        }
    }

    /// An option is read in any case and ends at a zero byte, as a C string does.
    #[test]
    fn options_are_compared_as_c_strings() {
        assert!(is_option(b"nx", "NX"));
        assert!(is_option(b"Nx\0junk", "NX"));
        assert!(!is_option(b"nxx", "NX"));
        assert!(!is_option(b"", "NX"));
    }

    /// An argument that an error repeats can neither break the protocol nor fill a reply.
    #[test]
    fn echoes_stay_on_one_line_and_short() {
        assert_eq!(echo(b"a\r\nb\0c", 128), "a  b");
        assert_eq!(echo(&[b'x'; 100_000], usize::MAX).len(), MAX_ECHO_BYTES);
        assert_eq!(echo(b"\xff", 128), "\u{fffd}");
    }
}
