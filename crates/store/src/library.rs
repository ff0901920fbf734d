//! The function libraries of a store.
//!
//! 1. Libraries aren't staged: a transaction's change to them is there at once. A transaction still
//!    fails with a library that found no room.
//!
//! Thread: the shard that owns the store; [`Store::libraries`] and [`Store::library`] run on a
//! view's shard too.

use std::collections::BTreeSet;

use nigh_shm::WriteError;

use crate::partition::store::Store;
use crate::partition::system_arena::LIBRARY_PREFIX;
use crate::turn::Turn;

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

    /// The source of a library.
    #[must_use]
    pub fn library<'p>(&self, name: &[u8], turn: &Turn<'p>) -> Option<&'p [u8]> {
        self.libraries.get(name, turn).map(|record| record.value())
    }

    /// Stores a library; replaces one with the same name.
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
        let outcome = self.libraries.put(name, source, turn);
        outcome.inspect_err(|error| self.note_full(error))
    }

    /// Stores several libraries as one commit, and with `clear_first` deletes all others.
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

    /// Fails the running transaction after a library found no room. Eviction makes no room in the
    /// system arena.
    fn note_full(&mut self, error: &WriteError) {
        if let Some(overlay) = &mut self.overlay
            && matches!(error, WriteError::Oom | WriteError::Denied(_))
        {
            overlay.note_refused(*error);
            overlay.note_wanted(usize::MAX);
        }
    }

    /// Deletes a library; false if no library has that name.
    ///
    /// # Errors
    ///
    /// The journal has no room: nothing has changed.
    pub fn delete_library(&mut self, name: &[u8], turn: &Turn<'_>) -> Result<bool, WriteError> {
        self.libraries.delete(name, turn)
    }

    /// Deletes all libraries, as one commit.
    ///
    /// # Errors
    ///
    /// The journal has no room, or they are too many for one commit: nothing has changed.
    pub fn clear_libraries(&mut self, turn: &Turn<'_>) -> Result<(), WriteError> {
        self.libraries.clear(turn)
    }
}
