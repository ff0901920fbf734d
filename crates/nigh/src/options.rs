//! How a database is opened, and how one write is done.
//!
//! Any thread: plain data.

use crate::error::OpenError;
use nigh_shm::MOST_PARTITIONS;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Least memory of a partition: segments of 128 KiB, two in reserve, and an index.
const CAPACITY_LEAST: u64 = 8 << 20;
/// Most that an index entry reaches.
const CAPACITY_MOST: u64 = 64 << 30;
/// A journal, bytes.
const JOURNAL_LEAST: u64 = 1 << 20;
const JOURNAL_MOST: u64 = 4 << 30;
/// By default: so many, but at most a fourth of the tmpfs's room, which is 64 MiB in a container
/// whose `/dev/shm` nobody has enlarged.
const JOURNAL_BYTES: u64 = 64 << 20;
const JOURNAL_SHARE: u64 = 4;
/// A file of the log, bytes.
const LOG_FILE_LEAST: u64 = 1 << 20;
const LOG_FILE_MOST: u64 = 1 << 30;
const LOG_FILE_BYTES: u64 = 64 << 20;
/// By default, file and journal are this part of the disk's room at most: a log sets about five
/// times as much aside.
const DISK_SHARE: u64 = 16;
/// Memory that a snapshot holds back, bytes: from some segments up to all that there may be.
const SNAPSHOT_HOLD_LEAST: u64 = 1 << 20;
/// By default, of the capacity: a fourth.
const SNAPSHOT_HOLD_SHARE: u64 = 4;
/// Events that wait for one watch, bytes.
const WATCH_LEAST: u64 = 4 << 10;
const WATCH_MOST: u64 = 1 << 30;
/// CPU time of a function's call, ms: an hour.
#[cfg(feature = "functions")]
const FUNCTION_MS_MOST: u64 = 3_600_000;
/// Threads that read at once. Each has a cache line that the writer looks at.
const THREADS_MOST: u64 = 4096;

/// When a write is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the change is in memory and in the journal: it survives this process, and is on disk
    /// within about a second. A power cut may take it.
    #[default]
    Eventual,
    /// When the change, and all before it in its partition, is on disk. The call may sync by
    /// itself: then a disk that doesn't answer holds it for as long. If the database's folder is in
    /// a tmpfs, the change survives this process, and not a reboot.
    Strong,
}

