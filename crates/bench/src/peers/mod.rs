//! `nigh-bench peers`: Nigh beside Debian's Redis and the floor, on one machine, in turn.
//!
//! ```text
//! core 0   nigh serve, redis-server, nigh-bench floor      only the measured one is busy
//! core 1   this process: rows ─► results ─► markdown, ratios
//!          └─ logged, restart, churn: rows with a log; their servers start behind the others' end
//! ```
//!
//! Invariants:
//! 1. A ratio is taken between runs that follow each other at once, or that alternate in slices. It
//!    is reported with quartiles.
//! 2. A target is met if the lower quartile misses it by at most 5 %.
//! 3. All servers stop and their files are removed, also after an error or a signal.
//! 4. An error ends the run, and the rows before it are written.

mod arena;
mod churn;
mod contest;
mod curves;
mod growing;
mod levels;
mod logged;
mod markdown;
mod ratios;
mod restart;
mod rows;
mod runner;

use crate::interrupt;
use crate::load;
use crate::machine::{self, Machine};
use anyhow::{Context, Result, bail, ensure};
pub(crate) use contest::Args;
use contest::{LOAD_CPU, Servers};
use indicatif::{ProgressBar, ProgressStyle};
use markdown::Results;
use std::path::{Path, PathBuf};

/// Titles of the charts.
const CHART: &str = "Nigh's throughput as a multiple of each peer's";
const LOG_CHART: &str = "Nigh's throughput with a log as a multiple of each peer's";

/// Runs all rows and writes the page and the chart.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.pairs >= 1, "--pairs must be at least 1");
    interrupt::watch()?;
    let nigh = args.program.path()?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len} runs  {msg}")?);
    bar.set_message("starting servers");
    // Before this thread is pinned and the load begins: both would change the facts.
    let machine = Machine::look(&nigh);
    let redis = machine::version(args.redis.as_ref(), "v=").unwrap_or_else(|| "unknown".to_owned());
    load::pin(LOAD_CPU)?;
    let mut results = Results::default();
    let outcome = measure(args, &nigh, &bar, &mut results);
    bar.finish_and_clear();
    if results.all().next().is_none() {
        outcome?;
        bail!("no row's title contains {:?}", args.only);
    }
    let written = write(args, (&machine, &redis), &results)?;
    let written: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    println!("written to {}", written.join(", "));
    outcome
}

/// Measures all wanted rows. Servers without a log have ended when those with one start.
fn measure(args: &Args, nigh: &Path, bar: &ProgressBar, results: &mut Results) -> Result<()> {
    if rows::any_wanted(args) {
        let servers = Servers::start(args, nigh)?;
        rows::measure(args, &servers, bar, &mut results.rows)?;
    }
    let churns = if churn::any_wanted(args) { 2 } else { 0 };
    bar.inc_length((logged::runs(args) + restart::runs(args) + churns) as u64);
    logged::measure(args, nigh, bar, &mut results.log_rows)?;
    restart::measure(args, nigh, bar, &mut results.log_rows)?;
    let (churn_rows, curves) = churn::measure(args, nigh, bar)?;
    results.log_rows.extend(churn_rows);
    results.curves = curves;
    Ok(())
}

/// Writes the page, and the charts of those parts that were measured.
fn write(args: &Args, machine: (&Machine, &str), results: &Results) -> Result<Vec<PathBuf>> {
    let stem = args.out.file_stem().context("--out names no file")?.to_string_lossy();
    let chart = |end: &str| args.out.with_file_name(format!("{stem}{end}.svg"));
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: String| {
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        written.push(path);
        anyhow::Ok(())
    };
    if !results.rows.is_empty() {
        write(chart(""), ratios::chart(CHART, &results.rows))?;
    }
    if !results.log_rows.is_empty() {
        write(chart("-log"), ratios::chart(LOG_CHART, &results.log_rows))?;
    }
    if !results.curves.is_empty() {
        write(chart("-churn"), curves::chart(&results.curves))?;
    }
    write(args.out.clone(), markdown::report(args, machine, results, &stem))?;
    Ok(written)
}
