//! What can go wrong: when a database is opened, and when it is used.
//!
//! 1. A message says what happened, to which thing, and what to do.
//!
//! Any thread: plain data.

use crate::watch_place::WatchPlace;
use nigh_log::LogError;
use nigh_shm::{WriteError, debug_is_display};
use nigh_store::StoreError;
use std::io;
use std::path::PathBuf;

debug_is_display!(OpenError, DbError);

/// Bytes of a key that a message shows.
const KEY_SHOWN: usize = 100;

/// Who has a database open, and what to do.
fn user_of(pid: &str) -> String {
    if pid == std::process::id().to_string() {
        return "this process: use it there".to_owned();
    }
    format!("process {pid}: use that one's")
}

/// Why a database can't be opened. Nothing of it has changed then.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path is empty.
    #[error("the path is empty: name a folder")]
    NoPath,
    /// The path is a file.
    #[error("{} is a file, and a database is a folder: name another path", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A folder can't be made or used.
    #[error(
        "the folder {} can't be used: {doing} failed: {source}: make it writable, or name another",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The database is open already, in this process or in another one.
    #[error("the database {} is open in {}, or close it first", path.display(), user_of(pid))]
    InUse {
        /// The database's folder.
        path: PathBuf,
        /// The process that has it.
        pid: String,
    },
    /// The folder for memory is another database's, or a server's, that is open.
    #[error(
        "the memory folder {} is in use by another database: name another by the \
         option memory_dir",
        path.display()
    )]
    MemoryInUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder for memory is another user's.
    #[error(
        "the memory folder {} belongs to user {owner}, and this process runs as user {own}: name \
         another by the option memory_dir",
        path.display()
    )]
    OtherUser {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's user.
        own: u32,
    },
    /// The folder for memory has files that aren't a database's.
    #[error(
        "the folder {} has other files, and a memory folder is closed to all other users: name one \
         that is empty, or isn't there yet, by the option memory_dir",
        path.display()
    )]
    OtherFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The folder for memory is the tmpfs itself.
    #[error(
        "the folder {} is for all programs: name one in it by the option memory_dir", path.display()
    )]
    WholeTmpfs {
        /// The folder.
        path: PathBuf,
    },
    /// What lies in memory is of a database whose log isn't in the folder.
    #[error(
        "the memory folder {} has data of another database than {}: if that one is gone, remove \
         the memory folder; else name another by the option memory_dir",
        memory.display(), path.display()
    )]
    OtherMemory {
        /// The database's folder.
        path: PathBuf,
        /// The folder for memory.
        memory: PathBuf,
    },
    /// The data doesn't fit into the memory that it may take.
    #[error(
        "the data of {} finds no room: raise the option capacity_bytes, which is half of the free \
         memory by default: {source}",
        path.display()
    )]
    Capacity {
        /// The database's folder.
        path: PathBuf,
        /// Where the log's changes found none.
        source: Box<StoreError>,
    },
    /// An option is out of its bounds.
    #[error("the option {name} is {given}, and may be {least} to {most}")]
    Option {
        /// Its name.
        name: &'static str,
        /// What was given.
        given: u64,
        /// Least possible.
        least: u64,
        /// Most possible.
        most: u64,
    },
    /// The system doesn't tell the id of the machine's boot.
    #[error(
        "the system doesn't tell its boot: {source}: the database needs it to know whether memory is \
         from before a reboot"
    )]
    Boot {
        /// The system's answer.
        source: io::Error,
    },
    /// Memory is to be kept that ends with the process.
    #[error(
        "the option keep_memory is of memory that is shared, and this one is private: set the \
         option shared too, or leave out the option keep_memory"
    )]
    KeepsPrivate,
    /// The log is damaged.
    #[error(
        "the log of {} is damaged: {source}: put back a copy of the folder, or save what is whole \
         into another folder with `nigh check {} --salvage NEW`",
        path.display(), path.display()
    )]
    Damaged {
        /// The database's folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<StoreError>,
    },
    /// It has another number of partitions.
    #[error(
        "the database {} has {found} partition{}, not {wanted}: leave out the option partitions",
        path.display(), if *found == 1 { "" } else { "s" }
    )]
    Partitions {
        /// The database's folder.
        path: PathBuf,
        /// How many it has.
        found: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// A new database's log would take more than its disk has free.
    #[error(
        "the disk of {} has {free} bytes free, and the log of a new database sets {needed} aside: \
         free some, or set the options journal_bytes and log_file_bytes lower",
        path.display()
    )]
    SmallDisk {
        /// The database's folder.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that the log needs.
        needed: u64,
    },
    /// The disk has no room for another file of the log.
    #[error(
        "the database {} can't be opened: {source}: free some on its disk, or set the option \
         log_file_bytes lower",
        path.display()
    )]
    FullDisk {
        /// The database's folder.
        path: PathBuf,
        /// What the log says.
        source: Box<StoreError>,
    },
    /// Log or memory can't be used.
    #[error("the database {} can't be opened: {source}", path.display())]
    Store {
        /// The database's folder.
        path: PathBuf,
        /// Why.
        source: Box<StoreError>,
    },
    /// The system gives no memory.
    #[error("the system gives no page of memory: {source}: raise the limit of address space")]
    NoPage {
        /// The system's answer.
        source: io::Error,
    },
    /// A thread of the database can't be started.
    #[error("a thread of the database can't be started: {source}: raise the limit of threads")]
    Thread {
        /// The system's answer.
        source: io::Error,
    },
}

