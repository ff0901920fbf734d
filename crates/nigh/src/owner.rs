//! The owner of a partition: the thread that has its lock. It alone writes.
//!
//! ```text
//! lock ── turn: clock, pin ── the write ── upkeep, now and then ── announce ── unlock
//! ```
//!
//! 1. Its participant announces at the end of each turn, so its own pin holds nothing back. That of
//!    an owner that rests does so when another partition lacks memory.
//! 2. The journal is handed over before the lock goes, since it belongs to one thread at a time.
//! 3. Each turn does a bounded piece of work.
//! 4. Before it unlocks, it does what others have left to it (`left_writes.rs`).
//!
//! The thread that has the lock.

use crate::error::{DbError, WriteRefusal};
use crate::left_writes::{LeftWrite, LeftWrites, write_key};
use crate::log_side::OwnerSide;
use crate::options::unix_ms;
use crate::snapshot_pin::{SnapshotPin, Snapshots};
use nigh_shm::{ForkMark, Participant};
use nigh_store::{
    AttachedShard, KeyWrite, Keyspace, LogBerth, Maintenance, ShardCompaction, Store, Turn,
};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::SystemTime;

/// Turns between two looks at memory and journal: some 50 microseconds of writes.
const TURNS_PER_UPKEEP: u64 = 64;
/// Looks of a writer at what it has left: a few turns of the owner.
const LOOKS_AWAKE: u32 = 32;
/// Looks in all, the later ones each behind a chance for other threads. Then it waits asleep.
const LOOKS_MOST: u32 = 64;
/// Looks between two tries for the lock.
const LOOKS_PER_TRY: u32 = 8;
/// Any odd constant gives all numbers in turn; the store mixes it.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What the owner has.
pub(crate) struct Owner {
    /// Owns this partition, and has views of the others.
    pub(crate) keyspace: Keyspace,
    partition: usize,
    participant: Participant,
    log: OwnerSide,
    pub(crate) snapshots: Snapshots,
    /// The time of the latest turn, Unix ms: it never goes back.
    latest_ms: u64,
    turns: u64,
}

impl Owner {
    /// Of a partition of a keyspace that was opened.
    pub(crate) fn new(
        (partition, keyspace): (usize, Keyspace),
        participant: Participant,
        log: OwnerSide,
        snapshots: Snapshots,
    ) -> Owner {
        let latest_ms = keyspace.clock_ms();
        Owner { keyspace, partition, participant, log, snapshots, latest_ms, turns: 0 }
    }

    /// The journal, for a thread that writes now and then while it has the lock.
    #[cfg(feature = "functions")]
    pub(crate) fn journal(&self) -> nigh_shm::JournalWriter {
        self.log.journal.clone()
    }

    /// The journal's tail: what is before it was published.
    pub(crate) fn tail(&self) -> u64 {
        self.log.journal.tail()
    }

    /// A base begins in place of a log that broke.
    pub(crate) fn begin_base(
        &mut self,
        berth: &LogBerth,
        mut compaction: ShardCompaction,
    ) -> AttachedShard {
        let attached = self.keyspace.begin_base(&self.log.journal, &mut compaction, berth);
        self.log.compaction = compaction;
        attached
    }

    /// A snapshot begins, which has this pin.
    pub(crate) fn add_snapshot(&mut self, pin: &Arc<SnapshotPin>) {
        self.snapshots.add(pin, self.store().given_up_bytes());
    }

