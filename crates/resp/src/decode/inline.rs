//! Inline commands: a line of words, with quotes, as a person types it into telnet.
//!
//! A word without quotes is a range of the input. One with quotes is unescaped into the side
//! buffer. Inside double quotes `\n \r \t \b \a \xHH` and `\` before any other byte are escapes;
//! inside single quotes only `\'`. A closing quote must end its word. These are Redis's rules, but
//! for a NUL byte, which is a byte like any other here (Redis waits for ever).

use super::batch::{Batch, Range};

/// A quote that never closes, or closes inside a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// What C's `isspace` calls space: separates words, and must follow a closing quote.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// What ends a word outside quotes: fewer than separate words, as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Splits `line`, which starts at `base` in the input, into ranges appended to the batch. On an
/// error some may have been appended, which are no command's.
pub(super) fn split(line: &[u8], base: usize, batch: &mut Batch) -> Result<(), Unbalanced> {
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

/// Reads a quoted part up to its end; gives what follows it.
type Unquote = for<'a> fn(&'a [u8], &mut Vec<u8>) -> Result<&'a [u8], Unbalanced>;

/// Appends a word without its quotes: what stands before them, and what `read` makes of the rest. A
/// closing quote ends the word, so there is no more of it.
fn unquoted<'a>(
    plain: &[u8],
    quoted: &'a [u8],
    read: Unquote,
    batch: &mut Batch,
) -> Result<&'a [u8], Unbalanced> {
    let start = batch.side.len();
    batch.side.extend_from_slice(plain);
    let after = read(quoted, &mut batch.side)?;
    batch.ranges.push(Range::side(start, batch.side.len() - start));
    Ok(after)
}

/// Reads up to a closing `"`; gives what follows it.
fn double_quoted<'a>(mut rest: &'a [u8], side: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
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
            [] => return Err(Unbalanced),
        };
    }
}

/// Reads up to a closing `'`; gives what follows it.
fn single_quoted<'a>(mut rest: &'a [u8], side: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
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
            [] => return Err(Unbalanced),
        };
    }
}

fn closed(after: &[u8]) -> Result<&[u8], Unbalanced> {
    match after.first() {
        Some(byte) if !is_space(*byte) => Err(Unbalanced),
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
