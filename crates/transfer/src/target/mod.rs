//! The Nigh that is filled: commands are sent in batches, and a thread of its own reads the
//! replies.

mod fault;
mod replies;
mod writer;

pub use fault::TargetError;
pub(crate) use writer::Target;
