//! The errors of the store, and the texts that a client reads.
//!
//! 1. Every text that a client can see is a constant here or in its command's file. A text that
//!    Redis has too is byte-equal to Redis's.
//!
//! Thread: any; it is plain data.

use std::path::PathBuf;

use nigh_log::LogError;
use nigh_shm::{ArenaError, Denial, JournalError, ReplayError, WriteError};

/// The arena is full.
pub(crate) const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// The arena has no memory even for the tombstones of a transaction or write set that only deletes.
pub(crate) const OOM_DELETING: &str = "OOM memory is too full to delete so many keys as one: delete them in smaller parts, or by DEL outside of MULTI";
/// Memory is being reclaimed: the same command finds room in a later turn.
pub const BUSY: &str = "TRYAGAIN memory is being reclaimed, try again";
/// A key doesn't fit the record's 16-bit length.
pub(crate) const KEY_TOO_LONG: &str = "ERR key is longer than 65535 bytes";
/// A value would be longer than `MAX_VALUE_BYTES`.
pub(crate) const VALUE_TOO_LONG: &str =
    "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// More keys have one hash than a search may pass.
pub(crate) const ONE_HASH: &str = "ERR too many keys with one hash";
/// The key's record has a wrong checksum, so the store doesn't build on its value.
pub(crate) const BAD_RECORD: &str = "IOERR the value's bytes have changed in memory: write the key anew or delete it; the server's log and `nigh check` name it";

/// The log's thread doesn't keep up: the same command finds room in a later turn.
pub const JOURNAL_FULL: &str = "MISCONF Nigh can't write its log: the journal is full, since the disk doesn't keep up or has no room. Reads go on; see INFO persistence.";
/// One commit takes a fourth of a journal at most.
pub(crate) const JOURNAL_TOO_SMALL: &str = "ERR the commit is too large for the journal, of which it may take a fourth: make it smaller, or raise journal-size";

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";

/// The whole error reply for a failed write.
#[must_use]
pub fn write_error_text(error: &WriteError) -> &'static str {
    match error {
        WriteError::Oom => OOM,
        WriteError::Denied(denial) => denial_text(*denial),
        WriteError::Busy => BUSY,
        WriteError::KeyTooLong { .. } => KEY_TOO_LONG,
        WriteError::ValueTooLong { .. } => VALUE_TOO_LONG,
        WriteError::TooManyKeysWithOneHash => ONE_HASH,
        WriteError::BadRecord => BAD_RECORD,
        WriteError::JournalFull => JOURNAL_FULL,
        WriteError::JournalTooSmall { .. } => JOURNAL_TOO_SMALL,
        #[allow(unreachable_patterns, reason = "the enum may be or become non-exhaustive")]
        _ => "ERR the write failed",
    }
}

/// The same for writes that happen as one; they may be deletions only.
#[must_use]
pub fn together_error_text(error: &WriteError, only_deletes: bool) -> &'static str {
    match error {
        WriteError::Oom if only_deletes => OOM_DELETING,
        _ => write_error_text(error),
    }
}

/// The reply when the system gives the arenas no memory.
const fn denial_text(denial: Denial) -> &'static str {
    match denial {
        Denial::Full => "OOM the tmpfs of the arenas is full: free some space in it, or enlarge it",
        Denial::NoMemory => {
            "OOM the system has no memory left for the arenas; the server's log says more"
        }
        Denial::Files => {
            "IOERR no file descriptor is left to take memory with: raise the server's limit of open files"
        }
        Denial::Gone => {
            "IOERR the arena's file was removed: copy the data away before the server ends, its log says more"
        }
        _ => "IOERR the system gives the arenas no memory; the server's log says why",
    }
}

/// An error that may mean that a write lacks memory.
pub(crate) trait WriteFault {
    /// Whether memory is full.
    fn is_oom(&self) -> bool;
    /// Whether memory is full, or on its way back.
    fn lacks_room(&self) -> bool;
    /// The error to return instead after keys were evicted for the write.
    fn try_again(self) -> Self;
}

impl WriteFault for WriteError {
    fn is_oom(&self) -> bool {
        match self {
            WriteError::Oom => true,
            // Evicting keys doesn't help against other faults of the system.
            WriteError::Denied(denial) => denial.is_full(),
            _ => false,
        }
    }

    fn lacks_room(&self) -> bool {
        self.is_oom() || *self == WriteError::Busy
    }

