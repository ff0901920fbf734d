//! Rings: bounded queues of byte messages from one thread to one other, and what is built of them.
//!
//! ```text
//!             published        staged
//!  released v         v taken  v                        v tail  (the producer's)
//! ──────────┬─────────┬────────┬────────────────────────┬──────────
//!           │ copied  │ unread │ written, not visible   │   free, up to released + capacity
//! ──────────┴─────────┴────────┴────────────────────────┴──────────
//!           ^ head (the consumer's)
//!
//! Requester ── requests: Producer ═══ring═══> Consumer ── Responder
//!           <── replies: Consumer <═══ring═══ Producer ──
//! ```
//!
//! A ring lies in words (`crate::format::words`): on the heap ([`HeapWords`]) between two shards,
//! in shared memory between a client and a shard, in loom's words in the models. The bytes are
//! specified in `docs/formats/ring.md`.
//!
//! 1. The tail is stored by the producer only, the head by the consumer only; each lies on a cache
//!    line of its own. A side keeps its own position to itself and never reads it back, and caches
//!    the other's.
//! 2. Positions only grow, by multiples of 8:
//!    released <= taken <= published <= staged <= released + capacity.
//!    What the other side claims is checked against that, once, when it is loaded ([`Broken`]).
//! 3. A message is not changed between the store that publishes it and the one that releases it, by
//!    a peer that keeps the rules; of one that doesn't, a copy is torn and nothing worse: offsets
//!    are masked, lengths are bounded by what is unread, and payloads are copied out before anybody
//!    looks at them.
//! 4. No message is longer than a fourth of the ring, so that an empty ring takes any, and one
//!    message never keeps the two sides from working at the same time.
//!
//! A [`Producer`] and a [`Consumer`] belong to one thread each, at a time. A [`Bell`] is for all.

mod bell;
mod bytes;
mod consumer;
#[cfg(any(test, fuzzing))]
mod exposed;
mod link;
#[cfg(test)]
mod models;
mod producer;
#[cfg(test)]
mod tests;

pub use bell::{Bell, Fenced};
pub use bytes::{Broken, LEAST_BYTES, MOST_BYTES};
pub use consumer::{Consumer, MessageHeader};
#[cfg(any(test, fuzzing))]
pub use exposed::{Exposed, HostilePeer, exposed_bell, exposed_link, exposed_pair};
pub use link::{LinkRequest, LinkSpec, REPLY_BYTES, Requester, Responder, link};
pub use producer::{Producer, PushError};

pub use crate::format::words::HeapWords;
use crate::format::words::SharedWords;
use bytes::{BIGGEST_PART, DATA, Ring, heap_words};

/// Offset of the messages in a ring's words.
pub(crate) const DATA_OFFSET: u64 = DATA;

/// A ring on the heap: its two ends.
///
/// # Panics
/// If `bytes` is not a power of two from [`LEAST_BYTES`] to [`MOST_BYTES`].
#[must_use]
pub fn pair(bytes: u32) -> (Producer, Consumer) {
    assert!((LEAST_BYTES..=MOST_BYTES).contains(&bytes), "a ring of {bytes} bytes");
    let capacity = u64::from(bytes);
    ends(Ring::new(heap_words(capacity), capacity, capacity / BIGGEST_PART))
}

/// Both ends of a ring of `bytes` bytes of messages over zeroed words.
pub(crate) fn over<W: SharedWords>(words: W, bytes: u32) -> (Producer<W>, Consumer<W>) {
    let capacity = u64::from(bytes);
    ends(Ring::new(words, capacity, capacity / BIGGEST_PART))
}

/// Both ends of a ring.
pub(crate) fn ends<W: SharedWords>(ring: Ring<W>) -> (Producer<W>, Consumer<W>) {
    (Producer::new(ring.clone()), Consumer::new(ring))
}
