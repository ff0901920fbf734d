//! Records that a log takes again, as compaction and a base find them: one key at a time, so that
//! each step of the owner's turn is short.
//!
//! ```text
//! look ── not this number: dropped
//!      ── whole: record, copied ── its run's value: held, compared in steps, written, let go
//! ```
//!
//! 1. A record is compared with its sum before it is given; a value in a run as its user gets on.
//! 2. A value that is held stays as it is, wherever its key goes; it is let go by dropping it, on
//!    any thread. Its memory comes back with the upkeep behind that.
//!
//! The arena's writer only; [`HeldValue`]: one thread at a time.

use crate::format::head::{Head, RunName};
use crate::format::layout::record as r;
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::index::{EntryPlace, prefetch_records};
use crate::qsbr::Pin;
use crate::region::Region;
use crate::write::writer::Writer;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;

/// What memory has of a key, for a log that takes its record again.
#[must_use]
pub enum Standing {
    /// Nothing, or another version.
    Other,
    /// The record, but its bytes aren't those that were written.
    Bad,
    /// The record.
    Whole(StandingRecord),
}

/// A record as a log takes it.
pub struct StandingRecord {
    /// Its number.
    pub lsn: u64,
    /// Its value stands on earlier changes in the log.
    pub is_based: bool,
    /// Its bytes, with `prev` 0: the payload of a PUT, or the beginning of it.
    pub record: Vec<u8>,
    /// The rest of the payload, if it lies in a run: to be compared before it is believed.
    pub value: Option<HeldValue>,
}

/// A value in a run, which stays as it is while this is there.
#[must_use]
pub struct HeldValue {
    region: Arc<Region>,
    at: u64,
    len: usize,
    compared: usize,
    sum: u32,
    wanted: u32,
    _held: Arc<()>,
}

impl HeldValue {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the run is held as long as this value lives (invariant 2), so nobody writes below
        // the length that a record says; the region is mapped as long.
        unsafe { self.region.words().bytes(self.at, self.len) }
    }

    /// Compares so many bytes more with the sum that was written: whether all of them are right;
    /// `None` while some are left.
    pub fn compare(&mut self, bytes: usize) -> Option<bool> {
        let (from, to) = (self.compared, self.compared.saturating_add(bytes).min(self.len));
        self.sum = sum::more(self.sum, &self.bytes()[from..to]);
        self.compared = to;
        (to == self.len).then_some(self.sum == self.wanted)
    }
}

impl Writer {
    /// Asks for the index lines and records of keys that are about to be looked at, of any arenas.
    pub fn prefetch<'a>(looks: impl Iterator<Item = (&'a Writer, u32)> + Clone) {
        prefetch_records(looks.map(|(it, hash)| (&it.words, it.index.current(), hash)));
    }

    /// The record of a key; with `lsn`, only if it has this number.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn standing(&mut self, pin: &Pin<'_>, key: &[u8], lsn: Option<u64>) -> Standing {
        self.check_pin(pin);
        let Some(place) = self.locate_version(key, lsn) else { return Standing::Other };
        let offset = u64::from(place.reference) * r::UNIT;
        let head = Head::load(&self.words, offset);
        if lsn.is_some_and(|lsn| lsn != head.lsn && !self.has_lost_number(offset, &head, lsn)) {
            return Standing::Other;
        }
        if !self.is_whole(offset, &head) {
            return Standing::Bad;
        }
        let mut record = vec![0; usize::try_from(head.bytes()).expect("shorter than a slot")];
        self.words.copy_out(offset, &mut record);
        let without_prev = Head { prev: 0, ..head }.to_bytes();
        record[..without_prev.len()].copy_from_slice(&without_prev);
        let value = head.has_run().then(|| self.hold_value(offset, &head));
        let is_based = head.flags & r::FLAG_BASED != 0;
        Standing::Whole(StandingRecord { lsn: head.lsn, is_based, record, value })
    }

    /// The record of a key; of a version that has lost its key, that.
    pub(crate) fn locate_version(&self, key: &[u8], lsn: Option<u64>) -> Option<EntryPlace> {
        let hash = self.hash(key);
        let by_number = |lsn| self.index.locate_number(&self.words, hash, lsn);
        let found = self.index.locate(&self.words, hash, key).found;
        found.or_else(|| lsn.and_then(by_number))
    }

    /// Holds the value of a record that lies in a run.
    fn hold_value(&mut self, offset: u64, head: &Head) -> HeldValue {
        let run = RunName::load(&self.words, offset, head);
        let held = Arc::new(());
        self.space.hold_run(run.slot);
        self.held_values.push((run.slot, Arc::clone(&held)));
        HeldValue {
            region: Arc::clone(&self.region),
            at: self.space.geometry().slot_offset(run.slot),
            len: head.value_len as usize,
            compared: 0,
            sum: 0,
            wanted: run.checksum,
            _held: held,
        }
    }

    /// Lets go of the values that their users have dropped.
    #[inline]
    pub(super) fn let_values_go(&mut self) {
        if !self.held_values.is_empty() {
            self.let_dropped_go();
        }
    }

    #[cold]
    fn let_dropped_go(&mut self) {
        let space = &mut self.space;
        self.held_values.retain(|(slot, held)| {
            let is_held = Arc::strong_count(held) > 1;
            if !is_held {
                // SYNC(held-value): with the decrement of the user's drop, behind its last look.
                fence(Acquire);
                space.release_run(*slot);
            }
            is_held
        });
    }
}
