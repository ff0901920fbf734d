//! Commands, from their [`crate::Op`] to their reply.

pub(crate) mod dispatch;
pub(crate) mod expiry;
pub(crate) mod keys;
mod memory;
mod object;
mod scan;
