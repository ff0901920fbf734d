//! `nigh-bench` without a subcommand: a load on any server that speaks the Redis protocol.
//!
//! ```text
//! preload ─► warm-up of each server ─► runs A B A B … ─► report
//! ```
//!
//! Invariants:
//! 1. Servers are measured in turn, A B A B …, since the speed of a machine drifts.
//! 2. An error reply never counts as success: it is counted and shown, and makes the exit code 1.

use super::drawn_keys::{Keys, RecordShape, Zipf};
use super::engine::{Engine, Until};
use super::figures::Series;
use super::load_options::{Args, Distribution};
use super::report;
use super::template::Workload;
use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_client::Address;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::Duration;

/// Pipeline depth of the preload: deep enough that the server sets the pace.
pub(super) const PRELOAD_PIPELINE: u64 = 64;
/// Connections of the preload.
pub(super) const PRELOAD_CONNECTIONS: usize = 8;
/// Largest value: the limit of the protocol.
const VALUE_BYTES: usize = 512 << 20;

/// Runs the load and prints the report.
///
/// # Errors
/// The load can't run, or a reply was an error or wrong.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.pairs >= 1, "--pairs must be at least 1");
    ensure!(args.value_size <= VALUE_BYTES, "--value-size is over {VALUE_BYTES} bytes (512 MiB)");
    if let Some(cpu) = args.pin {
        pin(cpu)?;
    }
    let until = match args.requests {
        Some(requests) => Until::Requests(requests),
        None => Until::Elapsed(seconds("--duration", args.duration)?),
    };
    let mut load = workload(args)?;
    ensure!(!args.check || load.is_checkable(), "--check can verify get, set and mixed only");
    let bar = progress(args)?;
    if args.preload {
        for address in &args.connect {
            preload(args, address, &bar)?;
        }
    }
    let check_bytes = args.check.then_some(args.value_size);
    let password = args.password.as_deref();
    let connect = |address: &Address| {
        Engine::connect(address, password, args.connections, args.pipeline, check_bytes)
    };
    let mut engines = args.connect.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let warm_up = seconds("--warm-up", args.warm_up)?;
    if !warm_up.is_zero() {
        for engine in &mut engines {
            bar.set_message("warming up");
            engine.run(&mut load, Until::Elapsed(warm_up), &mut |_| bar.tick())?;
            bar.inc(1);
        }
    }
    let mut series = engines.iter().map(|_| Series::new()).collect::<Result<Vec<_>>>()?;
    for _ in 0..args.pairs {
        for (at, engine) in engines.iter_mut().enumerate() {
            bar.set_message(args.connect[at].to_string());
            series[at].add(engine.run(&mut load, until, &mut |_| bar.tick())?)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report::print(args, &series)?;
    failed(&series)
}

/// An error, if a reply was an error or wrong.
fn failed(series: &[Series]) -> Result<()> {
    let bad: u64 = series.iter().map(|series| series.errors + series.mismatches).sum();
    if bad > 0 {
        let first = series.iter().find_map(|series| series.first_error.as_deref());
        bail!("{bad} replies were errors or wrong; the first: {}", first.unwrap_or("unknown"));
    }
    Ok(())
}

fn workload(args: &Args) -> Result<Workload> {
    let shape = RecordShape::new(args.key_size, args.value_size, args.keys)?;
    let keys = match args.distribution {
        Distribution::Uniform => Keys::Uniform { count: args.keys },
        Distribution::Sequential => Keys::Sequential { next: 0, count: args.keys },
        Distribution::Zipfian => Keys::Zipfian(Zipf::new(args.keys, args.theta)?),
    };
    let lines = match &args.lines {
        None => Vec::new(),
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?
            .lines()
            .map(str::to_owned)
            .collect(),
    };
    Workload::new(&args.command, &lines, args.set_share, shape, keys, args.seed)
}

/// Sets each key once.
fn preload(args: &Args, address: &Address, bar: &ProgressBar) -> Result<()> {
    let shape = RecordShape::new(args.key_size, args.value_size, args.keys)?;
    let keys = Keys::Sequential { next: 0, count: args.keys };
    let mut load = Workload::new("set", &[], 0.0, shape, keys, args.seed)?;
    let password = args.password.as_deref();
    let mut engine =
        Engine::connect(address, password, PRELOAD_CONNECTIONS, PRELOAD_PIPELINE, None)?;
    bar.set_message(format!("loading {} keys into {address}", args.keys));
    let run = engine.run(&mut load, Until::Requests(args.keys), &mut |_| bar.tick())?;
    if let Some(error) = run.tally.first_error {
        bail!("loading keys into {address}: {} errors, the first: {error}", run.tally.errors);
    }
    bar.inc(1);
    Ok(())
}

/// A bar that counts runs, on stderr; hidden if stderr isn't a terminal.
fn progress(args: &Args) -> Result<ProgressBar> {
    let steps = args.pairs + usize::from(args.warm_up > 0.0) + usize::from(args.preload);
    let bar = ProgressBar::new((steps * args.connect.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len} runs  {msg}")?);
    Ok(bar)
}

pub(super) fn seconds(flag: &str, seconds: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(duration),
        Err(_) => bail!("{flag} must be a number of seconds, not {seconds}"),
    }
}

/// Binds this thread to one CPU.
pub(super) fn pin(cpu: usize) -> Result<()> {
    let mut one = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        one.set(cpu); // a set of none, which is refused, if the CPU's number is too high
    }
    sched_setaffinity(None, &one)
        .map_err(|_| anyhow!("can't run on CPU {cpu}: `nproc` tells how many there are"))
}
