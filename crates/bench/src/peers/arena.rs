//! How much of Nigh's arena is used: what was set so far, by count; what tmpfs holds, by blocks.
//!
//! Invariant: no measured run of SETs is cut short by a full arena, or pays for the cleaning of a nearly full one (design
//! 6 says what that costs). Each SET appends a record, and cleaning may come too late to win it back, so the arena is
//! emptied and loaded again between runs, outside the figures.

use super::Args;
use anyhow::{Context, Result};
use std::path::Path;

/// Bytes of a record before its key.
const HEADER_BYTES: u64 = 32;
/// Records begin at multiples of this.
const UNIT_BYTES: u64 = 16;
/// Share of the arena that may be appended to between two flushes.
const SHARE: f64 = 0.8;
/// A run is expected to SET at most this many times as much as the one before.
const GROWTH: u64 = 2;
/// SETs that the first run may do: 2 seconds of 4 M/s.
const FIRST: u64 = 8_000_000;
/// Bytes of a block in `stat`.
const BLOCK_BYTES: u64 = 512;

/// Counts SETs, and says when to flush.
pub(super) struct Room {
    limit: u64,
    used: u64,
    last: u64,
}

impl Room {
    /// Room of an arena that holds all keys once.
    pub(super) fn new(args: &Args) -> Self {
        let record = record_bytes();
        let limit = fraction(args.arena, SHARE) / record;
        Self { limit, used: args.keys, last: FIRST.min(limit / 4) }
    }

    /// Whether another run might not fit.
    pub(super) fn is_short(&self) -> bool {
        self.used + self.last * GROWTH > self.limit
    }

    /// A run did `sets`.
    pub(super) fn add(&mut self, sets: u64) {
        self.used += sets;
        self.last = sets;
    }

    /// The arena was flushed and all keys loaded again.
    pub(super) fn refill(&mut self, keys: u64) {
        self.used = keys;
    }
}

/// Bytes that one record of the rows takes.
pub(super) fn record_bytes() -> u64 {
    let bytes = HEADER_BYTES + (super::rows::KEY_BYTES + super::rows::VALUE_BYTES) as u64;
    bytes.next_multiple_of(UNIT_BYTES)
}

#[expect(clippy::cast_possible_truncation, reason = "a fraction of a u64 fits in one")]
fn fraction(whole: u64, share: f64) -> u64 {
    (whole as f64 * share) as u64
}

/// Bytes of tmpfs that the files under `directory` hold.
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
