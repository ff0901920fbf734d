//! Values that entries name, but don't hold: where their bytes are to be had.
//!
//! 1. A run that an entry names stays as it is until head is stored behind the entry (journal.md):
//!    it isn't retired, so its generation says whether it is still the one that was named.
//! 2. An arena that was set aside is compared with the value's sum, and believed no further.
//!
//! Any thread.

use super::journal_error::{JournalError, system};
use super::journal_file::damaged;
use crate::error::ArenaError;
use crate::format::format_fault::FormatFault;
use crate::format::head::RunName;
use crate::format::header_info::header_of;
use crate::format::layout::Geometry;
use crate::format::sum;
use crate::format::words::{MappedWords, SharedWords};
use crate::memory::file_mapping::FileMapping;
use crate::region::Region;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// A value in a run, as a record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedRun {
    pub(crate) run: RunName,
    pub(crate) value_len: u32,
    pub(crate) key_len: u16,
}

/// An arena in which runs are looked up.
pub trait NamedValues: Send + Sync {
    /// The value in a run.
    ///
    /// # Errors
    /// Why it isn't to be had.
    fn value(&self, named: &NamedRun) -> Result<&[u8], &'static str>;
}

/// The arenas of streams.
pub type ArenasByStream = BTreeMap<u32, Arc<dyn NamedValues>>;

/// Where a run's value lies in a file that ends there.
fn place(g: &Geometry, end: u64, named: &NamedRun) -> Result<(u64, usize), &'static str> {
    let NamedRun { run, value_len, .. } = named;
    if run.fault(g, *value_len).is_some() {
        return Err("its arena has no such run");
    }
    let at = g.slot_offset(run.slot);
    if at + u64::from(*value_len) > end {
        return Err("its run lies behind the end of its arena");
    }
    Ok((at, *value_len as usize))
}

/// An arena that this process writes.
impl NamedValues for Region {
    fn value(&self, named: &NamedRun) -> Result<&[u8], &'static str> {
        let (g, words) = (self.geometry(), self.words());
        let (at, len) = place(g, self.end(), named)?;
        let generation = words.load32(g.generation_offset(named.run.slot), Acquire);
        if generation != named.run.generation || generation & 1 == 1 {
            return Err("its run was given to something else");
        }
        // SAFETY: the run is held as long as the entry that names it stands, so nobody writes below
        // the value's length; it is mapped as long as the region.
        Ok(unsafe { words.bytes(at, len) })
    }
}

/// Files of one arena, which starts that were cut off have set aside one after the other: a value
/// is that of the file where its sum is right.
impl NamedValues for Vec<AsideArena> {
    fn value(&self, named: &NamedRun) -> Result<&[u8], &'static str> {
        let mut found = Err("its arena isn't at hand");
        for arena in self {
            found = arena.value(named);
            if found.is_ok_and(|bytes| sum::more(0, bytes) == named.run.checksum) {
                return found;
            }
        }
        found
    }
}

/// An arena that was set aside: only values are read, by place and length.
pub struct AsideArena {
    mapping: FileMapping,
    g: Geometry,
    path: PathBuf,
}

impl AsideArena {
    /// Maps the file read-only. Its header must be whole, nothing else.
    ///
    /// # Errors
    /// If it isn't, or the system refuses.
    pub fn open(path: &Path) -> Result<AsideArena, JournalError> {
        let info = header_of(path).map_err(|e| match e {
            ArenaError::Io { path, doing, source } => JournalError::Io { path, doing, source },
            other => {
                let expected = "one of an arena";
                damaged(path, FormatFault::new(0, "header", expected, other))
            }
        })?;
        let failed =
            |source| JournalError::Io { path: path.to_path_buf(), doing: "opening it", source };
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len().min(info.g.address_bytes);
        let len = len & !(info.g.slot_bytes() - 1);
        let failed = |e| system(path, "mapping the file", e);
        let len = usize::try_from(len).map_err(|_| failed(Errno::NOMEM))?;
        if len == 0 {
            let fault = FormatFault::new(0, "length of the file", "a slot at least", len);
            return Err(damaged(path, fault));
        }
        let mapping = FileMapping::read_only(&file, len).map_err(failed)?;
        Ok(AsideArena { mapping, g: info.g, path: path.to_path_buf() })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl NamedValues for AsideArena {
    fn value(&self, named: &NamedRun) -> Result<&[u8], &'static str> {
        let words: MappedWords = self.mapping.words();
        let (at, len) = place(&self.g, words.len(), named)?;
        // SAFETY: nobody writes to a file that was set aside, and it is mapped as long as this
        // value lives.
        Ok(unsafe { words.bytes(at, len) })
    }
}
