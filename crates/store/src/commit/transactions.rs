//! MULTI/EXEC: writes that wait beside the arena until one commit publishes all of them.
//!
//! ```text
//! begin ──> commands: write to the overlay, read it before the arena ──> commit: publish all
//!                                                                  └───> rollback: drop all
//! ```
//!
//! 1. Nothing of a transaction is in the index before [`Store::commit`]. The commit publishes all
//!    of it or nothing, also across a SIGKILL (by the arena's intent).
//! 2. The commit makes the tombstones of the deletions. A transaction without memory for all its
//!    tombstones is refused, because a SIGKILL in the middle would leave a part of it.
//! 3. Watchers of a key are told at the commit. A transaction that fails, or that is to run again,
//!    has written nothing.
//! 4. A transaction in which a write found no memory can't be committed: the other writes don't
//!    stand without it.
//! 5. A transaction that fails has counted no hits and misses. The keys that it found expired are
//!    gone all the same.
//!
//! Thread: the shard that owns the store.

use nigh_shm::{RecordRef, WriteError};

use crate::partition::overlay::{Overlay, StagedKeys};
use crate::partition::store::Store;
use crate::turn::Turn;

impl Store {
    /// Starts a transaction: from now on writes are staged.
    ///
    /// # Panics
    ///
    /// In a transaction.
    pub fn begin(&mut self) {
        assert!(self.overlay.is_none(), "a transaction inside a transaction");
        let counted = (self.counters.hits, self.counters.misses);
        self.overlay = Some(Box::new(Overlay::new(counted)));
    }

    /// True between [`Store::begin`] and [`Store::commit`] or [`Store::rollback`].
    #[inline]
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.overlay.is_some()
    }

    /// Whether a write of the running transaction found no memory, so that it can't be committed.
    #[inline]
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.refused().is_some())
    }

    /// About how many bytes the running transaction needs, as far as it came: those of its staged
    /// records, and those of the write that found no memory. The latter are known under a policy
    /// that evicts only. `usize::MAX`: eviction can make no room for it.
    #[must_use]
    pub fn bytes_wanted(&self, turn: &Turn<'_>) -> usize {
        let Some(overlay) = &self.overlay else { return 0 };
        overlay.bytes_wanted(|reference| {
            let record = self.reader.record(turn.pin, reference);
            record.map_or(0, |record| self.reader.footprint(&record).0)
        })
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
        let overlay = *self.overlay.take().expect("a transaction to commit");
        let counted = overlay.counted();
        let outcome = match overlay.refused() {
            Some(error) => Err(error),
            None => self.publish_overlay(&overlay, turn),
        };
        // After the commit, so that a run which they share with published records has its owner.
        let unused: Vec<RecordRef> = match outcome {
            Ok(()) => overlay.into_replaced(),
            Err(_) => overlay.into_records().collect(),
        };
        self.data.abandon(&unused);
        outcome.inspect_err(|error| {
            (self.counters.hits, self.counters.misses) = counted;
            self.note_refused(error);
        })
    }

    fn publish_overlay(&mut self, overlay: &Overlay, turn: &Turn<'_>) -> Result<(), WriteError> {
        let mut publish = Vec::with_capacity(overlay.staged().len());
        let mut deleted = Vec::new();
        for (key, staged) in overlay.staged() {
            match staged.record {
                Some(record) => {
                    self.usage.touch(staged.hash);
                    publish.push(record);
                }
                None if staged.in_arena && !overlay.is_cleared() => {
                    deleted.push((staged.hash, key));
                }
                None => {}
            }
        }
        match (&publish[..], &deleted[..]) {
            ([], []) => {
                if overlay.is_cleared() {
                    self.data.check_clear()?;
                    self.data.clear();
                }
            }
            // One deletion needs no memory.
            ([], &[(hash, key)]) => {
                self.data.check_removal(std::iter::once(key.len()))?;
                self.data.delete(turn.pin, hash, key);
            }
            _ => self.publish(overlay.is_cleared(), publish, &deleted, turn)?,
        }
        overlay.staged().for_each(|(key, _)| self.watches.touch(key));
        Ok(())
    }

    /// Drops all that is staged and ends the transaction, if there is one.
    pub fn rollback(&mut self) {
        if let Some(overlay) = self.overlay.take() {
            (self.counters.hits, self.counters.misses) = overlay.counted();
            let staged: Vec<RecordRef> = overlay.into_records().collect();
            self.data.abandon(&staged);
        }
    }

    /// The keys that a function inside a transaction has to see before the arena (see also
    /// [`Store::overlay_cleared`]). After the first call only what is new since, unless `whole`.
    /// Nothing, outside of transactions.
    pub fn take_overlay(&mut self, whole: bool) -> StagedKeys {
        match &mut self.overlay {
            Some(overlay) => overlay.take_untold(whole),
            None => StagedKeys { is_whole: true, entries: Vec::new() },
        }
    }

    /// Whether the running transaction has emptied the keyspace, so that it sees nothing of the
    /// arena.
    #[must_use]
    pub fn overlay_cleared(&self) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.is_cleared())
    }

    /// One commit of staged records and of deletions. On failure the tombstones are dropped; the
    /// caller abandons the records.
    fn publish(
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

    /// Deletes keys that are there, at one moment. If the arena has no memory for their tombstones,
    /// they are deleted without: then a kill of the process in the middle may leave some of them.
    ///
    /// # Errors
    /// If the journal has no room; nothing has changed then.
    pub(crate) fn delete_all(
        &mut self,
        keys: &[(u32, &[u8])],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        self.data.check_removal(keys.iter().map(|(_, key)| key.len()))?;
        match *keys {
            [(hash, key)] => {
                self.data.delete(turn.pin, hash, key);
            }
            _ if self.publish(false, Vec::new(), keys, turn).is_ok() => {}
            _ => self.data.delete_together(turn.pin, keys),
        }
        Ok(())
    }
}
