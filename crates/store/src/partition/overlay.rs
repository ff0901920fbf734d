//! The overlay: the writes of a running transaction, beside the arena.
//!
//! ```text
//! key ──> staged record, complete in the arena but not in the index
//!     └─> or: deleted
//! ```
//!
//! 1. A deletion is only noted here, which needs no memory of the arena.
//! 2. A staged record that another one replaces is kept until the end, because the new record may
//!    share its run.
//! 3. A function inside the transaction is told all that is staged. The next one is told only what
//!    is new since.
//!
//! Thread: the shard that owns the store.

use std::collections::BTreeMap;

use nigh_shm::{RecordRef, WriteError, Writer};

use crate::error::WriteFault;

/// The overlay of one transaction.
#[derive(Default)]
pub(crate) struct Overlay {
    keys: BTreeMap<Box<[u8]>, Staged>,
    /// The transaction has emptied the keyspace: it sees nothing of the arena.
    cleared: bool,
    replaced: Vec<RecordRef>,
    /// Keys that were staged since the last function was told; `None` before the first one.
    untold: Option<BTreeMap<Box<[u8]>, Option<RecordRef>>>,
    /// By how many keys the transaction sees more (or fewer) than the arena has, or than none if
    /// cleared.
    growth: i64,
    /// Why a write found no memory, if one did.
    refused: Option<WriteError>,
    /// About how many bytes that write needed.
    refused_bytes: usize,
    /// Hits and misses before the transaction.
    counted: (u64, u64),
}

/// The staged keys that a function inside a transaction is told.
#[derive(Debug)]
pub struct StagedKeys {
    /// Whether this is all that is staged; else it adds to what was told before.
    pub is_whole: bool,
    /// Key, and its record; `None`: deleted.
    pub entries: Vec<(Box<[u8]>, Option<RecordRef>)>,
}

/// A key that the transaction has written.
pub(crate) struct Staged {
    pub(crate) hash: u32,
    /// The new version; `None`: the key is deleted.
    pub(crate) record: Option<RecordRef>,
    /// The arena has a version, which the commit replaces or deletes.
    pub(crate) in_arena: bool,
}

impl Overlay {
    /// An empty overlay; so many hits and misses were counted before it.
    pub(crate) fn new(counted: (u64, u64)) -> Overlay {
        Overlay { counted, ..Overlay::default() }
    }

    /// What is staged for a key: nothing, a record, or its deletion.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<RecordRef>> {
        self.keys.get(key).map(|staged| staged.record)
    }

    /// Whether the transaction has emptied the keyspace.
    pub(crate) fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Number of keys that the transaction sees, where the arena has `in_arena`.
    pub(crate) fn keys(&self, in_arena: u64) -> u64 {
        let seen = if self.cleared { 0 } else { in_arena };
        seen.saturating_add_signed(self.growth)
    }

    /// The written keys, in order.
    pub(crate) fn staged(&self) -> impl ExactSizeIterator<Item = (&[u8], &Staged)> {
        self.keys.iter().map(|(key, staged)| (&**key, staged))
    }

    /// Staged records of keys that the arena doesn't have, in order.
    pub(crate) fn only_staged(&self) -> impl Iterator<Item = RecordRef> {
        self.keys.values().filter(|staged| !staged.in_arena).filter_map(|staged| staged.record)
    }

    /// Forgets what is staged, and everything in the arena.
    pub(crate) fn clear(&mut self, data: &mut Writer) {
        let emptied = Overlay {
            cleared: true,
            refused: self.refused,
            refused_bytes: self.refused_bytes,
            counted: self.counted,
            ..Overlay::default()
        };
        let staged: Vec<RecordRef> = std::mem::replace(self, emptied).into_records().collect();
        data.abandon(&staged);
    }

    /// Notes that a write was refused. It counts if it was for want of memory, for whatever reason
    /// there is none.
    pub(crate) fn note_refused(&mut self, error: WriteError) {
        if error.lacks_room() || matches!(error, WriteError::Denied(_)) {
            self.refused.get_or_insert(error);
        }
    }

    /// Notes about how many bytes the refused write needed.
    pub(crate) fn note_wanted(&mut self, bytes: usize) {
        self.refused_bytes = bytes;
    }

    /// Why a write found no memory, if one did.
    pub(crate) fn refused(&self) -> Option<WriteError> {
        self.refused
    }

    /// Bytes of all staged records, where `bytes_of` tells those of one, and of the refused write.
    pub(crate) fn bytes_wanted(&self, bytes_of: impl Fn(RecordRef) -> u64) -> usize {
        let staged = self.keys.values().filter_map(|staged| staged.record);
        let bytes: u64 = self.replaced.iter().copied().chain(staged).map(bytes_of).sum();
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.refused_bytes)
    }

    /// Hits and misses before the transaction.
    pub(crate) fn counted(&self) -> (u64, u64) {
        self.counted
    }

    /// Notes a key's new version, or its deletion.
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

    /// The keys that a function is to be told now (invariant 3): all, if `whole`.
    pub(crate) fn take_untold(&mut self, whole: bool) -> StagedKeys {
        match self.untold.replace(BTreeMap::new()) {
            Some(untold) if !whole => {
                StagedKeys { is_whole: false, entries: untold.into_iter().collect() }
            }
            _ => {
                let all = self.keys.iter().map(|(key, staged)| (key.clone(), staged.record));
                StagedKeys { is_whole: true, entries: all.collect() }
            }
        }
    }

    /// The staged records that others have replaced.
    pub(crate) fn into_replaced(self) -> Vec<RecordRef> {
        self.replaced
    }

    /// All staged records.
    pub(crate) fn into_records(self) -> impl Iterator<Item = RecordRef> {
        self.replaced.into_iter().chain(self.keys.into_values().filter_map(|staged| staged.record))
    }
}
