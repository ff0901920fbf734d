//! The errors of this crate, with place, expectation and finding. Any thread.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Shows errors of these types by their `Display` where a program prints their `Debug`, as `main`
/// and `unwrap` do: people read that too. For the crates that programs use.
#[macro_export]
macro_rules! debug_is_display {
    ($($error:ty),+) => { $(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+ };
}

/// What to do about arenas that are damaged.
pub const DAMAGE_ADVICE: &str =
    "a start with its log builds it anew; without a log, --fresh starts empty";

/// Why an arena could not be created, adopted or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The operating system refused.
    #[error("arena {path}: {doing} failed: {source}")]
    Io {
        /// The arena's file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The capacity is out of bounds.
    #[error("arena {path}: a capacity of {capacity_bytes} bytes is not between {least} and {most}")]
    Capacity {
        /// The arena's file.
        path: PathBuf,
        /// Asked for.
        capacity_bytes: u64,
        /// Least possible.
        least: u64,
        /// Most possible.
        most: u64,
    },
    /// The tenant's name is empty or too long.
    #[error("tenant name of {len} bytes: 1 to {most} are possible")]
    TenantName {
        /// Its length.
        len: usize,
        /// Longest possible.
        most: usize,
    },
    /// The file is no arena, or its bytes contradict each other.
    #[error(
        "arena {path} is damaged at offset {offset}: {what} is {found}, expected {expected}; {}",
        DAMAGE_ADVICE
    )]
    Damaged {
        /// The arena's file.
        path: PathBuf,
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// Which thing.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The arena has another edition's format. One of a newer server, mostly.
    #[error(
        "arena {path} has format version {found}, and this program reads {known}: use the version \
         of Nigh that wrote it, or start anew with --fresh"
    )]
    OtherVersion {
        /// The arena's file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// The arena belongs to somebody else.
    #[error(
        "arena {path} belongs to tenant {found}, expected {expected}: move it away, or start anew with --fresh"
    )]
    WrongTenant {
        /// The arena's file.
        path: PathBuf,
        /// `tenant partition/partitions` asked for.
        expected: String,
        /// `tenant partition/partitions` found.
        found: String,
    },
    /// This process still has the arena mapped: it has a writer, or readers of an earlier one.
    #[error("arena {path} is already in use by this process: close its writer and readers first")]
    InUse {
        /// The arena's file.
        path: PathBuf,
    },
    /// No memory for what an arena needs to begin with.
    #[error("arena {path}: no memory to {doing}: {cause}")]
    Memory {
        /// The arena's file.
        path: PathBuf,
        /// What needed it.
        doing: &'static str,
        /// Why there is none.
        cause: WriteError,
    },
    /// A foreign reader did not get a stable copy within its tries.
    #[error("arena {path}: no stable copy within {tries} tries; ask the owner")]
    Busy {
        /// The arena's file.
        path: PathBuf,
        /// Tries made.
        tries: u32,
    },
    /// A foreign reader found no moment at which it could read all of its keys.
    #[error("arena {path}: too much has changed in each of {attempts} attempts; ask the owner")]
    TooNew {
        /// The arena's file.
        path: PathBuf,
        /// Attempts made.
        attempts: u32,
    },
    /// The system gives a foreign reader no memory for a value.
    #[error("arena {path}: no memory for {bytes} bytes of a value: free some, or read parts of it")]
    NoRoom {
        /// The arena's file.
        path: PathBuf,
        /// Bytes of the value.
        bytes: usize,
    },
    /// A server is taking the arena over.
    #[error("arena {path}: a server is taking it over; try again when it is up")]
    Adopting {
        /// The arena's file.
        path: PathBuf,
    },
    /// The file is shorter than it was, or its file system has no memory for a hole in it.
    #[error(
        "arena {path}: the file was cut off, or memory of it is gone: nothing of it can be read any \
         more; read the one that is in use"
    )]
    Cut {
        /// The arena's file.
        path: PathBuf,
    },
    /// The file was set aside, converted or removed.
    #[error(
        "arena {path}: this file is over: it was set aside, converted or removed; \
         ask the server for the one that is in use"
    )]
    Over {
        /// The arena's file.
        path: PathBuf,
    },
}

/// Why the system gave an arena no memory. It may give some again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    /// The file system of the arena is full.
    #[error("the arena's file system is full: free some space in it, or enlarge it")]
    Full,
    /// The machine or the cgroup has no memory left, or the process no mapping.
    #[error(
        "the system has no memory left: free some, or raise the limit of the cgroup or vm.max_map_count"
    )]
    NoMemory,
    /// The process or the machine has no file descriptor left.
    #[error("no file descriptor is left: raise the limit of open files (ulimit -n, fs.file-max)")]
    Files,
    /// The arena's file is not at its path any more.
    #[error("the arena's file was removed or replaced: its data ends with this process")]
    Gone,
    /// Something else: the number of the system's error.
    #[error("the system refused memory for the arena (os error {0})")]
    Other(i32),
}

impl Denial {
    /// Whether there is too little memory: what is given back, by whomever, helps.
    #[must_use]
    pub const fn is_full(self) -> bool {
        matches!(self, Denial::Full | Denial::NoMemory)
    }
}

impl From<Errno> for Denial {
    fn from(errno: Errno) -> Denial {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Denial::Full,
            Errno::NOMEM => Denial::NoMemory,
            Errno::MFILE | Errno::NFILE => Denial::Files,
            Errno::NOENT | Errno::NOTDIR | Errno::STALE => Denial::Gone,
            other => Denial::Other(other.raw_os_error()),
        }
    }
}

/// Why a write was refused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Live data fills the arena's capacity (but for its reserve).
    #[error("the arena is full: delete keys, or raise its capacity")]
    Oom,
    /// The arena may use more memory, and the system gave none.
    #[error("{0}")]
    Denied(Denial),
    /// Memory is short, and some is coming back: announce a quiescent state, call
    /// [`crate::Writer::maintain`], and try again.
    #[error("memory is being reclaimed: try again after this turn")]
    Busy,
    /// The key is longer than [`crate::format::layout::KEY_BYTES_MAX`].
    #[error("a key of {len} bytes is longer than 65535")]
    KeyTooLong {
        /// Its length, bytes.
        len: usize,
    },
    /// The value is longer than [`crate::format::layout::VALUE_BYTES_MAX`].
    #[error("a value of {len} bytes is longer than 512 MiB")]
    ValueTooLong {
        /// Its length, bytes.
        len: usize,
    },
    /// No place for the key's entry among the lines that a probe visits, in a table not half full.
    #[error("too many keys with one hash")]
    TooManyKeysWithOneHash,
    /// The journal has no room until the log's thread has written what is in it: call again after
    /// this turn.
    #[error("the journal is full: the disk doesn't keep up")]
    JournalFull,
    /// The commit takes more of the journal than one may.
    #[error("a commit of {bytes} bytes is too large for the journal, which takes {most}")]
    JournalTooSmall {
        /// Bytes that the commit takes.
        bytes: u64,
        /// Most that one may take.
        most: u64,
    },
    /// The value that was to be carried on has other bytes in memory than were written.
    #[error("the value's bytes have changed in memory: write the key anew or delete it")]
    BadRecord,
}

/// The error of a call to the system.
pub(crate) fn io(path: &Path, doing: &'static str, errno: Errno) -> ArenaError {
    ArenaError::Io { path: path.to_path_buf(), doing, source: errno.into() }
}
