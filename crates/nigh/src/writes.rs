//! Writing: by the calling thread, while it has the lock.
//!
//! ```text
//! lock ── one turn: stage, journal, publish ── unlock ── strong: wait for the disk
//!  │└── no room: unlock, and again a little later, for a bounded time
//!  └── somebody has it: a write of one key is left to that one (`left_writes.rs`)
//! ```
//!
//! 1. A write is in the journal before it is seen, so it survives this process as soon as the call
//!    has returned.
//! 2. Nobody waits for the disk, or for memory, with the lock.
//! 3. A strong write waits for all that had begun in its partition before it returns: what its
//!    answer tells is on disk, also if it has changed nothing. If the wait fails, it is told that
//!    its change is made only if it has made one.
//! 4. A write is one partition's: a batch over several is refused. A function's call is in a turn
//!    of all (`functions`).
//!
//! Any thread.

use crate::batch::WriteBatch;
use crate::error::{DbError, WriteRefusal};
use crate::left_writes::{live, write_key};
use crate::options::{Durability, WriteOptions};
use crate::owner::{OwnerLock, Taken};
use crate::shared_db::{DbPartition, SharedDb};
use nigh_shm::WriteError;
use nigh_shm::layout::VALUE_BYTES_MAX;
use nigh_store::{KeyWrite, Store, Turn};
use std::time::{Duration, Instant};

/// Longest wait for memory that others hold.
const HELD_MOST: Duration = Duration::from_secs(2);
/// A write that waits for memory for so long ends a snapshot, in each of its tries.
pub(crate) const SNAPSHOT_MOST: Duration = Duration::from_millis(5);
/// Longest wait for a disk that is late.
const LATE_MOST: Duration = Duration::from_secs(10);
/// Between two tries: the first, and the longest.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MOST: Duration = Duration::from_millis(2);

/// Refuses a value that is too long. Else the error may be about the journal, and advise to enlarge
/// that.
fn check_length(value: &[u8]) -> Result<(), DbError> {
    match value.len() {
        len if len > VALUE_BYTES_MAX => Err(DbError::ValueTooLong { len }),
        _ => Ok(()),
    }
}

