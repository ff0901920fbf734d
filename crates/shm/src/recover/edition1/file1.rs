//! The file of an arena of edition 1, read piece by piece, and what its header says.
//!
//! 1. The file is opened read-only and read by `pread`. Holes read as zeros and take no memory, as
//!    they would through a mapping; a file that becomes shorter is an error, not a signal.
//! 2. Each number of the header is compared with its bounds before anything goes by it.
//!
//! Any thread.

use super::layout1::{
    ADDRESS_BYTES, CAPACITY_MIN, LINE_BYTES, MAGIC, SLOT_SHIFTS, TENANT_BYTES, VERSION, eight,
    four, header as h,
};
use crate::error::ArenaError;
use crate::format::regular_file::open_regular;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An arena's file.
pub(super) struct ArenaFile {
    file: File,
    path: PathBuf,
}

impl ArenaFile {
    pub(super) fn open(path: &Path) -> Result<ArenaFile, ArenaError> {
        let failed =
            |source| ArenaError::Io { path: path.to_path_buf(), doing: "opening the file", source };
        let file = open_regular(path).map_err(failed)?;
        Ok(ArenaFile { file, path: path.to_path_buf() })
    }

    fn failed(&self, source: Error) -> ArenaError {
        ArenaError::Io { path: self.path.clone(), doing: "reading the file", source }
    }

    /// Length of the file, bytes.
    pub(super) fn len(&self) -> Result<u64, ArenaError> {
        Ok(self.file.metadata().map_err(|error| self.failed(error))?.len())
    }

