//! The command line of a run, and the plan that it says.

use crate::engines::{ENGINES, EngineKind, engine_named};
use crate::workloads::workload_named;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::time::Duration;

/// Keys by default, and at most.
const KEYS: u64 = 1_000_000;
const KEYS_MOST: u64 = 100_000_000;
/// Threads at most.
const THREADS_MOST: u32 = 64;
/// Pairs at most.
const PAIRS_MOST: u64 = 1000;
/// A slice at most, seconds.
const SECONDS_MOST: f64 = 60.0;
/// Repetitions of one of DragonDB's rows, and the time after which no further one begins.
pub(crate) const DRAGON_REPEATS: u64 = 5;
pub(crate) const DRAGON_TIME: Duration = Duration::from_secs(5);

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The folder in which databases are made, and removed; its disk is measured too.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target"))]
    dir: PathBuf,
    /// A folder in a tmpfs for the data of engines that want one.
    #[arg(long, default_value = "/dev/shm")]
    memory_dir: PathBuf,
    /// The file that results are added to.
    #[arg(long, default_value = crate::results::RESULTS_PATH)]
    results: PathBuf,
    /// Keys of a database.
    #[arg(long, default_value_t = KEYS)]
    keys: u64,
    /// Numbers of threads, by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,
    /// Slices of each engine and row; those of a pair follow each other.
    #[arg(long, default_value_t = 15)]
    pairs: u64,
    /// Seconds of a slice.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Only these workloads, by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these engines, by commas.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// A few seconds in all: to see that everything works. The figures are worth nothing.
    #[arg(long, conflicts_with_all = ["keys", "pairs", "seconds"])]
    quick: bool,
}

/// What is measured, and how.
pub(crate) struct Plan {
    pub(crate) dir: PathBuf,
    pub(crate) memory_dir: PathBuf,
    pub(crate) results: PathBuf,
    pub(crate) engines: Vec<&'static EngineKind>,
    pub(crate) keys: u64,
    pub(crate) threads: Vec<u32>,
    pub(crate) pairs: u64,
    /// Of a slice, ms.
    pub(crate) millis: u64,
    only: Vec<&'static str>,
    /// Openings of each kind.
    pub(crate) openings: u64,
    /// Repetitions of one of DragonDB's rows, at most.
    pub(crate) dragon_repeats: u64,
    /// Operations of DragonDB's tables.
    pub(crate) dragon_sizes: [u64; 2],
    /// Before bytes are counted, ms: logs are written within a second.
    pub(crate) rest_millis: u64,
}

impl Plan {
    /// The plan, or what is wrong with the arguments.
    pub(crate) fn of(args: &RunArgs) -> Result<Plan> {
        let pick = |name: &String| engine_named(name.trim());
        let named: Result<Vec<&EngineKind>> = args.engines.iter().map(pick).collect();
        let mut engines = named?;
        if engines.is_empty() {
            engines = ENGINES.iter().map(|kind| engine_named(kind.name)).collect::<Result<_>>()?;
        }
        let only =
            args.only.iter().map(|name| workload_named(name.trim())).collect::<Result<_>>()?;
        let (keys, pairs, seconds) =
            if args.quick { (20_000, 2, 0.02) } else { (args.keys, args.pairs, args.seconds) };
        let within = |least: u64, most: u64, given: u64, name: &str| {
            ensure!(
                (least..=most).contains(&given),
                "--{name} is {given}; {least} to {most} will do"
            );
            Ok(())
        };
        within(1000, KEYS_MOST, keys, "keys")?;
        within(1, PAIRS_MOST, pairs, "pairs")?;
        ensure!(
            (0.001..=SECONDS_MOST).contains(&seconds),
            "--seconds is {seconds}; 0.001 to {SECONDS_MOST} will do"
        );
        for threads in &args.threads {
            within(1, u64::from(THREADS_MOST), u64::from(*threads), "threads")?;
        }
        for (dir, name) in [(&args.dir, "dir"), (&args.memory_dir, "memory-dir")] {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("--{name} {} can't be used", dir.display()))?;
        }
        Ok(Plan {
            dir: args.dir.clone(),
            memory_dir: args.memory_dir.clone(),
            results: args.results.clone(),
            engines,
            keys,
            threads: args.threads.clone(),
            pairs,
            millis: (seconds * 1000.0) as u64,
            only,
            openings: pairs.min(5),
            dragon_repeats: if args.quick { 1 } else { DRAGON_REPEATS },
            dragon_sizes: if args.quick { [100, 200] } else { [10_000, 100_000] },
            rest_millis: if args.quick { 20 } else { 1200 },
        })
    }

    /// Whether a workload is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.contains(&name)
    }

    /// The command that says this plan, without folders.
    pub(crate) fn command(&self) -> String {
        let threads: Vec<String> = self.threads.iter().map(u32::to_string).collect();
        let mut command = format!(
            "nigh-bench-embedded run --keys {} --threads {} --pairs {} --seconds {}",
            self.keys,
            threads.join(","),
            self.pairs,
            self.millis as f64 / 1000.0
        );
        if !self.only.is_empty() {
            command += &format!(" --only {}", self.only.join(","));
        }
        if self.engines.len() != ENGINES.len() {
            let names: Vec<&str> = self.engines.iter().map(|engine| engine.name).collect();
            command += &format!(" --engines {}", names.join(","));
        }
        command
    }
}
