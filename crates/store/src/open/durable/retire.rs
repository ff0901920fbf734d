//! The end of a log: a start with `appendonly no` on arenas that have one.
//!
//! 1. The log is retired, durably, before the first change is made without it: so an old state
//!    can't return.
//! 2. It is retired only if the arenas can be served without it, since it may have what they lack;
//!    or if they are to go too. They can if they are whole, of this boot, and have each change that
//!    the log has: it may have gone on with other memory. Of a log that is damaged, or an older
//!    copy than the memory, the last isn't asked.
//! 3. What its journals have beyond the arenas was told to nobody, and is dropped.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::folder::names::{arena_of_name, names, path_of, system_path};
use crate::open::durable::base::save;
use crate::open::durable::found::{Findings, SHARDS_MOST, is_of_boot};
use crate::open::durable::plan::{ArenaLsns, Origin, StreamFacts};
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
/// It is another log, or can't be written; or an arena that is to be served is missing or damaged,
/// of another boot, or lacks what the log has. Nothing is changed then.
pub fn retire_log<S: Storage>(
    options: &StoreOptions,
    id: [u8; 16],
    boot_id: &[u8; 16],
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
        check_whole(options, boot_id).map_err(needed)?;
        check_newest(options, boot_id, world)?;
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

/// Refuses arenas that a start without their log would refuse, or that aren't of this boot.
fn check_whole(options: &StoreOptions, boot_id: &[u8; 16]) -> Result<(), StoreError> {
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
        if !is_of_boot(&header_of(&path)?, boot_id) {
            let what = format!("{} is of another boot", path.display());
            return Err(StoreError::RetireNeeded { what });
        }
    }
    Ok(())
}

/// Refuses arenas that lack what their log has, or that it went on without.
fn check_newest<S: Storage>(
    options: &StoreOptions,
    boot_id: &[u8; 16],
    world: &World<S>,
) -> Result<(), StoreError> {
    let findings = match Findings::look(options, boot_id, world) {
        Ok(findings) => findings,
        Err(error) if error.is_log_damage() => return Ok(()),
        // Memory has more; or a journal, which isn't needed any more, can't be read.
        Err(StoreError::LogOlder { .. } | StoreError::Journal(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for stream in findings.streams(options, [0; 2]) {
        let number = stream.number;
        let chain = findings.chains.get(stream.shard(findings.chains.len().max(1)));
        let log_last = chain.map(|chain| chain.last.get(&number).copied().unwrap_or(0));
        let committed = findings.headers.get(&number).map(|it| it.committed_lsn);
        let arena = committed.map(|it| ArenaLsns { committed: it, last: it });
        let facts = StreamFacts { log_last, journal: findings.journaled(number), arena };
        if facts.plan().is_none_or(|plan| plan.origin != Origin::Arena) {
            let what = format!("{} lacks changes that the log has", stream.spec.path.display());
            return Err(StoreError::RetireNeeded { what });
        }
    }
    Ok(())
}
