//! What a server of edition 1 left in a folder, to be copied.
//!
//! ```text
//! <dir>/<tenant>.0.arena, .1 …    of edition 1 ──┐
//! <dir>/_system.0.arena           of edition 1 ──┴──> copied into arenas that servers serve
//! ```
//!
//! 1. The arenas are only read. What belongs together, and what is missing, is judged as of any
//!    folder (see `folder`).
//! 2. All of it is checked before any of it is copied.
//!
//! Thread: any; who copies holds the folder's lock.

use std::path::Path;

use nigh_shm::edition1::Edition1;

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::folder::names::{path_of, system_path};

/// A tenant's arenas of edition 1, and that of the libraries.
pub struct OldKeyspace {
    pub(crate) parts: Vec<Edition1>,
    /// `None` if a first start was cut off before it was made.
    pub(crate) libraries: Option<Edition1>,
}

impl OldKeyspace {
    /// Opens them, without changing anything.
    ///
    /// # Errors
    ///
    /// They can't be read, are damaged, or don't belong together.
    pub fn open(dir: &Path, tenant: &str) -> Result<OldKeyspace, StoreError> {
        let found = look(dir, tenant, Edition::One)?;
        let open = |&partition| Edition1::open(&path_of(dir, tenant, partition));
        let parts = found.there.keys().map(open).collect::<Result<_, _>>()?;
        let libraries = found.has_system.then(|| Edition1::open(&system_path(dir))).transpose()?;
        Ok(OldKeyspace { parts, libraries })
    }

    /// Keys of the tenant, those whose time is over included.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.parts.iter().map(Edition1::keys).sum()
    }
}
