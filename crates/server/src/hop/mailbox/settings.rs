//! How large mailboxes are.
//!
//! 1. All rings together take no more than [`TOTAL_BYTES`], however many shards there are.
//!
//! Rings are made when a pair first talks. With the default settings the pairs of 2 shards take 2.5
//! MiB, of 16 shards 60 MiB, of 64 shards 63 MiB (a test holds this sentence). A look at all rings
//! costs a load from one cache line for each peer, which stays in the core's cache until that peer
//! sends.

use nigh_shm::ring::{LinkSpec, REPLY_BYTES};

/// Shards that mailboxes are made for at most: as many as [`TOTAL_BYTES`] gives the smallest rings
/// to.
pub(crate) const MOST_MAILBOXES: usize = 128;
/// Bytes of all rings together, if all pairs talk.
pub(super) const TOTAL_BYTES: usize = 64 << 20;
/// The smallest ring of requests, bytes: 16 credits, and 512 bytes in a message.
pub(super) const LEAST_REQUEST_BYTES: u32 = 2 << 10;
/// Ring of requests, bytes, where [`TOTAL_BYTES`] allows: some 6,000 writes of 100 bytes. With a
/// fourth of that, 100 connections with pipelines of 64 wait for room, and nearly half of their
/// commands are looked at twice.
pub(crate) const DEFAULT_REQUEST_BYTES: u32 = 1 << 20;
/// Requests of a pair that may be without a reply, at most: each has room for
/// [`crate::hop::message::MOST_IN_MESSAGE`] commands.
const MOST_CREDITS: u32 = 2048;
/// Bodies of requests that wait in a pair's queue, bytes; a single longer one passes alone. And
/// those of replies that are to be taken before more are begun.
pub(crate) const DEFAULT_BODY_BYTES: usize = 4 << 20;

const _: () = {
    let pairs = MOST_MAILBOXES * (MOST_MAILBOXES - 1);
    assert!(pairs * 2 * LEAST_REQUEST_BYTES as usize <= TOTAL_BYTES);
    assert!(LEAST_REQUEST_BYTES.is_power_of_two() && LEAST_REQUEST_BYTES >= 4 * REPLY_BYTES);
};

/// Sizes of the mailboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MailSettings {
    /// Bytes of a pair's ring of requests, a power of two. The longest request inside of it is a
    /// fourth.
    pub(crate) request_bytes: u32,
    /// Requests of a pair that may be without a reply.
    pub(crate) credits: u32,
    /// Bytes of requests' bodies that may wait in a pair's queue, and of replies' before
    /// [`super::Mailbox::is_behind`].
    pub(crate) body_bytes: usize,
}

impl MailSettings {
    /// For so many shards, with rings of requests of `request_bytes` (rounded down to a power of
    /// two) if [`TOTAL_BYTES`] allows, else smaller.
    pub(crate) fn for_shards(shards: usize, request_bytes: u32) -> Self {
        let pairs = (shards * shards.saturating_sub(1)).max(1);
        // The ring of replies takes as much at most.
        let share = u32::try_from(TOTAL_BYTES / pairs / 2).unwrap_or(u32::MAX);
        let bytes = 1 << request_bytes.min(share).max(LEAST_REQUEST_BYTES).ilog2();
        let credits = (bytes / REPLY_BYTES).min(MOST_CREDITS);
        Self { request_bytes: bytes, credits, body_bytes: DEFAULT_BODY_BYTES }
    }

    /// Bytes of all rings if all pairs talk.
    #[cfg(test)]
    pub(crate) fn total_bytes(&self, shards: usize) -> u64 {
        let pairs = (shards * shards.saturating_sub(1)) as u64;
        pairs * (u64::from(self.request_bytes) + self.link().reply_ring_bytes())
    }

    pub(super) fn link(&self) -> LinkSpec {
        let (request_bytes, credits) = (self.request_bytes, self.credits);
        LinkSpec { request_bytes, credits, reply_bytes: REPLY_BYTES }
    }
}
