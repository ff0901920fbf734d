//! The part of an arena's header that tells its place in a folder.
//!
//! Thread: any.

use std::path::Path;

use nigh_shm::{ArenaError, HeaderInfo, check_owner, edition1, header_of};

use crate::folder::edition::Edition;

/// The fields of a header that tell the arena's place in a folder.
pub(crate) struct ArenaHeader {
    pub(crate) tenant: String,
    pub(crate) partition: u32,
    pub(crate) partitions: u32,
    pub(crate) seed: u32,
    pub(crate) committed_lsn: u64,
    pub(crate) capacity_bytes: u64,
}

impl ArenaHeader {
    /// Reads the header of an arena of this edition.
    pub(crate) fn of(path: &Path, edition: Edition) -> Result<ArenaHeader, ArenaError> {
        if edition == Edition::One {
            let edition1::Header1 {
                tenant,
                partition,
                partitions,
                seed,
                capacity_bytes,
                committed_lsn,
                ..
            } = edition1::Header1::of(path)?;
            return Ok(ArenaHeader {
                tenant,
                partition,
                partitions,
                seed,
                committed_lsn,
                capacity_bytes,
            });
        }
        let header = header_of(path)?;
        let capacity_bytes = header.capacity_bytes();
        let HeaderInfo { tenant, partition, partitions, seed, committed_lsn, .. } = header;
        Ok(ArenaHeader { tenant, partition, partitions, seed, committed_lsn, capacity_bytes })
    }

    /// Refuses an arena of another tenant or another partition.
    pub(crate) fn check_owner(
        &self,
        path: &Path,
        tenant: &str,
        partition: u32,
        partitions: u32,
    ) -> Result<(), ArenaError> {
        let found = (&*self.tenant, self.partition, self.partitions);
        check_owner(path, found, (tenant, partition, partitions))
    }
}
