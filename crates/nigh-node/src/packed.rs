//! What JavaScript packs into one buffer, so that a request takes one call.
//!
//! ```text
//! request:  flags u8 | words u32 | word, word, …      word: bytes u32 | its bytes
//! keys:     word, word, …                             numbers: little-endian
//! ```
//!
//! `requests.js` writes it. Plain data.

/// Flag: it changes nothing, so it may be sent again.
const READS: u8 = 1;
/// Flag: its texts are wanted as bytes.
const AS_BYTES: u8 = 2;

/// A request.
pub(crate) struct Request<'p> {
    pub(crate) reads: bool,
    pub(crate) as_bytes: bool,
    pub(crate) words: Vec<&'p [u8]>,
}

/// What isn't unpacked yet.
struct Rest<'p>(&'p [u8]);

impl<'p> Rest<'p> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        usize::try_from(u32::from_le_bytes(*number)).ok()
    }

    fn word(&mut self) -> Option<&'p [u8]> {
        let len = self.number()?;
        let (word, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(word)
    }

    fn request(&mut self) -> Option<Request<'p>> {
        let (flags, rest) = self.0.split_first()?;
        self.0 = rest;
        let words = (0..self.number()?).map(|_| self.word()).collect::<Option<_>>()?;
        Some(Request { reads: flags & READS != 0, as_bytes: flags & AS_BYTES != 0, words })
    }
}

/// The requests; `None` if they aren't packed as they should be.
pub(crate) fn requests(packed: &[u8]) -> Option<Vec<Request<'_>>> {
    let (mut rest, mut requests) = (Rest(packed), Vec::new());
    while !rest.0.is_empty() {
        requests.push(rest.request().filter(|it| !it.words.is_empty())?);
    }
    Some(requests)
}

/// The keys; `None` if they aren't packed as they should be.
pub(crate) fn keys(packed: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut rest, mut keys) = (Rest(packed), Vec::new());
    while !rest.0.is_empty() {
        keys.push(rest.word()?);
    }
    Some(keys)
}
