//! Whether a live record's bytes are still those that were written, and noting those that aren't.
//!
//! 1. A record that is noted stays where it is, for all that the writer does by itself: see
//!    `cleaner`. Overwriting, deletion and eviction end it. What would carry its value on under a
//!    new checksum (APPEND, EXPIRE, rename of a long value) is refused.
//!
//! The arena's writer only.

use crate::format::format_fault::{FormatFault, sum_fault};
use crate::format::head::Head;
use crate::format::layout::record as r;
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::region::kept::Kept;
use crate::write::writer::Writer;

impl Writer {
    /// The checksum that the record at `offset` should have, which lies in its segment as a whole.
    #[inline]
    pub(crate) fn sum_of(&self, offset: u64, head: &Head) -> u32 {
        let len = usize::try_from(head.bytes() - r::KEY).expect("shorter than a slot");
        // SAFETY: a live record of this arena, which lies in its segment as the caller has found;
        // its writer alone stores to it, and doesn't while the slice lasts, which is this call.
        let body = unsafe { self.words.bytes(offset + r::KEY, len) };
        sum::of_lent(body, head)
    }

    /// Whether a record that the index names has the bytes that were written. One that hasn't is
    /// noted.
    pub(crate) fn is_whole(&mut self, offset: u64, head: &Head) -> bool {
        if let Some(what) = head.fault(self.space.geometry(), offset) {
            let fault = FormatFault::new(offset, what, "what arena.md says", format!("{head:?}"));
            self.note_bad(head.lsn, None, &fault);
            return false;
        }
        let expected = self.sum_of(offset, head);
        if expected != head.checksum {
            self.note_wrong_sum(offset, head, expected);
        }
        expected == head.checksum
    }

    /// Whether a record is the version with this number, which has gone bad. Only a number that its
    /// key can't have is looked into: one older than that change, or newer than the newest.
    pub(crate) fn has_lost_number(&self, offset: u64, head: &Head, lsn: u64) -> bool {
        let can_be = head.lsn > lsn && head.lsn <= self.lsn;
        !can_be && self.had_number(offset, head, lsn)
    }

    /// Whether a record was written with this number, whichever it has now.
    pub(crate) fn had_number(&self, offset: u64, head: &Head, lsn: u64) -> bool {
        let with_it = Head { lsn, ..*head };
        with_it.fault(self.space.geometry(), offset).is_none()
            && self.sum_of(offset, &with_it) == head.checksum
    }

    #[cold]
    pub(crate) fn note_wrong_sum(&mut self, offset: u64, head: &Head, expected: u32) {
        let mut key = vec![0; head.key_len.into()];
        self.words.copy_out(offset + r::KEY, &mut key);
        self.note_bad(head.lsn, Some(key), &sum_fault(offset, head, expected));
    }

    /// A live record has the right bytes, and no entry where its key's hash says.
    #[cold]
    pub(crate) fn note_unnamed(&mut self, offset: u64, head: &Head) {
        let what = "entry of a live record";
        let fault = FormatFault::new(offset, what, "one with its key's hash", "none");
        self.note_bad(head.lsn, None, &fault);
    }

    #[cold]
    fn note_bad(&mut self, lsn: u64, key: Option<Vec<u8>>, fault: &FormatFault) {
        if self.cleaner.known.is_news(fault.offset, lsn) {
            self.cleaner.stats.bad_records += 1;
            self.region.note_kept(Kept { key, finding: fault.into() });
        }
    }
}
