//! The rings of local clients that a shard looks at, and when it stops looking.
//!
//! ```text
//! attached, moved here, woken ──> polled ──(idle, or the shard sleeps)──> parked ──(the client wakes it)──┐
//!                                   ^ looked at in each turn of the loop                                  │
//!                                   └─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. A local client's ring is polled, once, if and only if it isn't parked. One whose connection
//!    is gone or has moved away isn't any more from the next look on.
//! 2. A look costs two loads for a ring, and none for one that is parked.
//! 3. The shard sleeps only if all rings of which its connections await something are parked. A
//!    connection that awaits nothing waits for something else, such as the disk, and goes on from
//!    there.
//!
//! Belongs to the shard's thread.

use crate::net::connection::Connection;
use crate::net::local::Found;
use crate::net::slab::{Occupant, Slab};
use crate::turn::ready::Ready;
use std::time::Instant;

/// The connections of local clients whose rings are looked at.
#[derive(Debug, Default)]
pub(crate) struct PolledRings(Vec<Occupant>);

impl PolledRings {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Looks at the rings, and lists the connections that have something to do; true if there are
    /// any.
    #[inline]
    pub(crate) fn look(&mut self, slab: &mut Slab, ready: &mut Ready, now: Instant) -> bool {
        !self.0.is_empty() && self.each(slab, ready, |connection| connection.look_at_ring(now))
    }

    /// Parks all rings that are awaited; false if there is something to do first.
    pub(crate) fn park(&mut self, slab: &mut Slab, ready: &mut Ready) -> bool {
        !self.each(slab, ready, Connection::park_ring)
    }

    /// Visits the connections; true if one of them has something to do. It is listed then. What is
    /// parked or gone isn't looked at any more.
    fn each(
        &mut self,
        slab: &mut Slab,
        ready: &mut Ready,
        mut visit: impl FnMut(&mut Connection) -> Option<Found>,
    ) -> bool {
        let mut found_any = false;
        self.0.retain(|who| match slab.occupant(*who).and_then(&mut visit) {
            Some(Found::News) => {
                ready.queue(who.slot);
                found_any = true;
                true
            }
            Some(Found::Nothing) => true,
            Some(Found::Parked) | None => false,
        });
        found_any
    }

    /// Looks at a ring from now on.
    pub(crate) fn add(&mut self, who: Occupant) {
        debug_assert!(!self.0.contains(&who), "a ring is looked at once");
        self.0.push(who);
    }

    /// Looks no more at the ring of a connection that moves away.
    pub(crate) fn remove(&mut self, who: Occupant) {
        self.0.retain(|other| *other != who);
    }
}
