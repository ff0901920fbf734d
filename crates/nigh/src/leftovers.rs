//! Memory folders of databases that were killed, and then removed: nobody opens them again, so
//! the next open of any database gives their memory back.
//!
//! ```text
//! nigh-ID-DEVICE-INODE ── ours? ── its database gone? ── lock ── still gone? ── all on disk? ──> removed
//!                                                                    └ no ──> noted, removed an hour later
//! ```
//!
//! 1. A database is gone if its path names another folder or none, while the file system is there
//!    on which it lay, and if neither it nor a folder above it was renamed.
//! 2. It may have been moved to another folder, which nobody can see. What is removed at once, the
//!    log has too: then a database that was moved loses nothing. What the log lacks, the last
//!    second of a killed process at most, stays for an hour after it was first found gone.
//! 3. A folder is removed under its lock, which each owner of a database has: so never one that is
//!    in use.
//!
//! The thread that opens.

use crate::folders::{GONE, LOCK, NAME, RECORD, has_name, remove_folder};
use nigh_log::{RealFolder, list, look_at_meta};
use nigh_shm::{end_file, header_of};
use nigh_store::{MANIFEST, NEW_MANIFEST, TMPFS};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long what the log lacks is kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Folders that one open looks at, and folders beside a database's, at most.
const FOLDERS_MOST: usize = 10_000;

/// Removes the leftovers that there are, but for `own`.
pub(crate) fn sweep(own: &Path) {
    let Ok(there) = Path::new(TMPFS).read_dir() else { return };
    for entry in there.flatten().take(FOLDERS_MOST) {
        let memory = entry.path();
        if memory != own
            && let Some(leftover) = Leftover::of(memory)
        {
            leftover.remove();
        }
    }
}

/// A memory folder whose database is gone.
struct Leftover {
    memory: PathBuf,
    /// The id of its log, and the database's folder.
    id: [u8; 16],
    device: u64,
    inode: u64,
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

impl Leftover {
    /// `None` if it isn't one.
    fn of(memory: PathBuf) -> Option<Leftover> {
        let mut parts = memory.file_name()?.to_str()?.strip_prefix(NAME)?.split('-');
        let id = parts.next().filter(|it| it.len() == 32)?;
        let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (device, inode) = (number()?, number()?);
        let it = memory.symlink_metadata().ok()?;
        let is_ours = it.is_dir() && it.uid() == rustix::process::geteuid().as_raw();
        let leftover = Leftover { memory, id, device, inode };
        (is_ours && leftover.is_gone()?).then_some(leftover)
    }

    /// Whether its database is gone; `None` if nobody knows where that lay.
    fn is_gone(&self) -> Option<bool> {
        let record = std::fs::read(self.memory.join(RECORD)).ok()?;
        let database = Path::new(OsStr::from_bytes(&record));
        match self.is_of(database) {
            Ok(true) => return Some(false),
            Ok(false) => {}
            Err(error) if is_absent(&error) => {}
            Err(_) => return None,
        }
        if !database.is_absolute() {
            return None;
        }
        let mut above = database.ancestors().skip(1).skip_while(|it| !it.is_dir()).peekable();
        if above.peek()?.metadata().ok()?.dev() != self.device {
            return None; // its file system isn't mounted
        }
        let is_there = |it: &Path| it.metadata().is_ok_and(|it| it.dev() == self.device);
        let is_none = |it| self.is_renamed_in(it, database).map(|is_renamed| !is_renamed);
        above.take_while(|it| is_there(it)).map(is_none).try_fold(true, |all, it| Some(all && it?))
    }

    /// Whether the database, or the folder that leads to it, has another name in a folder above it
    /// now; `None` if there is too much to look at.
    fn is_renamed_in(&self, above: &Path, database: &Path) -> Option<bool> {
        let rest: PathBuf = database.strip_prefix(above).ok()?.components().skip(1).collect();
        let mut beside = above.read_dir().ok()?.flatten();
        let folders = beside.by_ref().filter(|it| it.file_type().is_ok_and(|it| it.is_dir()));
        let is_there = folders.take(FOLDERS_MOST).any(|it| {
            let there = self.is_of(&it.path().join(&rest));
            // Where this user may not look, it has moved nothing.
            let may_not = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
            there.unwrap_or_else(|error| !is_absent(&error) && !may_not(error))
        });
        (is_there || beside.next().is_none()).then_some(is_there)
    }

    /// Whether a folder is the database's: a removed one's number may come again. One with files of
    /// a log that don't say whose they are may be.
    fn is_of(&self, folder: &Path) -> io::Result<bool> {
        let it = folder.metadata()?;
        if (it.dev(), it.ino()) != (self.device, self.inode) || !it.is_dir() {
            return Ok(false);
        }
        let Ok(folder) = RealFolder::open_to_read(folder) else { return Ok(true) };
        Ok(match look_at_meta(&folder) {
            Ok(Some(meta)) => meta.id == self.id,
            Ok(None) => list(&folder).is_ok_and(|it| !it.files.is_empty()),
            Err(_) => true,
        })
    }

    fn remove(&self) -> Option<()> {
        let file = self.memory.join(LOCK);
        let lock = File::options().write(true).open(&file).ok()?;
        lock.try_lock().ok()?;
        // Somebody may have removed it since, or moved the database and opened it.
        if !has_name(&lock, &file) || !self.is_gone()? {
            return None;
        }
        let files = self.files()?;
        if !self.is_on_disk(&files) && !self.is_long_gone() {
            return None;
        }
        // A reader that is left finds out.
        files.iter().for_each(|it| _ = end_file(it));
        // The journals first: arenas without them lack nothing that the log has.
        for file in files.iter().rev() {
            let _ = std::fs::remove_file(file);
        }
        remove_folder(&self.memory);
        Some(())
    }

    /// Its files but those of this module, arenas first; `None` if there is something else.
    fn files(&self) -> Option<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in self.memory.read_dir().ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            if [LOCK, RECORD, GONE].contains(&&*name) {
                continue;
            }
            let is_known = name.contains(".arena")
                || name.starts_with("journal.")
                || [MANIFEST, NEW_MANIFEST].contains(&&*name);
            if !is_known || !entry.file_type().ok()?.is_file() {
                return None;
            }
            files.push(entry.path());
        }
        files.sort_by_key(|it| (it.extension() != Some(OsStr::new("arena")), it.clone()));
        Some(files)
    }

    /// Whether the log has all that its files have.
    fn is_on_disk(&self, files: &[PathBuf]) -> bool {
        let is_arena = |it: &&PathBuf| it.extension() == Some(OsStr::new("arena"));
        let mut arenas = files.iter().filter(is_arena).peekable();
        if arenas.peek().is_none() {
            return files.is_empty(); // a journal may have what no arena has any more
        }
        let is_whole = files.iter().all(|it| {
            let name = it.file_name().unwrap_or_default().to_string_lossy();
            !name.contains(".arena.")
        });
        is_whole
            && arenas.all(|it| {
                let header = header_of(it);
                header.is_ok_and(|it| it.durable_lsn >= it.begun_lsn.max(it.committed_lsn))
            })
    }

    /// Whether it was found gone long ago; notes that it was found so now, if it wasn't yet.
    fn is_long_gone(&self) -> bool {
        let note = self.memory.join(GONE);
        let Ok(found) = note.metadata() else {
            let _ = File::create(note);
            return false;
        };
        let since = found.modified().ok();
        since.is_some_and(|it| SystemTime::now().duration_since(it).is_ok_and(|it| it >= KEPT))
    }
}
