//! The log of a copy: new chains with all that the copy has, which take the place of those that
//! counted.
//!
//! ```text
//! a new generation counts ── chains, synced ── one renaming of meta: seeds, partitions, chains ── old files go
//! ```
//!
//! 1. Until the renaming counts, the log is that of the old arenas; from then on it is the copy's.
//!    Arenas of the other kind have another seed, so a start sets them aside, and builds what is
//!    missing from the log. So it doesn't matter when the arenas are swapped.
//! 2. The journals have no entries: the start that opened the log has written these to it.
//! 3. What is dropped before the renaming removes its files. If whether that counts isn't known,
//!    nothing is removed, and all chains are broken: the next start writes a base.
//!
//! Thread: the one that opened the keyspaces.

use std::path::Path;
use std::sync::Arc;

use nigh_log::{Meta, MetaFault, Storage, World, list, remove_chains, remove_unnamed};
use nigh_shm::{HeaderInfo, JournalFile, Writer, header_of};

use crate::convert::copying::{Left, left_in};
use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::names::path_of;
use crate::keyspace::Keyspace;
use crate::open::durable::base::{chains_of, name_chains, next_generation, of_fault, write_chain};
use crate::open::durable::live_log::LiveFault;
use crate::open::durable::log_options::{LogOptions, OpenedLog};
use crate::open::durable::streams_of::{
    DEFAULT_NUMBER, SYSTEM_NUMBER, SYSTEM_STREAM, data_stream, shard_of,
};

/// Looks for a tenant's data in a log and its arenas, of which some or all may be missing; `None`
/// if there is none. If no arena tells the bytes of memory, they are 0.
///
/// # Errors
///
/// The directory or an arena can't be read, or the arenas have changes of a time without the log.
pub fn left_in_log(dir: &Path, tenant: &str, meta: &Meta) -> Result<Option<Left>, StoreError> {
    if meta.chains.is_empty() {
        // The log is over, or isn't begun: all is in the arenas.
        return left_in(dir, tenant, Edition::Living);
    }
    let Some(line) = meta.tenants.get(&DEFAULT_NUMBER).filter(|line| line.name == tenant) else {
        return Ok(None);
    };
    let partitions = line.partitions as usize;
    let headers = (0..partitions).filter_map(|it| header_of(&path_of(dir, tenant, it)).ok());
    let headers: Vec<_> = headers.collect();
    if headers.iter().any(|it| it.log_id == [0; 16] && it.committed_lsn > 0) {
        return Err(StoreError::Unlogged { dir: dir.to_owned() });
    }
    let bytes = |it: &HeaderInfo| it.capacity_bytes() * u64::from(it.partitions);
    let capacity_bytes = headers.iter().filter(|it| it.log_id == meta.id).map(bytes).max();
    Ok(Some(Left { partitions, capacity_bytes: capacity_bytes.unwrap_or(0) }))
}

/// See the header of this file.
pub struct Conversion<S: Storage> {
    world: World<S>,
    /// What counts.
    meta: Meta,
    generation: u64,
    /// By shard.
    journals: Vec<Arc<JournalFile>>,
    /// By shard; each chain's newest file.
    newest: Vec<u64>,
    /// The seed of the libraries, the seed of the data, its partitions.
    tenants: (u32, u32, u32),
    /// The files aren't this one's to remove.
    is_settled: bool,
}