impl OpenError {
    /// What the log's folder says.
    pub(crate) fn of_log(path: PathBuf, error: LogError) -> OpenError {
        match error {
            LogError::InUse { pid } => OpenError::InUse { path, pid },
            LogError::Io { doing, source, .. } => OpenError::Folder { path, doing, source },
            error if error.is_damage() => {
                OpenError::Damaged { path, source: Box::new(error.into()) }
            }
            error => OpenError::Store { path, source: Box::new(error.into()) },
        }
    }

    /// What the store says.
    pub(crate) fn of_store(path: PathBuf, memory: PathBuf, source: StoreError) -> OpenError {
        match source {
            source if source.is_log_damage() => {
                OpenError::Damaged { path, source: Box::new(source) }
            }
            StoreError::Log(ref error) if error.is_full() => {
                OpenError::FullDisk { path, source: Box::new(source) }
            }
            StoreError::Partitions { found, wanted, .. } => {
                OpenError::Partitions { path, found, wanted }
            }
            StoreError::OtherLog { .. } | StoreError::LogMissing { .. } => {
                OpenError::OtherMemory { path, memory }
            }
            // Damage was told above.
            StoreError::Replay { .. } => OpenError::Capacity { path, source: Box::new(source) },
            source => OpenError::Store { path, source: Box::new(source) },
        }
    }
}

/// Why a call failed. A write that failed has changed nothing, unless the variant says otherwise.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// The key is too long.
    #[error("a key of {len} bytes is longer than 65535: shorten it, or use its hash as the key")]
    KeyTooLong {
        /// Its bytes.
        len: usize,
    },
    /// The value is too long.
    #[error("a value of {len} bytes is longer than 512 MiB: divide it among several keys")]
    ValueTooLong {
        /// Its bytes.
        len: usize,
    },
    /// A batch has keys of several partitions.
    #[error(
        "the keys {first:?} and {other:?} lie in two partitions, and a batch is one partition's: give \
         its keys a part in braces that is the same, such as {{user:1}}, or make several batches"
    )]
    ManyPartitions {
        /// A key, as text.
        first: String,
        /// A key of another partition.
        other: String,
    },
    /// A batch, or a value in private memory, takes more of the journal than one may.
    #[error(
        "a write of {bytes} bytes is larger than {most}, a fourth of the journal: make it smaller, \
         raise the option journal_bytes, or, for a long value, set the option shared"
    )]
    BatchTooLarge {
        /// Bytes that it takes.
        bytes: u64,
        /// Most that one may take.
        most: u64,
    },
    /// Live data fills the memory.
    #[error("the database is full: delete keys, or raise the option capacity_bytes")]
    Full,
    /// The system gives no memory.
    #[error("the system gives the database no memory: {cause}")]
    NoMemory {
        /// For what, and what to do.
        cause: String,
    },
    /// Memory that is free can't be used again, as somebody reads there.
    #[error("memory is held by values that threads keep: drop them soon, or copy their bytes")]
    Held,
    /// Too many keys have one hash.
    #[error("too many keys with one hash: use another key")]
    OneHash,
    /// The bytes of a value in memory are others than were written.
    #[error("the value's bytes have changed in memory: write the key anew, or delete it")]
    BadRecord,
    /// The key's value is no decimal integer of 64 bits.
    #[error("the value isn't a decimal integer of 64 bits: write the key anew before incr")]
    NotANumber,
    /// A sum is out of the range of 64 bits.
    #[error("the sum is out of the range of 64-bit integers: the value is as it was")]
    Overflow,
    /// The disk doesn't keep up.
    #[error("the disk hasn't taken the log's last changes for seconds: write again later")]
    Late,
    /// The change is made and survives this process, but isn't known to be on disk: the disk takes
    /// too long, or the log broke and is being written anew from memory. [`Db::flush`](crate::Db)
    /// waits again, and succeeds when the new log has it. A write that has changed nothing, such as
    /// a `compare_and_set` that found another value, never gets this: it gets another error of the
    /// log, if what it answers isn't on disk.
    #[error("the change is made, but {cause}: call flush to wait again")]
    NotDurable {
        /// What is in the way.
        cause: String,
    },
    /// The log has no room.
    #[error("the log has no room: {cause}: free some on its disk; deletes still work")]
    LogFull {
        /// What the log says.
        cause: String,
    },
    /// The log broke, and is being written anew from memory. Reads go on. The write isn't made.
    #[error(
        "the log broke: {cause}: a new one is written from memory, which is tried every ten \
         seconds: write again later"
    )]
    LogBroken {
        /// What the log says.
        cause: String,
    },
    /// More threads read at once than the database was opened for.
    #[error("more than {most} threads use the database: raise the option threads_most")]
    TooManyThreads {
        /// Most threads.
        most: usize,
    },
    /// More snapshots live at once than a database has room for.
    #[error("{most} snapshots are open: drop one first")]
    TooManySnapshots {
        /// Most snapshots.
        most: usize,
    },
    /// A snapshot held memory back that writes needed, and was ended.
    #[error(
        "the snapshot held back more memory of a partition than it may ({most} bytes), or than \
         there was, and was ended: take another and read it faster, or raise the option \
         snapshot_hold_bytes"
    )]
    SnapshotTooOld {
        /// Bytes that a snapshot may hold back in each partition.
        most: u64,
    },
    /// More watches live at once than a database has.
    #[error("{most} watches are open: drop one first")]
    TooManyWatches {
        /// Most watches.
        most: usize,
    },
    /// The log hasn't all changes any more that come behind the place from which on a watch was to
    /// tell.
    #[error(
        "the log has no longer all changes behind that place, but those behind {oldest}: read the \
         keys by a snapshot, and watch from its place"
    )]
    ChangesGone {
        /// The oldest place from which on a watch can tell: that one, moved on where changes are
        /// gone.
        oldest: WatchPlace,
    },
    /// The place from which on a watch was to tell has changes that there aren't.
    #[error(
        "that place is behind change {change} of partition {partition}, whose last change is \
         {last}: a power cut took the later ones, or this is an older copy of the database; read \
         the keys by a snapshot, and watch from its place"
    )]
    PlaceAhead {
        /// The partition.
        partition: usize,
        /// The number of the last change before the place.
        change: u64,
        /// That of the partition's last change.
        last: u64,
    },
    /// The place from which on a watch was to tell has another number of partitions.
    #[error(
        "that place is of a database with {place} partitions, and this one has {database}: keep a \
         place for each database"
    )]
    PlacePartitions {
        /// Partitions of the place.
        place: usize,
        /// Those of the database.
        database: usize,
    },
    /// The place from which on a watch was to tell is another database's.
    #[error(
        "that place is of another database, or of an earlier one in this folder: read the keys by \
         a snapshot, and watch from its place"
    )]
    PlaceOfOther,
    /// The log's files can't be read.
    #[error("the log can't be read: {cause}: look at its disk")]
    Unread {
        /// What is wrong.
        cause: String,
    },
    /// This process is a fork of the one that opened the database.
    #[error(
        "the database was opened before this process was forked: only the process that opened it \
         may use it; open another database here, or read this one with a reader of your own"
    )]
    Forked,
    /// The database was closed meanwhile.
    #[error("the database was closed: open it again")]
    Closed,
    /// The store refuses for another cause.
    #[error("the write was refused: {cause}")]
    Refused {
        /// What it says.
        cause: String,
    },
    /// A thread panicked within a write: a fault of this library.
    #[error("a write ended by a fault of its own: open the database again; nothing is lost")]
    Stopped,
}

