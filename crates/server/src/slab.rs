//! The connections of a shard by slot, which is what their event token says.
//!
//! 1. While a connection is worked on it is taken out, so that its commands can look at the others.
//!
//! Belongs to the shard's thread.

use crate::connection::Connection;

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
