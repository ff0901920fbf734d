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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::head::RunName;
    use crate::tests::{Arena, directory, spec};

    const VALUE: u32 = 65 * 4096;
    const BYTES: u64 = VALUE as u64;

    /// An arena with two runs that no record names; it isn't used behind that.
    fn arena() -> (tempfile::TempDir, Arena, [NamedRun; 2]) {
        let dir = directory();
        let mut a = Arena::create(&spec(dir.path().join("a"), 64 << 20));
        let runs = [(); 2].map(|()| {
            let taken = a.writer.space.take_value_run(BYTES, true, false, false).unwrap();
            let run = a.writer.space.name_run(taken, true, VALUE, 0);
            NamedRun { run, value_len: VALUE, key_len: 1 }
        });
        (dir, a, runs)
    }

    #[test]
    fn a_run_is_the_one_that_was_named_by_its_place_length_and_generation() {
        let (_dir, mut a, [named, other]) = arena();
        let s = &mut a.writer.space;
        assert!(s.has_run(&named) && s.has_run(&other));
        assert!(s.has_run(&NamedRun { value_len: VALUE - 1, ..named }), "it has grown since");
        assert!(!s.has_run(&NamedRun { value_len: VALUE + 1, ..named }));
        let run = named.run;
        for (slot, slots, generation) in [
            (other.run.slot + 9, run.slots, run.generation),
            (run.slot, run.slots + 1, run.generation),
            (run.slot, run.slots, run.generation + 2),
        ] {
            let run = RunName { slot, slots, generation, ..run };
            assert!(!s.has_run(&NamedRun { run, ..named }), "{run:?}");
        }
        s.end_run(run.slot);
        assert!(!s.has_run(&named) && s.has_run(&other));
    }

    #[test]
    fn a_run_that_the_journal_names_waits_until_the_entry_has_left() {
        let (_dir, mut a, [first, second]) = arena();
        let s = &mut a.writer.space;
        let (one, two) = (first.run.slot, second.run.slot);
        let state = |s: &Space| (s.runs(), s.retired(), s.named.waiting.len(), s.coming / BYTES);
        // Entries that end at 100 and 200 name them; then no record does, one of them twice.
        s.name_in_journal(one, 50);
        s.name_in_journal(one, 100);
        s.name_in_journal(two, 200);
        s.end_run(one);
        s.end_run(one);
        s.end_run(two);
        assert_eq!(state(s), (2, 0, 2, 2));
        s.journal_left(99);
        assert_eq!(state(s), (2, 0, 2, 2));
        s.journal_left(100);
        assert_eq!(state(s), (1, 1, 1, 2), "what is retired comes back too");
        // A record names the other one again: its wait ends in nothing.
        s.runs.get_mut(&two).unwrap().live = 1;
        s.journal_left(150);
        s.journal_left(200);
        assert_eq!(state(s), (1, 1, 0, 1));
        s.runs.get_mut(&two).unwrap().live = 0;
        s.end_run(two);
        assert_eq!(state(s), (0, 2, 0, 2), "its entry has left before");
    }

    #[test]
    fn a_run_that_is_named_or_held_again_does_not_go() {
        let (_dir, mut a, [first, _]) = arena();
        let s = &mut a.writer.space;
        let run = first.run.slot;
        let held = |s: &Space| (s.runs[&run].held, s.held_bytes / BYTES);
        s.name_in_journal(run, 100);
        s.end_run(run);
        s.hold_run(run);
        s.hold_run(run);
        assert_eq!(held(s), (2, 1), "its memory counts once");
        s.journal_left(100);
        assert_eq!(s.retired(), 0, "it is held");
        s.release_run(run);
        assert_eq!(held(s), (1, 1));
        s.runs.get_mut(&run).unwrap().live = 1;
        s.release_run(run);
        assert_eq!((held(s), s.retired()), ((0, 0), 0), "a record names it");
        s.runs.get_mut(&run).unwrap().live = 0;
        // A later entry names it while it waits for the first one.
        s.name_in_journal(run, 200);
        s.end_run(run);
        s.name_in_journal(run, 300);
        s.journal_left(200);
        assert_eq!((s.retired(), s.named.waiting.len()), (0, 0));
        s.hold_run(run);
        s.journal_left(300);
        s.release_run(run);
        assert_eq!(s.retired(), 1);
    }

    #[test]
    fn a_claim_lasts_until_the_names_are_forgotten() {
        let (_dir, mut a, [first, second]) = arena();
        let s = &mut a.writer.space;
        let (claimed, named) = (first.run.slot, second.run.slot);
        s.runs.get_mut(&claimed).unwrap().named = CLAIMED;
        s.name_in_journal(claimed, 100);
        s.name_in_journal(named, 1_000);
        s.end_run(claimed);
        s.journal_left(500);
        assert_eq!((s.runs(), s.retired()), (2, 0));
        s.forget_names(7);
        assert_eq!((s.runs(), s.retired(), s.named.left), (1, 1, 7));
        s.end_run(named);
        assert_eq!((s.runs(), s.retired()), (0, 2), "nothing names it any more");
    }
}
