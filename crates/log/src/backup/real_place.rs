//! A backup's place in a real file system: DIR, and DIR.new beside it.
//!
//! ```text
//! DIR.new ── renamed ──> DIR                          if there is no DIR
//! DIR.new <── one call swaps them ──> DIR             else; then DIR.new, which was DIR, goes
//! ```
//!
//! 1. Both folders are locked from before they are looked at: another backup, a restore or a check
//!    finds `InUse`.
//! 2. Only names that a backup has are removed; a folder with others is refused untouched.
//! 3. What lies in DIR.new is left over from a backup that was cut off: no backup gets a name that
//!    ends so, and a log's folder there is refused untouched.
//!
//! One thread.

use crate::backup::error::BackupError;
use crate::backup::folder_removal::{refuse_others, remove_files};
use crate::backup::place::BackupPlace;
use crate::error::LogError;
use crate::folder::listing::list;
use crate::folder::meta_file::read_meta;
use crate::storage::real::RealFolder;
use rustix::fs::{
    Advice, CWD, Mode, OFlags, RenameFlags, fadvise, fsync, openat, renameat_with, statvfs,
};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The end of the name of a backup that is being made.
const NEW: &str = ".new";

/// Where a backup is made, on real disks.
#[derive(Debug)]
pub struct RealBackupPlace {
    dir: PathBuf,
    new: PathBuf,
    above: PathBuf,
    /// A folder is there: it is swapped.
    is_there: bool,
    old: Option<Arc<RealFolder>>,
    made: Option<Arc<RealFolder>>,
}

impl RealBackupPlace {
    /// A place for a backup of the log in the folder `log`.
    ///
    /// # Errors
    /// `Place` if no backup can be there, with what to do; nothing was changed.
    pub fn open(dir: &Path, log: &Path) -> Result<RealBackupPlace, BackupError> {
        let shown = dir.display();
        let wrong = |what: String| Err(BackupError::place(what));
        if !dir.is_absolute() {
            return wrong(format!("{shown} isn't an absolute path: the server has its own folder"));
        }
        let is_there = match std::fs::metadata(dir) {
            Ok(found) if !found.is_dir() => {
                return wrong(format!("{shown} is a file: name a folder"));
            }
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return wrong(format!("{shown} can't be looked at: {error}")),
        };
        let (above, dir) = match whole_path(dir, is_there) {
            Ok(paths) => paths,
            Err(error) => {
                return wrong(format!(
                    "the folder above {shown} can't be used: {error}: make it first"
                ));
            }
        };
        if dir.as_os_str().as_bytes().ends_with(NEW.as_bytes()) {
            return wrong(format!(
                "{shown} ends with {NEW}, as only the name of a backup that is being made does: \
                 name another folder"
            ));
        }
        let mut new = dir.clone().into_os_string();
        new.push(NEW);
        let new = PathBuf::from(new);
        let log = log.canonicalize().unwrap_or_else(|_| log.to_owned());
        let overlaps = |path: &Path| path.starts_with(&log) || log.starts_with(path);
        if overlaps(&dir) || overlaps(&new) {
            let log = log.display();
            return wrong(format!(
                "{shown} is the log's folder {log}, in it or above it: name one beside it"
            ));
        }
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
        if is_there && device(&dir).ok() != device(&above).ok() {
            return wrong(format!(
                "{shown} is the top of a file system, and can't be renamed: name a folder in it"
            ));
        }
        let old = if is_there { Some(old_backup(&dir)?) } else { None };
        Ok(RealBackupPlace { dir, new, above, is_there, old, made: None })
    }

    /// Refuses a log that lies where the new backup is made.
    fn refuse_log(&self) -> Result<(), BackupError> {
        let read = RealFolder::open_to_read(&self.new).and_then(|folder| read_meta(&folder));
        match read {
            Ok(None) => Ok(()),
            Ok(Some(meta)) if meta.mark.is_some() => Ok(()),
            _ => Err(BackupError::place(format!(
                "{} is in the way, and may be a log's folder: move it, or name another folder",
                self.new.display()
            ))),
        }
    }

    /// Makes a renaming durable.
    fn sync_above(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(fsync(openat(CWD, &self.above, flags, Mode::empty())?)?)
    }
}

/// The folder above, and the folder itself, without links and dots.
fn whole_path(dir: &Path, is_there: bool) -> io::Result<(PathBuf, PathBuf)> {
    let whole = if is_there { dir.canonicalize()? } else { dir.to_owned() };
    let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(io::Error::other("it has no name"));
    };
    let above = above.canonicalize()?;
    let dir = above.join(name);
    Ok((above, dir))
}

/// The folder that is there, locked: it is empty, or has an older backup.
fn old_backup(dir: &Path) -> Result<Arc<RealFolder>, BackupError> {
    let refused = |error: LogError| BackupError::place(format!("{}: {error}", dir.display()));
    let listing = RealFolder::open_to_read(dir).and_then(|it| list(&it)).map_err(refused)?;
    refuse_others(dir, &listing)?;
    RealFolder::open(dir, false).map(Arc::new).map_err(refused)
}

impl BackupPlace for RealBackupPlace {
    type Folder = RealFolder;

    fn old(&self) -> Option<Arc<RealFolder>> {
        self.old.clone()
    }

    fn room_bytes(&self) -> io::Result<u64> {
        let stated = statvfs(&self.above)?;
        Ok(stated.f_bavail.saturating_mul(stated.f_frsize))
    }

