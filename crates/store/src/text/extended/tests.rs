//! The digits that Redis gives.

use super::*;

fn sum(left: &str, right: &str) -> Option<String> {
    let sum = Extended::parse(left.as_bytes())?.add(Extended::parse(right.as_bytes())?)?;
    let mut out = Vec::new();
    sum.print(&mut out);
    Some(String::from_utf8(out).expect("digits"))
}

/// Sums look as a person expects, since 64 bits of significand outlast 17 decimals.
#[test]
fn sums_are_printed_as_people_wrote_them() {
    for (left, right, wanted) in [
        ("0.1", "0.2", "0.3"),
        ("10.50", "0.1", "10.6"),
        ("3.0", "1.1", "4.1"),
        ("5.0e3", "2.0e2", "5200"),
        ("1", "-1", "0"),
        ("-0", "-0", "0"),
        ("-1e-30", "0", "0"),
        ("0", "-.5", "-0.5"),
        ("1.", "+1", "2"),
        ("0x1p3", "0X.8", "8.5"),
        ("1e-17", "0", "0.00000000000000001"),
        ("4e-18", "0", "0"),
        ("100", "1e17", "100000000000000100"),
        ("-100", "0.5", "-99.5"),
    ] {
        assert_eq!(sum(left, right).as_deref(), Some(wanted), "{left} + {right}");
    }
}

/// Beyond 64 bits values are rounded as the x87 rounds.
#[test]
fn rounding_is_to_64_bits_ties_to_even() {
    for (left, right, wanted) in [
        ("18446744073709551615", "0", "18446744073709551615"),
        ("18446744073709551617", "0", "18446744073709551616"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("18446744073709551616", "3", "18446744073709551620"),
        ("18446744073709551616", "1.0001", "18446744073709551618"),
        ("9007199254740993", "0.5", "9007199254740993.5"),
        ("1e20", "-1e-20", "100000000000000000000"),
        ("1.1", "0", "1.10000000000000000"),
    ] {
        let wanted = if wanted.contains('.') { wanted.trim_end_matches('0') } else { wanted };
        assert_eq!(sum(left, right).as_deref(), Some(wanted), "{left} + {right}");
    }
}

/// Text that `strtold` doesn't read to its end is refused, and so is text without a finite value.
#[test]
fn what_is_no_float_is_refused() {
    for text in [
        "",
        " 1",
        "1 ",
        "a",
        "1a",
        "1e",
        "1e+",
        "--1",
        "+-1",
        ".",
        "e5",
        "0x",
        "0xp1",
        "nan",
        "infi",
        "1e5000",
        "-1e5000",
        "1e-5000",
        "1e99999999999999999999",
        "1\0",
        "1.2.3",
        "1,5",
        "0x1e5p",
    ] {
        assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(Extended::parse(&[b'1'; MAX_TEXT_BYTES + 1]), None);
    assert_eq!(sum("inf", "1"), None);
    assert_eq!(sum("inf", "-inf"), None);
    assert_eq!(sum("1.1e4932", "1.1e4932"), None);
}

/// The ends of the range are exact: the largest value has 4,933 digits, the smallest is above 0.
#[test]
fn the_ends_of_the_range_are_read_and_printed() {
    let largest = sum("1.18973149535723176502e4932", "0").expect("finite");
    assert_eq!(largest.len(), 4933);
    assert!(largest.starts_with("11897314953572317650"), "{largest}");
    let Some(Extended::Finite { significand, exponent, .. }) = Extended::parse(b"3.7e-4951") else {
        panic!("the smallest subnormal is a float");
    };
    assert_eq!((significand, exponent), (1, MIN_EXPONENT));
    assert_eq!(Extended::parse(b"1e-4952"), None, "rounds to zero, which strtold reports");
    assert!(Extended::parse(b"0e-99999999999").is_some(), "zero is zero at any scale");
}

/// Digits that a 64-bit integer holds are printed as they were read.
#[test]
fn integers_of_64_bits_come_back() {
    let mut seed = 1_u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let text = (seed >> (seed % 64)).to_string();
        assert_eq!(sum(&text, "0"), Some(text.clone()));
        let shifted = format!("{text}.5");
        if text.len() < 19 {
            assert_eq!(sum(&text, "0.5"), Some(shifted));
        }
    }
}

/// Doubles are a subset: a double that Rust prints with 17 significant digits is read as that
/// double by both.
#[test]
fn doubles_agree_with_rusts_parser() {
    let mut seed = 7_u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let double = f64::from_bits(seed);
        if !double.is_normal() {
            continue;
        }
        // The shortest exact form of a double times a power of two is its hexadecimal one.
        let bits = double.to_bits();
        let hex = format!(
            "0x1.{:013x}p{}",
            bits & ((1 << 52) - 1),
            i64::try_from(bits >> 52 & 0x7ff).expect("11 bits") - 1023
        );
        let Some(Extended::Finite { significand, exponent, .. }) = Extended::parse(hex.as_bytes())
        else {
            panic!("{hex}");
        };
        // Decimal with all digits of the double is exact, so it must give the same value.
        let exact = Extended::parse(format!("{:e}", double.abs()).as_bytes());
        let Some(Extended::Finite { significand: near, exponent: near_exponent, .. }) = exact
        else {
            panic!("{double:e}");
        };
        // The shortest decimal names the double among doubles: within half its spacing, 2^10.
        assert_eq!(exponent, near_exponent, "{double:e}");
        assert!(significand.abs_diff(near) <= 1 << 10, "{double:e}");
    }
}

/// Texts of any length are read to the last digit. Five thousand digits once took milliseconds,
/// since each digit was multiplied into a number of all before it.
#[test]
fn the_last_digit_of_the_longest_texts_counts() {
    let longest = |front: &str, middle: &str, last: &str| {
        let count = MAX_TEXT_BYTES - front.len() - last.len();
        format!("{front}{}{last}", middle.repeat(count))
    };
    for (text, wanted) in [
        (longest("0.", "3", ""), "0.33333333333333333"),
        (longest("1.", "9", ""), "2"),
        (longest("", "0", "17.5"), "17.5"),
        // Halfway between two values of 64 bits rounds to even, unless a digit far behind isn't
        // zero.
        (longest("9223372036854775808.5", "0", ""), "9223372036854775808"),
        (longest("9223372036854775808.5", "0", "1"), "9223372036854775809"),
        (longest("18446744073709551617.", "0", ""), "18446744073709551616"),
        (longest("18446744073709551617.", "0", "1"), "18446744073709551618"),
    ] {
        assert_eq!(text.len(), MAX_TEXT_BYTES);
        assert_eq!(sum(&text, "0").as_deref(), Some(wanted), "{}…", &text[..30]);
    }
}
