//! How long the parts of requests and replies may be.
//!
//! The defaults are those of Redis 7.0 (`PROTO_INLINE_MAX_SIZE`, `proto-max-bulk-len`, the limits
//! before AUTH), except for the number of arguments, which Redis bounded by 1024 * 1024 up to 6.2
//! and by `INT_MAX` since: a bound that protects nothing is none.

/// Longest bulk string: 512 MiB, the longest value; `proto-max-bulk-len` in Redis.
pub const BULK_BYTES: usize = 512 << 20;
/// Most arguments of one request: what Redis allowed until 6.2.
pub const ARRAY_LEN: usize = 1024 * 1024;
/// Longest line of a request (an inline command, or a count): 64 KiB, as in Redis.
pub const INLINE_BYTES: usize = 64 << 10;
/// Most arguments before AUTH, as in Redis.
pub const UNAUTHENTICATED_ARRAY_LEN: usize = 10;
/// Longest argument before AUTH: 16 KiB, as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES: usize = 16 << 10;
/// Deepest nesting of a reply: more than any command answers, and shallow enough for recursion.
pub const NESTING: usize = 32;
/// Longest line of a reply: 1 MiB, since errors quote what clients sent.
pub const REPLY_LINE_BYTES: usize = 1 << 20;
/// Most elements of one aggregate of a reply: the keys of a large server, and a length in 32 bits.
pub const REPLY_ARRAY_LEN: usize = 1 << 31;
/// Most frames of one reply, all levels together: 2^27 frames take about 4 GiB.
pub const REPLY_FRAMES: usize = 1 << 27;
/// No bulk is longer than 1 GiB, whatever is configured: offsets into a buffer have 31 bits.
pub const MAX_BULK_BYTES: usize = 1 << 30;

/// Bounds of one connection's input. A length equal to a bound is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string, in bytes; [`MAX_BULK_BYTES`] at most.
    pub bulk_bytes: usize,
    /// Most elements of one array (of one request: arguments).
    pub array_len: usize,
    /// Longest line without its end, in bytes: inline commands, counts; simple strings in replies.
    pub inline_bytes: usize,
    /// Most arguments of a request while the connection isn't authenticated.
    pub unauthenticated_array_len: usize,
    /// Longest argument, in bytes, while the connection isn't authenticated.
    pub unauthenticated_bulk_bytes: usize,
    /// Most aggregates open at once in a reply. (A request is one array of bulks.)
    pub nesting: usize,
    /// Most frames in one reply, all levels together.
    pub frames: usize,
}

impl Limits {
    /// Bounds of what a server accepts from clients.
    pub const fn requests() -> Self {
        Self {
            bulk_bytes: BULK_BYTES,
            array_len: ARRAY_LEN,
            inline_bytes: INLINE_BYTES,
            unauthenticated_array_len: UNAUTHENTICATED_ARRAY_LEN,
            unauthenticated_bulk_bytes: UNAUTHENTICATED_BULK_BYTES,
            nesting: NESTING,
            frames: REPLY_FRAMES,
        }
    }

    /// Bounds of what a client accepts from a server: longer lines and arrays.
    pub const fn replies() -> Self {
        Self { array_len: REPLY_ARRAY_LEN, inline_bytes: REPLY_LINE_BYTES, ..Self::requests() }
    }
}

impl Default for Limits {
    /// [`Limits::requests`].
    fn default() -> Self {
        Self::requests()
    }
}
