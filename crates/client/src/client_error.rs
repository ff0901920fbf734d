//! Why a connection has no reply.
//!
//! 1. A message says what happened, to which server, and what to do.
//!
//! Any thread: plain data.

use std::io;
use std::time::Duration;

use nigh_resp::decode::{ReplyError, ReplyFault};
use nigh_shm::debug_is_display;
use nigh_shm::layout::VALUE_BYTES_MAX;

debug_is_display!(ClientError);

/// The reason why there is no reply, in one sentence. The text is complete and has no `source`: a
/// program that prints the chain would print the cause twice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection was refused, or there is no such socket.
    #[error(
        "nothing listens at {address}: start a server with `nigh serve{}`, or name another address",
        if address.starts_with("unix:") { " --unixsocket PATH" } else { "" }
    )]
    NothingListens {
        /// The server.
        address: String,
    },
    /// The system doesn't let this process's user connect to the socket.
    #[error(
        "this process's user may not connect to {address}: the permissions of the socket, or of a \
         folder above it, don't let it (of Nigh's socket the setting `unixsocketperm` says them)"
    )]
    NotPermitted {
        /// The server.
        address: String,
    },
    /// The connection can't be made for another reason.
    #[error("can't connect to {address}: {cause}")]
    Unreachable {
        /// The server.
        address: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The server sent or took nothing for as long as the timeout, or sent pushes alone.
    #[error(
        "{address} didn't answer within {after:?}: is it overloaded, or is that no RESP server?"
    )]
    TimedOut {
        /// The server.
        address: String,
        /// The timeout.
        after: Duration,
    },
    /// The server closed the connection while a reply was expected.
    #[error("{address} closed the connection: its log says why")]
    Closed {
        /// The server.
        address: String,
    },
    /// Reading or writing failed.
    #[error("the connection to {address} failed: {cause}")]
    Failed {
        /// The server.
        address: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The server sent bytes that are no RESP.
    #[error("{address}: {cause}")]
    Broken {
        /// The server.
        address: String,
        /// The fault.
        cause: ReplyError,
    },
    /// Replies of an earlier call or pipeline were left behind when it broke off: the next call
    /// would take them for its own.
    #[error(
        "an earlier call to {address} was broken off, and the next one would take its reply: \
         connect anew"
    )]
    LeftBehind {
        /// The server.
        address: String,
    },
    /// [`crate::ConnectionOptions::while_waiting`] said so.
    #[error("the wait for {address} was broken off")]
    BrokenOff {
        /// The server.
        address: String,
    },
    /// The system gives no memory for a reply.
    #[error("no memory for a reply of {address}: free some, or raise this process's limit")]
    NoMemory {
        /// The server.
        address: String,
    },
    /// The system gives no memory for a request, of which nothing was sent. Replies to those before
    /// it in a pipeline have come.
    #[error(
        "no memory for {bytes} bytes of a request to {address}, which wasn't sent: free some, or \
         raise this process's limit"
    )]
    NoRoom {
        /// The server.
        address: String,
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// A word of a pipeline's request is longer than a value can be. Nothing of the request was
    /// sent. Replies to those before it have come.
    #[error(
        "a word of {bytes} bytes for {address}: {VALUE_BYTES_MAX} are the most; its request wasn't \
         sent"
    )]
    WordTooLong {
        /// The server.
        address: String,
        /// The word's length.
        bytes: usize,
    },
    /// A pipeline's request has more words than a server takes. Nothing of the request was sent.
    /// Replies to those before it have come.
    #[error("a request of {words} words or more for {address}, which wasn't sent: divide it")]
    TooManyWords {
        /// The server.
        address: String,
        /// The words up to the first that is too many.
        words: usize,
    },
    /// The server asks for a password.
    #[error("{address} asks for a password: give one, and a user if it isn't the default one")]
    PasswordNeeded {
        /// The server.
        address: String,
    },
    /// The password is wrong, or there is no such user.
    #[error("{address} refused the password: check it, and the user")]
    PasswordRefused {
        /// The server.
        address: String,
    },
    /// The server refused the connection or the greeting: too many clients, an unknown protocol
    /// version.
    #[error("{address} refused {command}: {reply}")]
    Refused {
        /// The server.
        address: String,
        /// The command refused, or that it is the connection.
        command: &'static str,
        /// The error reply.
        reply: String,
    },
}

impl ClientError {
    /// Whether nothing came, and maybe nothing would: the server is asked for a sign of life first.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, ClientError::TimedOut { .. } | ClientError::BrokenOff { .. })
    }

    /// Whether the reply is more than this process takes, and would be so again.
    pub(crate) fn is_too_much(&self) -> bool {
        use ReplyFault::{NoMemory, TooLong, TooManyFrames};
        match self {
            ClientError::NoMemory { .. } => true,
            ClientError::Broken { cause, .. } => {
                matches!(cause.fault, NoMemory { .. } | TooLong { .. } | TooManyFrames { .. })
            }
            _ => false,
        }
    }
}

/// Why there is no local access, nor a connection any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// There is no answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What came with it can't be used.
    #[error("{0}")]
    Unusable(String),
}
