//! Files of a chain that don't count, and may be prepared again or removed.
//!
//! A file that a follower holds is neither, unless it was never begun.
//!
//! The log's thread. No I/O.

/// More of them are removed. A file leaves as another one is begun, but not at the same moment.
const SPARE_FILES_MOST: usize = 2;

/// A file that doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpareFile {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// A follower may read it.
    pub(super) begun: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct SpareFiles {
    files: Vec<SpareFile>,
    /// Begun files from this number on are held.
    hold: u64,
}

impl SpareFiles {
    /// These, and nothing is held.
    pub(super) fn new(files: Vec<SpareFile>) -> SpareFiles {
        SpareFiles { files, hold: u64::MAX }
    }

    /// One more.
    pub(super) fn push(&mut self, file: SpareFile) {
        self.files.push(file);
    }

    /// From now on, begun files from this number on are held.
    pub(super) fn hold(&mut self, from: Option<u64>) {
        self.hold = from.unwrap_or(u64::MAX);
    }

    /// Bytes of those that are held.
    pub(super) fn held_bytes(&self) -> u64 {
        self.files.iter().filter(|file| !self.is_free(file)).map(|file| file.bytes).sum()
    }

    /// Bytes of all.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Takes one that may become a file of so many bytes.
    pub(super) fn take(&mut self, wanted: u64) -> Option<SpareFile> {
        let at = self.files.iter().position(|file| self.is_free(file) && suits(file, wanted))?;
        Some(self.files.swap_remove(at))
    }

    /// Takes one that nothing needs: of another size, or one too many.
    pub(super) fn take_surplus(&mut self, wanted: u64) -> Option<SpareFile> {
        let mut kept = 0;
        let at = self.files.iter().position(|file| {
            kept += usize::from(self.is_free(file) && suits(file, wanted));
            self.is_free(file) && (!suits(file, wanted) || kept > SPARE_FILES_MOST)
        })?;
        Some(self.files.swap_remove(at))
    }

    /// Takes any that isn't held.
    pub(super) fn take_any(&mut self) -> Option<SpareFile> {
        let at = self.files.iter().position(|file| self.is_free(file))?;
        Some(self.files.swap_remove(at))
    }

    fn is_free(&self, file: &SpareFile) -> bool {
        !file.begun || file.number < self.hold
    }
}

/// Whether a file is long enough, and not so long that a log of such files wastes the disk.
fn suits(file: &SpareFile, wanted: u64) -> bool {
    (wanted..=wanted + wanted / 8).contains(&file.bytes)
}