    fn begin(&mut self) -> Result<Arc<RealFolder>, BackupError> {
        let shown = self.new.display();
        let refused = |error: LogError| BackupError::place(format!("{shown}: {error}"));
        match std::fs::symlink_metadata(&self.new) {
            Ok(found) if found.is_dir() => {
                let left = RealFolder::open_to_read(&self.new).and_then(|it| list(&it));
                refuse_others(&self.new, &left.map_err(refused)?)?;
                self.refuse_log()?;
            }
            Ok(_) => {
                let text = format!("{shown} is in the way: remove it, or name another folder");
                return Err(BackupError::place(text));
            }
            Err(_) => {}
        }
        let folder = RealFolder::open(&self.new, true).map_err(refused)?;
        remove_files(&folder, false).map_err(refused)?;
        let folder = Arc::new(folder);
        self.made = Some(Arc::clone(&folder));
        Ok(folder)
    }

    fn link(&self, name: &str) -> io::Result<bool> {
        match std::fs::hard_link(self.dir.join(name), self.new.join(name)) {
            Ok(()) => Ok(true),
            // Then it is copied: the file system has no links, or the file has too many.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::XDEV | Errno::MLINK) => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn forget_cached(&self, name: &str) {
        // It is a wish: what the system keeps in memory all the same is read from there.
        if let Ok(file) = std::fs::File::open(self.new.join(name)) {
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }

    fn publish(&mut self) -> Result<(), BackupError> {
        let io = |doing| move |error| BackupError::Target(LogError::io(".", 0, doing, error));
        let flags = if self.is_there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.new, CWD, &self.dir, flags) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS) if self.is_there => {
                return Err(BackupError::place(format!(
                    "the file system of {0} can't swap two folders: move {0} away, or name another \
                     folder",
                    self.dir.display()
                )));
            }
            Err(error) => return Err(io("renaming")(error.into())),
        }
        self.made = None;
        self.sync_above().map_err(io("syncing the folder above"))?;
        if self.is_there {
            // What can't be removed now is by the next backup.
            if let Some(old) = self.old.take() {
                let _ = remove_files(&*old, true);
            }
            let _ = std::fs::remove_dir(&self.new);
        }
        Ok(())
    }

    fn give_up(&mut self) {
        // What can't be removed now is by the next backup.
        if let Some(made) = self.made.take() {
            let _ = remove_files(&*made, true);
            let _ = std::fs::remove_dir(&self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::meta_file::save_meta;
    use crate::format::meta::Meta;
    use crate::format::sum::Secret;
    use std::fs::{create_dir, read, write};

    /// A folder with the files that a log's and a backup's have, and its meta.
    fn filled(dir: &Path, mark: Option<[u8; 16]>) -> Vec<u8> {
        create_dir(dir).expect("a folder");
        let meta = Meta { mark, ..Meta::new([1; 16], Secret([2; 16])) };
        save_meta(&RealFolder::open(dir, false).expect("a folder"), &meta).expect("a meta");
        write(dir.join("g1-s00-0000000001.log"), "frames").expect("a file");
        read(dir.join("meta")).expect("a meta")
    }

    fn refused<T>(made: Result<T, BackupError>) -> String {
        made.map(drop).expect_err("a sentence").to_string()
    }

    /// A backup into `b` is made in `b.new`. What lay there went: also the log of a server that
    /// didn't run, and a whole backup that somebody had named so.
    #[test]
    fn what_is_no_leftover_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, backup) = (folder.path().join("log"), folder.path().join("b"));
        let new = folder.path().join("b.new");
        let meta = filled(&new, None);
        let mut place = RealBackupPlace::open(&backup, &log).expect("a place");
        let told = refused(place.begin());
        assert!(told.contains("b.new is in the way, and may be a log's folder"), "{told}");
        assert_eq!(read(new.join("meta")).expect("a meta"), meta);
        assert!(new.join("g1-s00-0000000001.log").exists());
        for named in [&new, &folder.path().join("c.new")] {
            let told = refused(RealBackupPlace::open(named, &log));
            assert!(told.contains(".new ends with .new"), "{told}");
        }
    }

    /// What a backup left that was cut off before or behind its renaming goes.
    #[test]
    fn a_leftover_goes() {
        for mark in [None, Some([3; 16])] {
            let folder = tempfile::tempdir().expect("a folder");
            let (log, backup) = (folder.path().join("log"), folder.path().join("b"));
            let new = folder.path().join("b.new");
            filled(&new, mark);
            if mark.is_none() {
                std::fs::remove_file(new.join("meta")).expect("a meta");
            }
            RealBackupPlace::open(&backup, &log).expect("a place").begin().expect("a new folder");
            assert!(!new.join("meta").exists() && !new.join("g1-s00-0000000001.log").exists());
        }
    }

    /// An empty folder wasn't locked: a log that began there meanwhile was swapped away with it.
    #[test]
    fn an_empty_folder_is_locked_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, backup) = (folder.path().join("log"), folder.path().join("b"));
        create_dir(&backup).expect("a folder");
        let mut place = RealBackupPlace::open(&backup, &log).expect("a place");
        let held = RealFolder::open(&backup, false).map(drop);
        assert!(matches!(held, Err(LogError::InUse { .. })), "{held:?}");
        let made = place.begin().expect("a new folder");
        save_meta(&*made, &Meta::new([1; 16], Secret([2; 16]))).expect("a meta");
        drop(made);
        place.publish().expect("a swap");
        assert!(backup.join("meta").exists() && !folder.path().join("b.new").exists());
    }
}
