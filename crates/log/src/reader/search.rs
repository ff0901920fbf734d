//! The files of a chain: their names, heads and BEGINs.
//!
//! Files are opened when they are read, and closed behind it: a chain may have more files than a
//! process has descriptors.
//!
//! One thread at a time.

use crate::error::LogError;
use crate::format::frame::FrameHeader;
use crate::position::LogPosition;
use crate::reader::chain_file::ChainFile;
use crate::reader::frames::FrameWalk;
use crate::reader::log_file::{ChainKey, ReadFile, numbers_of};
use crate::storage::{Storage, StoredFile};
use std::collections::BTreeMap;

/// A file with a right head and a valid BEGIN.
#[derive(Debug, Clone)]
pub(crate) struct ReadBegin {
    /// The header of its BEGIN.
    pub(crate) header: FrameHeader,
    /// Its table.
    pub(crate) lasts: Vec<(u32, u64)>,
    /// The file's salt.
    pub(crate) salt: u64,
    /// Bytes that its frames may use.
    pub(crate) file_bytes: u64,
}

impl ReadBegin {
    /// Reads the BEGIN that a walk stands before; `None` if it isn't valid.
    ///
    /// # Errors
    /// `Body` or `Io`.
    pub(crate) fn read<F: StoredFile>(
        walk: &mut FrameWalk<F>,
    ) -> Result<Option<ReadBegin>, LogError> {
        let Some(header) = walk.advance()? else {
            return Ok(None);
        };
        if header.watermark.file == 0 && (header.watermark.position, header.before_sum) != (0, 0) {
            return Err(walk.broken(header.at.position, "a first BEGIN names a frame before it"));
        }
        let rows = walk.parsed(&header)?.rows;
        let lasts = rows.iter().map(|row| (row.stream, row.last)).collect();
        let (salt, file_bytes) = (walk.file().head.salt, walk.file().head.file_bytes);
        Ok(Some(ReadBegin { header, lasts, salt, file_bytes }))
    }

    /// The file, if its frames end there with this sum.
    pub(crate) fn ending(&self, end: u64, end_sum: u32) -> ChainFile {
        ChainFile {
            number: self.header.at.file,
            salt: self.salt,
            file_bytes: self.file_bytes,
            end,
            end_sum,
            lasts: self.lasts.clone(),
        }
    }

    /// Whether it follows frames that end there, with this sum.
    pub(crate) fn follows(&self, end: LogPosition, end_sum: Option<u32>) -> bool {
        let sum = end_sum.is_none_or(|sum| sum == self.header.before_sum);
        self.header.watermark == end && sum
    }
}

/// The files of a chain that have a name.
pub(crate) struct FileSearch<'a, S> {
    storage: &'a S,
    /// Which log and chain.
    pub(crate) key: ChainKey,
    /// Their numbers, rising.
    pub(crate) numbers: Vec<u64>,
    /// What is wrong with the head of some of them.
    pub(crate) wrong: BTreeMap<u64, LogError>,
}

impl<'a, S: Storage> FileSearch<'a, S> {
    /// Lists the files and reads their heads.
    ///
    /// # Errors
    /// `NewerVersion` or `Io`.
    pub(crate) fn list(storage: &'a S, key: &ChainKey) -> Result<Self, LogError> {
        let numbers = numbers_of(storage, &key.chain)?;
        let mut search = FileSearch { storage, key: *key, numbers, wrong: BTreeMap::new() };
        for &number in &search.numbers {
            match ReadFile::open(storage, key, number) {
                Err(error @ LogError::Head { .. }) => drop(search.wrong.insert(number, error)),
                opened => drop(opened?),
            }
        }
        Ok(search)
    }

    /// Numbers of the files with right heads, rising.
    pub(crate) fn right(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.numbers.iter().copied().filter(|number| !self.wrong.contains_key(number))
    }

    /// The name of a file.
    pub(crate) fn name(&self, number: u64) -> String {
        self.key.name(number).to_string()
    }

    /// Opens a file that must be there.
    ///
    /// # Errors
    /// `Missing`, `Head`, `NewerVersion` or `Io`.
    pub(crate) fn open(&self, number: u64) -> Result<ReadFile<S::File>, LogError> {
        let opened = ReadFile::open(self.storage, &self.key, number)?;
        opened.ok_or_else(|| LogError::Missing { file: self.name(number) })
    }

    /// The BEGIN of a file that must be there; `None` if it isn't valid.
    ///
    /// # Errors
    /// `Missing`, `Head`, `NewerVersion`, `Body` or `Io`.
    pub(crate) fn begin(&self, number: u64) -> Result<Option<ReadBegin>, LogError> {
        ReadBegin::read(&mut FrameWalk::begin(self.open(number)?, None))
    }
}
