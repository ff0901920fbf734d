//! The files of a store, which are removed with it.
//!
//! Thread: any; it is plain data.

use std::path::PathBuf;

/// A store's arenas and their folder.
pub(crate) struct ArenaFiles {
    pub(crate) dir: PathBuf,
    pub(crate) arenas: Vec<PathBuf>,
}
