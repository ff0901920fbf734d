//! Connections that wait for room in the mailbox of another shard.
//!
//! 1. A connection that finds no room waits in `held`, and resumes only from there, when there is
//!    room for its message. There will be: the outstanding answers bring all room back.
//! 2. They resume in their order, but for two cases. One that wants room for a body doesn't keep
//!    others from going on. And connections that have not waited may take promised room first; then
//!    the one that was promised it waits again.
//!
//! Belongs to the shard's thread.

use crate::hop::mailbox::Mailbox;
use crate::hop::message::MOST_COMMANDS;
use crate::net::connection::{Connection, Unsent};
use crate::net::pipeline::Pending;
use crate::net::slab::Occupant;
use crate::turn::work::Work;

/// Bytes that a client's command takes more in a request than in its input, about.
const MORE_BYTES: usize = 32;

/// Sends what a connection has to send; false if there is no room for some of it.
pub(crate) fn send_unsent(mailbox: &mut Mailbox, connection: &mut Connection) -> bool {
    while let Some(Unsent { shard, token, kind, message }) = connection.unsent.front() {
        if mailbox.send(*shard, *token, *kind, &[message]).is_err() {
            connection.pipe.pending = Pending::Room { shard: *shard, bytes: message.len() };
            return false;
        }
        connection.unsent.pop_front();
    }
    true
}

/// Lists a connection as one that waits for room, and lets it run no further.
pub(crate) fn hold(held: &mut Vec<Occupant>, connection: &mut Connection) {
    connection.pipe.stopped = true;
    if !std::mem::replace(&mut connection.is_held, true) {
        held.push(Occupant::of(connection));
    }
}

impl Work {
    /// Looks whether there is room for what found none before, and sends what waits to be sent.
    pub(crate) fn retry(&mut self, connection: &mut Connection) {
        if connection.is_held {
            return; // its turn comes
        }
        if let Pending::Room { shard, bytes } = connection.pipe.pending
            && self.mailbox.can_send(shard, bytes)
        {
            connection.pipe.pending = Pending::Nothing;
        }
        let waits = matches!(connection.pipe.pending, Pending::Room { .. });
        let sends = connection.pipe.pending == Pending::Nothing;
        if waits || sends && !send_unsent(&mut self.mailbox, connection) {
            hold(&mut self.held, connection);
        }
    }

    /// Lets connections that wait for room try again, in their order: as many as there is room for,
    /// since each that tries in vain costs a look at its whole pipeline.
    pub(crate) fn resume_held(&mut self) {
        self.promise_nothing();
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&who| {
            let is_resumed = self.resumes(who);
            if is_resumed && let Some(connection) = self.slab.occupant(who) {
                connection.is_held = false;
                let slot = connection.slot;
                self.queue(slot);
            }
            !is_resumed
        });
        self.held = held;
    }

    /// Whether there is room for a connection that waits for some.
    pub(crate) fn may_resume(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        self.promise_nothing();
        let held = std::mem::take(&mut self.held);
        let resumes = held.iter().any(|&who| self.resumes(who));
        self.held = held;
        resumes
    }

    fn promise_nothing(&mut self) {
        self.promised.clear();
        self.promised.resize(self.mailbox.shards(), Some((0, 0)));
    }

    /// Whether a held connection waits for nothing, or for room that is there beside what those
    /// before it have been promised; if it isn't, nobody behind it is promised any.
    fn resumes(&mut self, who: Occupant) -> bool {
        let Some(connection) = self.slab.occupant(who) else { return true };
        let Pending::Room { shard, bytes } = connection.pipe.pending else { return true };
        if !self.mailbox.can_send(shard, bytes) {
            // Maybe it is the body for which there is no room: others don't wait for that.
            return false;
        }
        let (commands, bytes) = connection.pipe.input.to_run();
        let more = |(requests, promised)| {
            let wanted = bytes + MORE_BYTES * commands;
            let room = self.mailbox.room(shard, wanted, promised)?;
            let next = (requests + commands.div_ceil(MOST_COMMANDS), promised + room);
            (requests < self.mailbox.credits(shard)).then_some(next)
        };
        self.promised[shard] = self.promised[shard].and_then(more);
        self.promised[shard].is_some()
    }
}
