//! Keys of an RDB, and strings in general.

use std::io::Read;

use super::Applier;
use super::shift::put_off;
use crate::fault::ImportError;
use crate::rdb::{Entry, RdbReader, STRING_BYTES_MAX, ValueKind};
use crate::source::SourceError;
use crate::target::TargetError;

/// Longest key that Nigh takes.
pub(super) const KEY_BYTES_MAX: usize = 65_535;
/// The kind of keys that are longer.
pub(super) const LONG_KEYS: &str = "keys of more than 65,535 bytes";

/// A fault of the source or the target, in the middle of a value.
pub(crate) enum Fault {
    Source(SourceError),
    Target(TargetError),
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<TargetError> for Fault {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

impl Fault {
    /// The error of the import; `name` is the source's.
    pub(crate) fn of(self, name: &str) -> ImportError {
        match self {
            Self::Source(cause) => ImportError::Source { name: name.into(), cause },
            Self::Target(cause) => ImportError::Target(cause),
        }
    }
}

impl Applier {
    /// Applies the key that the reader has found, or counts why not. The reader leaves out a value
    /// that isn't read here.
    pub(crate) fn key<R: Read>(
        &mut self,
        reader: &mut RdbReader<R>,
        entry: &Entry,
    ) -> Result<(), Fault> {
        let key = reader.key();
        if entry.db != self.manner.db {
            self.left_out.add(&format!("keys of database {}", entry.db), key);
        } else if entry.kind != ValueKind::String {
            self.left_out.add(&entry.kind.to_string(), key);
        } else if key.len() > KEY_BYTES_MAX {
            self.left_out.add(LONG_KEYS, key);
        } else if entry.value_bytes > STRING_BYTES_MAX {
            self.left_out.add("values of more than 512 MiB", key);
        } else if !self.manner.puts_off && entry.expiry_ms.is_some_and(|at| self.is_over(at)) {
            self.over += 1;
            self.remove(key)?; // the server may have an older value
        } else {
            self.begin_set(key, entry.value_bytes, entry.expiry_ms)?;
            reader.value(|piece| self.target.piece(piece).map_err(Fault::from))?;
            self.end_set(entry.expiry_ms)?;
        }
        Ok(())
    }

    /// A string with its expiry.
    pub(super) fn string(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<i64>,
    ) -> Result<(), TargetError> {
        self.lost.take(key);
        self.begin_set(key, value.len() as u64, expiry_ms)?;
        self.target.piece(value)?;
        self.end_set(expiry_ms)
    }

    pub(super) fn is_over(&self, expiry_ms: i64) -> bool {
        expiry_ms <= self.manner.now_ms
    }

    fn begin_set(
        &mut self,
        key: &[u8],
        value_bytes: u64,
        expiry_ms: Option<i64>,
    ) -> Result<(), TargetError> {
        let words = if expiry_ms.is_some() { 5 } else { 3 };
        self.target.begin(words, key.len() as u64 + value_bytes)?;
        self.target.word(b"SET")?;
        self.target.word(key)?;
        self.target.word_of(value_bytes);
        Ok(())
    }

    fn end_set(&mut self, expiry_ms: Option<i64>) -> Result<(), TargetError> {
        self.target.word_end();
        if let Some(expiry_ms) = expiry_ms {
            self.target.word(b"PXAT")?;
            let expiry = self.sent_expiry(expiry_ms);
            self.target.word(expiry.as_bytes())?;
        }
        self.target.end()
    }

    /// The expiry as it is sent.
    pub(super) fn sent_expiry(&mut self, expiry_ms: i64) -> String {
        if !self.manner.puts_off {
            return expiry_ms.to_string();
        }
        self.put_off += 1;
        put_off(expiry_ms).to_string()
    }
}
