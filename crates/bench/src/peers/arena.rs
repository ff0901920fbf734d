//! The use of Nigh's arena: records by counting SETs, bytes of files by counting blocks.
//!
//! Invariant: no measured run of SETs meets a full arena, or one so full that cleaning costs time
//! (design 6 has that cost). Each SET appends a record, and the cleaner may be too late to free the
//! old one. So `peers` empties and loads the arena between runs, outside the measured time.

use anyhow::{Context, Result};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Bytes of a record before its key.
const HEADER_BYTES: u64 = 32;
/// A record begins at a multiple of this.
const UNIT_BYTES: u64 = 16;
/// Share of the arena that records may fill between two flushes.
const SHARE: f64 = 0.8;
/// A run does at most this many times the SETs of the run before.
const GROWTH: u64 = 2;
/// Most SETs of the first run: 2 seconds of 4 M/s.
const FIRST: u64 = 8_000_000;
/// Bytes of a block in `stat`.
const BLOCK_BYTES: u64 = 512;

/// Counts SETs and tells when to flush.
pub(super) struct Room {
    limit: u64,
    used: u64,
    last: u64,
}

impl Room {
    /// The room of an arena that holds each key once.
    pub(super) fn new(arena: u64, keys: u64) -> Self {
        let limit = fraction(arena, SHARE) / record_bytes();
        Self { limit, used: keys, last: FIRST.min(limit / 4) }
    }

    /// Whether the next run may not fit.
    pub(super) fn is_short(&self) -> bool {
        self.used + self.last * GROWTH > self.limit
    }

    /// Notes a run with so many SETs.
    pub(super) fn add(&mut self, sets: u64) {
        self.used += sets;
        self.last = sets;
    }

    /// Notes that the arena was flushed and all keys were loaded.
    pub(super) fn refill(&mut self, keys: u64) {
        self.used = keys;
    }
}

/// Bytes of one record in the rows.
pub(super) fn record_bytes() -> u64 {
    let bytes = HEADER_BYTES + (super::contest::KEY_BYTES + super::contest::VALUE_BYTES) as u64;
    bytes.next_multiple_of(UNIT_BYTES)
}

#[expect(clippy::cast_possible_truncation, reason = "a fraction of a u64 fits in one")]
fn fraction(whole: u64, share: f64) -> u64 {
    (whole as f64 * share) as u64
}

/// Bytes that the files under `directory` take of their file system. A server may remove files
/// meanwhile.
pub(super) fn file_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let failed = || format!("can't look into {}", directory.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let Some(metadata) = there(entry.metadata()).with_context(failed)? else { continue };
        bytes += match metadata.is_dir() {
            true => file_bytes(&entry.path())?,
            false => metadata.blocks() * BLOCK_BYTES,
        };
    }
    Ok(bytes)
}

/// The outcome, or `None` if it is that the file isn't there.
fn there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
