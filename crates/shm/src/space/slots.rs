//! Slots, segments and runs of the arena's memory, and the bounds of their numbers.
//!
//! The arena's writer only.

use super::lists::UNLISTED;
use crate::error::Denial;
use std::collections::BTreeMap;
use std::time::Duration;

/// Segments kept for what must work when the arena is full: one for urgent writes, one for the
/// cleaner.
pub(crate) const RESERVE_SEGMENTS: usize = 2;
/// Segments of the reserve that urgent writes leave: the cleaner's, without which nothing comes
/// back.
pub(super) const CLEANER_SEGMENTS: usize = 1;
/// From so many segments on the reserve is backed, not only counted: below it an arena stays small.
pub(super) const RESERVE_BACKED_FROM: u32 = 4;
/// The first segment is backed in steps of this many bytes, so that an arena of a few keys is
/// small.
pub(super) const FIRST_STEP_BYTES: u64 = 64 << 10;
/// One slot ready ahead per so many segments in use: 3 % of memory, and many times what a writer
/// fills while the provisioner backs as much.
pub(super) const AHEAD_SHARE: usize = 32;
/// Most slots that are made ready ahead: 64 MiB at the largest slot.
pub(super) const AHEAD_SLOTS_MAX: usize = 64;
/// How long an append waits for memory that is under way, at the brink of being full. What takes
/// longer is waited for between turns.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(2);
/// Between two looks while waiting.
pub(super) const WAIT_STEP: Duration = Duration::from_micros(50);
/// Retired things that an append reclaims at most, in front of a request.
pub(super) const RECLAIM_STEP: u32 = 8;

/// Behind every position of a journal.
pub(super) const CLAIMED: u64 = u64::MAX;

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Header and tables of slots.
    Fixed,
    /// Not backed.
    Free,
    /// The provisioner is at work on it.
    Moving,
    /// Backed, for a segment.
    Ready,
    /// A segment.
    Segment,
    /// Part of a run.
    Run,
    /// Waits for the grace period.
    Retired,
}

/// A slot, and what is counted of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    /// The list of segments that it stands in.
    pub(super) list: u8,
    /// Published records: with the last of them the segment dies, whatever they say of their
    /// lengths.
    pub(super) records: u32,
    /// Bytes of them; 0 only without any.
    pub(super) live: u32,
    /// Bytes at the end of a closed segment that no record took.
    pub(super) unused: u32,
    pub(super) held: u32,
}

impl Slot {
    /// Bytes that emptying the segment wouldn't win.
    pub(super) const fn kept(&self) -> u32 {
        self.live + self.unused
    }

    pub(super) const fn new(state: SlotState) -> Slot {
        Slot { state, list: UNLISTED, records: 0, live: 0, unused: 0, held: 0 }
    }
}

/// A run that holds a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueRun {
    pub(super) slots: u32,
    /// Backed bytes.
    pub(super) bytes: u64,
    /// The highest byte ever written, be it for nothing.
    pub(super) end: u64,
    pub(super) live: u32,
    pub(super) held: u32,
    /// The position behind the last entry of the journal that names it; 0: none, and
    /// [`CLAIMED`]: one that another process left.
    pub(super) named: u64,
    /// Its value can't lie in a segment.
    pub(super) must: bool,
}

/// The runs that wait for the journal.
#[derive(Default)]
pub(super) struct NamedRuns {
    /// The position before which all entries have left.
    pub(super) left: u64,
    /// Bytes of runs that no record names any more, by the position that they wait for and their
    /// first slots. One that is named by a record again is found out when its turn comes.
    pub(super) waiting: BTreeMap<(u64, u32), u64>,
}

impl NamedRuns {
    /// Whether some wait.
    pub(super) fn any_wait(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// A segment or run that waits to be reused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retired {
    Segment(u32),
    Run { slot: u32, slots: u32, bytes: u64 },
}

/// A segment that takes records.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadSegment {
    pub(super) slot: u32,
    pub(super) next: u64,
    pub(super) backed_end: u64,
    pub(super) end: u64,
}

/// The memory that a refused request lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Bytes of memory, of what the arena may use.
    Bytes(u64),
    /// Bytes of memory that the arena may use, and that the system didn't give.
    Denied(u64, Denial),
    /// Free slots in a row, though there is memory: cleaning doesn't make that.
    Place,
}

/// The segment that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) slot: u32,
    /// The next record to look at.
    pub(crate) at: u64,
    /// Where the used part ends.
    pub(crate) end: u64,
}

/// Why the cleaner works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Memory is short.
    Pressure,
    /// There is time, or segments are sparse: those that are mostly dead are worth it.
    Packing,
}
