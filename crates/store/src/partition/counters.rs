//! What a store counts and notes while commands run.
//!
//! Thread: that of the store.

/// What INFO counts.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// A command was refused for want of memory that comes back after this turn.
    pub(crate) busy: bool,
    /// A view has met something that it can't tell.
    pub(crate) lacks: Lack,
}

/// What a view, which reads what another thread writes, can't tell of the keys that it has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Nothing: its answer is right.
    #[default]
    Nothing,
    /// What a key was at the moment at which the others were read: the same again, at another
    /// moment, may tell.
    Moment,
    /// Whether a key is there, as its time seems to be over: the owner tells, and deletes it.
    Clock,
}
