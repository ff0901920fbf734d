//! Decodes bytes as they arrive: to commands for servers, and to replies for clients.
//!
//! ```text
//!            consumed      unconsumed input, `buf`
//! stream  ─────────────┬────────────────┬─────────────────────
//!                      │ complete       │ begun
//!                      0                start     pos (next byte to look at)
//! ```
//!
//! 1. `buf` begins at the same place of the stream until `consume` says how many leading bytes are
//!    decoded. The caller drops exactly those.
//! 2. Decoders keep their positions between calls. They never look into a body of known length.

mod command_batch;
mod inline;
mod number;
mod replies;
mod reply_fault;
mod requests;

pub use command_batch::{Args, Batch, BatchFull};
pub use inline::{WordsError, split_words};
pub use replies::Replies;
pub use reply_fault::{ReplyError, ReplyFault};
pub use requests::{ProtocolError, Requests};
