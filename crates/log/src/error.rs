//! What can go wrong with a log, and what to do about it. Any thread.

use crate::position::LogPosition;

/// Why a log could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused.
    #[error("log file {file}, offset {position}: {doing} failed: {source}")]
    Io {
        /// The file's name in the log's folder; `.` is the folder.
        file: String,
        /// Offset in the file, bytes.
        position: u64,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another process has the folder.
    #[error("the log's folder is in use by process {pid}: stop that, or name another folder")]
    InUse {
        /// What the holder wrote into the lock: its process id.
        pid: String,
    },
    /// A file is of a version that this program doesn't know.
    #[error("{file} has version {found}, and this program knows up to {known}: use a newer one")]
    NewerVersion {
        /// The file's name.
        file: String,
        /// Its version.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// There are log files, and nothing says what they are.
    #[error(
        "the log's folder has {file} but no meta: put meta back from a copy of the folder, or \
         restore a backup"
    )]
    MetaMissing {
        /// One of the files.
        file: String,
    },
    /// A backup is to be served.
    #[error("the log's folder is a backup, which is served as no log: make one by `nigh restore`")]
    IsBackup,
    /// The file `meta` isn't as a server would write it.
    #[error("meta, line {line}: {what}: restore it from a copy of the folder")]
    Meta {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A file's head is wrong.
    #[error("log file {file}: its head is damaged: {what}")]
    Head {
        /// The file's name.
        file: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A frame with right checksums breaks the format: a mistake of ours, or a forged file.
    #[error("log file {file}, offset {position}: {what}, though its checksum is right")]
    Body {
        /// The file's name.
        file: String,
        /// Where the frame begins.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// The LSNs of a stream don't follow each other.
    #[error(
        "log file {file}, offset {position}: stream {stream} goes on with LSN {found}, expected \
         {expected}"
    )]
    Gap {
        /// The file's name.
        file: String,
        /// Where the frame begins.
        position: u64,
        /// The stream.
        stream: u32,
        /// Its next LSN.
        expected: u64,
        /// What the frame has.
        found: u64,
    },
    /// What was on disk isn't there any more.
    #[error(
        "log file {file} is damaged at offset {position}: all before {watermark} was on disk, and \
         {} can be read", lasts(.last)
    )]
    Corrupt {
        /// The file's name.
        file: String,
        /// The first bad frame.
        position: u64,
        /// What was on disk once.
        watermark: LogPosition,
        /// The last LSN before the bad frame, for each stream.
        last: Vec<(u32, u64)>,
    },
    /// A file that counts is missing.
    #[error("log file {file} is missing")]
    Missing {
        /// The file's name.
        file: String,
    },
    /// A write or sync failed before: nothing is tried again in this chain.
    #[error("the log broke: {cause}; only a new base heals it")]
    Broken {
        /// The first failure.
        cause: String,
    },
    /// There is no room to prepare the next file.
    #[error("no room for the next log file: {source}")]
    Full {
        /// The system's answer.
        source: std::io::Error,
    },
    /// The receiver of a replayed commit refused it.
    #[error("log file {file}, offset {position}: {what}")]
    Refused {
        /// The file's name.
        file: String,
        /// Where the frame begins.
        position: u64,
        /// Why.
        what: String,
    },
}

fn lasts(last: &[(u32, u64)]) -> String {
    if last.is_empty() {
        return "nothing".into();
    }
    let each = |&(stream, lsn): &(u32, u64)| {
        format!("partition {} of tenant {} up to LSN {lsn}", stream & 0xFF, stream >> 8)
    };
    last.iter().map(each).collect::<Vec<_>>().join(", ")
}

impl LogError {
    /// Whether bytes of log files are wrong or missing: a salvage saves what is whole.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            LogError::Head { .. }
                | LogError::Body { .. }
                | LogError::Gap { .. }
                | LogError::Corrupt { .. }
                | LogError::Missing { .. }
                | LogError::Refused { .. }
        )
    }

    /// Whether memory was short: the same can work later.
    #[must_use]
    pub fn is_lack_of_memory(&self) -> bool {
        use std::io::ErrorKind::OutOfMemory;
        matches!(self, LogError::Io { source, .. } if source.kind() == OutOfMemory)
    }

    /// Whether the disk has no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            LogError::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            error => matches!(error, LogError::Full { .. }),
        }
    }

    /// The error of a call to the system.
    pub(crate) fn io(
        file: &str,
        position: u64,
        doing: &'static str,
        source: std::io::Error,
    ) -> LogError {
        LogError::Io { file: file.into(), position, doing, source }
    }
}
