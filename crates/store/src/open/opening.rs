//! Opening a store: creates its arenas, or adopts those that an earlier server left.
//!
//! ```text
//! look at the folder ──> adopt or create each partition ──> the libraries ──> the manifest
//! ```
//!
//! 1. The folder is looked at as a whole (see `folder`) before any arena is opened or made.
//! 2. All partitions of a tenant agree on their number, and have one seed.
//! 3. The manifest is written when all arenas are there.
//! 4. The server ensures that no second server uses the directory.
//!
//! Thread: the one that starts the shard.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_log::{Storage, World, list as list_files, need_meta, read_meta};
use nigh_shm::{Adoption, ArenaSpec, Domain, Writer};

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::{Found, look};
use crate::folder::manifest::{MANIFEST, Manifest};
use crate::folder::names::{SYSTEM_TENANT, check_tenant, partitions_there, path_of, system_path};
use crate::open::durable::log_options::{LogOptions, OpenedLog};
use crate::open::durable::retire::{log_of, remove_journals};
use crate::open::durable::start::open_with_log;
use crate::open::store_options::{Opened, StoreOptions};
use crate::partition::arena_files::{ArenaFiles, ClosedArenas};
use crate::partition::store::Store;
use crate::partition::system_arena::SystemArena;
use crate::partition::writer_half::WriterHalf;
use nigh_shm::{MOST_PARTITIONS, PartitionNumber};

/// Opens all partitions of a tenant, and with the first the libraries.
pub(crate) fn open_all(
    options: &StoreOptions,
    domain: &Arc<Domain>,
) -> Result<(Vec<Store>, Opened), StoreError> {
    check_tenant(&options.tenant)?;
    make_dir(&options.dir)?;
    if options.fresh {
        remove_arenas(options)?;
    }
    if Edition::of(&options.dir, &options.tenant)? == Edition::One {
        return Err(StoreError::Edition { dir: options.dir.clone() });
    }
    let found = look(&options.dir, &options.tenant, Edition::Living)?;
    check_partitions(options, found.partitions)?;
    let system_path = system_path(&options.dir);
    let arenas = open_partitions(options, &found, domain)?;
    let system_spec = ArenaSpec {
        path: system_path.clone(),
        tenant: SYSTEM_TENANT.to_owned(),
        partition: 0,
        partitions: 1,
        seed: None,
        capacity_bytes: options.system_capacity_bytes,
    };
    let (system, system_adoption) = open_arena(&system_spec, found.has_system, domain)?;
    let manifest_error = list(options, found)?;
    let mut opened = Opened { system: system_adoption, manifest_error, ..Opened::default() };
    let stores = stores_of(options, system, arenas, &mut opened);
    Ok((stores, opened))
}

/// The same with a log: arenas that are missing are built from it.
pub(crate) fn open_all_with_log<S: Storage>(
    options: &StoreOptions,
    log: &LogOptions,
    world: &World<S>,
    domain: &Arc<Domain>,
) -> Result<(Vec<Store>, Opened, OpenedLog<S>), StoreError> {
    check_tenant(&options.tenant)?;
    make_dir(&options.dir)?;
    if !(1..=MOST_PARTITIONS).contains(&options.partitions) {
        return Err(StoreError::PartitionCount { wanted: options.partitions });
    }
    if options.fresh {
        begin_fresh(options, world)?;
    }
    if Edition::of(&options.dir, &options.tenant)? == Edition::One {
        return Err(StoreError::Edition { dir: options.dir.clone() });
    }
    let (arenas, log) = open_with_log(options, log, world, domain)?;
    let mut arenas = arenas.into_iter();
    let (system, system_adoption) = arenas.next().expect("the libraries' arena is the first");
    let path = |partition| path_of(&options.dir, &options.tenant, partition);
    let arenas = arenas.zip(0..).map(|((writer, adoption), it)| (path(it), writer, adoption));
    let manifest_error = if options.private { None } else { list_all(options)? };
    let mut opened = Opened { system: system_adoption, manifest_error, ..Opened::default() };
    let stores = stores_of(options, system, arenas.collect(), &mut opened);
    Ok((stores, opened, log))
}

