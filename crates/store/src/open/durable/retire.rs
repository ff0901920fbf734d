//! The end of a log: a start with `appendonly no` on arenas that have one.
//!
//! 1. The log is retired, durably, before the first change is made without it: so an old state
//!    can't return.
//! 2. It is retired only if the arenas can be served without it, since it may have what they lack;
//!    or if they are to go too.
//! 3. What its journals have beyond the arenas was told to nobody, and is dropped.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::folder::names::{arena_of_name, names, path_of, system_path};
use crate::open::durable::base::save;
use crate::open::durable::found::SHARDS_MOST;
use crate::open::store_options::StoreOptions;
use nigh_log::{Storage, World, list, read_meta, remove_unnamed};
use nigh_shm::{JournalFile, header_of, journal_path, verify};
use std::io::ErrorKind;
use std::path::Path;

/// The id of the log that the arenas or journals of a folder have; `None`: they have none.
///
/// # Errors
///
/// The folder can't be read.
pub fn log_of(dir: &Path) -> Result<Option<[u8; 16]>, StoreError> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let arenas = names(dir)?.into_iter().filter(|name| arena_of_name(name).is_some());
    let mut ids = arenas.filter_map(|name| Some(header_of(&dir.join(name)).ok()?.log_id));
    if let Some(id) = ids.find(|id| *id != [0; 16]) {
        return Ok(Some(id));
    }
    // A log that was begun while a server served, which ended before its arenas had the id.
    for shard in 0..SHARDS_MOST {
        if let Some(journal) = JournalFile::look(dir, shard)? {
            return Ok(Some(journal.info().log_id));
        }
    }
    Ok(None)
}

/// Retires the log of a store's arenas, which must be this world's: its files and the journals go.
/// The arenas have its id until they are opened, or removed for a fresh start.
///
/// # Errors
///
/// It is another log, or can't be written; or an arena that is to be served is missing or damaged.
/// Nothing is changed then.
pub fn retire_log<S: Storage>(
    options: &StoreOptions,
    id: [u8; 16],
    world: &World<S>,
) -> Result<(), StoreError> {
    let dir = &options.dir;
    let missing = || StoreError::RetireMissing { dir: dir.clone() };
    let mut meta = read_meta(&*world.storage)?.ok_or_else(missing)?;
    if meta.id != id || meta.mark.is_some() {
        return Err(missing());
    }
    if !meta.chains.is_empty() && !options.fresh {
        let needed = |error| match error {
            StoreError::RetireNeeded { .. } => error,
            error => StoreError::RetireNeeded { what: error.to_string() },
        };
        check_whole(options).map_err(needed)?;
    }
    meta.chains.clear();
    save(world, &meta)?;
    remove_unnamed(&*world.storage, &list(&*world.storage)?, &meta)?;
    remove_journals(dir)
}

/// Removes the journals of all shards: with arenas that go too.
///
/// # Errors
///
/// The folder can't be changed.
pub fn remove_journals(dir: &Path) -> Result<(), StoreError> {
    for shard in 0..SHARDS_MOST {
        let path = journal_path(dir, shard);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(StoreError::Directory { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses arenas that a start without their log would refuse.
fn check_whole(options: &StoreOptions) -> Result<(), StoreError> {
    let found = look(&options.dir, &options.tenant, Edition::Living)?;
    let (there, wanted) = (found.partitions.unwrap_or(0), options.partitions);
    if there != wanted {
        let dir = options.dir.clone();
        return Err(StoreError::Partitions { dir, found: there, wanted });
    }
    let data = (0..wanted).map(|it| path_of(&options.dir, &options.tenant, it));
    for path in data.chain([system_path(&options.dir)]) {
        let report = verify(&path)?;
        if let Some(finding) = report.findings.first() {
            let what = format!("{}, at {:#x}: {}", path.display(), finding.offset, finding.what);
            return Err(StoreError::RetireNeeded { what });
        }
    }
    Ok(())
}
