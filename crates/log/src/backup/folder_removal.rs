//! Removes the files of a backup's folder, and no others. One thread.

use crate::backup::error::BackupError;
use crate::error::LogError;
use crate::folder::listing::{Listing, list};
use crate::format::names::{LOCK, META};
use crate::storage::Storage;
use std::path::Path;

/// Refuses a folder with names that a backup hasn't.
///
/// # Errors
/// `Place`, which tells one of them.
pub(super) fn refuse_others(path: &Path, listing: &Listing) -> Result<(), BackupError> {
    match listing.others.first() {
        None => Ok(()),
        Some(name) => Err(BackupError::place(format!(
            "{} has {name}, which is no part of a backup: name another folder",
            path.display()
        ))),
    }
}

/// Removes all files of a backup, the lock last; meta first, so that what is left is none.
///
/// # Errors
/// As the system says.
pub(super) fn remove_files<S: Storage>(folder: &S, with_lock: bool) -> Result<(), LogError> {
    let listing = list(folder)?;
    let files = listing.files.iter().map(ToString::to_string);
    let lock = with_lock.then(|| LOCK.to_owned());
    let names = std::iter::once(META.to_owned()).chain(files).chain(listing.new).chain(lock);
    for name in names {
        folder.remove(&name).map_err(|error| LogError::io(&name, 0, "removing", error))?;
    }
    Ok(())
}
