//! How a call and the watchdog agree whether the call has ended (design 4).
//!
//! ```text
//! the call (06_dispatch.js)             the watchdog
//!   STATE := k ... user code              sees STATE = k, and its time is over
//!   STATE := 0                            KILL := k
//!   ─ ─ ─ ─ ─ barrier ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ barrier of all threads
//!   KILL = k? settle()                    STATE = k: terminate, ISSUED := k
//!   HEAP_HIT = k? wait for the stop       else: KILL := 0
//!   commit
//! ```
//!
//! 1. A termination hits the call for which it was meant, or doesn't happen. It hits no commit and
//!    no later call.
//! 2. A call that saw KILL = k goes on only once KILL has changed; it dies if ISSUED is k.
//! 3. The watchdog waits for nothing. The call waits for a few instructions of the watchdog.
//! 4. V8 asks at the heap's limit, on the call's own thread, in the midst of an allocation. It gets
//!    a termination, and HEAP_HIT := k (shim/isolate.cc). Behind the call's last allocation there
//!    may be no place at which V8 looks. So the call waits for it at its end.
//! 5. V8 may forget a termination (shim/callbacks.cc, `Late`). So a call that waits for one at its
//!    end asks for it once more, and the watchdog stops a lost isolate again and again.
//!
//! The call's store of 0 and its load of KILL are JavaScript: both plain. The watchdog's barrier
//! acts between them too. All else is here, over a trait of the words, so that loom tries all
//! orders.
//!
//! [`stop()`] belongs to the watchdog's thread, [`settle`] and [`forget`] to the call's thread.

use std::sync::atomic::Ordering;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::io::{self, Io};

/// A word that both sides share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Number of the call whose user code runs; 0: none. The call's side stores it.
    State,
    /// Number of the call about which the watchdog decides whether to stop it.
    Kill,
    /// Number of the call that the watchdog has stopped.
    Issued,
}

/// The words, and the other steps of both sides.
pub(crate) trait Words {
    fn load(&self, word: Word) -> i32;
    fn store(&self, word: Word, value: i32);
    /// Runs a full barrier on all threads of the process; false if the system makes none.
    fn barrier(&self) -> bool;
    /// Lets other threads run between two looks.
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

/// The call's side, once STATE isn't `k` any more. True if call `k` goes on, false if a termination
/// was issued for it.
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

/// Whether a termination was issued for call `k`: then it dies, whatever it does (invariant 2).
pub(crate) fn is_issued(words: &impl Words, k: i32) -> bool {
    words.load(Word::Issued) == k
}

/// After [`settle`]: forgets the call, since its number comes again.
pub(crate) fn forget(words: &impl Words) {
    words.store(Word::Kill, 0);
    words.store(Word::Issued, 0);
}
