//! What can go wrong when another process's database is read.
//!
//! 1. A message says what happened, to which thing, and what to do.
//!
//! Any thread: plain data.

use nigh_log::LogError;
use nigh_shm::{ArenaError, debug_is_display};
use std::io;
use std::path::{Path, PathBuf};

debug_is_display!(ReaderError);

/// Why a [`crate::DbReader`] can't read. It reads again by itself when that has passed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// The path is a file.
    #[error("{} is a file, and a database is a folder: name another path", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// There is no database.
    #[error("there is no database in {}: name the folder that it was made in", path.display())]
    NoDatabase {
        /// The path.
        path: PathBuf,
    },
    /// A folder or a file can't be read.
    #[error(
        "{} can't be read: {doing} failed: {cause}: run as the user whose database it is",
        path.display()
    )]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        cause: String,
    },
    /// No process has the database open, and none has left its memory.
    #[error(
        "the database {} isn't open: open it in a process that writes, with the option shared, and \
         read again (its memory is looked for in {}; if its owner names another by the option \
         memory_dir, name that here too)",
        path.display(), memory.display()
    )]
    NotOpen {
        /// The database's folder.
        path: PathBuf,
        /// Where its memory would be.
        memory: PathBuf,
    },
    /// The process that has the database open, or had, keeps its memory to itself.
    #[error(
        "the memory of the database {} is private: open it with the option shared in the process \
         that writes, then others can read along",
        path.display()
    )]
    Private {
        /// The database's folder.
        path: PathBuf,
    },
    /// A process is opening the database; or one was killed while it did.
    #[error(
        "the database {} is being opened: read again in a moment; if it stays so, the process that \
         opened it was killed meanwhile, and another one has to open it",
        path.display()
    )]
    Opening {
        /// The database's folder.
        path: PathBuf,
    },
    /// What lies in memory is of another database.
    #[error(
        "the memory folder {} has data of another database than {}: name the one that its owner \
         names by the option memory_dir",
        memory.display(), path.display()
    )]
    OtherMemory {
        /// The database's folder.
        path: PathBuf,
        /// The folder for memory.
        memory: PathBuf,
    },
    /// The database is of another version of the library.
    #[error(
        "{} has format version {found}, and this library reads {known}: read it with the library \
         that its owner has",
        path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The version that is known.
        known: String,
    },
    /// What lies in the folder or in memory contradicts itself.
    #[error("the database {} can't be read: {cause}", path.display())]
    Damaged {
        /// The database's folder.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The system gives this process no memory for a value.
    #[error(
        "{}: no memory for a value of {bytes} bytes: free some, or raise this process's limit",
        path.display()
    )]
    NoMemory {
        /// The database's folder.
        path: PathBuf,
        /// Bytes of the value.
        bytes: usize,
    },
    /// The owner has changed too much in each of many tries; or it was killed in a write.
    #[error(
        "the owner of {} was quicker than each of many tries: read again; if it stays so, its owner \
         is gone, or memory is damaged: open it anew",
        path.display()
    )]
    Busy {
        /// The database's folder.
        path: PathBuf,
    },
    /// This process was forked from the one that opened the reader.
    #[error(
        "the reader of {} is of the process from which this one was forked: only that one may use \
         it; open another one here",
        path.display()
    )]
    Forked {
        /// The database's folder.
        path: PathBuf,
    },
}

impl ReaderError {
    /// Whether it passes when the owner goes on, or another one opens the database: then read
    /// again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            ReaderError::NotOpen { .. } | ReaderError::Opening { .. } | ReaderError::Busy { .. }
        )
    }

    /// Of a call to the system.
    pub(crate) fn io(path: &Path, doing: &'static str, error: &io::Error) -> ReaderError {
        ReaderError::Folder { path: path.to_owned(), doing, cause: error.to_string() }
    }

    /// What the log's folder says.
    pub(crate) fn of_log(path: &Path, error: &LogError) -> ReaderError {
        match error {
            LogError::Io { doing, source, .. } => ReaderError::io(path, doing, source),
            LogError::NewerVersion { found, known, .. } => ReaderError::OtherVersion {
                path: path.to_owned(),
                found: found.to_string(),
                known: known.to_string(),
            },
            error => ReaderError::Damaged { path: path.to_owned(), cause: error.to_string() },
        }
    }

    /// What an arena says of the database in `path`.
    pub(crate) fn of_arena(path: &Path, memory: &Path, error: ArenaError) -> ReaderError {
        let path = path.to_owned();
        match error {
            ArenaError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ReaderError::NotOpen { path, memory: memory.to_owned() }
            }
            ArenaError::Over { .. } | ArenaError::Cut { .. } => {
                ReaderError::NotOpen { path, memory: memory.to_owned() }
            }
            ArenaError::Io { path, doing, source } => ReaderError::io(&path, doing, &source),
            ArenaError::Adopting { .. } => ReaderError::Opening { path },
            ArenaError::NoRoom { bytes, .. } => ReaderError::NoMemory { path, bytes },
            ArenaError::Busy { .. } | ArenaError::TooNew { .. } => ReaderError::Busy { path },
            ArenaError::OtherVersion { path, found, known } => ReaderError::OtherVersion {
                path,
                found: found.to_string(),
                known: known.to_string(),
            },
            error => ReaderError::Damaged { path, cause: error.to_string() },
        }
    }
}
