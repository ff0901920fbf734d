//! What can be wrong with a server's reply, for clients to report.

#[cfg(doc)]
use crate::limits::Limits;

/// What is wrong with a reply, and where. The connection can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply is broken at byte {offset} of its stream: {fault}")]
pub struct ReplyError {
    /// Offset of the frame at fault from the beginning of the connection's input, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub fault: ReplyFault,
}

/// What can be wrong with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyFault {
    /// No type begins with this byte.
    #[error("expected the type of a frame, found byte {found:#04x}: is this a RESP server?")]
    UnknownType {
        /// The byte found.
        found: u8,
    },
    /// A length is no number, or negative where it can't be.
    #[error("expected a length after '{}'", char::from(*kind))]
    InvalidLength {
        /// The frame's type.
        kind: u8,
    },
    /// The text isn't a value of this type.
    #[error("the value isn't one that '{}' can have", char::from(*kind))]
    InvalidValue {
        /// The frame's type.
        kind: u8,
    },
    /// A line or bulk isn't followed by CRLF.
    #[error("expected CRLF at the end of '{}'", char::from(*kind))]
    MissingEnd {
        /// The frame's type.
        kind: u8,
    },
    /// A line is longer than [`Limits::inline_bytes`].
    #[error("a line is longer than {limit} bytes")]
    LineTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A bulk is longer than [`Limits::bulk_bytes`].
    #[error("a string of {len} bytes is over the limit of {limit}")]
    BulkTooLong {
        /// The length claimed, in bytes.
        len: u64,
        /// The limit, in bytes.
        limit: usize,
    },
    /// An aggregate has more elements than [`Limits::array_len`].
    #[error("an aggregate of {len} elements is over the limit of {limit}")]
    ArrayTooLong {
        /// The number of elements claimed.
        len: u64,
        /// The limit, in elements.
        limit: usize,
    },
    /// Aggregates are nested deeper than [`Limits::nesting`].
    #[error("aggregates are nested deeper than {limit}")]
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// The reply has more frames than [`Limits::frames`].
    #[error("the reply has more than {limit} frames")]
    TooManyFrames {
        /// The limit, in frames.
        limit: usize,
    },
    /// The reply has more bytes than [`Limits::reply_bytes`].
    #[error("the reply has more than {limit} bytes: ask for less at once")]
    TooLong {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The system gives no memory for a string, or for the elements of an aggregate.
    #[error("no memory for {bytes} bytes of a reply: free some, or raise this process's limit")]
    NoMemory {
        /// Bytes of the string or the elements.
        bytes: usize,
    },
    /// A streamed string or aggregate (length `?`), which no Redis server sends.
    #[error("streamed strings and aggregates ('{}?') aren't supported", char::from(*kind))]
    Streamed {
        /// The frame's type.
        kind: u8,
    },
}
