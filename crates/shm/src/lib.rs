//! The bytes that processes share: one writer, lock-free readers.
//!
//! An *arena* is a file in a tmpfs directory that holds the keys of one partition. Its only
//! [`Writer`] appends records and publishes each with one store; any number of [`Reader`]s, on any
//! thread, find them without lock or copy while they hold a [`Pin`]; other processes map the file
//! read-only and copy out with [`ForeignReader`]. The bytes are specified in
//! `docs/formats/arena.md`.
//!
//! ```text
//! Writer ── append, publish ──> arena <── find ── Reader + Pin (this process, &[u8])
//!                                     <── copy ── ForeignReader (other processes)
//! ```
//!
//! 1. A record is immutable once published; what replaces it is appended elsewhere.
//! 2. Retired memory is reused only after every [`Participant`] of the [`Domain`] announced a
//!    quiescent state.
//! 3. The file belongs to one server process: nothing else may write to it while it is mapped here.
//!
//! Rooms, lowest first: partitioning error failpoints format ring index memory local qsbr region
//! journal check space read write recover
//!
//! | room | what it holds |
//! |---|---|
//! | partitioning | the partition of a key |
//! | error, failpoints | what can go wrong; dying on purpose, for tests |
//! | format | words, layout, header, records and checksums of an arena |
//! | ring | queues of messages between two threads or processes |
//! | index | the hash table, when it grows, and reading at one moment |
//! | memory | mappings, huge pages, the thread that takes and gives memory |
//! | local | the byte stream of a client process: rings in memory that it maps too |
//! | qsbr | the participants that read, and what waits until none does |
//! | region | an arena's file as it is mapped for writing |
//! | journal | the file in which a shard's changes are until they are in its log |
//! | check | reading an arena that isn't trusted |
//! | space | the writer's memory: segments, runs, and what waits to be reused |
//! | read | readers of this process and of others |
//! | write | the writer: one file for each thing that it does |
//! | recover | adopting, verifying, and reading edition 1 |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod check;
mod error;
#[cfg(any(test, feature = "failpoints"))]
pub mod failpoints;
#[cfg(not(any(test, feature = "failpoints")))]
mod failpoints;
mod format;
mod index;
mod journal;
pub mod local;
mod memory;
mod partitioning;
mod qsbr;
mod read;
mod recover;
mod region;
pub mod ring;
mod space;
mod write;

#[cfg(test)]
mod tests;

pub use error::{ArenaError, DAMAGE_ADVICE, Denial, WriteError};
pub use format::format_fault::Finding;
pub use format::header_info::{HeaderInfo, check_owner, header_of};
pub use format::layout;
pub use format::record::{Record, RecordRef, ValueRef};
pub use format::regular_file::open_regular;
pub use format::words::prefetch;
pub use index::growth::Rebuilds;
pub use index::moment::TooNew;
pub use journal::contents::JournalContents;
pub use journal::journal_entry::JournalEntry;
pub use journal::journal_error::JournalError;
pub use journal::journal_file::{JournalFile, JournalInfo, JournalSpec, journal_path};
pub use journal::layout::{CommitSize, Effect, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN};
pub use journal::named_values::{ArenasByStream, AsideArena, NamedRun, NamedValues};
pub use journal::payload::{GivenValue, StreamChange};
pub use journal::ring_reader::{JournalReader, PlainEntry};
pub use journal::ring_writer::JournalWriter;
pub use memory::fork_mark::ForkMark;
pub use memory::quiet_thread::spawn_without_signals;
pub use partitioning::{MOST_PARTITIONS, PartitionNumber, partition_of, tag};
pub use qsbr::{Domain, Participant, Pin};
pub use read::cursor::LineWalk;
pub use read::foreign::{
    ForeignArenas, ForeignCounters, ForeignInPlace, ForeignReader, ForeignRecord, ForeignValue,
    ForeignValues, ForeignVersion, LastLook, RestingView, View,
};
pub use read::index_copy::IndexCopy;
pub use read::reader::{Moment, Reader};
pub use recover::adopt::Adoption;
pub use recover::bases::{BaseKeys, BaseWatch, tombstone_payload};
pub use recover::edition1;
pub use recover::journal_left::StreamJournal;
pub use recover::mend::MendError;
pub use recover::records::RecordTaker;
pub use recover::replay::{CheckedChange, ReplayError, Replayed};
pub use recover::verifier::{ArenaReport, BadRecord, verify};
pub use region::durable::DurableWord;
pub use region::kept::Kept;
pub use region::{Denied, Region};
pub use write::cleaner::CleanerStats;
pub use write::create::ArenaSpec;
pub use write::fill::ArenaFill;
pub use write::maintain::{ArenaStats, Upkeep, UpkeepBudget};
pub use write::over::end_file;
pub use write::standing::{HeldValue, Standing, StandingRecord};
pub use write::writer::Writer;