/// The owners' stores over arenas that were opened.
fn stores_of(
    options: &StoreOptions,
    system: Writer,
    arenas: Vec<OpenArena>,
    opened: &mut Opened,
) -> Vec<Store> {
    opened.libraries = system.keys();
    let system_reader = system.reader();
    let mut system = Some(system);
    let partitions = arenas.len() as u64;
    let mut stores = Vec::with_capacity(arenas.len());
    for (partition, (path, writer, adoption)) in (0..).zip(arenas) {
        opened.count(adoption);
        let mut files = ArenaFiles { dir: options.dir.clone(), arenas: vec![path] };
        let librarian = system.take();
        if librarian.is_some() {
            files.arenas.push(system_path(&options.dir));
        }
        let libraries = SystemArena {
            reader: system_reader.clone(),
            writer: librarian.map_or_else(WriterHalf::elsewhere, WriterHalf::here),
        };
        let number = PartitionNumber { partition, partitions };
        stores.push(Store::owner(writer, libraries, files, number));
    }
    stores
}

type OpenArena = (PathBuf, Writer, Option<Adoption>);

/// Refuses a number of partitions other than the folder's: commands would look for keys in the
/// wrong partition.
fn check_partitions(options: &StoreOptions, found: Option<usize>) -> Result<(), StoreError> {
    let wanted = options.partitions;
    if !(1..=MOST_PARTITIONS).contains(&wanted) {
        return Err(StoreError::PartitionCount { wanted });
    }
    match found {
        Some(found) if found != wanted => {
            Err(StoreError::Partitions { dir: options.dir.clone(), found, wanted })
        }
        _ => Ok(()),
    }
}

/// Adopts the arenas that are there and creates the others, all with one seed.
fn open_partitions(
    options: &StoreOptions,
    found: &Found,
    domain: &Arc<Domain>,
) -> Result<Vec<OpenArena>, StoreError> {
    let mut seed = found.seed();
    let mut arenas = Vec::with_capacity(options.partitions);
    for partition in 0..options.partitions {
        let path = path_of(&options.dir, &options.tenant, partition);
        let spec = ArenaSpec {
            path: path.clone(),
            tenant: options.tenant.clone(),
            partition: number(partition),
            partitions: number(options.partitions),
            capacity_bytes: options.capacity_bytes / options.partitions as u64,
            seed,
        };
        let is_there = found.there.contains_key(&partition);
        let (writer, adoption) = open_arena(&spec, is_there, domain)?;
        seed = Some(writer.reader().seed());
        arenas.push((path, writer, adoption));
    }
    Ok(arenas)
}

/// Lists the tenant's arenas and the libraries' in the manifest, now that all of them are there. If
/// none of them is new, an error is only returned as a text: arenas are served from a full file
/// system too.
fn list(options: &StoreOptions, found: Found) -> Result<Option<String>, StoreError> {
    let was_whole = found.has_system && found.there.len() == options.partitions;
    let before = found.manifest.unwrap_or_default();
    let mut manifest = before.clone();
    manifest.0.insert(options.tenant.clone(), options.partitions);
    manifest.0.insert(SYSTEM_TENANT.to_owned(), 1);
    if manifest == before {
        return Ok(None);
    }
    match manifest.store(&options.dir) {
        Ok(()) => Ok(None),
        Err(error) if was_whole => Ok(Some(error.to_string())),
        Err(source) => Err(StoreError::Directory { path: options.dir.join(MANIFEST), source }),
    }
}

/// Lists the tenant's arenas and the libraries', which are all there, in the manifest. The log says
/// what there is too, so an error is only returned as a text.
fn list_all(options: &StoreOptions) -> Result<Option<String>, StoreError> {
    let mut manifest = Manifest::load(&options.dir)?.unwrap_or_default();
    let before = manifest.clone();
    manifest.0.insert(options.tenant.clone(), options.partitions);
    manifest.0.insert(SYSTEM_TENANT.to_owned(), 1);
    if manifest == before {
        return Ok(None);
    }
    Ok(manifest.store(&options.dir).err().map(|error| error.to_string()))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("at most MOST_PARTITIONS")
}

