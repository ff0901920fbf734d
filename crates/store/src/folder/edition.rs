//! The edition of the format in which a folder's arenas are written.
//!
//! Thread: any.

use std::path::Path;

use nigh_shm::edition1::version_of;
use nigh_shm::layout::VERSION;

use crate::error::StoreError;
use crate::folder::names::{partitions_there, path_of};

/// An edition of the arenas' format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// The first one, which servers don't write any more.
    One,
    /// The one that servers write.
    Living,
}

impl Edition {
    /// The edition of a tenant's arenas in a folder, by the header of the first.
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

    /// The edition of an arena of this version, where servers write `living`. Any other version is
    /// refused when the arena is opened.
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
        // While servers write version 1, an arena of version 1 is adopted, not converted. Opening
        // refuses a newer version, or a file that is no arena.
        assert_eq!(Edition::of_version(Some(1), 1), Edition::Living);
        assert_eq!(Edition::of_version(Some(1), 2), Edition::One);
        assert_eq!(Edition::of_version(Some(2), 2), Edition::Living);
        assert_eq!(Edition::of_version(Some(3), 2), Edition::Living);
        assert_eq!(Edition::of_version(None, 2), Edition::Living);
    }
}
