//! How a database is opened, and how one write is done, as JavaScript says it.
//!
//! 1. `index.js` has checked types and ranges: what can't be here counts as 0.
//!
//! The thread of the JavaScript.

use napi_derive::napi;
use nigh::{Durability, Options, TimeToLive, WriteOptions};
use std::time::{Duration, SystemTime};

/// `OpenOptions` of `index.d.ts`.
#[napi(object, object_to_js = false)]
pub struct OpenOptions {
    pub memory_dir: Option<String>,
    pub capacity_bytes: Option<i64>,
    pub journal_bytes: Option<i64>,
    pub log_file_bytes: Option<i64>,
    pub threads_most: Option<i64>,
    pub snapshot_hold_bytes: Option<i64>,
    pub watch_bytes: Option<i64>,
    pub partitions: Option<i64>,
    pub strong: Option<bool>,
    pub shared: Option<bool>,
    pub keep_memory: Option<bool>,
}

fn count(given: i64) -> u64 {
    u64::try_from(given).unwrap_or_default()
}

impl OpenOptions {
    pub(crate) fn options(&self) -> Options {
        let durability = match self.strong {
            Some(true) => Durability::Strong,
            _ => Durability::Eventual,
        };
        let mut options = Options::new().durability(durability);
        options = options.shared(self.shared.unwrap_or_default());
        options = options.keep_memory(self.keep_memory.unwrap_or_default());
        if let Some(dir) = &self.memory_dir {
            options = options.memory_dir(dir);
        }
        if let Some(bytes) = self.capacity_bytes {
            options = options.capacity_bytes(count(bytes));
        }
        if let Some(bytes) = self.journal_bytes {
            options = options.journal_bytes(count(bytes));
        }
        if let Some(bytes) = self.log_file_bytes {
            options = options.log_file_bytes(count(bytes));
        }
        if let Some(threads) = self.threads_most {
            options = options.threads_most(usize::try_from(threads).unwrap_or_default());
        }
        if let Some(bytes) = self.snapshot_hold_bytes {
            options = options.snapshot_hold_bytes(count(bytes));
        }
        if let Some(bytes) = self.watch_bytes {
            options = options.watch_bytes(count(bytes));
        }
        if let Some(partitions) = self.partitions {
            options = options.partitions(usize::try_from(partitions).unwrap_or_default());
        }
        options
    }
}

/// How a write is done that JavaScript waits for. Without `waits` it fails where it would wait for
/// memory, or for a disk that is late.
pub(crate) fn write_options(
    strong: Option<bool>,
    waits: bool,
    expires_at_ms: Option<i64>,
) -> WriteOptions {
    let options = match strong {
        None => WriteOptions::new(),
        Some(true) => WriteOptions::strong(),
        Some(false) => WriteOptions::eventual(),
    };
    let options = if waits { options } else { options.without_waiting() };
    with_expiry(options, expires_at_ms)
}

/// How a write is done in a thread of the pool; index.js waits for the disk itself.
pub(crate) fn later_options(expires_at_ms: Option<i64>) -> WriteOptions {
    with_expiry(WriteOptions::eventual(), expires_at_ms)
}

fn with_expiry(options: WriteOptions, expires_at_ms: Option<i64>) -> WriteOptions {
    let since = expires_at_ms.map(|ms| Duration::from_millis(count(ms)));
    // Beyond all time is never.
    match since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)) {
        Some(at) => options.expires_at(at),
        None => options,
    }
}

/// How long a key stays, whole milliseconds: infinity if it has no expiry.
pub(crate) fn ms_left(life: TimeToLive) -> f64 {
    match life {
        TimeToLive::Forever => f64::INFINITY,
        TimeToLive::Left(left) => (left.as_secs_f64() * 1000.0).floor(),
    }
}
