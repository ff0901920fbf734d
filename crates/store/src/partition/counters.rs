//! The counts and notes that commands leave at their store.
//!
//! Thread: the store's.

use nigh_shm::WriteError;

/// The counts that INFO shows, and two notes for the server.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// What a command didn't find, and what is still to come back.
    pub(crate) busy: Option<Scarce>,
    /// A view has met something that it can't answer.
    pub(crate) lacks: Lack,
}

/// What a refused command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scarce {
    /// Memory, which comes back at the end of turns.
    Memory,
    /// Room in the journal, which comes back when the log has been written.
    Journal,
}

impl Scarce {
    /// What a write that failed so lacked; `None` if it won't come back.
    #[must_use]
    pub fn of(error: &WriteError) -> Option<Scarce> {
        match error {
            WriteError::Busy => Some(Scarce::Memory),
            WriteError::JournalFull => Some(Scarce::Journal),
            _ => None,
        }
    }
}

/// The reason why a view can't answer a command. A view reads memory that another thread writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// There is none: the view's answer is right.
    #[default]
    Nothing,
    /// The view doesn't know a key's value at the moment at which it read the others. Another
    /// moment may do.
    Moment,
    /// A key's time seems to be over. The owner judges that, and deletes the key.
    Clock,
}
