//! What the conductor asks of an engine's process, and what that answers: one line of JSON each.

use serde::{Deserialize, Serialize};

/// Keys of one multi_get.
pub(crate) const TOGETHER: usize = 16;
/// Of how many keys one is hot.
pub(crate) const HOT_PART: u64 = 100;

/// Something to do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Gives the keys at places `from..to` of an order their values.
    Fill { sequential: bool, from: u64, to: u64, threads: u32 },
    /// Deletes the keys at places `from..to` of the random order.
    Delete { from: u64, to: u64, threads: u32 },
    /// Works on keys chosen at random below `keys`.
    Work { kind: Kind, until: Until, keys: u64, threads: u32, seed: u64 },
    /// Closes the database, and ends.
    Close,
}

impl Order {
    /// Whether the database changes.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Order::Fill { .. } | Order::Delete { .. } => true,
            Order::Work { kind, .. } => {
                matches!(kind, Kind::Overwrite | Kind::ReadBesideWriter | Kind::Mixed)
            }
            Order::Close => false,
        }
    }
}

/// What a thread does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Reads a key.
    Read,
    /// Reads one of the first hundredth of the keys.
    ReadHot,
    /// Reads [`TOGETHER`] keys with one call.
    MultiGet,
    /// Reads a key, while one more thread overwrites.
    ReadBesideWriter,
    /// Writes a key that is there.
    Overwrite,
    /// Writes a key and reads another one, in turn.
    Mixed,
}

/// How long it goes on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Until {
    /// So many milliseconds.
    Millis(u64),
    /// So many operations of all threads together.
    Operations(u64),
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Operations of all threads, without those of a writer beside readers.
    pub(crate) operations: u64,
    /// From the first thread's begin to the last one's end.
    pub(crate) nanos: u64,
    /// Operations of the writer beside readers.
    pub(crate) beside: u64,
}

/// An answer: what was done, or why it wasn't.
pub(crate) type Answer = Result<Done, String>;
