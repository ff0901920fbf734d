//! The hits of views, on their way to the owner: a sample of hashes, in a bounded ring for each
//! view.
//!
//! ```text
//! view: one of 2 hits ── up to 64 hashes ── ring ──> owner: so many messages a turn ──> recency
//! ```
//!
//! 1. No thread waits. A view drops a message that finds no room. A message that the owner doesn't
//!    take in this turn stays in the ring.
//! 2. A view sends a hash at the end of the turn in which it was read, at the latest.
//!
//! Thread: a log is its view's, an inbox its owner's; any of them locks the list of new rings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nigh_shm::ring::{self, Consumer, Producer};

use crate::eviction::recency::Recency;

/// A view logs one of so many hits. A key that is used often is logged soon all the same. With one
/// of four the hit ratio was 1.4 points lower than with all.
const TELL_ONE_OF: u32 = 2;
/// Bytes of a message: 64 hashes.
const MESSAGE_BYTES: usize = 256;
/// Bytes of a view's ring: some 3,900 hashes.
const RING_BYTES: u32 = 16 << 10;
/// Messages that the owner takes in a turn, from all views: 2,048 hashes, some 100 µs.
const MESSAGES_PER_TURN: usize = 32;

/// The list where views leave the owner's ends of their rings.
#[derive(Default)]
pub(crate) struct NewRings {
    count: AtomicUsize,
    rings: Mutex<Vec<Consumer>>,
}

impl NewRings {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Consumer>> {
        // A panic elsewhere leaves a list whole.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, ring: Consumer) {
        self.lock().push(ring);
        // SYNC(new-ring)
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// A view's end: the hits of this turn.
pub(crate) struct HitLog {
    chance: u32,
    message: Vec<u8>,
    ring: Producer,
}

impl HitLog {
    /// A log that the owner of the list will find.
    pub(crate) fn new(rings: &NewRings) -> HitLog {
        let (producer, consumer) = ring::pair(RING_BYTES);
        rings.add(consumer);
        HitLog { chance: 0, message: Vec::with_capacity(MESSAGE_BYTES), ring: producer }
    }

    /// A key was found.
    #[inline]
    pub(crate) fn note(&mut self, hash: u32) {
        // By chance, since reads come in patterns. A linear congruential generator (Knuth and
        // Lewis), whose upper bits are its best.
        self.chance = self.chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if self.chance >= u32::MAX / TELL_ONE_OF {
            return;
        }
        self.message.extend_from_slice(&hash.to_le_bytes());
        if self.message.len() >= MESSAGE_BYTES {
            self.flush();
        }
    }

    /// Sends the logged hashes.
    pub(crate) fn flush(&mut self) {
        if self.message.is_empty() {
            return;
        }
        // A full ring drops the message: the owner has more hits than it can use.
        let _ = self.ring.try_push(0, 0, &[&self.message]);
        self.message.clear();
        self.ring.publish();
    }
}

/// The owner's ends.
pub(crate) struct Inbox {
    new: Arc<NewRings>,
    taken: usize,
    rings: Vec<Consumer>,
    next: usize,
    message: Vec<u8>,
}

impl Inbox {
    pub(crate) fn new(new: Arc<NewRings>) -> Inbox {
        Inbox { new, taken: 0, rings: Vec::new(), next: 0, message: Vec::new() }
    }

    fn look_for_new(&mut self) {
        // SYNC(new-ring)
        if self.new.count.load(Ordering::Acquire) != self.taken {
            let mut new = self.new.lock();
            self.taken += new.len();
            self.rings.append(&mut new);
        }
    }

    /// Takes messages of the views, as many as a turn may take. Without `recency` they are thrown
    /// away.
    pub(crate) fn drain(&mut self, mut recency: Option<&mut Recency>) {
        self.look_for_new();
        let mut left = MESSAGES_PER_TURN;
        for _ in 0..self.rings.len() {
            self.next = (self.next + 1) % self.rings.len();
            let ring = &mut self.rings[self.next];
            while left > 0 {
                let taken = ring.pop_into(&mut self.message);
                if taken.expect("a view keeps the rules of a ring").is_none() {
                    break;
                }
                left -= 1;
                let (hashes, _) = self.message.as_chunks::<4>();
                if let Some(recency) = &mut recency {
                    hashes.iter().for_each(|hash| recency.prefetch(u32::from_le_bytes(*hash)));
                    hashes.iter().for_each(|hash| recency.touch(u32::from_le_bytes(*hash)));
                }
            }
            ring.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::recency::UNKNOWN;

    /// A view's hits reach the owner's clocks. A view with more hits than fit drops them and
    /// doesn't wait.
    #[test]
    fn hits_of_a_view_make_keys_young() {
        let rings = Arc::new(NewRings::default());
        let mut inbox = Inbox::new(Arc::clone(&rings));
        let (mut one, mut two) = (HitLog::new(&rings), HitLog::new(&rings));
        let mut recency = Recency::new();
        for _ in 0..20 * TELL_ONE_OF {
            one.note(7 << 20);
            two.note(9 << 20);
        }
        inbox.drain(Some(&mut recency));
        assert_eq!(recency.age(7 << 20), UNKNOWN, "sent at the end of the turn only");
        one.flush();
        two.flush();
        inbox.drain(Some(&mut recency));
        assert_eq!((recency.age(7 << 20), recency.age(9 << 20)), (0, 0));
        for hit in 0..1_000_000_u32 {
            one.note(hit << 12);
        }
        one.flush();
        inbox.drain(None);
        inbox.drain(Some(&mut recency));
    }
}