    /// Reads all of `to` from an offset on.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Result<(), ArenaError> {
        self.file.read_exact_at(to, at).map_err(|error| self.failed(error))
    }

    /// Reads so many words of 4 bytes.
    pub(super) fn words(&self, at: u64, count: usize) -> Result<Vec<u32>, ArenaError> {
        let mut bytes = vec![0; count * 4];
        self.read(at, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// A contradiction.
    pub(super) fn damaged(
        &self,
        offset: u64,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> ArenaError {
        let (path, expected, found) = (self.path.clone(), expected.to_string(), found.to_string());
        ArenaError::Damaged { path, offset, what, expected, found }
    }

    /// Reads the first page.
    pub(super) fn first_page(&self) -> Result<[u8; h::BYTES], ArenaError> {
        let mut page = [0; h::BYTES];
        match self.file.read_exact_at(&mut page, 0) {
            Ok(()) => Ok(page),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.damaged(0, "length of the file", "at least 4096", self.len()?))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Checks the first page, and says what it says.
    pub(super) fn header(&self, page: &[u8; h::BYTES]) -> Result<Header1, ArenaError> {
        let want = |at: usize, what, expected: u64, found: u64| {
            let is_right = found == expected;
            is_right.then_some(()).ok_or_else(|| self.damaged(at as u64, what, expected, found))
        };
        let word = |at| u64::from(four(page, at));
        if page[..8] != MAGIC {
            let found = String::from_utf8_lossy(&page[..8]).escape_default().to_string();
            return Err(self.damaged(0, "magic", "NIGHARN1", found));
        }
        want(h::VERSION, "format version", VERSION.into(), word(h::VERSION))?;
        let slot_shift = four(page, h::SLOT_SHIFT);
        if !SLOT_SHIFTS.contains(&slot_shift) {
            return Err(self.damaged(h::SLOT_SHIFT as u64, "slot shift", "17 to 20", slot_shift));
        }
        let address_bytes = eight(page, h::ADDRESS_BYTES);
        if !address_bytes.is_multiple_of(1 << slot_shift) || !ADDRESS_BYTES.contains(&address_bytes)
        {
            let (at, expected) = (h::ADDRESS_BYTES as u64, "slots, 2 MiB to 64 GiB");
            return Err(self.damaged(at, "address bytes", expected, address_bytes));
        }
        let slots = address_bytes >> slot_shift;
        let table = (slots * 4).next_multiple_of(LINE_BYTES);
        let (generations, tails) = (h::BYTES as u64, h::BYTES as u64 + table);
        let first_slot = (tails + table).div_ceil(1 << slot_shift);
        want(h::SLOTS, "number of slots", slots, word(h::SLOTS))?;
        want(h::GENERATIONS, "generation table", generations, word(h::GENERATIONS))?;
        want(h::TAILS, "tail table", tails, word(h::TAILS))?;
        want(h::FIRST_SLOT, "first slot", first_slot, word(h::FIRST_SLOT))?;
        let capacity_bytes = eight(page, h::CAPACITY);
        if !(CAPACITY_MIN..=address_bytes).contains(&capacity_bytes) {
            let (at, expected) = (h::CAPACITY as u64, "2 MiB to the address bytes");
            return Err(self.damaged(at, "capacity", expected, capacity_bytes));
        }
        Ok(Header1 {
            tenant: self.tenant(page)?,
            partition: four(page, h::PARTITION),
            partitions: four(page, h::PARTITIONS),
            seed: four(page, h::SEED),
            capacity_bytes,
            committed_lsn: eight(page, h::COMMITTED_LSN),
            division: Division { slot_shift, address_bytes, slots, tails, first_slot },
        })
    }

    fn tenant(&self, page: &[u8; h::BYTES]) -> Result<String, ArenaError> {
        let len = four(page, h::TENANT_LEN) as usize;
        if !TENANT_BYTES.contains(&len) {
            let (at, what) = (h::TENANT_LEN as u64, "length of the tenant's name");
            return Err(self.damaged(at, what, "1 to 128", len));
        }
        let name = String::from_utf8(page[h::TENANT..h::TENANT + len].to_vec());
        name.map_err(|_| self.damaged(h::TENANT as u64, "tenant's name", "UTF-8", "other bytes"))
    }
}

/// The fields of the header of an arena of edition 1.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header1 {
    /// The tenant that the arena belongs to.
    pub tenant: String,
    /// Which partition of the tenant.
    pub partition: u32,
    /// Of how many.
    pub partitions: u32,
    /// Seed of the hash.
    pub seed: u32,
    /// Bytes of memory that the arena might use.
    pub capacity_bytes: u64,
    /// LSN of the newest published record; 0 if nothing was ever written.
    pub committed_lsn: u64,
    pub(super) division: Division,
}

impl Header1 {
    /// Reads and checks the header of a file, and nothing else of it.
    ///
    /// # Errors
    /// If the file can't be read or is no arena of edition 1.
    pub fn of(path: &Path) -> Result<Header1, ArenaError> {
        let file = ArenaFile::open(path)?;
        file.header(&file.first_page()?)
    }
}

/// How an arena is divided into slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) slot_shift: u32,
    pub(super) address_bytes: u64,
    pub(super) slots: u64,
    /// Offset of the tail table.
    pub(super) tails: u64,
    /// First slot that may be a segment or a run.
    pub(super) first_slot: u64,
}

impl Division {
    pub(super) fn slot_bytes(&self) -> u64 {
        1 << self.slot_shift
    }

    pub(super) fn slot_of(&self, offset: u64) -> u64 {
        offset >> self.slot_shift
    }

    /// Where a slot begins.
    pub(super) fn offset_of(&self, slot: u64) -> u64 {
        slot << self.slot_shift
    }

    /// Slots that so many bytes take.
    pub(super) fn slots_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.slot_bytes())
    }

    /// Where the generation of a slot lies.
    pub(super) fn generation_at(slot: u64) -> u64 {
        h::BYTES as u64 + slot * 4
    }

    /// Where the tail of a slot lies.
    pub(super) fn tail_at(&self, slot: u64) -> u64 {
        self.tails + slot * 4
    }
}

/// The format version that a file says, whatever else is in it; `None` if it doesn't begin as an
/// arena does.
///
/// # Errors
/// If the file can't be read.
pub fn version_of(path: &Path) -> Result<Option<u32>, ArenaError> {
    let file = ArenaFile::open(path)?;
    let mut start = [0; h::VERSION + 4];
    match file.file.read_exact_at(&mut start, 0) {
        Ok(()) => Ok((start[..8] == MAGIC).then(|| four(&start, h::VERSION))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(file.failed(error)),
    }
}
