//! One partition as one shard has it: its state, and the few steps that all commands are made of.
//!
//! ```text
//!   commands ── find, read ──> overlay, if a transaction runs ── else ──> arena
//!            ── put, remove, set_expiry ──> the overlay, or else the arena
//! ```
//!
//! [`store::Store`] is the state. `reading`, `writing` and `walking` are the steps. The other files
//! are the state's parts.

pub(crate) mod arena_files;
pub(crate) mod counters;
pub(crate) mod overlay;
mod reading;
pub(crate) mod store;
pub(crate) mod store_stats;
pub(crate) mod sweep;
pub(crate) mod system_arena;
pub(crate) mod walking;
pub(crate) mod watches;
pub(crate) mod writer_half;
mod writing;
