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

use nigh_shm::edition1::{Edition1, version_of};
use nigh_shm::layout::VERSION;

use crate::error::StoreError;
use crate::folder::look::{look, partitions_there, path_of, system_path};

/// Which edition of their format arenas are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// The first one, where servers write another.
    One,
    /// The one that servers write.
    Living,
}

impl Edition {
    /// The edition of a tenant's arenas in a folder, by what the first of them says.
    ///
    /// # Errors
    ///
    /// The directory or the arena can't be read.
    pub fn of(dir: &Path, tenant: &str) -> Result<Edition, StoreError> {
        let first = partitions_there(dir, tenant)?.first().copied();
        let version = match first {
            Some(partition) => version_of(&path_of(dir, tenant, partition))?,
            None => None,
        };
        Ok(Edition::of_version(version, VERSION))
    }

    /// The edition of an arena of this version, where servers write `living`. What is neither is
    /// for opening to judge.
    fn of_version(version: Option<u32>, living: u32) -> Edition {
        match version {
            Some(1) if living != 1 => Edition::One,
            _ => Edition::Living,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::Edition;

    #[test]
    fn edition_1_is_what_servers_write_until_they_write_another() {
        // An arena of today is adopted, and only when that has another version it is read as an old
        // one. What is newer, or no arena at all, is refused by who opens it.
        assert_eq!(Edition::of_version(Some(1), 1), Edition::Living);
        assert_eq!(Edition::of_version(Some(1), 2), Edition::One);
        assert_eq!(Edition::of_version(Some(2), 2), Edition::Living);
        assert_eq!(Edition::of_version(Some(3), 2), Edition::Living);
        assert_eq!(Edition::of_version(None, 2), Edition::Living);
    }
}
