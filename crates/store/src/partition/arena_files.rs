//! The files of a store.
//!
//! Thread: any; it is plain data.

use std::path::PathBuf;

/// The files of a store, which go with it if it is removed.
pub(crate) struct Files {
    pub(crate) dir: PathBuf,
    pub(crate) arenas: Vec<PathBuf>,
}
