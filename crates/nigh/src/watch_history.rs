//! Changes that were before a watch began: from the files of the log.
//!
//! ```text
//! number N ── the file that has it ── frames ── fresh changes from N on ── up to where the watch began
//! ```
//!
//! 1. The fresh changes of a partition have no gap in a chain. So they are told from N on without
//!    one, or it is said before that N isn't there any more.
//! 2. Files that are read are held, up to a bound. If more is compacted away meanwhile, the rest is
//!    told as lost.
//! 3. A frame is read at a time: what waits is bounded by that.
//!
//! The thread that takes from the watch.

use crate::watch_event::{WatchEvent, event_of};
use nigh_log::{ChainMark, ChangeKind, Followed, LogFollower, RealFolder};
use nigh_shm::{Effect, StreamChange};
use nigh_store::data_stream;
use std::collections::VecDeque;
use std::sync::Arc;

/// As long as it lasts, files of the log aren't used again, though nothing in them counts.
pub(crate) type HeldFiles = Arc<()>;

/// A log that is marked where a watch began, and its files, held.
pub(crate) struct MarkedLog {
    pub(crate) mark: ChainMark,
    pub(crate) held: HeldFiles,
}

/// What of a watch's prefix was before it began, in a partition.
pub(crate) struct WatchHistory {
    /// `None` when all was read.
    follower: Option<LogFollower<RealFolder>>,
    partition: usize,
    prefix: Vec<u8>,
    /// The change that comes next, and the one with which the watch goes on.
    next: u64,
    end: u64,
    /// The change behind the last event that was told.
    told: u64,
    events: VecDeque<WatchEvent>,
    _held: HeldFiles,
}

impl WatchHistory {
    /// Changes of a partition from `next` up to before `end`.
    pub(crate) fn new(
        follower: LogFollower<RealFolder>,
        held: HeldFiles,
        (partition, prefix): (usize, &[u8]),
        (next, end): (u64, u64),
    ) -> WatchHistory {
        let (follower, prefix, events) = (Some(follower), prefix.to_vec(), VecDeque::new());
        WatchHistory { follower, partition, prefix, next, end, told: next, events, _held: held }
    }

    /// Reads on, a frame; false: all was read.
    pub(crate) fn read_on(&mut self) -> bool {
        if self.next == self.end {
            return false;
        }
        if !self.read() {
            self.lose(self.end - 1);
        }
        true
    }

    /// The next event of what was read.
    pub(crate) fn take(&mut self) -> Option<WatchEvent> {
        let event = self.events.pop_front()?;
        self.told = event.change() + 1;
        Some(event)
    }

    pub(crate) fn partition(&self) -> usize {
        self.partition
    }

    /// The change from which on nothing was told.
    pub(crate) fn place(&self) -> u64 {
        if self.events.is_empty() { self.next } else { self.told }
    }

    /// Reads a frame; whether more of the log may be read.
    fn read(&mut self) -> bool {
        let Some(mut follower) = self.follower.take() else { return false };
        let followed = follower.advance(&mut |commit| {
            for change in commit.changes {
                let header = &change.header;
                let is_meant = header.stream == data_stream(self.partition) && !header.again;
                if is_meant && (self.next..self.end).contains(&header.lsn) {
                    self.meet(header.lsn, header.kind, change.payload);
                }
            }
            Ok(())
        });
        let goes_on = matches!(followed, Ok(Followed::Frame));
        self.follower = goes_on.then_some(follower);
        goes_on
    }

    /// A change comes, of which none before is missing unless the log is damaged.
    fn meet(&mut self, change: u64, kind: ChangeKind, payload: &[u8]) {
        if self.next < change {
            self.lose(change - 1);
        }
        self.next = change + 1;
        let effect = Effect::of_byte(kind.byte()).ok_or("a kind that isn't known");
        let event = effect.and_then(|effect| {
            let it = StreamChange { lsn: change, effect, payload, rest: &[] };
            event_of(&self.prefix, self.partition, &it)
        });
        match event {
            Ok(event) => self.events.extend(event),
            Err(_) => self.events.push_back(self.lost(change, change)),
        }
    }

    /// What isn't told up to here won't be.
    fn lose(&mut self, last: u64) {
        self.events.push_back(self.lost(self.next, last));
        self.next = last + 1;
    }

    fn lost(&self, first: u64, last: u64) -> WatchEvent {
        WatchEvent::Lost { partition: self.partition, first, last }
    }
}
