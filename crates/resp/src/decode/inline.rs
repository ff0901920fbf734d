//! Lines of words with quotes, as people type them: inline commands to a server (telnet), and
//! command lines of a client.
//!
//! ```text
//! SET 'my key' "line\n\x00"      white space separates; quotes group
//! ```
//!
//! 1. Inside double quotes `\n \r \t \b \a \xHH` and `\` before any other byte are escapes. Inside
//!    single quotes only `\'` is one. A closing quote ends its word.
//! 2. These are Redis's rules, with one exception: a NUL byte is a byte like any other (Redis waits
//!    for ever).
//! 3. Words are bytes: escapes may make any byte.
//! 4. A word without quotes is a range of the input. A word with quotes is unescaped into the side
//!    buffer.
//!
//! Any thread.

use super::command_batch::{Batch, Range};

/// Why a line can't be split into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordsError {
    /// The line ends inside double quotes.
    #[error("a double quote has no end")]
    OpenDouble,
    /// The line ends inside single quotes.
    #[error("a single quote has no end")]
    OpenSingle,
    /// A word goes on right behind a closing quote.
    #[error("a closing quote must be followed by a blank")]
    Glued,
}

/// Splits a line into words; none if it is blank.
///
/// # Errors
/// A quote has no end, or its word goes on behind it.
///
/// # Panics
/// If the line has 2 GiB or more.
pub fn split_words(line: &[u8]) -> Result<Vec<Vec<u8>>, WordsError> {
    assert!(line.len() < 1 << 31, "a line is bounded by 2^31 bytes");
    let mut batch = Batch::new();
    split(line, 0, &mut batch)?;
    batch.close(0);
    Ok(batch.args(0).iter(line).map(<[u8]>::to_vec).collect())
}

/// Whether a byte separates words, and may follow a closing quote: C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Whether a byte ends a word outside quotes: fewer bytes do than separate words, as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Splits `line`, which starts at `base` in the input, into ranges, and appends them to the batch.
/// After an error the batch may have ranges that belong to no command.
pub(super) fn split(line: &[u8], base: usize, batch: &mut Batch) -> Result<(), WordsError> {
    let mut at = 0;
    while let Some(word) = line.get(at..) {
        let spaces = word.iter().take_while(|byte| is_space(**byte)).count();
        at += spaces;
        let Some(word) = word.get(spaces..).filter(|word| !word.is_empty()) else { break };
        let ends = |byte: &u8| ends_word(*byte) || matches!(byte, b'"' | b'\'');
        let (plain, rest) = word.split_at(word.iter().position(ends).unwrap_or(word.len()));
        let after = match rest {
            [b'"', quoted @ ..] => unquoted(plain, quoted, double_quoted, batch)?,
            [b'\'', quoted @ ..] => unquoted(plain, quoted, single_quoted, batch)?,
            rest => {
                batch.ranges.push(Range::input(base + at, plain.len()));
                rest
            }
        };
        at += word.len() - after.len();
    }
    Ok(())
}

/// Reads a quoted part up to its end; returns the rest of the line.
type Unquote = for<'a> fn(&'a [u8], &mut Vec<u8>) -> Result<&'a [u8], WordsError>;

/// Appends a word with quotes: `plain` before the opening quote, then the part that `read`
/// unquotes. A closing quote ends the word.
fn unquoted<'a>(
    plain: &[u8],
    quoted: &'a [u8],
    read: Unquote,
    batch: &mut Batch,
) -> Result<&'a [u8], WordsError> {
    let start = batch.side.len();
    batch.side.extend_from_slice(plain);
    let after = read(quoted, &mut batch.side)?;
    batch.ranges.push(Range::side(start, batch.side.len() - start));
    Ok(after)
}

/// Reads up to a closing `"`; returns the rest of the line.
fn double_quoted<'a>(mut rest: &'a [u8], side: &mut Vec<u8>) -> Result<&'a [u8], WordsError> {
    loop {
        rest = match rest {
            [b'"', after @ ..] => return closed(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                side.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                side.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                side.push(*byte);
                after
            }
            [] => return Err(WordsError::OpenDouble),
        };
    }
}

/// Reads up to a closing `'`; returns the rest of the line.
fn single_quoted<'a>(mut rest: &'a [u8], side: &mut Vec<u8>) -> Result<&'a [u8], WordsError> {
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return closed(after),
            [b'\\', b'\'', after @ ..] => {
                side.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                side.push(*byte);
                after
            }
            [] => return Err(WordsError::OpenSingle),
        };
    }
}

fn closed(after: &[u8]) -> Result<&[u8], WordsError> {
    match after.first() {
        Some(byte) if !is_space(*byte) => Err(WordsError::Glued),
        _ => Ok(after),
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
