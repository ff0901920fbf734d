//! Real files whose syncs a test holds, as a disk does that doesn't answer.
//!
//! Any thread.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Folders whose syncs are held, each with the number of syncs that wait.
static HELD: Mutex<Vec<(PathBuf, usize)>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

fn held() -> MutexGuard<'static, Vec<(PathBuf, usize)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives, no sync of a file in a folder returns.
#[derive(Debug)]
pub struct HeldSyncs {
    folder: PathBuf,
}

impl HeldSyncs {
    /// Holds the syncs of the files in a folder.
    ///
    /// # Panics
    /// If the folder isn't there, or they are held already.
    #[must_use]
    pub fn of(folder: &Path) -> HeldSyncs {
        let folder = folder.canonicalize().expect("the folder is there");
        let mut all = held();
        assert!(all.iter().all(|(other, _)| *other != folder), "its syncs are held already");
        all.push((folder.clone(), 0));
        HeldSyncs { folder }
    }

    /// Waits until a sync waits.
    pub fn wait_for_one(&self) {
        let mut all = held();
        while !all.iter().any(|(folder, waiting)| *folder == self.folder && *waiting > 0) {
            all = CHANGED.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        held().retain(|(folder, _)| *folder != self.folder);
        CHANGED.notify_all();
    }
}

/// Before a real file's sync: waits while it is held.
pub(in crate::storage) fn wait_while_held(file: &impl AsRawFd) {
    let mut all = held();
    if all.is_empty() {
        return;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let folder = path.ok().and_then(|path| path.parent().map(Path::to_owned));
    let Some(folder) = folder else { return };
    let mut is_counted = false;
    while let Some((_, waiting)) = all.iter_mut().find(|(held, _)| *held == folder) {
        if !std::mem::replace(&mut is_counted, true) {
            *waiting += 1;
            CHANGED.notify_all();
        }
        all = CHANGED.wait(all).unwrap_or_else(PoisonError::into_inner);
    }
}
