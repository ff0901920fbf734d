//! The arena that a tenant's functions read. Any thread may make one.

use std::any::Any;
use std::sync::Arc;

/// Memory of one partition, as it lies: the bytes of `docs/formats/arena.md`.
pub struct Mapping {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
    pub(crate) foreign: bool,
    /// Keeps the memory mapped.
    pub(crate) _keep: Arc<dyn Any + Send + Sync>,
}

impl Mapping {
    /// `base..base + len` is the whole reserved address space of the arena.
    ///
    /// # Safety
    /// All of it must be readable as long as `keep` (or a clone) lives, and hold an arena whose published
    /// parts are well-formed, at the latest when the first function runs. `base` is 64-byte aligned.
    pub unsafe fn new(base: *const u8, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Mapping {
        Mapping { base, len, foreign: false, _keep: keep }
    }

    /// The arena's writer is another thread than the runtime's. What a call reads is to belong to one moment all
    /// the same: if several keys were committed together meanwhile, it runs again, and after some times
    /// the reply is [`UNSTABLE`](crate::UNSTABLE).
    #[must_use]
    pub fn foreign(self) -> Mapping {
        Mapping { foreign: true, ..self }
    }
}

// SAFETY: the memory is read by whole words only, stays mapped while `_keep` lives, and `_keep` is Send + Sync.
unsafe impl Send for Mapping {}
