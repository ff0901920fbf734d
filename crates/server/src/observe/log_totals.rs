//! What the logs of all shards are and have done, for INFO and the metrics.
//!
//! Read by any thread.

use crate::observe::inside::{Fields, put};
use crate::observe::rewrites::Rewrites;
use crate::observe::snapshot::Part;
use nigh_store::{LogHealth, LogStatus};
use std::sync::Arc;
use std::time::Duration;

/// All logs together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogTotals {
    /// How many are full, and how many broken.
    pub(crate) full: u64,
    pub(crate) broken: u64,
    /// Those of which a base is being written.
    pub(crate) bases: u64,
    /// Why the worst of them isn't well.
    pub(crate) cause: String,
    /// Why one of them isn't compacted; empty if all are.
    pub(crate) compaction_fault: String,
    /// Those with changes that aren't synced.
    pub(crate) unsynced: u64,
    /// Age of the oldest of these changes.
    pub(crate) oldest_ms: u64,
    /// Times that writes had to wait for a log.
    pub(crate) delays: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_us: u64,
    pub(crate) longest_sync_us: u64,
    pub(crate) bytes: u64,
    pub(crate) files_bytes: u64,
    /// Records that were bad in memory, and that the logs have mended.
    pub(crate) mended: u64,
}

impl LogTotals {
    /// The sum of these logs, and of what their shards tell of them.
    pub(crate) fn of(logs: &[Arc<LogStatus>], parts: &[Part]) -> Self {
        let mut sum = Self::default();
        for log in logs {
            let figures = log.figures();
            sum.bases += u64::from(!log.counts() && log.health() != LogHealth::Broken);
            match log.health_for_writes() {
                LogHealth::Well => {}
                LogHealth::Full => {
                    if sum.broken == 0 {
                        sum.cause = log.cause();
                    }
                    sum.full += 1;
                }
                LogHealth::Broken => {
                    sum.cause = log.cause();
                    sum.broken += 1;
                }
            }
            let fault = log.compaction_fault();
            if !fault.is_empty() {
                sum.compaction_fault = fault;
            }
            sum.unsynced += u64::from(log.unsynced_since_us().is_some());
            sum.syncs += figures.syncs;
            sum.sync_us += figures.sync_us;
            sum.longest_sync_us = sum.longest_sync_us.max(figures.longest_sync_us);
            sum.bytes += figures.bytes;
            sum.files_bytes += figures.files_bytes;
            sum.mended += figures.mended;
        }
        sum.oldest_ms = parts.iter().map(|part| part.unsynced_ms).max().unwrap_or(0);
        sum.delays = parts.iter().map(|part| part.log_delays).sum();
        sum
    }

