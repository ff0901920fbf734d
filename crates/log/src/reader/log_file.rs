//! A log file that is read: its head is right, and its bytes are read by position.
//!
//! 1. A read that fails or is short is an error, never "not valid": only bytes that were read can
//!    be invalid.
//!
//! Any thread; each reader opens its own.

use crate::error::LogError;
use crate::format::head::Head;
use crate::format::layout::{SECTOR_BYTES, head as h};
use crate::format::meta::Meta;
use crate::format::names::FileName;
use crate::format::sum::{Secret, SumKey};
use crate::position::{Chain, LogPosition};
use crate::storage::{Storage, StoredFile, read_exact_at};
use std::io;

/// Which log and chain a file is of, and the secret of its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainKey {
    /// The log's id.
    pub log_id: [u8; 16],
    /// The log's secret.
    pub secret: Secret,
    /// The chain.
    pub chain: Chain,
}

impl ChainKey {
    /// The key of a chain of this log.
    #[must_use]
    pub fn of(meta: &Meta, chain: &Chain) -> ChainKey {
        ChainKey { log_id: meta.id, secret: meta.secret, chain: *chain }
    }

    /// The name of one of its files.
    #[must_use]
    pub fn name(&self, number: u64) -> FileName {
        FileName::of(&self.chain, number)
    }
}

/// An open log file with a right head.
#[derive(Debug)]
pub(crate) struct ReadFile<F> {
    /// Its name.
    pub(crate) name: FileName,
    /// What its head says.
    pub(crate) head: Head,
    /// What the sums of its frames begin with.
    pub(crate) sums: SumKey,
    /// The file.
    pub(crate) file: F,
    /// It ends before its head says.
    pub(crate) is_cut: bool,
}

impl<F: StoredFile> ReadFile<F> {
    /// Opens a file of a chain and reads its head; `None` if the name isn't there.
    ///
    /// # Errors
    /// `Head`, `NewerVersion` or `Io`.
    pub(crate) fn open<S: Storage<File = F>>(
        storage: &S,
        key: &ChainKey,
        number: u64,
    ) -> Result<Option<ReadFile<F>>, LogError> {
        ReadFile::open_cut(storage, key, number, false)
    }

    /// The same. With `may_be_cut` the file may also end before its head says, in the middle of a
    /// sector too: then frames end before that.
    ///
    /// # Errors
    /// As of [`ReadFile::open`].
    pub(crate) fn open_cut<S: Storage<File = F>>(
        storage: &S,
        key: &ChainKey,
        number: u64,
        may_be_cut: bool,
    ) -> Result<Option<ReadFile<F>>, LogError> {
        let name = key.name(number);
        let text = name.to_string();
        let opened = storage.open(&text).map_err(|error| LogError::io(&text, 0, "open", error))?;
        let Some(file) = opened else { return Ok(None) };
        let length = file.len().map_err(|error| LogError::io(&text, 0, "asking for length", error));
        let length = length?;
        if length < h::BYTES as u64 {
            return Err(LogError::Head { file: text, what: "the file is shorter than a head" });
        }
        let mut block = vec![0; h::BYTES];
        read_exact_at(&file, 0, &mut block)
            .map_err(|error| LogError::io(&text, 0, "reading", error))?;
        let said = if may_be_cut { u64::MAX } else { length };
        let mut head = Head::parse(&block, &key.secret, &key.log_id, &key.chain, &name, said)?;
        let is_cut = head.file_bytes > length;
        head.file_bytes = head.file_bytes.min(length / SECTOR_BYTES * SECTOR_BYTES);
        let sums = SumKey { secret: key.secret, salt: head.salt };
        Ok(Some(ReadFile { name, head, sums, file, is_cut }))
    }

    /// A place in it.
    pub(crate) const fn at(&self, position: u64) -> LogPosition {
        LogPosition { file: self.name.number, position }
    }

    /// Fills the buffer with the bytes from a position on.
    ///
    /// # Errors
    /// `Io`, also if the file ends before.
    pub(crate) fn read(&self, position: u64, into: &mut [u8]) -> Result<(), LogError> {
        let read = read_exact_at(&self.file, position, into);
        read.map_err(|error| self.io(position, "reading", error))
    }

    /// The error of a call to the system.
    pub(crate) fn io(&self, position: u64, doing: &'static str, error: io::Error) -> LogError {
        LogError::io(&self.name.to_string(), position, doing, error)
    }
}

/// Numbers of a chain's files that have a name, rising.
///
/// # Errors
/// `Io`.
pub(crate) fn numbers_of<S: Storage>(storage: &S, chain: &Chain) -> Result<Vec<u64>, LogError> {
    let names = storage.names().map_err(|error| LogError::io(".", 0, "listing", error))?;
    let parsed = names.iter().filter_map(|name| FileName::parse(name));
    let mut numbers: Vec<u64> =
        parsed.filter(|name| name.is_of(chain)).map(|name| name.number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
