//! Connections that wait for room in the mailbox of another shard.
//!
//! ```text
//! no room ──> Pending::Room, the last of the shard's queue ──(answers came)──> room for the first: it goes on
//! ```
//!
//! 1. A connection whose message finds no room waits for its shard in that shard's queue, which is
//!    the only list of them, and resumes only from there. There is room in the end: an answer of
//!    that shard is outstanding, and the queues are looked at when answers have come.
//! 2. A queue is served from its front. Each connection that resumes is promised what its input
//!    takes, since each that tries in vain costs a look at its whole pipeline. Connections that
//!    have not waited may take promised room first; then the one that was promised it waits again,
//!    as the last.
//!
//! Belongs to the shard's thread.

use crate::hop::mailbox::Mailbox;
use crate::net::connection::{Connection, Unsent};
use crate::net::pipeline::Pending;
use crate::net::slab::Occupant;
use crate::turn::work::{Held, Work};

/// Bytes that a client's command takes more in a request than in its input, about.
const MORE_BYTES: usize = 32;

/// Sends what a connection has to send; false, and it waits, if there is no room for some of it.
pub(crate) fn send_unsent(
    mailbox: &mut Mailbox,
    held: &mut Held,
    connection: &mut Connection,
) -> bool {
    while let Some(Unsent { shard, token, kind, message }) = connection.unsent.front() {
        if mailbox.send(*shard, *token, *kind, &[message]).is_err() {
            let (shard, bytes) = (*shard, message.len());
            hold(held, connection, shard, bytes);
            return false;
        }
        connection.unsent.pop_front();
    }
    true
}

/// Lets a connection wait for room for so many bytes at a shard.
pub(crate) fn hold(held: &mut Held, connection: &mut Connection, shard: usize, bytes: usize) {
    let pipe = &mut connection.pipe;
    assert!(!matches!(pipe.pending, Pending::Room { .. }), "a connection waits in one queue");
    (pipe.stopped, pipe.pending) = (true, Pending::Room { bytes });
    held[shard].push_back(Occupant::of(connection));
}

impl Work {
    /// Sends what waits to be sent of a connection that waits for nothing.
    pub(crate) fn retry(&mut self, connection: &mut Connection) {
        if connection.pipe.pending == Pending::Nothing {
            send_unsent(&mut self.mailbox, &mut self.held, connection);
        }
    }

    /// Lets connections go on for which there is room now.
    pub(crate) fn resume_held(&mut self) {
        for shard in 0..self.held.len() {
            if self.held[shard].is_empty() {
                continue;
            }
            let mut room = self.mailbox.room(shard);
            while let Some(first) = self.held[shard].front().copied() {
                let waiting = self.slab.occupant(first);
                if let Some(connection) = waiting
                    && let Pending::Room { bytes } = connection.pipe.pending
                {
                    let (commands, input) = connection.pipe.input.to_run();
                    let wanted = self.mailbox.share(input + MORE_BYTES * commands);
                    if wanted > room || !self.mailbox.can_send(shard, bytes) {
                        break;
                    }
                    room -= wanted;
                    connection.pipe.pending = Pending::Nothing;
                    self.ready.queue(first.slot);
                }
                self.held[shard].pop_front();
            }
        }
    }
}
