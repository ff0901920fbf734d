//! The check of a reader that nobody waits for: which writer has the arena, and whether memory was
//! reused.
//!
//! ```text
//! writer: reuses += 1 ── fence ── the first byte that is another's
//! reader: reuses ── moment ── copies ── fence ── reuses again
//! ```
//!
//! 1. `reuses` is loaded before the moment. What was counted before was unpublished before that
//!    too, so it wasn't current at the moment; what is counted later is seen behind the copies.
//!
//! Any thread; generic over the shared words, so that models run it.

use crate::format::layout::{INCARNATION_OVER, header};
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Why nothing can be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// A writer is taking the arena over.
    Adopting,
    /// The file isn't the arena any more.
    Over,
    /// There are zeros instead of the file: memory of it is gone.
    Cut,
}

/// The writer and the count of reuses when a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadCheck {
    incarnation: u64,
    reuses: u64,
}

impl ReadCheck {
    /// A read begins.
    pub(crate) fn begin<W: SharedWords>(words: &W) -> Result<ReadCheck, Shut> {
        // SYNC(incarnation): all that an adopting writer has done is seen behind its last store of
        // it.
        let incarnation = words.load64(header::INCARNATION, Acquire);
        if incarnation == INCARNATION_OVER {
            return Err(Shut::Over);
        }
        if incarnation == 0 {
            return Err(Shut::Cut);
        }
        if incarnation & 1 == 1 {
            return Err(Shut::Adopting);
        }
        // SYNC(reuses): what was reused before had been unpublished before the moment that follows.
        let reuses = words.load64(header::REUSES, Acquire);
        Ok(ReadCheck { incarnation, reuses })
    }

    /// Whether no other writer has come until behind the copies, nor zeros in place of the file.
    pub(crate) fn has_same_writer<W: SharedWords>(&self, words: &W) -> bool {
        // SYNC(incarnation): odd before an adopting writer's first change.
        words.fence(Acquire);
        words.load64(header::INCARNATION, Relaxed) == self.incarnation
    }

    /// Whether besides nothing was reused.
    pub(crate) fn holds<W: SharedWords>(&self, words: &W) -> bool {
        // SYNC(reuses): a copy that has a byte of another's comes behind the count.
        self.has_same_writer(words) && words.load64(header::REUSES, Relaxed) == self.reuses
    }
}
