//! What the two threads of an ordered pair share beside their rings: how the link comes to the
//! second of them, and the bodies that are too long for a ring.
//!
//! 1. The one that asks makes the link, once; the one that answers takes its end, once.
//! 2. A queue of bodies is in the order of its messages, and has no more entries than the link has
//!    credits.
//!
//! Bodies of requests are bounded in bytes as well. Those of replies are bounded in number, since a
//! reply can't be refused. The receiver bounds each of them (`Work::bound_reply`), and begins no
//! more while [`super::Mailbox::is_behind`].
//!
//! Locks are held for a push or a pop of a pointer, and only for long bodies. For any thread.

use crate::sync::lock;
use nigh_shm::ring::{LinkSpec, Requester, Responder, link};
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

/// Why a [`nigh_shm::ring::Broken`] or a body that is missing can't be.
pub(super) const OUR_RULES: &str = "both ends of a mailbox are ours and keep the rules";

/// The shared part of the way from one shard to another.
#[derive(Default)]
pub(super) struct Pair {
    answers: OnceLock<Mutex<Option<Box<Responder>>>>,
    /// Bodies of requests.
    pub(super) requests: Bodies,
    /// Bodies of replies.
    pub(super) replies: Bodies,
}

impl Pair {
    /// Makes the link. The requester calls it once.
    pub(super) fn open(&self, spec: &LinkSpec) -> Requester {
        let (requester, responder) = link(spec);
        // The other side finds it as soon as it looks for requests; the bell's fence comes later.
        let made = self.answers.set(Mutex::new(Some(Box::new(responder))));
        assert!(made.is_ok(), "a link is made once");
        requester
    }

    /// The end that answers, if the link is made and the end was not taken.
    pub(super) fn accept(&self) -> Option<Responder> {
        self.answers.get().and_then(|end| lock(end).take()).map(|end| *end)
    }

    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.answers.get().is_some()
    }
}

/// Bodies on their way.
#[derive(Default)]
pub(super) struct Bodies(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    bodies: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Bodies {
    /// Whether a body of so many bytes fits below `most`; alone, any does.
    pub(super) fn has_room(&self, bytes: usize, most: usize) -> bool {
        let waiting = lock(&self.0);
        waiting.bodies.is_empty() || waiting.bytes.saturating_add(bytes) <= most
    }

    pub(super) fn bytes(&self) -> usize {
        lock(&self.0).bytes
    }

    /// Adds a body, before its message is published.
    pub(super) fn push(&self, body: Vec<u8>) {
        let mut waiting = lock(&self.0);
        waiting.bytes += body.len();
        waiting.bodies.push_back(body);
    }

    /// Takes the body of a message whose payload says its length.
    pub(super) fn pop(&self, payload: &[u8]) -> Vec<u8> {
        let mut waiting = lock(&self.0);
        let body = waiting.bodies.pop_front().expect(OUR_RULES);
        waiting.bytes -= body.len();
        assert_eq!(payload, (body.len() as u64).to_le_bytes(), "{OUR_RULES}");
        body
    }
}
