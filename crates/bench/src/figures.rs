//! Medians, quartiles, and the figures of several runs.
//!
//! Invariant: a ratio is taken within a pair of runs, never between two medians.

use super::engine::RunFigures;
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The quartiles of a sample, by linear interpolation between order statistics.
#[derive(Clone, Copy, Serialize, Debug, PartialEq)]
pub(super) struct Quartiles {
    pub(super) q1: f64,
    pub(super) median: f64,
    pub(super) q3: f64,
}

impl Quartiles {
    /// The quartiles of a sample, which isn't empty.
    pub(super) fn of(sample: &[f64]) -> Self {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let position = (sorted.len() - 1) * quarter;
            let (below, part) = (position / 4, (position % 4) as f64 / 4.0);
            let above = (below + 1).min(sorted.len() - 1);
            sorted[below] + (sorted[above] - sorted[below]) * part
        };
        Self { q1: at(1), median: at(2), q3: at(3) }
    }

    /// The quartiles of the ratios of two samples that were taken in turn.
    pub(super) fn of_ratios(dividends: &[f64], divisors: &[f64]) -> Self {
        let ratios: Vec<f64> = dividends.iter().zip(divisors).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Serialize, Debug)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) p9999: f64,
    pub(super) max: f64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let at = |percent| nanos.value_at_percentile(percent) as f64 / 1000.0;
        Self {
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            p9999: at(99.99),
            max: nanos.max() as f64 / 1000.0,
        }
    }
}

/// One run in the JSON.
#[derive(Clone, Copy, Serialize)]
pub(super) struct RunReport {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
}

/// All runs against one endpoint.
pub(super) struct Series {
    pub(super) runs: Vec<RunReport>,
    pub(super) latency: Histogram<u64>,
    pub(super) sets: u64,
    pub(super) nulls: u64,
    pub(super) errors: u64,
    pub(super) mismatches: u64,
    pub(super) first_error: Option<String>,
}

impl Series {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            runs: Vec::new(),
            latency: super::engine::histogram()?,
            sets: 0,
            nulls: 0,
            errors: 0,
            mismatches: 0,
            first_error: None,
        })
    }

    pub(super) fn add(&mut self, run: RunFigures) -> Result<()> {
        self.runs.push(RunReport {
            requests: run.tally.replies,
            seconds: run.seconds,
            per_second: run.rate(),
        });
        self.latency.add(&run.latency)?;
        self.sets += run.sets;
        self.nulls += run.tally.nulls;
        self.errors += run.tally.errors;
        self.mismatches += run.tally.mismatches;
        self.first_error = self.first_error.take().or(run.tally.first_error);
        Ok(())
    }

    pub(super) fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.per_second).collect()
    }

    /// The figures of this endpoint, with the ratios of `first` to it, run by run.
    pub(super) fn report(&self, address: &str, first: Option<&[f64]>) -> EndpointReport {
        let rates = self.rates();
        EndpointReport {
            address: address.to_owned(),
            requests: self.runs.iter().map(|run| run.requests).sum(),
            sets: self.sets,
            nulls: self.nulls,
            errors: self.errors,
            mismatches: self.mismatches,
            first_error: self.first_error.clone(),
            per_second: Quartiles::of(&rates),
            latency_us: Latency::of(&self.latency),
            ratio_of_first: first.map(|first| Quartiles::of_ratios(first, &rates)),
            runs: self.runs.clone(),
        }
    }
}

/// The figures of one endpoint.
#[derive(Serialize)]
pub(super) struct EndpointReport {
    pub(super) address: String,
    pub(super) requests: u64,
    pub(super) sets: u64,
    pub(super) nulls: u64,
    pub(super) errors: u64,
    pub(super) mismatches: u64,
    pub(super) first_error: Option<String>,
    pub(super) per_second: Quartiles,
    pub(super) latency_us: Latency,
    /// Throughput of the first endpoint divided by this one's, pair by pair.
    pub(super) ratio_of_first: Option<Quartiles>,
    pub(super) runs: Vec<RunReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quartiles of small samples are interpolated as by R's default (type 7).
    #[test]
    fn quartiles_interpolate() {
        let five = Quartiles::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(five, Quartiles { q1: 2.0, median: 3.0, q3: 4.0 });
        let four = Quartiles::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(four, Quartiles { q1: 1.75, median: 2.5, q3: 3.25 });
        assert_eq!(Quartiles::of(&[7.0]), Quartiles { q1: 7.0, median: 7.0, q3: 7.0 });
    }

    /// A ratio is taken within each pair, so a machine that slows down doesn't distort it.
    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let ratios = Quartiles::of_ratios(&[200.0, 100.0, 20.0], &[100.0, 50.0, 10.0]);
        assert_eq!(ratios, Quartiles { q1: 2.0, median: 2.0, q3: 2.0 });
    }
}
