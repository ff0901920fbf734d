//! Calls that were given up and haven't come back (fiber/mod.rs), and the calls that they keep from
//! running. The runtime's thread.
//!
//! A call comes back when V8 returns from it, or never: V8 may give up in it, and then its thread
//! and its memory are lost (bridge.rs). A call that never comes back keeps only its own source from
//! running, so a library that was mended runs at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::caller::fcall::Tenant;
use crate::fiber::LINGERING_MAX;

/// In the place of a function's name: the top level of its library.
pub(crate) const TOP_LEVEL: &str = "";

/// Why a call can't run beside one that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// That one is still being stopped.
    Stopping,
    /// V8 gave up in that one, so it never comes back.
    ForGood,
}

impl Stuck {
    /// Why the top level of a library isn't started.
    pub(crate) fn of_start(self) -> &'static str {
        match self {
            Stuck::Stopping => {
                "its top level ran too long and is still being stopped; try again later"
            }
            Stuck::ForGood => {
                "V8 gave up in its top level, so it is refused here until its source changes or the \
                 server restarts"
            }
        }
    }
}

/// A function, or the top level of a library.
pub(crate) struct CallName {
    pub(crate) tenant: Tenant,
    pub(crate) library: String,
    /// Or [`TOP_LEVEL`].
    pub(crate) function: String,
    /// Of its library.
    pub(crate) source: Arc<[u8]>,
}

/// What becomes of an isolate that was lost.
pub(crate) struct Fate {
    /// Becomes true when it is freed.
    pub(crate) gone: Arc<AtomicBool>,
    /// Becomes true when V8 gives it up.
    pub(crate) broken: Arc<AtomicBool>,
}

impl Fate {
    fn stuck(&self) -> Option<Stuck> {
        let is_gone = self.gone.load(Ordering::Acquire); // SYNC(wreck-gone)
        if is_gone {
            None
        } else if self.broken.load(Ordering::SeqCst) {
            Some(Stuck::ForGood)
        } else {
            Some(Stuck::Stopping)
        }
    }
}

/// The stuck calls of a runtime, each in an isolate of its own.
#[derive(Default)]
pub(crate) struct Lingering {
    calls: Vec<(CallName, Fate)>,
}

impl Lingering {
    /// Adds a call, and removes those that have come back.
    pub(crate) fn push(&mut self, call: CallName, fate: Fate) {
        self.calls.retain(|(_, fate)| fate.stuck().is_some());
        self.calls.push((call, fate));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Calls that haven't come back.
    pub(crate) fn count(&self) -> usize {
        self.calls.iter().filter(|(_, fate)| fate.stuck().is_some()).count()
    }

    /// Whether nothing can run until one of them has come back: a further one could not linger.
    pub(crate) fn are_too_many(&self) -> bool {
        !self.calls.is_empty() && self.count() >= LINGERING_MAX
    }

    /// Calls that never come back.
    fn lost_for_good(&self) -> usize {
        self.calls.iter().filter(|(_, fate)| fate.stuck() == Some(Stuck::ForGood)).count()
    }

    /// Why nothing can run while they are too many; and whether that is so until the server
    /// restarts.
    pub(crate) fn crowded(&self) -> (String, bool) {
        let lost = self.lost_for_good();
        let slow = LINGERING_MAX.saturating_sub(lost);
        let why = match (lost, slow) {
            (0, _) => {
                format!("{slow} calls ran too long and are still being stopped; try again later")
            }
            (_, 0) => format!("V8 gave up in {lost} calls; restart the server"),
            _ => format!(
                "V8 gave up in {lost} calls, and {slow} ran too long and are still being stopped; \
                 try again later"
            ),
        };
        (format!("no function can run here: {why}"), slow == 0)
    }

    /// Whether a call of a function, or a start of a library, is stuck, so that another one of this
    /// source can't run.
    pub(crate) fn stuck(
        &self,
        tenant: Tenant,
        library: &str,
        function: &str,
        source: &[u8],
    ) -> Option<Stuck> {
        self.calls.iter().find_map(|(call, fate)| {
            let same =
                call.tenant == tenant && call.library == library && call.function == function;
            let stuck = fate.stuck().filter(|_| same)?;
            (stuck == Stuck::Stopping || *call.source == *source).then_some(stuck)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_never_come_back_keep_their_own_source_from_running() {
        // A mended library runs at once. When nothing comes back any more, nobody is asked to try
        // again.
        let mut lingering = Lingering::default();
        let tenant = Tenant(0);
        let flag = |is_set| Arc::new(AtomicBool::new(is_set));
        for n in 0..LINGERING_MAX {
            let (library, function) = ("l".to_owned(), format!("f{n}"));
            let call = CallName { tenant, library, function, source: b"old"[..].into() };
            lingering.push(call, Fate { gone: flag(false), broken: flag(n > 0) });
        }
        let stuck = |of: &Lingering, function, source| of.stuck(tenant, "l", function, source);
        assert_eq!(stuck(&lingering, "f0", b"old"), Some(Stuck::Stopping));
        assert_eq!(stuck(&lingering, "f0", b"new"), Some(Stuck::Stopping));
        assert_eq!(stuck(&lingering, "f1", b"old"), Some(Stuck::ForGood));
        assert_eq!(stuck(&lingering, "f1", b"new"), None);
        assert!(lingering.are_too_many());
        let (why, for_good) = lingering.crowded();
        assert!(why.ends_with("try again later") && !for_good, "{why}");
        lingering.calls[0].1.broken.store(true, Ordering::SeqCst);
        let (why, for_good) = lingering.crowded();
        assert!(why.ends_with("V8 gave up in 8 calls; restart the server") && for_good, "{why}");
    }
}
