//! A value that belongs to one thread at a time, though handles to it may be sent about.
//!
//! ```text
//! owner: nobody ── the first use ──> this thread ── hand over ──> nobody ── the next use ──> ...
//! ```
//!
//! 1. Only the owner looks at the value. Another thread that tries is our mistake, and panics.
//! 2. Asking costs a load of a thread's own word, and a comparison: no lock, no fence.
//!
//! Any thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The next thread's number. 0 is nobody's.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static ME: Cell<u64> = const { Cell::new(0) };
}

/// This thread's number.
#[inline]
fn me() -> u64 {
    let known = ME.get();
    if known == 0 { first() } else { known }
}

#[cold]
fn first() -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ME.set(number);
    number
}

/// See the header of this file.
pub(super) struct ThreadOwned<T> {
    owner: AtomicU64,
    value: T,
}

// SAFETY: the value is looked at only by the owner. The owner gets it by an Acquire exchange, from
// one that has let go of it by a Release store, so the two never look at it at the same time.
unsafe impl<T: Send> Sync for ThreadOwned<T> {}

impl<T> ThreadOwned<T> {
    pub(super) const fn new(value: T) -> ThreadOwned<T> {
        ThreadOwned { owner: AtomicU64::new(0), value }
    }

    /// The value, for the thread that owns it. The reference doesn't leave the call that asks.
    ///
    /// # Panics
    /// If another thread owns it.
    #[inline]
    pub(super) fn get(&self) -> &T {
        // Relaxed: only this thread stores its own number.
        if self.owner.load(Ordering::Relaxed) != me() {
            self.claim();
        }
        &self.value
    }

    #[cold]
    fn claim(&self) {
        // SYNC(thread-owned): with the store of the owner before.
        let claimed = self.owner.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok(), "two threads use what belongs to one at a time");
    }

    /// The next thread that asks for it becomes its owner.
    ///
    /// # Panics
    /// If another thread owns it.
    pub(super) fn hand_over(&self) {
        self.get();
        // SYNC(thread-owned)
        self.owner.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_from_thread_to_thread_only_when_it_is_handed_over() {
        // A start fills a ring, then its shard's thread takes it.
        let owned = ThreadOwned::new(Cell::new(1));
        owned.get().set(2);
        let ask = || std::thread::scope(|s| s.spawn(|| owned.get().get()).join());
        assert!(ask().is_err(), "it is this thread's");
        owned.hand_over();
        assert_eq!(ask().expect("it was handed over"), 2);
    }

    #[test]
    #[should_panic(expected = "two threads")]
    fn what_is_anothers_is_refused() {
        let owned = ThreadOwned::new(Cell::new(1));
        std::thread::scope(|s| s.spawn(|| owned.get().set(3)).join()).expect("it was nobody's");
        owned.get();
    }
}