/// How a database is opened.
///
/// ```
/// use nigh::{Durability, Options};
///
/// let options = Options::new().capacity_bytes(1 << 30).durability(Durability::Strong);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) memory_dir: Option<PathBuf>,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) partitions: Option<usize>,
    pub(crate) journal_bytes: Option<u64>,
    pub(crate) log_file_bytes: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) threads_most: usize,
    pub(crate) snapshot_hold_bytes: Option<u64>,
    pub(crate) watch_bytes: u64,
    pub(crate) is_shared: bool,
    pub(crate) keeps_memory: bool,
    #[cfg(feature = "functions")]
    pub(crate) function_time_limit: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_dir: None,
            capacity_bytes: None,
            partitions: None,
            journal_bytes: None,
            log_file_bytes: None,
            durability: Durability::Eventual,
            threads_most: 256,
            snapshot_hold_bytes: None,
            watch_bytes: 4 << 20,
            is_shared: false,
            keeps_memory: false,
            #[cfg(feature = "functions")]
            function_time_limit: Duration::from_millis(nigh_js::FunctionLimits::default().call_ms),
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// The folder, in a tmpfs, for journal and memory. By default one of the database's own in
    /// `/dev/shm`.
    ///
    /// An open with another folder doesn't have the last writes that a killed process left in the
    /// first one. If it writes, the first one is refused later, with a message that says what to
    /// do.
    #[must_use]
    pub fn memory_dir(self, dir: impl Into<PathBuf>) -> Options {
        Options { memory_dir: Some(dir.into()), ..self }
    }

    /// Bytes of memory that the data may take: 8 MiB to 64 GiB for each partition. By default half
    /// of what is free. They are taken as data comes, and each partition has the same share. Memory
    /// that an open finds ([kept](Options::keep_memory), or of a process that was killed) grows to
    /// twice what it was made with at most: [`DbStats::capacity_bytes`](crate::DbStats) has what holds.
    #[must_use]
    pub fn capacity_bytes(self, bytes: u64) -> Options {
        Options { capacity_bytes: Some(bytes), ..self }
    }

    /// Partitions of a new database, 1 to 64; 1 by default. Each has a lock, a journal and a log of
    /// its own, so that as many threads write at once. A key's partition is chosen by the hash of
    /// the key, or of the text between its first `{` and the next `}`: keys with the same such text
    /// lie together. What is several keys' is one partition's: a [`WriteBatch`](crate::WriteBatch)
    /// over several is refused, and [`Db::multi_get`](crate::Db::multi_get) shows a moment of each.
    ///
    /// The number stays; a database that has another one isn't opened.
    #[must_use]
    pub fn partitions(self, partitions: usize) -> Options {
        Options { partitions: Some(partitions), ..self }
    }

    /// Bytes of the journal of each partition, 1 MiB to 4 GiB; rounded up to a power of two. By
    /// default 64 MiB, or less where all journals would take more than a fourth of the room in the
    /// tmpfs, or a sixteenth of that on the log's disk. A batch takes at most a fourth of it; so
    /// does a value, unless the memory is [shared](Options::shared).
    #[must_use]
    pub fn journal_bytes(self, bytes: u64) -> Options {
        Options { journal_bytes: Some(bytes), ..self }
    }

    /// Bytes of one file of the log, 1 MiB to 1 GiB. By default 64 MiB, or less where the files of
    /// all partitions would take more than a sixteenth of the room on their disk. The log of a
    /// partition sets space aside on its disk: 1.25 times the journal and about four files.
    #[must_use]
    pub fn log_file_bytes(self, bytes: u64) -> Options {
        Options { log_file_bytes: Some(bytes), ..self }
    }

    /// When writes are answered that don't say it themselves.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Options {
        Options { durability, ..self }
    }

    /// Threads that may have read and not ended yet, up to 4096; 256 by default.
    #[must_use]
    pub fn threads_most(self, threads: usize) -> Options {
        Options { threads_most: threads, ..self }
    }

    /// Bytes of memory that one snapshot may hold back, 1 MiB to 64 GiB; by default a fourth of the
    /// capacity. Each partition has an equal share of it. A snapshot beyond its share of one ends
    /// with [`DbError::SnapshotTooOld`](crate::DbError); so does one while a write finds no memory.
    #[must_use]
    pub fn snapshot_hold_bytes(self, bytes: u64) -> Options {
        Options { snapshot_hold_bytes: Some(bytes), ..self }
    }

    /// Bytes of events that may wait for one watch, 4 KiB to 1 GiB; 4 MiB by default. One event is
    /// kept, however long it is.
    #[must_use]
    pub fn watch_bytes(self, bytes: u64) -> Options {
        Options { watch_bytes: bytes, ..self }
    }

    /// Whether other processes may read along, by [`Db::open_reader`](crate::Db::open_reader): the
    /// memory is files in the tmpfs then. They stay when the process is killed, and the next open
    /// goes on with them.
    ///
    /// By default the memory is this process's alone: nobody else can open it, and it goes back to
    /// the system when the process ends, however that is. What a killed process had is read from
    /// log and journal by the next open.
    #[must_use]
    pub fn shared(self, is_shared: bool) -> Options {
        Options { is_shared, ..self }
    }

    /// Leaves the data in memory when the database is closed, so that the next open needn't read
    /// the log. By default the memory goes back to the system. Only memory that is
    /// [shared](Options::shared) can stay.
    #[must_use]
    pub fn keep_memory(self, keeps: bool) -> Options {
        Options { keeps_memory: keeps, ..self }
    }

    /// CPU time after which a call of a function is stopped, 1 ms to an hour; 50 ms by default. The
    /// server's setting `function-time-limit-ms` is the same, and the error of a stopped call names
    /// that.
    #[cfg(feature = "functions")]
    #[must_use]
    pub fn function_time_limit(self, limit: Duration) -> Options {
        Options { function_time_limit: limit, ..self }
    }

    /// Refuses what is out of bounds.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if let Some(partitions) = self.partitions {
            within("partitions", partitions as u64, 1, MOST_PARTITIONS as u64)?;
        }
        if let Some(bytes) = self.journal_bytes {
            within("journal_bytes", bytes, JOURNAL_LEAST, JOURNAL_MOST)?;
        }
        if let Some(bytes) = self.log_file_bytes {
            within("log_file_bytes", bytes, LOG_FILE_LEAST, LOG_FILE_MOST)?;
        }
        if let Some(bytes) = self.snapshot_hold_bytes {
            within("snapshot_hold_bytes", bytes, SNAPSHOT_HOLD_LEAST, CAPACITY_MOST)?;
        }
        within("watch_bytes", self.watch_bytes, WATCH_LEAST, WATCH_MOST)?;
        #[cfg(feature = "functions")]
        within("function_time_limit, ms", self.function_limit_ms(), 1, FUNCTION_MS_MOST)?;
        if self.keeps_memory && !self.is_shared {
            return Err(OpenError::KeepsPrivate);
        }
        within("threads_most", self.threads_most as u64, 1, THREADS_MOST)
    }

    /// CPU time of a call, ms.
    #[cfg(feature = "functions")]
    pub(crate) fn function_limit_ms(&self) -> u64 {
        u64::try_from(self.function_time_limit.as_millis()).unwrap_or(u64::MAX)
    }

    /// The capacity of a database with so many partitions, while so many bytes are free.
    pub(crate) fn capacity_for(
        &self,
        partitions: usize,
        free_bytes: u64,
    ) -> Result<u64, OpenError> {
        let partitions = partitions as u64;
        let (least, most) = (CAPACITY_LEAST * partitions, CAPACITY_MOST * partitions);
        let Some(bytes) = self.capacity_bytes else {
            return Ok((free_bytes / 2).clamp(least, most));
        };
        within("capacity_bytes", bytes, least, most)?;
        Ok(bytes)
    }

    /// The bytes of each journal of a database with so many partitions.
    pub(crate) fn journal_for(&self, partitions: usize, room: LogRoom) -> u64 {
        if let Some(bytes) = self.journal_bytes {
            return bytes.next_power_of_two();
        }
        let share = (room.memory_bytes / JOURNAL_SHARE).min(room.disk_bytes / DISK_SHARE);
        power_of_two(share / partitions as u64).clamp(JOURNAL_LEAST, JOURNAL_BYTES)
    }

    /// Bytes of a file of each partition's log.
    pub(crate) fn log_file_for(&self, partitions: usize, room: LogRoom) -> u64 {
        let share = room.disk_bytes / DISK_SHARE / partitions as u64;
        let usual = power_of_two(share).clamp(LOG_FILE_LEAST, LOG_FILE_BYTES);
        self.log_file_bytes.unwrap_or(usual)
    }

    /// What a snapshot may hold back, of a database with so much memory.
    pub(crate) fn snapshot_hold_of(&self, capacity_bytes: u64) -> u64 {
        self.snapshot_hold_bytes.unwrap_or(capacity_bytes / SNAPSHOT_HOLD_SHARE)
    }
}

