//! Types of the comparison: options, servers, contestants, targets and verdicts of rows.
//!
//! Invariant: a target is met if the lower quartile misses it by at most 5 %.

use crate::child::{Program, ServerProcess};
use crate::figures::Quartiles;
use crate::load;
use crate::report::thousands;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// The CPU of the servers.
pub(super) const SERVER_CPU: usize = 0;
/// The CPU of the load generator.
pub(super) const LOAD_CPU: usize = 1;

/// Options of `nigh-bench peers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) program: Program,
    /// Redis server to compare with
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    pub(super) redis: String,
    /// Interleaved runs of each row
    #[arg(long, default_value_t = 15, value_name = "N")]
    pub(super) pairs: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub(super) keys: u64,
    /// Bytes of Nigh's arena
    #[arg(long, default_value_t = 8 << 30, value_name = "BYTES")]
    pub(super) arena: u64,
    /// Folder on a disk, for logs [default: the folder of this program]
    #[arg(long, value_name = "DIR")]
    pub(super) disk: Option<PathBuf>,
    /// Seconds of overwrites over which the disk's use is drawn
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub(super) churn_seconds: f64,
    /// Only rows whose title contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) only: Option<String>,
    /// File to write; beside it charts with its name, which end in .svg, -log.svg and -churn.svg
    #[arg(long, default_value = "docs/benchmarks.md", value_name = "FILE")]
    pub(super) out: PathBuf,
}

impl Args {
    pub(super) fn run_time(&self) -> Result<Duration> {
        load::seconds("--seconds", self.seconds)
    }

    /// Whether a row with that title is wanted.
    pub(super) fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|text| title.contains(text.as_str()))
    }

    /// The folder on a disk.
    pub(super) fn disk(&self) -> Result<PathBuf> {
        match &self.disk {
            Some(path) => Ok(path.clone()),
            None => {
                let own = std::env::current_exe().context("can't find this program's own file")?;
                Ok(own.parent().context("this program's file lies in no folder")?.to_owned())
            }
        }
    }
}

/// The results of one contestant of a row, run by run.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) rates: Vec<f64>,
    /// Percentiles 50, 99 and 99.99 of all runs, in µs, if requests were timed.
    pub(super) latency_us: Option<[f64; 3]>,
}

/// A target of a row.
#[derive(Clone, Copy)]
pub(super) enum RowTarget {
    /// At least this many times the rate of the contestant with that name.
    Ratio(&'static str, f64),
    /// At least this rate per second.
    PerSecond(f64),
    /// At most this many units, in a row that isn't a rate.
    AtMost(f64),
}

/// One row of the result.
pub(super) struct ResultRow {
    pub(super) title: &'static str,
    /// The command that repeats the row.
    pub(super) command: String,
    /// The unit of a rate.
    pub(super) unit: &'static str,
    /// Nigh comes first.
    pub(super) contestants: Vec<Contestant>,
    pub(super) targets: Vec<RowTarget>,
    /// Whether the least figure is the best one.
    pub(super) less_wins: bool,
    /// A remark that a reader of the row needs.
    pub(super) note: String,
}

/// A target and its result.
pub(super) struct Verdict {
    pub(super) target: String,
    pub(super) reached: String,
    pub(super) ratio: Option<Quartiles>,
    pub(super) met: bool,
}

impl ResultRow {
    pub(super) fn ratio(&self, name: &str) -> Option<Quartiles> {
        let peer = self.contestants.iter().find(|contestant| contestant.name == name)?;
        Some(Quartiles::of_ratios(&self.contestants.first()?.rates, &peer.rates))
    }

    /// Contestants that have a better figure than Nigh, with Nigh's ratios to them.
    pub(super) fn lost_to(&self) -> Vec<(&'static str, Quartiles)> {
        let ratios = self.contestants.iter().skip(1).filter_map(|peer| {
            let ratio = self.ratio(peer.name)?;
            Some((peer.name, ratio))
        });
        let lost = |median: f64| if self.less_wins { median > 1.0 } else { median < 1.0 };
        ratios.filter(|(_, ratio)| lost(ratio.median)).collect()
    }

