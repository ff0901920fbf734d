//! The bytes of docs/formats/log.md: constants, encoders and parsers. No I/O.
//!
//! 1. A parser takes any bytes, and never panics.
//! 2. "Valid" is decided by checksums and the header alone; what breaks the format behind that is
//!    [`crate::LogError::Body`], never a torn tail.

pub mod change;
pub mod frame;
pub mod frame_body;
pub mod head;
pub mod layout;
pub mod meta;
pub mod meta_text;
pub mod names;
pub mod sum;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests;
