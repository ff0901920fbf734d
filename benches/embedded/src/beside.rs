//! Measures LMDB for `nigh-bench local`, which asks by lines: `crates/bench/src/local/helper.rs`
//! says which.
//!
//! 1. The reader is on one core; during the reads a writer on another core gives random keys new
//!    values, one transaction each.
//! 2. Each read is compared.
//!
//! The reader's thread is the one that answers.

use crate::data::{KEY_BYTES, Random, VALUE_BYTES, is_value_of, key, value};
use crate::engines::{Engine, Place, Session, engine_named};
use crate::protocol::TOGETHER;
use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Operations between two looks at the clock, where none of them is timed.
const BATCH: u64 = 1024;
/// As of a client that writes to a server that sleeps.
const REST: Duration = Duration::from_micros(500);

/// What `nigh-bench local` says.
#[derive(Debug, clap::Args)]
pub(crate) struct BesideArgs {
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    value_size: usize,
    /// Seconds of a figure.
    #[arg(long)]
    seconds: f64,
    /// The reader's core; -1 for any.
    #[arg(long, allow_negative_numbers = true)]
    reader_core: i32,
    /// The writer's core; -1 for any.
    #[arg(long, allow_negative_numbers = true)]
    writer_core: i32,
    /// Whether somebody writes during the reads.
    #[arg(long, action = clap::ArgAction::Set)]
    writer: bool,
    /// A folder in a tmpfs, in which the database is made.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

/// What is measured with.
struct Bench<'a> {
    engine: &'a dyn Engine,
    keys: u64,
    slice: Duration,
}

/// Answers orders until there are no more. An error is an answer too.
pub(crate) fn serve(args: &BesideArgs) -> Result<()> {
    let outcome = answer(args);
    if let Err(error) = &outcome {
        say(&json!({ "error": format!("{error:#}") }))?;
    }
    outcome
}

fn answer(args: &BesideArgs) -> Result<()> {
    ensure!(args.keys > 0, "there are no keys");
    ensure!(args.value_size == VALUE_BYTES, "values have {VALUE_BYTES} bytes here");
    pin(args.reader_core)?;
    let kind = engine_named("lmdb")?;
    let folder = tempfile::Builder::new().prefix("nigh-lmdb-").tempdir_in(&args.dir)?;
    let dir = folder.path().to_owned();
    let place = Place { memory_dir: dir.clone(), dir, keys: args.keys, strong: false };
    let engine = (kind.open)(&place)?;
    let slice = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    ensure!(!slice.is_zero(), "--seconds is 0");
    let bench = Bench { engine: &*engine, keys: args.keys, slice };
    bench.fill()?;
    let about = "in the reader's process; `MDB_NOSYNC`, `MDB_WRITEMAP`, a reader's transaction is \
                 renewed for each call, a write is a transaction";
    say(&json!({ "ready": format!("LMDB {}, {about}", kind.version) }))?;
    for line in std::io::stdin().lock().lines() {
        let told = match line?.as_str() {
            "reads" => bench.reads(args)?,
            "writes" => bench.writes()?,
            other => bail!("{other:?} is no order: reads, writes"),
        };
        say(&told)?;
    }
    Ok(())
}

fn say(told: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    Ok(out.flush()?)
}

/// Binds this thread to a core.
fn pin(core: i32) -> Result<()> {
    let Ok(core) = usize::try_from(core) else { return Ok(()) };
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).with_context(|| format!("can't run on core {core}"))
}

