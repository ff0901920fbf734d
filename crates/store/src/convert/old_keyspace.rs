//! A tenant's arenas of edition 1, to be copied.
//!
//! 1. The arenas are only read. `folder` judges which belong together and which are missing, as for
//!    any folder.
//! 2. All of them are checked before any is copied.
//!
//! Thread: any. A thread that copies holds the folder's lock.

use std::path::Path;

use nigh_shm::edition1::Edition1;

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::folder::names::{path_of, system_path};

/// A tenant's arenas of edition 1, and the libraries' arena.
pub struct OldKeyspace {
    pub(crate) parts: Vec<Edition1>,
    /// `None` if a first start was cut off before it made the arena.
    pub(crate) libraries: Option<Edition1>,
}

impl OldKeyspace {
    /// Opens the arenas, without changing anything.
    ///
    /// # Errors
    ///
    /// The arenas can't be read, are damaged, or don't belong together.
    pub fn open(dir: &Path, tenant: &str) -> Result<OldKeyspace, StoreError> {
        let found = look(dir, tenant, Edition::One)?;
        let open = |&partition| Edition1::open(&path_of(dir, tenant, partition));
        let parts = found.there.keys().map(open).collect::<Result<_, _>>()?;
        let libraries = found.has_system.then(|| Edition1::open(&system_path(dir))).transpose()?;
        Ok(OldKeyspace { parts, libraries })
    }

    /// Number of the tenant's keys, those whose time is over included.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.parts.iter().map(Edition1::keys).sum()
    }
}
