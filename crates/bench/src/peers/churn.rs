//! The rows of a steady load of overwrites: what compaction and rewriting cost a GET beside them,
//! and how much of the disk the log takes meanwhile.
//!
//! ```text
//! step, each 160 µs    connection A: 8 SETs    connection B: a GET, answered first or last
//!                      ◄────────── the GET's time, from when the step was due ──►
//! ```
//!
//! Invariants:
//! 1. Steps are due at fixed times. A stall of the server delays all steps that it holds up, and
//!    each of their GETs is as late.
//! 2. A step that this program delays, since it looks at the disk, moves all later ones.

use super::arena::file_bytes;
use super::contest::{Args, Contestant, KEY_BYTES, ResultRow, VALUE_BYTES};
use super::logged::{EVERYSEC, rest, start_logged_redis, start_nigh};
use super::runner::{fill, percentiles, workload};
use crate::child::ServerProcess;
use crate::drawn_keys::Keys;
use crate::engine::histogram;
use crate::interrupt;
use crate::load;
use crate::reply_counts::{Skipper, Tally};
use crate::report::thousands;
use crate::stream::Stream;
use crate::template::Workload;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use std::path::Path;
use std::time::{Duration, Instant};

const GETS: &str = "Log everysec, GET beside steady overwrites";
const DISK: &str = "Log everysec, disk used by steady overwrites";
/// SETs of a step.
const SETS: u64 = 8;
/// Time between two steps: 50,000 SETs and 6,250 GETs per second. Redis can't do 100,000 SETs while
/// its other process rewrites the file on the same CPU.
const STEP: Duration = Duration::from_micros(160);
/// Time between two looks at the disk.
const LOOK: Duration = Duration::from_millis(500);
/// A run ends at the latest after this many times its seconds.
const LONGEST: u32 = 2;
/// Longest silence of a server.
const SILENCE: Duration = Duration::from_secs(20);
/// Bytes of one read: more than the replies of a step.
const READ_BYTES: usize = 16 << 10;

/// What was seen at one moment.
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// Bytes on the disk, in per cent of the bytes of keys and values.
    pub(super) disk_percent: f64,
    /// Slowest GET since the last sample.
    pub(super) slowest_us: f64,
}

/// What was seen of one contestant.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) samples: Vec<Sample>,
    latency: Histogram<u64>,
    sets_per_second: f64,
}

impl Curve {
    /// A curve without samples.
    pub(super) fn new(name: &'static str) -> Result<Self> {
        Ok(Self { name, samples: Vec::new(), latency: histogram()?, sets_per_second: 0.0 })
    }
}

/// Whether one of these rows is wanted.
pub(super) fn any_wanted(args: &Args) -> bool {
    args.wants(GETS) || args.wants(DISK)
}

/// Measures the wanted rows; one contestant after the other.
pub(super) fn measure(
    args: &Args,
    nigh: &Path,
    bar: &ProgressBar,
) -> Result<(Vec<ResultRow>, Vec<Curve>)> {
    if !any_wanted(args) {
        return Ok((Vec::new(), Vec::new()));
    }
    bar.set_message(GETS);
    let time = load::seconds("--churn-seconds", args.churn_seconds)?;
    ensure!(!time.is_zero(), "--churn-seconds must be above 0");
    let overwritten = |name, server: ServerProcess| {
        fill(args, &server)?;
        rest(&server)?;
        let curve = overwrite(args, name, &server, time);
        bar.inc(1);
        curve
    };
    let curves = vec![
        overwritten("Nigh", start_nigh(args, nigh, Some(EVERYSEC))?)?,
        overwritten("Redis", start_logged_redis(args, EVERYSEC)?)?,
    ];
    let rows = [gets(args, &curves), disk(args, &curves)].into_iter();
    let rows = rows.filter(|row| args.wants(row.title)).map(|row| row.tell(bar));
    Ok((rows.collect(), curves))
}

/// Overwrites random keys of one server for `time`.
fn overwrite(
    args: &Args,
    name: &'static str,
    server: &ServerProcess,
    time: Duration,
) -> Result<Curve> {
    let disk = server.disk().context("a server without a log")?;
    let live = (args.keys * (KEY_BYTES + VALUE_BYTES) as u64) as f64;
    let mut sets = Half::new(args, server, "SET __key__ __value__")?;
    let mut gets = Half::new(args, server, "GET __key__")?;
    let mut curve = Curve::new(name)?;
    let begin = Instant::now();
    let (mut due, mut looked, mut slowest, mut steps) = (begin, begin, 0.0f64, 0);
    let mut end = begin + time;
    while due < end && begin.elapsed() < time * LONGEST {
        interrupt::check()?;
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        sets.send(SETS)?;
        gets.send(1)?;
        gets.receive(1)?;
        let late = due.elapsed();
        curve.latency.saturating_record(u64::try_from(late.as_nanos())?);
        slowest = slowest.max(late.as_secs_f64() * 1e6);
        sets.receive(SETS)?;
        steps += 1;
        due += STEP;
        let now = Instant::now();
        if now - looked >= LOOK || due >= end {
            let disk_percent = file_bytes(disk)? as f64 / live * 100.0;
            let seconds = (now - begin).as_secs_f64();
            curve.samples.push(Sample { seconds, disk_percent, slowest_us: slowest });
            (looked, slowest) = (now, 0.0);
            let own = now.elapsed();
            due += own;
            end += own;
        }
    }
    curve.sets_per_second = (steps * SETS) as f64 / begin.elapsed().as_secs_f64();
    Ok(curve)
}

