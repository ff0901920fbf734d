//! A request that waits to be sent.
//!
//! Plain data: any thread.

use nigh_client::{CallError, check_words};

/// A command and its arguments, in one piece of memory.
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Request {
    /// A copy of the words; an error if one can't be sent, or the system gives no memory.
    pub(crate) fn of(words: &[&[u8]]) -> Result<Request, CallError> {
        check_words(words)?;
        let (mut bytes, len) = (Vec::new(), words.iter().map(|word| word.len()).sum());
        bytes.try_reserve_exact(len).map_err(|_| CallError::NoMemory {
            command: words
                .first()
                .map_or_else(String::new, |it| String::from_utf8_lossy(it).into()),
            bytes: len,
        })?;
        words.iter().for_each(|word| bytes.extend_from_slice(word));
        let ends = words.iter().scan(0, |end, word| {
            *end += word.len();
            Some(*end)
        });
        Ok(Request { ends: ends.collect(), bytes })
    }

    /// The command and its arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[*begin..*end])
    }

    /// The command's name.
    pub(crate) fn command(&self) -> &[u8] {
        self.words().next().unwrap_or_default()
    }
}
