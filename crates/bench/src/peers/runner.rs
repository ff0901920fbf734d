//! Loads of one row: all keys set once, and runs of contestants in slices that alternate.
//!
//! Invariants:
//! 1. A reply that is an error or lacks a key that was set ends the measurement.
//! 2. In a run a contestant stands still outside of its slices. So what it does behind its replies
//!    takes time from itself only, and nothing from the others.

use super::contest::{Args, Contestant, KEY_BYTES, VALUE_BYTES};
use crate::child::{ServerProcess, accepted};
use crate::drawn_keys::{Keys, RecordShape};
use crate::engine::{Engine, Until, histogram};
use crate::load;
use crate::template::Workload;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Time for the server's background threads to finish after a load.
const SETTLE: Duration = Duration::from_millis(500);
/// Length of a slice, in which one contestant is measured. Other guests of the host disturb some
/// seconds now and then; with short slices they disturb all contestants alike. But slices of 250 ms
/// gave SET at c50 P1 0.89 of the floor's rate, where those of 1 and 2 s gave 0.93 (medians of 15,
/// 15 and 8 pairs on an AMD EPYC, 2026-11-30; nobody has looked why).
pub(super) const SLICE: Duration = Duration::from_secs(1);
/// Seed of all random choices.
const SEED: u64 = 1;

/// Requests of the words `command`, on the keys and values of the rows.
pub(super) fn workload(
    args: &Args,
    command: &str,
    lines: &[String],
    keys: Keys,
) -> Result<Workload> {
    let shape = RecordShape::new(KEY_BYTES, VALUE_BYTES, args.keys)?;
    Workload::new(command, lines, 0.0, shape, keys, SEED)
}

/// Sets all keys of a server.
pub(super) fn fill(args: &Args, server: &ServerProcess) -> Result<()> {
    fill_with(server, args.keys, VALUE_BYTES)
}

/// Sets so many keys to values of that size.
pub(super) fn fill_with(server: &ServerProcess, keys: u64, value_bytes: usize) -> Result<()> {
    let shape = RecordShape::new(KEY_BYTES, value_bytes, keys)?;
    let each = Keys::Sequential { next: 0, count: keys };
    let mut load = Workload::new("set", &[], 0.0, shape, each, SEED)?;
    let mut engine = Engine::connect(
        server.address(),
        None,
        load::PRELOAD_CONNECTIONS,
        load::PRELOAD_PIPELINE,
        None,
    )
    .with_context(|| server.told())?;
    let run = engine.run(&mut load, Until::Requests(keys), &mut |_| {});
    let run = run.with_context(|| server.told())?;
    ensure!(run.tally.errors == 0, "loading keys failed: {:?}", run.tally.first_error);
    Ok(())
}

/// One run of each contestant, of `time`, in slices that alternate.
pub(super) fn in_turn(runners: &mut [Runner], time: Duration) -> Result<()> {
    let slices = u32::try_from(time.as_nanos().div_ceil(SLICE.as_nanos()))?.max(1);
    runners.iter().try_for_each(|runner| runner.server.pause())?;
    for _ in 0..slices {
        for runner in &mut *runners {
            runner.slice(time / slices)?;
        }
    }
    runners.iter_mut().for_each(Runner::end);
    runners.iter().try_for_each(|runner| runner.server.resume())
}

/// Waits until the server's background threads have nothing to do.
pub(super) fn settle() {
    std::thread::sleep(SETTLE);
}

/// Empties a server and loads all keys again.
pub(super) fn refill(args: &Args, server: &ServerProcess) -> Result<()> {
    accepted(server.connect()?.call(["FLUSHALL"])?).context("FLUSHALL failed")?;
    settle();
    fill(args, server)?;
    settle();
    Ok(())
}

/// One server under one load.
pub(super) struct Runner<'a> {
    name: &'static str,
    server: &'a ServerProcess,
    engine: Engine,
    load: Workload,
    rates: Vec<f64>,
    latency: Histogram<u64>,
    /// Replies of the current run, and of the one before.
    replies: u64,
    last: u64,
    seconds: f64,
}

impl<'a> Runner<'a> {
    /// A contestant that sends `command` by so many connections, in pipelines of that depth.
    pub(super) fn new(
        name: &'static str,
        server: &'a ServerProcess,
        args: &Args,
        command: &str,
        (connections, pipeline): (usize, u64),
    ) -> Result<Self> {
        let keys = Keys::Uniform { count: args.keys };
        let engine = Engine::connect(server.address(), None, connections, pipeline, None);
        Ok(Self {
            name,
            server,
            engine: engine.with_context(|| format!("{name}: {}", server.told()))?,
            load: workload(args, command, &[], keys)?,
            rates: Vec::new(),
            latency: histogram()?,
            replies: 0,
            last: 0,
            seconds: 0.0,
        })
    }

    /// Measures one slice of a run.
    fn slice(&mut self, time: Duration) -> Result<()> {
        self.server.resume()?;
        let run = self.engine.run(&mut self.load, Until::Elapsed(time), &mut |_| {});
        let run = run.with_context(|| format!("{}: {}", self.name, self.server.told()))?;
        self.server.pause()?;
        let tally = &run.tally;
        ensure!(tally.errors == 0, "{} answered with errors: {:?}", self.name, tally.first_error);
        ensure!(tally.nulls == 0, "{} lacks keys that were set", self.name);
        self.replies += tally.replies;
        self.seconds += run.seconds;
        self.latency.add(&run.latency)?;
        Ok(())
    }

    /// Ends a run.
    fn end(&mut self) {
        self.last = std::mem::take(&mut self.replies);
        self.rates.push(self.last as f64 / self.seconds);
        self.seconds = 0.0;
    }

    /// Replies of the last run.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Drops the figures so far: they are of the warm-up.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.rates.clear();
        self.latency = histogram()?;
        Ok(())
    }

    pub(super) fn finish(self) -> Contestant {
        let latency_us = Some(percentiles(&self.latency));
        Contestant { name: self.name, rates: self.rates, latency_us }
    }
}

/// Percentiles 50, 99 and 99.99 of latencies in ns, in µs.
pub(super) fn percentiles(latency: &Histogram<u64>) -> [f64; 3] {
    [50.0, 99.0, 99.99].map(|percent| latency.value_at_percentile(percent) as f64 / 1000.0)
}
