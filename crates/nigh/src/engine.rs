//! What all threads of a database share.
//!
//! Any thread.

use crate::log_side::LogSide;
use crate::options::Durability;
use crate::owner::OwnerLock;
use crate::seats::Seats;
use nigh_log::{RealFolder, World};
use nigh_shm::Reader;
use std::sync::atomic::AtomicBool;

/// The shared state of a database.
pub(crate) struct Engine {
    /// Finds records, without a lock.
    pub(crate) reader: Reader,
    pub(crate) seats: Seats,
    pub(crate) owner: OwnerLock,
    pub(crate) log: LogSide,
    pub(crate) world: World<RealFolder>,
    pub(crate) durability: Durability,
    /// The database is being closed.
    pub(crate) ends: AtomicBool,
}
