//! Runs tenant JavaScript next to the data: the only crate that knows V8.
//!
//! ```text
//!   server ── run(calls) ──> Runtime ── one entry per batch ──> prelude's dispatcher ──> user's function
//!      ^                        |                                   |  reads: in place, over the Mapping
//!      └── Host::commit <───────┴──── write set of one call <───────┘
//! ```
//!
//! A [`Runtime`] belongs to one thread and holds one V8 isolate. Each [`Tenant`] has one V8
//! context, made on first use from a startup snapshot and kept in an LRU. The arenas of a tenant,
//! one for each of its partitions, are seen as a [`Keyspace`] of [`Mapping`]s; their bytes are
//! those of `docs/formats/arena.md`.
//!
//! # What a package with a binary, test, bench or example that links this crate needs
//!
//! `libnode.so` lies in `.v8/lib`, which the dynamic loader does not search, and Cargo passes link
//! arguments to the package's own targets only. So each such package depends on `nigh-js` directly
//! and has this `build.rs` (a system-wide V8 works with it too):
//!
//! ```text
//! //! Lets the binaries of this package find libnode.so, which nigh-js links.
//! fn main() {
//!     println!("cargo:rerun-if-changed=build.rs");
//!     println!("cargo:rerun-if-env-changed=DEP_NIGH_V8_RPATH");
//!     let rpath = std::env::var("DEP_NIGH_V8_RPATH").expect("nigh-js sets DEP_NIGH_V8_RPATH");
//!     // RUNPATH, unlike RPATH, is not searched for the libraries of libraries (libcares).
//!     println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{rpath}");
//! }
//! ```

pub mod allocator;
mod caller;
mod error_reply;
mod ffi;
mod fiber;
mod io;
mod isolate;
mod library;
mod runtime;
mod stop;
mod tenant;
mod watch;

pub use caller::fcall::{Call, Overlay, RunTurn, Tenant, UNSTABLE};
pub use caller::function_limits::Limits;
pub use caller::host_trait::{Host, Level, Starts, Write};
pub use caller::runtime_stats::{Handle, Reason, Running, RuntimeStats};
pub use caller::tenant_arenas::{Keyspace, Mapping, PARTITIONS_MAX};
pub use fiber::{Fiber, Join};
pub use library::{Function, Library, LoadError};
pub use runtime::{Runtime, StartError};
pub use watch::process_end::name_what_crashes;
