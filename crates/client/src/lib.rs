//! Talks to a Nigh server, or to any other server that speaks RESP, from another process.
//!
//! ```text
//! Client::connect("unix:/path") -> get, set, …      memory and a ring if it can, else RESP
//! Address ("host:port", "redis://…", "unix:/path") + ConnectionOptions -> Connection -> Frame   RESP alone
//! split_words(b"SET 'my key' 1") -> arguments of a call
//! ```
//!
//! 1. Calls block, and timeouts bound them. The crate starts no thread; with the feature `async` an
//!    `AsyncClient`, which tasks share, has one.
//! 2. An error reply is a reply of a [`Connection`] ([`Frame::Error`]). A [`ClientError`] means
//!    that there is no reply. A [`Client`] has one error for both, [`CallError`].
//!
//! A client, or a connection, belongs to one thread at a time.
//!
//! Rooms, lowest first: address call_error client_error read_commands waits probe ring_stream
//! stream raw attach remote connection_pipeline client_options local_side link client client_view
//! client_view_steps client_in_place client_reads client_writes client_memory async_client
//!
//! | room | what it holds |
//! |---|---|
//! | address | what a user writes, and the socket that it means |
//! | call_error, client_error | why there is no answer, and why no reply |
//! | read_commands | which commands change nothing |
//! | waits | for how long a call waits on a socket |
//! | probe | whether a server that was silent goes on |
//! | ring_stream, stream, raw | bytes in both directions: rings, sockets |
//! | attach, remote, connection_pipeline | asking for local access; requests and replies; many at once |
//! | client_options | how a client connects, reads and waits |
//! | local_side | reading a server's memory |
//! | link, client | one attachment; a client, which has one after the other |
//! | client_view, client_view_steps, client_in_place, client_reads, client_writes | what a client does |
//! | client_memory | reads for a thread that must not wait |
//! | async_client | a client that tasks share |
#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "async")]
mod async_client;
mod attach;
mod call_error;
mod client;
mod client_error;
mod client_in_place;
mod client_memory;
mod client_options;
mod client_reads;
mod client_view;
mod client_view_steps;
mod client_writes;
mod connection_pipeline;
mod link;
mod local_side;
mod probe;
mod raw;
mod read_commands;
mod remote;
mod ring_stream;
mod stream;
mod waits;

pub use address::{Address, AddressError, DEFAULT_PORT, Endpoint};
#[cfg(feature = "async")]
pub use async_client::AsyncClient;
pub use call_error::{CallError, check_words, says_too_long};
pub use client::Client;
pub use client_error::ClientError;
pub use client_in_place::ValueInPlace;
pub use client_memory::ClientMemory;
pub use client_options::{ClientOptions, LocalUse, SPIN_MOST};
pub use client_view::{ClientView, ViewSteps};
pub use local_side::KeyLife;
pub use nigh_resp::Protocol;
pub use nigh_resp::decode::{WordsError, split_words};
pub use nigh_resp::frame::Frame;
pub use nigh_shm::{ForeignValues, ForkMark, TooNew};
pub use raw::RawStream;
pub use read_commands::reads_only;
pub use remote::{Connection, ConnectionOptions};