impl Opened {
    /// Adds the adoption of one of the data arenas.
    fn count(&mut self, adoption: Option<Adoption>) {
        let Some(one) = adoption else { return };
        let Some(sum) = &mut self.data else {
            self.data = adoption;
            return;
        };
        sum.keys += one.keys;
        sum.expires += one.expires;
        sum.redone_intent |= one.redone_intent;
        sum.continued_growth |= one.continued_growth;
        sum.incarnation = sum.incarnation.max(one.incarnation);
        sum.capacity_bytes += one.capacity_bytes;
    }
}

impl Store {
    /// Opens a keyspace of one partition.
    ///
    /// # Errors
    ///
    /// The directory or an arena can't be used; the message says which and why.
    ///
    /// # Panics
    ///
    /// If the options have more partitions: that is a [`crate::Keyspace`].
    pub fn open(
        options: &StoreOptions,
        domain: &Arc<Domain>,
    ) -> Result<(Store, Opened), StoreError> {
        assert!(options.partitions == 1, "a store is one partition");
        let (mut stores, opened) = open_all(options, domain)?;
        Ok((stores.remove(0), opened))
    }

    /// Closes the store. Its arenas stay for the next one, unless they are removed by what this
    /// returns: `None` of a view.
    pub fn close(mut self) -> Option<ClosedArenas> {
        self.rollback();
        let Store { files, data, reader, libraries, .. } = self;
        let region = Arc::clone(reader.region());
        drop((data, reader, libraries));
        if region.is_private() {
            // A child of a fork may have it mapped.
            region.set_over();
        }
        files.map(|files| ClosedArenas { files, region })
    }
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| StoreError::Directory { path: dir.to_owned(), source })
}

/// Begins with nothing beside a folder for a log, if neither it nor the arenas have one that
/// counts: it would bring the keys back. Files in the folder that refuse a start with a log refuse
/// this before anything goes.
fn begin_fresh<S: Storage>(options: &StoreOptions, world: &World<S>) -> Result<(), StoreError> {
    let meta = read_meta(&*world.storage)?;
    let retired = meta.as_ref().filter(|meta| meta.chains.is_empty()).map(|meta| meta.id);
    let of_memory = log_of(&options.dir)?;
    if of_memory.is_some() && of_memory != retired {
        return Err(StoreError::FreshLog);
    }
    if meta.is_some() && retired.is_none() {
        return Err(StoreError::FreshFolder);
    }
    need_meta(&list_files(&*world.storage)?, meta.as_ref())?;
    remove_arenas(options)?;
    // Those of a log that was being retired.
    remove_journals(&options.dir)
}

/// Removes the arenas that an earlier server left.
fn remove_arenas(options: &StoreOptions) -> Result<(), StoreError> {
    let failed = |path: &Path, source| StoreError::Directory { path: path.to_owned(), source };
    Manifest::remove(&options.dir).map_err(|source| failed(&options.dir.join(MANIFEST), source))?;
    let there = partitions_there(&options.dir, &options.tenant)?;
    let data = there.into_iter().map(|it| path_of(&options.dir, &options.tenant, it));
    for path in data.chain([system_path(&options.dir)]) {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(failed(&path, source));
            }
            _ => {}
        }
    }
    Ok(())
}

fn open_arena(
    spec: &ArenaSpec,
    is_there: bool,
    domain: &Arc<Domain>,
) -> Result<(Writer, Option<Adoption>), StoreError> {
    if is_there {
        let (mut writer, adoption) = Writer::adopt(spec, domain)?;
        writer.set_log_id(&[0; 16]); // a log that there was is retired
        return Ok((writer, Some(adoption)));
    }
    Ok((Writer::create(spec, domain)?, None))
}
