//! A value that is read in parts where it lies, from another process.
//!
//! ```text
//! once:      look, with its generation ── the run's name and generations ── the record's generation again
//! each part: copy ── fence ── writer, and the generations of what it lies in, again
//! ```
//!
//! 1. A record is immutable while its slot has one generation, and a value in a run while the run
//!    is in use. So all parts that are read without an error are of the one version that was found.
//!    The generation is the look's own: a later one may be of a slot that has been given back and
//!    still has the record's bytes, until others come.
//! 2. Each part is copied out and then checked; no reference to mapped bytes is ever formed.
//!
//! One thread; the arena's owner isn't kept from anything.

use super::copier::{Copier, ForeignVersion, RecordPlace};
use super::read_check::ReadCheck;
use crate::format::head::{Head, RunName};
use crate::format::words::{MappedWords, SharedWords};
use crate::index::moment::TooNew;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// One version of a key's value, which is read in parts.
#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
pub struct ForeignInPlace<'r, W: SharedWords = MappedWords> {
    copier: &'r Copier<W>,
    watch: ReadCheck,
    version: ForeignVersion,
    value: GuardedPlace,
}

/// Where the value of a version lies, and what stays the same while it is there.
struct GuardedPlace {
    at: u64,
    len: usize,
    /// The slot of the record and its generation.
    record: (u32, u32),
    /// The first slot of the run that the value lies in, and the generations of those it takes.
    run: Option<(u32, Vec<u32>)>,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<'r, W: SharedWords> ForeignInPlace<'r, W> {
    /// The version that a look has found at a place; `None` if its memory was reused meanwhile.
    pub(super) fn of(
        copier: &'r Copier<W>,
        watch: ReadCheck,
        (head, RecordPlace { offset, generation }): (&Head, RecordPlace),
    ) -> Option<ForeignInPlace<'r, W>> {
        let slot = copier.g.slot_of(offset);
        let (mut at, mut run) = (offset + head.value_at(), None);
        if head.has_run() {
            let name = RunName::load(&copier.words, offset, head);
            if name.fault(&copier.g, head.value_len).is_some() {
                return None;
            }
            let slots = copier.g.slots_for(u64::from(head.value_len).max(1));
            at = copier.g.slot_offset(name.slot);
            if !copier.reaches(at + u64::from(head.value_len)) {
                return None;
            }
            let of_slot = |slot| copier.generation(slot);
            let generations: Vec<u32> = (name.slot..name.slot + slots).map(of_slot).collect();
            if generations[0] != name.generation {
                return None;
            }
            run = Some((name.slot, generations));
        }
        let value =
            GuardedPlace { at, len: head.value_len as usize, record: (slot, generation), run };
        let version = ForeignVersion { lsn: head.lsn, expiry_ms: head.expiry_ms };
        let found = ForeignInPlace { copier, watch, version, value };
        found.is_valid(0..1).then_some(found)
    }

    /// Which version it is.
    #[must_use]
    pub fn version(&self) -> ForeignVersion {
        self.version
    }

    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.len == 0
    }

    /// Copies the bytes from `at` on to all of `to`.
    ///
    /// # Errors
    /// [`TooNew`]: the owner has reused the memory, or is about to. What is in `to` means nothing.
    ///
    /// # Panics
    /// If the value has no such bytes.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), TooNew> {
        let end = at.checked_add(to.len());
        assert!(
            end.is_some_and(|end| end <= self.value.len),
            "{} bytes from {at} on of a value of {}",
            to.len(),
            self.value.len
        );
        let offset = self.value.at + at as u64;
        if self.value.run.is_some() {
            // Through the mapping a hole would take memory.
            self.copier.read(offset, to).ok_or(TooNew)?;
        } else {
            self.copier.words.copy_out(offset, to);
        }
        self.is_valid(at..at + to.len()).then_some(()).ok_or(TooNew)
    }

    /// Whether what was copied before, of these bytes of the value, is the version's.
    fn is_valid(&self, bytes: Range<usize>) -> bool {
        // SYNC(generation): what was copied belongs to this generation if it is still the same.
        self.copier.words.fence(Acquire);
        let is_same = |(slot, generation): (u32, u32)| {
            self.copier.words.load32(self.copier.g.generation_offset(slot), Relaxed) == generation
        };
        let run_is_same = self.value.run.as_ref().is_none_or(|(first, generations)| {
            let slot_bytes = self.copier.g.slot_bytes();
            let slot_of = |at: usize| at as u64 / slot_bytes;
            let in_part = |(number, _): &(u64, _)| {
                (slot_of(bytes.start)..=slot_of(bytes.end.max(1) - 1)).contains(number)
            };
            let slots = (*first..).zip(generations.iter().copied());
            (0..).zip(slots).filter(in_part).all(|(_, slot)| is_same(slot))
        });
        is_same(self.value.record) && run_is_same && self.watch.has_same_writer(&self.copier.words)
    }
}
