//! A tenant's keyspace as one shard has it: its partitions, of which it owns some and views the
//! others.
//!
//! ```text
//! key ──tag──> hash ──> partition p ──> Store p     the owner's at shard p mod shards, a view at the others
//! ```
//!
//! 1. A key lies in the partition that [`partition_of_hash`] names, of the hash of its tag: all
//!    partitions have one seed, and their number is in every arena's header.
//! 2. What one partition can answer is its store's. Here is what goes over several: each of them is
//!    atomic by itself, all of them together aren't.
//! 3. With one partition nothing here costs more than a comparison or a look at a table.
//!
//! Thread: the shard's.

use std::sync::Arc;

use nigh_shm::{Domain, Reader, Region};

use crate::apply::dispatch::length;
use crate::error::StoreError;
use crate::making_room::Policy;
use crate::op::Op;
use crate::open::store_options::{Opened, StoreOptions};
use crate::partition::store::{Lack, Store, Turn};
use crate::partition::store_stats::{Maintenance, StoreStats};
use crate::reply_sink::Reply;
use crate::split_mix::Random;
use crate::text::arguments::cursor;

/// Partitions of a keyspace, at most.
pub const MOST_PARTITIONS: usize = 64;

/// The part of a key that says in which partition it lies: what stands between its first `{` and
/// the next `}`, if that is anything, else all of it. (Redis Cluster's hash tags.)
#[inline]
#[must_use]
pub fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        None | Some(0) => key,
        Some(end) => &rest[..end],
    }
}

/// The partition of a key whose tag has this hash.
#[inline]
#[must_use]
pub fn partition_of_hash(hash: u32, partitions: usize) -> usize {
    ((u64::from(hash) * partitions as u64) >> 32) as usize
}

/// Where a store stands in its keyspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionNumber {
    pub(crate) partition: u64,
    pub(crate) partitions: u64,
}

impl PartitionNumber {
    /// A store's cursor as the keyspace's. 0, where the store ends, is the next partition's
    /// beginning, and after the last one the end.
    pub(crate) fn outward(self, cursor: u64) -> u64 {
        match cursor {
            0 if self.partition + 1 == self.partitions => 0,
            0 => self.partition + 1,
            _ => cursor.saturating_mul(self.partitions).saturating_add(self.partition),
        }
    }

    /// The keyspace's cursor as the store's.
    pub(crate) fn inward(self, cursor: u64) -> u64 {
        cursor / self.partitions
    }
}

/// The partitions of a tenant, at one shard.
pub struct Keyspace {
    parts: Vec<Store>,
    /// By partition: the shard that owns it. (A table, since a division takes longer.)
    owners: Vec<usize>,
}

impl Keyspace {
    /// Adopts the arenas in the directory, creating what is missing, and owns all of them.
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

    /// Divides the partitions among `shards` shards, in turn: each gets its own, and views of the
    /// others.
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
        if self.parts.len() == 1 {
            return 0;
        }
        let tag = tag(key);
        let hash = if tag.len() == key.len() { hash } else { self.hash(tag) };
        partition_of_hash(hash, self.parts.len())
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

    /// All of them, in order.
    pub fn parts(&self) -> &[Store] {
        &self.parts
    }

    /// The memory of all arenas: the partitions', in order, then the libraries'.
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

    /// The reader of the arena in which a record was found.
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

    /// What the stores count; of partitions that are owned elsewhere only what this shard counted.
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

    /// Tells all partitions what happens when memory is full.
    pub fn set_eviction(&mut self, policy: Policy, samples: u32) {
        self.parts.iter_mut().for_each(|store| store.set_eviction(policy, samples));
    }

    /// [`Store::keep_ages`] of all partitions.
    pub fn keep_ages(&mut self, keep: bool) {
        self.parts.iter_mut().for_each(|store| store.keep_ages(keep));
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

    /// [`Store::take_busy`] of all partitions.
    pub fn take_busy(&mut self) -> bool {
        self.parts.iter_mut().fold(false, |busy, store| store.take_busy() | busy)
    }

    /// [`Store::take_lack`] of all partitions: the most.
    pub fn take_lack(&mut self) -> Lack {
        self.parts.iter_mut().map(Store::take_lack).max().unwrap_or_default()
    }

    /// [`Store::take_moment`] of all partitions that these keys lie in and others own, each its
    /// own.
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

    /// [`Store::clock_ms`], the latest of those that this thread owns; 0 without one.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        let owned = self.parts.iter().filter(|store| store.is_owner());
        owned.map(Store::clock_ms).max().unwrap_or(0)
    }

