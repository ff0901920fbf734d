//! The end of a ring that messages are put into.
//!
//! 1. A staged message is visible to nobody until [`Producer::publish`] stores the tail, once for
//!    all of it.
//! 2. Staged messages never reach over what the consumer still holds.
//!
//! Belongs to one thread at a time.

use super::bytes::{Broken, HEAD, HEADER_BYTES, Ring, TAIL, is_between, message_bytes};
use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;

/// Why a message was not taken. Nothing of it was staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The consumer has to release something first.
    #[error("the ring is full: wait until the other side has read")]
    Full,
    /// It never fits: longer than the ring's biggest payload.
    #[error("a message of {bytes} bytes, where {most} are the most: send it by reference")]
    TooLong {
        /// Length of the payload.
        bytes: u64,
        /// The longest payload.
        most: u64,
    },
    /// The consumer doesn't keep the rules.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// The producer's end of a ring.
pub struct Producer<W = HeapWords> {
    ring: Ring<W>,
    /// The end of what is written.
    staged: u64,
    /// The end of what is visible: the tail.
    published: u64,
    /// The head as last seen.
    head: u64,
    /// Where the message begins that was staged last.
    last: u64,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> Producer<W> {
    pub(crate) fn new(ring: Ring<W>) -> Producer<W> {
        Producer { ring, staged: 0, published: 0, head: 0, last: 0 }
    }

    /// Bytes of the longest payload.
    #[must_use]
    pub fn most_payload(&self) -> u64 {
        self.ring.most_payload()
    }

    /// Bytes of the longest payload that can be staged now.
    ///
    /// # Errors
    /// [`Broken`] if the consumer doesn't keep the rules.
    pub fn room(&mut self) -> Result<u64, Broken> {
        if self.free() < message_bytes(self.most_payload()) {
            self.look()?;
        }
        Ok(self.free().saturating_sub(HEADER_BYTES).min(self.most_payload()))
    }

    /// Bytes that are free now, headers included.
    ///
    /// # Errors
    /// [`Broken`] if the consumer doesn't keep the rules.
    pub(crate) fn free_bytes(&mut self) -> Result<u64, Broken> {
        self.look()?;
        Ok(self.free())
    }

    /// Whether anything is staged and not yet published.
    #[must_use]
    pub fn has_staged(&self) -> bool {
        self.staged != self.published
    }

    /// Writes a message of the joined `parts` behind what is staged.
    ///
    /// # Errors
    /// [`PushError`]; nothing has changed then.
    #[inline]
    pub fn try_push(&mut self, kind: u16, flags: u16, parts: &[&[u8]]) -> Result<(), PushError> {
        self.push(kind, flags, None, parts)
    }

    /// The same, with a word in front of the parts.
    #[inline]
    pub(crate) fn push(
        &mut self,
        kind: u16,
        flags: u16,
        lead: Option<u64>,
        parts: &[&[u8]],
    ) -> Result<(), PushError> {
        let joined: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = joined as u64 + if lead.is_some() { 8 } else { 0 };
        let most = self.most_payload();
        let length = match u32::try_from(bytes) {
            Ok(length) if bytes <= most => length,
            _ => return Err(PushError::TooLong { bytes, most }),
        };
        let size = message_bytes(bytes);
        if self.free() < size {
            self.look()?;
            if self.free() < size {
                return Err(PushError::Full);
            }
        }
        let header = u64::from(length) | u64::from(kind) << 32 | u64::from(flags) << 48;
        self.ring.set_word(self.staged, header);
        let mut filler =
            Filler { ring: &self.ring, at: self.staged + HEADER_BYTES, word: 0, bits: 0 };
        if let Some(lead) = lead {
            filler.add_word(lead);
        }
        for part in parts {
            filler.add(part);
        }
        filler.end();
        self.last = self.staged;
        self.staged += size;
        Ok(())
    }

    /// Adds the joined `parts` to the payload of the message that was staged last, which is not
    /// published yet. They begin at its next whole word; the bytes between are 0.
    ///
    /// # Errors
    /// [`PushError`]; nothing has changed then.
    ///
    /// # Panics
    /// If nothing is staged.
    #[inline]
    pub(crate) fn extend(&mut self, parts: &[&[u8]]) -> Result<(), PushError> {
        assert!(self.has_staged(), "what is published is not changed");
        let joined: usize = parts.iter().map(|part| part.len()).sum();
        let at = self.staged;
        let bytes = at - self.last - HEADER_BYTES + joined as u64;
        let most = self.most_payload();
        let length = match u32::try_from(bytes) {
            Ok(length) if bytes <= most => length,
            _ => return Err(PushError::TooLong { bytes, most }),
        };
        let size = message_bytes(bytes) - (at - self.last);
        if self.free() < size {
            self.look()?;
            if self.free() < size {
                return Err(PushError::Full);
            }
        }
        let rest = self.ring.word(self.last) & !u64::from(u32::MAX);
        self.ring.set_word(self.last, rest | u64::from(length));
        let mut filler = Filler { ring: &self.ring, at, word: 0, bits: 0 };
        for part in parts {
            filler.add(part);
        }
        filler.end();
        self.staged += size;
        Ok(())
    }

    /// Makes all that is staged visible, by one store; tells whether there was anything.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if !self.has_staged() {
            return false;
        }
        // SYNC(ring-tail): a consumer that loads this tail sees the messages before it, and all
        // that this thread did before.
        self.ring.store(TAIL, self.staged, Ordering::Release);
        self.published = self.staged;
        true
    }

    /// Whether the consumer has yet to give something back of what was published.
    ///
    /// # Errors
    /// [`Broken`] if the consumer doesn't keep the rules.
    pub(crate) fn has_untaken(&mut self) -> Result<bool, Broken> {
        self.look()?;
        Ok(self.head != self.published)
    }

    /// Takes back all that was ever published, so that its bytes may be changed: a consumer that
    /// looks from now on finds a fault, or nothing if nothing was published.
    pub(crate) fn withdraw(&mut self) {
        // SYNC(ring-end): a consumer that has copied a byte which is changed afterwards sees this
        // tail when it confirms the copy.
        self.ring.store(TAIL, 0, Ordering::SeqCst);
    }

    #[inline]
    fn free(&self) -> u64 {
        self.ring.capacity() - (self.staged - self.head)
    }

    /// Looks how far the consumer is.
    fn look(&mut self) -> Result<(), Broken> {
        // SYNC(ring-head): the consumer has copied what is before this head.
        let head = self.ring.load(HEAD, Ordering::Acquire);
        if !is_between(head, self.head, self.published) {
            return Err(Broken::Position {
                whose: "consumer",
                found: head,
                low: self.head,
                high: self.published,
            });
        }
        self.head = head;
        Ok(())
    }
}

