//! The connections with something to do, by slot.
//!
//! ```text
//! queue ──> next ──(taken by a turn)──> runs      put_off ──(first in each turn)──> runs
//! ```
//!
//! 1. A slot stands in one of the two lists at most, and once.
//! 2. It leaves its list when its connection begins to run, so what happens to it meanwhile may
//!    list it again. A slot whose connection is gone is skipped by the turn.
//!
//! Belongs to the shard's thread.

/// The lists.
#[derive(Default)]
pub(crate) struct Ready {
    /// Those that the next turn runs.
    next: Vec<usize>,
    /// Those whose next command was put off: they go first, in their order.
    put_off: Vec<usize>,
    /// By slot: it stands in a list.
    is_listed: Vec<bool>,
    /// Kept for its memory.
    spare: Vec<usize>,
}

impl Ready {
    /// Whether no connection has anything to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.put_off.is_empty()
    }

    pub(crate) fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Lists a slot behind the others, unless it is listed.
    pub(crate) fn queue(&mut self, slot: usize) {
        if self.list(slot) {
            self.next.push(slot);
        }
    }

    /// Lists a slot among those that were put off, unless it is listed.
    pub(crate) fn put_off(&mut self, slot: usize) {
        if self.list(slot) {
            self.put_off.push(slot);
        }
    }

    fn list(&mut self, slot: usize) -> bool {
        if self.is_listed.len() <= slot {
            self.is_listed.resize(slot + 1, false);
        }
        !std::mem::replace(&mut self.is_listed[slot], true)
    }

    /// The connection of a slot that was taken begins to run.
    #[inline]
    pub(crate) fn begin(&mut self, slot: usize) {
        self.is_listed[slot] = false;
    }

    /// The slots for this turn, to be given back with how many began.
    pub(crate) fn take(&mut self) -> Vec<usize> {
        std::mem::replace(&mut self.next, std::mem::take(&mut self.spare))
    }

    /// Those that this turn had no time for stay in front of those that were listed meanwhile.
    pub(crate) fn give_back(&mut self, mut slots: Vec<usize>, began: usize) {
        slots.drain(..began);
        slots.append(&mut self.next);
        self.spare = std::mem::replace(&mut self.next, slots);
    }

    /// The slots that were put off, to be given back with how many began.
    pub(crate) fn take_put_off(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.put_off)
    }

    /// Those that are put off again go on where they stood, but for the first: so each comes first.
    pub(crate) fn give_back_put_off(&mut self, mut slots: Vec<usize>, began: usize) {
        let mut again = std::mem::take(&mut self.put_off);
        let first = again.first().copied().filter(|first| *first == slots[0]);
        slots.splice(..began, again.drain(usize::from(first.is_some())..));
        slots.extend(first);
        self.put_off = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_listed_once_until_it_runs() {
        let mut ready = Ready::default();
        [3, 1, 3, 2].into_iter().for_each(|slot| ready.queue(slot));
        ready.put_off(1);
        assert!(!ready.has_put_off(), "it stands in the other list");
        let slots = ready.take();
        assert_eq!(slots, [3, 1, 2]);
        ready.begin(3);
        [3, 1, 4].into_iter().for_each(|slot| ready.queue(slot));
        ready.give_back(slots, 1);
        assert_eq!(ready.take(), [1, 2, 3, 4], "what had no time goes first");
    }

    #[test]
    fn each_that_is_put_off_comes_first_once() {
        // Three connections whose commands take more than a turn has: each turn runs the first two.
        let mut ready = Ready::default();
        (0..3).for_each(|slot| ready.put_off(slot));
        let mut firsts = Vec::new();
        for _ in 0..3 {
            let slots = ready.take_put_off();
            firsts.push(slots[0]);
            for slot in &slots[..2] {
                ready.begin(*slot);
                ready.put_off(*slot);
            }
            ready.give_back_put_off(slots, 2);
        }
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 1, 2]);
        assert!(ready.has_put_off() && !ready.is_empty());
    }
}
