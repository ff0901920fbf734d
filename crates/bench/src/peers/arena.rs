//! The use of Nigh's arena: records by counting SETs, bytes of tmpfs by counting blocks.
//!
//! Invariant: no measured run of SETs meets a full arena, or one so full that cleaning costs time
//! (design 6 has that cost). Each SET appends a record, and the cleaner may be too late to free the
//! old one. So `peers` empties and loads the arena between runs, outside the measured time.

use super::contest::Args;
use anyhow::{Context, Result};
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
    pub(super) fn new(args: &Args) -> Self {
        let record = record_bytes();
        let limit = fraction(args.arena, SHARE) / record;
        Self { limit, used: args.keys, last: FIRST.min(limit / 4) }
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

/// Bytes of tmpfs in the files under `directory`.
pub(super) fn tmpfs_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let failed = || format!("can't look into {}", directory.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let metadata = entry.metadata().with_context(failed)?;
        bytes += match metadata.is_dir() {
            true => tmpfs_bytes(&entry.path())?,
            false => metadata.blocks() * BLOCK_BYTES,
        };
    }
    Ok(bytes)
}
