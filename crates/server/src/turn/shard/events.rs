//! What a shard watches: the sockets of its connections, which move from shard to shard, and the
//! processes of local clients, whose sockets carry wake-ups only.
//!
//! The shard's thread.

use super::{Shard, WAKE};
use crate::net::connection::Connection;
use crate::net::slab::Occupant;
use crate::state::seat::Arrival;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

/// What the token of a client's process has more than that of its socket.
const PROCESS: usize = 1 << 62;

/// The token of a connection's socket, by that of its socket or its client's process; and whether
/// it is the process's.
fn socket_of(Token(token): Token) -> (usize, bool) {
    (token & !PROCESS, token & PROCESS != 0)
}

/// Reports the end of a local client's process; does nothing for another connection.
fn watch_process(connection: &Connection, registry: &Registry, token: Token) -> io::Result<()> {
    let Some(process) = process_of(connection) else { return Ok(()) };
    registry.register(&mut SourceFd(&process), Token(token.0 | PROCESS), Interest::READABLE)
}

/// Reports nothing any more, so that another shard can.
fn forget_process(connection: &Connection, registry: &Registry) -> io::Result<()> {
    let Some(process) = process_of(connection) else { return Ok(()) };
    registry.deregister(&mut SourceFd(&process))
}

fn process_of(connection: &Connection) -> Option<RawFd> {
    Some(connection.local.as_ref()?.process()?.as_raw_fd())
}

impl Shard {
    /// Marks what the events name.
    pub(super) fn take_events(&mut self) {
        for event in &self.events {
            let Token(token) = event.token();
            if event.token() == WAKE {
                continue;
            }
            if token < self.accepting.len() {
                self.accepting[token] = true;
                continue;
            }
            let (socket, is_process) = socket_of(event.token());
            let slot = socket - self.accepting.len();
            let Some(connection) = self.work.slab.get_mut(slot) else { continue };
            if connection.local.is_some() {
                let has_ended = is_process || event.is_read_closed() || event.is_error();
                if connection.take_ring_event(has_ended) {
                    let who = Occupant::of(connection);
                    self.work.rings.add(who);
                }
            } else {
                let input = &mut connection.pipe.input;
                input.closing |= event.is_read_closed() || event.is_error();
                input.readable |= event.is_readable() || input.closing;
            }
            self.work.ready.queue(slot);
        }
    }

    /// Gives a connection a slot, and watches its socket.
    pub(super) fn seat(&mut self, mut connection: Box<Connection>) {
        let slot = self.work.slab.reserve();
        let token = self.token(slot);
        connection.slot = slot;
        let registry = self.poll.registry();
        let watched = connection.stream.register(registry, token);
        let watched = watched.and_then(|()| watch_process(&connection, registry, token));
        if let Err(error) = watched {
            tracing::warn!(%error, "a connection can't be watched");
            self.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
            self.work.slab.release(slot);
            self.work.leaving.let_go_of_rings(connection, self.work.now);
            return;
        }
        if let Some(local) = &mut connection.local {
            local.unpark();
            self.work.rings.add(Occupant::of(&connection));
        }
        self.work.slab.put(connection);
        self.work.ready.queue(slot);
    }

    /// The token of a slot's socket.
    pub(super) fn token(&self, slot: usize) -> Token {
        Token(slot + self.accepting.len())
    }

    /// Begins to look at the rings of the clients that have attached in this turn.
    pub(super) fn watch_attached(&mut self) {
        for who in std::mem::take(&mut self.work.attached) {
            let token = self.token(who.slot);
            let Some(connection) = self.work.slab.occupant(who) else { continue };
            if connection.local.is_none() {
                continue; // the system has refused its descriptors
            }
            if let Err(error) = watch_process(connection, self.poll.registry(), token) {
                // The end of the socket still tells.
                tracing::warn!(%error, "a local client's process can't be watched");
            }
            // It may still be listed, from an attachment that was refused.
            self.work.rings.remove(who);
            self.work.rings.add(who);
        }
    }

    /// Gives the connections that move to their shards.
    pub(super) fn hand_over(&mut self) {
        for (shard, mut connection) in std::mem::take(&mut self.work.moving) {
            if connection.local.is_some() {
                self.work.rings.remove(Occupant::of(&connection));
            }
            let registry = self.poll.registry();
            let forgotten = forget_process(&connection, registry);
            if let Err(error) = forgotten.and(connection.stream.deregister(registry)) {
                tracing::warn!(%error, "a connection can't be moved: it is closed");
                self.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
                self.work.leaving.let_go_of_rings(connection, self.work.now);
                continue;
            }
            self.shared.seats[shard].arrive(Arrival::Moved(connection));
        }
    }
}
