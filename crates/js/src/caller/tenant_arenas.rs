//! The arenas that a tenant's functions read. Any thread may make them; the runtime's thread reads
//! them.
//!
//! 1. A mapping stays mapped as long as a context reads it: its `keep` lives that long.
//! 2. All arenas of a tenant have one seed of the hash.

use std::any::Any;
use std::sync::Arc;

use crate::ffi;

/// Most partitions of a tenant: sets of them are the bits of 64-bit words.
const PARTITIONS_MAX: usize = 64;
/// Word of an arena's header: the seed of its hash (docs/formats/arena.md).
const SEED_WORD: usize = 12;

/// The memory of one partition: the bytes of `docs/formats/arena.md`.
pub struct Mapping {
    base: *const u8,
    len: usize,
    foreign: bool,
    /// Keeps the memory mapped.
    keep: Arc<dyn Any + Send + Sync>,
}

impl Mapping {
    /// `base..base + len` is the whole reserved address space of the arena. Unless the arena is
    /// [`Self::foreign`], only [`Host::commit`](crate::Host::commit) writes to it while functions
    /// run: reads of a call rely on that.
    ///
    /// # Safety
    /// All of it must be readable as long as `keep` (or a clone) lives, and hold an arena whose
    /// published parts are well-formed, at the latest when the first function runs. `base` is
    /// 64-byte aligned.
    pub unsafe fn new(base: *const u8, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Mapping {
        Mapping { base, len, foreign: false, keep }
    }

    /// The arena's writer is another thread than the runtime's. All reads of a call in it belong to
    /// one moment all the same. If a read can't tell what was there at that moment, the call runs
    /// again; after some attempts its reply is [`UNSTABLE`](crate::UNSTABLE). Each partition has a
    /// moment of its own.
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

/// The arenas of a tenant, one for each partition, in their order.
///
/// A key is in partition `(hash * partitions) >> 32`. The hash is xxHash32 with the seed in the
/// header of each arena: of the key's `{tag}` if it has one by Redis Cluster's rule, else of the
/// whole key.
pub struct TenantArenas {
    mappings: Vec<Mapping>,
}

impl TenantArenas {
    fn new(mappings: Vec<Mapping>) -> TenantArenas {
        let count = mappings.len();
        assert!((1..=PARTITIONS_MAX).contains(&count), "{count} partitions");
        TenantArenas { mappings }
    }

    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.mappings.len()).expect("at most PARTITIONS_MAX")
    }

    /// Keeps all of it mapped, while the results live.
    pub(crate) fn keep(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.mappings.iter().map(|mapping| Arc::clone(&mapping.keep))
    }

    /// Whether another thread writes to some of it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.foreign)
    }

    /// The arenas for the shim.
    ///
    /// # Errors
    /// A text, if their seeds differ.
    pub(crate) fn raw(&self) -> Result<Vec<ffi::RawArena>, String> {
        let seed = self.mappings[0].seed();
        if self.mappings.iter().any(|mapping| mapping.seed() != seed) {
            return Err("the partitions have different seeds of the hash".to_owned());
        }
        let arena = |&Mapping { base, len, foreign, .. }: &Mapping| ffi::RawArena {
            base,
            length: len,
            foreign,
        };
        Ok(self.mappings.iter().map(arena).collect())
    }
}

impl From<Mapping> for TenantArenas {
    fn from(mapping: Mapping) -> TenantArenas {
        TenantArenas::new(vec![mapping])
    }
}

impl From<Vec<Mapping>> for TenantArenas {
    /// # Panics
    /// If there is no mapping, or are more than 64.
    fn from(mappings: Vec<Mapping>) -> TenantArenas {
        TenantArenas::new(mappings)
    }
}
