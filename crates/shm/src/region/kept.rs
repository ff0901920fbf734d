//! Records that stay where they are since their bytes are wrong: those that a writer has met, and
//! how they are told.
//!
//! 1. A record is told once, however often it is met: it is known by its place and its LSN.
//! 2. The memory of them is bounded. A bad record beyond that is kept like the others, but nobody
//!    is told.
//!
//! [`Kept`]: any thread. [`KnownBad`]: the arena's writer only.

use crate::format::format_fault::Finding;
use std::collections::HashSet;

/// Bad records of an arena that its writer remembers: far more than a person looks at one by one.
pub(crate) const KNOWN_MAX: usize = 1000;
/// Bad records that wait to be told at most: a key has up to 64 KiB.
const UNTOLD_MAX: usize = 100;

/// A record, or a whole segment, that an arena's writer neither moves nor drops, since its bytes
/// are wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Its key; `None` if that can't be told.
    pub key: Option<Vec<u8>>,
    /// Where it lies, and what is wrong.
    pub finding: Finding,
}

/// The bad records that were not told yet, and the count of others.
#[derive(Default)]
pub(crate) struct Untold {
    kept: Vec<Kept>,
    more: u64,
}

impl Untold {
    pub(crate) fn note(&mut self, kept: Kept) {
        if self.kept.len() < UNTOLD_MAX {
            self.kept.push(kept);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn take(&mut self) -> (Vec<Kept>, u64) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.more))
    }
}

/// The bad records that a writer has met.
#[derive(Default)]
pub(crate) struct KnownBad(HashSet<(u64, u64)>);

impl KnownBad {
    /// Notes a record by its offset and LSN; true if it is to be counted and told.
    pub(crate) fn is_news(&mut self, offset: u64, lsn: u64) -> bool {
        self.0.len() < KNOWN_MAX && self.0.insert((offset, lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_record_is_news_once_and_only_so_many_are() {
        let mut known = KnownBad::default();
        assert!(known.is_news(16, 1) && !known.is_news(16, 1));
        assert!(known.is_news(16, 2), "another record at the same place");
        let news = (0..2 * KNOWN_MAX as u64).filter(|at| known.is_news(*at, 9)).count();
        assert_eq!(news, KNOWN_MAX - 2);
    }

    #[test]
    fn what_nobody_takes_is_counted_beyond_a_bound() {
        let mut untold = Untold::default();
        let finding = Finding { offset: 16, what: "wrong".into() };
        (0..UNTOLD_MAX + 7).for_each(|_| untold.note(Kept { key: None, finding: finding.clone() }));
        let (kept, more) = untold.take();
        assert_eq!((kept.len(), more), (UNTOLD_MAX, 7));
        assert_eq!(untold.take(), (Vec::new(), 0));
    }
}
