//! Who has the fiber: the rules by which carriers and the watchdog hand it on (fiber.rs).
//!
//! ```text
//! carrier:   number ── lend ── V8 runs user code ── regain: the fiber, or nothing
//! watchdog:                       seize: the fiber, if that entry still has lent it and is stuck
//! callback:                       holds, while the lock is kept
//! ```
//!
//! 1. The fiber is lent for one entry at a time. Who takes it, `regain` or `seize`, has it alone.
//! 2. An entry ends once: its carrier regains the fiber, or has lost it and finds a grave.
//! 3. The watchdog names the entry that it has read before. So it looks again, with the lock: at
//!    the entry, and whether the call is stuck. A call that has ended meanwhile, or another one, is
//!    never taken for it.
//!
//! All of it lies behind one lock, which [`crate::fiber`] has; loom drives these functions with its
//! own.

#[cfg(test)]
mod baton_models;

use std::sync::mpsc::Receiver;

use crate::fiber::Wreck;

/// Carriers of one fiber that may be stuck at a time: each holds a heap at its limit.
pub(crate) const LINGERING_MAX: usize = 8;

/// What is behind the lock. `B` is the fiber.
pub(crate) struct Baton<B> {
    /// Number of the newest entry.
    entry: u64,
    /// The fiber, while that entry runs.
    body: Option<B>,
    /// Kernel's number of the thread that runs it.
    carrier: i32,
    /// What the carriers wait for that have lost the fiber, by entry.
    graves: Vec<(u64, Receiver<Wreck>)>,
    /// Carriers that are stuck.
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

    /// Thread `carrier` runs user code for entry `number`.
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

    /// Takes the fiber from the entry that has it, whose carrier finds `grave` when V8 returns. The
    /// carrier's number.
    pub(crate) fn seize(&mut self, grave: Receiver<Wreck>) -> Option<(B, i32)> {
        let body = self.body.take()?;
        self.graves.push((self.entry, grave));
        self.lingering += 1;
        Some((body, self.carrier))
    }

    /// What the carrier waits for that has lost the fiber in entry `number`.
    pub(crate) fn grave(&mut self, number: u64) -> Option<Receiver<Wreck>> {
        let at = self.graves.iter().position(|(entry, _)| *entry == number)?;
        Some(self.graves.swap_remove(at).1)
    }

    /// A carrier that had lost the fiber is gone.
    pub(crate) fn buried(&mut self) {
        self.lingering -= 1;
    }
}