impl Bench<'_> {
    fn fill(&self) -> Result<()> {
        let mut session = self.engine.session()?;
        (0..self.keys).try_for_each(|n| session.put(&key(n), &value(n)))
    }

    fn reads(&self, args: &BesideArgs) -> Result<Value> {
        let (stop, written) = (AtomicBool::new(!args.writer), AtomicU64::new(0));
        let began = Instant::now();
        let measured = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                pin(args.writer_core)?;
                self.write_on(&stop, &written)
            });
            let measured = self.read_alone();
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("a panic has been printed")?;
            measured
        });
        let mut told = measured?;
        if args.writer {
            let written = written.load(Ordering::Relaxed) as f64;
            told["beside_per_s"] = json!(written / began.elapsed().as_secs_f64());
        }
        Ok(told)
    }

    fn read_alone(&self) -> Result<Value> {
        let mut session = self.engine.session()?;
        let mut random = Random::new(3);
        let mut times = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < self.slice {
            let n = random.below(self.keys);
            let wanted = key(n);
            let mut copy = [0; VALUE_BYTES];
            let from = Instant::now();
            let found = session.get(&wanted, &mut |bytes| copy_to(&mut copy, bytes))?;
            times.push(nanos(from.elapsed()));
            ensure!(found && is_value_of(&copy, n), "key {n} has a wrong value");
        }
        let [p50, p99] = percentiles_us(&mut times);
        let each = self.rate(BATCH, || {
            for _ in 0..BATCH {
                let n = random.below(self.keys);
                let mut copy = [0; VALUE_BYTES];
                let found = session.get(&key(n), &mut |bytes| copy_to(&mut copy, bytes))?;
                ensure!(found && is_value_of(&copy, n), "key {n} has a wrong value");
            }
            Ok(())
        })?;
        let together =
            self.rate(TOGETHER as u64, || together(&mut *session, &mut random, self.keys))?;
        Ok(json!({
            "read_p50_us": p50, "read_p99_us": p99, "reads_per_s": each, "keys_per_s": together,
        }))
    }

    /// Writes without a rest, and with one before each. A pipeline LMDB has none.
    fn writes(&self) -> Result<Value> {
        let [p50, p99] = self.write_times(Duration::ZERO)?;
        let [rested_p50, rested_p99] = self.write_times(REST)?;
        Ok(json!({
            "write_p50_us": p50, "write_p99_us": p99,
            "rested_write_p50_us": rested_p50, "rested_write_p99_us": rested_p99,
        }))
    }

    fn write_times(&self, rest: Duration) -> Result<[f64; 2]> {
        let mut session = self.engine.session()?;
        let (mut random, mut times) = (Random::new(6), Vec::new());
        let begin = Instant::now();
        while begin.elapsed() < self.slice {
            if !rest.is_zero() {
                std::thread::sleep(rest);
            }
            let n = random.below(self.keys);
            let (key, value) = (key(n), value(n));
            let from = Instant::now();
            session.put(&key, &value)?;
            times.push(nanos(from.elapsed()));
        }
        Ok(percentiles_us(&mut times))
    }

    fn write_on(&self, stop: &AtomicBool, written: &AtomicU64) -> Result<()> {
        let mut session = self.engine.session()?;
        let mut random = Random::new(2);
        while !stop.load(Ordering::Relaxed) {
            let n = random.below(self.keys);
            session.put(&key(n), &value(n))?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Operations per second; each `batch` has so many.
    fn rate(&self, count: u64, mut batch: impl FnMut() -> Result<()>) -> Result<f64> {
        let (begin, mut done) = (Instant::now(), 0u64);
        loop {
            batch()?;
            done += count;
            let elapsed = begin.elapsed();
            if elapsed >= self.slice {
                return Ok(done as f64 / elapsed.as_secs_f64());
            }
        }
    }
}

/// Reads random keys by one transaction.
fn together(session: &mut dyn Session, random: &mut Random, keys: u64) -> Result<()> {
    let numbers: [u64; TOGETHER] = std::array::from_fn(|_| random.below(keys));
    let wanted = numbers.map(key);
    let mut seen = 0;
    session.multi_get(&wanted, &mut |at, bytes| {
        let mut copy = [0; VALUE_BYTES];
        copy_to(&mut copy, bytes);
        seen += usize::from(is_value_of(&copy, numbers[at]));
    })?;
    ensure!(seen == TOGETHER, "{seen} of {TOGETHER} keys of {KEY_BYTES} bytes have their values");
    Ok(())
}

/// As a client that keeps a value does.
fn copy_to(copy: &mut [u8; VALUE_BYTES], bytes: &[u8]) {
    if bytes.len() == VALUE_BYTES {
        copy.copy_from_slice(bytes);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Percentiles 50 and 99 of times that aren't none.
fn percentiles_us(times: &mut [u64]) -> [f64; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| times[(times.len() - 1) * percent / 100] as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The percentiles of a hundred and one times are the times at these places.
    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut times: Vec<u64> = (0..=100).rev().map(|n| n * 1000).collect();
        assert_eq!(percentiles_us(&mut times), [50.0, 99.0]);
        assert_eq!(percentiles_us(&mut [7000]), [7.0, 7.0]);
    }
}
