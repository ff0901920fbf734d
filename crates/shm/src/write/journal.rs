//! The changes of a commit, as a journal gets them, and why one can't be done again.

use crate::error::WriteError;

/// One numbered change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedChange<'a> {
    /// Its log sequence number.
    pub lsn: u64,
    /// Its effect.
    pub what: What<'a>,
}

/// The effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// A key gets this value.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its whole value.
        value: &'a [u8],
        /// Unix ms, 0 for none.
        expiry_ms: u64,
    },
    /// A key gets the value of an earlier change and these bytes behind it. Another expiry, and
    /// another name, of the same value is one without bytes.
    Extend {
        /// The key.
        key: &'a [u8],
        /// The key that has the earlier value, until this commit at least.
        from: &'a [u8],
        /// The number of the change that made the earlier value.
        base_lsn: u64,
        /// Bytes of the earlier value: all of them.
        base_len: u32,
        /// The bytes behind it.
        bytes: &'a [u8],
        /// Unix ms, 0 for none.
        expiry_ms: u64,
    },
    /// A key goes; it may not have been there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// All keys go.
    Clear,
}

/// Takes every commit before it is published.
pub trait Journal: Send {
    /// A commit: its changes, one at least, with numbers that rise by one.
    fn commit(&mut self, changes: &[NumberedChange<'_>]);
}

/// Why a commit could not be done again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The arena refused it, as it may refuse every write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Something between this commit and the arena's newest is missing, or it is there already.
    #[error("the next change must have the number {expected}; this one has {found}")]
    Gap {
        /// The arena's next number.
        expected: u64,
        /// The change's.
        found: u64,
    },
    /// A value stands on one that isn't there.
    #[error(
        "change {lsn} stands on {base_len} bytes of change {base_lsn}, and its key doesn't have them"
    )]
    NoBase {
        /// The change's number.
        lsn: u64,
        /// The earlier change's.
        base_lsn: u64,
        /// Bytes of the earlier value.
        base_len: u32,
    },
    /// A commit clears behind its first change.
    #[error("change {lsn} clears all keys, and isn't its commit's first")]
    ClearsLater {
        /// The change's number.
        lsn: u64,
    },
}

/// The published version that a staged value in a run stands on.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(super) key: Box<[u8]>,
    pub(super) lsn: u64,
    pub(super) len: u32,
}

/// The stores of a change, for the journal.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// Entries of staged records and tombstones, in order; behind a clearing, if `clears`.
    Entries { clears: bool, entries: &'a [u64] },
    /// The end of the entries of these keys, hash and key of each.
    Removals(&'a [(u32, &'a [u8])]),
}
