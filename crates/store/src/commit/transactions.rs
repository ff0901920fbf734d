//! MULTI/EXEC: writes that wait beside the arena until all of them are published at once.
//!
//! A staged record lies in the arena, complete but not in the index; the overlay says which key it
//! is for. Commands read the overlay before the arena, so a transaction sees its own writes.
//!
//! 1. Nothing of a transaction is in the index before [`Store::commit`], which publishes all of it
//!    or nothing, also across a SIGKILL (the arena's intent).
//! 2. Deletes are noted, and get their tombstones at the commit: noting needs no memory of the
//!    arena. One that has no memory for them all is refused: it would be whole no more after a
//!    SIGKILL.
//! 3. A function that is called inside is told of all that is staged, and the next one of what is
//!    new since.
//! 4. Who watches a key is told at the commit: a transaction that fails, or is to run again, has
//!    written nothing.
//! 5. A staged record that is replaced is kept until the end: the record that replaces it may
//!    share its run.
//! 6. A transaction in which a write found no memory can't be committed: the others don't stand
//!    without it.
//! 7. One that fails has counted no hits and misses. Keys that it found expired are gone, as they
//!    are for everybody.
//!
//! Thread: the shard that owns the store.

use std::collections::BTreeMap;

use nigh_shm::{RecordRef, WriteError};

use crate::partition::overlay::{StagedKeys, Transaction};
use crate::partition::store::Store;
use crate::turn::Turn;

impl Store {
    /// Starts a transaction: from now on writes are staged.
    ///
    /// # Panics
    ///
    /// In a transaction.
    pub fn begin(&mut self) {
        assert!(self.transaction.is_none(), "a transaction inside a transaction");
        let counted = (self.counters.hits, self.counters.misses);
        self.transaction = Some(Box::new(Transaction { counted, ..Transaction::default() }));
    }

    /// True between [`Store::begin`] and [`Store::commit`] or [`Store::rollback`].
    #[inline]
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Whether a write of the running transaction found no memory, so that it can't be committed.
    #[inline]
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.refused.is_some())
    }

    /// About how many bytes the running transaction would have to find, as far as it came: those of
    /// what is staged, and what the write wanted that found none, if there was one and a policy
    /// evicts. No room can be made for `usize::MAX`.
    #[must_use]
    pub fn bytes_wanted(&self, turn: &Turn<'_>) -> usize {
        let Some(transaction) = &self.transaction else { return 0 };
        let bytes_of = |reference: RecordRef| {
            let record = self.reader.record(turn.pin, reference);
            record.map_or(0, |record| self.reader.footprint(&record).0)
        };
        let staged: u64 = transaction.all_records().map(bytes_of).sum();
        let staged = usize::try_from(staged).unwrap_or(usize::MAX);
        staged.saturating_add(transaction.refused_bytes)
    }

    /// Publishes all that is staged, or nothing, and ends the transaction.
    ///
    /// # Errors
    ///
    /// A write of it found no memory, or there is none for tombstones and intent, or no place in
    /// the index: nothing has changed.
    ///
    /// # Panics
    ///
    /// Outside of a transaction.
    pub fn commit(&mut self, turn: &Turn<'_>) -> Result<(), WriteError> {
        let transaction = self.transaction.as_ref().expect("a transaction to commit");
        if let Some(error) = transaction.refused {
            self.rollback();
            self.note_refused(&error);
            return Err(error);
        }
        let transaction = *self.transaction.take().expect("looked at above");
        let counted = transaction.counted;
        let mut publish = Vec::with_capacity(transaction.keys.len());
        let mut deleted = Vec::new();
        for (key, staged) in &transaction.keys {
            match staged.record {
                Some(record) => {
                    self.touch(staged.hash);
                    publish.push(record);
                }
                None if staged.in_arena && !transaction.cleared => {
                    deleted.push((staged.hash, &**key));
                }
                None => {}
            }
        }
        let cleared = if transaction.cleared { self.watched_and_there(turn) } else { Vec::new() };
        let outcome = match (&publish[..], &deleted[..]) {
            ([], []) => {
                if transaction.cleared {
                    self.data.clear();
                }
                Ok(())
            }
            // One deletion needs no memory.
            ([], &[(hash, key)]) => {
                self.data.delete(turn.pin, hash, key);
                Ok(())
            }
            _ => self.publish(transaction.cleared, publish, &deleted, turn),
        };
        if outcome.is_ok() {
            cleared.iter().for_each(|key| self.watches.touch(key));
            transaction.keys.keys().for_each(|key| self.watches.touch(key));
        }
        // After the commit, so that a run which they share with published records has its owner.
        let unused: Vec<RecordRef> = match outcome {
            Ok(()) => transaction.replaced,
            Err(_) => transaction.into_records().collect(),
        };
        self.data.abandon(&unused);
        outcome.inspect_err(|error| {
            (self.counters.hits, self.counters.misses) = counted;
            self.note_refused(error);
        })
    }

    /// Drops all that is staged and ends the transaction, if there is one.
    pub fn rollback(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            (self.counters.hits, self.counters.misses) = transaction.counted;
            let staged: Vec<RecordRef> = transaction.into_records().collect();
            self.data.abandon(&staged);
        }
    }

    /// Inside a transaction: what is staged, for a function that is called there and must see it
    /// before the arena (see also [`Store::overlay_cleared`]). After the first time only what is
    /// new since, unless `whole`. Nothing, outside of transactions.
    pub fn take_overlay(&mut self, whole: bool) -> StagedKeys {
        let Some(transaction) = &mut self.transaction else {
            return StagedKeys { is_whole: true, entries: Vec::new() };
        };
        match transaction.untold.replace(BTreeMap::new()) {
            Some(untold) if !whole => {
                StagedKeys { is_whole: false, entries: untold.into_iter().collect() }
            }
            _ => {
                let all = transaction.keys.iter().map(|(key, it)| (key.clone(), it.record));
                StagedKeys { is_whole: true, entries: all.collect() }
            }
        }
    }

    /// Inside a transaction: was the keyspace emptied in it, so that nothing of the arena is seen?
    #[must_use]
    pub fn overlay_cleared(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.cleared)
    }

    /// One commit of staged records and of deletions; on failure the tombstones are dropped, the
    /// records are the caller's to abandon.
    pub(crate) fn publish(
        &mut self,
        clear_first: bool,
        mut records: Vec<RecordRef>,
        deleted: &[(u32, &[u8])],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let staged = records.len();
        let outcome = deleted
            .iter()
            .try_for_each(|&(hash, key)| {
                records.push(self.data.stage_delete(hash, key)?);
                Ok(())
            })
            .and_then(|()| self.data.commit(turn.pin, clear_first, &records));
        if outcome.is_err() {
            self.data.take_back(&records[staged..]);
        }
        outcome
    }

    /// Deletes keys that are there, at one moment; also when the arena is so full that it has no
    /// memory for their tombstones: only a kill of the process in the middle may leave some of them
    /// then.
    pub(crate) fn delete_all(&mut self, keys: &[(u32, &[u8])], turn: &Turn<'_>) {
        match *keys {
            [(hash, key)] => {
                self.data.delete(turn.pin, hash, key);
            }
            _ if self.publish(false, Vec::new(), keys, turn).is_ok() => {}
            _ => self.data.delete_together(turn.pin, keys),
        }
    }
}
