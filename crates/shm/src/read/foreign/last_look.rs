//! When something was last looked at that takes a call to the system, such as a file's name or a
//! socket's end.
//!
//! Any thread. Two threads may both find a look due; then both look.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Says when the next look is due: by default, at once.
#[derive(Default)]
pub struct LastLook {
    /// By [`coarse_ms`].
    at_ms: AtomicU64,
}

impl LastLook {
    /// It was looked at just now.
    #[must_use]
    pub fn now() -> LastLook {
        LastLook { at_ms: AtomicU64::new(coarse_ms()) }
    }

    /// Whether the last look was so many milliseconds ago, to a few. Then it notes that the caller
    /// looks now. Costs some nanoseconds.
    #[inline]
    #[must_use]
    pub fn is_due(&self, after_ms: u64) -> bool {
        let now_ms = coarse_ms();
        let is_due = now_ms.saturating_sub(self.at_ms.load(Relaxed)) >= after_ms;
        if is_due {
            self.at_ms.store(now_ms, Relaxed);
        }
        is_due
    }
}

/// A time that rises, in milliseconds, to a few.
#[inline]
fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let ms = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_look_is_due_again_only_when_its_time_has_passed() {
        assert!(LastLook::default().is_due(100));
        let look = LastLook::now();
        assert!(!look.is_due(3_600_000));
        assert!(look.is_due(0));
        let begin = Instant::now();
        while !look.is_due(20) {
            assert!(begin.elapsed() < Duration::from_secs(60), "its time passes");
            std::thread::yield_now();
        }
        // The coarse clock's step is 10 ms at most.
        assert!(begin.elapsed() > Duration::from_millis(9));
        assert!(!look.is_due(3_600_000));
    }

    #[test]
    fn a_look_that_is_due_is_noted_and_no_other() {
        let begin = coarse_ms();
        let time_of = |look: &LastLook| look.at_ms.load(Relaxed);
        assert!(begin > 0 && time_of(&LastLook::now()) >= begin);
        let look = LastLook::default();
        assert!(look.is_due(0) && time_of(&look) >= begin);
        let later = LastLook { at_ms: AtomicU64::new(u64::MAX) };
        assert!(!later.is_due(1));
        assert_eq!(time_of(&later), u64::MAX);
        // The coarse clock is behind the fine one, and of the same beginning.
        let fine = clock_gettime(ClockId::Monotonic);
        assert!(begin <= (fine.tv_sec * 1000 + fine.tv_nsec / 1_000_000).unsigned_abs());
    }
}
