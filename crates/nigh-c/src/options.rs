//! C's options as the library takes them.
//!
//! Any thread: plain data.

use crate::c_types::{nigh_batch_write, nigh_durability, nigh_options, nigh_write_options};
use crate::fault::Fault;
use nigh::{Durability, Options, WriteOptions};
use std::path::Path;
use std::time::{Duration, SystemTime};

const AS_OPENED: i32 = nigh_durability::NIGH_AS_OPENED as i32;
const EVENTUAL: i32 = nigh_durability::NIGH_EVENTUAL as i32;
const STRONG: i32 = nigh_durability::NIGH_STRONG as i32;

/// How a database is opened; its folder for memory comes as a path.
pub(crate) fn open_options(
    given: Option<&nigh_options>,
    memory_dir: Option<&Path>,
) -> Result<Options, Fault> {
    let mut options = Options::new();
    let Some(given) = given else { return Ok(options) };
    if let Some(dir) = memory_dir {
        options = options.memory_dir(dir);
    }
    if given.capacity_bytes != 0 {
        options = options.capacity_bytes(given.capacity_bytes);
    }
    if given.journal_bytes != 0 {
        options = options.journal_bytes(given.journal_bytes);
    }
    if given.log_file_bytes != 0 {
        options = options.log_file_bytes(given.log_file_bytes);
    }
    if given.threads_most != 0 {
        options = options.threads_most(given.threads_most as usize);
    }
    if given.snapshot_hold_bytes != 0 {
        options = options.snapshot_hold_bytes(given.snapshot_hold_bytes);
    }
    if given.watch_bytes != 0 {
        options = options.watch_bytes(given.watch_bytes);
    }
    if given.partitions != 0 {
        options = options.partitions(given.partitions as usize);
    }
    let durability = durability(given.durability)?.unwrap_or_default();
    let options = options.shared(given.shared != 0).keep_memory(given.keep_memory != 0);
    Ok(options.durability(durability))
}

/// How a write is done.
pub(crate) fn write_options(given: Option<&nigh_write_options>) -> Result<WriteOptions, Fault> {
    let Some(given) = given else { return Ok(WriteOptions::new()) };
    let options = match durability(given.durability)? {
        None => WriteOptions::new(),
        Some(Durability::Eventual) => WriteOptions::eventual(),
        Some(Durability::Strong) => WriteOptions::strong(),
    };
    with_expiry(options, given.expires_in_ms, given.expires_at_ms)
}

/// The expiry of one write of a batch.
pub(crate) fn batch_options(given: &nigh_batch_write) -> Result<WriteOptions, Fault> {
    with_expiry(WriteOptions::new(), given.expires_in_ms, given.expires_at_ms)
}

/// Refuses an expiry of a write that deletes: it would mean nothing.
pub(crate) fn has_no_expiry(given: &nigh_batch_write) -> Result<(), Fault> {
    match (given.expires_in_ms, given.expires_at_ms) {
        (0, 0) => Ok(()),
        _ => Err(Fault::invalid(
            "a write of the kind NIGH_DELETE has an expiry, and a key that is deleted has none: \
             set expires_in_ms and expires_at_ms to 0",
        )),
    }
}

fn with_expiry(options: WriteOptions, in_ms: u64, at_ms: u64) -> Result<WriteOptions, Fault> {
    match (in_ms, at_ms) {
        (0, 0) => Ok(options),
        (in_ms, 0) => Ok(options.expires_in(Duration::from_millis(in_ms))),
        (0, at_ms) => {
            let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
            let told = || Fault::invalid(format!("expires_at_ms is {at_ms}, which is no time"));
            Ok(options.expires_at(at.ok_or_else(told)?))
        }
        _ => Err(Fault::invalid("both expires_in_ms and expires_at_ms are given: set one to 0")),
    }
}

fn durability(given: i32) -> Result<Option<Durability>, Fault> {
    match given {
        AS_OPENED => Ok(None),
        EVENTUAL => Ok(Some(Durability::Eventual)),
        STRONG => Ok(Some(Durability::Strong)),
        other => Err(Fault::invalid(format!("durability is {other}, which is no nigh_durability"))),
    }
}
