//! Writing: into the overlay while a transaction runs, else into the arena.
//!
//! Thread: the shard that owns the store.

use nigh_shm::layout::is_over;
use nigh_shm::{Record, RecordRef, WriteError};

use crate::partition::counters::Scarce;
use crate::partition::store::Store;
use crate::turn::Turn;

impl Store {
    /// Stores `parts`, joined, as the key's value. With an expiry that is over it deletes the key.
    #[inline]
    pub(crate) fn put(
        &mut self,
        hash: u32,
        key: &[u8],
        parts: &[&[u8]],
        expiry_ms: u64,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if is_over(expiry_ms, turn.now_ms) {
            return self.put_over(hash, key, turn);
        }
        if self.overlay.is_none() {
            self.data.put(turn.pin, hash, key, parts, expiry_ms)?;
        } else {
            let reference = self.data.stage(hash, key, parts, expiry_ms)?;
            self.install(hash, key, Some(reference), turn);
        }
        self.usage.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// Stores a value whose time is over: the key is as if it had come and gone.
    #[cold]
    fn put_over(&mut self, hash: u32, key: &[u8], turn: &Turn<'_>) -> Result<(), WriteError> {
        if self.overlay.is_none() && self.find(hash, key, turn).is_none() {
            self.touch_watchers(key);
            return Ok(());
        }
        self.remove(hash, key, turn)
    }

    /// Appends `parts` to the value of the key that has `record`.
    pub(crate) fn extend(
        &mut self,
        hash: u32,
        record: Record<'_>,
        parts: &[&[u8]],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let (pin, from) = (turn.pin, record.reference());
        let (key, expiry_ms) = (record.key(), record.expiry_ms());
        if self.overlay.is_none() {
            self.data.extend(pin, from, (hash, key), parts, expiry_ms)?;
        } else {
            let staged = self.data.stage_extended(pin, from, (hash, key), parts, expiry_ms)?;
            self.install(hash, key, Some(staged), turn);
        }
        self.usage.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// Touches the watchers of a written key. In a transaction the commit does that.
    #[inline]
    pub(crate) fn touch_watchers(&mut self, key: &[u8]) {
        if self.overlay.is_none() {
            self.watches.touch(key);
        }
    }

    /// Gives the key that has `record` another expiry; 0 is none.
    pub(crate) fn set_expiry(
        &mut self,
        record: Record<'_>,
        expiry_ms: u64,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let (hash, key) = (record.hash(), record.key());
        if self.overlay.is_none() {
            self.data.set_expiry(turn.pin, hash, key, expiry_ms)?;
        } else {
            let from = record.reference();
            let reference = self.data.stage_expiry(turn.pin, from, hash, key, expiry_ms)?;
            self.install(hash, key, Some(reference), turn);
        }
        self.usage.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// Deletes a key that is there. Needs no memory, but room in the journal.
    pub(crate) fn remove(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if self.overlay.is_none() {
            self.data.check_removal(std::iter::once(key.len()))?;
            self.data.delete(turn.pin, hash, key);
        } else {
            self.install(hash, key, None, turn);
        }
        Ok(())
    }

    /// Empties the keyspace. Needs no memory, but room in the journal.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        if let Some(overlay) = &mut self.overlay {
            overlay.clear(&mut self.data);
            return Ok(());
        }
        self.data.check_clear()?;
        self.data.clear();
        Ok(())
    }

    /// Inside a transaction: notes the key's new version, or its deletion.
    pub(crate) fn install(
        &mut self,
        hash: u32,
        key: &[u8],
        record: Option<RecordRef>,
        turn: &Turn<'_>,
    ) {
        let overlay = self.overlay.as_mut().expect("called inside of transactions");
        let in_arena = !overlay.is_cleared()
            && overlay.get(key).is_none()
            && self.reader.get(turn.pin, hash, key).is_some();
        overlay.insert(hash, key, record, in_arena);
    }

    /// Notes a write that found no memory: whether memory comes back, and that the transaction of
    /// the write has failed.
    #[cold]
    pub(crate) fn note_refused(&mut self, error: &WriteError) {
        self.counters.busy = Scarce::of(error).or(self.counters.busy);
        if let Some(overlay) = &mut self.overlay {
            overlay.note_refused(*error);
        }
    }
}
