//! Decides when V8 collects garbage while no function is called. V8 by itself collects only when
//! code allocates, so the garbage of the last calls would stay until the next call.
//!
//! 1. A collection delays no call: it begins after a second without work, and V8's own tasks mark
//!    in small steps. Optimized code stays, unless the heap limit is below 128 MiB: then V8
//!    collects at once, and the next calls are slow for some 20 ms.
//! 2. Collections begin after one, two, four, eight and sixteen seconds, and then not again until
//!    something has run. The first ones take dropped contexts, later ones the objects that only
//!    these held. Several are needed: while V8 marks, which may take seconds, no new marking
//!    begins, and objects that were alive at its start stay.
//! 3. V8's marking may stand still for as long as no code runs: in one rest of ten behind a heavy
//!    load, hundreds of dropped contexts stayed for good. So if some are left after sixteen
//!    seconds, V8 collects at once.
//!
//! The runtime's thread.

/// Looks without work before the first collection: a second, with ten looks a second.
const QUIET_LOOKS: u32 = 10;
/// Looks without work before the last collection.
const LAST_LOOKS: u32 = 16 * QUIET_LOOKS;

/// How long an isolate has had no work.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The number at the last look.
    done: u64,
    /// Looks since the number last changed.
    quiet: u32,
}

impl Rest {
    /// An isolate that has done nothing needs no collection.
    pub(crate) fn new() -> Self {
        Self { done: 0, quiet: u32::MAX }
    }

    /// Whether the collection that [`Rest::look`] asks for is the last.
    pub(crate) fn is_last(&self) -> bool {
        self.quiet == LAST_LOOKS
    }

    /// To be called at each look, with a number that changes whenever something has run. Whether to
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
        assert_eq!(looks(7, 1000), [10, 20, 40, 80, 160]);
        assert_eq!(looks(8, 10), [], "something runs again");
        assert_eq!(looks(9, 50), [10, 20, 40]);
    }
}
