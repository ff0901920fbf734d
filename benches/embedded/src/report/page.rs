//! The page's text, from top to bottom.

use super::losses::losses;
use super::pictures::{rates_picture, targets_picture, threads_pictured};
use super::text::{with_commas, wrapped};
use super::{dragondb, tables};
use crate::data::{KEY_BYTES, VALUE_BYTES};
use crate::engines::{ENGINES, EngineKind, OURS};
use crate::report::targets::{Verdict, threads_text, verdicts};
use crate::results::{Results, RowId, RunNote, Sample};
use crate::workloads::{FILL_RANDOM, WORKLOADS};
use std::fmt::Write;

/// A load that is worth a word on the page.
const LONG_LOAD_S: f64 = 60.0;

/// The whole page.
pub(super) fn page(results: &Results, all_keys: &[u64]) -> String {
    let mut text = String::from("# Benchmarks of the embedded library\n\n");
    introduction(&mut text, results);
    for keys in all_keys.iter().copied() {
        section(&mut text, results, keys, all_keys);
    }
    dragondb::section(&mut text, results);
    settings(&mut text);
    workloads(&mut text);
    commands(&mut text, results);
    wrapped(&text)
}

fn introduction(text: &mut String, results: &Results) {
    let Some(last) = results.runs.last() else { return };
    let crate::machine::Machine { cpu, cpus, memory, kernel, system, file_system, date, load } =
        &last.machine;
    let versions: Vec<String> =
        ENGINES.iter().map(|engine| format!("{} {}", engine.title, engine.version)).collect();
    let _ = write!(
        text,
        "Written by `make bench-embedded` on {date}.\n\n\
         - Machine: {cpu}, {cpus} CPUs, {memory}, {system}, Linux {kernel}; the \
         databases are on {file_system}. Load average of the minute before: {load} \
         (figures are worth little where it is far from 0).\n\
         - Engines: {}.\n\
         - Data: keys of {KEY_BYTES} bytes, values of {VALUE_BYTES} bytes. Keys are drawn \
         uniformly where a row doesn't say otherwise. Each read is checked: the value is there, and \
         is that key's.\n\
         - Each database has a process of its own. It stands still (SIGSTOP) while another one \
         works, with its background threads: what they do takes time from its own figures only. \
         Before a slice of eventual writes it runs for 0.15 s without work: Nigh holds writes back \
         while the disk is two seconds late, as it is for a process that stood still. \
         Nothing is pinned to a CPU: background threads would inherit that from the thread that \
         writes.\n\
         - A row is some slices of each engine, which take turns (A B C …, B C … A): as many as \
         the `--pairs` of its command, which stands at the end. A slice is `--seconds` of work, or \
         that part of the load or of the removal. A figure is the median of the slices. A ratio is the median of the ratios of slices that follow each other; its \
         quartiles stand beside it. A target is met if the lower quartile reaches it within 5 %.\n\
         - Writes are eventual, but in fillsync: a power cut may take them. A killed process loses \
         nothing of what it wrote; redb's does, up to its last 10,000 writes. What is on disk when \
         differs: Nigh syncs within a second, LevelDB, RocksDB, LMDB and fjall leave it to the \
         kernel.\n\
         - Nigh isn't ordered, and has all data in memory. The others keep keys in order, can \
         scan ranges, and take data beyond the memory. LMDB and redb have transactions of many reads \
         and writes, whose cost is in each of their figures.\n",
        versions.join(", "),
    );
}

/// What was measured with so many keys.
fn section(text: &mut String, results: &Results, keys: u64, all_keys: &[u64]) {
    let _ = writeln!(text, "\n## {} keys\n", with_commas(keys));
    left_out(text, results, keys, all_keys);
    let verdicts = verdicts(results, keys);
    if !verdicts.is_empty() {
        let _ = writeln!(text, "![What Nigh wants, and reached]({})\n", targets_picture(keys));
        text.push_str("### Targets\n\n");
        targets(text, &verdicts);
        text.push('\n');
    }
    let losses = losses(results, keys);
    if !losses.is_empty() {
        text.push_str("### Where Nigh loses\n\n");
        for loss in losses {
            let _ = writeln!(text, "- {loss}");
        }
        text.push('\n');
    }
    text.push_str("### Figures\n\n");
    for threads in threads_pictured(results, keys) {
        let title = format!("Rates with {}", threads_text(threads));
        let _ = writeln!(text, "![{title}]({})", rates_picture(keys, threads));
    }
    tables::rates(text, results, keys);
    tables::openings(text, results, keys);
    tables::footprints(text, results, keys);
}

