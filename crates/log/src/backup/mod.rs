//! Backups of a log that is being written, and what is made of them, by docs/formats/log.md,
//! "Backup and restore".
//!
//! ```text
//! the log's folder ── copy ──┐
//! an older backup ─── link ──┴─> DIR.new ── read back ──> renamed to DIR
//! a backup ── read ── copy, with a new id ──> an empty folder
//! ```
//!
//! 1. A backup counts by its name, and gets it when it is whole on disk and was read back. Until
//!    then the older one stays as it is.
//! 2. The caller is asked after each piece: it sets the pace, and may stop it.
//! 3. Whatever fails, nothing of what was made stays.
//!
//! A thread of its own, or a program.

pub(crate) mod copying;
pub(crate) mod error;
pub(crate) mod folder_removal;
pub(crate) mod make;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod real_place;
pub(crate) mod restore;
#[cfg(feature = "simulation")]
pub(crate) mod simulated_place;
pub(crate) mod verify;
