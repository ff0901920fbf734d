//! The logs that were written anew while the server served, for INFO.
//!
//! Belongs to the log's desk.

use nigh_store::LogStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bases and rounds of compaction that were asked for, or that a broken log needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rewrites {
    /// When the one began that is under way.
    pub(crate) began: Option<Instant>,
    /// How long the last one took that ended.
    pub(crate) last: Option<Duration>,
    /// How many were begun.
    pub(crate) count: u64,
    /// How many have failed since the last one that ended well.
    pub(crate) failures: u64,
    /// Why the last one failed; empty if it didn't.
    pub(crate) failure: String,
}

/// Something about a rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RewriteNews {
    /// One begins.
    Begins,
    /// It has ended well.
    Ends,
    /// It has ended by this cause.
    Fails(String),
    /// It is no longer wanted.
    Stops,
}

impl RewriteNews {
    /// A round of compaction is over: what hinders that of a log has ended it.
    pub(crate) fn of_round(logs: &[Arc<LogStatus>]) -> RewriteNews {
        let mut faults = logs.iter().map(|log| log.compaction_fault());
        let fault = faults.find(|fault| !fault.is_empty());
        fault.map_or(RewriteNews::Ends, RewriteNews::Fails)
    }
}

impl Rewrites {
    /// Notes it.
    pub(crate) fn hear(&mut self, news: RewriteNews) {
        if news == RewriteNews::Begins {
            (self.began, self.count) = (Some(Instant::now()), self.count + 1);
            return;
        }
        let took = self.began.take().map(|began| began.elapsed());
        match news {
            RewriteNews::Ends => {
                (self.failures, self.failure) = (0, String::new());
                self.last = took.or(self.last);
            }
            RewriteNews::Fails(cause) => {
                (self.failures, self.failure) = (self.failures + 1, cause);
                self.last = took.or(self.last);
            }
            RewriteNews::Begins | RewriteNews::Stops => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_store::SyncMode;

    /// It once passed for one that had ended well.
    #[test]
    fn a_round_that_a_fault_has_ended_fails() {
        let logs: Vec<_> = (0..2).map(|_| Arc::new(LogStatus::new(SyncMode::Always))).collect();
        assert_eq!(RewriteNews::of_round(&logs), RewriteNews::Ends);
        logs[1].tell_compaction_fault("a record is bad".to_owned());
        let fails = RewriteNews::Fails("a record is bad".to_owned());
        assert_eq!(RewriteNews::of_round(&logs), fails);
    }
}
