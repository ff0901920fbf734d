//! Bytes to commands (for servers) and to replies (for clients), as they arrive.
//!
//! ```text
//!            consumed      unconsumed input, `buf`
//! stream  ─────────────┬────────────────┬─────────────────────
//!                      │ complete       │ begun
//!                      0                start     pos (next byte to look at)
//! ```
//!
//! 1. `buf` always begins at the same place of the stream, until `consume` says how many leading
//!    bytes are done with; the caller drops exactly those.
//! 2. Positions survive between calls. A body whose length is known is never looked at.

mod batch;
mod fault;
mod inline;
mod number;
mod replies;
mod requests;

pub use batch::{Args, Batch, BatchFull};
pub use fault::{ReplyError, ReplyFault};
pub use inline::{WordsError, split_words};
pub use replies::Replies;
pub use requests::{ProtocolError, Requests};
