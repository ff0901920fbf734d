//! Why a journal can't be made, opened or read. Any thread.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why a journal can't be made, opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The operating system refused.
    #[error("journal {path}: {doing} failed: {source}")]
    Io {
        /// The journal's file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// There is no memory for a journal.
    #[error(
        "journal {path}: no memory for its {bytes} bytes ({source}): lower its size (journal-size, \
         or the option journal_bytes), or give the tmpfs that holds {folder} more room"
    )]
    NoMemory {
        /// The journal's file.
        path: PathBuf,
        /// The folder, in a tmpfs.
        folder: PathBuf,
        /// Bytes that it takes.
        bytes: u64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The size is none that a journal can have.
    #[error("journal {path}: journal-size {bytes} is no power of two between {least} and {most}")]
    Size {
        /// The journal's file.
        path: PathBuf,
        /// Asked for.
        bytes: u64,
        /// Least possible.
        least: u64,
        /// Most possible.
        most: u64,
    },
    /// The file is no journal.
    #[error("{path} is no journal: it begins with {found}, expected NIGHJRN1")]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// A newer server wrote it.
    #[error("journal {path} has format version {found}; this server reads up to {most}")]
    NewerVersion {
        /// The journal's file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this server reads.
        most: u32,
    },
    /// Its bytes contradict each other.
    #[error("journal {path} is damaged at offset {offset}: {what} is {found}, expected {expected}")]
    Damaged {
        /// The journal's file.
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
    /// This process has the journal mapped already.
    #[error("journal {path} is already in use by this process")]
    InUse {
        /// The journal's file.
        path: PathBuf,
    },
    /// The bytes of a value that an entry names aren't to be had.
    #[error("journal {path}: the value of change {lsn} of stream {stream}: {what}")]
    Value {
        /// The journal's file.
        path: PathBuf,
        /// The change's stream.
        stream: u32,
        /// The change's number.
        lsn: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// The error of a call to the system.
pub(crate) fn system(path: &Path, doing: &'static str, errno: Errno) -> JournalError {
    JournalError::Io { path: path.to_path_buf(), doing, source: errno.into() }
}
