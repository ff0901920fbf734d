//! The functions that C calls, and all `unsafe` of the crate.
//!
//! ```text
//! answer ── arguments: pointer and length to slice ──┬ DBS.with ── nigh::Db ─────────────┬ block ── results
//!                                                    └ with_client ── nigh_client::Client ┘
//! ```
//!
//! 1. What a caller of each function has to see to, and nobody can check: a pointer that isn't NULL
//!    leads to as many bytes, or things, as its length says, or to one thing, or to a text that a
//!    NUL ends. They don't change during the call. No two results are in one place.
//! 2. NULL where something must be, lengths that can't be and places out of line are refused.
//! 3. Results are set first to NULL or 0, and then only if the call succeeds.
//! 4. Blocks for the caller come from `calloc` and go by `free`, so that `nigh_free` needs to know
//!    no length.
//!
//! Any thread.

pub mod beside;
pub mod client;
pub mod client_view;
pub mod client_writes;
pub mod db;
mod pointers;
mod replies;
