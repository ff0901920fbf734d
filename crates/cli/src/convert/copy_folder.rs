//! The folder of the copy, beside the data's, and the locks of both.
//!
//! 1. One system call swaps the two. Files are removed only behind it.
//! 2. What isn't copied is linked, so that it is there after the swap.

use anyhow::{Context, Result, bail, ensure};
use nigh_server::leftover::{self, LOCK_FILE, is_same};
use nigh_store::{MANIFEST, NEW_MANIFEST};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use std::fs::{DirBuilder, DirEntry, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The end of an arena's file name.
const ARENA: &str = ".arena";
/// The end of the name of an arena that is still being made.
const UNMADE: &str = ".arena.new";
/// The file of the libraries, which all tenants share.
const SYSTEM: &str = "_system.0.arena";

/// The copy's folder: it lies beside the data's, since the two are swapped.
pub(super) fn beside(dir: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(beside)) = (dir.parent(), leftover::beside(dir)) else {
        bail!("{} can't be converted: it has no parent folder for the copy", dir.display());
    };
    ensure!(
        dir.metadata()?.dev() == parent.metadata()?.dev(),
        "{} is a mount point, and a copy can't be swapped in for it: convert it by another path, whose parent \
         folder is on the same file system (for a container's volume, from outside)",
        dir.display()
    );
    Ok(beside)
}

/// Locks a folder as a server does.
pub(super) fn hold(path: &Path) -> Result<File> {
    let file = path.join(LOCK_FILE);
    let failed = || format!("can't lock {}", file.display());
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = File::from(rustix::fs::open(&file, flags, 0o600.into()).with_context(failed)?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("a server, or another nigh convert, uses {}: stop it first", path.display())
        }
        Err(error) => return Err(error).with_context(failed),
    }
    // Another conversion that held it before may have put another folder in its place.
    ensure!(
        is_same(&lock.metadata()?, &file.metadata().with_context(failed)?),
        "{} was replaced just now: try again",
        path.display()
    );
    Ok(lock)
}

fn entries(path: &Path) -> Result<Vec<DirEntry>> {
    let read = std::fs::read_dir(path).and_then(Iterator::collect);
    read.with_context(|| format!("can't look into {}", path.display()))
}

/// The files at `dir` that are linked instead of copied, so that they are there after the swap.
pub(super) fn to_take_along(dir: &Path, tenant: &str) -> Result<Vec<PathBuf>> {
    let mut links = Vec::new();
    for entry in entries(dir)? {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix(tenant).and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|rest| rest.strip_suffix(ARENA));
        let is_copied = number.is_some_and(|text| text.parse::<usize>().is_ok())
            || name == SYSTEM
            || [LOCK_FILE, MANIFEST, NEW_MANIFEST].contains(&&*name)
            || name.ends_with(UNMADE);
        if is_copied {
            continue;
        }
        ensure!(
            !entry.file_type()?.is_dir(),
            "{} is a folder and can't be taken along: move it elsewhere first",
            entry.path().display()
        );
        links.push(entry.path());
    }
    Ok(links)
}

/// The folder at `path`, beside the data's: the copy, and after the swap the old data. Dropping
/// this removes the folder, unless the swap may not be on disk.
pub(super) struct CopyFolder<'a> {
    path: &'a Path,
    /// The data's folder.
    dir: &'a Path,
    _lock: File,
    /// Dropping this removes nothing.
    stays: bool,
}

impl<'a> CopyFolder<'a> {
    pub(super) fn make(path: &'a Path, dir: &'a Path) -> Result<CopyFolder<'a>> {
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .with_context(|| format!("can't make the copy's folder {}", path.display()))?;
        Ok(CopyFolder { path, dir, _lock: hold(path)?, stays: false })
    }

    pub(super) fn remove(mut self) -> Result<()> {
        self.stays = true;
        Ok(leftover::remove(self.path, self.dir)?)
    }

    /// Gives the copy the mode and owner of the data's folder, links the files that weren't copied,
    /// and syncs all of it.
    pub(super) fn make_like(&self, dir: &Path, links: &[PathBuf]) -> Result<()> {
        let failed = || format!("can't make {} like {}", self.path.display(), dir.display());
        let owner = dir.metadata()?;
        std::fs::set_permissions(self.path, Permissions::from_mode(0o700)).with_context(failed)?;
        let own: Result<Vec<_>> = Ok(entries(self.path)?.iter().map(DirEntry::path).collect());
        for path in own?.iter().map(PathBuf::as_path).chain([self.path]) {
            let found = path.metadata()?;
            if (found.uid(), found.gid()) != (owner.uid(), owner.gid()) {
                chown(path, Some(owner.uid()), Some(owner.gid())).with_context(failed)?;
            }
            File::open(path)?.sync_all().with_context(failed)?;
        }
        for link in links {
            let name = link.file_name().unwrap_or_default();
            std::fs::hard_link(link, self.path.join(name))
                .with_context(|| format!("can't take {} along", link.display()))?;
        }
        Ok(())
    }

    pub(super) fn swap_with(&mut self, dir: &Path) -> Result<()> {
        self.swap_and_sync(dir, |parent| File::open(parent)?.sync_all())
    }

    fn swap_and_sync(&mut self, dir: &Path, sync: fn(&Path) -> io::Result<()>) -> Result<()> {
        renameat_with(CWD, self.path, CWD, dir, RenameFlags::EXCHANGE).with_context(|| {
            let (copy, dir) = (self.path.display(), dir.display());
            format!("can't swap {copy} and {dir}, which is as it was")
        })?;
        // The swap must be on disk before the old data is removed. On a tmpfs this does nothing.
        let parent = dir.parent().context("a folder that was swapped has a parent")?;
        let synced = sync(parent);
        self.stays = synced.is_err();
        synced.with_context(|| {
            let old = self.path.display();
            format!("the data is converted, but not yet on disk; what it was before stays at {old}")
        })
    }
}

impl Drop for CopyFolder<'_> {
    fn drop(&mut self) {
        if !self.stays {
            // The next conversion or the next server removes the rest.
            let _ = leftover::remove(self.path, self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A swap that isn't on disk may be undone by a power cut: then the old data is all there is.
    /// It was removed.
    #[test]
    fn old_data_stays_if_the_swap_may_not_be_on_disk() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs is there");
        let (dir, copy) = (folder.path().join("arenas"), folder.path().join("arenas.convert"));
        let made = || {
            std::fs::create_dir_all(&dir).expect("the folder is ours");
            std::fs::write(dir.join("default.0.arena"), "old").expect("the folder is ours");
            let made = CopyFolder::make(&copy, &dir).expect("the folder is ours");
            std::fs::write(copy.join("default.0.arena"), "new").expect("the folder is ours");
            made
        };
        let read = |dir: &Path| std::fs::read_to_string(dir.join("default.0.arena")).ok();
        let broken = |_: &Path| Err(io::Error::from_raw_os_error(5));
        let mut copied = made();
        let error = copied.swap_and_sync(&dir, broken).expect_err("the disk is broken");
        drop(copied);
        assert!(error.to_string().contains("what it was before stays at"), "{error}");
        assert_eq!((read(&dir).as_deref(), read(&copy).as_deref()), (Some("new"), Some("old")));
        // The next conversion or server removes it. So does one whose swap is on disk.
        assert!(leftover::remove_leftover(&dir).expect("it is ours"));
        let mut copied = made();
        copied.swap_with(&dir).expect("tmpfs has no disk");
        drop(copied);
        assert_eq!((read(&dir).as_deref(), read(&copy)), (Some("new"), None));
    }
}
