//! The rules by which carriers and the watchdog hand a fiber on (see [`crate::fiber`]).
//!
//! ```text
//! carrier:   number ── lend ── V8 runs user code ── regain: the fiber, or nothing
//! watchdog:                       seize: the fiber, if this entry still has lent it and is stuck
//! callback:                       holds, while the lock is kept
//! ```
//!
//! 1. The fiber is lent for one entry at a time. The thread that takes it, by `regain` or `seize`,
//!    has it alone.
//! 2. An entry ends once: its carrier regains the fiber, or it has lost the fiber and finds a
//!    grave.
//! 3. The watchdog read the entry's number before it took the lock. So it looks again under the
//!    lock: at the number, and whether the call is stuck. It never takes the fiber from a call that
//!    has ended meanwhile, nor from another one.
//!
//! All of this is behind one lock: any thread. loom drives the same functions with its own lock.

#[cfg(test)]
mod baton_models;

use std::sync::mpsc::Receiver;

/// All that belongs to an isolate that its fiber has lost. The old carrier drops it.
pub(crate) type Wreck = Box<dyn Send>;

/// Most stuck carriers of one fiber: each holds a heap at its limit, and at most the slack in which
/// a call is stopped (shim/isolate.cc).
pub(crate) const LINGERING_MAX: usize = 8;

/// The state behind the lock. `B` is the fiber.
pub(crate) struct Baton<B> {
    /// Number of the newest entry.
    entry: u64,
    /// The fiber, while the newest entry runs.
    body: Option<B>,
    /// The kernel's number of the carrier that lent the fiber.
    carrier: i32,
    /// By entry: from here a carrier that has lost the fiber gets the wreck.
    graves: Vec<(u64, Receiver<Wreck>)>,
    /// Stuck carriers.
    lingering: usize,
}

impl<B> Default for Baton<B> {
    fn default() -> Self {
        Baton { entry: 0, body: None, carrier: 0, graves: Vec::new(), lingering: 0 }
    }
}

impl<B> Baton<B> {
    /// A new number for an entry.
    pub(crate) fn number(&mut self) -> u64 {
        self.entry += 1;
        self.entry
    }

    /// Keeps the fiber while thread `carrier` runs user code for entry `number`.
    pub(crate) fn lend(&mut self, number: u64, body: B, carrier: i32) {
        assert_eq!(self.entry, number, "one entry at a time");
        (self.body, self.carrier) = (Some(body), carrier);
    }

    /// The fiber, unless entry `number` has lost it.
    pub(crate) fn regain(&mut self, number: u64) -> Option<B> {
        if self.entry == number { self.body.take() } else { None }
    }

    /// Whether the fiber waits for entry `number`.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.entry == number && self.body.is_some()
    }

    /// Whether the fiber may be taken from entry `number`, which is `stuck`.
    pub(crate) fn may_seize(&self, number: u64, stuck: impl FnOnce() -> bool) -> bool {
        self.holds(number) && self.lingering < LINGERING_MAX && stuck()
    }

    /// Takes the fiber from the newest entry, whose carrier finds `grave` when V8 returns. Returns
    /// the fiber and that carrier's number.
    pub(crate) fn seize(&mut self, grave: Receiver<Wreck>) -> Option<(B, i32)> {
        let body = self.body.take()?;
        self.graves.push((self.entry, grave));
        self.lingering += 1;
        Some((body, self.carrier))
    }

    /// From here the carrier that has lost the fiber in entry `number` gets the wreck.
    pub(crate) fn grave(&mut self, number: u64) -> Option<Receiver<Wreck>> {
        let at = self.graves.iter().position(|(entry, _)| *entry == number)?;
        Some(self.graves.swap_remove(at).1)
    }

    /// A carrier that had lost the fiber is gone.
    pub(crate) fn buried(&mut self) {
        self.lingering -= 1;
    }
}
