//! The bytes of docs/formats/log.md: constants, encoders and parsers. No I/O.
//!
//! 1. A parser takes any bytes, and never panics.
//! 2. "Valid" is decided by checksums and the header alone; what breaks the format behind that is
//!    [`crate::LogError::Body`], never a torn tail.

pub(crate) mod change;
pub(crate) mod frame;
pub(crate) mod frame_body;
pub(crate) mod head;
pub(crate) mod layout;
pub(crate) mod meta;
pub(crate) mod meta_text;
pub(crate) mod names;
pub(crate) mod sum;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests;
