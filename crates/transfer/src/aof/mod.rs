//! Append-only files: commands as clients send them, in one file or a folder with a manifest.
//!
//! Source: `src/aof.c` of Redis 7.2.

mod commands;
mod details;
mod manifest;
mod meaning;
mod survey;

pub use commands::{AofReader, Words};
pub(crate) use details::{
    Expiry, NewExpiry, database, fault_of_swap, of_get_ex, of_restore, of_set, wrong,
};
pub use manifest::{ManifestError, files_of};
pub(crate) use meaning::{Meaning, meaning_of, name_of};
pub use survey::{Survey, survey};
