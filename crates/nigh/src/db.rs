//! A database: what can be asked of it, and closing it.
//!
//! 1. All that an open started has ended when `close` or drop returns.
//! 2. Memory goes back to the system only when the log has all that was there.
//!
//! Any thread.

use crate::batch::WriteBatch;
use crate::db_reader::{DbReader, TimeToLive};
use crate::error::{DbError, OpenError};
use crate::opening::OpenParts;
use crate::options::{Options, WriteOptions, unix_ms};
use crate::owner::Owner;
use crate::reader_error::ReaderError;
use crate::shared_db::SharedDb;
use crate::snapshot::Snapshot;
use crate::stats::DbStats;
use crate::upkeep;
use crate::value::LentValue;
use crate::watch::Watch;
use crate::watch_place::WatchPlace;
use nigh_shm::ForkMark;
use nigh_store::ClosedArenas;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A database in this process: keys and values are bytes, and any thread may call anything.
///
/// Keys have no order. All data must fit memory. Only one process has a database open: in a child
/// of a fork each call gives [`DbError::Forked`], and dropping it there does nothing.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// use nigh::{Db, Options};
///
/// let db = Db::open(path, &Options::new())?;
/// db.put(b"greeting", b"hello")?;
/// assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Db {
    pub(crate) shared: Arc<SharedDb>,
    #[cfg(feature = "functions")]
    pub(crate) functions: crate::functions::Functions,
    /// `None` when the database is closed.
    running: Option<OpenParts>,
}

