//! Dying on purpose between two stores to shared memory: for tests of adoption.
//!
//! Compiled to nothing without the feature `failpoints` (or this crate's own tests). Any thread may
//! arm it; the process dies by SIGKILL before its N-th store from then on.

#[cfg(any(test, feature = "failpoints"))]
mod armed {
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Steps left before death; negative when not armed.
    static LEFT: AtomicI64 = AtomicI64::new(-1);

    /// Dies before the `n`-th shared store from now (0: the next one). A negative `n` disarms.
    pub fn kill_before_step(n: i64) {
        LEFT.store(n, Ordering::SeqCst);
    }

    /// Steps that are left of an armed count.
    #[must_use]
    pub fn steps_left() -> i64 {
        LEFT.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn step() {
        if LEFT.load(Ordering::Relaxed) < 0 {
            return;
        }
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            std::process::abort();
        }
    }
}

#[cfg(any(test, feature = "failpoints"))]
pub use armed::{kill_before_step, steps_left};

#[cfg(any(test, feature = "failpoints"))]
pub(crate) use armed::step;

#[cfg(not(any(test, feature = "failpoints")))]
#[inline(always)]
pub(crate) fn step() {}
