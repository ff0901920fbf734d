//! Appending commits to a chain: frames, syncs, files, compaction.
//!
//! ```text
//! add ──> FrameComposer ── a frame ──> BegunFile ── SyncJob ──> durable LSNs, `oldest`
//!              full                     full                      │
//!         (or LongFrame)         next file <── FilePreparer <── files that no longer count
//! ```
//!
//! One thread, the log's; only a [`sync_job::SyncJob`] may run on another. Rules:
//! docs/formats/log.md, Writing and Compaction.

pub(crate) mod begin;
mod begun_file;
mod chain_files;
mod compose;
mod frame_facts;
mod kept_room;
pub(crate) mod log_writer;
mod long_frame;
pub(crate) mod new_commit;
mod prepare;
pub(crate) mod settings;
mod spare_files;
mod streams;
pub(crate) mod sync_job;
mod upkeep;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that panics has failed")]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests;
