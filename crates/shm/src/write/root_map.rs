//! What the log needs to know of keys whose newest change stands on another: how far back it must
//! be kept for them.
//!
//! ```text
//! PUT 10 ── BASED 14 ── BASED 20    root: 10
//!                          │        appended whole to file 7, when LSN 90 was the last
//!                          └── BASED 95    root: 90, file 7
//! ```
//!
//! 1. The root's LSN is that of the oldest change that the key's value is made of by the log; or,
//!    if a whole version was appended again, the stream's last LSN then. A file that ends with a
//!    lower LSN has nothing of the key.
//! 2. What was appended again lies in the root's file or behind it, whatever LSN a file ends with.
//! 3. A key whose newest change is whole has no root, or that of the time when it was appended
//!    again; an adopted key that stands on another has root 0: anything may be needed.
//!
//! The arena's writer only.

use std::collections::HashMap;

/// How far back the log must be kept for a key.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    pub(super) lsn: u64,
    /// Nothing before this file is needed.
    pub(super) file: u64,
    /// The version that was last appended whole; 0: none was.
    pub(super) appended: u64,
    /// The same, if it is the key's newest.
    pub(super) whole: u64,
}

/// The roots of keys, for a writer with a journal.
#[derive(Default)]
pub(crate) struct Roots(pub(super) HashMap<Box<[u8]>, Root>);

impl Roots {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A key has a whole version, or none.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The root of what stands on a version of a key.
    pub(super) fn of_base(&self, key: &[u8], lsn: u64) -> Root {
        self.0
            .get(key)
            .map_or(Root { lsn, file: 0, appended: 0, whole: 0 }, |root| Root { whole: 0, ..*root })
    }

    pub(super) fn set(&mut self, key: &[u8], root: Root) {
        self.0.insert(key.into(), root);
    }
}
