//! Several writes as one: MSET, RENAME and the write sets of functions.
//!
//! ```text
//! stage all new versions ──> outside of a transaction: one commit
//!                        └─> inside: into the overlay
//! ```
//!
//! 1. All new versions are staged before the first is installed, so a failure half-way leaves
//!    nothing.
//!
//! Thread: the shard that owns the store.

use std::collections::HashMap;

use nigh_shm::layout::is_over;
use nigh_shm::{RecordRef, WriteError};
use smallvec::SmallVec;

use crate::partition::store::Store;
use crate::turn::Turn;

/// One write of a write set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWrite<'a> {
    /// Store a value. With an expiry that is over it deletes the key, if it is there.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
        /// Unix ms, 0 for none.
        expiry_ms: u64,
    },
    /// Delete the key, if it is there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Give the key another expiry, if it is there. An expiry that is over deletes it.
    Expire {
        /// The key.
        key: &'a [u8],
        /// Unix ms, 0 for none.
        expiry_ms: u64,
    },
}

impl<'a> KeyWrite<'a> {
    /// The key that is written.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            KeyWrite::Put { key, .. } | KeyWrite::Delete { key } | KeyWrite::Expire { key, .. } => {
                key
            }
        }
    }

    /// What it does at a time: a value that is over isn't stored.
    fn judged(&self, now_ms: u64) -> KeyWrite<'a> {
        match *self {
            KeyWrite::Put { key, expiry_ms, .. } if is_over(expiry_ms, now_ms) => {
                KeyWrite::Delete { key }
            }
            write => write,
        }
    }
}

/// A staged write; without a record it deletes the key, if that is there.
pub(crate) struct Change<'k> {
    pub(crate) hash: u32,
    pub(crate) key: &'k [u8],
    pub(crate) record: Option<RecordRef>,
}

/// Changes of one command; a stack buffer of about 1 KiB holds most.
pub(crate) type Changes<'k> = SmallVec<[Change<'k>; 24]>;

impl Store {
    /// Applies the write set of one function call, in order: all of it or nothing. Inside a
    /// transaction it becomes a part of it.
    ///
    /// # Errors
    ///
    /// A key or value too long, or no memory: nothing has changed.
    pub fn commit_writes(
        &mut self,
        writes: &[KeyWrite<'_>],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if writes.is_empty() {
            return Ok(());
        }
        let put_bytes = |write: &KeyWrite<'_>| match write {
            KeyWrite::Put { key, value, .. } => key.len() + value.len(),
            _ => 0,
        };
        let bytes = writes.iter().map(put_bytes).sum();
        let outcome = self.with_room(bytes, turn, |store| store.commit_in_room(writes, turn));
        outcome.inspect_err(|error| self.note_refused(error))
    }

    fn commit_in_room(
        &mut self,
        writes: &[KeyWrite<'_>],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        match *writes {
            [KeyWrite::Put { key, value, expiry_ms }] => {
                self.put(self.reader.hash(key), key, &[value], expiry_ms, turn)
            }
            [KeyWrite::Delete { key }] => {
                let hash = self.reader.hash(key);
                if self.find(hash, key, turn).is_some() {
                    self.remove(hash, key, turn)?;
                }
                Ok(())
            }
            _ => {
                let mut changes = Changes::new();
                let staged = self.stage_writes(writes, &mut changes, turn);
                self.finish(staged, &changes, turn)?;
                self.touch_over(writes, turn);
                Ok(())
            }
        }
    }

    /// Touches the watchers of missing keys whose new values were over, behind a write set that was
    /// taken: as if they had come and gone.
    fn touch_over(&mut self, writes: &[KeyWrite<'_>], turn: &Turn<'_>) {
        for write in writes.iter().filter(|it| it.judged(turn.now_ms) != **it) {
            let key = write.key();
            match &self.overlay {
                None => self.watches.touch(key),
                Some(overlay) if overlay.get(key).is_some() => {}
                Some(_) => self.install(self.reader.hash(key), key, None, turn),
            }
        }
    }

    fn stage_writes<'k>(
        &mut self,
        writes: &[KeyWrite<'k>],
        changes: &mut Changes<'k>,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        // Records that earlier writes of the set have staged, for later writes to the same keys.
        let mut latest: HashMap<&[u8], Option<RecordRef>> = HashMap::new();
        let judged = |write: &KeyWrite<'k>| write.judged(turn.now_ms);
        let dependent = writes.iter().map(judged).any(|it| !matches!(it, KeyWrite::Put { .. }));
        for write in writes.iter().map(judged) {
            let (hash, key, record) = match write {
                KeyWrite::Put { key, value, expiry_ms } => {
                    let hash = self.reader.hash(key);
                    (hash, key, Some(self.data.stage(hash, key, &[value], expiry_ms)?))
                }
                KeyWrite::Delete { key } | KeyWrite::Expire { key, .. } => {
                    let hash = self.reader.hash(key);
                    let (is_new, from) = match latest.get(key) {
                        Some(staged) => (true, *staged),
                        None => (false, self.find(hash, key, turn).map(|it| it.reference())),
                    };
                    let Some(from) = from else { continue };
                    let record = match write {
                        KeyWrite::Expire { expiry_ms, .. }
                            if expiry_ms == 0 || expiry_ms > turn.now_ms =>
                        {
                            let (data, pin) = (&mut self.data, turn.pin);
                            // The reserve is for values that were there before.
                            Some(match is_new {
                                true => data.stage_moved_run(pin, from, hash, key, expiry_ms)?,
                                false => data.stage_expiry(pin, from, hash, key, expiry_ms)?,
                            })
                        }
                        _ => None,
                    };
                    (hash, key, record)
                }
            };
            if dependent {
                latest.insert(key, record);
            }
            changes.push(Change { hash, key, record });
        }
        Ok(())
    }

    /// Commits staged changes if staging them went well, else drops them.
    pub(crate) fn finish(
        &mut self,
        staged: Result<(), WriteError>,
        changes: &Changes<'_>,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let outcome = staged.and_then(|()| self.install_or_commit(changes, turn));
        match outcome {
            Ok(()) => {
                for change in changes {
                    if change.record.is_some() {
                        self.touch(change.hash);
                    }
                    self.touch_watchers(change.key);
                }
            }
            Err(_) => {
                let unused: Vec<RecordRef> =
                    changes.iter().filter_map(|change| change.record).collect();
                self.data.abandon(&unused);
            }
        }
        outcome
    }

    fn install_or_commit(
        &mut self,
        changes: &Changes<'_>,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if self.overlay.is_some() {
            for change in changes {
                self.install(change.hash, change.key, change.record, turn);
            }
            return Ok(());
        }
        let mut records: SmallVec<[RecordRef; 24]> = SmallVec::new();
        let mut tombstones: SmallVec<[RecordRef; 4]> = SmallVec::new();
        let mut outcome = Ok(());
        for change in changes {
            let record = match change.record {
                Some(record) => record,
                None => match self.data.stage_delete(change.hash, change.key) {
                    Ok(tombstone) => {
                        tombstones.push(tombstone);
                        tombstone
                    }
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                },
            };
            records.push(record);
        }
        let outcome = outcome.and_then(|()| self.data.commit(turn.pin, false, &records));
        if outcome.is_err() {
            self.data.take_back(&tombstones);
        }
        outcome
    }
}
