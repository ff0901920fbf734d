//! The end of a log: a start with `appendonly no` on arenas that have one.
//!
//! 1. The log is retired, durably, before the first change is made without it: so an old state
//!    can't return.
//! 2. What its journals have beyond the arenas was told to nobody, and is dropped.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::folder::names::{arena_of_name, names};
use crate::open::durable::base::save;
use crate::open::durable::found::SHARDS_MOST;
use nigh_log::{Storage, World, list, read_meta, remove_unnamed};
use nigh_shm::{header_of, journal_path};
use std::io::ErrorKind;
use std::path::Path;

/// The id of the log that the arenas of a folder have; `None`: they have none.
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
    Ok(ids.find(|id| *id != [0; 16]))
}

/// Retires the log of the arenas in a folder, which must be this world's: its files and the
/// journals go. The arenas have its id until they are opened.
///
/// # Errors
///
/// It is another log, or can't be written.
pub fn retire_log<S: Storage>(
    dir: &Path,
    id: [u8; 16],
    world: &World<S>,
) -> Result<(), StoreError> {
    let missing = || StoreError::RetireMissing { dir: dir.to_owned() };
    let mut meta = read_meta(&*world.storage)?.ok_or_else(missing)?;
    if meta.id != id {
        return Err(missing());
    }
    meta.chains.clear();
    save(world, &meta)?;
    remove_unnamed(&*world.storage, &list(&*world.storage)?, &meta)?;
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
