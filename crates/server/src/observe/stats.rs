//! Counters of a shard's work, and the sum over all shards.
//!
//! Belongs to the shard's thread; copies of it are anybody's.

use crate::commands::{self, Row};
use crate::observe::histogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Kinds of errors that INFO counts apart, at most: functions can make up codes.
const MOST_ERROR_KINDS: usize = 128;
/// Longest error code, in bytes.
pub(crate) const MOST_CODE_BYTES: usize = 32;

/// What INFO commandstats says of one command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowStats {
    pub(crate) calls: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
}

/// A command that ran, to be counted.
#[derive(Clone)]
pub(crate) struct Ran {
    pub(crate) row: Row,
    pub(crate) elapsed_ns: u64,
    /// The beginning of its error, with the code: a transaction has a million of them.
    pub(crate) error: Option<Box<[u8]>>,
}

/// Counters since the start, or since CONFIG RESETSTAT.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stats {
    pub(crate) rows: Vec<RowStats>,
    /// By row: how long its calls took.
    pub(crate) times: Vec<Histogram>,
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Requests that came by the rings of local clients.
    pub(crate) local_requests: u64,
    /// Reads from sockets and writes to them.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Bytes of replies that were copied out of the arena, as nobody took them, and most of them in
    /// a turn.
    pub(crate) copied_bytes: u64,
    pub(crate) most_copied_bytes: u64,
    pub(crate) turns: u64,
    /// Commands that were sent to the owner, and that other shards have sent.
    pub(crate) hops_out: u64,
    pub(crate) hops_in: u64,
    /// Reads, and function calls that only read, which were begun here and sent to the owner, since
    /// only it could tell.
    pub(crate) moved_reads: u64,
    pub(crate) moved_calls: u64,
    /// Times that owners of other partitions were asked to stand still for a call.
    pub(crate) stills: u64,
    /// Time in turns that had work, and of the longest of them.
    pub(crate) worked_ns: u64,
    pub(crate) longest_turn_ns: u64,
    /// Time of the longest look after the store.
    pub(crate) longest_step_ns: u64,
    /// Error replies; and by code, for the first [`MOST_ERROR_KINDS`].
    pub(crate) error_replies: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) query_limit_disconnections: u64,
    pub(crate) output_limit_disconnections: u64,
    /// The most that its arenas have used. The sum of several shards is a bound: each had its own
    /// at another time.
    pub(crate) peak_used_bytes: u64,
    /// How far the turns' time is ahead of the machine's clock.
    pub(crate) clock_ahead_ms: u64,
    pub(crate) rates: Rates,
}

/// What happened in the last second or so, per second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    pub(crate) commands: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Thousandths of the time that were work.
    pub(crate) worked_permille: u64,
    pub(crate) turns: u64,
    /// Microseconds of work per second.
    pub(crate) worked_us: u64,
    /// Counters at the last look, and when that was.
    seen: Option<(Instant, [u64; 5])>,
}

impl Rates {
    /// Least time between two looks.
    const PERIOD: Duration = Duration::from_millis(1000);

    fn update(&mut self, now: Instant, counters: [u64; 5]) {
        let Some((then, before)) = self.seen else {
            self.seen = Some((now, counters));
            return;
        };
        let elapsed = now.duration_since(then);
        if elapsed < Self::PERIOD {
            return;
        }
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let rate = |at: usize| counters[at].saturating_sub(before[at]) * 1000 / elapsed_ms;
        (self.commands, self.bytes_in, self.bytes_out) = (rate(0), rate(1), rate(2));
        // Nanoseconds in a second are millionths of thousandths of it.
        self.worked_permille = (rate(3) / 1_000_000).min(1000);
        (self.worked_us, self.turns) = (rate(3) / 1000, rate(4));
        self.seen = Some((now, counters));
    }
}

impl Stats {
    /// Zeros, with a place for each row of the table.
    pub(crate) fn new() -> Self {
        let rows = commands::table().len();
        Self {
            rows: vec![RowStats::default(); rows],
            times: vec![Histogram::default(); rows],
            ..Self::default()
        }
    }

