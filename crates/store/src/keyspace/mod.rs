//! A tenant's keyspace at one shard: the partitions that the shard owns, and views of the others.
//!
//! ```text
//! key ──tag──> hash ──> partition p ──> Store p    the owner's at shard p mod shards, views elsewhere
//! ```
//!
//! 1. A key lies in the partition that [`partition_of`] gives for the hash of its tag. All
//!    partitions have one seed, and their number is in every arena's header.
//! 2. A command on one partition is that store's. A command over several is atomic in each of them,
//!    but not over all.
//! 3. With one partition, nothing here costs more than a comparison or a look at a table.
//!
//! Thread: the shard's.

mod attaching;
mod compacting;
mod over_partitions;

use std::sync::Arc;

use nigh_log::{Storage, World};
use nigh_shm::{Domain, Reader, Region};

use crate::error::StoreError;
use crate::eviction::policy::Policy;
use crate::open::durable::log_options::{LogOptions, OpenedLog};
use crate::open::opening::open_all_with_log;
use crate::open::store_options::{Opened, StoreOptions};
use crate::partition::arena_files::ClosedArenas;
use crate::partition::counters::{Lack, Scarce};
use crate::partition::store::Store;
use crate::partition::store_stats::StoreStats;
use crate::turn::Turn;
use crate::upkeep::Maintenance;
use nigh_shm::partition_of;

/// The partitions of a tenant at one shard.
pub struct Keyspace {
    parts: Vec<Store>,
    /// For each partition, the shard that owns it. (A table, since a division takes longer.)
    owners: Vec<usize>,
}

impl Keyspace {
    /// Adopts the arenas in the directory, creates those that are missing, and owns all of them.
    ///
    /// # Errors
    ///
    /// The directory or an arena can't be used, or it holds another number of partitions; the
    /// message says which and why.
    pub fn open(
        options: &StoreOptions,
        domain: &Arc<Domain>,
    ) -> Result<(Keyspace, Opened), StoreError> {
        let (parts, opened) = crate::open::opening::open_all(options, domain)?;
        let owners = vec![0; parts.len()];
        Ok((Keyspace { parts, owners }, opened))
    }

    /// Opens the keyspace and its log, which has what arenas lack, and will have their changes.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::open`]; or the log can't be read, or isn't that of the arenas.
    pub fn open_with_log<S: Storage>(
        options: &StoreOptions,
        log: &LogOptions,
        world: &World<S>,
        domain: &Arc<Domain>,
    ) -> Result<(Keyspace, Opened, OpenedLog<S>), StoreError> {
        let (parts, opened, log) = open_all_with_log(options, log, world, domain)?;
        let owners = vec![0; parts.len()];
        Ok((Keyspace { parts, owners }, opened, log))
    }

    /// Divides the partitions among `shards` shards in turn. Each shard gets its own partitions,
    /// and views of the others.
    ///
    /// # Panics
    ///
    /// If there are no shards, or it was divided before.
    #[must_use]
    pub fn divide(self, shards: usize) -> Vec<Keyspace> {
        let is_whole = self.parts.iter().all(Store::is_owner);
        assert!(shards > 0 && is_whole, "a keyspace is divided once, among some shards");
        let owners: Vec<usize> =
            (0..self.parts.len()).map(|partition| partition % shards).collect();
        let mut divided: Vec<Keyspace> =
            (0..shards).map(|_| Keyspace { parts: Vec::new(), owners: owners.clone() }).collect();
        for (partition, store) in self.parts.into_iter().enumerate() {
            let views = store.views();
            let mut store = Some(store);
            for (shard, keyspace) in divided.iter_mut().enumerate() {
                let own = store.take_if(|_| owners[partition] == shard);
                keyspace.parts.push(own.unwrap_or_else(|| Store::view(views.clone())));
            }
        }
        divided
    }

    /// Number of partitions.
    #[inline]
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// The shard that owns a partition.
    #[inline]
    #[must_use]
    pub fn owner(&self, partition: usize) -> usize {
        self.owners[partition]
    }

