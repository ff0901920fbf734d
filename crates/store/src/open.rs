//! Opening a store: creates its arenas or adopts those that an earlier server left.
//!
//! ```text
//! <dir>/<tenant>.0.arena    the tenant's data, partition 0; .1 and so on if there are more
//! <dir>/_system.0.arena     libraries
//! ```
//!
//! 1. All partitions of a tenant are opened by one number of partitions, and have one seed.
//! 2. That no second server uses the directory is the server's to ensure.
//!
//! Thread: the one that starts the shard.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_shm::{Adoption, ArenaSpec, Domain, Writer};

use crate::error::StoreError;
use crate::half::{Libraries, WriterHalf};
use crate::hits::Inbox;
use crate::keyspace::{MOST_PARTITIONS, Place};
use crate::options::{Opened, StoreOptions};
use crate::store::{Counters, Store};
use crate::sweep::Sweep;
use crate::watch::Watches;

/// Tenant of the system arena; no tenant of users begins with `_`.
const SYSTEM_TENANT: &str = "_system";
/// Longest name of a tenant, bytes: what the arena's header holds.
const MAX_TENANT_BYTES: usize = 128;

/// The files of a store, which go with it if it is removed.
pub(crate) struct Files {
    dir: PathBuf,
    arenas: Vec<PathBuf>,
}

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
    check_partitions(options)?;
    let system_path = options.dir.join(format!("{SYSTEM_TENANT}.0.arena"));
    let mut arenas = open_partitions(options, domain)?;
    let system_spec = ArenaSpec {
        path: system_path.clone(),
        tenant: SYSTEM_TENANT.to_owned(),
        partition: 0,
        partitions: 1,
        seed: None,
        capacity_bytes: options.system_capacity_bytes,
    };
    let (system, system_adoption) = open_arena(&system_spec, domain)?;
    let mut opened = Opened { system: system_adoption, libraries: system.keys(), data: None };
    let system_reader = system.reader();
    let mut system = Some(system);
    let partitions = arenas.len() as u64;
    let mut stores = Vec::with_capacity(arenas.len());
    for (partition, (path, writer, adoption)) in (0..).zip(arenas.drain(..)) {
        opened.count(adoption);
        let mut files = Files { dir: options.dir.clone(), arenas: vec![path] };
        let librarian = system.take();
        if librarian.is_some() {
            files.arenas.push(system_path.clone());
        }
        let rings = Arc::default();
        stores.push(Store {
            reader: writer.reader(),
            data: WriterHalf::here(writer),
            transaction: None,
            watches: Watches::default(),
            counters: Counters::default(),
            sweep: Sweep::default(),
            tracks: false,
            tracks_reads: false,
            eviction: None,
            hit_log: None,
            inbox: Inbox::new(Arc::clone(&rings)),
            new_rings: rings,
            libraries: Libraries {
                reader: system_reader.clone(),
                writer: librarian.map_or_else(WriterHalf::elsewhere, WriterHalf::here),
            },
            files: Some(files),
            place: Place { partition, partitions },
        });
    }
    Ok((stores, opened))
}

/// The file of a partition.
pub(crate) fn path_of(options: &StoreOptions, partition: usize) -> PathBuf {
    options.dir.join(format!("{}.{partition}.arena", options.tenant))
}

/// The partitions whose arenas are in the directory, in order.
pub(crate) fn partitions_there(options: &StoreOptions) -> Result<Vec<usize>, StoreError> {
    let failed = |source| StoreError::Directory { path: options.dir.clone(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(&options.dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let number = name
            .strip_prefix(options.tenant.as_str())
            .and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".arena"));
        // No other names than those that `path_of` gives: 03 or +3 isn't partition 3.
        found.extend((0..MOST_PARTITIONS).find(|it| number == Some(it.to_string().as_str())));
    }
    found.sort_unstable();
    Ok(found)
}

/// How many partitions the tenant's data in the directory has; `None` if there is none. The first arena says
/// so; one whose number is none of theirs is nobody's, and refused.
pub(crate) fn partitions_left(options: &StoreOptions) -> Result<Option<usize>, StoreError> {
    check_tenant(&options.tenant)?;
    let there = partitions_there(options)?;
    let Some(first) = there.first() else { return Ok(None) };
    let first = path_of(options, *first);
    let of_header = nigh_shm::partitions_of(&first)?;
    let partitions = usize::try_from(of_header).unwrap_or(usize::MAX);
    let Some(stray) = there.into_iter().find(|partition| *partition >= partitions) else {
        return Ok(Some(partitions));
    };
    let path = path_of(options, stray);
    let says = match nigh_shm::partitions_of(&path) {
        Ok(other) => format!("it says that it is one of {other} partition(s)"),
        Err(error) => error.to_string(),
    };
    Err(StoreError::Stray { path, says, first, partitions })
}

