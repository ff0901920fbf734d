//! Rings, links and bells over memory that a peer without scruples changes between any two
//! accesses: for the tests and the fuzz target `ring`.
//!
//! ```text
//! Consumer ── load tail ──> Exposed ── what shall it be? ──> the peer, a closure
//!          <─────────────────────────── that ───────────────
//! ```
//!
//! 1. The peer is asked at every load and every addition, so it can also change what was looked at
//!    before.
//! 2. Its answer is stored; a later load finds it, unless the peer answers otherwise.
//! 3. Offsets must be those of whole words within the memory, as in a mapping.
//!
//! Belongs to one thread at a time: the peer is a closure, not a thread.

use super::bell::Bell;
use super::bytes::{BIGGEST_PART, DATA, Ring};
use super::consumer::Consumer;
use super::producer::Producer;
use super::{LinkSpec, Requester, Responder, ends, link};
use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Offset of the word of an exposed bell.
const BELL: u64 = 0;

/// The peer's answer: the value that a word at an offset gets before it is loaded.
pub type HostilePeer = dyn FnMut(u64, u64) -> u64 + Send;

/// Memory that a [`HostilePeer`] can write.
#[derive(Clone)]
pub struct Exposed {
    words: HeapWords,
    peer: Arc<Mutex<HostilePeer>>,
}

impl Exposed {
    pub(crate) fn new(bytes: u64, peer: Arc<Mutex<HostilePeer>>) -> Exposed {
        Exposed { words: HeapWords::new(usize::try_from(bytes).expect("usize has 64 bits")), peer }
    }

    /// Lets the peer change a word.
    fn turn(&self, offset: u64) {
        assert!(offset.is_multiple_of(8) && offset < self.words.len(), "a word at {offset}");
        let word = self.words.load64(offset, Ordering::Relaxed);
        let mut peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        self.words.store64(offset, peer(offset, word), Ordering::Relaxed);
    }
}

impl SharedWords for Exposed {
    fn len(&self) -> u64 {
        self.words.len()
    }
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.words.load32(offset, order)
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        self.words.store32(offset, value, order);
    }
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.turn(offset);
        self.words.load64(offset, order)
    }
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        assert!(offset.is_multiple_of(8) && offset < self.words.len(), "a word at {offset}");
        self.words.store64(offset, value, order);
    }
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.turn(offset);
        self.words.add64(offset, n, order)
    }
    fn fence(&self, order: Ordering) {
        self.words.fence(order);
    }
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        self.words.copy_in(offset, bytes);
    }
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.words.copy_out(offset, bytes);
    }
}

/// Both ends of a ring of `capacity` bytes, each beside the same peer.
#[must_use]
pub fn exposed_pair(
    capacity: u32,
    peer: Arc<Mutex<HostilePeer>>,
) -> (Producer<Exposed>, Consumer<Exposed>) {
    let capacity = u64::from(capacity);
    ends(Ring::new(Exposed::new(DATA + capacity, peer), capacity, capacity / BIGGEST_PART))
}

/// Both ends of a link, each beside the same peer.
#[must_use]
pub fn exposed_link(
    spec: &LinkSpec,
    peer: Arc<Mutex<HostilePeer>>,
) -> (Requester<Exposed>, Responder<Exposed>) {
    let requests = Exposed::new(DATA + u64::from(spec.request_bytes), Arc::clone(&peer));
    link::link_over(spec, requests, Exposed::new(DATA + spec.reply_ring_bytes(), peer))
}

/// A bell beside a peer.
#[must_use]
pub fn exposed_bell(peer: Arc<Mutex<HostilePeer>>) -> Bell<Exposed> {
    Bell::over(Exposed::new(BELL + 8, peer), BELL)
}
