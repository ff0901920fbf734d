//! The page docs/benchmarks.md: the machine, targets, losses, figures and commands.
//!
//! Invariant: the page names each missed target and each contestant that is faster than Nigh.

use super::contest::{Args, LOAD_CPU, ResultRow, SERVER_CPU};
use super::machine::Machine;
use super::rows::SLICE;
use crate::figures::Quartiles;
use crate::report::thousands;
use std::fmt::Write;
use std::path::Path;

/// The whole page.
pub(super) fn report(args: &Args, machine: &Machine, rows: &[ResultRow], chart: &Path) -> String {
    let mut text = String::from("# Benchmarks\n\n");
    introduction(&mut text, args, machine);
    let chart = chart.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let _ = writeln!(text, "\n![Ratios to Redis and to the floor, with targets]({chart})\n");
    targets(&mut text, rows);
    losses(&mut text, rows);
    figures(&mut text, rows);
    text
}

fn introduction(text: &mut String, args: &Args, machine: &Machine) {
    let Machine { cpu, cpus, memory, kernel, system, date, nigh, redis, load } = machine;
    let _ = write!(
        text,
        "Written by `make bench-peers` (`nigh-bench peers --pairs {} --seconds {} --keys {} \
         --arena {}`) on {date}.\n\n\
         - Machine: {cpu}, {cpus} CPUs, {memory}, {system}, Linux {kernel}. Load average \
         of the minute before: {load} (figures are worth little where it isn't near 0).\n\
         - Servers, all pinned to CPU {SERVER_CPU}: Nigh {nigh} (so of one shard), Redis {redis} \
         (persistence off), and the floor, which parses RESP and answers at once without a \
         store. The load comes from one thread on CPU {LOAD_CPU}, over TCP on loopback. Nigh and \
         the floor poll for 50 µs before they sleep (`spin-us`), as by default; Redis sleeps at \
         once.\n\
         - Data: {} keys of 16 bytes with values of 100 bytes, drawn uniformly.\n\
         - A figure is the median of {} runs of {} s. Contestants run in turn (A B A B …); \
         where they get requests that are all alike, by slices of {} ms, which are summed up to \
         runs. A ratio is the median of the ratios of runs that go together, with its quartiles. \
         A target is met if the lower quartile reaches it within 5 %.\n\
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
    text.push_str(
        "## Targets\n\n| row | target | reached (quartiles) | met |\n|---|---|---|---|\n",
    );
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

/// Missed targets, faster contestants, and the losses that no row shows.
fn losses(text: &mut String, rows: &[ResultRow]) {
    text.push_str("\n## Where Nigh loses\n\n");
    for row in rows {
        for verdict in row.verdicts().iter().filter(|verdict| !verdict.met) {
            let (reached, target) = (&verdict.reached, &verdict.target);
            let _ = writeln!(text, "- {}: {reached}, where {target} is wanted.", row.title);
        }
    }
    for row in rows {
        for peer in row.contestants.iter().skip(1) {
            if let Some(ratio) = row.ratio(peer.name)
                && ratio.median < 1.0
            {
                let _ = writeln!(
                    text,
                    "- {}: {:.2} × {} (quartiles {:.2}–{:.2}).",
                    row.title, ratio.median, peer.name, ratio.q1, ratio.q3
                );
            }
        }
    }
    text.push_str(
        "- Random overwrites in nearly full memory: live records have to be moved, which Redis \
         never does; what that costs is in design 6. Rows of SETs flush and load again before \
         memory is full.\n",
    );
}

fn figures(text: &mut String, rows: &[ResultRow]) {
    text.push_str(
        "\n## Figures\n\n| row | contestant | median (quartiles) | Nigh ÷ it | \
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
