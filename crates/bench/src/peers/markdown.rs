//! The page docs/benchmarks.md: the machine; targets, losses, figures and commands, first of the
//! rows without a log, then of those with one.
//!
//! Invariant: the page names each missed target and each contestant that is faster than Nigh.

use super::churn::Curve;
use super::contest::{Args, LOAD_CPU, ResultRow, SERVER_CPU};
use super::runner::SLICE;
use crate::figures::Quartiles;
use crate::machine::Machine;
use crate::report::thousands;
use std::fmt::Write;

/// All that was measured.
#[derive(Default)]
pub(super) struct Results {
    /// Rows without a log.
    pub(super) rows: Vec<ResultRow>,
    /// Rows with one.
    pub(super) log_rows: Vec<ResultRow>,
    /// Contestants under steady overwrites.
    pub(super) curves: Vec<Curve>,
}

impl Results {
    pub(super) fn all(&self) -> impl Iterator<Item = &ResultRow> {
        self.rows.iter().chain(&self.log_rows)
    }
}

/// The whole page. Names of charts begin with `stem`.
pub(super) fn report(
    args: &Args,
    machine: (&Machine, &str),
    results: &Results,
    stem: &str,
) -> String {
    let Results { rows, log_rows, curves } = results;
    let mut text = String::from("# Benchmarks\n\n");
    introduction(&mut text, args, machine);
    if !rows.is_empty() {
        let _ = writeln!(text, "\n![Ratios to Redis and to the floor, with targets]({stem}.svg)");
        section(&mut text, "##", rows, CLEANING);
    }
    if !log_rows.is_empty() {
        text.push_str(WITH_A_LOG);
        let _ = writeln!(text, "\n![Ratios with a log, with targets]({stem}-log.svg)");
        if !curves.is_empty() {
            let _ = writeln!(text, "\n![The disk's use, and slow GETs, by time]({stem}-churn.svg)");
        }
        section(&mut text, "###", log_rows, "");
    }
    text
}

/// What loses without a row that shows it.
const CLEANING: &str = "\
    - Random overwrites in nearly full memory: live records have to be moved, which Redis never \
    does; what that costs is in design 6. Rows of SETs flush and load again before memory is \
    full.\n";

/// The introduction of the rows with a log.
const WITH_A_LOG: &str = "\n## With a log\n\n\
    - Nigh and Redis have `appendonly yes`, and `appendfsync` as the row says; each has a folder \
    of its own on the same disk. `no log` is Nigh without a log. All threads and processes of a \
    server are on CPU 0, those that sync, compact or rewrite too.\n\
    - Compaction and rewriting begin as by default, and take time from the contestant's own \
    slices only.\n\
    - Rows of ms, µs and % of bytes: less is better.\n";

/// Targets, losses, figures and commands of some rows.
fn section(text: &mut String, level: &str, rows: &[ResultRow], more_losses: &str) {
    let _ = writeln!(text, "\n{level} Targets\n");
    targets(text, rows);
    let _ = writeln!(text, "\n{level} Where Nigh loses\n");
    losses(text, rows);
    text.push_str(more_losses);
    let _ = writeln!(text, "\n{level} Figures\n");
    figures(text, rows);
}

fn introduction(text: &mut String, args: &Args, (machine, redis): (&Machine, &str)) {
    let Machine { cpu, cpus, memory, kernel, system, date, nigh, load } = machine;
    let _ = write!(
        text,
        "Written by `make bench-peers` (`nigh-bench peers --pairs {} --seconds {} --keys {} \
         --arena {}`) on {date}.\n\n\
         - Machine: {cpu}, {cpus} CPUs, {memory}, {system}, Linux {kernel}. Load average \
         of the minute before: {load} (figures are worth little where it isn't near 0).\n\
         - Servers, all pinned to CPU {SERVER_CPU}: Nigh {nigh} (so of one shard; `--appendonly no`), Redis {redis} \
         (`--appendonly no`, no snapshots), and the floor, which parses RESP and answers at once without a \
         store. The load comes from one thread on CPU {LOAD_CPU}, over TCP on loopback. Nigh and \
         the floor poll for 50 µs before they sleep (`spin-us`), as by default; Redis sleeps at \
         once.\n\
         - Data: {} keys of 16 bytes with values of 100 bytes, drawn uniformly.\n\
         - A figure is the median of {} runs of {} s. Contestants run in turn (A B A B …); \
         where they get requests that are all alike, by slices of {} ms, which are summed up to \
         runs. Outside of its slices a contestant stands still (SIGSTOP), with its background \
         threads and child processes. A ratio is the median of the ratios of runs that go \
         together, with its quartiles. A target is met if the lower quartile reaches it within 5 \
         %.\n\
         - `c` is the number of connections, `P` the number of requests that each sends before it \
         waits for their replies.\n",
        args.pairs,
        args.seconds,
        args.keys,
        args.arena,
        thousands(args.keys as f64),
        args.pairs,
        args.seconds,
        SLICE.as_millis(),
    );
}

fn targets(text: &mut String, rows: &[ResultRow]) {
    text.push_str("| row | target | reached (quartiles) | met |\n|---|---|---|---|\n");
    for row in rows {
        for verdict in row.verdicts() {
            let met = if verdict.met { "yes" } else { "**no**" };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {met} |",
                row.title, verdict.target, verdict.reached
            );
        }
    }
}

/// Missed targets, and contestants that do better.
fn losses(text: &mut String, rows: &[ResultRow]) {
    for row in rows {
        for verdict in row.verdicts().iter().filter(|verdict| !verdict.met) {
            let (reached, target) = (&verdict.reached, &verdict.target);
            let _ = writeln!(text, "- {}: {reached}, where {target} is wanted.", row.title);
        }
    }
    for row in rows {
        for (name, ratio) in row.lost_to() {
            let _ = writeln!(
                text,
                "- {}: {:.2} × {name} (quartiles {:.2}–{:.2}).",
                row.title, ratio.median, ratio.q1, ratio.q3
            );
        }
    }
}

fn figures(text: &mut String, rows: &[ResultRow]) {
    text.push_str(
        "| row | contestant | median (quartiles) | Nigh ÷ it | \
         p50 / p99 / p99.99 µs |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        for (at, contestant) in row.contestants.iter().enumerate() {
            let rate = Quartiles::of(&contestant.rates);
            let ratio = match row.ratio(contestant.name) {
                Some(ratio) if at > 0 => format!("{:.2}", ratio.median),
                _ => String::new(),
            };
            let latency = contestant
                .latency_us
                .map(|[p50, p99, p9999]| format!("{p50:.0} / {p99:.0} / {p9999:.0}"))
                .unwrap_or_default();
            let _ = writeln!(
                text,
                "| {} | {} | {} ({}–{}) {} | {ratio} | {latency} |",
                row.title,
                contestant.name,
                thousands(rate.median),
                thousands(rate.q1),
                thousands(rate.q3),
                row.unit,
            );
        }
    }
    text.push_str("\nCommands:\n\n");
    for row in rows {
        let note = if row.note.is_empty() { String::new() } else { format!(" {}.", row.note) };
        let _ = writeln!(text, "- {}: `{}`.{note}", row.title, row.command);
    }
}
