//! The arenas that a tenant's functions read. Any thread may make them.

use std::any::Any;
use std::sync::Arc;

use crate::ffi;

/// Partitions that a tenant has at most.
pub const PARTITIONS_MAX: usize = 64;
/// Word of an arena's header: the seed of its hash (docs/formats/arena.md).
const SEED_WORD: usize = 12;

/// Memory of one partition, as it lies: the bytes of `docs/formats/arena.md`.
pub struct Mapping {
    base: *const u8,
    len: usize,
    foreign: bool,
    /// Keeps the memory mapped.
    keep: Arc<dyn Any + Send + Sync>,
}

impl Mapping {
    /// `base..base + len` is the whole reserved address space of the arena. Unless it is
    /// [`Self::foreign`], nothing is written to it while functions run, but by
    /// [`Host::commit`](crate::Host::commit): what a call has read counts on that.
    ///
    /// # Safety
    /// All of it must be readable as long as `keep` (or a clone) lives, and hold an arena whose
    /// published parts are well-formed, at the latest when the first function runs. `base` is
    /// 64-byte aligned.
    pub unsafe fn new(base: *const u8, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Mapping {
        Mapping { base, len, foreign: false, keep }
    }

    /// The arena's writer is another thread than the runtime's. What a call reads of it belongs to
    /// one moment all the same: if something can't be told as it was then, the call runs again, and
    /// after some times the reply is [`UNSTABLE`](crate::UNSTABLE). Each partition has a moment of
    /// its own.
    #[must_use]
    pub fn foreign(self) -> Mapping {
        Mapping { foreign: true, ..self }
    }

    /// The seed of its hash.
    fn seed(&self) -> u32 {
        assert!(self.len > SEED_WORD * 4, "an arena has a header");
        // SAFETY: inside of the mapping, as asserted.
        let word = unsafe { self.base.cast::<u32>().add(SEED_WORD) };
        // SAFETY: aligned and readable, by the contract of `new`; it is written before the arena is
        // used.
        unsafe { word.read() }
    }
}

// SAFETY: the memory is read by whole words only, stays mapped while `keep` lives, and `keep` is
// Send + Sync.
unsafe impl Send for Mapping {}

/// All keys of a tenant: the arenas of its partitions, 1 to [`PARTITIONS_MAX`], each at its number.
/// A key is in partition `(hash * partitions) >> 32`, with the hash of its `{tag}` if it has one by
/// Redis Cluster's rule, else of the whole key: xxHash32 with the seed that stands in the header of
/// each arena.
pub struct Keyspace {
    mappings: Vec<Mapping>,
}

impl Keyspace {
    /// The keyspace of these partitions.
    ///
    /// # Panics
    /// If there are none, or more than [`PARTITIONS_MAX`].
    #[must_use]
    pub fn new(mappings: Vec<Mapping>) -> Keyspace {
        let count = mappings.len();
        assert!((1..=PARTITIONS_MAX).contains(&count), "{count} partitions");
        Keyspace { mappings }
    }

    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.mappings.len()).expect("at most PARTITIONS_MAX")
    }

    /// What keeps it mapped.
    pub(crate) fn keep(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.mappings.iter().map(|mapping| Arc::clone(&mapping.keep))
    }

    /// Does another thread write to some of it?
    pub(crate) fn is_foreign(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.foreign)
    }

    /// As the shim wants them; or what is wrong.
    pub(crate) fn arenas(&self) -> Result<Vec<ffi::Arena>, String> {
        let seed = self.mappings[0].seed();
        if self.mappings.iter().any(|mapping| mapping.seed() != seed) {
            return Err("the partitions have different seeds of the hash".to_owned());
        }
        let arena = |&Mapping { base, len, foreign, .. }: &Mapping| ffi::Arena {
            base,
            length: len,
            foreign,
        };
        Ok(self.mappings.iter().map(arena).collect())
    }
}

impl From<Mapping> for Keyspace {
    fn from(mapping: Mapping) -> Keyspace {
        Keyspace::new(vec![mapping])
    }
}

impl From<Vec<Mapping>> for Keyspace {
    fn from(mappings: Vec<Mapping>) -> Keyspace {
        Keyspace::new(mappings)
    }
}
