//! Libraries that were being started when a server ended: the next one leaves them alone.
//!
//! ```text
//! shard N starts library L:  L.starting.N made ──> compiled, its top level runs ──> L.starting.N removed
//! a server begins:           L.starting.N left ──> renamed to L.skipped: L isn't started
//! L is loaded or deleted:    L.skipped removed
//! ```
//!
//! 1. The files lie beside the arenas and hold the mark of the source: what is kept under the name
//!    may be another.
//! 2. A file without a whole mark was left before the library started: it means nothing.
//!
//! [`Skips`] is shared by all shards; a [`Marker`] is one shard's.

use crate::engine::Starts;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use xxhash_rust::xxh32::xxh32;

/// What the name of a library that starts is followed by, and the shard's number after it.
const STARTING: &str = ".starting.";
/// What the name of a library that isn't started is followed by.
const SKIPPED: &str = ".skipped";
/// Why it isn't.
pub(crate) const REASON: &str = "it was being started when the server ended, so it is not started again; \
    FUNCTION LOAD REPLACE loads it, FUNCTION DELETE removes it";

/// Tells sources of one name apart.
fn mark(source: &[u8]) -> String {
    format!("{:08x} {}\n", xxh32(source, 0), source.len())
}

/// The libraries that aren't started, by name.
pub(crate) struct Skips {
    folder: PathBuf,
    marks: Mutex<BTreeMap<String, String>>,
}

impl Skips {
    /// Looks at what the last server left in the folder of the arenas.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let mut marks = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some((library, _)) = name.split_once(STARTING) {
                let mark = std::fs::read_to_string(entry.path())?;
                if mark.ends_with('\n') {
                    tracing::error!(library, "{REASON}");
                    std::fs::rename(entry.path(), folder.join(format!("{library}{SKIPPED}")))?;
                    marks.insert(library.to_owned(), mark);
                } else {
                    std::fs::remove_file(entry.path())?;
                }
            } else if let Some(library) = name.strip_suffix(SKIPPED) {
                let mark = std::fs::read_to_string(entry.path())?;
                marks.entry(library.to_owned()).or_insert(mark);
            }
        }
        Ok(Self { folder: folder.to_owned(), marks: Mutex::new(marks) })
    }

    /// Whether a library of this source isn't to be started.
    pub(crate) fn has(&self, library: &str, source: &[u8]) -> bool {
        lock(&self.marks).get(library).is_some_and(|skipped| *skipped == mark(source))
    }

    /// Whatever has this name now may start again.
    pub(crate) fn forget(&self, library: &str) {
        if lock(&self.marks).remove(library).is_some() {
            remove(&self.folder.join(format!("{library}{SKIPPED}")));
        }
    }

    /// The same for all names.
    pub(crate) fn forget_all(&self) {
        let libraries: Vec<String> = lock(&self.marks).keys().cloned().collect();
        libraries.iter().for_each(|library| self.forget(library));
    }

    /// What tells of the libraries that shard `number` starts.
    pub(crate) fn marker(&self, number: usize) -> Marker {
        Marker { folder: self.folder.clone(), number }
    }
}

/// Leaves a file while a library starts.
pub(crate) struct Marker {
    folder: PathBuf,
    number: usize,
}

impl Marker {
    fn path(&self, library: &str) -> PathBuf {
        self.folder.join(format!("{library}{STARTING}{}", self.number))
    }
}

impl Starts for Marker {
    fn begins(&mut self, library: &str, source: &[u8]) {
        let path = self.path(library);
        if let Err(error) = std::fs::write(&path, mark(source)) {
            tracing::warn!(
                path = %path.display(), %error,
                "if library {library} ends the server now, the next one will start it again"
            );
        }
    }

    fn ended(&mut self, library: &str) {
        remove(&self.path(library));
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(
            path = %path.display(), %error,
            "a mark can't be removed: the next server will not start its library; remove the file"
        );
    }
}
