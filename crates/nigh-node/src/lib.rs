//! The embedded library and the client for Node.js: the native half of the package `nigh`. Its
//! other half is `index.js` and its neighbours, which `index.d.ts` and `client.d.ts` describe.
//!
//! ```text
//! index.js: checks, text to bytes ── a call ──────────────────> open database ── nigh::Db
//!            └── a Promise <── outcome <── libuv's pool ── later ──┘
//! client.js: checks, text to bytes ──┬─ a read ──> memory of a server
//!                                    └─ requests ──> libuv's pool ──> shared client ──> server
//! ```
//!
//! 1. A short call runs in the thread of the JavaScript. What waits for the disk, or for a server,
//!    runs in libuv's pool: each call that may wait has another of the same name with `later`
//!    behind it.
//! 2. No panic crosses: it becomes an error (`fault.rs`).
//! 3. JavaScript gets copies: a lent value doesn't leave its call.
//! 4. Nothing but `index.js`, `beside.js` and `client.js` call this, and they pass bytes as a
//!    `Uint8Array` of memory that no other thread has.
//!
//! Rooms, lowest first: fault arguments open_db pool_work panics pairs batch snapshot watch
//! reader database packed scratch replies shared_client local_reads client_given client_view
//! client

#![deny(unsafe_code)]

mod arguments;
mod batch;
mod client;
mod client_given;
mod client_view;
mod database;
mod fault;
mod local_reads;
mod open_db;
mod packed;
mod pairs;
#[cfg(debug_assertions)]
mod panics;
mod pool_work;
mod reader;
mod replies;
mod scratch;
mod shared_client;
mod snapshot;
mod watch;
