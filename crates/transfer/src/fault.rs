//! Why an import or an export ended early.

use nigh_client::ClientError;

use crate::aof::ManifestError;
use crate::source::SourceError;
use crate::target::TargetError;

/// Why an import ended early. What was written before is there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The caller wanted it to end.
    #[error("interrupted")]
    Interrupted,
    /// The source can't be opened.
    #[error("can't read {name}: {cause}{}", server_hint(name))]
    Open {
        /// The source.
        name: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The folder of an AOF isn't as a server makes it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The running server gives no snapshot.
    #[error("{name}: {cause}")]
    Server {
        /// The server.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The source is damaged, or can't be read on.
    #[error("{name}: {cause}")]
    Source {
        /// The source.
        name: String,
        /// The fault, with its offset.
        cause: SourceError,
    },
    /// The AOF ends within a command, or within a transaction.
    #[error(
        "{name} ends within a command or a transaction: {cut_bytes} bytes from offset {end} on; \
         pass --allow-truncated to import what is before, as Redis does. Nothing was changed"
    )]
    Truncated {
        /// The file.
        name: String,
        /// Where the last whole command ends.
        end: u64,
        /// Bytes behind it.
        cut_bytes: u64,
    },
    /// Only an AOF can be imported up to where it is whole.
    #[error("{name} is an RDB file, of which no part can be imported: leave --allow-truncated out")]
    NotTruncated {
        /// The file.
        name: String,
    },
    /// The AOF must begin with nothing.
    #[error(
        "{address} has {keys} keys, and {name} has commands that depend on what was there before: \
         pass --replace to remove those keys first"
    )]
    NotEmpty {
        /// The server that is filled.
        address: String,
        /// Its keys.
        keys: i64,
        /// The source.
        name: String,
    },
    /// The server that is filled.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No server is where the running source should be.
    #[error("nothing listens at {address}: start the server to import from, or name another")]
    NoSource {
        /// The source.
        address: String,
    },
    /// The running source asks for a password.
    #[error(
        "{address} asks for a password: give one by --source-password or NIGH_SOURCE_PASSWORD, and \
         in the source's address a user if it isn't the default one"
    )]
    SourcePasswordNeeded {
        /// The source.
        address: String,
    },
    /// The server that is filled, before and behind the import itself; or a running source, before
    /// its snapshot.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An answer that isn't what was asked for.
    #[error("{address} answered {command} by {reply}")]
    Answer {
        /// The server that is filled.
        address: String,
        /// The command.
        command: &'static str,
        /// Its reply.
        reply: String,
    },
}

/// How a server is named, for a file's name that looks like one's address.
fn server_hint(name: &str) -> String {
    let port = name.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => format!("; a running server is named redis://{name}"),
        _ => String::new(),
    }
}
