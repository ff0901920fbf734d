//! The plain data that C passes and gets.
//!
//! 1. All zeros is the default of what C passes.
//! 2. No field is of a Rust enum or a `bool`: C may put any number there.
//!
//! Any thread: plain data.
#![expect(non_camel_case_types, reason = "the names in C")]

use std::ffi::{c_char, c_void};

/// A database: a number, so that a handle of a closed one is told from others. All zeros is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_db {
    /// Not for use.
    pub id: u64,
}

/// Keys and values of one moment. All zeros is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_snapshot {
    /// Not for use.
    pub id: u64,
}

/// Changes under a prefix. All zeros is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_watch {
    /// Not for use.
    pub id: u64,
}

/// A database that another process has open, to be read. All zeros is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nigh_reader {
    /// Not for use.
    pub id: u64,
}

/// Bytes: a key or a value. In a result, `data` is NULL if there is none, and a NUL that doesn't
/// count follows the bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_bytes {
    /// Where they begin.
    pub data: *const c_char,
    /// Their number.
    pub len: usize,
}

/// A key with its value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_pair {
    /// The key.
    pub key: nigh_bytes,
    /// Its value.
    pub value: nigh_bytes,
}

/// When a write is answered.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nigh_durability {
    /// As the database was opened; for a database: NIGH_EVENTUAL.
    NIGH_AS_OPENED = 0,
    /// When the change survives this process. It is on disk within about a second; a power cut may
    /// take it.
    NIGH_EVENTUAL = 1,
    /// When the change, and all before it, is on disk.
    NIGH_STRONG = 2,
}

/// What a write of a batch does.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nigh_write_kind {
    /// The key gets the value.
    NIGH_PUT = 0,
    /// The key is deleted, if it is there; the value doesn't count.
    NIGH_DELETE = 1,
}

/// How a database is opened. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_options {
    /// The folder, in a tmpfs, for journal and memory; NULL: one of the database's own in /dev/shm.
    pub memory_dir: *const c_char,
    /// Bytes of memory that the data may take, 8 MiB to 64 GiB for each partition; 0: half of what
    /// is free. They are taken as data comes.
    pub capacity_bytes: u64,
    /// Bytes of each partition's journal, 1 MiB to 4 GiB; 0: 64 MiB, or less on a small disk. A
    /// batch takes a fourth at most, and so does a value, unless the memory is shared.
    pub journal_bytes: u64,
    /// Bytes of a file of the log, 1 MiB to 1 GiB; 0: 64 MiB, or less on a small disk.
    pub log_file_bytes: u64,
    /// Threads that may have read and not ended yet, up to 4096; 0: 256.
    pub threads_most: u32,
    /// A nigh_durability: when writes are answered that don't say it themselves.
    pub durability: i32,
    /// Not 0: closing leaves the data in memory: the next open reads no log. It takes `shared`.
    pub keep_memory: i32,
    /// Bytes of memory that a snapshot may hold back, from 1 MiB on; 0: a fourth of the capacity.
    /// Each partition has an equal share.
    pub snapshot_hold_bytes: u64,
    /// Bytes of events that may wait for one watch, 4 KiB to 1 GiB; 0: 4 MiB.
    pub watch_bytes: u64,
    /// Partitions of a new database, 1 to 64; 0: 1, or as many as it has. Each has a lock, a
    /// journal and a log, so that as many threads write at once. A batch is one partition's: keys
    /// with the same text in braces lie together.
    pub partitions: u32,
    /// Not 0: other processes may read along, by nigh_reader_open. 0: the memory is this process's
    /// alone, and goes with it.
    pub shared: i32,
}

/// How one write is done. NULL, or all zeros: as the database was opened, without an expiry.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_write_options {
    /// A nigh_durability.
    pub durability: i32,
    /// If not 0: the key is gone after so many milliseconds.
    pub expires_in_ms: u64,
    /// If not 0: the key is gone from this time on, in Unix milliseconds. Not together with
    /// `expires_in_ms`.
    pub expires_at_ms: u64,
}

/// One write of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_batch_write {
    /// A nigh_write_kind.
    pub kind: i32,
    /// The key.
    pub key: nigh_bytes,
    /// Its value.
    pub value: nigh_bytes,
    /// As in nigh_write_options; 0 for a NIGH_DELETE.
    pub expires_in_ms: u64,
    /// As in nigh_write_options; 0 for a NIGH_DELETE.
    pub expires_at_ms: u64,
}

/// What an event tells.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nigh_event_kind {
    /// The key got the value.
    NIGH_EVENT_PUT = 0,
    /// The key, which has a long value, got another expiry, or none; the value is as it was.
    NIGH_EVENT_EXPIRES = 1,
    /// The key was deleted, or its time was over.
    NIGH_EVENT_REMOVED = 2,
    /// All keys were removed.
    NIGH_EVENT_CLEARED = 3,
    /// Changes from `first` to `change` may be missing: nobody took events for too long, or the log
    /// broke. A watch from the place before this event tells what the log has; or read the keys.
    NIGH_EVENT_LOST = 4,
}

/// A change that a watch tells.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_event {
    /// A nigh_event_kind.
    pub kind: i32,
    /// The partition, counted from 0. Each numbers its changes from 1 on.
    pub partition: u32,
    /// The change's number; the last one of those that were lost.
    pub change: u64,
    /// The first number that may be missing; else 0.
    pub first: u64,
    /// Unix milliseconds from which on the key is gone; 0 if it has no expiry.
    pub expires_at_ms: u64,
    /// The key, if the event has one.
    pub key: nigh_bytes,
    /// The value, if the event has one.
    pub value: nigh_bytes,
    /// Where key and value lie, for nigh_free.
    pub block: *mut c_void,
}

/// What a database holds, and what it did since it was opened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nigh_db_stats {
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
    /// Those of them that are on disk.
    pub durable_change: u64,
    /// Bytes of the log's files that count.
    pub log_bytes: u64,
    /// How often the log was synced.
    pub syncs: u64,
}

impl From<nigh::DbStats> for nigh_db_stats {
    fn from(stats: nigh::DbStats) -> nigh_db_stats {
        nigh_db_stats {
            keys: stats.keys,
            expires: stats.expires,
            expired_keys: stats.expired_keys,
            used_bytes: stats.used_bytes,
            memory_bytes: stats.memory_bytes,
            capacity_bytes: stats.capacity_bytes,
            last_change: stats.last_change,
            durable_change: stats.durable_change,
            log_bytes: stats.log_bytes,
            syncs: stats.syncs,
        }
    }
}