/// The engines that have no figure with so many keys; and how long a load takes one of them, as it
/// loaded the most keys that it was given, if that is long.
fn left_out(text: &mut String, results: &Results, keys: u64, all_keys: &[u64]) {
    let rows = results.rows_of(keys);
    let is_there = |engine: &EngineKind| {
        rows.iter().any(|row| {
            let slices = |threads| results.slices(RowId { row, threads, keys }, engine.name);
            results.threads_of(row, keys).into_iter().any(|threads| !slices(threads).is_empty())
        })
    };
    let absent: Vec<&EngineKind> = ENGINES.iter().filter(|engine| !is_there(engine)).collect();
    if absent.is_empty() {
        return;
    }
    let names: Vec<&str> = absent.iter().map(|engine| engine.title).collect();
    let _ = write!(text, "Left out by `--engines`: {}.", names.join(", "));
    for engine in absent {
        let load = |keys| RowId { row: FILL_RANDOM, threads: 1, keys };
        let known = all_keys.iter().rev().find_map(|at| {
            Some((*at, results.quartiles(load(*at), engine.name, Sample::rate)?.median))
        });
        let Some((at, rate)) = known else { continue };
        let seconds = keys as f64 / rate;
        if seconds >= LONG_LOAD_S {
            let _ = write!(
                text,
                " {} writes {} keys per second in fillrandom with {} keys. So one load of {} keys \
                 takes it {} s at best, and a run makes several: for fillrandom and fillseq with \
                 each number of threads, and for the openings.",
                engine.title,
                with_commas(rate as u64),
                with_commas(at),
                with_commas(keys),
                with_commas(seconds as u64)
            );
        }
    }
    text.push_str("\n\n");
}

fn targets(text: &mut String, verdicts: &[Verdict]) {
    text.push_str("| row | wanted | median | lower quartile | met |\n|---|---|---|---|---|\n");
    for verdict in verdicts {
        let (wanted, met) = (verdict.wanted, if verdict.is_met() { "yes" } else { "**no**" });
        let figure = |value: f64| match verdict.is_rate {
            true => with_commas(value as u64),
            false => format!("{value:.2}"),
        };
        let wanted = match verdict.is_rate {
            true => format!("≥ {} {}", with_commas(wanted as u64), verdict.against),
            false => format!("≥ {wanted} × {}", verdict.against),
        };
        let (row, reached) = (&verdict.row, verdict.reached);
        let (median, q1) = (figure(reached.median), figure(reached.q1));
        let _ = writeln!(text, "| {row} | {wanted} | {median} | {q1} | {met} |");
    }
}

fn settings(text: &mut String) {
    text.push_str(
        "\n## Settings\n\n\
         Caches, or the most that memory may take, are larger than all data. Files of all engines \
         are on the same disk, and Nigh's data is in a tmpfs.\n\n\
         | engine | eventual | fillsync | several keys at once |\n|---|---|---|---|\n",
    );
    for engine in &ENGINES {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            engine.title,
            engine.eventual,
            engine.strong,
            engine.multi_get.unwrap_or("none; not in multiget")
        );
    }
    text.push_str(
        "\nfillsync with 64 writers is measured where one sync serves several writers: Nigh, \
         LevelDB and RocksDB.\n",
    );
}

fn workloads(text: &mut String) {
    text.push_str("\n## Rows\n\n| row | what is done |\n|---|---|\n");
    for workload in &WORKLOADS {
        let _ = writeln!(text, "| {} | {} |", workload.name, workload.about);
    }
}

/// The commands that gave the figures: those of the latest run of each row.
fn commands(text: &mut String, results: &Results) {
    let mut runs: Vec<&RunNote> = Vec::new();
    for keys in results.keys_of(|_| true) {
        for row in results.rows_of(keys) {
            for threads in results.threads_of(&row, keys) {
                let id = RowId { row: &row, threads, keys };
                runs.extend(results.run_of(id, OURS));
            }
        }
    }
    runs.sort_by_key(|note| note.run);
    runs.dedup_by_key(|note| note.run);
    text.push_str("\n## Commands\n\n");
    for note in runs {
        let _ = writeln!(
            text,
            "- `{}` on {}, load average {} before.",
            note.command, note.machine.date, note.machine.load
        );
    }
}
