//! What can go wrong, and the words that a client reads.
//!
//! Every text that a client can see is a constant here or in the command's module; texts that
//! Redis has are byte-equal to Redis's.
//!
//! Thread: any; it is plain data.

use std::path::PathBuf;

use nigh_shm::{ArenaError, Denial, WriteError};

/// The arena is full.
pub const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// So full that there isn't even room to note the deletions of a transaction or a write set, which
/// has nothing else.
pub const OOM_DELETING: &str = "OOM memory is too full to delete so many keys as one: delete them in smaller parts, or by DEL outside of MULTI";
/// Memory is being reclaimed: the same command will find room in a later turn.
pub const BUSY: &str = "TRYAGAIN memory is being reclaimed, try again";
/// A key does not fit the record's 16-bit length.
pub const KEY_TOO_LONG: &str = "ERR key is longer than 65535 bytes";
/// A value would be longer than [`crate::MAX_VALUE_BYTES`].
pub const VALUE_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// More keys have one hash than a search may pass.
pub const ONE_HASH: &str = "ERR too many keys with one hash";
/// The key's record has a wrong checksum, so its value isn't carried on.
pub(crate) const BAD_RECORD: &str = "IOERR the value's bytes have changed in memory: write the key anew or delete it; the server's log and `nigh check` name it";

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
        #[allow(unreachable_patterns, reason = "the enum may be or become non-exhaustive")]
        _ => "ERR the write failed",
    }
}

/// The same for writes that happen as one, and may be deletions only.
#[must_use]
pub fn together_error_text(error: &WriteError, only_deletes: bool) -> &'static str {
    match error {
        WriteError::Oom if only_deletes => OOM_DELETING,
        _ => write_error_text(error),
    }
}

/// What the reply says when the system gives the arenas no memory.
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

/// The error of a write.
pub(crate) trait WriteFault {
    /// Whether memory is full.
    fn is_oom(&self) -> bool;
    /// Whether it is, or a write waits for memory.
    fn lacks_room(&self) -> bool;
    /// What to say instead of that when something was evicted for it.
    fn try_again(self) -> Self;
}

impl WriteFault for WriteError {
    fn is_oom(&self) -> bool {
        match self {
            WriteError::Oom => true,
            // For other faults of the system no key has to go.
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

/// How to go on without an arena.
fn without(drops_line: bool, tenant: &str) -> String {
    match drops_line {
        true => format!(", or go on without it by deleting the line of {tenant} there"),
        false => String::new(),
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory of the arenas can't be made or used.
    #[error("cannot use the directory {path}: {source}")]
    Directory {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An arena can't be created or adopted.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// There can't be so many partitions.
    #[error("{wanted} partitions are not possible: 1 to {} are", crate::MOST_PARTITIONS)]
    PartitionCount {
        /// How many were asked for.
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
        /// How many it holds.
        found: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// An arena has a number that the others, by their header, don't go up to.
    #[error(
        "the arena {} is none of the {partitions} partition(s), 0 to {}, that {} says there are ({says}): move \
         it to another directory, or start anew with --fresh",
        path.display(), partitions.saturating_sub(1), first.display()
    )]
    Stray {
        /// The arena's file.
        path: PathBuf,
        /// What its header tells, or why it can't.
        says: String,
        /// The arena with the lowest number, which the others are measured by.
        first: PathBuf,
        /// How many partitions that one says there are.
        partitions: usize,
    },
    /// An arena is gone that the manifest lists.
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
        /// Whether the others make sense without it.
        drops_line: bool,
    },
    /// An arena is gone, and others have been written to.
    #[error(
        "the arena {} is missing, while others beside it have been written to: put it back, or start anew \
         with --fresh",
        path.display()
    )]
    MissingBeside {
        /// The arena's file.
        path: PathBuf,
    },
    /// The manifest makes no sense.
    #[error(
        "{} is no manifest that nigh writes: put the right one back, or remove it if all arenas of its folder \
         are there",
        path.display()
    )]
    Manifest {
        /// Its file.
        path: PathBuf,
    },
    /// An arena isn't of the same keyspace as the others.
    #[error(
        "the arena {} is of another keyspace than those beside it (its hash has another seed): put the right \
         one back, or start anew with --fresh",
        path.display()
    )]
    Foreign {
        /// The arena's file.
        path: PathBuf,
    },
    /// The tenant's name can't be the name of a file.
    #[error(
        "tenant name {name:?} is not usable: 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', not starting with '.' or '_'"
    )]
    TenantName {
        /// The name.
        name: String,
    },
}
