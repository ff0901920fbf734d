//! One path for every change, and the journal that is told of it.
//!
//! ```text
//! staged, numbered ── journal ── begun ── stores ── committed ── what was unpublished is let go
//! ```
//!
//! 1. Everything that alters a key goes through [`Writer::change`]: writes, removals by whatever
//!    reason, clearing, and commits of several. Moving records (cleaning, growth) is no change.
//!    Adoption and replay do again what a journal or a log has, and tell nobody.
//! 2. The journal is told of a whole commit before the first of its stores, in the order of its
//!    numbers.
//! 3. Replaying what it was told, commit by commit, makes the same keys with the same numbers.
//! 4. A value in a run is told by what is new in it: it stands on the version before ("based"). All
//!    others are told whole.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::record as r;
use crate::format::words::SharedWords;
use crate::index::moment;
use crate::write::journal::{Base, Stored};
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Makes a change that is staged and numbered, up to the writer's LSN: tells the journal, and
    /// has `store` do the stores between begun and committed.
    #[inline]
    pub(crate) fn change<T>(
        &mut self,
        intent: u32,
        stored: Stored<'_>,
        store: impl FnOnce(&mut Writer) -> T,
    ) -> T {
        if self.journal.is_some() {
            self.tell(stored);
        }
        moment::begin(&self.words, self.lsn, intent);
        let unpublished = store(self);
        moment::end(&self.words, self.lsn, intent);
        if let Some(part) = &self.journal {
            part.ring.settle();
        }
        unpublished
    }

    /// The base of a value that is made from a record's; `None` if that record is staged and
    /// stands on nothing.
    pub(crate) fn base_of(&self, reference: u32) -> Option<Base> {
        let head = Head::load(&self.words, u64::from(reference) * r::UNIT);
        if head.lsn == 0 {
            return self.based.get(&reference).cloned();
        }
        Some(Base { key: self.key_of(reference).into(), lsn: head.lsn, len: head.value_len })
    }

    /// A record is no longer staged.
    #[inline]
    pub(crate) fn forget_base(&mut self, head: &Head, reference: u32) {
        if head.flags & r::FLAG_BASED != 0 {
            self.based.remove(&reference);
        }
    }

    /// The key of a published or staged record.
    pub(crate) fn key_of<'p>(&self, reference: u32) -> &'p [u8] {
        let offset = u64::from(reference) * r::UNIT;
        let len = self.words.load32(offset + r::KEY_LEN, Relaxed) & 0xFFFF;
        // SAFETY: a published or staged record of this arena: its segment is not reused while this
        // writer is in one of its calls; the slice doesn't leave that call.
        unsafe { self.words.bytes(offset + r::KEY, len as usize) }
    }
}
