//! The words of a ring: where head, tail and messages lie, and what a peer can do to them.
//!
//! The bytes are specified in `docs/formats/ring.md`; the invariants are those of [`super`].
//!
//! Each word belongs to the side that stores it.

use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;

/// Offset of the tail. What is before it keeps other memory off its cache line.
pub(crate) const TAIL: u64 = 128;
/// Offset of the head: two lines after the tail, since cores fetch lines in pairs.
pub(crate) const HEAD: u64 = 256;
/// Offset of the messages.
pub(crate) const DATA: u64 = 384;
/// A message's header, bytes: length (u32), kind (u16), flags (u16).
pub(crate) const HEADER_BYTES: u64 = 8;
/// Messages begin at multiples of this, bytes: whole words.
pub(crate) const ALIGN: u64 = 8;
/// The biggest message is this part of the ring (invariant 4).
pub(crate) const BIGGEST_PART: u64 = 4;
/// The smallest ring, bytes of messages: its biggest message holds a header and a word.
pub const LEAST_BYTES: u32 = 64;
/// The biggest ring, bytes of messages: lengths stay far below 32 bits.
pub const MOST_BYTES: u32 = 1 << 30;

const _: () = {
    assert!(TAIL >= 128 && HEAD - TAIL >= 128 && DATA - HEAD >= 128, "lines of their own");
    assert!(TAIL.is_multiple_of(ALIGN) && HEAD.is_multiple_of(ALIGN) && DATA.is_multiple_of(64));
    assert!(HEADER_BYTES == 8 && ALIGN == 8, "a header is one word");
    assert!(LEAST_BYTES as u64 / BIGGEST_PART >= HEADER_BYTES + 8);
    assert!(LEAST_BYTES.is_power_of_two() && MOST_BYTES.is_power_of_two());
};

/// The other side of a ring doesn't keep its rules. Between threads of one process it is our
/// mistake; between processes, the peer's, and the ring is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// Its position is none that it can have reached.
    #[error("the {whose} of a ring is at {found}, not between {low} and {high}: close the ring")]
    Position {
        /// `producer` or `consumer`.
        whose: &'static str,
        /// The position in its word.
        found: u64,
        /// Where it was.
        low: u64,
        /// As far as it may be.
        high: u64,
    },
    /// A message is longer than allowed, or than what was published, or too short for its kind.
    #[error(
        "a message of {found} bytes at {position} of a ring, where {low} to {high} fit: close the ring"
    )]
    Length {
        /// Where the message begins.
        position: u64,
        /// Length of the payload as the header says, bytes.
        found: u32,
        /// The shortest payload, bytes.
        low: u64,
        /// The longest payload, bytes.
        high: u64,
    },
    /// A requester has more requests unanswered than it has credits.
    #[error("more than {credits} requests without a reply: close the ring")]
    TooManyRequests {
        /// Requests that may be unanswered.
        credits: u32,
    },
    /// A requester has not given back the room of replies that it must have read before it asked
    /// again.
    #[error("no room for a reply that was paid for: close the ring")]
    NoReplyRoom,
    /// A message of a kind that the ring doesn't carry.
    #[error("a message of kind {kind} and flags {flags} at {position} of a ring: close the ring")]
    Kind {
        /// Where the message begins.
        position: u64,
        /// Its kind.
        kind: u16,
        /// Its flags.
        flags: u16,
    },
    /// The bell of this side is rung without an end, so that it can't sleep.
    #[error("a bell is rung again and again: close the ring")]
    Bell,
    /// A reply to no request.
    #[error("a reply without a request: close the ring")]
    UnaskedReply,
}

/// Zeroed words on the heap for so many bytes of messages.
pub(super) fn heap_words(capacity: u64) -> HeapWords {
    HeapWords::new(usize::try_from(DATA + capacity).expect("usize has 64 bits"))
}

/// A ring's words and its size, as both sides know it; neither is read from the shared memory.
#[derive(Clone)]
pub(crate) struct Ring<W> {
    words: W,
    capacity: u64,
    biggest: u64,
}

impl<W: SharedWords> Ring<W> {
    /// A ring over zeroed words: `capacity` bytes of messages, a power of two; `biggest` of one
    /// message.
    pub(crate) fn new(words: W, capacity: u64, biggest: u64) -> Ring<W> {
        assert!(capacity.is_power_of_two() && capacity >= ALIGN, "a ring of {capacity} bytes");
        assert!(capacity <= u64::from(MOST_BYTES), "a ring of {capacity} bytes");
        assert!(words.len() >= DATA + capacity, "{} bytes for a ring", words.len());
        assert!(biggest <= capacity && biggest >= HEADER_BYTES, "messages of {biggest} bytes");
        Ring { words, capacity, biggest }
    }

    /// Bytes of messages.
    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of the longest payload.
    #[inline]
    pub(crate) fn most_payload(&self) -> u64 {
        self.biggest - HEADER_BYTES
    }

    /// Loads the word of a side.
    #[inline]
    pub(crate) fn load(&self, side: u64, order: Ordering) -> u64 {
        self.words.load64(side, order)
    }

    /// Stores the word of a side.
    #[inline]
    pub(crate) fn store(&self, side: u64, position: u64, order: Ordering) {
        self.words.store64(side, position, order);
    }

    /// A fence between accesses to the ring.
    #[inline]
    pub(crate) fn fence(&self, order: Ordering) {
        self.words.fence(order);
    }

    /// A word of a message.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> u64 {
        self.words.load64(DATA + (position & (self.capacity - 1)), Ordering::Relaxed)
    }

    /// Adds words of a message, which may go round the end, to `to`.
    #[inline]
    pub(crate) fn words(&self, position: u64, words: usize, to: &mut Vec<u8>) {
        let before = to.len();
        to.resize(before + 8 * words, 0);
        let (to, _) = to[before..].as_chunks_mut();
        let (offset, straight) = self.place(position, words);
        let (to, round) = to.split_at_mut(straight);
        self.words.load_words(offset, to);
        self.words.load_words(DATA, round);
    }

    /// Writes words of a message, which may go round the end.
    #[inline]
    pub(crate) fn set_words(&self, position: u64, from: &[[u8; 8]]) {
        let (offset, straight) = self.place(position, from.len());
        let (from, round) = from.split_at(straight);
        self.words.store_words(offset, from);
        self.words.store_words(DATA, round);
    }

    /// Where words of a message begin, and how many of them lie before the end.
    #[inline]
    fn place(&self, position: u64, words: usize) -> (u64, usize) {
        let at = position & (self.capacity - 1);
        let before_end = usize::try_from((self.capacity - at) / 8).unwrap_or(usize::MAX);
        (DATA + at, words.min(before_end))
    }

    /// Writes a word of a message.
    #[inline]
    pub(crate) fn set_word(&self, position: u64, word: u64) {
        self.words.store64(DATA + (position & (self.capacity - 1)), word, Ordering::Relaxed);
    }
}

/// Bytes of a message with such a payload.
#[inline]
pub(crate) const fn message_bytes(payload: u64) -> u64 {
    HEADER_BYTES + payload.next_multiple_of(ALIGN)
}

/// Whether a position lies between two others and can be one.
#[inline]
pub(crate) fn is_between(position: u64, low: u64, high: u64) -> bool {
    low <= position && position <= high && position.is_multiple_of(ALIGN)
}
