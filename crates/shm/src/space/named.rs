//! Runs that entries of the journal name: they stay as they are until the entries have left.
//!
//! ```text
//! published ── overwritten: no record names it ── waits ── the entry leaves ── retired ── grace ── reused
//! ```
//!
//! 1. A run that an entry names is neither retired nor reused nor given back, so its generation
//!    stays: it tells the next process whether it is still the run that was named.
//! 2. What waits counts as memory that comes back.
//!
//! The arena's writer only.

use super::Space;
use super::slots::{CLAIMED, ValueRun};
use crate::journal::named_values::NamedRun;

impl Space {
    /// Whether a run is still the one that a record names.
    pub(crate) fn has_run(&self, named: &NamedRun) -> bool {
        let NamedRun { run, value_len, .. } = named;
        let is =
            |known: &ValueRun| known.slots == run.slots && u64::from(*value_len) <= known.bytes;
        self.runs.get(&run.slot).is_some_and(is) && self.generation(run.slot) == run.generation
    }

    /// An entry that ends at a position of the journal names a run.
    pub(crate) fn name_in_journal(&mut self, slot: u32, position: u64) {
        let run = self.runs.get_mut(&slot).expect("a record's run is known");
        // A claim lasts until the start has ended.
        if run.named != CLAIMED {
            run.named = position;
        }
    }

    /// Somebody is about to read a run's value, wherever its key goes.
    pub(crate) fn hold_run(&mut self, slot: u32) {
        let run = self.runs.get_mut(&slot).expect("a record's run is known");
        run.held += 1;
        self.held_bytes += if run.held == 1 { run.bytes } else { 0 };
    }

    /// That was read.
    pub(crate) fn release_run(&mut self, slot: u32) {
        let run = self.runs.get_mut(&slot).expect("a run that is held");
        run.held -= 1;
        let (is_over, bytes) = (run.live == 0 && run.held == 0, run.bytes);
        self.held_bytes -= if run.held == 0 { bytes } else { 0 };
        if is_over {
            self.end_run(slot);
        }
    }

    /// No record names a run any more.
    pub(super) fn end_run(&mut self, slot: u32) {
        let run = &self.runs[&slot];
        let (named, bytes) = (run.named, run.bytes);
        if named <= self.named.left {
            return self.retire_run(slot);
        }
        let had = self.named.waiting.insert((named, slot), bytes).unwrap_or(0);
        self.coming = self.coming + bytes - had;
    }

    /// The entries before a position have left the journal: retires the runs that waited for that.
    #[inline]
    pub(crate) fn journal_left(&mut self, left: u64) {
        if left > self.named.left {
            self.named.left = left;
            self.end_waiting();
        }
    }

    #[cold]
    fn end_waiting(&mut self) {
        while let Some(entry) = self.named.waiting.first_entry()
            && entry.key().0 <= self.named.left
        {
            let ((_, slot), bytes) = entry.remove_entry();
            self.coming -= bytes;
            let left = self.named.left;
            let is_over = |run: &ValueRun| run.live == 0 && run.held == 0 && run.named <= left;
            if self.runs.get(&slot).is_some_and(is_over) {
                self.retire_run(slot);
            }
        }
    }

    /// Nothing is named any more, by no journal; the next one's entries before `left` have left.
    pub(crate) fn forget_names(&mut self, left: u64) {
        self.runs.values_mut().for_each(|run| run.named = 0);
        self.named.left = CLAIMED;
        self.end_waiting();
        self.named.left = left;
    }
}
