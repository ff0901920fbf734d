//! Where a backup is made: a folder that is being made, and one that it takes the place of.
//!
//! 1. Before [`BackupPlace::publish`] the older backup isn't touched; that puts the new one into
//!    its place by one renaming, which a power cut undoes or leaves as a whole.
//!
//! One thread.

use crate::backup::error::BackupError;
use crate::storage::Storage;
use std::io;
use std::sync::Arc;

/// A place for a backup.
pub trait BackupPlace {
    /// Its folders.
    type Folder: Storage;

    /// The older backup, if there is one.
    fn old(&self) -> Option<Arc<Self::Folder>>;

    /// Bytes that may be written there.
    ///
    /// # Errors
    /// As the system says.
    fn room_bytes(&self) -> io::Result<u64>;

    /// Makes the folder for the new one, empty. What an earlier try has left there goes.
    ///
    /// # Errors
    /// `Place` or `Target`.
    fn begin(&mut self) -> Result<Arc<Self::Folder>, BackupError>;

    /// Gives a file of the older backup this name in the new one too; `false`: that can't be.
    ///
    /// # Errors
    /// As the system says.
    fn link(&self, name: &str) -> io::Result<bool>;

    /// A file of the new one is on the disk: what reads it from now on is to read it from there.
    fn forget_cached(&self, name: &str);

    /// The new one, which is whole on the disk, takes the place of the older one; that goes.
    ///
    /// # Errors
    /// `Place` or `Target`; then one of the two is there, whole.
    fn publish(&mut self) -> Result<(), BackupError>;

    /// Removes what was made.
    fn give_up(&mut self);
}
