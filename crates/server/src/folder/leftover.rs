//! The folder that `nigh convert` makes beside the arenas' one, and leaves there if it is cut off.
//!
//! ```text
//! DIR           lock, arenas          what is served
//! DIR.convert   lock, more arenas     half a copy, or what a copy replaced: not needed
//! ```
//!
//! 1. The remover holds the lock of DIR, and takes the leftover's own. So no conversion is at work
//!    on it.
//! 2. Nothing is removed but what servers and conversions make, and links to what stays at DIR.
//!
//! Any thread, any process.

use rustix::fs::{FlockOperation, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that the user of a folder holds locked.
pub const LOCK_FILE: &str = "lock";
/// What is appended to the folder's name for the copy's.
const SUFFIX: &str = ".convert";
/// How the names of arenas end, and of those that were not made to the end.
const ENDINGS: [&str; 2] = [".arena", ".arena.new"];

/// Why something that a conversion left can't be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeftoverError {
    /// Something else has its name, or lies in it.
    #[error(
        "{} is in the way of the copy, and is nothing that a conversion leaves: \
         move it elsewhere first",
        .0.display()
    )]
    InTheWay(PathBuf),
    /// Somebody uses it.
    #[error("a server, or another nigh convert, uses {}: stop it first", .0.display())]
    InUse(PathBuf),
    /// The system refuses.
    #[error("can't remove {}: {cause}", path.display())]
    System {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// The folder of the copy, for that of the arenas; `None` if that has no parent.
#[must_use]
pub fn beside(dir: &Path) -> Option<PathBuf> {
    let mut name = dir.file_name()?.to_owned();
    name.push(SUFFIX);
    Some(dir.parent()?.join(name))
}

/// Whether a folder has the name of one that a conversion leaves.
pub(crate) fn has_its_name(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.as_bytes().ends_with(SUFFIX.as_bytes()))
}

/// Whether this is the name of a file that servers make in their folder.
fn is_ours(name: &str) -> bool {
    [LOCK_FILE, nigh_store::MANIFEST, nigh_store::NEW_MANIFEST].contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether two are one file.
#[must_use]
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The files of a folder that is to go: only what servers and conversions make, and second links to
/// what the data's folder holds.
fn removable(path: &Path, dir: &Path) -> Result<Vec<PathBuf>, LeftoverError> {
    let failed = |cause| LeftoverError::System { path: path.to_owned(), cause };
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let there = dir.join(entry.file_name()).symlink_metadata();
        let is_link = there.is_ok_and(|there| {
            entry.metadata().is_ok_and(|here| !here.is_dir() && is_same(&here, &there))
        });
        if !is_link && !entry.file_name().to_str().is_some_and(is_ours) {
            return Err(LeftoverError::InTheWay(entry.path()));
        }
        files.push(entry.path());
    }
    Ok(files)
}

/// Removes the folder beside `dir`, whose lock the caller holds.
///
/// # Errors
/// It holds something else, or the system refuses. With something else in it nothing is removed.
pub fn remove(path: &Path, dir: &Path) -> Result<(), LeftoverError> {
    let failed = |cause| LeftoverError::System { path: path.to_owned(), cause };
    let is_lock = |path: &PathBuf| path.file_name().is_some_and(|name| name == LOCK_FILE);
    let (lock, rest): (Vec<_>, Vec<_>) = removable(path, dir)?.into_iter().partition(is_lock);
    // The lock last, so that nobody takes the folder before it is empty.
    rest.into_iter().chain(lock).try_for_each(std::fs::remove_file).map_err(failed)?;
    std::fs::remove_dir(path).map_err(failed)
}

/// Removes what a conversion of `dir`, whose lock the caller holds, left when it was cut off. True
/// if there was something.
///
/// # Errors
/// Something else has that name, somebody uses it, or the system refuses.
pub fn remove_leftover(dir: &Path) -> Result<bool, LeftoverError> {
    let Some(path) = beside(dir) else { return Ok(false) };
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Ok(found) if found.is_dir() => {}
        _ => return Err(LeftoverError::InTheWay(path)),
    }
    removable(&path, dir)?;
    let _lock = lock(&path)?;
    remove(&path, dir)?;
    Ok(true)
}

/// Takes the folder's lock, whose file is made if it is missing.
pub(crate) fn lock(path: &Path) -> Result<File, LeftoverError> {
    let failed = |cause| LeftoverError::System { path: path.to_owned(), cause };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(path.join(LOCK_FILE), flags, 0o600.into());
    let lock = File::from(lock.map_err(|errno| failed(errno.into()))?);
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LeftoverError::InUse(path.to_owned())),
        Err(errno) => Err(failed(errno.into())),
    }
}
