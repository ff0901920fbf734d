//! The words of a line as numbers, times and switches.

use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Units of a time, in milliseconds.
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("", 1000)];

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// A time: `10` or `10s`, `500ms`, `5m`, `2h`, `7d`.
pub(super) fn time(word: &[u8]) -> Result<Duration> {
    let text = text(word);
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = UNITS.iter().find(|it| it.0 == unit).map(|it| it.1);
    let ms = number.parse::<u64>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(factor));
    match ms {
        Some(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
        _ => bail!("`{text}` is no time: write 10 for seconds, or 500ms, 10s, 5m, 2h, 7d"),
    }
}

/// A number of at least one.
pub(super) fn count(word: &[u8]) -> Result<u32> {
    let count = text(word).parse().ok().filter(|count| *count > 0);
    count.with_context(|| format!("`{}` is no count: write 1 to {}", text(word), u32::MAX))
}

/// A number to add.
pub(super) fn addend(word: &[u8]) -> Result<i64> {
    let number = text(word).parse().ok();
    number.with_context(|| format!("`{}` is no integer of 64 bits: write one to add", text(word)))
}

/// `on` or `off`.
pub(super) fn switch(word: &[u8]) -> Result<bool> {
    match word {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => bail!("`{}` is no switch: write on or off", text(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time has a unit or is in seconds; what isn't one is named, and what to write instead.
    #[test]
    fn times_have_units() {
        for (word, ms) in [("10", 10_000), ("500ms", 500), ("2h", 7_200_000), ("1d", 86_400_000)] {
            assert_eq!(time(word.as_bytes()).expect(word), Duration::from_millis(ms));
        }
        for word in ["", "0", "-1", "s", "1.5s", "5 m", "5w", "99999999999999999d"] {
            let error = time(word.as_bytes()).expect_err(word).to_string();
            assert!(error.contains(&format!("`{word}` is no time")), "{error}");
        }
    }

    /// Counts are at least one, and sums may go down.
    #[test]
    fn numbers_are_in_their_bounds() {
        assert_eq!(count(b"7").expect("one"), 7);
        assert!(count(b"0").is_err() && count(b"4294967296").is_err() && count(b"x").is_err());
        assert_eq!(addend(b"-7").expect("one"), -7);
        assert!(addend(b"9223372036854775808").is_err());
        assert!(switch(b"on").expect("one") && switch(b"ON").is_err());
    }
}