    /// Prints how the row fared, as soon as it is measured: a whole run takes half an hour.
    pub(super) fn tell(self, bar: &ProgressBar) -> Self {
        bar.suspend(|| {
            for verdict in self.verdicts() {
                let met = if verdict.met { "met   " } else { "missed" };
                println!("{met}  {}: {} (target {})", self.title, verdict.reached, verdict.target);
            }
        });
        self
    }

    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        /// Share of the target that the lower quartile must reach: machines are noisy.
        const WITHIN: f64 = 0.95;
        let own = self.contestants.first().map(|nigh| Quartiles::of(&nigh.rates));
        let verdict = |target: &RowTarget| match *target {
            RowTarget::Ratio(name, least) => {
                let ratio = self.ratio(name)?;
                Some(Verdict {
                    target: format!("≥ {least} × {name}"),
                    reached: format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.q1, ratio.q3),
                    ratio: Some(ratio),
                    met: ratio.q1 >= least * WITHIN,
                })
            }
            RowTarget::PerSecond(least) => own.map(|own| Verdict {
                target: format!("≥ {} {}", thousands(least), self.unit),
                reached: thousands(own.median),
                ratio: None,
                met: own.q1 >= least * WITHIN,
            }),
            RowTarget::AtMost(most) => own.map(|own| Verdict {
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
pub(super) struct Servers {
    pub(super) nigh: ServerProcess,
    pub(super) redis: ServerProcess,
    pub(super) floor: ServerProcess,
}

impl Servers {
    pub(super) fn start(args: &Args, nigh: &Path) -> Result<Self> {
        let own = std::env::current_exe().context("can't find this program's own file")?;
        let own = own.to_str().context("this program's path isn't UTF-8")?.to_owned();
        let memory = args.arena.to_string();
        let nigh = ServerProcess::nigh(
            nigh,
            &pinned(),
            &words(&format!("--maxmemory {memory} --appendonly no")),
        )?;
        let redis = start_redis(args, "--dir {dir} --appendonly no", None)?;
        let mut program = pinned();
        program.push(own);
        let floor = ServerProcess::start(&program, &words("floor --port {port}"), None)?;
        Ok(Self { nigh, redis, floor })
    }
}

/// Starts Redis without snapshots, with more flags, and with a folder in `disk`.
pub(super) fn start_redis(args: &Args, more: &str, disk: Option<&Path>) -> Result<ServerProcess> {
    let mut program = pinned();
    program.push(args.redis.clone());
    let mut flags = words(&format!("--port {{port}} {more} --save"));
    flags.push(String::new());
    ServerProcess::start(&program, &flags, disk)
        .context("Redis doesn't start: `make test-tools` gets it; --redis names the program")
}

/// The words that bind a server to its CPU.
pub(super) fn pinned() -> Vec<String> {
    words(&format!("taskset -c {SERVER_CPU}"))
}

/// The words of a text.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(targets: Vec<RowTarget>) -> ResultRow {
        let contestant =
            |name, rates: &[f64]| Contestant { name, rates: rates.to_vec(), latency_us: None };
        ResultRow {
            title: "t",
            command: String::new(),
            unit: "per second",
            contestants: vec![
                contestant("Nigh", &[96.0, 200.0, 300.0]),
                contestant("Redis", &[100.0, 100.0, 100.0]),
            ],
            targets,
            less_wins: false,
            note: String::new(),
        }
    }

    /// Where less is better, the contestant with less has won.
    #[test]
    fn less_wins_where_it_is_better() {
        let lost = |less_wins, rates: [f64; 3]| {
            let mut row = row(Vec::new());
            row.contestants[0].rates = rates.to_vec();
            row.less_wins = less_wins;
            !row.lost_to().is_empty()
        };
        assert!(!lost(false, [200.0; 3]));
        assert!(lost(true, [200.0; 3]));
        assert!(lost(false, [50.0; 3]));
        assert!(!lost(true, [50.0; 3]));
    }

    /// The lower quartile decides. It may miss the target by 5 %, but not by more.
    #[test]
    fn the_lower_quartile_decides() {
        let met = |target| row(vec![target]).verdicts()[0].met;
        assert!(met(RowTarget::Ratio("Redis", 1.48)));
        assert!(met(RowTarget::Ratio("Redis", 1.55)));
        assert!(!met(RowTarget::Ratio("Redis", 1.6)));
        assert!(met(RowTarget::PerSecond(150.0)));
        assert!(!met(RowTarget::PerSecond(160.0)));
        assert!(met(RowTarget::AtMost(200.0)));
        assert!(!met(RowTarget::AtMost(199.0)));
    }
}
