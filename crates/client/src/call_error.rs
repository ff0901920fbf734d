//! Why a call of a client has no answer.
//!
//! 1. A message says what happened, at which server, and what to do.
//! 2. A write of which nobody knows whether it happened is told apart from one that did not happen.
//!
//! Any thread: plain data.

use std::time::Duration;

use nigh_resp::frame::Frame;
use nigh_resp::limits::ARRAY_LEN as WORDS_MAX;
use nigh_shm::debug_is_display;
use nigh_shm::layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::address::Address;

debug_is_display!(CallError);

/// Why a call of a [`crate::Client`] has no answer.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no server now. Nothing was sent: the call may be repeated.
    #[error(
        "not attached to {address}: {cause}; nothing was sent: call again, or have calls wait \
         (ClientOptions::wait)"
    )]
    NotAttached {
        /// The server.
        address: String,
        /// Why the last try failed.
        cause: String,
    },
    /// The attachment is over of a client that attaches once, or the one that
    /// [`crate::Client::on_link`] names. Nothing was sent.
    #[error(
        "no longer attached to {address}: {cause}; nothing was sent: what this attachment was told, \
         by WATCH for example, is over; attach again (a client with ClientOptions::attach_once: \
         connect a new one)"
    )]
    Over {
        /// The server.
        address: String,
        /// Why it is over.
        cause: String,
    },
    /// The server can't be used so: a wrong password, for example.
    #[error("{cause}")]
    CantConnect {
        /// What it says.
        cause: String,
    },
    /// The same, as the system doesn't let this process's user connect to the socket. It may pass:
    /// a server makes its socket before it lets others in. So it is told when the wait for a
    /// server ([`crate::ClientOptions::wait`]) is over.
    #[error("{cause}")]
    NotPermitted {
        /// Whom the system keeps out, and of what.
        cause: String,
    },
    /// The request was sent, and the reply is lost.
    #[error(
        "{address} gave no reply to {command}: {cause}; it may or may not have happened: read what \
         is there before you repeat it"
    )]
    Unknown {
        /// The server.
        address: String,
        /// The first word of the request.
        command: String,
        /// Why there is no reply.
        cause: String,
    },
    /// A read has no answer: nothing was changed, it may be repeated.
    #[error("{address} gave no reply to {command}: {cause}; read again")]
    Unanswered {
        /// The server.
        address: String,
        /// The first word of the request.
        command: String,
        /// Why there is no reply.
        cause: String,
    },
    /// The server said no.
    #[error("{address} refused {command}: {reply}")]
    Refused {
        /// The server.
        address: String,
        /// The first word of the request.
        command: String,
        /// Its error reply.
        reply: String,
    },
    /// The reply is none that the command has.
    #[error("{address} answered {command} by something else: is it another kind of server?")]
    Unexpected {
        /// The server.
        address: String,
        /// The first word of the request.
        command: String,
    },
    /// The key is longer than a key can be.
    #[error("a key of {bytes} bytes: {KEY_BYTES_MAX} are the most; shorten it")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A word of a request is longer than a value can be. Nothing was sent. Of a pipeline: as for
    /// [`CallError::NoMemory`].
    #[error("a value of {bytes} bytes: {VALUE_BYTES_MAX} are the most; divide it")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A request has more words than a server takes. Nothing was sent. Of a pipeline: as for
    /// [`CallError::NoMemory`].
    #[error("a request of {words} words: {WORDS_MAX} are the most; divide it")]
    TooManyWords {
        /// How many, or of a pipeline's request one more than it may have.
        words: usize,
    },
    /// The system gives this process no memory for a request, a value or a reply. Of a pipeline:
    /// the replies to the requests before this one have come, and those behind it weren't sent. A
    /// transaction that was begun is over.
    #[error(
        "no memory for {bytes} bytes of {command}, which changed nothing: free some, or raise this \
         process's limit (ulimit -v, its control group)"
    )]
    NoMemory {
        /// The first word of the request.
        command: String,
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// There is no local access, and the call or the options take it.
    #[error("no local access to {address}: {cause}")]
    NotLocal {
        /// The server.
        address: String,
        /// Why not, and what to do.
        cause: String,
    },
    /// A view found no moment at which it could read all of its keys.
    #[error(
        "too much changed at {address} in each of {attempts} attempts of a view: read fewer keys in \
         it, or faster"
    )]
    TooNew {
        /// The server.
        address: String,
        /// Attempts made.
        attempts: u32,
    },
    /// The call would have waited where it may not: it was made by
    /// [`crate::Client::without_waiting`], or by a task in the thread that its client has. Nothing
    /// was sent.
    #[error("the call would wait for the server: make it where it may wait")]
    WouldWait,
    /// This process is a child of the one that connected.
    #[error(
        "{address}: this process is a fork of the one that connected, whose client it can't use: \
         connect anew"
    )]
    Forked {
        /// The server.
        address: String,
    },
    /// What a view has read didn't get to the disk in time.
    #[error(
        "what a view read at {address} isn't on disk after {after:?}: is its log well (INFO \
         persistence)? ClientOptions::reads_unsynced shows it earlier"
    )]
    NotSynced {
        /// The server.
        address: String,
        /// How long it waited.
        after: Duration,
    },
}

