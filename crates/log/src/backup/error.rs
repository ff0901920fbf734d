//! Why a backup or a restore wasn't made. Any thread.

use crate::error::LogError;

/// What helps if the disk is full.
const NEEDS_ROOM: &str = "free some, or name a folder on another disk";

/// Why a backup or a restore wasn't made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Files that count for it were prepared again.
    #[error(
        "files of the log went while they were copied: raise log-hold-size, or backup-rate, and \
         try again"
    )]
    Gone,
    /// The chains that were marked aren't the log's any more.
    #[error("the log got new chains meanwhile: try again")]
    Replaced,
    /// It was stopped.
    #[error("it was stopped before it was complete")]
    Stopped,
    /// What is to be copied can't be read.
    #[error("what is to be copied can't be read: {0}")]
    Source(LogError),
    /// The copy can't be written.
    #[error("the copy can't be written: {0}{advice}", advice = advice(.0))]
    Target(LogError),
    /// There is no room for the copy; nothing was written.
    #[error(
        "the disk has no room for it: {bytes} bytes are to be copied, and {room} are free there, of \
         which {spare} are to stay so: {NEEDS_ROOM}"
    )]
    NoRoom {
        /// Bytes that are to be copied.
        bytes: u64,
        /// Bytes that are free.
        room: u64,
        /// Bytes that are to stay free.
        spare: u64,
    },
    /// The copy was read back, and isn't what was copied.
    #[error("the copy isn't whole: {0}")]
    NotWhole(LogError),
    /// The place can't have it.
    #[error("{0}")]
    Place(String),
}

fn advice(error: &LogError) -> String {
    if error.is_full() { format!(": {NEEDS_ROOM}") } else { String::new() }
}

impl BackupError {
    /// A sentence about the place.
    pub(crate) fn place(what: impl Into<String>) -> BackupError {
        BackupError::Place(what.into())
    }
}
