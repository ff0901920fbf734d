//! What a writer knows of its journal, and how a change is told to it.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::journal::ring_writer::JournalWriter;
use crate::write::root_map::Roots;

/// The published version that a staged value in a run stands on.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(super) key: Box<[u8]>,
    pub(super) lsn: u64,
    pub(super) len: u32,
}

/// The stores of a change, for the journal.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// The entry of a record that was just written, of this key and these parts of its value, which
    /// lies in it: copied from where they come from, since where they went the words still wait for
    /// the cache.
    Put { head: &'a Head, key: &'a [u8], parts: &'a [&'a [u8]] },
    /// Entries of staged records and tombstones, in order; behind a clearing, if `clears`.
    Entries { clears: bool, entries: &'a [u64] },
    /// The end of the entries of these keys, hash and key of each.
    Removals(&'a [(u32, &'a [u8])]),
}

/// A writer's part in the journal of its shard.
pub(crate) struct JournalPart {
    pub(super) ring: JournalWriter,
    pub(super) stream: u32,
    /// What the next commit depends on: stream and LSN of each.
    pub(super) needs: Vec<(u32, u64)>,
    pub(super) roots: Roots,
}
