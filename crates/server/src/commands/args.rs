//! Words and numbers in a command's arguments.
//!
//! Any thread.

/// An integer as Redis reads one: digits with an optional minus, nothing else.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" && text == "0" || !digits.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// The same, if it isn't negative.
pub(crate) fn natural(text: &[u8]) -> Option<u64> {
    integer(text).and_then(|number| u64::try_from(number).ok())
}

/// Whether an argument is a word, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