impl SharedDb {
    /// Gives a key a value.
    #[inline]
    pub(crate) fn put(
        &self,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<(), DbError> {
        check_length(value)?;
        let put = KeyWrite::Put { key, value, expiry_ms: options.expiry_ms() };
        self.commit_one(&put, options).map(|_| ())
    }

    /// Deletes a key. Whether it was there.
    pub(crate) fn delete(&self, key: &[u8], options: &WriteOptions) -> Result<bool, DbError> {
        self.commit_one(&KeyWrite::Delete { key }, options)
    }

    /// Does all of a batch, or nothing. Whether it has changed anything.
    pub(crate) fn write(
        &self,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<bool, DbError> {
        let (writes, removes) = (batch.writes()?, batch.only_removes());
        for write in &writes {
            if let KeyWrite::Put { value, .. } = write {
                check_length(value)?;
            }
        }
        let mut keys = writes.iter().map(|it| it.key());
        // An empty one is as good as any key's.
        let key = keys.next().unwrap_or_default();
        let number = self.number_of(key);
        if let Some(other) = keys.find(|it| self.number_of(it) != number) {
            return Err(DbError::of_partitions(key, other));
        }
        let reader = &self.partitions[number].reader;
        self.commit(key, options, removes, |store, turn| {
            let before = reader.begun_lsn();
            store.commit_writes(&writes, turn)?;
            Ok(reader.begun_lsn() > before)
        })
    }

    /// Adds to a key's decimal integer, 0 if it isn't there, and keeps its expiry. Returns the sum.
    pub(crate) fn incr(&self, key: &[u8], by: i64, options: &WriteOptions) -> Result<i64, DbError> {
        self.commit(key, options, false, |store, turn| {
            let record = live(store, key, turn);
            let number = record.map_or(Ok(0), |record| number_of(record.value()))?;
            let sum = number.checked_add(by).ok_or(WriteRefusal::Final(DbError::Overflow))?;
            let expiry_ms = record.map_or(0, |record| record.expiry_ms());
            let value = sum.to_string();
            let put = KeyWrite::Put { key, value: value.as_bytes(), expiry_ms };
            store.commit_writes(&[put], turn)?;
            Ok(sum)
        })
    }

    /// Gives a key another expiry, or none. Whether it was there.
    pub(crate) fn expire(&self, key: &[u8], options: &WriteOptions) -> Result<bool, DbError> {
        self.commit_one(&KeyWrite::Expire { key, expiry_ms: options.expiry_ms() }, options)
    }

    /// Gives a key its new value, if it has the expected one; `None`: it isn't there. Whether it
    /// had.
    pub(crate) fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: &WriteOptions,
    ) -> Result<bool, DbError> {
        let expiry_ms = options.expiry_ms();
        check_length(new.unwrap_or_default())?;
        let write = match new {
            Some(value) => KeyWrite::Put { key, value, expiry_ms },
            None => KeyWrite::Delete { key },
        };
        self.commit(key, options, new.is_none(), |store, turn| {
            let found = live(store, key, turn).map(|record| record.value());
            if found != expected {
                return Ok(false);
            }
            store.commit_writes(&[write], turn)?;
            Ok(true)
        })
    }

    /// Waits until all changes are on disk that had begun.
    pub(crate) fn flush(&self) -> Result<(), DbError> {
        if self.fork_mark.is_in_child() {
            return Err(DbError::Forked);
        }
        self.wait_for_all(true)
    }

    /// The same for a call that has made some of them, or none.
    pub(crate) fn wait_for_all(&self, has_written: bool) -> Result<(), DbError> {
        let all = self.partitions.iter();
        let all = all.flat_map(|it| it.readers().map(|reader| (&it.log, reader)));
        let all = all.map(|(log, reader)| (log, reader, reader.begun_lsn()));
        let late = all.filter(|(_, reader, begun)| reader.durable_lsn() < *begun);
        // All syncs are asked for before the first is waited for.
        let late: Vec<_> = late.inspect(|(log, ..)| log.status().want_sync()).collect();
        late.into_iter().try_for_each(|(log, reader, begun)| log.wait(reader, begun, has_written))
    }

    /// Waits until all changes of libraries are on disk, if the database's writes do that, for a
    /// call that has made some of them, or none.
    #[cfg(feature = "functions")]
    pub(crate) fn wait_for_libraries(&self, has_written: bool) -> Result<(), DbError> {
        let DbPartition { libraries, log, .. } = &self.partitions[0];
        let mut libraries = libraries.iter().filter(|_| self.durability == Durability::Strong);
        libraries.try_for_each(|reader| log.wait(reader, reader.begun_lsn(), has_written))
    }

    /// Does a write of one key, or leaves it to the owner. Whether the key was there.
    #[inline]
    fn commit_one(&self, write: &KeyWrite<'_>, options: &WriteOptions) -> Result<bool, DbError> {
        let partition = self.number_of(write.key());
        let removes = matches!(write, KeyWrite::Delete { .. });
        let take = |owner| OwnerLock::take_or_leave(owner, write);
        let attempt = |store: &mut Store, turn: &Turn<'_>| write_key(write, store, turn);
        self.commit_by(partition, options, removes, take, attempt)
    }

    /// Runs an attempt in a turn of the owner of a key's partition, again while it lacks what comes
    /// back.
    #[inline]
    fn commit<R>(
        &self,
        key: &[u8],
        options: &WriteOptions,
        only_removes: bool,
        attempt: impl FnMut(&mut Store, &Turn<'_>) -> Result<R, WriteRefusal>,
    ) -> Result<R, DbError> {
        self.commit_in(self.number_of(key), options, only_removes, attempt)
    }

    /// The same for a partition.
    #[inline]
    pub(crate) fn commit_in<R>(
        &self,
        partition: usize,
        options: &WriteOptions,
        only_removes: bool,
        attempt: impl FnMut(&mut Store, &Turn<'_>) -> Result<R, WriteRefusal>,
    ) -> Result<R, DbError> {
        let take = |owner| OwnerLock::take(owner).map(Taken::Lock);
        self.commit_by(partition, options, only_removes, take, attempt)
    }

    /// The same: `take` takes the lock of the partition, or has the write done by the owner.
    #[inline]
    fn commit_by<'a, R>(
        &'a self,
        partition: usize,
        options: &WriteOptions,
        only_removes: bool,
        take: impl Fn(&'a OwnerLock) -> Result<Taken<'a, R>, DbError>,
        mut attempt: impl FnMut(&mut Store, &Turn<'_>) -> Result<R, WriteRefusal>,
    ) -> Result<R, DbError> {
        let DbPartition { reader, owner, log, .. } = &self.partitions[partition];
        owner.check_process()?;
        let is_strong = options.durability.unwrap_or(self.durability) == Durability::Strong;
        let (mut patience, mut has_asked) = (Patience::of(options), false);
        let (answer, begun, has_written) = loop {
            log.check(only_removes)?;
            if log.is_late() {
                patience.wait(WriteError::JournalFull)?;
                continue;
            }
            let upkeep_first = has_asked || patience.has_waited();
            let taken = if upkeep_first { owner.take().map(Taken::Lock) } else { take(owner) };
            let tried = match taken? {
                Taken::Done { tried, has_written } => {
                    tried.map(|answer| (answer, reader.begun_lsn(), has_written))
                }
                Taken::Lock(mut owning) => {
                    let owner = owning.owner();
                    if upkeep_first {
                        owner.look_after();
                    }
                    let mut has_written = false;
                    let tried = owner.turn(|store, turn| {
                        let before = reader.begun_lsn();
                        let tried = attempt(store, turn);
                        has_written = reader.begun_lsn() > before;
                        tried
                    });
                    if lacks_memory(&tried) && patience.has_waited_for_memory(SNAPSHOT_MOST) {
                        owner.snapshots.end_oldest();
                    }
                    tried.map(|answer| (answer, reader.begun_lsn(), has_written))
                }
            };
            if !is_strong || tried.is_err() {
                log.status().wake();
            }
            if lacks_memory(&tried) {
                // What was given up waits for all owners, also for those that rest.
                self.partitions.iter().for_each(|it| it.owner.announce());
                if !std::mem::replace(&mut has_asked, true) {
                    continue;
                }
            }
            match tried {
                Ok(done) => break done,
                Err(WriteRefusal::Final(error)) => return Err(error),
                Err(WriteRefusal::Write(error)) => patience.wait(error)?,
            }
        };
        if is_strong {
            log.wait(reader, begun, has_written)?;
        }
        Ok(answer)
    }
}

/// Whether a write was refused since memory is held.
pub(crate) fn lacks_memory<R>(tried: &Result<R, WriteRefusal>) -> bool {
    matches!(tried, Err(WriteRefusal::Write(WriteError::Busy)))
}

fn number_of(value: &[u8]) -> Result<i64, WriteRefusal> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or(WriteRefusal::Final(DbError::NotANumber))
}

/// How long a write has waited for what comes back.
pub(crate) struct Patience {
    has_none: bool,
    /// What it waits for, and since when.
    lacks: Option<(WriteError, Instant)>,
    /// When the first wait of all began.
    begin: Option<Instant>,
    pause: Duration,
}

impl Patience {
    #[inline]
    pub(crate) fn of(options: &WriteOptions) -> Patience {
        let has_none = options.waits_never;
        Patience { has_none, lacks: None, begin: None, pause: Duration::ZERO }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.lacks.is_some()
    }

    /// Whether it has waited so long for memory.
    pub(crate) fn has_waited_for_memory(&self, time: Duration) -> bool {
        self.lacks.is_some_and(|(what, since)| what == WriteError::Busy && since.elapsed() >= time)
    }

    /// Waits a little, if that helps against `error` and it wasn't too long. A wait for something
    /// else begins anew, as long as all of them are no longer than both may be.
    #[cold]
    pub(crate) fn wait(&mut self, error: WriteError) -> Result<(), DbError> {
        let most = match error {
            WriteError::Busy => HELD_MOST,
            WriteError::JournalFull => LATE_MOST,
            error => return Err(DbError::of_write(error)),
        };
        let now = Instant::now();
        let begin = *self.begin.get_or_insert(now);
        let since = match self.lacks {
            Some((what, since)) if what == error => since,
            _ => {
                self.pause = Duration::ZERO;
                now
            }
        };
        self.lacks = Some((error, since));
        if self.has_none || now - since >= most || now - begin >= HELD_MOST + LATE_MOST {
            return Err(DbError::of_write(error));
        }
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MOST);
        std::thread::sleep(self.pause);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write that has waited so long for this.
    fn waited(what: WriteError, time: Duration) -> Patience {
        let since = Instant::now().checked_sub(time);
        let since = since.expect("the machine runs for longer than that");
        let patience = Patience::of(&WriteOptions::new());
        Patience { lacks: Some((what, since)), begin: Some(since), pause: PAUSE_MOST, ..patience }
    }

    #[test]
    fn a_wait_for_the_disk_is_no_wait_for_memory() {
        // A write that had waited for a late disk, and then for memory, ended the oldest snapshot
        // at once, and was refused without a pause.
        let mut patience = waited(WriteError::JournalFull, HELD_MOST);
        assert!(patience.has_waited() && !patience.has_waited_for_memory(SNAPSHOT_MOST));
        patience.wait(WriteError::Busy).expect("it waits for memory since now");
        assert_eq!(patience.pause, PAUSE);
        while !patience.has_waited_for_memory(SNAPSHOT_MOST) {
            patience.wait(WriteError::Busy).expect("2 seconds aren't over");
        }
        // The same the other way round.
        let mut patience = waited(WriteError::Busy, HELD_MOST);
        patience.wait(WriteError::JournalFull).expect("it waits for the disk since now");
        assert!(!patience.has_waited_for_memory(Duration::ZERO));
    }

    #[test]
    fn each_wait_ends_and_so_do_waits_for_both_in_turn() {
        let mut patience = waited(WriteError::Busy, HELD_MOST);
        assert!(matches!(patience.wait(WriteError::Busy), Err(DbError::Held)));
        let mut patience = waited(WriteError::JournalFull, LATE_MOST);
        assert!(matches!(patience.wait(WriteError::JournalFull), Err(DbError::Late)));
        let mut patience = waited(WriteError::JournalFull, HELD_MOST + LATE_MOST);
        assert!(matches!(patience.wait(WriteError::Busy), Err(DbError::Held)));
    }
}
