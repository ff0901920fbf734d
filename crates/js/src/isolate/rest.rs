//! When V8 is told to collect because nobody calls: otherwise what the last calls left behind stays
//! until the next ones come, which may be never.
//!
//! 1. It costs nobody time: a marking begins after a second without work, and V8's own tasks do it
//!    in small steps. Optimized code stays, unless the heap limit is below 128 MiB: there V8
//!    collects at once, and the calls that end the rest are slow for some 20 ms.
//! 2. It happens after a second, and after two, four and eight, and then not again until something
//!    has run. Dropped contexts go first, and then what only these held. A marking that is under
//!    way is not begun again, and spares what was alive when it began: V8 may have begun one by
//!    itself, and one may take seconds.

/// Looks without work before the first collection: a second, at ten a second.
const QUIET_LOOKS: u32 = 10;
/// And before the last.
const LAST_LOOKS: u32 = 8 * QUIET_LOOKS;

/// What is known of an isolate's work.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The work done, at the last look.
    done: u64,
    /// Looks since it last grew.
    quiet: u32,
}

impl Rest {
    /// Of an isolate that has done nothing, and needs nothing.
    pub(crate) fn new() -> Self {
        Self { done: 0, quiet: u32::MAX }
    }

    /// To be called at each look, with a number that differs when something has run; whether to
    /// collect now.
    pub(crate) fn look(&mut self, done: u64) -> bool {
        self.quiet = if done == self.done { self.quiet.saturating_add(1) } else { 0 };
        self.done = done;
        let (times, rest) = (self.quiet / QUIET_LOOKS, self.quiet % QUIET_LOOKS);
        rest == 0 && times.is_power_of_two() && self.quiet <= LAST_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collects_some_times_after_work_and_never_without() {
        let mut rest = Rest::new();
        let mut looks = |done, count: usize| -> Vec<usize> {
            (0..count).filter(|_| rest.look(done)).collect::<Vec<_>>()
        };
        assert_eq!(looks(0, 100), [], "nothing has run");
        assert_eq!(looks(7, 1000), [10, 20, 40, 80]);
        assert_eq!(looks(8, 10), [], "something runs again");
        assert_eq!(looks(9, 50), [10, 20, 40]);
    }
}