    /// Hash of a key, as all partitions have it.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u32 {
        self.parts[0].hash(key)
    }

    /// The partition of a key with this hash.
    #[inline]
    #[must_use]
    pub fn partition(&self, key: &[u8], hash: u32) -> usize {
        partition_of(key, hash, self.parts.len(), |tag| self.hash(tag))
    }

    /// The partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> usize {
        if self.parts.len() == 1 { 0 } else { self.partition(key, self.hash(key)) }
    }

    /// A partition.
    #[inline]
    #[must_use]
    pub fn part(&self, partition: usize) -> &Store {
        &self.parts[partition]
    }

    /// A partition.
    #[inline]
    pub fn part_mut(&mut self, partition: usize) -> &mut Store {
        &mut self.parts[partition]
    }

    /// All partitions, in order.
    pub fn parts(&self) -> &[Store] {
        &self.parts
    }

    /// The memory of all arenas: the partitions' in order, then the libraries'.
    #[must_use]
    pub fn regions(&self) -> Vec<&Region> {
        let data = self.parts.iter().map(|store| &**store.data_region());
        data.chain([&**self.librarian().libraries.reader.region()]).collect()
    }

    /// The store that has the libraries.
    #[must_use]
    pub fn librarian(&self) -> &Store {
        &self.parts[0]
    }

    /// The store that has the libraries.
    pub fn librarian_mut(&mut self) -> &mut Store {
        &mut self.parts[0]
    }

    /// The reader of a partition's arena.
    #[must_use]
    pub fn reader(&self, partition: usize) -> &Reader {
        self.parts[partition].reader()
    }

    fn owned(&mut self) -> impl Iterator<Item = &mut Store> {
        self.parts.iter_mut().filter(|store| store.is_owner())
    }

    /// Whether some partition is owned here.
    #[must_use]
    pub fn owns_some(&self) -> bool {
        self.parts.iter().any(Store::is_owner)
    }

    /// [`Store::maintain`] of all partitions.
    pub fn maintain(&mut self, turn: &Turn<'_>) -> Maintenance {
        let mut sum = Maintenance::default();
        for store in &mut self.parts {
            let one = store.maintain(turn);
            sum.more |= one.more;
            sum.waiting |= one.waiting;
            sum.expired += one.expired;
        }
        sum
    }

    /// The counts of all stores; of views only this shard's counts.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let mut sum = self.parts[0].stats();
        self.parts[1..].iter().for_each(|store| sum.add(&store.stats()));
        sum
    }

    /// Sets the counters to 0.
    pub fn reset_stats(&mut self) {
        self.parts.iter_mut().for_each(Store::reset_stats);
    }

    /// [`Store::set_eviction`] of all partitions.
    pub fn set_eviction(&mut self, policy: Policy, samples: u32) {
        self.parts.iter_mut().for_each(|store| store.set_eviction(policy, samples));
    }

    /// Tells readers in other processes whether replies wait until the changes are on disk.
    pub fn set_replies_wait(&mut self, wait: bool) {
        let owned = self.parts.iter_mut().filter(|store| store.is_owner());
        owned.for_each(|store| store.data.set_replies_wait(wait));
    }

    /// [`Store::keep_ages`] of all partitions.
    pub fn keep_ages(&mut self, keep: bool) {
        self.parts.iter_mut().for_each(|store| store.keep_ages(keep));
    }

    /// Counts keys as read now, as far as [`Store::keep_ages`] lets reads count. For reads that go
    /// past the stores, such as a function's.
    pub fn note_reads(&mut self, keys: &[&[u8]]) {
        // What counts is the same for all partitions; so nothing is hashed without need.
        if self.parts[0].usage.tracks_reads() {
            for key in keys {
                let hash = self.hash(key);
                let partition = self.partition(key, hash);
                self.parts[partition].usage.touch_read(hash);
            }
        }
    }

    /// [`Store::wants_turn`] of some partition.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.parts.iter().any(Store::wants_turn)
    }

    /// [`Store::is_busy`] of some partition.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.parts.iter().any(Store::is_busy)
    }

    /// What [`Keyspace::take_busy`] would say.
    #[must_use]
    pub fn busy(&self) -> Option<Scarce> {
        self.parts.iter().fold(None, |busy, store| store.busy().or(busy))
    }

    /// [`Store::take_busy`] of all partitions: one of them.
    pub fn take_busy(&mut self) -> Option<Scarce> {
        self.parts.iter_mut().fold(None, |busy, store| store.take_busy().or(busy))
    }

    /// [`Store::take_lack`] of all partitions: the greatest.
    pub fn take_lack(&mut self) -> Lack {
        self.parts.iter_mut().map(Store::take_lack).max().unwrap_or_default()
    }

    /// [`Store::take_moment`] of each view in which one of these keys lies; false if one has none.
    pub fn take_moments(&mut self, keys: &[&[u8]], turn: &Turn<'_>) -> bool {
        keys.iter().all(|key| {
            let partition = self.partition_of(key);
            let store = &mut self.parts[partition];
            store.is_owner() || store.moment.is_some() || store.take_moment(turn)
        })
    }

    /// [`Store::begin_turn`] of all partitions.
    pub fn begin_turn(&mut self, turn: &Turn<'_>) {
        self.parts.iter_mut().for_each(|store| store.begin_turn(turn));
    }

    /// The latest [`Store::clock_ms`] of all partitions, views too.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.parts.iter().map(Store::clock_ms).max().unwrap_or(0)
    }

    /// Bytes of memory that the data of all partitions may use.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.parts.iter().map(Store::capacity_bytes).sum()
    }

    /// Closes all partitions: see [`Store::close`]. Returns what is left of its own.
    pub fn close(self) -> Vec<ClosedArenas> {
        self.parts.into_iter().filter_map(Store::close).collect()
    }
}
