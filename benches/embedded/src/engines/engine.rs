//! What an engine is: the trait, and what is told about it.
//!
//! Invariant: an engine is for several threads, a session for one.

use crate::data::Key;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// How a database is opened.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The folder of the files.
    pub(crate) dir: PathBuf,
    /// A folder in a tmpfs, for the engine that has its data there.
    pub(crate) memory_dir: PathBuf,
    /// Keys that it will have: room and caches are for so many.
    pub(crate) keys: u64,
    /// Whether each write waits for the disk.
    pub(crate) strong: bool,
}

impl Place {
    /// Bytes of a cache, or a most for memory, that takes all the data, indexes included, and old
    /// versions.
    pub(super) fn cache_bytes(&self) -> usize {
        usize::try_from(self.keys * 512 + (1 << 30)).unwrap_or(usize::MAX)
    }
}

/// A database that is open. Closing is dropping.
pub(crate) trait Engine: Sync {
    /// What one thread calls.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

/// One thread's view of a database.
pub(crate) trait Session {
    /// Shows the value of a key. False if there is none.
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Gives a key a value.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Deletes a key.
    fn delete(&mut self, key: &Key) -> Result<()>;

    /// Shows the values of several keys of one moment, each with its place in `keys`. Keys that
    /// aren't there are left out.
    fn multi_get(&mut self, _keys: &[Key], _see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        bail!("this engine has no multi_get")
    }
}

/// An engine before it is opened.
pub(crate) struct EngineKind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its name for readers.
    pub(crate) title: &'static str,
    pub(crate) version: &'static str,
    /// The settings of the eventual rows.
    pub(crate) eventual: &'static str,
    /// The settings of the rows that wait for the disk.
    pub(crate) strong: &'static str,
    /// How several keys are read at once; `None` if it has nothing for that.
    pub(crate) multi_get: Option<&'static str>,
    /// Whether one sync serves several writers.
    pub(crate) groups_commits: bool,
    /// Opens or makes a database.
    pub(crate) open: fn(&Place) -> Result<Box<dyn Engine>>,
}
