//! Bounds on the parts of requests and replies.
//!
//! The defaults are those of Redis 7.0 (`PROTO_INLINE_MAX_SIZE`, `proto-max-bulk-len`, the limits
//! before AUTH). The number of arguments is an exception: it has the bound of Redis up to 6.2,
//! since the bound of later versions, `INT_MAX`, protects nothing.

/// Longest bulk string: 512 MiB, the longest value; `proto-max-bulk-len` in Redis.
pub const BULK_BYTES: usize = 512 << 20;
/// Most arguments of one request, as in Redis up to 6.2.
pub const ARRAY_LEN: usize = 1024 * 1024;
/// Longest line of a request (an inline command, or a count): 64 KiB, as in Redis.
pub const INLINE_BYTES: usize = 64 << 10;
/// Most arguments before AUTH, as in Redis.
pub const UNAUTHENTICATED_ARRAY_LEN: usize = 10;
/// Longest argument before AUTH: 16 KiB, as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES: usize = 16 << 10;
/// Deepest nesting of a reply: deeper than any command's, and shallow enough for recursion.
pub const NESTING: usize = 32;
/// Longest line of a reply: 1 MiB, since errors quote the words of clients.
pub const REPLY_LINE_BYTES: usize = 1 << 20;
/// Most elements of one aggregate of a reply: the keys of a large server, and a length in 32 bits.
pub const REPLY_ARRAY_LEN: usize = 1 << 31;
/// Most frames of one reply, all levels together: 2^27 frames take about 4 GiB.
pub const REPLY_FRAMES: usize = 1 << 27;
/// Most bytes of one reply: 8 GiB, that is 16 of the longest values, or so many frames of 64 bytes.
pub const REPLY_BYTES: u64 = (REPLY_FRAMES as u64) << 6;
/// Most that `bulk_bytes` may be: 1 GiB, since offsets into a buffer have 31 bits.
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
    /// Most bytes of one reply, all levels together; a line at its end doesn't count.
    pub reply_bytes: u64,
}

impl Limits {
    /// The bounds of a server for its clients.
    pub const fn requests() -> Self {
        Self {
            bulk_bytes: BULK_BYTES,
            array_len: ARRAY_LEN,
            inline_bytes: INLINE_BYTES,
            unauthenticated_array_len: UNAUTHENTICATED_ARRAY_LEN,
            unauthenticated_bulk_bytes: UNAUTHENTICATED_BULK_BYTES,
            nesting: NESTING,
            frames: REPLY_FRAMES,
            reply_bytes: REPLY_BYTES,
        }
    }

    /// The bounds of a client for its server: longer lines and arrays.
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
