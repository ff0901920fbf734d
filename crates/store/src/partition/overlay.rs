//! The overlay of a transaction.
//!
//! Thread: the shard that owns the store.

use std::collections::BTreeMap;

use nigh_shm::{RecordRef, WriteError, Writer};

use crate::error::Refused;

/// The overlay of one transaction.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) keys: BTreeMap<Box<[u8]>, Staged>,
    /// The keyspace was emptied: nothing of the arena is seen any more.
    pub(crate) cleared: bool,
    /// Staged records that others have replaced.
    pub(crate) replaced: Vec<RecordRef>,
    /// What was staged since a function was told of the rest; nothing is noted before the first
    /// one.
    pub(crate) untold: Option<BTreeMap<Box<[u8]>, Option<RecordRef>>>,
    /// Keys that there will be more (or less) than in the arena, or than none if cleared.
    pub(crate) growth: i64,
    /// Why a write found no memory, if one did.
    pub(crate) refused: Option<WriteError>,
    /// What that write wanted, about.
    pub(crate) refused_bytes: usize,
    /// Hits and misses that were counted before the transaction.
    pub(crate) counted: (u64, u64),
}

/// What a function is told that is called inside a transaction.
#[derive(Debug)]
pub struct StagedKeys {
    /// This is all that is staged; else it comes on top of what was told before.
    pub is_whole: bool,
    /// Key, and its record; `None`: deleted.
    pub entries: Vec<(Box<[u8]>, Option<RecordRef>)>,
}

pub(crate) struct Staged {
    pub(crate) hash: u32,
    /// The new version, or that the key is deleted.
    pub(crate) record: Option<RecordRef>,
    /// The arena has a version, which the commit replaces or deletes.
    pub(crate) in_arena: bool,
}

impl Transaction {
    /// What is staged for a key: nothing, a record, or its deletion.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<RecordRef>> {
        self.keys.get(key).map(|staged| staged.record)
    }

    /// Was the keyspace emptied?
    pub(crate) fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Keys seen from inside, `in_arena` being what the arena has.
    pub(crate) fn keys(&self, in_arena: u64) -> u64 {
        let seen = if self.cleared { 0 } else { in_arena };
        seen.saturating_add_signed(self.growth)
    }

    /// Staged records, in order of their keys.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&[u8], RecordRef, bool)> {
        self.keys.iter().filter_map(|(key, staged)| Some((&**key, staged.record?, staged.in_arena)))
    }

    /// Forgets what is staged, and everything in the arena.
    pub(crate) fn clear(&mut self, data: &mut Writer) {
        let emptied = Transaction {
            cleared: true,
            refused: self.refused,
            refused_bytes: self.refused_bytes,
            counted: self.counted,
            ..Transaction::default()
        };
        let staged: Vec<RecordRef> = std::mem::replace(self, emptied).into_records().collect();
        data.abandon(&staged);
    }

    /// Notes that a write was refused.
    pub(crate) fn note_refused(&mut self, error: WriteError) {
        if error.lacks_room() {
            self.refused.get_or_insert(error);
        }
    }

    /// Notes that there was no room for a write of about so many bytes.
    pub(crate) fn note_wanted(&mut self, bytes: usize) {
        self.refused_bytes = bytes;
    }

    pub(crate) fn insert(
        &mut self,
        hash: u32,
        key: &[u8],
        record: Option<RecordRef>,
        in_arena: bool,
    ) {
        let is = record.is_some();
        let was = match self.keys.get_mut(key) {
            Some(staged) => {
                let replaced = std::mem::replace(&mut staged.record, record);
                self.replaced.extend(replaced);
                replaced.is_some()
            }
            None => {
                self.keys.insert(key.into(), Staged { hash, record, in_arena });
                in_arena
            }
        };
        self.growth += i64::from(is) - i64::from(was);
        if let Some(untold) = &mut self.untold {
            untold.insert(key.into(), record);
        }
    }

    pub(crate) fn into_records(self) -> impl Iterator<Item = RecordRef> {
        self.replaced.into_iter().chain(self.keys.into_values().filter_map(|staged| staged.record))
    }

    pub(crate) fn all_records(&self) -> impl Iterator<Item = RecordRef> {
        let staged = self.keys.values().filter_map(|staged| staged.record);
        self.replaced.iter().copied().chain(staged)
    }
}
