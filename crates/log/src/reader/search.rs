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
use std::collections::{BTreeMap, BTreeSet};

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
    /// Files may end before their heads say: for a salvage. `None`: such a head is wrong.
    pub(crate) cut: Option<BTreeSet<u64>>,
}

impl<'a, S: Storage> FileSearch<'a, S> {
    /// Lists the files and reads their heads.
    ///
    /// # Errors
    /// `NewerVersion` or `Io`.
    pub(crate) fn list(storage: &'a S, key: &ChainKey) -> Result<Self, LogError> {
        FileSearch::list_by(storage, key, None)
    }

    /// The same, and takes files that end before their heads say, which [`FileSearch::cut`] then
    /// has.
    ///
    /// # Errors
    /// `NewerVersion` or `Io`.
    pub(crate) fn list_cut(storage: &'a S, key: &ChainKey) -> Result<Self, LogError> {
        FileSearch::list_by(storage, key, Some(BTreeSet::new()))
    }

    fn list_by(
        storage: &'a S,
        key: &ChainKey,
        mut cut: Option<BTreeSet<u64>>,
    ) -> Result<Self, LogError> {
        let (numbers, mut wrong) = (numbers_of(storage, &key.chain)?, BTreeMap::new());
        for &number in &numbers {
            match ReadFile::open_cut(storage, key, number, cut.is_some()) {
                Err(error @ LogError::Head { .. }) => drop(wrong.insert(number, error)),
                Err(error @ LogError::NewerVersion { .. }) if cut.is_some() => {
                    wrong.insert(number, error);
                }
                opened => {
                    if let (Some(cut), Some(true)) = (&mut cut, opened?.map(|file| file.is_cut)) {
                        cut.insert(number);
                    }
                }
            }
        }
        let search = FileSearch { storage, key: *key, numbers, wrong, cut };
        // A chain's files have one version: beside a right head, another version is damage.
        let is_newer = |error: &LogError| matches!(error, LogError::NewerVersion { .. });
        match search.wrong.values().position(is_newer) {
            Some(at) if search.wrong.len() == search.numbers.len() => {
                Err(search.wrong.into_values().nth(at).expect("it was found there"))
            }
            _ => Ok(search),
        }
    }

    /// Whether a file ends before its head says.
    pub(crate) fn is_cut(&self, number: u64) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.contains(&number))
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
        let may_be_cut = self.cut.is_some();
        let opened = ReadFile::open_cut(self.storage, &self.key, number, may_be_cut)?;
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
