//! What stands in a log's folder, by docs/formats/log.md "The folder".
//!
//! 1. What isn't synced isn't acted on: `meta` and the folder are synced before they are read.
//! 2. Names that aren't ours are left alone.
//!
//! The thread that has the folder; `meta` is changed by one thread at a time.

pub(crate) mod listing;
pub(crate) mod meta_file;
