//! The word in an arena's header that says which of its changes are on disk.
//!
//! 1. It is 0 from each adoption on, and only rises: the log's thread stores it when a sync has
//!    returned.
//! 2. The arena stays mapped as long as the word is held.
//!
//! One thread at a time stores it: that of the partition's log. Any thread may hold it.

use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::region::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An arena's durable LSN, for the log's thread.
#[derive(Clone)]
pub struct DurableWord(Arc<Region>);

// The log has a thread of its own.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<DurableWord>();
};

impl DurableWord {
    /// That of an arena.
    #[must_use]
    pub fn of(region: &Arc<Region>) -> DurableWord {
        DurableWord(Arc::clone(region))
    }

    /// All changes up to this number are on disk.
    #[must_use]
    pub fn load(&self) -> u64 {
        // SYNC(durable)
        self.0.words().load64(header::DURABLE_LSN, Acquire)
    }

    /// Says so.
    ///
    /// # Panics
    /// If it said more before.
    pub fn store(&self, lsn: u64) {
        let words = self.0.words();
        let before = words.load64(header::DURABLE_LSN, Relaxed);
        assert!(before <= lsn, "change {before} was on disk: {lsn} is less");
        // SYNC(durable): the changes up to this number are on disk.
        words.store64(header::DURABLE_LSN, lsn, Release);
    }
}
