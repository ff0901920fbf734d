//! Threads and sockets around the shards.
//!
//! ```text
//! start ── binds sockets, locks the folder, opens the keyspace, then spawns the shards
//!   │
//!   ├─ shard     sockets, commands, store, functions: the loop of `shard`
//!   ├─ signals   SIGTERM and SIGINT (only `run`)
//!   └─ metrics   HTTP for Prometheus (only with `metrics-port`)
//! ```
//!
//! A request's way: `connection` (reads, decodes) → `commands` (finds the row) → `dispatch` (checks, runs) →
//! store or a command of the server → `output` → written once per turn.
//!
//! 1. One thread owns everything of a shard. Others reach it by its seat, its mailbox and a waker only.
//! 2. A fault of the world at the start is a [`ServeError`]: one sentence. Afterwards nothing that a client
//!    sends ends the server.
#![deny(unsafe_code)]

pub mod commands;
pub mod config;
mod error;
mod folder;
mod handlers;
mod hop;
mod net;
mod observe;
mod pinning;
mod serve;
mod signals;
mod state;
mod sync;
mod turn;

pub use config::{Config, ConfigError};
pub use error::ServeError;
pub use folder::leftover;
pub use serve::{Server, run};
pub use state::checks::{SUBCOMMAND as CHECK_SUBCOMMAND, serve_checks};