impl CallError {
    /// The reply, if it is no error reply, nor says that the request waits for an EXEC.
    pub(crate) fn if_refused(
        address: &Address,
        command: &[u8],
        reply: Frame,
    ) -> Result<Frame, CallError> {
        let text = if is_queued(&reply) { Some(QUEUED) } else { reply.error() };
        let Some(text) = text else { return Ok(reply) };
        Err(CallError::Refused {
            address: address.to_string(),
            command: printable(command),
            reply: String::from_utf8_lossy(text).into_owned(),
        })
    }

    pub(crate) fn unexpected(address: &Address, command: &[u8]) -> CallError {
        CallError::Unexpected { address: address.to_string(), command: printable(command) }
    }

    pub(crate) fn no_memory(command: &[u8], bytes: usize) -> CallError {
        CallError::NoMemory { command: printable(command), bytes }
    }

    /// Whether nothing was changed, and the same call may succeed later.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        matches!(
            self,
            CallError::NotAttached { .. }
                | CallError::Unanswered { .. }
                | CallError::TooNew { .. }
                | CallError::NotSynced { .. }
                | CallError::WouldWait
        )
    }
}

/// What a request is told that has come into an open transaction.
const QUEUED: &[u8] = b"QUEUED, as a MULTI is open: its EXEC will do it, if there is one. Send \
                        what belongs together as one pipeline";

/// Whether a reply says that the request waits for an EXEC.
pub(crate) fn is_queued(reply: &Frame) -> bool {
    matches!(reply, Frame::Simple(text) if **text == *b"QUEUED")
}

/// Whether an error reply says that a key or a value is longer than one can be. A caller has the
/// same error for it as for [`CallError::KeyTooLong`].
#[must_use]
pub fn says_too_long(reply: &[u8]) -> bool {
    let texts = ["ERR key is longer than ", "ERR string exceeds maximum allowed size"];
    texts.iter().any(|text| reply.starts_with(text.as_bytes()))
}

/// Whether all words can be sent. A server ends the connection at one that is too long, or if they
/// are too many.
///
/// # Errors
/// [`CallError::ValueTooLong`], [`CallError::TooManyWords`].
pub fn check_words(request: &[&[u8]]) -> Result<(), CallError> {
    if request.len() > WORDS_MAX {
        return Err(CallError::TooManyWords { words: request.len() });
    }
    match request.iter().map(|word| word.len()).find(|bytes| *bytes > VALUE_BYTES_MAX) {
        Some(bytes) => Err(CallError::ValueTooLong { bytes }),
        None => Ok(()),
    }
}

/// The name of a command, for an error.
pub(crate) fn printable(word: &[u8]) -> String {
    /// Longer than any name.
    const MOST: usize = 40;
    String::from_utf8_lossy(&word[..word.len().min(MOST)]).into_owned()
}
