//! Words and numbers in a command's arguments.
//!
//! Any thread.

pub(crate) use nigh_store::integer;

/// An integer that isn't negative.
pub(crate) fn natural(text: &[u8]) -> Option<u64> {
    integer(text).and_then(|number| u64::try_from(number).ok())
}

/// Whether an argument is a word, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
