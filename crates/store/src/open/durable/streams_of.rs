//! The streams of a store: which arena each is, and whose shard's.
//!
//! Pure: any thread.

use crate::folder::names::{SYSTEM_TENANT, path_of, system_path};
use crate::open::store_options::StoreOptions;
use nigh_log::Meta;
use nigh_shm::ArenaSpec;

/// Number of the tenant of libraries.
pub(crate) const SYSTEM_NUMBER: u32 = 0;
/// Number of the first tenant with data.
pub(crate) const DEFAULT_NUMBER: u32 = 1;

/// A stream: the changes of one partition of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    /// Its number in journal and log.
    pub(crate) number: u32,
    /// Its partition.
    pub(crate) partition: usize,
    /// Its arena; the seed is the log's.
    pub(crate) spec: ArenaSpec,
}

impl Stream {
    /// The stream of the libraries.
    pub(crate) fn system(options: &StoreOptions, seed: u32) -> Stream {
        let spec = ArenaSpec {
            path: system_path(&options.dir),
            tenant: SYSTEM_TENANT.to_owned(),
            partition: 0,
            partitions: 1,
            capacity_bytes: options.system_capacity_bytes,
            seed: Some(seed),
        };
        Stream { number: SYSTEM_STREAM, partition: 0, spec }
    }

    /// The stream of a partition of the tenant's data.
    pub(crate) fn data(options: &StoreOptions, partition: usize, seed: u32) -> Stream {
        let number = |count: usize| u32::try_from(count).expect("at most MOST_PARTITIONS");
        let spec = ArenaSpec {
            path: path_of(&options.dir, &options.tenant, partition),
            tenant: options.tenant.clone(),
            partition: number(partition),
            partitions: number(options.partitions),
            capacity_bytes: options.capacity_bytes / options.partitions as u64,
            seed: Some(seed),
        };
        Stream { number: data_stream(partition), partition, spec }
    }

    /// The shard that owns it, of so many.
    pub(crate) fn shard(&self, shards: usize) -> usize {
        shard_of(self.partition, shards)
    }
}

/// The stream of the libraries.
pub(crate) const SYSTEM_STREAM: u32 = SYSTEM_NUMBER << 8;

/// The stream of a partition of the tenant's data.
///
/// # Panics
/// If there can't be such a partition.
#[must_use]
pub fn data_stream(partition: usize) -> u32 {
    DEFAULT_NUMBER << 8 | u32::try_from(partition).expect("at most MOST_PARTITIONS")
}

/// Partitions of the tenant's data, as a log's meta has them; `None` if it has no log yet.
#[must_use]
pub fn partitions_of(meta: &Meta) -> Option<usize> {
    let tenant = meta.tenants.get(&DEFAULT_NUMBER).filter(|_| !meta.chains.is_empty());
    tenant.and_then(|it| usize::try_from(it.partitions).ok())
}

/// The shard that owns a partition, of so many.
pub(crate) fn shard_of(partition: usize, shards: usize) -> usize {
    partition % shards
}
