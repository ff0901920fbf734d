//! What all threads of a database share.
//!
//! Any thread.

use crate::log_side::LogSide;
use crate::options::Durability;
use crate::owner::OwnerLock;
use crate::participants::Participants;
use nigh_log::{RealFolder, World};
use nigh_shm::{ForkMark, Reader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The shared state of a database.
pub(crate) struct SharedDb {
    /// Finds records, without a lock.
    pub(crate) reader: Reader,
    pub(crate) participants: Participants,
    pub(crate) owner: OwnerLock,
    pub(crate) log: LogSide,
    pub(crate) world: World<RealFolder>,
    pub(crate) durability: Durability,
    /// Bytes of memory that a snapshot may hold back.
    pub(crate) snapshot_hold_bytes: u64,
    /// Bytes of events that may wait for one watch.
    pub(crate) watch_bytes: u64,
    /// Knows the process that opened the database.
    pub(crate) fork_mark: Arc<ForkMark>,
    /// The database is being closed.
    pub(crate) ends: AtomicBool,
}