/// Why an attempt to write ended.
pub(crate) enum WriteRefusal {
    /// The store refuses; maybe not for long.
    Write(WriteError),
    /// For good.
    Final(DbError),
}

impl From<WriteError> for WriteRefusal {
    fn from(error: WriteError) -> WriteRefusal {
        WriteRefusal::Write(error)
    }
}

impl DbError {
    /// Two keys of a batch lie in two partitions.
    #[cold]
    pub(crate) fn of_partitions(first: &[u8], other: &[u8]) -> DbError {
        let text = |key: &[u8]| {
            let shown = key.get(..KEY_SHOWN).unwrap_or(key);
            String::from_utf8_lossy(shown).into_owned()
        };
        DbError::ManyPartitions { first: text(first), other: text(other) }
    }

    /// The system gives this process no memory for a copy of so many bytes.
    #[cold]
    pub(crate) fn of_copy(bytes: usize) -> DbError {
        let cause = format!("{bytes} bytes: free some, or raise this process's limit");
        DbError::NoMemory { cause }
    }

    /// What a write says that isn't tried again.
    #[cold]
    pub(crate) fn of_write(error: WriteError) -> DbError {
        match error {
            WriteError::Oom => DbError::Full,
            WriteError::Denied(denial) => {
                DbError::NoMemory { cause: format!("{denial}: free some, or enlarge the tmpfs") }
            }
            WriteError::Busy => DbError::Held,
            WriteError::KeyTooLong { len } => DbError::KeyTooLong { len },
            WriteError::ValueTooLong { len } => DbError::ValueTooLong { len },
            WriteError::TooManyKeysWithOneHash => DbError::OneHash,
            WriteError::JournalFull => DbError::Late,
            WriteError::JournalTooSmall { bytes, most } => DbError::BatchTooLarge { bytes, most },
            WriteError::BadRecord => DbError::BadRecord,
            error => DbError::Refused { cause: error.to_string() },
        }
    }
}
