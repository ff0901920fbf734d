//! Why a server doesn't start, or ends by a fault of its own.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a server didn't start, in one sentence. The text is complete: no error is a `source` of it.
/// Else a program that prints the chain would say the cause twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address can't be listened on.
    #[error("cannot listen on {address}: {cause}; choose another with --{setting}")]
    Listen {
        /// Address and port, or path.
        address: String,
        /// What the system said.
        cause: io::Error,
        /// The setting that names what was refused.
        setting: &'static str,
    },
    /// The folder of the arenas can't be used.
    #[error("cannot use {path} for the arenas: {cause}; choose another with --shm-dir")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Another server has the folder.
    #[error("another server uses {path}; stop it or choose another folder with --shm-dir")]
    FolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has files that aren't a server's.
    #[error(
        "{path} has other files, and the folder of the arenas is closed to all other users: name one \
         that is empty, or isn't there yet, with --shm-dir"
    )]
    OtherFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is the tmpfs itself.
    #[error(
        "{path} is for all programs, and the folder of the arenas is closed to all other users: \
         name a folder in it with --shm-dir"
    )]
    WholeTmpfs {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has the name of what a conversion leaves, which the next start removes.
    #[error(
        "{path} ends with .convert, as only the folder of a nigh convert does, and a server on the \
         folder without that ending removes it: name another one with --shm-dir"
    )]
    ConversionName {
        /// The folder.
        path: PathBuf,
    },
    /// The tmpfs can't hold arenas and journals.
    #[error(
        "the arenas ({}) and journals ({}) don't fit into the file system of {path}, which has {} \
         for them: lower --maxmemory, --journal-size or --shards, or enlarge it (Docker: \
         --shm-size; else mount -o remount,size=)", shown(*arenas), shown(*journals), shown(*free)
    )]
    TooLittleMemory {
        /// The folder.
        path: PathBuf,
        /// Bytes that the arenas are to have.
        arenas: u64,
        /// Bytes of the journals.
        journals: u64,
        /// Bytes that there are for all.
        free: u64,
    },
    /// The store can't be opened.
    #[error("{0}")]
    Store(String),
    /// The function runtime can't be started.
    #[error("{0}")]
    Functions(String),
    /// A setting can't be used as it is.
    #[error("{0}")]
    Setting(String),
    /// A thread or an event queue can't be had.
    #[error("cannot start: {0}")]
    System(io::Error),
    /// The shard's thread is gone.
    #[error("the server ended by a fault of its own; the log says which; {arenas}")]
    Broken {
        /// What is left of the arenas.
        arenas: String,
    },
}

/// Bytes for people: whole MiB, rounded up.
pub(crate) fn shown(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

impl ServeError {
    /// A folder of the arenas that can't be used.
    pub(crate) fn folder(path: &Path, cause: io::Error) -> Self {
        Self::Folder { path: path.to_owned(), cause }
    }

    /// An address that can't be listened on: of the settings for address and port, the one that the
    /// system's answer speaks about.
    pub(crate) fn listen(
        address: SocketAddr,
        cause: io::Error,
        [host, port]: [&'static str; 2],
    ) -> Self {
        let setting = match cause.kind() {
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported => host,
            _ => port,
        };
        Self::Listen { address: address.to_string(), cause, setting }
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
