//! The system arena, which holds the function libraries.
//!
//! A library is a record with the key `library:` + name and the source as its value. So it survives
//! a crash as the data does, and FLUSHALL doesn't touch it.
//!
//! Thread: the shard that owns the store; a view's shard only reads.

use nigh_shm::{Reader, Record, RecordRef, WriteError};

use crate::partition::store_stats::StoreStats;
use crate::partition::writer_half::WriterHalf;
use crate::turn::Turn;

/// Keys of libraries begin with this, so that other things can lie beside them.
pub(crate) const LIBRARY_PREFIX: &[u8] = b"library:";
/// Home lines per step of a walk over the whole arena; the arena is small.
const LINES_PER_STEP: u32 = 64;

/// The arena of a tenant's libraries.
pub(crate) struct SystemArena {
    pub(crate) writer: WriterHalf,
    pub(crate) reader: Reader,
}

impl SystemArena {
    /// Adds the counts of this arena to `counted`, if the owner's half is here.
    pub(crate) fn count(&self, counted: StoreStats) -> StoreStats {
        if !self.writer.is_here() {
            return counted;
        }
        let (libraries, system) = (self.writer.keys(), self.writer.stats());
        StoreStats { libraries, system, ..counted }
    }

    /// The records of all libraries.
    pub(crate) fn records<'p>(&self, turn: &Turn<'p>) -> Vec<Record<'p>> {
        let mut records = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = self.reader.scan(turn.pin, cursor, LINES_PER_STEP, &mut |record| {
                if record.key().starts_with(LIBRARY_PREFIX) {
                    records.push(record);
                }
            });
            if cursor == 0 {
                return records;
            }
        }
    }

    /// The record of a library.
    pub(crate) fn get<'p>(&self, name: &[u8], turn: &Turn<'p>) -> Option<Record<'p>> {
        let key = key_of(name);
        self.reader.get(turn.pin, self.reader.hash(&key), &key)
    }

    /// Stores a library; replaces one with the same name.
    pub(crate) fn put(
        &mut self,
        name: &[u8],
        source: &[u8],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let key = key_of(name);
        self.writer.put(turn.pin, self.reader.hash(&key), &key, &[source], 0)
    }

    /// Deletes a library; false if no library has that name.
    pub(crate) fn delete(&mut self, name: &[u8], turn: &Turn<'_>) -> Result<bool, WriteError> {
        let key = key_of(name);
        self.writer.check_removal(std::iter::once(key.len()))?;
        Ok(self.writer.delete(turn.pin, self.reader.hash(&key), &key))
    }

    /// Deletes all libraries, as one commit.
    pub(crate) fn clear(&mut self, turn: &Turn<'_>) -> Result<(), WriteError> {
        let gone = self.records(turn);
        self.writer.check_removal(gone.iter().map(|record| record.key().len()))?;
        if self.replace(&[], &gone, turn).is_err() {
            // There is no memory for tombstones. This needs none.
            let keys: Vec<_> = gone.iter().map(|record| (record.hash(), record.key())).collect();
            self.writer.delete_together(turn.pin, &keys);
        }
        Ok(())
    }

    /// Stores `libraries` and deletes those in `gone`, as one commit.
    pub(crate) fn replace(
        &mut self,
        libraries: &[(&[u8], &[u8])],
        gone: &[Record<'_>],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let mut staged: Vec<RecordRef> = Vec::with_capacity(libraries.len() + gone.len());
        let mut stage = || {
            for (name, source) in libraries {
                let key = key_of(name);
                let hash = self.reader.hash(&key);
                staged.push(self.writer.stage(hash, &key, &[source], 0)?);
            }
            for record in gone {
                staged.push(self.writer.stage_delete(record.hash(), record.key())?);
            }
            self.writer.commit(turn.pin, false, &staged)
        };
        let outcome = stage();
        if outcome.is_err() {
            self.writer.abandon(&staged);
        }
        outcome
    }
}

fn key_of(name: &[u8]) -> Vec<u8> {
    [LIBRARY_PREFIX, name].concat()
}
