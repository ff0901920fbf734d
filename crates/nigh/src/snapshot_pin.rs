//! The pins of snapshots: what the owner sees of them, and how it ends one.
//!
//! ```text
//! snapshot ── lock ── participant: read ── unlock        the owner: too much is held back ── try_lock ── participant and copies go
//! ```
//!
//! 1. All memory that is given up while a snapshot lives waits for it. So what it holds back of a
//!    partition is the difference of two counts of its owner.
//! 2. An owner never waits for a snapshot: one that is reading is ended at the owner's next look.
//! 3. A snapshot reads only with its lock, while its participant is there.
//! 4. When it ends, it gives back all memory that it has: its copies, and its hold on the arenas.
//!
//! Each owner has [`Snapshots`]; a pin is for any thread, and all owners know it.

use nigh_shm::{IndexCopy, Participant, Reader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Why a snapshot has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotEnd {
    /// All was read, or it was dropped.
    Done,
    /// It held back too much memory.
    TooOld,
    /// The database was closed.
    Closed,
}

/// What a snapshot reads with, as long as it hasn't ended.
pub(crate) struct SnapshotParts {
    pub(crate) participant: Participant,
    /// At least one.
    pub(crate) partitions: Vec<PartitionCopy>,
}

/// What it has of a partition.
pub(crate) struct PartitionCopy {
    pub(crate) reader: Reader,
    pub(crate) copy: IndexCopy,
}

/// The parts of a snapshot, or why they are gone.
type Held = Result<SnapshotParts, SnapshotEnd>;

/// A snapshot's parts, as long as it has them.
pub(crate) struct SnapshotPin(Mutex<Held>);

impl SnapshotPin {
    /// Of a snapshot that begins.
    pub(crate) fn new(parts: SnapshotParts) -> SnapshotPin {
        SnapshotPin(Mutex::new(Ok(parts)))
    }

    /// Its parts, for a read: to be let go soon.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the parts go, if they haven't: nothing can be read any more.
    pub(crate) fn end(&self, why: SnapshotEnd) {
        end_within(&mut self.lock(), why);
    }

    /// The same; `None` if it is reading. Whether its participant was there till now.
    fn try_end(&self, why: SnapshotEnd) -> Option<bool> {
        match self.0.try_lock() {
            Ok(mut held) => Some(end_within(&mut held, why)),
            Err(TryLockError::Poisoned(error)) => Some(end_within(&mut error.into_inner(), why)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn end_within(held: &mut Held, why: SnapshotEnd) -> bool {
    let was_there = held.is_ok();
    if was_there {
        *held = Err(why);
    }
    was_there
}

/// A snapshot, as an owner knows it: it is gone when its user drops it.
struct Known {
    pin: Weak<SnapshotPin>,
    /// Bytes that had been given up when it began.
    from_bytes: u64,
}

/// All snapshots of a database, as the owner of a partition knows them, the oldest first.
pub(crate) struct Snapshots {
    known: Vec<Known>,
    /// Bytes that one may hold back.
    hold_bytes: u64,
    /// When so many bytes have been given up, the oldest holds back too much.
    limit_bytes: u64,
}

impl Known {
    /// Whether its participant was there till now; `None` if it is reading.
    fn try_end(&self, why: SnapshotEnd) -> Option<bool> {
        self.pin.upgrade().map_or(Some(false), |pin| pin.try_end(why))
    }
}

impl Snapshots {
    pub(crate) fn new(hold_bytes: u64) -> Snapshots {
        Snapshots { known: Vec::new(), hold_bytes, limit_bytes: u64::MAX }
    }

    /// One begins, when so many bytes have been given up.
    pub(crate) fn add(&mut self, pin: &Arc<SnapshotPin>, given_up_bytes: u64) {
        self.known.push(Known { pin: Arc::downgrade(pin), from_bytes: given_up_bytes });
        self.look(given_up_bytes);
    }

    /// Whether one holds back too much, when so many bytes have been given up.
    #[inline]
    pub(crate) fn is_due(&self, given_up_bytes: u64) -> bool {
        given_up_bytes > self.limit_bytes
    }

    /// Ends those that hold back too much, and forgets those that have ended.
    #[cold]
    pub(crate) fn look(&mut self, given_up_bytes: u64) {
        let hold_bytes = self.hold_bytes;
        self.known.retain(|it| {
            let is_over = given_up_bytes - it.from_bytes > hold_bytes;
            let has_user = it.pin.strong_count() > 0;
            has_user && !(is_over && it.try_end(SnapshotEnd::TooOld).is_some())
        });
        let oldest = self.known.first();
        self.limit_bytes =
            oldest.map_or(u64::MAX, |it| it.from_bytes.saturating_add(self.hold_bytes));
    }

    /// A write finds no memory: ends the oldest that isn't reading.
    #[cold]
    pub(crate) fn end_oldest(&mut self) {
        let ended = |it: &Known| it.try_end(SnapshotEnd::TooOld) == Some(true);
        if let Some(at) = self.known.iter().position(ended) {
            self.known.remove(at);
        }
    }

    /// The database is closed.
    pub(crate) fn close(&mut self) {
        let pins = self.known.drain(..).filter_map(|it| it.pin.upgrade());
        pins.for_each(|pin| pin.end(SnapshotEnd::Closed));
    }
}
