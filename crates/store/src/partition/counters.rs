//! The counts and notes that commands leave at their store.
//!
//! Thread: the store's.

/// The counts that INFO shows, and two notes for the server.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// A command found no memory, and memory comes back after this turn.
    pub(crate) busy: bool,
    /// What the last refused command lacked was room in the journal.
    pub(crate) lacks_journal: bool,
    /// A view has met something that it can't answer.
    pub(crate) lacks: Lack,
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