fn gets(args: &Args, curves: &[Curve]) -> ResultRow {
    let contestant = |curve: &Curve| {
        let latency_us = percentiles(&curve.latency);
        Contestant { name: curve.name, rates: vec![latency_us[2]], latency_us: Some(latency_us) }
    };
    let all = curves.iter().map(|curve| curve.latency.len()).max().unwrap_or(0);
    ResultRow {
        title: GETS,
        command: command(args),
        unit: "µs (p99.99)",
        contestants: curves.iter().map(contestant).collect(),
        targets: Vec::new(),
        less_wins: true,
        note: format!(
            "{} GETs, each counted from when it was due; {}",
            thousands(all as f64),
            reached(curves)
        ),
    }
}

fn disk(args: &Args, curves: &[Curve]) -> ResultRow {
    let contestant = |curve: &Curve| Contestant {
        name: curve.name,
        rates: curve.samples.iter().map(|sample| sample.disk_percent).collect(),
        latency_us: None,
    };
    let most = |curve: &Curve| {
        let most = curve.samples.iter().map(|sample| sample.disk_percent).fold(0.0, f64::max);
        format!("{} {most:.0} %", curve.name)
    };
    let most: Vec<String> = curves.iter().map(most).collect();
    ResultRow {
        title: DISK,
        command: command(args),
        unit: "% of the bytes of keys and values",
        contestants: curves.iter().map(contestant).collect(),
        targets: Vec::new(),
        less_wins: true,
        note: format!("at most: {}; {}", most.join(", "), reached(curves)),
    }
}

fn command(args: &Args) -> String {
    format!(
        "{SETS} SETs and a GET each {} µs for {} s, of {} keys, two connections",
        STEP.as_micros(),
        args.churn_seconds,
        args.keys
    )
}

/// How many SETs each contestant did.
fn reached(curves: &[Curve]) -> String {
    let one = |curve: &Curve| format!("{} {}", curve.name, thousands(curve.sets_per_second));
    let all: Vec<String> = curves.iter().map(one).collect();
    format!("SETs per second: {}", all.join(", "))
}

/// One connection and its requests.
struct Half {
    stream: Stream,
    load: Workload,
    skipper: Skipper,
    tally: Tally,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of `input` that are no whole token yet.
    carried: usize,
}

impl Half {
    fn new(args: &Args, server: &ServerProcess, command: &str) -> Result<Self> {
        let stream = Stream::connect(server.address())?;
        stream.set_timeout(SILENCE)?;
        Ok(Self {
            stream,
            load: workload(args, command, &[], Keys::Uniform { count: args.keys })?,
            skipper: Skipper::default(),
            tally: Tally::default(),
            output: Vec::new(),
            input: vec![0; READ_BYTES],
            carried: 0,
        })
    }

    /// Sends so many requests.
    fn send(&mut self, count: u64) -> Result<()> {
        self.output.clear();
        for _ in 0..count {
            self.load.append(&mut self.output);
        }
        let mut sent = 0;
        while sent < self.output.len() {
            let step = self.stream.write(&self.output[sent..]).context("the server hung up")?;
            ensure!(step > 0, "the server hasn't read for {} s", SILENCE.as_secs());
            sent += step;
        }
        Ok(())
    }

    /// Reads so many replies.
    fn receive(&mut self, count: u64) -> Result<()> {
        let all = self.tally.replies + count;
        while self.tally.replies < all {
            let read = self.stream.read(&mut self.input[self.carried..]);
            let read = read.context("the server hung up")?;
            let read = read.with_context(|| {
                format!("the server hasn't answered for {} s", SILENCE.as_secs())
            })?;
            ensure!(read > 0, "the server closed the connection");
            let filled = self.carried + read;
            let used = self.skipper.feed(&self.input[..filled], &mut self.tally)?;
            self.input.copy_within(used..filled, 0);
            self.carried = filled - used;
        }
        let Tally { errors, nulls, first_error, .. } = &self.tally;
        ensure!(*errors == 0, "a request beside overwrites failed: {first_error:?}");
        ensure!(*nulls == 0, "a key is missing beside overwrites");
        Ok(())
    }
}