impl Db {
    /// Opens the database in a folder, which is made if it isn't there. What an earlier process
    /// wrote is there, also if that was killed. On a network file system the lock is no promise
    /// that only one process has it open.
    ///
    /// # Errors
    /// It is open elsewhere, or something of it can't be used; the message says what, and what to
    /// do.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Db, OpenError> {
        let (shared, running) = OpenParts::open(path.as_ref(), options)?;
        Ok(Db {
            shared,
            #[cfg(feature = "functions")]
            functions: crate::functions::Functions::default(),
            running: Some(running),
        })
    }

    /// Opens, to read, the database that another process has open with
    /// [`Options::shared`](Options::shared), or has left in memory; by its folder. Its owner never
    /// waits for that, and nothing is written.
    ///
    /// # Errors
    /// It isn't open, its memory is private, it isn't there, or it can't be read; the message says
    /// what to do.
    pub fn open_reader(path: impl AsRef<Path>) -> Result<DbReader, ReaderError> {
        DbReader::open(path.as_ref(), None)
    }

    /// The same of a database whose owner names the folder for memory
    /// ([`Options::memory_dir`]).
    ///
    /// # Errors
    /// As [`Db::open_reader`].
    pub fn open_reader_in(
        path: impl AsRef<Path>,
        memory_dir: impl AsRef<Path>,
    ) -> Result<DbReader, ReaderError> {
        DbReader::open(path.as_ref(), Some(memory_dir.as_ref()))
    }

    /// The value of a key, where it lies; `None` if there is none. Takes no lock, but that of the
    /// key's partition if writers were quicker eight times, or if the key's time is over by this
    /// thread's clock only.
    ///
    /// # Errors
    /// More threads read than the database was opened for.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<LentValue<'_>>, DbError> {
        self.shared.get(key)
    }

    /// Adds the bytes of a key's value to those of `into`. False, and nothing is added, if the key
    /// isn't there.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, DbError> {
        self.shared.get_into(key, into)
    }

    /// How long a key stays; `None` if it isn't there.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn ttl(&self, key: &[u8]) -> Result<Option<TimeToLive>, DbError> {
        let expiry_ms = self.shared.expiry_ms(key)?;
        Ok(expiry_ms.map(|it| TimeToLive::of(it, unix_ms(SystemTime::now()))))
    }

    /// The values of several keys, those of a partition all of one moment: a [`WriteBatch`] is seen
    /// whole or not at all. Faster than one after the other, since memory is asked for ahead. Takes
    /// no lock, but those of all partitions if writers were quicker eight times, or if the time of
    /// one of the keys is over by this thread's clock only.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<LentValue<'_>>>, DbError> {
        self.shared.multi_get(keys)
    }

    /// Gives a key a value, and no expiry.
    ///
    /// # Errors
    /// The key or the value is too long, memory is full, or the log can't be written.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), DbError> {
        self.shared.put(key, value, &WriteOptions::new())
    }

    /// The same, by these options.
    ///
    /// # Errors
    /// As [`Db::put`]; [`DbError::NotDurable`] if the disk takes too long.
    pub fn put_with(
        &self,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<(), DbError> {
        self.shared.put(key, value, options)
    }

    /// Deletes a key. Whether it was there.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn delete(&self, key: &[u8]) -> Result<bool, DbError> {
        self.shared.delete(key, &WriteOptions::new())
    }

    /// The same, by these options; an expiry means nothing here.
    ///
    /// # Errors
    /// As [`Db::delete`]; [`DbError::NotDurable`] if the disk takes too long.
    pub fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<bool, DbError> {
        self.shared.delete(key, options)
    }

    /// Does all of a batch, or nothing. Whether it has changed anything: one that only deletes keys
    /// that aren't there hasn't.
    ///
    /// # Errors
    /// As [`Db::put`], or the batch is too large for the journal, or has keys of several
    /// [partitions](Options::partitions).
    pub fn write(&self, batch: &WriteBatch) -> Result<bool, DbError> {
        self.shared.write(batch, &WriteOptions::new())
    }

    /// The same, by these options; an expiry means nothing here, as each write of a batch has its
    /// own.
    ///
    /// # Errors
    /// As [`Db::write`]; [`DbError::NotDurable`] if the disk takes too long.
    pub fn write_with(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<bool, DbError> {
        self.shared.write(batch, options)
    }

    /// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays.
    /// Returns the sum.
    ///
    /// # Errors
    /// The value is no such number, the sum is out of range, or as [`Db::put`].
    pub fn incr(&self, key: &[u8], by: i64) -> Result<i64, DbError> {
        self.shared.incr(key, by, &WriteOptions::new())
    }

    /// The same, by these options; an expiry means nothing here.
    ///
    /// # Errors
    /// As [`Db::incr`]; [`DbError::NotDurable`] if the disk takes too long.
    pub fn incr_with(&self, key: &[u8], by: i64, options: &WriteOptions) -> Result<i64, DbError> {
        self.shared.incr(key, by, options)
    }

    /// Gives a key the expiry of these options, or none if they have none; its value stays. Whether
    /// the key is there. A time that is over deletes it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// use nigh::WriteOptions;
    /// use std::time::Duration;
    ///
    /// db.put(b"session", b"Ada")?;
    /// assert!(db.expire(b"session", &WriteOptions::new().expires_in(Duration::from_secs(60)))?);
    /// assert!(db.expire(b"session", &WriteOptions::new())?); // it stays for good again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::put_with`].
    pub fn expire(&self, key: &[u8], options: &WriteOptions) -> Result<bool, DbError> {
        self.shared.expire(key, options)
    }

    /// If a key has the value `expected`, or isn't there if that is `None`, gives it the value
    /// `new`, or deletes it if that is `None`. Whether it did.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// assert!(db.compare_and_set(b"leader", None, Some(b"me"))?);
    /// assert!(!db.compare_and_set(b"leader", None, Some(b"another"))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, DbError> {
        self.shared.compare_and_set(key, expected, new, &WriteOptions::new())
    }

    /// The same, by these options; an expiry means nothing if `new` is `None`.
    ///
    /// # Errors
    /// As [`Db::put_with`].
    pub fn compare_and_set_with(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: &WriteOptions,
    ) -> Result<bool, DbError> {
        self.shared.compare_and_set(key, expected, new, options)
    }

    /// A step of a walk over the keys that begin with `prefix`: passes about `count` of them, with
    /// their values, to `found`. The first step has the cursor 0. Returns the cursor of the next
    /// one; 0 at the end. A `count` of 0 counts as 1.
    ///
    /// A key that is there all the while is met, maybe twice if the number of keys changes much;
    /// one that comes or goes meanwhile may be. There is no order. A prefix doesn't make the walk
    /// shorter: all keys are looked at.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// db.put(b"user:1", b"Ada")?;
    /// db.put(b"order:1", b"tea")?;
    /// let (mut users, mut cursor) = (0, 0);
    /// loop {
    ///     cursor = db.scan(b"user:", cursor, 100, |_key, _name| users += 1)?;
    ///     if cursor == 0 {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(users, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn scan(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, DbError> {
        self.shared.scan_step(prefix, cursor, count, &mut found)
    }

    /// All keys and values as they are now, to be read while others write. A batch is there whole
    /// or not at all; what is written later isn't there; what is overwritten or deleted later is. A
    /// key whose time is over now isn't there; one whose time ends later is.
    ///
    /// Taking it makes writers wait for some milliseconds per million keys; then it has 4 bytes for
    /// each key. Nobody waits for it later: memory that is given up waits, up to
    /// [`Options::snapshot_hold_bytes`], and a snapshot beyond that ends with an error. So drop it
    /// when you have read enough; once all was read, it holds nothing back.
    ///
    /// It may go to another thread, and outlive the database, which ends it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// db.put(b"a", b"1")?;
    /// let snapshot = db.snapshot()?;
    /// db.put(b"a", b"2")?;
    /// for pair in snapshot {
    ///     assert_eq!(pair?, (b"a".to_vec(), b"1".to_vec()));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Sixteen are open.
    pub fn snapshot(&self) -> Result<Snapshot, DbError> {
        self.shared.snapshot(b"")
    }

    /// The same of the keys that begin with `prefix`. All keys are looked at.
    ///
    /// # Errors
    /// As [`Db::snapshot`].
    pub fn snapshot_of(&self, prefix: &[u8]) -> Result<Snapshot, DbError> {
        self.shared.snapshot(prefix)
    }

    /// Tells the changes of keys that begin with `prefix`, from now on: each put, each new expiry,
    /// each removal, be it by a delete or since the key's time was over, in the order in which they
    /// were made, with their numbers. Of several [partitions](Options::partitions), each has an
    /// order of its own.
    ///
    /// - Each change that begins when this has returned is told once; none from before is. A
    ///   batch's changes come one after the other, and other changes aren't told between them.
    /// - A batch is one partition's. What a function's call wrote in several is told as a batch of
    ///   each: these come in any order, with other changes between them, and when one is told the
    ///   others may not be yet.
    /// - A change is told when it is made, mostly within 2 ms, as a read sees it: it survives this
    ///   process, and may not be on disk yet, also if it is a strong write that hasn't returned. To
    ///   act only on what is on disk, compare its number with the
    ///   [`durable_change`](crate::PartitionStats::durable_change) of its partition, or call
    ///   [`Db::flush`]. While the log has no room, changes are told late.
    /// - No writer waits for a watch. If nobody takes events, they are kept up to
    ///   [`Options::watch_bytes`]; what comes then is dropped, and
    ///   [`WatchEvent::Lost`](crate::WatchEvent) stands in its place.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// let watch = db.watch(b"user:")?;
    /// db.put(b"order:1", b"tea")?;
    /// db.put(b"user:1", b"Ada")?;
    /// let second = std::time::Duration::from_secs(1);
    /// match watch.next_within(second)? {
    ///     Some(nigh::WatchEvent::Put { key, value, .. }) => assert!(key == b"user:1" && value == b"Ada"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// 256 are open.
    pub fn watch(&self, prefix: &[u8]) -> Result<Watch, DbError> {
        self.shared.watch(prefix)
    }

    /// The same from a place on: first what was behind it, as the logs have it, then what comes.
    /// [`Watch::place`](crate::Watch::place) gives a place, and so does
    /// [`Snapshot::place`](crate::Snapshot::place). So a program that keeps the place with what it
    /// made of the events goes on from there when it is started again, also after a kill: it misses
    /// no change and gets none twice.
    ///
    /// - Each partition's changes come in the order of their numbers, and what was comes before
    ///   what comes. There is no order between partitions: of what was, one partition's come after
    ///   the other's.
    /// - What was is told only while the log has it: compaction takes the oldest changes away. It
    ///   is read from the log's files when the watch is asked for it. While it is read, those files
    ///   stay; if that are too many, the rest is told as [`WatchEvent::Lost`](crate::WatchEvent).
    /// - After a power cut, numbers that were not on disk are given again. Begin the watch before
    ///   anything is written: then [`DbError::PlaceAhead`] tells a place that has such ones. Or
    ///   call [`Db::flush`] before a place is kept.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # let second = std::time::Duration::from_secs(1);
    /// let db = nigh::Db::open(&path, &nigh::Options::new().partitions(3))?;
    /// db.put(b"user:1", b"Ada")?;
    /// let snapshot = db.snapshot()?;              // what there is ...
    /// let mut kept = snapshot.place().to_string();
    /// assert_eq!(snapshot.count(), 1);
    /// let watch = db.watch_from(b"user:", &kept.parse()?)?;   // ... and what comes behind it
    /// db.put(b"user:2", b"Alan")?;
    /// if let Some(event) = watch.next_within(second)? {
    ///     // ... does something with it, and then:
    ///     kept = watch.place()?.to_string();
    /// }
    /// db.put(b"user:3", b"Grace")?;
    /// db.close()?;
    ///
    /// let db = nigh::Db::open(&path, &nigh::Options::new())?;
    /// match db.watch_from(b"user:", &kept.parse()?)?.next_within(second)? {
    ///     Some(nigh::WatchEvent::Put { key, .. }) => assert_eq!(key, b"user:3"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DbError::ChangesGone`], which has the place from which on all is left;
    /// [`DbError::PlaceAhead`], [`DbError::PlacePartitions`] or [`DbError::PlaceOfOther`]: it isn't
    /// a place of this database as it is; the log can't be read; or as [`Db::watch`].
    pub fn watch_from(&self, prefix: &[u8], place: &WatchPlace) -> Result<Watch, DbError> {
        self.shared.watch_from(prefix, place)
    }

    /// Waits until all changes are on disk that were made before.
    ///
    /// # Errors
    /// [`DbError::NotDurable`]: the disk has taken longer than a minute, or the log has been full
    /// or broken for two seconds; while a new one is being written, that has the minute too. The
    /// changes are made; it may be called again at once.
    pub fn flush(&self) -> Result<(), DbError> {
        self.shared.flush()
    }

    /// Counts and sizes.
    ///
    /// # Errors
    /// [`DbError::Stopped`].
    pub fn stats(&self) -> Result<DbStats, DbError> {
        DbStats::of(&self.shared)
    }

    /// Tells whether this process is a child of the one that opened it: then each call fails. For a
    /// caller that has a lock around the database, which a child may find locked for ever.
    #[must_use]
    pub fn fork_mark(&self) -> Arc<ForkMark> {
        Arc::clone(&self.shared.fork_mark)
    }

    /// Has the log take all that there is, and closes the database. Dropping does the same, and
    /// tells no error.
    ///
    /// # Errors
    /// The log couldn't take all of it. Then the journal stays for the next open; so does memory
    /// that is [shared](Options::shared). While the machine runs, a full disk loses nothing. If the
    /// log broke, private memory is gone, and with it what only the log's failed writes had.
    pub fn close(mut self) -> Result<(), DbError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DbError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        if self.shared.fork_mark.is_in_child() {
            // Files and memory are the parent's, and the threads aren't here.
            std::mem::forget((running, Arc::clone(&self.shared)));
            #[cfg(feature = "functions")]
            std::mem::forget(std::mem::take(&mut self.functions));
            return Err(DbError::Forked);
        }
        #[cfg(feature = "functions")]
        self.functions.end();
        let OpenParts { upkeep, folders, keeps_memory } = running;
        upkeep::end(&self.shared, upkeep.thread());
        let kept_well = upkeep.join().is_ok();
        let ended_well = self.shared.close_logs();
        let partitions = &self.shared.partitions;
        let owners: Option<Vec<Owner>> = partitions.iter().map(|it| it.owner.end()).collect();
        let Some(mut owners) = owners else { return Err(DbError::Stopped) };
        owners.iter_mut().for_each(|it| it.snapshots.close());
        let ill = partitions.iter().find(|it| !it.readers().all(|reader| it.log.is_safe(reader)));
        let is_safe = ill.is_none() && kept_well && ended_well;
        let count = u32::try_from(owners.len()).expect("at most 64");
        let closed: Vec<_> = owners.into_iter().flat_map(|it| it.keyspace.close()).collect();
        if is_safe && !keeps_memory {
            closed.into_iter().for_each(ClosedArenas::remove);
            folders.remove_memory(count);
        }
        match ill {
            None if is_safe => Ok(()),
            it => Err(it.unwrap_or(&partitions[0]).log.ill()),
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