    fn try_again(self) -> WriteError {
        if self.is_oom() { WriteError::Busy } else { self }
    }
}

/// The advice of [`StoreError::Missing`] on going on without the arena.
fn without(drops_line: bool, tenant: &str) -> String {
    match drops_line {
        true => format!(", or go on without it by deleting the line of {tenant} there"),
        false => String::new(),
    }
}

/// The reason why a store can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory of the arenas can't be made or used.
    #[error("cannot use the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An arena can't be created or adopted.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The number of partitions isn't possible.
    #[error("{wanted} partitions are not possible: 1 to {} are", nigh_shm::MOST_PARTITIONS)]
    PartitionCount {
        /// The number that was asked for.
        wanted: usize,
    },
    /// The directory holds arenas of an earlier format.
    #[error(
        "the arenas in {} have format version 1, which earlier servers wrote: make them new with \
         `nigh convert --shm-dir {}`, or start anew with --fresh",
        dir.display(), dir.display()
    )]
    Edition {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory holds another number of partitions.
    #[error(
        "{} holds data in {found} partition(s), and {wanted} were asked for: start with --partitions {found}, \
         or convert the data first with `nigh convert --shm-dir {} --partitions {wanted}`",
        dir.display(), dir.display()
    )]
    Partitions {
        /// The directory.
        dir: PathBuf,
        /// The number that it holds.
        found: usize,
        /// The number that was asked for.
        wanted: usize,
    },
    /// An arena's number is beyond the number of partitions that another arena's header tells.
    #[error(
        "the arena {} is none of the {partitions} partition(s), 0 to {}, that {} says there are ({says}): move \
         it to another directory, or start anew with --fresh",
        path.display(), partitions.saturating_sub(1), first.display()
    )]
    Stray {
        /// The arena's file.
        path: PathBuf,
        /// What its header says, or why it can't be read.
        says: String,
        /// The arena with the lowest number, whose header counts.
        first: PathBuf,
        /// The number of partitions that this header says.
        partitions: usize,
    },
    /// An arena that the manifest lists is missing.
    #[error(
        "the arena {} is missing, which {} lists: put it back, or start anew with --fresh{}",
        path.display(), manifest.display(), without(*drops_line, tenant)
    )]
    Missing {
        /// The arena's file.
        path: PathBuf,
        /// The manifest of its folder.
        manifest: PathBuf,
        /// The tenant that it belongs to.
        tenant: String,
        /// Whether the other arenas can be used without it.
        drops_line: bool,
    },
    /// An arena is missing, and others have been written to.
    #[error(
        "the arena {} is missing, while others beside it have been written to: put it back, or start anew \
         with --fresh",
        path.display()
    )]
    MissingBeside {
        /// The arena's file.
        path: PathBuf,
    },
    /// The manifest isn't one that the store writes.
    #[error(
        "{} is no manifest that nigh writes: put the right one back, or remove it if all arenas of its folder \
         are there",
        path.display()
    )]
    Manifest {
        /// Its file.
        path: PathBuf,
    },
    /// An arena belongs to another keyspace than those beside it.
    #[error(
        "the arena {} is of another keyspace than those beside it (its hash has another seed): put the right \
         one back, or start anew with --fresh",
        path.display()
    )]
    Foreign {
        /// The arena's file.
        path: PathBuf,
    },
    /// The log can't be read or written.
    #[error("log: {0}")]
    Log(#[from] LogError),
    /// A journal can't be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record in memory is bad, so the log can't begin with it.
    #[error(
        "a base can't be written: {0}: `nigh check` names the keys; delete them without a log first"
    )]
    BadMemory(#[from] ReplayError),
    /// Memory is of another log than the folder's.
    #[error(
        "{} belongs to the log {found}, and the folder of `dir` has the log {log}: name the log's own \
         folder, or move one of them away", path.display()
    )]
    OtherLog {
        /// The journal, or the folder of the arena.
        path: PathBuf,
        /// The id in it.
        found: String,
        /// The log's id.
        log: String,
    },
    /// Memory has a log, and the folder has none.
    #[error(
        "{} belongs to the log {id}, and the folder of `dir` has no log: name the log's folder, or move the \
         arenas and journals away", path.display()
    )]
    LogMissing {
        /// The journal, or the folder of the arena.
        path: PathBuf,
        /// The id in it.
        id: String,
    },
    /// Memory has changes of a time without a log, and the folder has another time's log.
    #[error(
        "the arenas in {} have changes that were made without the log in `dir`: move the log's folder away to \
         keep the arenas, or the arenas to go on from the log", dir.display()
    )]
    Unlogged {
        /// The folder of the arenas.
        dir: PathBuf,
    },
    /// The log is an older copy than memory.
    #[error(
        "the log is an older copy than the memory in {} (shard {shard}): put the newer log back, or move the \
         arenas and journals away to go on from the copy", dir.display()
    )]
    LogOlder {
        /// The folder of the arenas.
        dir: PathBuf,
        /// The shard.
        shard: u32,
    },
    /// The log went on without memory, which has changes that it lacks.
    #[error(
        "the log went on without the memory in {}, which has changes that the log lacks (shard \
         {shard}): move the arenas and journals away to go on from the log, without those changes",
        dir.display()
    )]
    LogWentOn {
        /// The folder of the arenas.
        dir: PathBuf,
        /// The shard.
        shard: u32,
    },
    /// Memory has a log that can't be retired, since it isn't there.
    #[error(
        "the arenas in {} have a log, which isn't in the folder of `dir`, and `appendonly no` would leave it \
         behind: name its folder, or start with appendonly yes", dir.display()
    )]
    RetireMissing {
        /// The folder of the arenas.
        dir: PathBuf,
    },
    /// Arenas that can't be served without their log, which is to be retired.
    #[error(
        "appendonly is no, but the log stays, since the arenas aren't whole without it: {what}; or start with \
         appendonly yes: what is missing is built from the log"
    )]
    RetireNeeded {
        /// What is wrong with them.
        what: String,
    },
    /// What a log has can't be done again.
    #[error("building the arena {} from the log failed at {place}: {what}", path.display())]
    Replay {
        /// The arena's file.
        path: PathBuf,
        /// Where in the log.
        place: String,
        /// Why.
        what: String,
        /// Its bytes are wrong; else there is no room for them.
        is_damage: bool,
        /// The system gives no memory; else the arena is full.
        is_denied: bool,
    },
    /// There is no room for an arena beside what was set aside.
    #[error(
        "{what}; {bytes} bytes of memory are in {}, set aside by this start or an earlier one: give the tmpfs \
         so much more room{}",
        shown(files), if *is_needed { "" } else { ", or, if `nigh check` finds the log whole, remove that" }
    )]
    BesideAside {
        /// Why the arena couldn't be built.
        what: String,
        /// What was set aside.
        files: Vec<PathBuf>,
        /// Bytes of memory that these have.
        bytes: u64,
        /// Whether a journal names values in them that the log lacks.
        is_needed: bool,
    },
    /// A change of the log stands on one that isn't there.
    #[error("the log's change {lsn} of key {key:?} ({place}) stands on a version that isn't there")]
    NoBase {
        /// The key.
        key: String,
        /// Where in the log.
        place: String,
        /// The change's LSN.
        lsn: u64,
    },
    /// Entries of journals wait for each other.
    #[error(
        "entries of the journals wait for each other: this is a mistake of nigh's own, or a forged file"
    )]
    JournalCircle,
    /// A fresh start with arenas or journals that have a log.
    #[error(
        "--fresh removes the arenas, and their log would bring the keys back: end it by --appendonly no --fresh \
         first, or start without --fresh"
    )]
    FreshLog,
    /// A fresh start beside a log whose arenas aren't there.
    #[error(
        "--fresh starts empty, and the log of `dir` would bring its keys back: remove that folder, name \
         another, or start without --fresh"
    )]
    FreshFolder,
    /// What was under way was to stop.
    #[error("interrupted")]
    Stopped,
    /// The tenant's name can't be the name of a file.
    #[error(
        "tenant name {name:?} is not usable: 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', not starting with '.' or '_'"
    )]
    TenantName {
        /// The name.
        name: String,
    },
}

fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(" and ")
}

impl StoreError {
    /// Whether bytes of the log are wrong or missing: a salvage saves what is whole.
    #[must_use]
    pub const fn is_log_damage(&self) -> bool {
        match self {
            StoreError::Log(error) => error.is_damage(),
            StoreError::Replay { is_damage, .. } => *is_damage,
            StoreError::NoBase { .. } => true,
            _ => false,
        }
    }
}
