//! The cleaner's state and counts, and the two things that it does to the shared words.
//!
//! See `clean` for what it does with them. Finding and moving a record is generic over the words,
//! so that models run it. The arena's writer only.

use crate::check::checker::Counts;
use crate::format::head::Head;
use crate::format::layout::{entry, record as r};
use crate::format::record::reference_of;
use crate::format::words::SharedWords;
use crate::index::{EntryPlace, Index};
use crate::region::kept::KnownBad;

/// The cleaner's counts since this writer came, but for the two totals that the header keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CleanerStats {
    /// Segments emptied, by this writer and those before it.
    pub segments: u64,
    /// Bytes of records that were moved, by this writer and those before it.
    pub relocated_bytes: u64,
    /// Records that were moved.
    pub relocated_records: u64,
    /// Expired keys that were met and deleted.
    pub expired_keys: u64,
    /// Live records that were met whose checksum is wrong, and which stay where they are; 1,000 are
    /// told apart.
    pub bad_records: u64,
    /// Steps: each was in front of a request or of the next turn.
    pub steps: u64,
    /// Bytes of victims that the longest step went by.
    pub longest_step_bytes: u64,
    /// Time of the longest step by the clock that was passed, or 0.
    pub longest_step_ns: u64,
}

impl CleanerStats {
    /// Adds another arena's: sums, and the longer of the longest steps.
    pub(crate) fn add(&mut self, other: &CleanerStats) {
        self.segments += other.segments;
        self.relocated_bytes += other.relocated_bytes;
        self.relocated_records += other.relocated_records;
        self.expired_keys += other.expired_keys;
        self.bad_records += other.bad_records;
        self.steps += other.steps;
        self.longest_step_bytes = self.longest_step_bytes.max(other.longest_step_bytes);
        self.longest_step_ns = self.longest_step_ns.max(other.longest_step_ns);
    }
}

/// The cleaner's own state.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Appended bytes at which the next payment is due.
    pub(crate) due: u64,
    /// Appended bytes that are paid for.
    pub(super) paid: u64,
    /// Bytes to walk over that are not yet.
    pub(crate) owed: u64,
    /// Appended bytes at the last upkeep, and the time of the one that found them changed.
    pub(super) seen: u64,
    pub(super) seen_ms: u64,
    /// Unix milliseconds, as the last upkeep said; 0: not known, nothing has expired.
    pub(crate) now_ms: u64,
    /// The upkeep's time when it last cleaned sparse segments beside writes.
    pub(super) sparse_ms: u64,
    /// Expired keys deleted since the last upkeep.
    pub(crate) expired: u32,
    pub(crate) known: KnownBad,
    pub(crate) wants_turn: bool,
    /// The last step found no room for what is alive.
    pub(crate) stuck: bool,
    /// Sparse segments are left as they are while memory isn't short.
    pub(crate) leaves_sparse: bool,
    pub(crate) clock: Option<fn() -> u64>,
    pub(crate) stats: CleanerStats,
}

impl Cleaner {
    /// Goes on where another writer has stopped.
    pub(crate) fn resume(&mut self, counts: &Counts) {
        (self.paid, self.seen) = (counts.appended_bytes, counts.appended_bytes);
        self.stats.relocated_bytes = counts.relocated_bytes;
        self.stats.segments = counts.cleaned_segments;
    }
}

/// Finds the entry that names a record.
#[inline]
pub(super) fn locate<W: SharedWords>(
    words: &W,
    index: &Index,
    hash: u32,
    reference: u32,
) -> Option<EntryPlace> {
    let wanted = entry(hash, reference);
    let old = index.old().map(|table| (table, true));
    for (table, in_old) in old.into_iter().chain([(index.current(), false)]) {
        for line_at in table.probe(hash) {
            let line = words.line(line_at);
            if let Some(i) = (0u64..).zip(line).find_map(|(i, e)| (e == wanted).then_some(i)) {
                return Some(EntryPlace { at: line_at + 8 * i, reference, in_old });
            }
            if line.contains(&0) {
                break;
            }
        }
    }
    None
}

/// Copies a record and publishes the copy in place of the original. `seal` runs in between: it
/// stores the tail of the copy's segment.
pub(crate) fn move_record<W: SharedWords>(
    words: &W,
    index: &mut Index,
    (place, hash): (&EntryPlace, u32),
    head: &Head,
    to: u64,
    seal: impl FnOnce(),
) {
    words.copy_record(u64::from(place.reference) * r::UNIT, to, head.bytes());
    seal();
    index.replace(words, place, hash, reference_of(to));
}
