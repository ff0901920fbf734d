//! The system arena: what the store keeps beside the tenant's data. Now: function libraries.
//!
//! A library is a record with the key `library:` + name and its source as value, so it survives
//! what the data survives, and FLUSHALL doesn't touch it.
//!
//! Thread: the shard that owns the store; what only reads, on a view's shard too.

use std::collections::BTreeSet;

use nigh_shm::{Record, RecordRef, WriteError};

use crate::partition::halves::Libraries;
use crate::partition::store::Store;
use crate::turn::Turn;

/// Keys of libraries begin with this, so that others can live beside them.
const LIBRARY_PREFIX: &[u8] = b"library:";
/// Home lines per step of a walk over the whole arena; the arena is small.
const LINES_PER_STEP: u32 = 64;

impl Libraries {
    fn records<'p>(&self, turn: &Turn<'p>) -> Vec<Record<'p>> {
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

    /// Stores `libraries` and deletes those in `gone`, as one commit.
    fn replace(
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

impl Store {
    /// Name and source of each library, sorted by name.
    #[must_use]
    pub fn libraries<'p>(&self, turn: &Turn<'p>) -> Vec<(&'p [u8], &'p [u8])> {
        let records = self.libraries.records(turn);
        let mut libraries: Vec<_> = records
            .iter()
            .map(|record| (&record.key()[LIBRARY_PREFIX.len()..], record.value()))
            .collect();
        libraries.sort_unstable();
        libraries
    }

    /// Stores a library, replacing one of the same name.
    ///
    /// # Errors
    ///
    /// Name or source too long, or the system arena is full: nothing has changed.
    pub fn put_library(
        &mut self,
        name: &[u8],
        source: &[u8],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let key = key_of(name);
        let hash = self.libraries.reader.hash(&key);
        let outcome = self.libraries.writer.put(turn.pin, hash, &key, &[source], 0);
        outcome.inspect_err(|error| self.note_full(error))
    }

    /// Stores several libraries as one, and with `clear_first` deletes all others.
    ///
    /// # Errors
    ///
    /// As [`Store::put_library`]: nothing has changed.
    pub fn put_libraries(
        &mut self,
        libraries: &[(&[u8], &[u8])],
        clear_first: bool,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let keep: BTreeSet<&[u8]> = libraries.iter().map(|(name, _)| *name).collect();
        let mut gone = if clear_first { self.libraries.records(turn) } else { Vec::new() };
        gone.retain(|record| !keep.contains(&record.key()[LIBRARY_PREFIX.len()..]));
        let outcome = self.libraries.replace(libraries, &gone, turn);
        outcome.inspect_err(|error| self.note_full(error))
    }

    /// A transaction fails with what finds no room in it, though libraries aren't staged. No
    /// eviction makes room here.
    fn note_full(&mut self, error: &WriteError) {
        if let Some(transaction) = &mut self.transaction
            && matches!(error, WriteError::Oom | WriteError::Denied(_))
        {
            transaction.note_refused(*error);
            transaction.note_wanted(usize::MAX);
        }
    }

    /// Deletes a library; false if there is none of that name.
    pub fn delete_library(&mut self, name: &[u8], turn: &Turn<'_>) -> bool {
        let key = key_of(name);
        let hash = self.libraries.reader.hash(&key);
        self.libraries.writer.delete(turn.pin, hash, &key)
    }

    /// Deletes all libraries.
    pub fn clear_libraries(&mut self, turn: &Turn<'_>) {
        let gone = self.libraries.records(turn);
        if self.libraries.replace(&[], &gone, turn).is_err() {
            // No memory for tombstones: one by one, which needs none.
            for record in gone {
                self.libraries.writer.delete(turn.pin, record.hash(), record.key());
            }
        }
    }
}
