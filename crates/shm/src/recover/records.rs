//! All records as a log takes them for a base: nobody is served meanwhile, so there are no steps.
//!
//! 1. A payload is the record's bytes with `prev` 0; with a run, then the whole value.
//! 2. Its sums are compared first. A bad one is named, and isn't given.
//!
//! The arena's writer only.

use crate::format::head::{Head, RunName};
use crate::format::layout::{entry_reference, record as r};
use crate::format::sum;
use crate::recover::replay::ReplayError;
use crate::write::writer::Writer;

/// Takes a record: its number, and the pieces of a PUT's payload.
pub type RecordTaker<'f, E> = dyn FnMut(u64, &[&[u8]]) -> Result<(), E> + 'f;

/// Bytes of a record behind `prev`.
const BEHIND_PREV: u64 = r::PREV + 4;

impl Writer {
    /// Gives all records with their numbers and payloads, in no order.
    ///
    /// # Errors
    /// [`ReplayError::Record`] for the first bad one; or what `f` says.
    pub fn each_record<E: From<ReplayError>>(&self, f: &mut RecordTaker<'_, E>) -> Result<(), E> {
        let (words, mut all) = (self.words, Vec::new());
        self.index.each(&words, &mut |_, e| all.push(entry_reference(e)));
        all.into_iter().try_for_each(|reference| self.give_record(reference, f))
    }

    fn give_record<E: From<ReplayError>>(
        &self,
        reference: u32,
        f: &mut RecordTaker<'_, E>,
    ) -> Result<(), E> {
        let offset = u64::from(reference) * r::UNIT;
        let head = Head::load(&self.words, offset);
        let wrong = |what| ReplayError::Record { lsn: head.lsn, what };
        if sum::expected(&self.words, offset, &head) != head.checksum {
            return Err(wrong("the checksum of its record in memory is wrong").into());
        }
        let len = |bytes: u64| usize::try_from(bytes).expect("within an arena");
        // SAFETY: a published record, which stays as it is while this writer is in one of its
        // calls; the slice doesn't leave that call.
        let front = unsafe { self.words.bytes(offset, len(r::PREV)) };
        let behind = len(head.bytes() - BEHIND_PREV);
        // SAFETY: as above.
        let rest = unsafe { self.words.bytes(offset + BEHIND_PREV, behind) };
        let value = if head.has_run() { self.bytes_of(offset, &head) } else { &[] };
        if head.has_run()
            && sum::more(0, value) != RunName::load(&self.words, offset, &head).checksum
        {
            return Err(wrong("the checksum of its value in memory is wrong").into());
        }
        f(head.lsn, &[front, &[0; 4], rest, value])
    }
}
