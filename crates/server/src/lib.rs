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
//! A request's way: `connection` (reads, decodes) → `commands` (finds the row) → `dispatch`
//! (checks, runs) → store or a command of the server → `output` → written once per turn.
//!
//! 1. One thread owns everything of a shard. Others reach it by its seat, its mailbox and a waker
//!    only.
//! 2. A fault of the world at the start is a [`ServeError`]: one sentence. Afterwards nothing that
//!    a client sends ends the server.
//!
//! Rooms, lowest first: error sync tenant config engine pinning commands observe hop net folder
//! state handlers turn loading log_threads signals serve
//!
//! | room | what it holds |
//! |---|---|
//! | error, sync | why a server doesn't start; locks |
//! | tenant | whose a client and its commands are |
//! | engine | what runs functions: a trait, and V8 |
//! | config, pinning, commands | the settings, as a table; threads and cores; the commands, as a table |
//! | observe | what the server tells of itself: counters, slow commands, hot keys, metrics |
//! | hop | what shards say to each other, and how it travels |
//! | net | clients and peers: bytes that arrive, replies that leave |
//! | folder | the folder of the arenas, and what lies in it |
//! | state | what a shard's commands work on, and what the shards share |
//! | handlers | commands that the server answers itself, and where data commands run |
//! | turn | a shard's loop: it reads, executes, sends, answers |
//! | loading | answers while the log is read |
//! | log_threads | the threads of the log: for each shard, for its syncs, and the keeper of all |
//! | signals, serve | the server's beginning and its end |
#![deny(unsafe_code)]

pub mod commands;
pub mod config;
mod engine;
mod error;
mod folder;
mod handlers;
mod hop;
mod loading;
mod log_threads;
mod net;
mod observe;
mod pinning;
mod serve;
mod signals;
mod state;
mod sync;
mod tenant;
mod turn;

pub use config::{Config, ConfigError};
pub use error::ServeError;
pub use folder::leftover;
pub use serve::{Server, run, serve_checks};
pub use state::checks::SUBCOMMAND as CHECK_SUBCOMMAND;
