//! Clients with their sockets, and peers: bytes that arrive, replies that leave.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod depends;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod local;
pub(crate) mod local_counts;
pub(crate) mod output;
pub(crate) mod party;
pub(crate) mod peer;
pub(crate) mod pipeline;
pub(crate) mod queued;
pub(crate) mod slab;
