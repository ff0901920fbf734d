//! The writing half of an arena, which only its owner's store has.
//!
//! 1. A view never writes: whoever hands out commands sends writes to the owner. That one comes
//!    here all the same is a mistake of ours, and ends the thread.
//!
//! Thread: that of the store.

use std::ops::{Deref, DerefMut};

use nigh_shm::{Reader, Writer};

use crate::partition::store_stats::StoreStats;

const ELSEWHERE: &str = "a view of a store doesn't write: writes are sent to the owner";

/// The writer of an arena, if it is here.
pub(crate) struct WriterHalf(Option<Writer>);

impl WriterHalf {
    /// The owner's.
    pub(crate) fn here(writer: Writer) -> WriterHalf {
        WriterHalf(Some(writer))
    }

    /// A view's.
    pub(crate) fn elsewhere() -> WriterHalf {
        WriterHalf(None)
    }

    /// Whether this is the owner's.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for WriterHalf {
    type Target = Writer;

    #[inline]
    fn deref(&self) -> &Writer {
        self.0.as_ref().expect(ELSEWHERE)
    }
}

impl DerefMut for WriterHalf {
    #[inline]
    fn deref_mut(&mut self) -> &mut Writer {
        self.0.as_mut().expect(ELSEWHERE)
    }
}

/// The system arena, where the libraries lie.
pub(crate) struct Libraries {
    pub(crate) writer: WriterHalf,
    pub(crate) reader: Reader,
}

impl Libraries {
    /// Adds what is known of them, if this is the owner's.
    pub(crate) fn count(&self, counted: StoreStats) -> StoreStats {
        if !self.writer.is_here() {
            return counted;
        }
        let (libraries, system) = (self.writer.keys(), self.writer.stats());
        StoreStats { libraries, system, ..counted }
    }
}