    fn state(&self) -> &'static str {
        match (self.broken, self.full, self.bases) {
            (0, 0, 0) => "well",
            (0, 0, _) => "base",
            (0, _, _) => "full",
            _ => "broken",
        }
    }

    /// Fields of INFO that are there without a log too.
    pub(crate) fn status_fields(&self, rewrites: &Rewrites, f: &mut Fields) {
        let status = |is_well| if is_well { "ok" } else { "err" };
        let seconds = |span: Option<Duration>| {
            span.map_or_else(|| "-1".to_owned(), |span| span.as_secs().to_string())
        };
        let began = rewrites.began.map(|began| began.elapsed());
        put(f, "aof_rewrite_in_progress", u8::from(began.is_some()));
        put(f, "aof_rewrite_scheduled", 0);
        put(f, "aof_last_rewrite_time_sec", seconds(rewrites.last));
        put(f, "aof_current_rewrite_time_sec", seconds(began));
        put(f, "aof_last_bgrewrite_status", status(rewrites.failure.is_empty()));
        put(f, "aof_rewrites", rewrites.count);
        put(f, "aof_rewrites_consecutive_failures", rewrites.failures);
        put(f, "aof_last_write_status", status(self.full + self.broken == 0));
        if !rewrites.failure.is_empty() {
            put(f, "log_base_failure", one_line(&rewrites.failure));
        }
    }

    /// Fields of INFO about a log that is there.
    pub(crate) fn fields(&self, f: &mut Fields) {
        put(f, "aof_current_size", self.files_bytes);
        put(f, "aof_pending_bio_fsync", self.unsynced);
        put(f, "aof_delayed_fsync", self.delays);
        put(f, "log_state", self.state());
        put(f, "log_cause", one_line(&self.cause));
        put(f, "log_compaction_fault", one_line(&self.compaction_fault));
        put(f, "log_oldest_unsynced_ms", self.oldest_ms);
        put(f, "log_syncs", self.syncs);
        put(f, "log_sync_usec", self.sync_us);
        put(f, "log_longest_sync_usec", self.longest_sync_us);
        put(f, "log_bytes", self.bytes);
        put(f, "log_files_bytes", self.files_bytes);
        put(f, "log_mended_records", self.mended);
    }

    /// Metrics, by name.
    pub(crate) fn metrics(&self) -> [(&'static str, u64); 11] {
        [
            ("nigh_log_counted_bytes", self.bytes),
            ("nigh_log_delays_total", self.delays),
            ("nigh_log_files_bytes", self.files_bytes),
            ("nigh_log_longest_sync_microseconds", self.longest_sync_us),
            ("nigh_log_mended_records_total", self.mended),
            ("nigh_log_oldest_unsynced_milliseconds", self.oldest_ms),
            ("nigh_log_shards_broken", self.broken),
            ("nigh_log_shards_full", self.full),
            ("nigh_log_shards_unsynced", self.unsynced),
            ("nigh_log_sync_microseconds_total", self.sync_us),
            ("nigh_log_syncs_total", self.syncs),
        ]
    }
}

/// One line, whatever the system says, or a path has in it: as replies are.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_store::SyncMode;

    #[test]
    fn the_worst_log_gives_state_and_cause() {
        let logs: Vec<_> = (0..3).map(|_| Arc::new(LogStatus::new(SyncMode::Always))).collect();
        let part = |ms| Part { unsynced_ms: ms, log_delays: 1, ..Part::default() };
        logs[0].count_sync(100);
        logs[1].count_sync(300);
        logs[0].count_bytes(1_000, 5_000);
        logs[2].count_bytes(2_000, 6_000);
        logs[1].tell_mended();
        logs[2].tell_unsynced_since(Some(1));
        let totals = LogTotals::of(&logs, &[part(5), part(70)]);
        let expected = LogTotals {
            unsynced: 1,
            oldest_ms: 70,
            delays: 2,
            syncs: 2,
            sync_us: 400,
            longest_sync_us: 300,
            bytes: 3_000,
            files_bytes: 11_000,
            mended: 1,
            ..LogTotals::default()
        };
        assert_eq!(totals, expected);
        assert_eq!(totals.state(), "well");
        logs[1].tell_health(LogHealth::Broken, "worse\r\nthan that".to_owned());
        logs[2].tell_health(LogHealth::Full, "no space".to_owned());
        logs[0].tell_compaction_fault("it can't be opened".to_owned());
        let totals = LogTotals::of(&logs, &[]);
        assert_eq!((totals.state(), totals.full, totals.broken), ("broken", 1, 1));
        let mut fields = Fields::new();
        totals.status_fields(&Rewrites::default(), &mut fields);
        totals.fields(&mut fields);
        let text =
            |name: &str| fields.iter().find(|(field, _)| field == name).expect(name).1.clone();
        assert_eq!(text("log_cause"), "worse  than that");
        assert_eq!(text("log_compaction_fault"), "it can't be opened");
        assert_eq!(
            (text("log_state").as_str(), text("aof_last_write_status").as_str()),
            ("broken", "err")
        );
        logs[1].tell_health(LogHealth::Well, String::new());
        let totals = LogTotals::of(&logs, &[]);
        assert_eq!((totals.state(), totals.cause.as_str()), ("full", "no space"));
    }
}
