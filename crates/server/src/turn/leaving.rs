//! The rings of local clients whose connections have ended.
//!
//! ```text
//! ended ── socket closed ──┬─ replies untaken, such as QUIT's ──> leaving ──┐ (taken, or 10 s later)
//!                          └─ all taken, or gone, or ended by force ────────┴──> wiped, not counted
//! ```
//!
//! 1. A client can keep the memory of its rings for as long as it likes. So the memory is wiped
//!    before its client isn't counted any more: `local-max-clients` bounds it.
//! 2. The socket is closed before that. A client that finds its rings wiped finds its end there.
//!
//! A server that ends wipes nothing: replies stay for the clients, and so does the memory.
//!
//! Belongs to the shard's thread.

use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::local::Local;
use std::time::{Duration, Instant};

/// How long a client may take the last replies: a thousand times what one needs that runs.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Rings of ended connections whose clients have yet to take replies, and since when.
#[derive(Default)]
pub(crate) struct LeavingRings(Vec<(Instant, Box<Local>)>);

impl LeavingRings {
    /// Lets go of a connection that has ended, and of its rings, if it has some.
    pub(crate) fn let_go_of_rings(&mut self, mut connection: Box<Connection>, now: Instant) {
        let Some(mut local) = connection.local.take() else { return };
        let is_forced = connection.pipe.client.close == Close::Now;
        drop(connection);
        if !is_forced && local.has_untaken() {
            // Its end would be told as that of the next one in the slot.
            local.forget_process();
            self.0.push((now, local));
        } else {
            local.wipe();
        }
    }

    /// Wipes the rings that have been left.
    pub(crate) fn wipe_left(&mut self, now: Instant) {
        self.0.retain_mut(|(since, local)| {
            let stays = local.has_untaken() && now.saturating_duration_since(*since) < LEAVE_WITHIN;
            if !stays {
                local.wipe();
            }
            stays
        });
    }
}
