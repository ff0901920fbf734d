//! `nigh-bench peers`: Nigh beside Debian's Redis and the floor, on one machine, in turn.
//!
//! ```text
//! core 0   nigh serve, redis-server, nigh-bench floor      only the measured one is busy
//! core 1   this process: rows ─► results ─► markdown, svg
//! ```
//!
//! Invariants:
//! 1. A ratio is taken between runs that follow each other at once, or that alternate in slices. It
//!    is reported with quartiles.
//! 2. A target is met if the lower quartile misses it by at most 5 %.
//! 3. All servers stop and their files are removed, also after an error.

mod arena;
mod growing;
mod levels;
mod machine;
mod markdown;
mod rows;
mod svg;

use crate::child::{Program, Server};
use crate::load;
use crate::report::thousands;
use crate::stats::Quartiles;
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The CPU of the servers.
const SERVER_CPU: usize = 0;
/// The CPU of the load generator.
const LOAD_CPU: usize = 1;

/// Options of `nigh-bench peers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    program: Program,
    /// Redis server to compare with
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    redis: String,
    /// Interleaved runs of each row
    #[arg(long, default_value_t = 15, value_name = "N")]
    pairs: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    seconds: f64,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys: u64,
    /// Bytes of Nigh's arena
    #[arg(long, default_value_t = 8 << 30, value_name = "BYTES")]
    arena: u64,
    /// Only rows whose title contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// File to write, and a chart with the same name that ends in .svg
    #[arg(long, default_value = "docs/benchmarks.md", value_name = "FILE")]
    out: PathBuf,
}

impl Args {
    fn run_time(&self) -> Result<Duration> {
        load::seconds("--seconds", self.seconds)
    }
}

/// The results of one contestant of a row, run by run.
struct Contestant {
    name: &'static str,
    rates: Vec<f64>,
    /// Percentiles 50, 99 and 99.99 of all runs, in µs, if requests were timed.
    latency_us: Option<[f64; 3]>,
}

/// A target of a row.
#[derive(Clone, Copy)]
enum Target {
    /// At least this many times the rate of the contestant with that name.
    Ratio(&'static str, f64),
    /// At least this rate per second.
    PerSecond(f64),
    /// At most this many units, in a row that isn't a rate.
    AtMost(f64),
}

/// One row of the result.
struct Row {
    title: &'static str,
    /// The command that repeats the row.
    command: String,
    /// The unit of a rate.
    unit: &'static str,
    /// Nigh comes first.
    contestants: Vec<Contestant>,
    targets: Vec<Target>,
    /// A remark that a reader of the row needs.
    note: String,
}

/// A target and its result.
struct Verdict {
    target: String,
    reached: String,
    ratio: Option<Quartiles>,
    met: bool,
}

impl Row {
    fn ratio(&self, name: &str) -> Option<Quartiles> {
        let peer = self.contestants.iter().find(|contestant| contestant.name == name)?;
        Some(Quartiles::of_ratios(&self.contestants.first()?.rates, &peer.rates))
    }

    fn verdicts(&self) -> Vec<Verdict> {
        /// Share of the target that the lower quartile must reach: machines are noisy.
        const WITHIN: f64 = 0.95;
        let own = self.contestants.first().map(|nigh| Quartiles::of(&nigh.rates));
        let verdict = |target: &Target| match *target {
            Target::Ratio(name, least) => {
                let ratio = self.ratio(name)?;
                Some(Verdict {
                    target: format!("≥ {least} × {name}"),
                    reached: format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.q1, ratio.q3),
                    ratio: Some(ratio),
                    met: ratio.q1 >= least * WITHIN,
                })
            }
            Target::PerSecond(least) => own.map(|own| Verdict {
                target: format!("≥ {} {}", thousands(least), self.unit),
                reached: thousands(own.median),
                ratio: None,
                met: own.q1 >= least * WITHIN,
            }),
            Target::AtMost(most) => own.map(|own| Verdict {
                target: format!("≤ {most} {}", self.unit),
                reached: format!("{:.1}", own.median),
                ratio: None,
                met: own.median <= most,
            }),
        };
        self.targets.iter().filter_map(verdict).collect()
    }
}

/// The servers of the comparison.
struct Servers {
    nigh: Server,
    redis: Server,
    floor: Server,
}

impl Servers {
    fn start(args: &Args, nigh: &Path) -> Result<Self> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let pinned = words(&format!("taskset -c {SERVER_CPU}"));
        let own = std::env::current_exe().context("can't find this program's own file")?;
        let own = own.to_str().context("this program's path isn't UTF-8")?.to_owned();
        let memory = args.arena.to_string();
        let nigh = Server::nigh(nigh, &pinned, &["--maxmemory".to_owned(), memory])?;
        let mut program = pinned.clone();
        program.push(args.redis.clone());
        let mut flags = words("--port {port} --dir {dir} --appendonly no --save");
        flags.push(String::new());
        let redis = Server::start(&program, &flags)
            .context("Redis doesn't start: `make test-tools` gets it; --redis names the program")?;
        let mut program = pinned;
        program.push(own);
        let floor = Server::start(&program, &words("floor --port {port}"))?;
        Ok(Self { nigh, redis, floor })
    }
}

/// Runs all rows and writes the page and the chart.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.pairs >= 1, "--pairs must be at least 1");
    let nigh = args.program.path()?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len} runs  {msg}")?);
    bar.set_message("starting servers");
    // Before this thread is pinned and the load begins: both would change the facts.
    let machine = machine::Machine::look(&nigh, &args.redis);
    let servers = Servers::start(args, &nigh)?;
    load::pin(LOAD_CPU)?;
    let rows = rows::measure(args, &servers, &bar)?;
    ensure!(!rows.is_empty(), "no row's title contains {:?}", args.only);
    bar.finish_and_clear();
    drop(servers);
    let chart = args.out.with_extension("svg");
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
    };
    write(&chart, svg::chart(&rows))?;
    write(&args.out, markdown::report(args, &machine, &rows, &chart))?;
    for row in &rows {
        for verdict in row.verdicts() {
            let met = if verdict.met { "met   " } else { "missed" };
            println!("{met}  {}: {} (target {})", row.title, verdict.reached, verdict.target);
        }
    }
    println!("written to {} and {}", args.out.display(), chart.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(targets: Vec<Target>) -> Row {
        let contestant =
            |name, rates: &[f64]| Contestant { name, rates: rates.to_vec(), latency_us: None };
        Row {
            title: "t",
            command: String::new(),
            unit: "per second",
            contestants: vec![
                contestant("Nigh", &[96.0, 200.0, 300.0]),
                contestant("Redis", &[100.0, 100.0, 100.0]),
            ],
            targets,
            note: String::new(),
        }
    }

    /// The lower quartile decides. It may miss the target by 5 %, but not by more.
    #[test]
    fn the_lower_quartile_decides() {
        let met = |target| row(vec![target]).verdicts()[0].met;
        assert!(met(Target::Ratio("Redis", 1.48)));
        assert!(met(Target::Ratio("Redis", 1.55)));
        assert!(!met(Target::Ratio("Redis", 1.6)));
        assert!(met(Target::PerSecond(150.0)));
        assert!(!met(Target::PerSecond(160.0)));
        assert!(met(Target::AtMost(200.0)));
        assert!(!met(Target::AtMost(199.0)));
    }
}