impl<S: Storage> Conversion<S> {
    /// Writes all that `copy` has into chains which don't count yet; `opened` is the log of what it
    /// is a copy of, to which nothing is written any more. `clock_ms` is the time by which the copy
    /// has judged expiry, Unix ms. `goes_on` is asked before each record.
    ///
    /// # Errors
    ///
    /// A file can't be written, or a record of the copy is bad; or [`StoreError::Stopped`]. The log
    /// is as it was.
    pub fn write(
        opened: OpenedLog<S>,
        options: &LogOptions,
        copy: &mut Keyspace,
        clock_ms: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Conversion<S>, StoreError> {
        let OpenedLog { world, mut meta, shards, .. } = opened;
        let journals = shards.iter().map(|it| Arc::clone(it.journal.file())).collect();
        drop(shards);
        let generation = next_generation(&world, &mut meta)?;
        let partitions = u32::try_from(copy.partitions()).expect("at most MOST_PARTITIONS");
        let seeds = [copy.librarian().libraries.reader.seed(), copy.reader(0).seed()];
        let mut it = Conversion {
            world,
            meta,
            generation,
            journals,
            newest: Vec::new(),
            tenants: (seeds[0], seeds[1], partitions),
            is_settled: false,
        };
        // As a start does: an arena without the id has nothing that the log lacks.
        let system = &mut copy.librarian_mut().libraries.writer;
        join(system, &it.meta.id, &options.boot_id, clock_ms);
        for partition in 0..copy.partitions() {
            let arena = &mut copy.part_mut(partition).data;
            join(arena, &it.meta.id, &options.boot_id, clock_ms);
        }
        it.write_chains(options, copy, clock_ms, goes_on)?;
        Ok(it)
    }

    fn shards(&self) -> u32 {
        u32::try_from(self.journals.len()).expect("at most 64 shards")
    }

    fn write_chains(
        &mut self,
        options: &LogOptions,
        copy: &Keyspace,
        clock_ms: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let shards = self.shards();
        for chain in chains_of(self.generation, shards) {
            let is_of =
                |partition: &usize| shard_of(*partition, shards as usize) == chain.shard as usize;
            let mut arenas: Vec<(u32, &Writer)> = Vec::new();
            if is_of(&0) {
                arenas.push((SYSTEM_STREAM, &copy.librarian().libraries.writer));
            }
            let data = (0..copy.partitions()).filter(is_of);
            arenas.extend(data.map(|it| (data_stream(it), &*copy.part(it).data)));
            let at = (options.settings, clock_ms);
            let writer = write_chain((&self.world, &self.meta), chain, &arenas, at, goes_on)?;
            self.newest.push(writer.newest_file());
        }
        Ok(())
    }

    /// Has the new chains count, and no others.
    ///
    /// # Errors
    ///
    /// [`LiveFault`]: the old ones count, or it isn't known which.
    pub fn name(&mut self) -> Result<(), LiveFault> {
        let mut meta = self.meta.clone();
        let (system_seed, seed, partitions) = self.tenants;
        if let Some(line) = meta.tenants.get_mut(&SYSTEM_NUMBER) {
            line.seed = system_seed;
        }
        if let Some(line) = meta.tenants.get_mut(&DEFAULT_NUMBER) {
            (line.seed, line.partitions) = (seed, partitions);
        }
        match name_chains(&self.world, &mut meta, self.generation, self.shards()) {
            Ok(()) => {}
            Err(fault @ MetaFault::Unchanged(_)) => {
                return Err(LiveFault::Unchanged(of_fault(fault)));
            }
            Err(fault @ MetaFault::InDoubt(_)) => {
                self.is_settled = true;
                self.journals.iter().for_each(|journal| journal.set_broken(self.generation));
                return Err(LiveFault::InDoubt(of_fault(fault)));
            }
        }
        self.is_settled = true;
        self.meta = meta;
        for (journal, newest) in self.journals.iter().zip(&self.newest) {
            journal.set_newest_file(*newest);
            journal.set_generation(self.generation);
        }
        Ok(())
    }

    /// Removes the files of the chains that counted before. Returns what hinders that; the next
    /// start removes them too.
    ///
    /// # Panics
    ///
    /// If the new ones don't count.
    pub fn remove_old(self) -> Option<String> {
        let counts = self.meta.chains.iter().all(|it| it.generation == self.generation);
        assert!(counts, "old chains go when new ones count");
        let storage = &*self.world.storage;
        let removed =
            list(storage).and_then(|listing| remove_unnamed(storage, &listing, &self.meta));
        removed.err().map(|error| error.to_string())
    }
}

impl<S: Storage> Drop for Conversion<S> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let chains: Vec<_> = chains_of(self.generation, self.shards()).collect();
        let storage = &*self.world.storage;
        // The next start removes what is left.
        let _ = list(storage).and_then(|listing| remove_chains(storage, &listing, &chains));
    }
}

/// Gives an arena the ids of the log and of the boot, and the time by which expiry was judged.
fn join(arena: &mut Writer, log_id: &[u8; 16], boot_id: &[u8; 16], clock_ms: u64) {
    arena.set_log_id(log_id);
    arena.set_boot_id(boot_id);
    arena.note_time(clock_ms);
}
