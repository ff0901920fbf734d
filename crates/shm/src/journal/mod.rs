//! The journal of a shard: its changes that are not in its log yet.
//!
//! ```text
//! the shard's thread                    journal.S, a tmpfs file               the log's thread
//! JournalWriter ── entry, then tail ──> | head ... entries ... tail | ──> JournalReader ──> log
//!               <── leave: head ──────────────── written ─────────────────┘
//! ```
//!
//! The bytes are specified in `docs/formats/journal.md`, those of a change in
//! `docs/formats/log.md`.
//!
//! 1. What is published survives the process: the next one reads it ([`JournalFile::contents`]).
//! 2. Tail and head are the shard's words; the log's thread says in the process's memory how far it
//!    has come.
//! 3. What another process left is checked before it is followed.

pub(crate) mod contents;
pub(crate) mod entry;
pub(crate) mod journal_entry;
pub(crate) mod journal_error;
pub(crate) mod journal_file;
pub(crate) mod layout;
pub(crate) mod named_values;
pub(crate) mod payload;
pub(crate) mod ring_reader;
pub(crate) mod ring_writer;
#[cfg(test)]
mod tests;
mod thread_owned;