    /// The partition.
    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.keyspace.part(self.partition)
    }

    /// Ends snapshots that hold back too much.
    #[inline]
    fn look_at_snapshots(&mut self) {
        let given_up_bytes = self.store().given_up_bytes();
        if self.snapshots.is_due(given_up_bytes) {
            self.snapshots.look(given_up_bytes);
        }
    }

    /// Says that nothing is read here: nobody's memory waits for this owner.
    fn announce(&mut self) {
        self.participant.quiescent();
    }

    /// The time of its latest turn.
    #[cfg(feature = "functions")]
    pub(crate) fn latest_ms(&self) -> u64 {
        self.latest_ms
    }

    /// One turn of a writer.
    #[inline]
    pub(crate) fn turn<R>(&mut self, work: impl FnOnce(&mut Store, &Turn<'_>) -> R) -> R {
        let partition = self.partition;
        self.turn_at(unix_ms(SystemTime::now()), |keyspace, turn| {
            work(keyspace.part_mut(partition), turn)
        })
    }

    /// The same at this time, if it isn't over, with the views of the other partitions.
    #[inline]
    pub(crate) fn turn_at<R>(
        &mut self,
        now_ms: u64,
        work: impl FnOnce(&mut Keyspace, &Turn<'_>) -> R,
    ) -> R {
        self.turns += 1;
        self.latest_ms = self.latest_ms.max(now_ms);
        let is_due = self.turns.is_multiple_of(TURNS_PER_UPKEEP);
        let outcome;
        {
            let pin = self.participant.pin();
            let random = self.turns.wrapping_mul(GOLDEN);
            let turn = Turn { now_ms: self.latest_ms, pin: &pin, random };
            self.keyspace.part_mut(self.partition).begin_turn(&turn);
            outcome = work(&mut self.keyspace, &turn);
            let store = self.keyspace.part_mut(self.partition);
            if is_due || store.wants_turn() {
                store.maintain(&turn);
            }
        }
        self.look_at_snapshots();
        self.announce();
        if is_due {
            self.log.journal.leave();
        }
        outcome
    }

    /// Looks after memory, journal and log.
    pub(crate) fn look_after(&mut self) -> Maintenance {
        self.turns += 1;
        self.latest_ms = self.latest_ms.max(unix_ms(SystemTime::now()));
        let mut left;
        {
            let pin = self.participant.pin();
            let random = self.turns.wrapping_mul(GOLDEN);
            let turn = Turn { now_ms: self.latest_ms, pin: &pin, random };
            let store = self.keyspace.part_mut(self.partition);
            store.begin_turn(&turn);
            left = store.maintain(&turn);
            let OwnerSide { journal, compaction } = &mut self.log;
            left.more |= self.keyspace.compact(compaction, journal.tail(), &turn);
        }
        self.look_at_snapshots();
        self.announce();
        self.log.journal.leave();
        left
    }
}

/// The lock.
pub(crate) struct OwnerLock {
    /// `None` when the database is closed.
    owner: Mutex<Option<Owner>>,
    left: LeftWrites,
    fork_mark: Arc<ForkMark>,
}

/// What a writer gets.
pub(crate) enum Taken<'a, R> {
    /// The lock.
    Lock(Owning<'a>),
    /// What came of the write, which another one that had the lock has done.
    Done { tried: Result<R, WriteRefusal>, has_written: bool },
}

impl OwnerLock {
    pub(crate) fn new(owner: Owner, fork_mark: &Arc<ForkMark>) -> OwnerLock {
        owner.log.journal.hand_over();
        let (left, fork_mark) = (LeftWrites::default(), Arc::clone(fork_mark));
        OwnerLock { owner: Mutex::new(Some(owner)), left, fork_mark }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// A thread panicked while it had it: what it was doing isn't known. Or this is a child of a
    /// fork: a thread that isn't here may have had it then.
    #[inline]
    pub(crate) fn take(&self) -> Result<Owning<'_>, DbError> {
        self.check_process()?;
        match self.owner.lock() {
            Ok(owner) if owner.is_some() => Ok(Owning { owner, left: &self.left }),
            _ => Err(DbError::Stopped),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn try_take(&self) -> Result<Option<Owning<'_>>, DbError> {
        match self.owner.try_lock() {
            Ok(owner) if owner.is_some() => Ok(Some(Owning { owner, left: &self.left })),
            Err(TryLockError::WouldBlock) => Ok(None),
            _ => Err(DbError::Stopped),
        }
    }

    /// Takes the lock if it is free, or leaves a write to the owner; waits for the lock if
    /// that takes long.
    ///
    /// # Errors
    /// As [`Self::take`].
    #[inline]
    pub(crate) fn take_or_leave(&self, write: &KeyWrite<'_>) -> Result<Taken<'_, bool>, DbError> {
        self.check_process()?;
        match self.try_take()? {
            Some(owning) => Ok(Taken::Lock(owning)),
            None => self.leave(write),
        }
    }

    #[cold]
    fn leave(&self, write: &KeyWrite<'_>) -> Result<Taken<'_, bool>, DbError> {
        match self.left.leave(write) {
            Some(left) => self.await_left(left),
            None => self.take().map(Taken::Lock),
        }
    }

    /// Waits until a write that was left is done, or takes it back with the lock.
    fn await_left<'a>(&'a self, left: LeftWrite<'a>) -> Result<Taken<'a, bool>, DbError> {
        let mut looks = 0_u32;
        loop {
            if let Some(tried) = left.done() {
                // It writes if the key is there, or comes.
                let has_written = matches!(tried, Ok(true));
                return Ok(Taken::Done { tried, has_written });
            }
            looks = looks.wrapping_add(1);
            if looks == LOOKS_MOST {
                if left.withdraw() {
                    drop(left);
                    return self.take().map(Taken::Lock);
                }
                // The owner that had taken it has done it when the lock is free.
                drop(self.take()?);
                continue;
            }
            if looks.is_multiple_of(LOOKS_PER_TRY)
                && let Some(owning) = self.try_take()?
                && left.withdraw()
            {
                return Ok(Taken::Lock(owning));
            }
            match looks {
                ..LOOKS_AWAKE => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Has the owner announce, if it rests: one at work does it by itself.
    pub(crate) fn announce(&self) {
        if let Ok(mut owner) = self.owner.try_lock() {
            owner.iter_mut().for_each(Owner::announce);
        }
    }

    /// Takes the owner away; `None` if a thread panicked while it had the lock.
    pub(crate) fn end(&self) -> Option<Owner> {
        self.owner.lock().ok()?.take()
    }

    /// Refuses a child of a fork.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), DbError> {
        match self.fork_mark.is_in_child() {
            false => Ok(()),
            true => Err(DbError::Forked),
        }
    }
}

/// The owner, for the thread that has the lock.
pub(crate) struct Owning<'a> {
    owner: MutexGuard<'a, Option<Owner>>,
    left: &'a LeftWrites,
}

impl Owning<'_> {
    #[inline]
    pub(crate) fn owner(&mut self) -> &mut Owner {
        self.owner.as_mut().expect("looked at when the lock was taken")
    }
}

impl Drop for Owning<'_> {
    #[inline]
    fn drop(&mut self) {
        let Some(owner) = self.owner.as_mut() else { return };
        if self.left.any() {
            do_left(self.left, owner);
        }
        owner.log.journal.hand_over();
    }
}

/// The owner does what was left to it. If its thread unwinds, what it was doing isn't known.
#[cold]
fn do_left(left: &LeftWrites, owner: &mut Owner) {
    if !std::thread::panicking() {
        left.do_all(|write| owner.turn(|store, turn| write_key(write, store, turn)));
    }
}

#[cfg(test)]
mod tests;
