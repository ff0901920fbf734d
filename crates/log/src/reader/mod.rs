//! Reading a chain, by docs/formats/log.md, "Recovery", "Follower" and "Salvage".
//!
//! ```text
//! log_file ── frames ──┬─ search ── forward ── ends ── replay      where a chain ends, and all of it
//!   head     valid?    ├─ counted ──────────────────── victim      one file, for compaction
//!            headers ──┴──────────────────── follower, salvage
//! ```
//!
//! 1. Only bytes that were read can be invalid: a read that fails or is short is an error.
//! 2. Sums decide what was written; what was written wrong is [`crate::LogError::Body`].
//! 3. No reader changes a file.

pub(crate) mod chain_file;
pub(crate) mod commits;
mod counted;
pub(crate) mod ends;
pub(crate) mod follower;
mod forward;
pub(crate) mod frames;
mod headers;
pub(crate) mod log_file;
mod replay;
pub(crate) mod salvage;
mod search;
mod so_far;
pub(crate) mod victim;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests;
