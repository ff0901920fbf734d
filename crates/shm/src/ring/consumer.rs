//! The end of a ring that messages are taken from.
//!
//! 1. A payload is copied out; what the caller looks at, nobody else can change.
//! 2. The room of what was taken is given back by [`Consumer::release`] only, by one store for all
//!    of it.
//! 3. After an error the position is where it was: every further call finds the same fault.
//!
//! Belongs to one thread at a time.

use super::bytes::{Broken, HEAD, HEADER_BYTES, Ring, TAIL, is_between, message_bytes};
use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Bytes of the payload.
    pub length: u32,
    /// Its meaning, as the two sides agreed.
    pub kind: u16,
    /// As given to the producer.
    pub flags: u16,
}

/// The consumer's end of a ring.
pub struct Consumer<W = HeapWords> {
    ring: Ring<W>,
    /// The end of what was copied out.
    taken: u64,
    /// The end of what was given back: the head.
    released: u64,
    /// The tail as last seen.
    tail: u64,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> Consumer<W> {
    pub(crate) fn new(ring: Ring<W>) -> Consumer<W> {
        Consumer { ring, taken: 0, released: 0, tail: 0 }
    }

    /// Whether there is a message to take. Looks at the other side only if none is known of.
    ///
    /// # Errors
    /// [`Broken`] if the producer doesn't keep the rules.
    #[inline]
    pub fn has_message(&mut self) -> Result<bool, Broken> {
        if self.taken == self.tail {
            self.look()?;
        }
        Ok(self.taken != self.tail)
    }

    /// Takes the next message: replaces what `payload` holds.
    ///
    /// # Errors
    /// [`Broken`] if the producer doesn't keep the rules; nothing was taken then.
    #[inline]
    pub fn pop_into(&mut self, payload: &mut Vec<u8>) -> Result<Option<MessageHeader>, Broken> {
        payload.clear();
        let Some(header) = self.header(0)? else { return Ok(None) };
        self.copy(self.taken + HEADER_BYTES, u64::from(header.length), payload);
        self.taken += message_bytes(u64::from(header.length));
        Ok(Some(header))
    }

    /// The same of a message with a word in front of the payload, which is added to what `payload`
    /// holds.
    #[inline]
    pub(crate) fn pop_led(
        &mut self,
        payload: &mut Vec<u8>,
    ) -> Result<Option<(MessageHeader, u64)>, Broken> {
        let Some(header) = self.header(8)? else { return Ok(None) };
        let lead = self.ring.word(self.taken + HEADER_BYTES);
        self.copy(self.taken + HEADER_BYTES + 8, u64::from(header.length) - 8, payload);
        self.taken += message_bytes(u64::from(header.length));
        Ok(Some((header, lead)))
    }

    /// Adds the next message, a piece of a stream of bytes, to what `to` holds; false if there is
    /// none. A piece has one byte at least, the kind `kind` and no flags.
    #[inline]
    pub(crate) fn take_piece(&mut self, kind: u16, to: &mut Vec<u8>) -> Result<bool, Broken> {
        let Some(header) = self.header(1)? else { return Ok(false) };
        if (header.kind, header.flags) != (kind, 0) {
            let MessageHeader { kind, flags, .. } = header;
            return Err(Broken::Kind { position: self.taken, kind, flags });
        }
        self.copy(self.taken + HEADER_BYTES, u64::from(header.length), to);
        self.taken += message_bytes(u64::from(header.length));
        Ok(true)
    }

    /// Looks whether the producer still stands behind what was taken since the last release: it may
    /// have withdrawn all, and then the copies are worth nothing.
    ///
    /// # Errors
    /// [`Broken`] if it doesn't.
    #[inline]
    pub(crate) fn confirm(&mut self) -> Result<(), Broken> {
        if self.released == self.taken {
            return Ok(());
        }
        // SYNC(ring-end): the copies are made before this look at the tail.
        self.ring.fence(Ordering::Acquire);
        self.look()
    }

    /// Gives the room of all that was taken back, by one store; tells whether there was anything.
    #[inline]
    pub fn release(&mut self) -> bool {
        if self.released == self.taken {
            return false;
        }
        // SYNC(ring-head): the copies out of the ring happen before the producer writes there
        // again.
        self.ring.store(HEAD, self.taken, Ordering::Release);
        self.released = self.taken;
        true
    }

    /// The header of the next message, whose payload has at least `low` bytes.
    #[inline]
    fn header(&mut self, low: u64) -> Result<Option<MessageHeader>, Broken> {
        if !self.has_message()? {
            return Ok(None);
        }
        // Loaded once: what is checked is what is used.
        let word = self.ring.word(self.taken);
        #[expect(clippy::cast_possible_truncation, reason = "the fields of the word")]
        let header = MessageHeader {
            length: word as u32,
            kind: (word >> 32) as u16,
            flags: (word >> 48) as u16,
        };
        // A tail is past a whole header: positions are multiples of 8.
        let high = self.ring.most_payload().min(self.tail - self.taken - HEADER_BYTES);
        if !(low..=high).contains(&u64::from(header.length)) {
            return Err(Broken::Length { position: self.taken, found: header.length, low, high });
        }
        Ok(Some(header))
    }

    /// Adds bytes that begin at a word to a payload.
    #[inline]
    fn copy(&self, at: u64, bytes: u64, payload: &mut Vec<u8>) {
        let (before, bytes) = (payload.len(), usize::try_from(bytes).expect("bounded by the ring"));
        self.ring.words(at, bytes.div_ceil(8), payload);
        payload.truncate(before + bytes);
    }

    /// Looks how far the producer is.
    #[inline]
    fn look(&mut self) -> Result<(), Broken> {
        // SYNC(ring-tail): the messages before this tail are written.
        let tail = self.ring.load(TAIL, Ordering::Acquire);
        let high = self.released + self.ring.capacity();
        if !is_between(tail, self.tail, high) {
            return Err(Broken::Position { whose: "producer", found: tail, low: self.tail, high });
        }
        self.tail = tail;
        Ok(())
    }
}
