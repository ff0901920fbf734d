//! Readers: inside of the server under a pin, and in other processes by copying.

pub(crate) mod cursor;
pub(crate) mod foreign;
pub(crate) mod index_copy;
pub(crate) mod reader;
mod visit;
