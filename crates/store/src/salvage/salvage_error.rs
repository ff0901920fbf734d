//! Why nothing was saved. Any thread.

use nigh_log::LogError;

/// Why no copy was made of what can be saved of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The damaged log can't be read.
    #[error("the log can't be read: {0}")]
    Source(LogError),
    /// There are log files, but no meta that can be read.
    #[error(
        "{0}; without it nothing can be saved: the sums that tell frames from other bytes are keyed \
         with a secret that stands in it"
    )]
    NoMeta(LogError),
    /// There is no log, or one that has nothing.
    #[error("there is no log, or one without chains: it is new, or retired")]
    Nothing,
    /// The copy's folder has something.
    #[error("the folder for the copy isn't empty: it has {name}; name a new one")]
    NotEmpty {
        /// A name in it.
        name: String,
    },
    /// The copy can't be written.
    #[error("the copy can't be written: {0}")]
    Target(LogError),
    /// The copy was read back, and isn't what was written.
    #[error("the copy isn't whole: {what}")]
    NotWhole {
        /// What is wrong with it.
        what: String,
    },
}
