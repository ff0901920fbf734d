//! A backup's place on simulated disks: one for the folder that counts, one for the folder that is
//! being made. A renaming is whole, as a file system's is.
//!
//! One thread, a test's.

use crate::backup::error::BackupError;
use crate::backup::place::BackupPlace;
use crate::storage::simulated::SimDisk;
use crate::storage::{Storage, StoredFile, write_all_at};
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// A place on simulated disks.
#[derive(Debug)]
pub struct SimBackupPlace {
    /// The backup that counts.
    pub at: Option<SimDisk>,
    /// One that is being made.
    pub new: Option<SimDisk>,
    /// The seed of the last disk.
    pub seed: u64,
    /// Bytes that may be written.
    pub room_bytes: u64,
    /// Whether files may have two names.
    pub links: bool,
    /// The call to the new disk that is cut off.
    pub stop_at: Option<u64>,
    /// Files that got a second name.
    pub linked: Cell<u64>,
}

impl SimBackupPlace {
    /// An empty place.
    #[must_use]
    pub fn new(seed: u64) -> SimBackupPlace {
        let (at, new, links, stop_at) = (None, None, true, None);
        SimBackupPlace { at, new, seed, room_bytes: u64::MAX, links, stop_at, linked: Cell::new(0) }
    }
}

impl BackupPlace for SimBackupPlace {
    type Folder = SimDisk;

    fn old(&self) -> Option<Arc<SimDisk>> {
        self.at.clone().map(Arc::new)
    }

    fn room_bytes(&self) -> io::Result<u64> {
        Ok(self.room_bytes)
    }

    fn begin(&mut self) -> Result<Arc<SimDisk>, BackupError> {
        self.seed += 1;
        let disk = SimDisk::new(self.seed);
        if let Some(call) = self.stop_at {
            disk.stop_at(call);
        }
        self.new = Some(disk.clone());
        Ok(Arc::new(disk))
    }

    /// The file's bytes are on the disk; its new name isn't yet.
    fn link(&self, name: &str) -> io::Result<bool> {
        let (true, Some(at), Some(new)) = (self.links, &self.at, &self.new) else {
            return Ok(false);
        };
        let bytes = at.contents(name).ok_or(io::ErrorKind::NotFound)?;
        let file = new.create(name)?;
        write_all_at(&file, 0, &bytes)?;
        file.sync_all()?;
        self.linked.set(self.linked.get() + 1);
        Ok(true)
    }

    fn forget_cached(&self, _: &str) {}

    fn publish(&mut self) -> Result<(), BackupError> {
        self.at = self.new.take();
        Ok(())
    }

    fn give_up(&mut self) {
        self.new = None;
    }
}
