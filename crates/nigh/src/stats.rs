//! Counts and sizes of a database.
//!
//! Any thread: plain data.

use crate::error::DbError;
use crate::shared_db::SharedDb;

/// What a database holds, and what it did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// The number of the last change.
    pub last_change: u64,
    /// All changes up to this number are on disk.
    pub durable_change: u64,
    /// Bytes of the log's files that count.
    pub log_bytes: u64,
    /// How often the log was synced.
    pub syncs: u64,
}

impl DbStats {
    pub(crate) fn of(shared: &SharedDb) -> Result<DbStats, DbError> {
        let store = shared.owner.take()?.owner().keyspace.stats();
        let log = shared.log.status().figures();
        Ok(DbStats {
            keys: store.keys,
            expires: store.expires,
            expired_keys: store.expired_keys,
            used_bytes: store.data.used_bytes,
            memory_bytes: store.data.backed_bytes,
            capacity_bytes: store.data.capacity_bytes,
            last_change: store.data.lsn,
            durable_change: shared.reader.durable_lsn(),
            log_bytes: log.bytes,
            syncs: shared.log.syncs(),
        })
    }
}
