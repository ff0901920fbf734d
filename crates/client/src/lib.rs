//! Talks to a Nigh server, or to any other server that speaks RESP, from another process.
//!
//! ```text
//! Address ("host:port", "redis://…", "unix:/path") + Options -> Connection -> Frame
//! split_words(b"SET 'my key' 1") -> arguments of a call
//! ```
//!
//! 1. Calls block, and timeouts bound them. The crate starts no thread.
//! 2. An error reply is a reply ([`Frame::Error`]). A [`ClientError`] means that there is no reply.
//!
//! A connection belongs to one thread at a time.
#![forbid(unsafe_code)]

mod address;
mod raw;
mod remote;
mod stream;

pub use address::{Address, AddressError, DEFAULT_PORT, Endpoint};
pub use nigh_resp::Protocol;
pub use nigh_resp::decode::{WordsError, split_words};
pub use nigh_resp::frame::Frame;
pub use raw::RawStream;
pub use remote::{ClientError, Connection, Options};