    /// Bytes of memory that all data may use.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.parts.iter().map(Store::capacity_bytes).sum()
    }

    /// Closes all partitions: see [`Store::close`].
    pub fn close(self, remove: bool) {
        self.parts.into_iter().for_each(|store| store.close(remove));
    }

    /// Applies a command that reads the whole keyspace, or keys of several partitions, here: views
    /// will do.
    ///
    /// # Panics
    ///
    /// If [`Op::span`] doesn't say that it can, or there are fewer arguments than its arity.
    pub fn apply_over_views<R: Reply>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match op {
            Op::MGet => {
                out.array(args.len() - 1);
                for key in &args[1..] {
                    let partition = self.partition_of(key);
                    self.parts[partition].apply(Op::Get, &[b"get", key], turn, out);
                }
            }
            Op::Exists | Op::Touch => {
                let counts = args[1..].iter().map(|key| {
                    let partition = self.partition_of(key);
                    i64::from(self.parts[partition].counts(op, key, turn))
                });
                let count = counts.sum();
                out.int(count);
            }
            Op::Keys => {
                let mut keys = Vec::new();
                let parts = self.parts.iter();
                parts.for_each(|store| store.collect_keys(args[1], turn, &mut keys));
                out.array(keys.len());
                keys.into_iter().for_each(|key| out.bulk(key));
            }
            Op::Scan => {
                // A cursor that is none is refused by whatever store.
                let at = cursor(args[1]).unwrap_or(0) % self.parts.len() as u64;
                let at = usize::try_from(at).unwrap_or(0);
                self.parts[at].apply(op, args, turn, out);
            }
            Op::RandomKey => {
                let mut random = Random(turn.random);
                let partition = self.pick(&mut random);
                // Numbers of its own: by those that chose the partition, only some of its keys
                // could be met.
                let turn = Turn { random: random.next(), ..*turn };
                self.parts[partition].apply(op, args, &turn, out);
            }
            _ => unreachable!("{} reads one partition", op.name()),
        }
    }

    /// A partition, each as likely as it has keys.
    fn pick(&self, random: &mut Random) -> usize {
        let keys = |store: &Store| store.reader().keys();
        let all: u64 = self.parts.iter().map(keys).sum();
        let mut left = random.below(all.max(1));
        let found = self.parts.iter().position(|store| {
            let is_here = left < keys(store);
            left = left.saturating_sub(keys(store));
            is_here
        });
        found.unwrap_or(0)
    }

    /// About how many bytes of values the reply to a command will have, which is told before it
    /// runs: what is longest and cheap to know. `args` are as many as its arity wants.
    #[must_use]
    pub fn reply_bytes(&self, op: Op, args: &[&[u8]], turn: &Turn<'_>) -> usize {
        let of_key = |key: &[u8]| {
            let hash = self.hash(key);
            self.parts[self.partition(key, hash)].value_bytes(hash, key, turn)
        };
        match op {
            Op::Get | Op::GetSet | Op::GetDel | Op::GetEx | Op::GetRange | Op::SubStr => {
                of_key(args[1])
            }
            Op::Set if args.len() > 3 => of_key(args[1]),
            Op::MGet => args[1..].iter().map(|key| of_key(key)).sum(),
            _ => 0,
        }
    }

    /// Applies a command about the whole keyspace to the partitions that are owned here: DBSIZE,
    /// FLUSHALL, FLUSHDB.
    pub fn apply_to_owned<R: Reply>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match op {
            Op::DbSize => {
                let keys: u64 = self.owned().map(|store| store.keys()).sum();
                out.int(length(usize::try_from(keys).unwrap_or(usize::MAX)));
            }
            Op::FlushAll | Op::FlushDb => match crate::apply::keys::check_flush_mode(args) {
                Ok(()) => {
                    self.owned().for_each(|store| store.flush(turn));
                    out.ok();
                }
                Err(text) => out.error(text),
            },
            _ => unreachable!("{op:?} isn't about all keys: see `Op::span`"),
        }
    }

    /// Keys with a prefix, about `count` per step, for the `db.scan` of functions: see
    /// [`Store::scan_keys`].
    pub fn scan_keys(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        turn: &Turn<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        let at = usize::try_from(cursor % self.parts.len() as u64).unwrap_or(0);
        self.parts[at].scan_keys(prefix, cursor, count, turn, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_what_redis_cluster_takes() {
        for (key, expected) in [
            ("plain", "plain"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("}{", "}{"),
            ("", ""),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "of {key}");
        }
    }

    #[test]
    fn hashes_fill_all_partitions_alike() {
        for partitions in [1, 2, 3, 7, MOST_PARTITIONS] {
            let mut counts = vec![0u32; partitions];
            for step in 0..64_000u32 {
                counts[partition_of_hash(step.wrapping_mul(67_109), partitions)] += 1;
            }
            let fair = 64_000 / u32::try_from(partitions).expect("small");
            assert!(counts.iter().all(|count| count.abs_diff(fair) <= fair / 4), "{counts:?}");
        }
        assert_eq!(partition_of_hash(u32::MAX, 7), 6);
    }

    #[test]
    fn a_walk_over_all_partitions_begins_and_ends_with_0() {
        for partitions in [1, 2, 5] {
            let place = |partition| PartitionNumber { partition, partitions };
            let mut cursor = 0;
            for partition in 0..partitions {
                assert_eq!(cursor % partitions, partition);
                assert_eq!(place(partition).inward(cursor), 0, "each is walked from its start");
                let inside = place(partition).outward(77);
                assert_eq!((inside % partitions, place(partition).inward(inside)), (partition, 77));
                cursor = place(partition).outward(0);
            }
            assert_eq!(cursor, 0);
        }
    }
}
