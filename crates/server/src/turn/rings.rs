//! The rings of local clients that a shard looks at, and when it stops looking.
//!
//! ```text
//! attached, moved here, woken ──> rings ──(idle, or the shard sleeps)──> parked ──(the client wakes it)──┐
//!                                   ^ looked at in each turn of the loop                                 │
//!                                   └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. A local client's connection stands in `rings`, once, if and only if its ring isn't parked.
//!    One that is gone or has moved away is taken out by the next look.
//! 2. A look costs two loads for a ring, and none for one that is parked.
//! 3. The shard sleeps only if all rings of which its connections await something are parked. A
//!    connection that awaits nothing waits for something else, such as the disk, and goes on from
//!    there.
//!
//! Belongs to the shard's thread.

use crate::net::connection::Connection;
use crate::net::local::Found;
use crate::net::slab::Occupant;
use crate::turn::work::Work;
use std::time::Instant;

impl Work {
    /// Looks at the rings, and lists the connections that have something to do; true if there are
    /// any.
    #[inline]
    pub(crate) fn look_at_rings(&mut self, now: Instant) -> bool {
        !self.rings.is_empty() && self.each_ring(|connection| connection.look_at_ring(now))
    }

    /// Parks all rings that are awaited; false if there is something to do first.
    pub(crate) fn park_rings(&mut self) -> bool {
        !self.each_ring(Connection::park_ring)
    }

    /// Visits the connections in `rings`; true if one of them has something to do. It is listed
    /// then. What is parked or gone leaves `rings`.
    fn each_ring(&mut self, mut visit: impl FnMut(&mut Connection) -> Option<Found>) -> bool {
        let (slab, ready, mut found_any) = (&mut self.slab, &mut self.ready, false);
        self.rings.retain(|who| match slab.occupant(*who).and_then(&mut visit) {
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
    pub(crate) fn poll_ring(&mut self, who: Occupant) {
        debug_assert!(!self.rings.contains(&who), "a ring is looked at once");
        self.rings.push(who);
    }

    /// Looks no more at the ring of a connection that moves away.
    pub(crate) fn leave_ring(&mut self, who: Occupant) {
        self.rings.retain(|other| *other != who);
    }
}
