//! RESP, the Redis serialization protocol, versions 2 and 3: from bytes to commands and frames, and
//! back. The crate does no I/O: callers own the buffers and the sockets.
//!
//! ```text
//! server:  socket -> buffer -> decode::Requests -> decode::Batch (ranges into the buffer)
//!          encode::* -> Vec<u8> -> socket
//! client:  encode::request -> socket -> buffer -> decode::Replies -> frame::Frame
//! ```
//!
//! 1. No input makes a decoder panic, however hostile. A decoder allocates at most a constant
//!    factor of the bytes that have arrived.
//! 2. A decoder keeps its position between calls, and searches no byte twice.
//! 3. The result of a decoder doesn't depend on how the bytes were cut into pieces.
//! 4. Every bound stands in [`limits::Limits`], with Redis's values as defaults.
//!
//! Any thread may call anything here: nothing is shared.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

pub mod decode;
pub mod encode;
pub mod frame;
pub mod limits;

/// The protocol version of a connection. `HELLO` chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Protocol {
    /// RESP2, with which every connection starts.
    #[default]
    Resp2,
    /// RESP3: has maps, sets, doubles, booleans, a null of its own, and pushes.
    Resp3,
}
