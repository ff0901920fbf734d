//! A look at clients now and then: those that do nothing are ended.
//!
//! The shard's thread.

use super::Shard;
use crate::net::client::Close;
use crate::net::pipeline::Pending;
use std::time::{Duration, Instant};

/// Connections looked at in a tick: all of 10,000 within a second.
const LOOKS_PER_TICK: usize = 1024;

impl Shard {
    /// Ends clients that have been silent for too long, with nothing to wait for, or haven't read.
    /// One that hasn't read but still sends stays, as many write a whole pipeline first: what it
    /// sends is bounded by `client-query-buffer-limit`. Replies that are kept for others are kept
    /// no longer.
    pub(super) fn look_at_clients(&mut self, now: Instant) {
        let seconds = |name| Duration::from_secs(self.work.state.config.unsigned(name));
        let (idle, stalled) = (seconds("timeout"), seconds("output-buffer-timeout"));
        let pause = self.work.state.hot.output_pause;
        let slots = self.work.slab.slots();
        for _ in 0..slots.min(LOOKS_PER_TICK) {
            let slot = self.next_look % slots;
            self.next_look = slot + 1;
            let Some(mut connection) = self.work.slab.take(slot) else { continue };
            let client = &connection.pipe.client;
            let silent = now.duration_since(client.active.max(client.drained));
            if connection.kept.keeps() || connection.pipe.pending == Pending::Synced {
                // It is the disk's turn.
            } else if !idle.is_zero() && silent > idle && connection.awaits_client(pause) {
                tracing::debug!(address = %client.address, "idle client disconnected");
                connection.pipe.client.end(Close::Now);
            } else if connection.local.as_ref().is_some_and(|local| local.is_overdue(now)) {
                self.work.cut_off(&mut connection, "it reads no reply to LOCAL ATTACH");
            } else if !stalled.is_zero()
                && connection.pipe.out.waiting() > pause
                && silent > stalled
            {
                self.work.cut_off(&mut connection, "it reads nothing of its waiting replies");
            }
            if connection.pipe.client.close == Close::Now {
                self.work.close(connection);
            } else {
                if connection.ends_gathering() {
                    self.work.ready.queue(slot);
                }
                self.work.slab.put(connection);
            }
        }
    }
}
