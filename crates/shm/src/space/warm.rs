//! How much memory stays ready that nobody needs at this moment: what a burst of writes took, the
//! next finds again.
//!
//! To give a page back and to take another costs more than what is written to it (design 6). So
//! slots that come back are kept for a while if as many were taken of late.
//!
//! 1. Never more than are in use: what is kept at most doubles an arena, and after FLUSHALL nothing
//!    is kept.
//! 2. Never for longer than two periods without as many being taken; an owner that tells no time
//!    keeps nothing.
//! 3. Never where memory is short: a request lacks some, or little is left to be taken.
//!
//! The arena's writer only.

/// For so long demand is remembered at least, and for twice that at most: as long as allocators
/// keep freed pages.
const PERIOD_MS: u64 = 10_000;
/// How many segments were opened of late.
#[derive(Default)]
pub(super) struct Demand {
    /// In the present period.
    opened: usize,
    /// In the one before.
    before: usize,
    /// When the present one began, Unix milliseconds; 0: nobody told the time yet.
    began_ms: u64,
}

impl Demand {
    /// A segment was opened.
    pub(super) fn note(&mut self) {
        self.opened += usize::from(self.began_ms != 0);
    }

    /// The time is `now_ms`; 0 if nobody knows it. A clock that went back begins anew.
    pub(super) fn tell(&mut self, now_ms: u64) {
        let passed = now_ms.checked_sub(self.began_ms).filter(|_| self.began_ms != 0);
        if passed.is_some_and(|ms| ms < PERIOD_MS) {
            return;
        }
        let is_next = passed.is_some_and(|ms| ms < 2 * PERIOD_MS);
        let before = if is_next { self.opened } else { 0 };
        *self = Demand { opened: 0, before, began_ms: now_ms };
    }

    /// As many as may be wanted again.
    pub(super) fn recent(&self) -> usize {
        self.opened.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(demand: &mut Demand, times: usize) {
        (0..times).for_each(|_| demand.note());
    }

    #[test]
    fn demand_is_forgotten_after_two_periods() {
        let mut demand = Demand::default();
        opened(&mut demand, 3);
        demand.tell(0);
        assert_eq!(demand.recent(), 0, "nobody told the time");
        demand.tell(1);
        opened(&mut demand, 5);
        demand.tell(10_000);
        assert_eq!(demand.recent(), 5);
        demand.tell(10_001);
        opened(&mut demand, 2);
        assert_eq!(demand.recent(), 5, "of the period before");
        demand.tell(20_001);
        assert_eq!(demand.recent(), 2);
        opened(&mut demand, 3);
        demand.tell(40_000);
        assert_eq!(demand.recent(), 3, "nobody told the time for nearly two periods");
        opened(&mut demand, 4);
        demand.tell(60_000);
        assert_eq!(demand.recent(), 0, "nothing happened for a whole period");
        opened(&mut demand, 7);
        demand.tell(5);
        assert_eq!(demand.recent(), 0, "the clock went back");
        opened(&mut demand, 1);
        demand.tell(0);
        assert_eq!((demand.recent(), demand.began_ms), (0, 0), "nobody knows the time any more");
    }
}
