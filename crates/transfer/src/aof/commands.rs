//! Reads the commands of an AOF one after the other.
//!
//! ```text
//! #TS:1700000000          a line of its own: when the next commands came
//! *3 $3 SET $1 k $1 v     arrays of bulk strings
//! ```
//!
//! Bounds: a command has at most [`WORDS_MAX`] words and [`COMMAND_BYTES_MAX`] bytes, and takes
//! memory as its bytes arrive.
//!
//! Any thread; one at a time.

use std::io::Read;

use crate::source::{Input, SourceError};

/// Most words of a command, as in Redis.
const WORDS_MAX: u64 = 1 << 20;
/// Most bytes of a command: what Redis takes from a client at most.
const COMMAND_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a line: a count, or an annotation.
const LINE_BYTES: usize = 1024;
/// Kept between commands; a longer one's memory is given back.
const KEPT_BYTES: usize = 1 << 20;

/// The words of one command.
#[derive(Clone, Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    /// How many words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The word at `at`; empty if there are fewer.
    pub fn get(&self, at: usize) -> &[u8] {
        let end = self.ends.get(at).copied().unwrap_or(0);
        let begin = at.checked_sub(1).and_then(|at| self.ends.get(at)).copied().unwrap_or(0);
        self.bytes.get(begin..end).unwrap_or_default()
    }

    /// All words.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| self.get(at))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.ends.clear();
    }
}

/// A reader of commands.
pub struct AofReader<R> {
    input: Input<R>,
    line: Vec<u8>,
}

impl<R: Read> AofReader<R> {
    /// Reads from the input's next byte on.
    pub fn new(input: Input<R>) -> Self {
        Self { input, line: Vec::new() }
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Reads the next command; false at the end of the file.
    ///
    /// # Errors
    /// [`SourceError::Ended`] if the file ends within the command, [`SourceError::Malformed`].
    pub fn next_command(&mut self, words: &mut Words) -> Result<bool, SourceError> {
        words.clear();
        loop {
            match self.input.peek(1)? {
                [] => return Ok(false),
                [b'#'] => self.read_line()?,
                _ => break,
            }
        }
        let begin = self.input.offset();
        let malformed = |what: String| SourceError::Malformed { offset: begin, what };
        let count = self.number(b'*')?;
        if !(1..=WORDS_MAX).contains(&count) {
            return Err(malformed(format!("a command of {count} words")));
        }
        let mut bytes = 0;
        for _ in 0..count {
            let len = self.number(b'$')?;
            bytes += len.min(COMMAND_BYTES_MAX);
            if len > COMMAND_BYTES_MAX || bytes > COMMAND_BYTES_MAX {
                return Err(malformed("a command of more than 1 GiB".into()));
            }
            self.input.append(len, "a command", &mut words.bytes)?;
            words.ends.push(words.bytes.len());
            let at = self.input.offset();
            if self.input.array("a command")? != *b"\r\n" {
                let what = "no end of line behind a word".into();
                return Err(SourceError::Malformed { offset: at, what });
            }
        }
        Ok(true)
    }

    fn read_line(&mut self) -> Result<(), SourceError> {
        self.line.clear();
        self.input.line(LINE_BYTES, "a command", &mut self.line)
    }

    /// A line that is `mark` and a number.
    fn number(&mut self, mark: u8) -> Result<u64, SourceError> {
        let offset = self.input.offset();
        self.read_line()?;
        let number = self.line.strip_prefix(&[mark]).and_then(|digits| {
            let is_short = (1..=19).contains(&digits.len());
            let is_number = is_short && digits.iter().all(u8::is_ascii_digit);
            is_number.then(|| digits.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
        });
        number.ok_or_else(|| {
            let (mark, found) = (char::from(mark), self.line.escape_ascii());
            let what = format!("'{found}' instead of '{mark}' and a number");
            SourceError::Malformed { offset, what }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Result<(), SourceError>) {
        let mut reader = AofReader::new(Input::new(bytes, 0));
        let (mut words, mut found) = (Words::default(), Vec::new());
        loop {
            match reader.next_command(&mut words) {
                Ok(true) => found.push(words.iter().map(<[u8]>::to_vec).collect()),
                Ok(false) => return (found, Ok(())),
                Err(error) => return (found, Err(error)),
            }
        }
    }

    /// Words may hold anything, and annotations are passed over.
    #[test]
    fn commands_come_out_word_by_word() {
        let bytes = b"#TS:17\r\n*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n*1\r\n$4\r\nMULT\r\n";
        let (found, outcome) = all(bytes);
        outcome.expect("it is sound");
        assert_eq!(found[0], [&b"SET"[..], b"\r\n", b""]);
        assert_eq!(found[1], [b"MULT"]);
    }

    /// A file that ends within a command, and one with other bytes, are told apart.
    #[test]
    fn an_end_isnt_damage() {
        let whole = b"*1\r\n$4\r\nPING\r\n";
        for cut in 1..whole.len() {
            let (found, outcome) = all(&whole[..cut]);
            assert!(found.is_empty() && outcome.expect_err("it is cut").is_end(), "{cut}");
        }
        for broken in
            [&b"+OK\r\n"[..], b"*0\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$1\r\nabc", b"*1\r\n:1\r\n"]
        {
            let error = all(broken).1.expect_err("it is damaged");
            assert!(!error.is_end(), "{error}");
        }
        let huge = b"*2\r\n$1\r\na\r\n$99999999999\r\n";
        assert!(all(huge).1.expect_err("too long").to_string().contains("offset 0: a command of"));
    }
}
