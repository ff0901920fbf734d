//! A change as a watch tells it.
//!
//! Any thread: plain data.

use crate::copies::copy_of;
use nigh_shm::{Effect, StreamChange};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A change that a [`Watch`](crate::Watch) tells, with its number. Each partition numbers its
/// changes from 1 on; see [`DbStats::partitions`](crate::DbStats::partitions).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A key got a value.
    Put {
        /// The partition.
        partition: usize,
        /// The change's number.
        change: u64,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// When the key is gone, if it has an expiry.
        expires_at: Option<SystemTime>,
    },
    /// A key with a long value got another expiry, or none; the value is as it was. (Of a key with
    /// a short value that is a put of the same value.)
    Expires {
        /// The partition.
        partition: usize,
        /// The change's number.
        change: u64,
        /// The key.
        key: Vec<u8>,
        /// When the key is gone, if it has an expiry.
        expires_at: Option<SystemTime>,
    },
    /// A key was deleted, or its time was over.
    Removed {
        /// The partition.
        partition: usize,
        /// The change's number.
        change: u64,
        /// The key.
        key: Vec<u8>,
    },
    /// All keys of a partition were removed.
    Cleared {
        /// The partition.
        partition: usize,
        /// The change's number.
        change: u64,
    },
    /// Changes of a partition with numbers from `first` to `last` may be missing here, since nobody
    /// took events for too long, or since the log broke and was written anew, or since the system
    /// gave no memory for a copy. Later ones follow. A watch from the place before this event
    /// ([`Watch::place`](crate::Watch::place)) tells what the log has of them; or read the keys
    /// again.
    Lost {
        /// The partition.
        partition: usize,
        /// The first number that may be missing.
        first: u64,
        /// The last one.
        last: u64,
    },
}

impl WatchEvent {
    /// The change's number; the last one of those that were lost.
    #[must_use]
    pub fn change(&self) -> u64 {
        match self {
            WatchEvent::Put { change, .. }
            | WatchEvent::Expires { change, .. }
            | WatchEvent::Removed { change, .. }
            | WatchEvent::Cleared { change, .. } => *change,
            WatchEvent::Lost { last, .. } => *last,
        }
    }

    /// The change's number; the first one of those that were lost.
    pub(crate) fn first(&self) -> u64 {
        match self {
            WatchEvent::Lost { first, .. } => *first,
            other => other.change(),
        }
    }

    /// The partition that numbers it.
    #[must_use]
    pub fn partition(&self) -> usize {
        match self {
            WatchEvent::Put { partition, .. }
            | WatchEvent::Expires { partition, .. }
            | WatchEvent::Removed { partition, .. }
            | WatchEvent::Cleared { partition, .. }
            | WatchEvent::Lost { partition, .. } => *partition,
        }
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let own = match self {
            WatchEvent::Put { key, value, .. } => key.len() + value.len(),
            WatchEvent::Expires { key, .. } | WatchEvent::Removed { key, .. } => key.len(),
            WatchEvent::Cleared { .. } | WatchEvent::Lost { .. } => 0,
        };
        (own + size_of::<WatchEvent>()) as u64
    }
}

/// The event of a change of a partition, if its key begins with `prefix`. The error says why it
/// can't be told.
pub(crate) fn event_of(
    prefix: &[u8],
    partition: usize,
    it: &StreamChange<'_>,
) -> Result<Option<WatchEvent>, &'static str> {
    let change = it.lsn;
    let Some(key) = it.key()? else {
        return Ok(Some(WatchEvent::Cleared { partition, change }));
    };
    if !key.starts_with(prefix) {
        return Ok(None);
    }
    let copy = |bytes| copy_of(bytes).map_err(|_| "the system gives no memory for a copy");
    let key = copy(key)?;
    Ok(Some(match it.effect {
        Effect::Gone | Effect::Clear => WatchEvent::Removed { partition, change, key },
        Effect::Put | Effect::Based => {
            // This library makes no other ones.
            let given = it.given_value()?.ok_or("a value that stands on another")?;
            let after = (given.expiry_ms != 0).then(|| Duration::from_millis(given.expiry_ms));
            let expires_at = after.and_then(|after| UNIX_EPOCH.checked_add(after));
            match given.value {
                Some(value) => {
                    WatchEvent::Put { partition, change, key, value: copy(value)?, expires_at }
                }
                None => WatchEvent::Expires { partition, change, key, expires_at },
            }
        }
    }))
}
