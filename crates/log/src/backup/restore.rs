//! Makes a log of a backup, in an empty folder and with a new id.
//!
//! 1. The backup is read whole before anything is written, and the copy behind it.
//! 2. The id stands in `meta` and in heads; frames don't hold it. So arenas and journals of the log
//!    that was backed up refuse the new one.
//! 3. `meta` is written last: a folder without it is no log.
//!
//! A program that has both folders.

use crate::backup::copying::{Behind, copy_file};
use crate::backup::error::BackupError;
use crate::backup::make::{beside, random_id};
use crate::backup::progress::{BackupPhase, BackupWatch, Progress};
use crate::backup::verify::verify;
use crate::error::LogError;
use crate::folder::listing::{Listing, list};
use crate::folder::meta_file::{MetaFault, read_meta, save_meta};
use crate::format::meta::Meta;
use crate::reader::ends::LogRecovery;
use crate::reader::log_file::ChainKey;
use crate::storage::{Storage, World};
use std::sync::Arc;

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreReport {
    /// The log's new id.
    pub id: [u8; 16],
    /// Files.
    pub files: u64,
    /// Bytes of frames.
    pub bytes: u64,
}

/// Restores a backup into an empty folder.
///
/// # Errors
/// As [`BackupError`] says; the folder is empty again then, as far as the system allows.
pub fn restore_backup<S: Storage, T: Storage>(
    backup: &World<S>,
    into: &Arc<T>,
    watch: &mut BackupWatch<'_>,
) -> Result<RestoreReport, BackupError> {
    let meta = read_meta(&*backup.storage).map_err(BackupError::Source)?;
    let Some(meta) = meta.filter(|meta| meta.mark.is_some()) else {
        return Err(BackupError::place(
            "it is no backup: its meta has no mark of one, or there is none",
        ));
    };
    need_empty(&list(&**into).map_err(BackupError::Target)?)?;
    let mut progress = Progress::new(watch);
    let bytes = verify(backup, &meta, &mut progress, BackupError::Source)?;
    let restored = copy_all(backup, &meta, into, bytes, &mut progress);
    restored.inspect_err(|_| {
        // What was made goes; a name that stays is told by the next try.
        for name in list(&**into).map(made_names).unwrap_or_default() {
            let _ = into.remove(&name);
        }
    })
}

fn made_names(listing: Listing) -> Vec<String> {
    let meta = listing.meta.then(|| crate::format::names::META.to_owned());
    let files = listing.files.iter().map(ToString::to_string);
    files.chain(listing.new).chain(meta).collect()
}

fn need_empty(listing: &Listing) -> Result<(), BackupError> {
    let Listing { files, new, others, meta } = listing;
    let first = files.first().map(ToString::to_string);
    let first = first.or_else(|| new.iter().chain(others).next().cloned());
    match first.or_else(|| meta.then(|| "meta".to_owned())) {
        None => Ok(()),
        Some(name) => Err(BackupError::place(format!(
            "the folder to restore into isn't empty: it has {name}; name a new one"
        ))),
    }
}

fn copy_all<S: Storage, T: Storage>(
    backup: &World<S>,
    meta: &Meta,
    into: &Arc<T>,
    bytes: u64,
    progress: &mut Progress<'_, '_>,
) -> Result<RestoreReport, BackupError> {
    let id = random_id(&*backup.chance);
    progress.begin(BackupPhase::Copying, bytes);
    let mut files = 0;
    for chain in &meta.chains {
        let key = ChainKey::of(meta, chain);
        let found = LogRecovery::find(backup, meta, chain).map_err(BackupError::Source)?;
        for file in &found.files {
            let from = &*backup.storage;
            copy_file(from, &**into, &key, file, &id, Behind::Zeros, progress)?;
            files += 1;
        }
    }
    let synced = into.sync_folder();
    synced.map_err(|e| BackupError::Target(LogError::io(".", 0, "syncing the folder", e)))?;
    let copied = Meta { id, ..meta.clone() };
    let world = beside(backup, Arc::clone(into));
    verify(&world, &copied, progress, BackupError::NotWhole)?;
    let log = Meta { ends: Vec::new(), mark: None, ..copied };
    match save_meta(&**into, &log) {
        Ok(()) => Ok(RestoreReport { id, files, bytes }),
        Err(MetaFault::Unchanged(error) | MetaFault::InDoubt(error)) => {
            Err(BackupError::Target(error))
        }
    }
}
