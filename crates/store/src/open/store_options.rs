//! The options for opening a store, and what was found.
//!
//! Thread: any; it is plain data.

use crate::folder::names::DEFAULT_TENANT;
use std::path::PathBuf;

use nigh_shm::Adoption;

/// Capacity of the system arena unless set: room for hundreds of libraries, small beside any data.
pub(crate) const SYSTEM_CAPACITY_BYTES: u64 = 64 << 20;

/// The options for opening a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Directory of the arenas, in a tmpfs. Created with mode 0700 if it is missing.
    pub dir: PathBuf,
    /// Bytes of memory that the data arena may use.
    pub capacity_bytes: u64,
    /// Bytes of memory that the system arena may use.
    pub system_capacity_bytes: u64,
    /// Name of the tenant; part of the data arena's file name.
    pub tenant: String,
    /// Partitions of the tenant's keyspace, which share the capacity; 1 to
    /// [`crate::MOST_PARTITIONS`].
    pub partitions: usize,
    /// Remove the arenas that an earlier server left, instead of adopting them. Refused if they are
    /// opened with a log that counts.
    pub fresh: bool,
    /// The arenas are this process's alone: behind the opening their files have no name, and end
    /// with the process. So the journals hold all values. Only with a log, of which the next
    /// process builds the arenas again.
    pub private: bool,
}

impl StoreOptions {
    /// The default tenant's store in `dir`; arenas that are there are adopted.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, capacity_bytes: u64) -> StoreOptions {
        StoreOptions {
            dir: dir.into(),
            capacity_bytes,
            system_capacity_bytes: SYSTEM_CAPACITY_BYTES,
            tenant: DEFAULT_TENANT.to_owned(),
            partitions: 1,
            fresh: false,
            private: false,
        }
    }
}

/// The arenas that opening a store found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Opened {
    /// The adoptions of the data arenas, summed up; `None` if they were created.
    pub data: Option<Adoption>,
    /// The adoption of the system arena; `None` if it was created.
    pub system: Option<Adoption>,
    /// Number of function libraries.
    pub libraries: u64,
    /// Why the manifest doesn't list the arenas, which all were there.
    pub manifest_error: Option<String>,
}
