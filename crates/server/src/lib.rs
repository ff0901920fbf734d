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

mod admin;
mod allowance;
mod batch;
mod bridge;
mod budget;
mod checks;
mod client;
pub mod commands;
pub mod config;
mod connection;
mod dispatch;
mod faults;
mod finish;
mod functions;
mod held;
mod histogram;
mod host;
mod hotkeys;
mod info;
mod input;
mod inside;
mod latency;
mod later;
pub mod leftover;
mod listener;
mod mailbox;
mod memory;
mod message;
mod metrics;
mod oks;
mod output;
mod payload;
mod peer;
mod place;
mod route;
mod scatter;
mod serve;
mod session;
mod shard;
mod shared;
mod signals;
mod slab;
mod slowlog;
mod snapshot;
mod starts;
mod state;
mod still;
mod transaction;
mod trimmer;
mod untold;
mod usage;
mod verify;
mod views;
mod window;
mod work;

pub use checks::{SUBCOMMAND as CHECK_SUBCOMMAND, serve_checks};
pub use config::{Config, ConfigError};
pub(crate) use serve::Stopper;
pub use serve::{ServeError, Server, run};
