//! Why a backup or a restore wasn't made. Any thread.

use crate::error::LogError;

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
    #[error("the copy can't be written: {0}")]
    Target(LogError),
    /// The copy was read back, and isn't what was copied.
    #[error("the copy isn't whole: {0}")]
    NotWhole(LogError),
    /// The place can't have it.
    #[error("{0}")]
    Place(String),
}

impl BackupError {
    /// A sentence about the place.
    pub(crate) fn place(what: impl Into<String>) -> BackupError {
        BackupError::Place(what.into())
    }
}
