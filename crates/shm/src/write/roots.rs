//! The writer's use of its keys' roots: see [`crate::write::root_map`].
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::{entry_reference, record as r};
use crate::write::root_map::{Root, Roots};
use crate::write::writer::Writer;

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
