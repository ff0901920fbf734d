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

use nigh_shm::edition1::version_of;
use nigh_shm::layout::VERSION;

use crate::error::StoreError;
use crate::folder::names::{partitions_there, path_of};

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
