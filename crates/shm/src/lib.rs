//! The bytes that processes share: one writer, lock-free readers.
//!
//! An *arena* is a file in a tmpfs directory that holds the keys of one partition. Its only [`Writer`] appends
//! records and publishes each with one store; any number of [`Reader`]s, on any thread, find them without
//! lock or copy while they hold a [`Pin`]; other processes map the file read-only and copy out with
//! [`ForeignReader`]. The bytes are specified in `docs/formats/arena.md`.
//!
//! ```text
//! Writer ── append, publish ──> arena <── find ── Reader + Pin (this process, &[u8])
//!                                     <── copy ── ForeignReader (other processes)
//! ```
//!
//! 1. A record is immutable once published; what replaces it is appended elsewhere.
//! 2. Retired memory is reused only after every [`Participant`] of the [`Domain`] announced a quiescent state.
//! 3. The file belongs to one server process: nothing else may write to it while it is mapped here.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod adopt;
mod change;
mod check;
mod cleaner;
mod commit;
mod create;
mod delete;
pub mod edition1;
mod error;
mod extend;
#[cfg(any(test, feature = "failpoints"))]
pub mod failpoints;
#[cfg(not(any(test, feature = "failpoints")))]
mod failpoints;
mod fill;
mod foreign;
mod growth;
mod hash;
mod hugepages;
mod index;
mod kept;
pub mod layout;
mod maintain;
mod moment;
mod provision;
mod reader;
mod reclaim;
mod record;
mod region;
pub mod ring;
mod scan;
mod sound;
mod space;
mod sum;
mod survey;
mod verify;
mod words;
mod writer;

#[cfg(test)]
mod tests;

pub use adopt::{Adoption, header_of};
pub use change::{Change, Journal, ReplayError, What};
pub use check::{Finding, HeaderInfo};
pub use cleaner::CleanerStats;
pub use create::ArenaSpec;
pub use error::{ArenaError, Denial, WriteError};
pub use fill::Fill;
pub use foreign::{ForeignReader, ForeignValue, View};
pub use growth::Rebuilds;
pub use kept::Kept;
pub use maintain::{ArenaStats, Budget, Maintenance};
pub use moment::TooNew;
pub use reader::{Moment, Reader};
pub use reclaim::{Domain, Participant, Pin};
pub use record::{Record, RecordRef, ValueRef};
pub use region::{Denied, Region};
pub use verify::{BadRecord, Report, verify};
pub use words::prefetch;
pub use writer::Writer;