/// Refuses a directory with another number of partitions: keys would lie where nobody looks for them.
fn check_partitions(options: &StoreOptions) -> Result<(), StoreError> {
    let wanted = options.partitions;
    if !(1..=MOST_PARTITIONS).contains(&wanted) {
        return Err(StoreError::PartitionCount { wanted });
    }
    match partitions_left(options)? {
        Some(found) if found != wanted => {
            Err(StoreError::Partitions { dir: options.dir.clone(), found, wanted })
        }
        _ => Ok(()),
    }
}

type OpenArena = (PathBuf, Writer, Option<Adoption>);

/// Adopts the arenas that are there and creates the others, all with one seed.
fn open_partitions(
    options: &StoreOptions,
    domain: &Arc<Domain>,
) -> Result<Vec<OpenArena>, StoreError> {
    let there = partitions_there(options)?;
    let mut seed = None;
    let mut keys = 0;
    let mut arenas: Vec<Option<OpenArena>> = (0..options.partitions).map(|_| None).collect();
    // Those that are there first: they say what the others are to be like.
    for is_there in [true, false] {
        for (partition, place) in arenas.iter_mut().enumerate() {
            if there.contains(&partition) != is_there {
                continue;
            }
            let path = path_of(options, partition);
            if !is_there && keys > 0 {
                // Only a first start that was cut off leaves some arenas, and those are empty.
                return Err(StoreError::Missing { path });
            }
            let spec = ArenaSpec {
                path: path.clone(),
                tenant: options.tenant.clone(),
                partition: number(partition),
                partitions: number(options.partitions),
                capacity_bytes: options.capacity_bytes / options.partitions as u64,
                seed,
            };
            let (writer, adoption) = open_arena(&spec, domain)?;
            if *seed.get_or_insert(writer.reader().seed()) != writer.reader().seed() {
                return Err(StoreError::Foreign { path });
            }
            keys += writer.keys();
            *place = Some((path, writer, adoption));
        }
    }
    Ok(arenas.into_iter().flatten().collect())
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("at most MOST_PARTITIONS")
}

impl Opened {
    /// Adds what adopting one of the data arenas found.
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
    /// If more partitions are asked for: those are a [`crate::Keyspace`]'s.
    pub fn open(
        options: &StoreOptions,
        domain: &Arc<Domain>,
    ) -> Result<(Store, Opened), StoreError> {
        assert!(options.partitions == 1, "a store is one partition");
        let (mut stores, opened) = open_all(options, domain)?;
        Ok((stores.remove(0), opened))
    }

    /// Closes the store. Its arenas stay for the next one, or with `remove` go, and with them the
    /// directory if nothing else is in it. What can't be removed stays.
    pub fn close(mut self, remove: bool) {
        self.rollback();
        let Store { files, data, reader, libraries, .. } = self;
        drop((data, reader, libraries));
        if remove && let Some(files) = files {
            // The server ends anyway, and what stays is adopted or replaced by the next one.
            for arena in &files.arenas {
                let _ = fs::remove_file(arena);
            }
            let _ = fs::remove_dir(&files.dir);
        }
    }
}

fn check_tenant(name: &str) -> Result<(), StoreError> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = !name.starts_with(['.', '_']);
    if !name.is_empty() && name.len() <= MAX_TENANT_BYTES && begins_well && name.bytes().all(usable)
    {
        return Ok(());
    }
    Err(StoreError::TenantName { name: name.to_owned() })
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| StoreError::Directory { path: dir.to_owned(), source })
}

/// Throws away what an earlier server left.
fn remove_arenas(options: &StoreOptions) -> Result<(), StoreError> {
    let there = partitions_there(options)?;
    let data = there.into_iter().map(|partition| path_of(options, partition));
    for path in data.chain([options.dir.join(format!("{SYSTEM_TENANT}.0.arena"))]) {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(StoreError::Directory { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn open_arena(
    spec: &ArenaSpec,
    domain: &Arc<Domain>,
) -> Result<(Writer, Option<Adoption>), StoreError> {
    let directory = |source| StoreError::Directory { path: spec.path.clone(), source };
    if spec.path.try_exists().map_err(directory)? {
        let (writer, adoption) = Writer::adopt(spec, domain)?;
        return Ok((writer, Some(adoption)));
    }
    Ok((Writer::create(spec, domain)?, None))
}
