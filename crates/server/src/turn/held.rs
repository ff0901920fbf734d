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
use crate::net::slab::{Occupant, Slab};
use crate::turn::ready::Ready;
use std::collections::VecDeque;

/// Bytes that a client's command takes more in a request than in its input, about.
const MORE_BYTES: usize = 32;

/// By shard: the connections that wait for room there, the first of them first.
#[derive(Debug)]
pub(crate) struct HeldQueues(Vec<VecDeque<Occupant>>);

impl HeldQueues {
    pub(crate) fn new(shards: usize) -> Self {
        Self(vec![VecDeque::new(); shards])
    }

    /// Sends what a connection has to send; it waits if there is no room for some of it.
    pub(crate) fn send_unsent(&mut self, mailbox: &mut Mailbox, connection: &mut Connection) {
        while let Some(Unsent { shard, token, kind, message }) = connection.unsent.front() {
            if mailbox.send(*shard, *token, *kind, &[message]).is_err() {
                let (shard, bytes) = (*shard, message.len());
                return self.hold(connection, shard, bytes);
            }
            connection.unsent.pop_front();
        }
    }

    /// Lets a connection wait for room for so many bytes at a shard.
    pub(crate) fn hold(&mut self, connection: &mut Connection, shard: usize, bytes: usize) {
        let pipe = &mut connection.pipe;
        assert!(!matches!(pipe.pending, Pending::Room { .. }), "a connection waits in one queue");
        (pipe.stopped, pipe.pending) = (true, Pending::Room { bytes });
        self.0[shard].push_back(Occupant::of(connection));
    }

    /// Lets connections go on for which there is room now.
    pub(crate) fn resume(&mut self, mailbox: &mut Mailbox, slab: &mut Slab, ready: &mut Ready) {
        for (shard, queue) in self.0.iter_mut().enumerate() {
            if queue.is_empty() {
                continue;
            }
            let mut room = mailbox.room(shard);
            while let Some(first) = queue.front().copied() {
                if let Some(connection) = slab.occupant(first)
                    && let Pending::Room { bytes } = connection.pipe.pending
                {
                    let (commands, input) = connection.pipe.input.to_run();
                    let wanted = mailbox.share(input + MORE_BYTES * commands);
                    if wanted > room || !mailbox.can_send(shard, bytes) {
                        break;
                    }
                    room -= wanted;
                    connection.pipe.pending = Pending::Nothing;
                    ready.queue(first.slot);
                }
                queue.pop_front();
            }
        }
    }
}
