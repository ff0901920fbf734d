//! How a call and the watchdog agree whether the call has ended (design 4).
//!
//! ```text
//! the call (06_dispatch.js)             the watchdog
//!   STATE := k ... user code              sees STATE = k, and its time is over
//!   STATE := 0                            KILL := k
//!   ─ ─ ─ ─ ─ barrier ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ barrier of all threads
//!   KILL = k? settle()                    STATE = k: terminate, ISSUED := k
//!   commit                                else: KILL := 0
//! ```
//!
//! 1. A termination hits the call that it was meant for or doesn't happen: never a commit, never
//!    the next call.
//! 2. A call that saw KILL = k goes on only when KILL has changed; it dies when ISSUED is k.
//! 3. Only the watchdog waits for nothing. The call waits for a few instructions of it.
//!
//! The call's first two lines are JavaScript: a plain store and a plain load. The watchdog's
//! barrier makes the one between them. All else is here, over a trait of the words, so that loom
//! tries all orders.

use std::sync::atomic::Ordering;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::io::{self, Io};

/// A word that the two sides share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Number of the call whose user code runs; 0: none. The call's side stores it.
    State,
    /// Number of the call that the watchdog wants to stop.
    Kill,
    /// Number of the call that it has stopped.
    Issued,
}

/// The words, and what threads do beside loads and stores of them.
pub(crate) trait Words {
    fn load(&self, word: Word) -> i32;
    fn store(&self, word: Word, value: i32);
    /// Runs a full barrier on all threads of the process; false if the system makes none.
    fn barrier(&self) -> bool;
    /// Between two looks of a thread that waits.
    fn pause(&self);
}

impl Words for Io {
    fn load(&self, word: Word) -> i32 {
        self.shared(number(word)).load(Ordering::SeqCst)
    }
    fn store(&self, word: Word, value: i32) {
        self.shared(number(word)).store(value, Ordering::SeqCst);
    }
    fn barrier(&self) -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
    fn pause(&self) {
        std::thread::yield_now();
    }
}

fn number(word: Word) -> usize {
    match word {
        Word::State => io::STATE,
        Word::Kill => io::KILL,
        Word::Issued => io::ISSUED,
    }
}

/// The watchdog stops call `k`, unless it has ended.
// SYNC(call-state)
pub(crate) fn stop(words: &impl Words, k: i32, terminate: impl FnOnce()) {
    words.store(Word::Kill, k);
    if words.barrier() && words.load(Word::State) == k {
        terminate();
        words.store(Word::Issued, k);
    } else {
        words.store(Word::Kill, 0);
    }
}

/// The call's side, once STATE isn't `k` any more: true if nothing stops call `k`, false if a
/// termination was issued for it.
// SYNC(call-state)
pub(crate) fn settle(words: &impl Words, k: i32) -> bool {
    while words.load(Word::Kill) == k {
        if words.load(Word::Issued) == k {
            return false;
        }
        words.pause();
    }
    true
}

/// Whether call `k` has been told to stop: it dies, whatever it does now (2).
pub(crate) fn is_issued(words: &impl Words, k: i32) -> bool {
    words.load(Word::Issued) == k
}

/// After [`settle`]: forgets the call, since numbers of calls come again.
pub(crate) fn forget(words: &impl Words) {
    words.store(Word::Kill, 0);
    words.store(Word::Issued, 0);
}
