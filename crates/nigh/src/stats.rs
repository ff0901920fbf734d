//! Counts and sizes of a database.
//!
//! Any thread: plain data.

use crate::error::DbError;
use crate::shared_db::{DbPartition, SharedDb};

/// What a database holds, and what it did since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DbStats {
    /// Keys. One whose time is over counts until it is met.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Keys that were removed because their time was over.
    pub expired_keys: u64,
    /// Bytes of live records: keys, values and what belongs to them.
    pub used_bytes: u64,
    /// Bytes of memory that the data takes.
    pub memory_bytes: u64,
    /// Bytes of memory that it may take.
    pub capacity_bytes: u64,
    /// Changes that were made, in all partitions. Of a database with one it is the number of the
    /// last change.
    pub last_change: u64,
    /// Those of them that are on disk, with all that the same partition made before.
    pub durable_change: u64,
    /// Bytes of the log's files that count.
    pub log_bytes: u64,
    /// How often the log was synced.
    pub syncs: u64,
    /// How far each partition is.
    pub partitions: Vec<PartitionStats>,
}

/// How far a partition is: each numbers its changes from 1 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Keys.
    pub keys: u64,
    /// The number of the last change.
    pub last_change: u64,
    /// All changes up to this number are on disk.
    pub durable_change: u64,
}

impl DbStats {
    pub(crate) fn of(shared: &SharedDb) -> Result<DbStats, DbError> {
        let mut sum = DbStats::default();
        shared.partitions.iter().try_for_each(|it| sum.add(it))?;
        Ok(sum)
    }

    fn add(&mut self, partition: &DbPartition) -> Result<(), DbError> {
        // First, so that it isn't more than there was.
        let durable_change = partition.reader.durable_lsn();
        let store = partition.owner.take()?.owner().store().stats();
        let log = partition.log.status().figures();
        let one = PartitionStats { keys: store.keys, last_change: store.data.lsn, durable_change };
        self.keys += one.keys;
        self.expires += store.expires;
        self.expired_keys += store.expired_keys;
        self.used_bytes += store.data.used_bytes;
        self.memory_bytes += store.data.backed_bytes;
        self.capacity_bytes += store.data.capacity_bytes;
        self.last_change += one.last_change;
        self.durable_change += one.durable_change;
        self.log_bytes += log.bytes;
        self.syncs += partition.log.syncs();
        self.partitions.push(one);
        Ok(())
    }
}
