//! Append-only files: commands as clients send them, in one file or a folder with a manifest.
//!
//! Source: `src/aof.c` of Redis 7.2.

mod commands;
mod manifest;
mod meaning;
mod survey;

pub use commands::{AofReader, Words};
pub use manifest::{ManifestError, files_of};
pub(crate) use meaning::{Meaning, meaning_of, name_of};
pub use survey::{Survey, survey};
