//! An arena of edition 1 as it was found: its file, its header, its tables, and an unfinished
//! commit.
//!
//! Any thread.

use super::file1::{ArenaFile, Header1};
use super::layout1::{LINE_BYTES, LINE_ENTRIES, PROBE_LINES};
use std::collections::HashMap;

/// An arena of edition 1.
pub struct Edition1 {
    pub(super) file: ArenaFile,
    pub(super) header: Header1,
    /// End of the file: nothing behind it is touched.
    pub(super) end: u64,
    /// Generations and tails of the slots that the file reaches.
    pub(super) generations: Vec<u32>,
    pub(super) tails: Vec<u32>,
    /// Where searches look, in order: the table that is being emptied, if there is one, and the
    /// current one.
    pub(super) tables: Vec<Table1>,
    pub(super) commit: Commit1,
    pub(super) keys: u64,
    pub(super) live_bytes: u64,
}

/// Where a table lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table1 {
    pub(super) offset: u64,
    pub(super) lines: u64,
}

/// A commit that was interrupted.
#[derive(Default)]
pub(super) struct Commit1 {
    pub(super) clears_first: bool,
    /// By hash: the last record or tombstone of each key of the list.
    pub(super) last: HashMap<u32, Vec<u32>>,
    /// Those that are records.
    pub(super) puts: Vec<u32>,
}

impl Table1 {
    /// Entries that it has.
    pub(super) fn entries(&self) -> u64 {
        self.lines * LINE_ENTRIES as u64
    }

    /// Offsets of the lines that a search visits.
    pub(super) fn probe(self, hash: u32) -> impl Iterator<Item = u64> {
        let line = move |i| (u64::from(hash) + i) & (self.lines - 1);
        (0..PROBE_LINES.min(self.lines)).map(move |i| self.offset + line(i) * LINE_BYTES)
    }
}
