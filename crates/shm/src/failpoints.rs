//! Dying on purpose between two stores to shared memory, or looking at what is there between them:
//! for tests of adoption. And holding up the thread that moves memory: for tests of what must not
//! depend on how soon it runs.
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

    #[cfg(test)]
    thread_local! {
        static WATCH: std::cell::RefCell<Option<Box<dyn FnMut()>>> = std::cell::RefCell::default();
    }

    /// Has `look` called before each shared store of this thread during `run`, but for those of
    /// `look` itself.
    #[cfg(test)]
    pub(crate) fn before_each_step<T>(look: impl FnMut() + 'static, run: impl FnOnce() -> T) -> T {
        let outer = WATCH.replace(Some(Box::new(look)));
        let result = run();
        WATCH.set(outer);
        result
    }

    #[cfg(test)]
    fn watched() {
        // Taken meanwhile, so that it doesn't look at itself.
        if let Some(mut look) = WATCH.take() {
            look();
            WATCH.set(Some(look));
        }
    }

    #[inline]
    pub(crate) fn step() {
        #[cfg(test)]
        watched();
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

#[cfg(test)]
pub(crate) use armed::before_each_step;
#[cfg(any(test, feature = "failpoints"))]
pub(crate) use armed::step;

#[cfg(not(any(test, feature = "failpoints")))]
#[inline(always)]
pub(crate) fn step() {}

/// Pauses before and behind each job of a domain's memory thread. All clones share one length.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct SlowJobs(std::sync::Arc<std::sync::atomic::AtomicU64>);

/// Names the length of the pauses, microseconds, for all domains of a process.
#[cfg(test)]
pub(crate) const SLOW_JOBS_VARIABLE: &str = "NIGH_SHM_SLOW_JOBS_US";

#[cfg(test)]
pub(crate) fn slow_jobs() -> SlowJobs {
    let us = std::env::var(SLOW_JOBS_VARIABLE).map_or(0, |us| us.parse().expect("a number"));
    SlowJobs(std::sync::Arc::new(us.into()))
}

#[cfg(test)]
impl SlowJobs {
    /// From now on each pause takes so many microseconds; so does the one under way.
    pub(crate) fn set(&self, us: u64) {
        self.0.store(us, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn pause(&self) {
        const LOOK: std::time::Duration = std::time::Duration::from_millis(5);
        let length = || self.0.load(std::sync::atomic::Ordering::SeqCst);
        let begun = std::time::Instant::now();
        loop {
            let left = std::time::Duration::from_micros(length()).saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(not(test))]
#[derive(Clone)]
pub(crate) struct SlowJobs;

#[cfg(not(test))]
pub(crate) fn slow_jobs() -> SlowJobs {
    SlowJobs
}

#[cfg(not(test))]
impl SlowJobs {
    #[inline(always)]
    pub(crate) fn pause(&self) {}
}
