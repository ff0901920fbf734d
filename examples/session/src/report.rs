//! What a run has shown, and the table of it.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Longest time that a histogram tells apart, ns, and its digits.
const LONGEST_NS: u64 = 100_000_000_000;
const DIGITS: u8 = 3;
/// Acknowledgements are counted by the millisecond, from so long before a kill to so long after it.
pub(crate) const BEFORE_MS: usize = 20;
pub(crate) const AFTER_MS: usize = 60;

/// What a run has shown, or some runs.
pub(crate) struct Report {
    pub(crate) begin: Instant,
    pub(crate) length: Duration,
    /// From the start of an update at a worker to its reply, ns; of those that changed something.
    pub(crate) update_ns: Histogram<u64>,
    /// From an event at the driver to its acknowledgement, ns.
    pub(crate) whole_ns: Histogram<u64>,
    /// From a kill to the first acknowledgement of each session that moved, ns.
    pub(crate) handover_ns: Histogram<u64>,
    /// From a kill until the driver sees the socket's end, ns.
    pub(crate) noticed_ns: Histogram<u64>,
    /// Updates a second of each run.
    pub(crate) rates: Vec<f64>,
    /// Acknowledgements of each millisecond, of this run.
    by_ms: Vec<u32>,
    /// When workers were killed, ms after the begin, in this run.
    kills_ms: Vec<usize>,
    /// Acknowledgements in the milliseconds around all kills.
    pub(crate) around: Vec<u64>,
    pub(crate) kills: u64,
    pub(crate) sent_again: u64,
    /// Events that were sent again and had been applied already.
    pub(crate) found_done: u64,
    /// Events that came to a session without the one before them.
    pub(crate) impossible: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
}

impl Report {
    pub(crate) fn new() -> Result<Report> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Ok(Report {
            begin: Instant::now(),
            length: Duration::ZERO,
            update_ns: histogram()?,
            whole_ns: histogram()?,
            handover_ns: histogram()?,
            noticed_ns: histogram()?,
            rates: Vec::new(),
            by_ms: Vec::new(),
            kills_ms: Vec::new(),
            around: vec![0; BEFORE_MS + AFTER_MS],
            kills: 0,
            sent_again: 0,
            found_done: 0,
            impossible: 0,
            lost: 0,
            doubled: 0,
        })
    }

    /// An event is acknowledged, `whole` after it was sent; `took_ns` is the update's time, if one
    /// was made.
    pub(crate) fn acknowledged(&mut self, whole: Duration, took_ns: Option<u64>) -> Result<()> {
        let ms = usize::try_from(self.begin.elapsed().as_millis())?;
        if self.by_ms.len() <= ms {
            self.by_ms.resize(ms + 1, 0);
        }
        self.by_ms[ms] += 1;
        self.whole_ns.saturating_record(nanos(whole)?);
        took_ns.into_iter().for_each(|it| self.update_ns.saturating_record(it));
        Ok(())
    }

    /// The driver sees now that a worker has ended.
    pub(crate) fn noticed(&mut self, killed_at: Instant) -> Result<()> {
        self.kills += 1;
        self.kills_ms.push(usize::try_from((killed_at - self.begin).as_millis())?);
        self.noticed_ns.saturating_record(nanos(killed_at.elapsed())?);
        Ok(())
    }

    /// A session that moved is served again, so long after the kill.
    pub(crate) fn handed_over(&mut self, after: Duration) -> Result<()> {
        self.handover_ns.saturating_record(nanos(after)?);
        Ok(())
    }

    /// Closes a run: its rate, and its milliseconds around kills.
    pub(crate) fn close(&mut self) {
        self.rates.push(self.whole_ns.len() as f64 / self.length.as_secs_f64());
        for kill in self.kills_ms.drain(..) {
            for (at, sum) in self.around.iter_mut().enumerate() {
                let ms = (kill + at).checked_sub(BEFORE_MS);
                *sum += u64::from(ms.and_then(|ms| self.by_ms.get(ms)).copied().unwrap_or(0));
            }
        }
    }

    /// Adds another run.
    pub(crate) fn add(&mut self, other: &Report) -> Result<()> {
        for (sum, part) in [
            (&mut self.update_ns, &other.update_ns),
            (&mut self.whole_ns, &other.whole_ns),
            (&mut self.handover_ns, &other.handover_ns),
            (&mut self.noticed_ns, &other.noticed_ns),
        ] {
            sum.add(part)?;
        }
        self.rates.extend_from_slice(&other.rates);
        self.around.iter_mut().zip(&other.around).for_each(|(sum, part)| *sum += part);
        self.kills += other.kills;
        self.sent_again += other.sent_again;
        self.found_done += other.found_done;
        self.impossible += other.impossible;
        self.lost += other.lost;
        self.doubled += other.doubled;
        Ok(())
    }

    /// The median rate of the runs.
    fn rate(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    /// The rows of the table.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let us = |times: &Histogram<u64>, percent| {
            format!("{:.1} us", times.value_at_percentile(percent) as f64 / 1e3)
        };
        let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
        let [update, whole] = [&self.update_ns, &self.whole_ns];
        let [handover, noticed] = [&self.handover_ns, &self.noticed_ns];
        vec![
            ("acknowledged updates", self.whole_ns.len().to_string()),
            ("acknowledged updates/s", format!("{:.0}", self.rate())),
            ("update at the worker, p50", us(update, 50.0)),
            ("p99", us(update, 99.0)),
            ("p99.9", us(update, 99.9)),
            ("event to acknowledgement, p50", us(whole, 50.0)),
            ("p99", us(whole, 99.0)),
            ("p99.9", us(whole, 99.9)),
            ("workers killed", self.kills.to_string()),
            ("kill to its notice, median", ms(noticed.value_at_percentile(50.0))),
            ("sessions handed over", handover.len().to_string()),
            ("kill to their next update, median", ms(handover.value_at_percentile(50.0))),
            ("longest", ms(handover.max())),
            ("events sent again", self.sent_again.to_string()),
            ("of these applied before the kill", self.found_done.to_string()),
            ("**lost updates**", (self.lost + self.impossible).to_string()),
            ("**doubled updates**", self.doubled.to_string()),
        ]
    }

    /// Whether no update is lost or there twice.
    pub(crate) fn is_right(&self) -> bool {
        self.lost + self.impossible + self.doubled == 0
    }
}

fn nanos(time: Duration) -> Result<u64> {
    u64::try_from(time.as_nanos()).context("a time of centuries")
}

/// The table of some stores.
pub(crate) fn table(stores: &[(&str, Report)]) -> String {
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let columns: Vec<_> = stores.iter().map(|(_, report)| report.rows()).collect();
    for row in 0..columns.first().map_or(0, Vec::len) {
        let cells: Vec<&str> = columns.iter().map(|column| column[row].1.as_str()).collect();
        text += &format!("| {} | {} |\n", columns[0][row].0, cells.join(" | "));
    }
    text
}
