//! Runs tenant JavaScript next to the data: the only crate that knows V8.
//!
//! ```text
//!   server ── run(calls) ──> Runtime ── one entry per batch ──> prelude's dispatcher ──> user's function
//!      ^                        |                                   |  reads: in place, over the Mapping
//!      └── Host::commit <───────┴──── write set of one call <───────┘
//! ```
//!
//! A [`Runtime`] belongs to one thread and has one V8 isolate. Each [`Tenant`] has one V8 context,
//! made at first use from a startup snapshot, and kept until newer ones need the room. The arenas
//! of a tenant, one for each of its partitions, are a [`TenantArenas`] of [`Mapping`]s; their bytes
//! are those of `docs/formats/arena.md`.
//!
//! Rooms, lowest first: ffi allocator caller library tenant io stop error_reply fiber guard isolate
//! runtime
//!
//! | room | what it holds |
//! |---|---|
//! | ffi, allocator | the C interface of the shim; the process's allocator |
//! | caller | the border to the caller: its input, a runtime's requests and figures |
//! | library, tenant | a library as it was loaded; the libraries and the context of a tenant |
//! | io | the memory through which Rust, C++ and the prelude exchange data, and its codecs |
//! | stop | how a call is stopped, and why |
//! | error_reply | texts of error replies |
//! | fiber | a stack for the shard, which leaves a call that V8 can't stop |
//! | guard | the watchdog, handles for other threads, and the end of the process |
//! | isolate | one V8 isolate: entries, callbacks, collections |
//! | runtime | loads libraries and runs batches of calls |
//!
//! # The build script of a package that links this crate
//!
//! `libnode.so` is in `.v8/lib`, which the dynamic loader does not search, and Cargo passes link
//! arguments only to the package's own targets. So each package with a binary, test, bench or
//! example that links this crate depends on `nigh-js` directly, and has this `build.rs`. It works
//! with a system-wide V8 too.
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

// The prelude reads what other threads write by plain loads of 32 bits, in order.
#[cfg(not(target_arch = "x86_64"))]
compile_error!("nigh-js is for x86-64: on others the prelude's reads would need Atomics");

pub mod allocator;
mod caller;
mod error_reply;
mod ffi;
mod fiber;
mod guard;
mod io;
mod isolate;
mod library;
mod runtime;
mod stop;
mod tenant;

pub use caller::fcall::{Call, Overlay, RunTurn, Tenant, UNSTABLE};
pub use caller::function_limits::FunctionLimits;
pub use caller::host_trait::{CallWrite, Host, Level, Starts};
pub use caller::runtime_stats::{Running, RuntimeStats};
pub use caller::tenant_arenas::{Mapping, TenantArenas};
pub use fiber::{Fiber, FiberJoin};
pub use guard::handle::Handle;
pub use guard::process_end::name_what_crashes;
pub use isolate::StartError;
pub use library::{Function, Library, LoadError};
pub use runtime::Runtime;
pub use stop::cause::Reason;