/// Bytes that are free, with those that the database has there already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRoom {
    /// In the tmpfs, for journals.
    pub(crate) memory_bytes: u64,
    /// On the log's disk.
    pub(crate) disk_bytes: u64,
}

/// The last one that isn't above.
fn power_of_two(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

fn within(name: &'static str, given: u64, least: u64, most: u64) -> Result<(), OpenError> {
    match (least..=most).contains(&given) {
        true => Ok(()),
        false => Err(OpenError::Option { name, given, least, most }),
    }
}

/// How one write is done.
///
/// ```
/// use nigh::WriteOptions;
/// use std::time::Duration;
///
/// let session = WriteOptions::strong().expires_in(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
    expiry: Option<Expiry>,
    pub(crate) waits_never: bool,
}

#[derive(Debug, Clone, Copy)]
enum Expiry {
    In(Duration),
    At(SystemTime),
}

impl WriteOptions {
    /// As the database says, without an expiry.
    #[must_use]
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// [`Durability::Strong`], whatever the database says.
    #[must_use]
    pub fn strong() -> WriteOptions {
        WriteOptions { durability: Some(Durability::Strong), ..WriteOptions::new() }
    }

    /// [`Durability::Eventual`], whatever the database says.
    #[must_use]
    pub fn eventual() -> WriteOptions {
        WriteOptions { durability: Some(Durability::Eventual), ..WriteOptions::new() }
    }