/// Joins parts of any length to words.
struct Filler<'a, W> {
    ring: &'a Ring<W>,
    at: u64,
    /// Bytes that don't fill a word yet.
    word: u64,
    /// How many bits of it are taken: 0 to 56.
    bits: u32,
}

impl<W: SharedWords> Filler<'_, W> {
    #[inline]
    fn store(&mut self, word: u64) {
        self.ring.set_word(self.at, word);
        self.at += 8;
    }

    #[inline]
    fn add_word(&mut self, word: u64) {
        if self.bits == 0 {
            return self.store(word);
        }
        self.store(self.word | word << self.bits);
        self.word = word >> (64 - self.bits);
    }

    #[inline]
    fn add(&mut self, part: &[u8]) {
        let (words, rest) = part.as_chunks::<8>();
        if self.bits == 0 {
            self.ring.set_words(self.at, words);
            self.at += 8 * words.len() as u64;
            self.bits = rest.iter().map(|_| u8::BITS).sum();
            // By one load, if it can: what is gathered by bytes in memory, a load of the word would
            // wait for.
            self.word = match part.last_chunk() {
                Some(last) => u64::from_le_bytes(*last).checked_shr(64 - self.bits).unwrap_or(0),
                None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            return;
        }
        for word in words {
            self.add_word(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.word |= u64::from(*byte) << self.bits;
            self.bits += 8;
            if self.bits == 64 {
                self.store(self.word);
                (self.word, self.bits) = (0, 0);
            }
        }
    }

    #[inline]
    fn end(mut self) {
        if self.bits > 0 {
            self.store(self.word);
        }
    }
}
