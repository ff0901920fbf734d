//! A command line as people type it, split into arguments.
//!
//! ```text
//! SET 'my key' "line\n\x00"      white space separates; quotes group
//! ```
//!
//! Invariants:
//! 1. Inside double quotes `\n \r \t \a \b \xHH` and an escaped other character mean what they mean
//!    in redis-cli; inside single quotes only `\'` does.
//! 2. Arguments are bytes: escapes may make any.

/// Why a command line can't be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordsError {
    /// The text ends inside double quotes.
    #[error("a double quote has no end")]
    OpenDouble,
    /// The text ends inside single quotes.
    #[error("a single quote has no end")]
    OpenSingle,
    /// More of a word stands right behind a closing quote.
    #[error("a closing quote must be followed by a blank")]
    Glued,
}

/// Splits `text` into arguments; none if it is blank.
///
/// # Errors
/// A quote has no end, or its word goes on behind it.
pub fn split_words(text: &str) -> Result<Vec<Vec<u8>>, WordsError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start().as_bytes();
    while !rest.is_empty() {
        let mut word = Vec::new();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => break,
                b'"' => rest = double_quoted(after, &mut word)?,
                b'\'' => rest = single_quoted(after, &mut word)?,
                other => {
                    word.push(other);
                    rest = after;
                }
            }
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Ok(words)
}

/// Takes the text up to the closing quote; returns what follows it.
fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], WordsError> {
    loop {
        match rest {
            [b'"', after @ ..] => return after_quote(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(WordsError::OpenDouble),
        }
    }
}

/// Takes the text up to the closing quote; returns what follows it.
fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], WordsError> {
    loop {
        match rest {
            [b'\'', after @ ..] => return after_quote(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(WordsError::OpenSingle),
        }
    }
}

/// A closing quote must end the word: what follows it at once is a slip.
fn after_quote(rest: &[u8]) -> Result<&[u8], WordsError> {
    if rest.first().is_none_or(u8::is_ascii_whitespace) { Ok(rest) } else { Err(WordsError::Glued) }
}

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = split_words(text).expect("well-formed");
        words.iter().map(|word| word.escape_ascii().to_string()).collect()
    }

    /// Blanks separate, quotes group, escapes make any byte.
    #[test]
    fn arguments_are_split_as_in_redis_cli() {
        assert_eq!(words("  SET  a\tb "), ["SET", "a", "b"]);
        assert_eq!(words(r#"SET "a b" ''"#), ["SET", "a b", ""]);
        assert_eq!(words(r#"ECHO "\x00\xfF\n\q\"""#), ["ECHO", r#"\x00\xff\nq\""#]);
        assert_eq!(words(r"ECHO 'it\'s \n'"), ["ECHO", r"it\'s \\n"]);
        assert_eq!(words(""), Vec::<String>::new());
    }

    /// A quote without end, or with something glued to it, is refused.
    #[test]
    fn broken_quotes_are_refused() {
        for text in ["SET 'a", "SET \"a", "SET \"a\"b", "SET 'a'b", "\"\\"] {
            assert!(split_words(text).is_err(), "{text}");
        }
    }
}
