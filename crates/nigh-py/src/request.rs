//! A request that waits to be sent.
//!
//! Plain data: any thread.

/// A command and its arguments, in one piece of memory.
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Request {
    /// A copy of the words.
    pub(crate) fn of(words: &[&[u8]]) -> Request {
        let ends = words.iter().scan(0, |end, word| {
            *end += word.len();
            Some(*end)
        });
        Request { ends: ends.collect(), bytes: words.concat() }
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
