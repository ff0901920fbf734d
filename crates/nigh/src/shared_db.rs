//! What all threads of a database share.
//!
//! 1. A key lies in one partition, by the hash of its tag. Each partition has its own lock, journal
//!    and log; all have one domain, so a participant holds records of any.
//! 2. A thread that takes several locks takes them in the partitions' order.
//!
//! Any thread.

use crate::error::DbError;
use crate::log_side::LogSide;
use crate::options::Durability;
use crate::owner::{OwnerLock, Owning};
use crate::participants::Participants;
use crate::watch::Watches;
use nigh_log::{RealFolder, World};
use nigh_shm::partition_of;
use nigh_shm::{ForkMark, Reader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The shared state of a database.
pub(crate) struct SharedDb {
    /// At least one.
    pub(crate) partitions: Vec<DbPartition>,
    pub(crate) participants: Participants,
    /// The watches, which the logs' threads tell of changes.
    pub(crate) watches: Arc<Watches>,
    pub(crate) world: World<RealFolder>,
    pub(crate) durability: Durability,
    /// Bytes of memory that a snapshot may hold back in each partition.
    pub(crate) snapshot_hold_bytes: u64,
    /// Bytes of events that may wait for one watch.
    pub(crate) watch_bytes: u64,
    /// CPU time of a function's call, ms.
    #[cfg(feature = "functions")]
    pub(crate) function_limit_ms: u64,
    /// Knows the process that opened the database.
    pub(crate) fork_mark: Arc<ForkMark>,
    /// The database is being closed.
    pub(crate) ends: AtomicBool,
}

/// A partition, as all threads see it.
pub(crate) struct DbPartition {
    /// Finds records, without a lock.
    pub(crate) reader: Reader,
    /// That of the libraries, which are in the log of the first partition.
    pub(crate) libraries: Option<Reader>,
    pub(crate) owner: OwnerLock,
    pub(crate) log: LogSide,
}

impl DbPartition {
    /// Those of all whose changes are in the partition's log.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &Reader> {
        std::iter::once(&self.reader).chain(&self.libraries)
    }
}

impl SharedDb {
    /// The number of a key's partition, and the key's hash.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> (usize, u32) {
        let hash_of = |key: &[u8]| self.partitions[0].reader.hash(key);
        let hash = hash_of(key);
        (partition_of(key, hash, self.partitions.len(), hash_of), hash)
    }

    /// The number of a key's partition.
    #[inline]
    pub(crate) fn number_of(&self, key: &[u8]) -> usize {
        if self.partitions.len() == 1 { 0 } else { self.place(key).0 }
    }

    /// Has the logs write and sync what is left, and waits for their threads. False if one
    /// panicked.
    pub(crate) fn close_logs(&self) -> bool {
        self.partitions.iter().for_each(|it| it.log.status().close());
        let panicked = self.partitions.iter().filter(|it| !it.log.close()).count();
        self.watches.close();
        panicked == 0
    }

    /// The number of the change that comes next, of each partition. With the locks of all, none is
    /// under way.
    pub(crate) fn next_changes(&self) -> Vec<u64> {
        self.partitions.iter().map(|it| it.reader.begun_lsn() + 1).collect()
    }

    /// The locks of all partitions: while they are held, nothing changes.
    pub(crate) fn own_all(&self) -> Result<Vec<Owning<'_>>, DbError> {
        self.partitions.iter().map(|it| it.owner.take()).collect()
    }
}
