//! What can go wrong at the server that is filled.

use std::io;

/// Why no more can be written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The server refuses writes.
    #[error("{address} refused to write {key}: {reply}")]
    Refused {
        /// The server.
        address: String,
        /// Its reply.
        reply: String,
        /// The key.
        key: String,
    },
    /// The server ended the connection.
    #[error("{address} closed the connection: its log says why")]
    Closed {
        /// The server.
        address: String,
    },
    /// The server took or sent nothing for as long as the timeout.
    #[error("{address} didn't answer in time: pass a longer --timeout")]
    TimedOut {
        /// The server.
        address: String,
    },
    /// The socket failed, or the server sent no RESP.
    #[error("the connection to {address} failed: {cause}")]
    Failed {
        /// The server.
        address: String,
        /// The cause.
        cause: String,
    },
}

impl TargetError {
    pub(super) fn of(address: &str, cause: &io::Error) -> Self {
        let address = address.to_owned();
        match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut { address },
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => Self::Closed { address },
            _ => Self::Failed { address, cause: cause.to_string() },
        }
    }
}
