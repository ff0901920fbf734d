//! How long operations took.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest time that is told apart, ns: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Digits of a time that are kept.
const DIGITS: u8 = 3;

/// The kinds of operations, as the files name them.
pub(super) const KINDS: [&str; 4] = ["open", "puts", "get", "close"];

/// An index of [`KINDS`].
#[derive(Clone, Copy)]
pub(super) enum OperationKind {
    Open,
    Puts,
    Get,
    Close,
}

/// The times of one kind.
pub(super) struct KindTimes {
    times: Histogram<u64>,
    total: Duration,
    /// Of all threads together, while they did this.
    per_second: f64,
}

impl KindTimes {
    pub(super) fn new() -> KindTimes {
        let times = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        let times = times.expect("these bounds and digits are possible");
        KindTimes { times, total: Duration::ZERO, per_second: 0.0 }
    }

    pub(super) fn add(&mut self, time: Duration) {
        self.times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.total += time;
    }

    /// Adds the times of a thread that has ended.
    pub(super) fn merge(&mut self, thread: &KindTimes) {
        self.times.add(&thread.times).expect("they have the same bounds");
        self.total += thread.total;
        if !thread.total.is_zero() {
            self.per_second += thread.count() as f64 / thread.total.as_secs_f64();
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.times.len()
    }

    /// Time that all threads together spent.
    pub(super) fn total_ms(&self) -> f64 {
        self.total.as_secs_f64() * 1e3
    }

    pub(super) fn per_second(&self) -> f64 {
        self.per_second
    }

    pub(super) fn p50_us(&self) -> f64 {
        self.times.value_at_quantile(0.5) as f64 / 1e3
    }

    pub(super) fn p99_us(&self) -> f64 {
        self.times.value_at_quantile(0.99) as f64 / 1e3
    }

    pub(super) fn max_us(&self) -> f64 {
        self.times.max() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that each did 1,000 in a second did 2,000 a second; the slowest one of all
    /// counts as the slowest.
    #[test]
    fn threads_add_up() {
        let mut all = KindTimes::new();
        for slowest in [1, 3] {
            let mut thread = KindTimes::new();
            (0..999).for_each(|_| thread.add(Duration::from_millis(1)));
            thread.add(Duration::from_millis(slowest));
            all.merge(&thread);
        }
        all.merge(&KindTimes::new());
        assert_eq!(all.count(), 2000);
        assert!((all.total_ms() - 2002.0).abs() < 1e-6, "{}", all.total_ms());
        assert!((1990.0..2000.0).contains(&all.per_second()), "{}", all.per_second());
        assert!((999.0..1001.5).contains(&all.p99_us()), "{}", all.p99_us());
        assert!((2990.0..3010.0).contains(&all.max_us()), "{}", all.max_us());
    }
}
