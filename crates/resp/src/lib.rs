//! RESP, the Redis serialization protocol, versions 2 and 3: bytes to commands and frames, and
//! back. No I/O: callers own the buffers and the sockets.
//!
//! ```text
//! server:  socket -> buffer -> decode::Requests -> decode::Batch (ranges into the buffer)
//!          encode::* -> Vec<u8> -> socket
//! client:  encode::request -> socket -> buffer -> decode::Replies -> frame::Frame
//! ```
//!
//! 1. No input, however hostile, makes a decoder panic, and none makes it allocate more than a
//!    constant factor of the bytes that really arrived.
//! 2. A decoder keeps its position between calls: no byte is searched twice.
//! 3. What a decoder answers doesn't depend on how the bytes were cut into pieces.
//! 4. Every bound stands in [`limits::Limits`], with Redis's values as defaults.
//!
//! Any thread may call anything here; nothing is shared.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

pub mod decode;
pub mod encode;
pub mod frame;
pub mod limits;

/// The version of the protocol that a connection speaks; chosen by `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Protocol {
    /// RESP2: what every connection starts with.
    #[default]
    Resp2,
    /// RESP3: has maps, sets, doubles, booleans, a null of its own, and pushes.
    Resp3,
}
