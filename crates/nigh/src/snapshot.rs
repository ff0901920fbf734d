//! All keys and values as they were at one moment.
//!
//! ```text
//! locks ── turns ── participant, copies of the indexes' references ── unlock
//! next: reference ── record, as it was ── copied        the participant keeps it from being used again
//! the end: participant and copies go                    all was read, it is dropped, or its owner ends it
//! ```
//!
//! 1. The moment lies within the locks of all partitions: so a batch is there whole or not at all,
//!    a key is there once, and what one partition has isn't without what another had before.
//! 2. Writers wait for the copies of the indexes, 2 to 4 ms for a million keys, and for nothing
//!    else.
//! 3. Memory that a snapshot holds back is bounded: beyond that the owner ends it (`snapshot_pin`).
//!
//! Any thread.

use crate::copies::add_copy;
use crate::error::DbError;
use crate::shared_db::{DbPartition, SharedDb};
use crate::snapshot_pin::{PartitionCopy, SnapshotEnd, SnapshotParts, SnapshotPin};
use crate::watch_place::WatchPlace;
use nigh_shm::ForkMark;
use nigh_shm::layout::is_over;
use std::fmt;
use std::sync::Arc;

/// Keys that may come while the copy's memory is being made ready, at least.
const KEYS_MORE: u64 = 4096;
/// The same, of those that are there: an eighth.
const KEYS_MORE_SHARE: u64 = 8;
/// Records that are looked at before the owner may end the snapshot again.
const LOOKS_MOST: usize = 256;

/// All keys and values as they were at one moment, in no order: see
/// [`Db::snapshot`](crate::Db::snapshot).
///
/// As an iterator it gives copies of key and value; an error is the last item.
/// [`Snapshot::next_into`] does the same without asking for memory each time.
pub struct Snapshot {
    pin: Arc<SnapshotPin>,
    /// The partition that is read.
    partition: usize,
    /// The next record in it.
    at: usize,
    prefix: Vec<u8>,
    /// The owner's time at the moment.
    now_ms: u64,
    place: WatchPlace,
    hold_bytes: u64,
    fork_mark: Arc<ForkMark>,
    /// An iterator has told its error.
    is_over: bool,
}

// It has a participant of its own, which isn't a thread's.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Snapshot>();
};

impl SharedDb {
    /// A snapshot of the keys that begin with a prefix.
    pub(crate) fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot, DbError> {
        // What is made ready, and touched, before the locks, no writer waits for.
        let rooms = self.partitions.iter().map(room_for_copy);
        let rooms = rooms.collect::<Result<Vec<_>, _>>()?;
        let mut owning = self.own_all()?;
        let times = owning.iter_mut().map(|it| it.owner().turn(|_, turn| turn.now_ms));
        let now_ms = times.max().unwrap_or_default();
        let participant = self.participants.join_for_snapshot()?;
        let copies = self.partitions.iter().zip(rooms).map(|(it, room)| PartitionCopy {
            reader: it.reader.clone(),
            copy: it.reader.copy_index(&participant.pin(), room),
        });
        let partitions = copies.collect();
        let pin = Arc::new(SnapshotPin::new(SnapshotParts { participant, partitions }));
        owning.iter_mut().for_each(|it| it.owner().add_snapshot(&pin));
        Ok(Snapshot {
            pin,
            partition: 0,
            at: 0,
            prefix: prefix.to_vec(),
            now_ms,
            place: self.watches.place(self.next_changes()),
            hold_bytes: self.snapshot_hold_bytes,
            fork_mark: Arc::clone(&self.fork_mark),
            is_over: false,
        })
    }
}

/// Memory for a copy of a partition's index.
fn room_for_copy(partition: &DbPartition) -> Result<Vec<u32>, DbError> {
    let keys = partition.reader.keys();
    let keys = usize::try_from(keys + keys / KEYS_MORE_SHARE + KEYS_MORE);
    let (keys, mut room) = (keys.expect("fewer keys than bytes"), Vec::new());
    room.try_reserve_exact(keys).map_err(|_| DbError::of_copy(keys * size_of::<u32>()))?;
    room.resize(keys, 1);
    Ok(room)
}

impl Snapshot {
    /// The place of its moment: a watch from there ([`Db::watch_from`](crate::Db::watch_from)) tells
    /// what came later, and nothing that the snapshot has.
    #[must_use]
    pub fn place(&self) -> &WatchPlace {
        &self.place
    }

    /// Copies the next key and value in place of what `key` and `value` have. False if there is
    /// none left; both are empty then.
    ///
    /// # Errors
    /// [`DbError::SnapshotTooOld`], or [`DbError::Closed`]: the snapshot has ended;
    /// [`DbError::NoMemory`]: the next call reads the same key again; or [`DbError::Forked`].
    pub fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, DbError> {
        key.clear();
        value.clear();
        if self.fork_mark.is_in_child() {
            return Err(DbError::Forked);
        }
        loop {
            let mut held = self.pin.lock();
            let SnapshotParts { participant, partitions } = match &*held {
                Ok(parts) => parts,
                Err(SnapshotEnd::Done) => return Ok(false),
                Err(SnapshotEnd::Closed) => return Err(DbError::Closed),
                Err(SnapshotEnd::TooOld) => {
                    return Err(DbError::SnapshotTooOld { most: self.hold_bytes });
                }
            };
            let PartitionCopy { reader, copy } = &partitions[self.partition];
            let end = copy.len().min(self.at + LOOKS_MOST);
            let pin = participant.pin();
            while self.at < end {
                let record = reader.record_of(&pin, copy, self.at);
                let record = record.expect("it is below the copy's length");
                let is_meant = record.key().starts_with(&self.prefix);
                if is_meant && !is_over(record.expiry_ms(), self.now_ms) {
                    // The value first: without room for it there is neither.
                    add_copy(value, record.value())?;
                    add_copy(key, record.key()).inspect_err(|_| value.clear())?;
                    self.at += 1;
                    return Ok(true);
                }
                self.at += 1;
            }
            if end == copy.len() {
                (self.partition, self.at) = (self.partition + 1, 0);
            }
            if self.partition == partitions.len() {
                // Nothing is held back any more.
                *held = Err(SnapshotEnd::Done);
                return Ok(false);
            }
        }
    }
}

impl Iterator for Snapshot {
    type Item = Result<(Vec<u8>, Vec<u8>), DbError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        match self.next_into(&mut key, &mut value) {
            Ok(true) => Some(Ok((key, value))),
            Ok(false) => None,
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.fork_mark.is_in_child() {
            // Its participant is the parent's, and mustn't leave.
            std::mem::forget(Arc::clone(&self.pin));
            return;
        }
        self.pin.end(SnapshotEnd::Done);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the lock, which another thread may have had at a fork.
        let (place, at) = (&self.place, (self.partition, self.at));
        f.debug_struct("Snapshot").field("place", place).field("at", &at).finish()
    }
}
