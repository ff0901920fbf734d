//! Bounds what functions put in the server's log: so many lines a second for each name, the rest
//! counted.
//!
//! 1. What is dropped is told: once its second is over, the next batch of any tenant reports the
//!    number.
//! 2. Memory is bounded by [`NAMES_MAX`], whatever the names are.
//!
//! The clock is passed in. Belongs to the runtime's thread.

use std::collections::HashMap;
use std::sync::Arc;

/// Lines of the console that a library may log in a second: enough to read along, and at
/// 8 KB a line less than 1 MB a second.
pub(crate) const CONSOLE_LINES: u32 = 100;
/// Stacks that a function may log in a second: the first tells where; throwing is normal control
/// flow.
pub(crate) const STACKS: u32 = 1;
/// How long a quota lasts, ms.
const WINDOW_MS: u64 = 1_000;
/// Names that are counted at a time, each some 100 bytes; what further ones say in this second is
/// dropped.
const NAMES_MAX: usize = 1_024;

/// Who logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Speaker {
    pub(crate) tenant: u32,
    pub(crate) library: Arc<str>,
    /// Empty if the library as a whole is meant.
    pub(crate) function: String,
}

struct Window {
    since_ms: u64,
    passed: u32,
    dropped: u64,
}

impl Window {
    fn is_over(&self, now_ms: u64) -> bool {
        // A clock that was set back ends the window too.
        now_ms < self.since_ms || now_ms - self.since_ms >= WINDOW_MS
    }
}

/// So many lines a second for each speaker.
pub(crate) struct Quota {
    lines: u32,
    windows: HashMap<Speaker, Window>,
    /// Dropped lines of speakers for whom there was no room.
    unnamed: u64,
    /// When something dropped can be reported, Unix ms.
    due_ms: u64,
}

impl Quota {
    pub(crate) fn new(lines: u32) -> Quota {
        Quota { lines, windows: HashMap::new(), unnamed: 0, due_ms: u64::MAX }
    }

    /// May `speaker` log a line now? If not, the line is counted.
    pub(crate) fn take(&mut self, speaker: Speaker, now_ms: u64) -> bool {
        if self.windows.len() >= NAMES_MAX && !self.windows.contains_key(&speaker) {
            self.windows.retain(|_, window| window.dropped > 0 || !window.is_over(now_ms));
            if self.windows.len() >= NAMES_MAX {
                self.unnamed += 1;
                self.due_ms = self.due_ms.min(now_ms + WINDOW_MS);
                return false;
            }
        }
        let fresh = Window { since_ms: now_ms, passed: 0, dropped: 0 };
        let window = self.windows.entry(speaker).or_insert(fresh);
        if window.is_over(now_ms) {
            window.since_ms = now_ms;
            window.passed = 0;
            if window.dropped > 0 {
                self.due_ms = self.due_ms.min(now_ms + WINDOW_MS);
            }
        }
        if window.passed < self.lines {
            window.passed += 1;
            return true;
        }
        window.dropped += 1;
        self.due_ms = self.due_ms.min(window.since_ms + WINDOW_MS);
        false
    }

    /// Tells `each` who had how many lines dropped in seconds that are over; no speaker stands for
    /// the many for whom there was no room.
    pub(crate) fn report(&mut self, now_ms: u64, each: &mut dyn FnMut(Option<&Speaker>, u64)) {
        if now_ms < self.due_ms {
            return;
        }
        self.due_ms = u64::MAX;
        self.windows.retain(|speaker, window| {
            if !window.is_over(now_ms) {
                if window.dropped > 0 {
                    self.due_ms = self.due_ms.min(window.since_ms + WINDOW_MS);
                }
                return true;
            }
            if window.dropped > 0 {
                each(Some(speaker), window.dropped);
            }
            false
        });
        if self.unnamed > 0 {
            each(None, std::mem::take(&mut self.unnamed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaker(function: &str) -> Speaker {
        Speaker { tenant: 0, library: "t".into(), function: function.to_owned() }
    }

    fn reported(quota: &mut Quota, now_ms: u64) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        quota.report(now_ms, &mut |speaker, dropped| {
            found.push((speaker.map_or("?".to_owned(), |who| who.function.clone()), dropped));
        });
        found
    }

    #[test]
    fn what_is_too_much_in_a_second_is_counted_and_reported_once() {
        // Each name has a quota of its own; the number comes when the second is over.
        let mut quota = Quota::new(2);
        let taken: Vec<bool> = (0..5).map(|_| quota.take(speaker("f"), 100)).collect();
        assert_eq!(taken, [true, true, false, false, false]);
        assert!(quota.take(speaker("g"), 100));
        assert_eq!(reported(&mut quota, 1_099), []);
        assert_eq!(reported(&mut quota, 1_100), [("f".to_owned(), 3)]);
        assert_eq!(reported(&mut quota, 9_999), []);
        assert!(quota.take(speaker("f"), 9_999));
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nobody() {
        // Otherwise the log would be mute until the clock is where it was.
        let mut quota = Quota::new(1);
        assert!(quota.take(speaker("f"), 1_000_000));
        assert!(!quota.take(speaker("f"), 1_000_000));
        assert!(quota.take(speaker("f"), 5));
        assert_eq!(reported(&mut quota, 1_005), [("f".to_owned(), 1)]);
    }

    #[test]
    fn any_number_of_names_takes_bounded_memory() {
        // The names beyond are dropped in that second, and counted.
        let mut quota = Quota::new(1);
        let passed = (0..NAMES_MAX + 7).filter(|n| quota.take(speaker(&n.to_string()), 0)).count();
        assert_eq!(passed, NAMES_MAX);
        assert_eq!(reported(&mut quota, 1_000), [("?".to_owned(), 7)]);
        assert!(quota.windows.is_empty());
    }
}
