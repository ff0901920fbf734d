//! The connections of a shard by slot, which is what their event token says.
//!
//! 1. While a connection is worked on it is taken out, so that its commands can look at the others.
//! 2. A slot is used again as soon as its connection is gone. What comes later for that one names
//!    it by a [`Return`], and lists of those that wait for something by an [`Occupant`]: each finds
//!    it or nobody.
//!
//! The crate `slab` was measured beside it: to find, to take out and to put back take as long with
//! either, and its slots are 16 bytes instead of 8. It would replace the list of free slots only,
//! which is five lines.
//!
//! Belongs to the shard's thread.

use crate::net::connection::Connection;

/// Where the answer to a request belongs: the slot and the number of its connection, and how the
/// reply is to be taken. Travels along as the request's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return(pub(crate) u64);

impl Return {
    /// The reply isn't wanted (CLIENT REPLY).
    const SILENT: u64 = 1 << 31;
    /// The reply may be long.
    const LONG: u64 = 1 << 30;
    /// The connection's number: its lowest bits, which come again after a thousand million clients.
    const ID: u64 = Self::LONG - 1;

    /// To a connection.
    pub(crate) fn to(connection: &Connection, silent: bool, is_brief: bool) -> Self {
        let id = connection.pipe.client.id & Self::ID;
        let silent = if silent { Self::SILENT } else { 0 };
        let long = if is_brief { 0 } else { Self::LONG };
        Self((connection.slot as u64) << 32 | silent | long | id)
    }

    pub(crate) fn is_silent(self) -> bool {
        self.0 & Self::SILENT != 0
    }

    pub(crate) fn is_brief(self) -> bool {
        self.0 & Self::LONG == 0
    }

    /// Its slot.
    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.0 >> 32).unwrap_or(usize::MAX)
    }

    fn names(self, connection: &Connection) -> bool {
        connection.pipe.client.id & Self::ID == self.0 & Self::ID
    }
}

/// A connection in its slot, as lists of those that wait name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub(crate) slot: usize,
    client: u64,
}

impl Occupant {
    pub(crate) fn of(connection: &Connection) -> Self {
        Self { slot: connection.slot, client: connection.pipe.client.id }
    }
}

/// Connections by slot.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
}

impl Slab {
    /// A slot for a connection that comes.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Gives up a slot whose connection has been taken, or never came.
    pub(crate) fn release(&mut self, slot: usize) {
        debug_assert!(self.slots[slot].is_none(), "the connection is taken first");
        self.free.push(slot);
    }

    /// Puts a connection into its slot.
    pub(crate) fn put(&mut self, connection: Box<Connection>) {
        let slot = connection.slot;
        debug_assert!(self.slots[slot].is_none(), "a slot holds one connection");
        self.slots[slot] = Some(connection);
    }

    /// The connection of a slot.
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The connection that an answer belongs to, if it is still there.
    pub(crate) fn addressee(&mut self, to: Return) -> Option<&mut Connection> {
        self.get_mut(to.slot()).filter(|connection| to.names(connection))
    }

    /// The connection that was listed, if it is still there.
    pub(crate) fn occupant(&mut self, who: Occupant) -> Option<&mut Connection> {
        self.get_mut(who.slot).filter(|connection| connection.pipe.client.id == who.client)
    }

    /// Asks for the memory of a slot's connection, which is worked on soon.
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(Some(connection)) = self.slots.get(slot) {
            nigh_shm::prefetch(&**connection);
        }
    }

    /// Takes the connection of a slot out; the slot stays its.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Box<Connection>> {
        self.slots.get_mut(slot)?.take()
    }

    /// Number of connections, those that are taken out included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of slots, used or free.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Visits each connection that isn't taken out.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut Connection)) {
        self.slots.iter_mut().flatten().for_each(|connection| visit(connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::client::Client;
    use crate::net::connection::Stream;
    use mio::net::UnixStream;
    use std::time::Instant;

    fn connection(slab: &mut Slab, id: u64) -> usize {
        let stream = Stream::Unix(UnixStream::pair().expect("sockets").0);
        let client = Client::new(id, String::new(), String::new(), Instant::now());
        let mut connection = Box::new(Connection::new(0, stream, client));
        (connection.slot, connection.pipe.client.id) = (slab.reserve(), id);
        let slot = connection.slot;
        slab.put(connection);
        slot
    }

    #[test]
    fn an_answer_finds_its_connection_or_nobody() {
        // Its slot has another one, or nobody, or it is being worked on.
        let mut slab = Slab::default();
        let slot = connection(&mut slab, 7);
        let to = Return::to(slab.get_mut(slot).expect("put"), true, false);
        assert_eq!((to.is_silent(), to.is_brief()), (true, false));
        let to = Return(to.0);
        assert_eq!(slab.addressee(to).map(|connection| connection.pipe.client.id), Some(7));
        let seven = slab.take(slot).expect("it is there");
        assert!(slab.addressee(to).is_none());
        slab.release(slot);
        assert_eq!(connection(&mut slab, 8), slot, "the slot is used again");
        assert!(slab.addressee(to).is_none());
        let other = connection(&mut slab, 7 + (1 << 20));
        assert_ne!(other, slot);
        assert!(slab.addressee(to).is_none());
        drop(seven);
    }

    #[test]
    fn who_was_listed_is_met_again_or_nobody() {
        // It waited for something, and was killed meanwhile; now its slot is another's, which waits
        // for something too, and would be told that it has come.
        let mut slab = Slab::default();
        let slot = connection(&mut slab, 7);
        let who = Occupant::of(slab.get_mut(slot).expect("put"));
        assert_eq!(slab.occupant(who).map(|connection| connection.pipe.client.id), Some(7));
        drop(slab.take(slot));
        assert!(slab.occupant(who).is_none());
        slab.release(slot);
        assert_eq!(connection(&mut slab, 8), slot, "the slot is used again");
        assert!(slab.occupant(who).is_none());
    }
}
