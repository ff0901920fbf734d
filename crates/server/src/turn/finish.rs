//! What becomes of a connection when its commands have run: its replies are written, and it goes
//! on, waits, moves or ends.
//!
//! Belongs to the shard's thread.

use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::pipeline::Pending;
use crate::turn::budget::LONG_REPLY_BYTES;
use crate::turn::work::Work;
use nigh_store::Turn;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Work {
    /// Answers a protocol error, writes what waits, and puts the connection back or ends it.
    pub(crate) fn finish(&mut self, mut connection: Box<Connection>, turn: &Turn<'_>) {
        let has_commands = connection.pipe.input.has_commands();
        let rests = !has_commands && connection.later.is_empty();
        if rests && let Some(error) = connection.pipe.input.error.take() {
            connection.pipe.input.failed = true;
            if connection.pipe.client.close == Close::No {
                error.write_reply(connection.pipe.out.bytes());
                tracing::debug!(address = %connection.pipe.client.address, %error, "client disconnected");
                connection.pipe.client.end(Close::AfterReplies);
            }
        }
        connection.pipe.input.consume(&mut self.pool);
        if connection.pipe.input.ended && rests && !connection.pipe.input.has_undecoded() {
            connection.pipe.client.end(Close::AfterReplies);
        }
        let gathers = connection.gathers(&self.state.tenants.readers(), turn.pin);
        if connection.pipe.out.waiting() == 0 || connection.pipe.client.close == Close::Now {
            connection.pipe.client.drained = self.now;
        } else if !gathers {
            let depends = !connection.pipe.depends.is_empty();
            // First the limit: what is kept is copied.
            let is_withheld = self.ends_flooded(&mut connection)
                || depends && self.keeps_replies(&mut connection, turn);
            if !is_withheld {
                self.write(&mut connection, turn);
            }
        }
        let empty = connection.pipe.out.waiting() == 0;
        match connection.pipe.client.close {
            Close::Now => return self.close(connection),
            Close::AfterReplies if empty => return self.close(connection),
            _ => {}
        }
        let paused = connection.pipe.out.waiting() > self.state.hot.output_pause;
        let keeps = connection.kept.keeps();
        if let Pending::Move(shard) = connection.pipe.pending
            && !keeps
        {
            self.slab.release(connection.slot);
            return self.moving.push((shard, connection));
        }
        let is_open = connection.pipe.client.close == Close::No;
        let goes_on = is_open
            && connection.lets_go_on()
            && !paused
            && (connection.pipe.input.has_commands()
                || connection.pipe.input.has_undecoded()
                || connection.pipe.input.readable)
            || is_open
                && paused
                && connection.pipe.input.readable
                && self.state.admits(&connection.pipe.client); // see `receive`
        let slot = connection.slot;
        if goes_on && connection.pipe.is_put_off {
            self.ready.put_off(slot);
        } else if goes_on {
            self.ready.queue(slot);
        }
        self.slab.put(connection);
    }

    pub(crate) fn write(&mut self, connection: &mut Connection, turn: &Turn<'_>) {
        if self.ends_flooded(connection) {
            return;
        }
        let before = connection.pipe.out.waiting();
        let outcome = connection.flush(&self.state.tenants.readers(), turn.pin);
        // An error in the place of a reply may be the longer one.
        let written = before.saturating_sub(connection.pipe.out.waiting());
        let stats = &mut self.state.stats;
        stats.bytes_out += written as u64;
        stats.writes += 1;
        stats.copied_bytes += connection.pipe.out.take_copied() as u64;
        if before >= LONG_REPLY_BYTES {
            self.budget.look(Instant::now());
        }
        if written > 0 {
            connection.pipe.client.drained = self.now;
        }
        if outcome.is_err() {
            connection.pipe.client.end(Close::Now);
        }
    }

    /// Ends a connection for which more waits than `output-buffer-limit`; whether it has.
    fn ends_flooded(&mut self, connection: &mut Connection) -> bool {
        let is_flooded = connection.pipe.out.waiting() > self.state.hot.output_limit;
        if is_flooded {
            self.cut_off(connection, "its waiting replies exceed output-buffer-limit");
        }
        is_flooded
    }

    /// Ends a connection that reads too slowly.
    pub(crate) fn cut_off(&mut self, connection: &mut Connection, why: &str) {
        tracing::warn!(
            address = %connection.pipe.client.address,
            waiting_bytes = connection.pipe.out.waiting(),
            "client disconnected: {why}"
        );
        self.state.stats.output_limit_disconnections += 1;
        connection.pipe.client.end(Close::Now);
    }

    /// Ends a connection that has been taken out; if parts of its last command wait for room at
    /// their shards, when they are sent: others of it may be done. It is one of [`Self::held`]
    /// then.
    pub(crate) fn close(&mut self, mut connection: Box<Connection>) {
        if !connection.unsent.is_empty() {
            return self.slab.put(connection);
        }
        self.state.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
        self.forget_wish(&connection);
        let client = &mut connection.pipe.client;
        client.forget_watches(&mut self.state.tenants[client.tenant].keyspace);
        self.slab.release(connection.slot);
        self.leaving.let_go_of_rings(connection, self.now);
    }

    /// Ends the connections that CLIENT KILL named.
    pub(crate) fn close_killed(&mut self) {
        if !std::mem::take(&mut self.state.some_killed) {
            return;
        }
        for slot in 0..self.slab.slots() {
            let ended = self.slab.get_mut(slot).is_some_and(|c| c.pipe.client.close == Close::Now);
            if ended && let Some(connection) = self.slab.take(slot) {
                self.close(connection);
            }
        }
    }
}
