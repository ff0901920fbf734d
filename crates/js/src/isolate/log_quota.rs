//! Bounds the lines that functions write to the server's log: so many a second for each name.
//! Further lines are dropped and counted.
//!
//! 1. Once a second with dropped lines is over, the next batch of any tenant reports their number.
//! 2. [`NAMES_MAX`] bounds the memory, whatever the names are.
//!
//! The clock is passed in. The runtime's thread.

use std::collections::HashMap;
use std::sync::Arc;

/// Console lines of a library in a second: enough to read along, and with 8 KB each less than 1 MB
/// a second.
pub(crate) const CONSOLE_LINES: u32 = 100;
/// Stacks of a function in a second: the first one says where it throws, and throwing is normal
/// control flow.
pub(crate) const STACKS: u32 = 1;
/// A second, ms.
const SECOND_MS: u64 = 1_000;
/// Names that are counted at a time, each some 100 bytes. Lines of further names in this second are
/// dropped.
const NAMES_MAX: usize = 1_024;

/// A library or a function that logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Speaker {
    pub(crate) tenant: u32,
    pub(crate) library: Arc<str>,
    /// Empty for the library as a whole.
    pub(crate) function: String,
}

/// A second in which a speaker has logged.
struct Second {
    since_ms: u64,
    passed: u32,
    dropped: u64,
}

impl Second {
    fn is_over(&self, now_ms: u64) -> bool {
        // A clock that was set back ends the second too.
        now_ms < self.since_ms || now_ms - self.since_ms >= SECOND_MS
    }
}

/// A bound of lines a second for each speaker.
pub(crate) struct Quota {
    lines: u32,
    seconds: HashMap<Speaker, Second>,
    /// Dropped lines of speakers beyond [`NAMES_MAX`].
    unnamed: u64,
    /// When the next report is due, Unix ms.
    due_ms: u64,
}

impl Quota {
    pub(crate) fn new(lines: u32) -> Quota {
        Quota { lines, seconds: HashMap::new(), unnamed: 0, due_ms: u64::MAX }
    }

    /// Whether `speaker` may log a line now. If not, counts the line as dropped.
    pub(crate) fn take(&mut self, speaker: Speaker, now_ms: u64) -> bool {
        if self.seconds.len() >= NAMES_MAX && !self.seconds.contains_key(&speaker) {
            self.seconds.retain(|_, second| second.dropped > 0 || !second.is_over(now_ms));
            if self.seconds.len() >= NAMES_MAX {
                self.unnamed += 1;
                self.due_ms = self.due_ms.min(now_ms + SECOND_MS);
                return false;
            }
        }
        let fresh = Second { since_ms: now_ms, passed: 0, dropped: 0 };
        let second = self.seconds.entry(speaker).or_insert(fresh);
        if second.is_over(now_ms) {
            second.since_ms = now_ms;
            second.passed = 0;
            if second.dropped > 0 {
                self.due_ms = self.due_ms.min(now_ms + SECOND_MS);
            }
        }
        if second.passed < self.lines {
            second.passed += 1;
            return true;
        }
        second.dropped += 1;
        self.due_ms = self.due_ms.min(second.since_ms + SECOND_MS);
        false
    }

    /// Tells `each` how many lines of a speaker were dropped, in seconds that are over. No speaker
    /// stands for all those beyond [`NAMES_MAX`].
    pub(crate) fn report(&mut self, now_ms: u64, each: &mut dyn FnMut(Option<&Speaker>, u64)) {
        if now_ms < self.due_ms {
            return;
        }
        self.due_ms = u64::MAX;
        self.seconds.retain(|speaker, second| {
            if !second.is_over(now_ms) {
                if second.dropped > 0 {
                    self.due_ms = self.due_ms.min(second.since_ms + SECOND_MS);
                }
                return true;
            }
            if second.dropped > 0 {
                each(Some(speaker), second.dropped);
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
            found.push((
                speaker.map_or("?".to_owned(), |speaker| speaker.function.clone()),
                dropped,
            ));
        });
        found
    }

    #[test]
    fn what_is_too_much_in_a_second_is_counted_and_reported_once() {
        // Each name has a quota of its own. The number is reported when the second is over.
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
        // Lines of names beyond the bound are dropped in that second, and counted.
        let mut quota = Quota::new(1);
        let passed = (0..NAMES_MAX + 7).filter(|n| quota.take(speaker(&n.to_string()), 0)).count();
        assert_eq!(passed, NAMES_MAX);
        assert_eq!(reported(&mut quota, 1_000), [("?".to_owned(), 7)]);
        assert!(quota.seconds.is_empty());
    }
}
