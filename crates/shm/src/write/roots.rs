//! What the log needs to know of keys whose newest change stands on another: how far back it must
//! be kept for them.
//!
//! ```text
//! PUT 10 ── BASED 14 ── BASED 20      root: 10            appended whole to file 7, when LSN 90
//!                             └────── BASED 95            was the last       root: 90, file 7
//! ```
//!
//! 1. The root's LSN is that of the oldest change that the key's value is made of by the log; or, if
//!    a whole version was appended again, the stream's last LSN then. A file that ends with a lower
//!    LSN has nothing of the key.
//! 2. What was appended again lies in the root's file or behind it, whatever LSN a file ends with.
//! 3. A key whose newest change is whole has no root, or that of the time when it was appended
//!    again; an adopted key that stands on another has root 0: anything may be needed.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::{entry_reference, record as r};
use crate::write::writer::Writer;
use std::collections::HashMap;

/// How far back the log must be kept for a key.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    lsn: u64,
    /// Nothing before this file is needed.
    file: u64,
    /// The version that was last appended whole; 0: none was.
    appended: u64,
    /// The same, if it is the key's newest.
    whole: u64,
}

/// The roots of keys, for a writer with a journal.
#[derive(Default)]
pub(crate) struct Roots(HashMap<Box<[u8]>, Root>);

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

impl Writer {
    /// Keys of which the log needs something in a file, or before it, that ends with this LSN.
    #[must_use]
    pub fn rooted_in(&self, file: u64, lsn: u64) -> Vec<Box<[u8]>> {
        let Some(part) = &self.journal else { return Vec::new() };
        let is_needed = |root: &Root| root.lsn <= lsn && root.file <= file;
        let of = part.roots.0.iter().filter(|(_, root)| is_needed(root));
        of.map(|(key, _)| key.clone()).collect()
    }

    /// Whether the log has this version of a key, whole, behind a file.
    #[must_use]
    pub fn is_whole_behind(&self, key: &[u8], lsn: u64, file: u64) -> bool {
        let root = self.journal.as_ref().and_then(|part| part.roots.0.get(key));
        root.is_some_and(|root| root.whole == lsn && root.file > file)
    }

    /// This version of a key is appended to the log again, whole, to a file or behind it: what
    /// stands on it from now on needs nothing older.
    pub fn reroot(&mut self, key: &[u8], whole: u64, file: u64) {
        let lsn = self.lsn;
        if let Some(part) = &mut self.journal
            && let Some(root) = part.roots.0.get_mut(key)
        {
            *root = Root { lsn, file, appended: whole, whole };
        }
    }

    /// The version of a key that was last appended again lies in this file.
    pub fn root_placed(&mut self, key: &[u8], whole: u64, file: u64) {
        let root = self.journal.as_mut().and_then(|part| part.roots.0.get_mut(key));
        if let Some(root) = root.filter(|root| root.appended == whole) {
            root.file = root.file.max(file);
        }
    }

    /// The roots of an arena that was adopted: it may have keys that stand on anything.
    pub(super) fn roots_of_all(&self) -> Roots {
        let (words, mut roots) = (self.words, Roots::default());
        // Only values in runs are made from others.
        if self.stats().runs == 0 {
            return roots;
        }
        self.index.each(&words, &mut |_, e| {
            let reference = entry_reference(e);
            let head = Head::load(&words, u64::from(reference) * r::UNIT);
            if head.flags & r::FLAG_BASED != 0 {
                roots.set(self.key_of(reference), Root { lsn: 0, file: 0, appended: 0, whole: 0 });
            }
        });
        roots
    }
}
