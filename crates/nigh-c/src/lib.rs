//! The library for C and C++: `libnigh.so`, `libnigh.a`, and two headers. `nigh.h` is the embedded
//! library, `nigh_client.h` the client of a server.
//!
//! ```text
//! C ── boundary: pointers to slices ──> handles: a handle's database ──> nigh::Db
//!                                       clients: a handle's client, locked ──> nigh_client::Client
//! C <── status, results <── a copy in malloc's memory <── value, reply
//!        └── message: fault, one for each thread
//! ```
//!
//! 1. No panic crosses: it becomes a status (`fault.rs`).
//! 2. A handle is a number, not a pointer: a call after close, or with a handle that is none, gets
//!    an error and touches nothing (`handles.rs`).
//! 3. All `unsafe` is in `boundary`: C names bytes by pointer and length, and only there they
//!    are turned into slices.
//! 4. Enums and booleans that C passes are integers here, since any number may come.
//! 5. What C gets is copied: a lent value doesn't leave its thread, and C couldn't be kept from
//!    taking it elsewhere.
//!
//! The names are C's, so that source and header read alike. Any thread may call anything.
//!
//! `nigh_client.h` includes `nigh.h`: both have the same statuses, `nigh_bytes`, `nigh_free` and
//! `nigh_error_message`. A third header for these would have to be installed and found with each of
//! the two; and a program may use both halves, which then agree.
//!
//! Rooms, lowest first: fault c_types client_types options client_options snapshot_steps handles
//! clients boundary

#![deny(unsafe_code)]
#![expect(unreachable_pub, reason = "cbindgen puts into the header what is pub")]

#[expect(unsafe_code, reason = "C's pointers are turned into slices here, and only here")]
mod boundary;
mod c_types;
mod client_options;
mod client_types;
mod clients;
mod fault;
mod handles;
mod options;
mod snapshot_steps;
