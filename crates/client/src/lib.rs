//! Talks to a Nigh server from another process; to any server that speaks RESP, in fact.
//!
//! ```text
//! Address ("host:port", "redis://…", "unix:/path") + Options -> Connection -> Frame
//! split_words("SET 'my key' 1") -> arguments of a call
//! ```
//!
//! 1. Blocking, and bounded by timeouts; no thread of its own.
//! 2. An error reply is a reply ([`Frame::Error`]), not a [`ClientError`]: those mean that no reply
//!    can be had.
//!
//! A connection belongs to one thread at a time.
#![forbid(unsafe_code)]

mod address;
mod remote;
mod stream;
mod words;

pub use address::{Address, AddressError, DEFAULT_PORT, Endpoint};
pub use nigh_resp::Protocol;
pub use nigh_resp::frame::Frame;
pub use remote::{ClientError, Connection, Options};
pub use words::{WordsError, split_words};