    /// The key is gone so long after the call that is given this, to a millisecond. For keys of a
    /// batch that are to go at once, [`WriteOptions::expires_at`] gives one time.
    #[must_use]
    pub fn expires_in(self, time: Duration) -> WriteOptions {
        WriteOptions { expiry: Some(Expiry::In(time)), ..self }
    }

    /// The key is gone from this time on, to a millisecond.
    #[must_use]
    pub fn expires_at(self, time: SystemTime) -> WriteOptions {
        WriteOptions { expiry: Some(Expiry::At(time)), ..self }
    }

    /// A write that would wait for memory that others hold, or for a disk that is late, fails at
    /// once with [`DbError::Held`](crate::DbError) or [`DbError::Late`](crate::DbError): for a
    /// thread that has other things to do. It may succeed a moment later, and waits if it is done
    /// without this. (A strong write still waits for its sync.)
    #[must_use]
    pub fn without_waiting(self) -> WriteOptions {
        WriteOptions { waits_never: true, ..self }
    }

    /// Unix ms from which on the key is gone; 0: never.
    pub(crate) fn expiry_ms(&self) -> u64 {
        let at = match self.expiry {
            None => return 0,
            // Beyond all time is never.
            Some(Expiry::In(time)) => match SystemTime::now().checked_add(time) {
                Some(at) => at,
                None => return 0,
            },
            Some(Expiry::At(at)) => at,
        };
        unix_ms(at).max(1)
    }
}

/// A time in Unix ms.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container `/dev/shm` has 64 MiB. The first program there failed: the journal alone
    /// would have taken them all.
    #[test]
    fn a_journal_leaves_room_in_a_containers_tmpfs() {
        let options = Options::new();
        for (partitions, room_mib, journal_mib) in
            [(1, 24 << 10, 64), (1, 256, 64), (1, 255, 32), (1, 64, 16), (4, 64, 4), (64, 64, 1)]
        {
            let room = LogRoom { memory_bytes: room_mib << 20, disk_bytes: u64::MAX };
            let journal = options.journal_for(partitions, room);
            assert_eq!(journal, journal_mib << 20, "{partitions} in {room_mib} MiB");
        }
        let room = LogRoom { memory_bytes: 0, disk_bytes: u64::MAX };
        assert_eq!(options.journal_for(1, room), JOURNAL_LEAST);
        let told = options.journal_bytes(50 << 20);
        assert_eq!(told.journal_for(1, room), 64 << 20, "what is told is done");
    }

    /// A log sets some 320 MiB aside with files of 64 MiB. On a disk of 100 MiB the first program
    /// got no `put` done.
    #[test]
    fn a_log_leaves_room_on_a_small_disk() {
        let options = Options::new();
        for (partitions, room_mib, mib) in [
            (1, 100 << 10, 64),
            (1, 1024, 64),
            (1, 1023, 32),
            (1, 100, 4),
            (1, 10, 1),
            (4, 1024, 16),
            (64, 100, 1),
        ] {
            let room = LogRoom { memory_bytes: u64::MAX, disk_bytes: room_mib << 20 };
            let at = format!("{partitions} in {room_mib} MiB");
            assert_eq!(options.journal_for(partitions, room), mib << 20, "{at}");
            assert_eq!(options.log_file_for(partitions, room), mib << 20, "{at}");
        }
        let none = LogRoom { memory_bytes: 0, disk_bytes: 0 };
        assert_eq!(options.log_file_bytes(50 << 20).log_file_for(1, none), 50 << 20);
    }
}