    /// Counts calls of a row that took so long each.
    #[inline]
    pub(crate) fn count_calls(&mut self, row: Row, calls: u64, each_ns: u64) {
        let stats = &mut self.rows[usize::from(row)];
        stats.calls += calls;
        stats.nanoseconds += each_ns.saturating_mul(calls);
        self.times[usize::from(row)].count(each_ns, calls);
    }

    /// Counts a command that ran: its call too, unless it is a part of a client's, which another
    /// shard counts.
    pub(crate) fn count_ran(&mut self, ran: &Ran, is_part: bool) {
        if is_part {
            self.rows[usize::from(ran.row)].nanoseconds += ran.elapsed_ns;
        } else {
            self.count_calls(ran.row, 1, ran.elapsed_ns);
        }
        self.count_failure(ran.row, ran.error.as_deref());
    }

    /// Counts a call's error, if it has one.
    #[inline]
    pub(crate) fn count_failure(&mut self, row: Row, error: Option<&[u8]>) {
        if let Some(text) = error {
            self.rows[usize::from(row)].failed += 1;
            self.count_error(text);
        }
    }

    /// Counts a turn that had work.
    pub(crate) fn count_turn(&mut self, elapsed: Duration) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.worked_ns = self.worked_ns.saturating_add(elapsed_ns);
        self.longest_turn_ns = self.longest_turn_ns.max(elapsed_ns);
    }

    /// Counts a look after the store.
    pub(crate) fn count_step(&mut self, elapsed: Duration) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.longest_step_ns = self.longest_step_ns.max(elapsed_ns);
    }

    /// Brings the rates up to date; at each tick.
    pub(crate) fn tick(&mut self, now: Instant) {
        let counters = [self.commands(), self.bytes_in, self.bytes_out, self.worked_ns, self.turns];
        self.rates.update(now, counters);
    }

    /// Adds another shard's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, row) in self.rows.iter_mut().zip(&other.rows) {
            add_fields!(sum, row, calls nanoseconds rejected failed);
        }
        self.times.iter_mut().zip(&other.times).for_each(|(sum, times)| sum.add(times));
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
        add_fields! {
            self, other,
            connections rejected_connections bytes_in bytes_out local_requests reads writes
            copied_bytes turns hops_out hops_in moved_reads moved_calls stills worked_ns query_limit_disconnections
            output_limit_disconnections error_replies peak_used_bytes
        }
        add_fields!(self.rates, other.rates, commands bytes_in bytes_out turns worked_us);
        self.most_copied_bytes = self.most_copied_bytes.max(other.most_copied_bytes);
        self.longest_turn_ns = self.longest_turn_ns.max(other.longest_turn_ns);
        self.longest_step_ns = self.longest_step_ns.max(other.longest_step_ns);
        self.clock_ahead_ms = self.clock_ahead_ms.max(other.clock_ahead_ms);
    }

    pub(crate) fn commands_ns(&self) -> u64 {
        self.rows.iter().map(|row| row.nanoseconds).sum()
    }

    pub(crate) fn commands(&self) -> u64 {
        self.rows.iter().map(|row| row.calls).sum()
    }

    /// Counts an error reply by its code.
    pub(crate) fn count_error(&mut self, text: &[u8]) {
        self.error_replies += 1;
        let code = text.split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or(b"ERR");
        let code = String::from_utf8_lossy(&code[..code.len().min(MOST_CODE_BYTES)]);
        if let Some(count) = self.errors.get_mut(code.as_ref()) {
            *count += 1;
        } else if self.errors.len() < MOST_ERROR_KINDS {
            self.errors.insert(code.into_owned(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peak was that of the shard which had most: it was less than what all had had, and fell
    /// when they were flushed.
    #[test]
    fn the_peak_of_all_shards_is_no_less_than_what_they_had_at_once() {
        let mut all = Stats { peak_used_bytes: 300, ..Stats::new() };
        all.add(&Stats { peak_used_bytes: 200, ..Stats::new() });
        assert_eq!(all.peak_used_bytes, 500);
    }
}
