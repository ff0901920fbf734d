//! The table of local clients, and the page docs/benchmarks-local.md with its picture.
//!
//! Invariants:
//! 1. The page names each missed target, each contestant that does better than a local client, and
//!    each that wasn't measured.
//! 2. A target is met if the worse quartile misses it by at most 5 %.

use super::content::KEY_BYTES;
use super::contestants::{LMDB, LOCAL, NODE, PYTHON};
use super::measure::clock_us;
use super::options::Args;
use super::rows::{Figures, ROWS, Row, RowSpec};
use crate::bars::{self, BADLY, Bar, NEITHER, WELL};
use crate::figures::Quartiles;
use crate::machine::Machine;
use crate::report::thousands;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// The rows of the picture, and its axis in microseconds.
const DRAWN: [Row; 3] = [Row::ReadP50, Row::WriteP50, Row::RestedWriteP50];
const AXIS: (f64, f64) = (0.125, 64.0);
/// The name of the paper's figures.
const DAL: &str = "DAL (paper)";
/// Of prose.
const COLUMNS: usize = 100;
/// How far a machine's noise may keep a figure from its target.
const WITHIN: f64 = 0.95;

/// What was measured of a contestant, round by round.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) samples: Vec<Figures>,
}

impl Column {
    /// The figures of a row, if there are any.
    fn of(&self, row: Row) -> Option<Quartiles> {
        let sample: Vec<f64> = self.samples.iter().filter_map(|round| round.get(row)).collect();
        (!sample.is_empty()).then(|| Quartiles::of(&sample))
    }
}

/// All that is told.
pub(super) struct Told<'a> {
    pub(super) args: &'a Args,
    pub(super) machine: &'a Machine,
    pub(super) columns: &'a [Column],
    pub(super) missing: &'a [(&'static str, String)],
}

impl Told<'_> {
    /// What is printed: what was done, the table, and who is missing.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("{}\n\n", self.content());
        self.table(&mut text, &|name| name != PYTHON && name != NODE);
        text.push('\n');
        self.languages(&mut text);
        text.push('\n');
        self.missing(&mut text);
        text
    }

    /// Writes the page, and the picture beside it.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let picture = path.with_extension("svg");
        let name = picture.file_name().context("--out names no file")?.to_string_lossy();
        let put = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
        };
        put(&picture, self.picture())?;
        put(path, wrapped(&self.page(&name)))
    }

    fn content(&self) -> String {
        let Args { keys, value_size, partitions, rounds, seconds, .. } = self.args;
        format!(
            "{} keys of {KEY_BYTES} B, values of {value_size} B, {partitions} partition(s), {rounds} \
             rounds of {seconds} s a figure; a look at the clock, which each latency holds, takes \
             {:.3} us",
            thousands(*keys as f64),
            clock_us(),
        )
    }

    fn page(&self, picture: &str) -> String {
        let Machine { cpu, cpus, memory, kernel, system, date, nigh, load } = self.machine;
        let Args { rounds, seconds, keys, server_core, client_core, .. } = self.args;
        let mut text = format!(
            "# Benchmarks of local clients\n\n\
             Written by `make bench-local` (`nigh-bench local --keys {keys} --rounds {rounds} \
             --seconds {seconds}`) on {date}.\n\n\
             - Machine: {cpu}, {cpus} CPUs, {memory}, {system}, Linux {kernel}. Load average of \
             the minute before: {load} (figures are worth little where it isn't near 0).\n\
             - Each server is on core {server_core}, the client that is measured on core \
             {client_core}. One client, one call at a time. Arenas and files are in a tmpfs, and \
             nothing waits for a disk. Nigh is {nigh}, with one shard and default settings.\n\
             - {}.\n\
             - In each round each contestant is measured once, in turn; the order shifts by one. A \
             figure is the median of the rounds (quartiles).\n\
             - While a client reads **Nigh's memory or LMDB's, another one writes** random keys on \
             the server's core, as fast as it can. Clients that ask a server read while nobody \
             writes: they would wait for the writer.\n\
             - Each read is compared with what was written.\n",
            self.content(),
        );
        for Column { name, about, .. } in self.columns {
            let _ = writeln!(text, "- {name}: {about}.");
        }
        self.missing(&mut text);
        let _ = writeln!(text, "\n![Latencies of local clients and others]({picture})\n");
        text.push_str("## Targets\n\n");
        self.targets(&mut text);
        text.push_str("\n## Where Nigh loses\n\n");
        self.losses(&mut text);
        text.push_str("\n## Figures\n\n");
        self.table(&mut text, &|name| name != PYTHON && name != NODE);
        text.push_str("\nWhat the rows say:\n\n");
        for RowSpec { title, about, .. } in &ROWS {
            let _ = writeln!(text, "- {title}: {about}.");
        }
        text.push_str("\n## What a language costs\n\n");
        self.languages(&mut text);
        text
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn missing(&self, text: &mut String) {
        for (name, why) in self.missing {
            let _ = writeln!(text, "- {name}: **not measured**, as {why}.");
        }
    }

    /// Rows by contestants.
    fn table(&self, text: &mut String, wanted: &dyn Fn(&str) -> bool) {
        let columns: Vec<&Column> = self.columns.iter().filter(|it| wanted(it.name)).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let _ = writeln!(text, "| | {} | {DAL} |", names.join(" | "));
        let _ = writeln!(text, "|---|{}---|", "---|".repeat(names.len()));
        for spec in &ROWS {
            let _ = write!(text, "| {} |", spec.title);
            for column in &columns {
                let _ = write!(text, " {} |", shown(spec, column.of(spec.row)));
            }
            let dal = spec.dal.map(|figure| spec.shown(figure)).unwrap_or_default();
            let _ = writeln!(text, " {dal} |");
        }
    }

    /// The same client by each language, and what that costs.
    fn languages(&self, text: &mut String) {
        let Some(own) = self.column(LOCAL) else { return };
        let others: Vec<&Column> =
            [PYTHON, NODE].iter().filter_map(|name| self.column(name)).collect();
        if others.is_empty() {
            return;
        }
        let _ = write!(text, "| | {LOCAL} |");
        for other in &others {
            let _ = write!(text, " {} | to Rust |", other.name);
        }
        let _ = writeln!(text, "\n|---|---|{}", "---|---|".repeat(others.len()));
        for spec in ROWS.iter().filter(|spec| spec.row != Row::Beside) {
            let in_rust = own.of(spec.row);
            let _ = write!(text, "| {} | {} |", spec.title, shown(spec, in_rust));
            for other in &others {
                let figure = other.of(spec.row);
                let cost = in_rust.zip(figure).map(|(rust, it)| match spec.is_time {
                    true => format!("{:+.2} us", it.median - rust.median),
                    false => format!("÷ {:.1}", rust.median / it.median),
                });
                let _ = write!(text, " {} | {} |", shown(spec, figure), cost.unwrap_or_default());
            }
            text.push('\n');
        }
    }

    fn targets(&self, text: &mut String) {
        text.push_str("| row | wanted | reached (quartiles) | met |\n|---|---|---|---|\n");
        for (spec, wanted, reached) in self.verdicts() {
            let least = if spec.is_time { "≤" } else { "≥" };
            let met = if is_met(spec, wanted, reached) { "yes" } else { "**no**" };
            let (wanted, reached) = (spec.shown(wanted), shown(spec, Some(reached)));
            let _ = writeln!(text, "| {} | {least} {wanted} | {reached} | {met} |", spec.title);
        }
    }

    /// Rows that have a target, with it and what was reached.
    fn verdicts(&self) -> Vec<(&'static RowSpec, f64, Quartiles)> {
        static ALL: [RowSpec; ROWS.len()] = ROWS;
        let own = self.column(LOCAL);
        let verdict = |spec: &'static RowSpec| Some((spec, spec.wanted?, own?.of(spec.row)?));
        ALL.iter().filter_map(verdict).collect()
    }

    fn losses(&self, text: &mut String) {
        let before = text.len();
        for (spec, wanted, reached) in self.verdicts() {
            if !is_met(spec, wanted, reached) {
                let (wanted, reached) = (spec.shown(wanted), shown(spec, Some(reached)));
                let _ = writeln!(text, "- {}: {reached}, where {wanted} is wanted.", spec.title);
            }
        }
        for spec in ROWS.iter().filter(|spec| spec.row != Row::Beside) {
            let Some(own) = self.column(LOCAL).and_then(|own| own.of(spec.row)) else { continue };
            let others = self.columns.iter().filter(|it| ![LOCAL, PYTHON, NODE].contains(&it.name));
            let others = others.filter_map(|it| Some((it.name, it.of(spec.row)?.median)));
            for (name, other) in others.chain(spec.dal.map(|dal| (DAL, dal))) {
                let ratio = spec.ratio(own.median, other);
                if ratio < 1.0 {
                    let (own, other) = (spec.shown(own.median), spec.shown(other));
                    let _ = writeln!(text, "- {}: {own}; {name} has {other}.", spec.title);
                }
            }
        }
        if self.column(LMDB).is_some() {
            text.push_str(
                "- LMDB's writes are calls in its own process; one process writes at a time, and \
                 nobody serves others over a network.\n",
            );
        }
        if text.len() == before {
            text.push_str("In none of these rows.\n");
        }
    }

    fn picture(&self) -> String {
        let mut bars = Vec::new();
        static ALL: [RowSpec; ROWS.len()] = ROWS;
        for spec in ALL.iter().filter(|spec| DRAWN.contains(&spec.row)) {
            for column in self.columns {
                let Some(figure) = column.of(spec.row) else { continue };
                let target = spec.wanted.filter(|_| column.name == LOCAL);
                let colour = match target {
                    Some(wanted) if is_met(spec, wanted, figure) => WELL,
                    Some(_) => BADLY,
                    None if column.name.starts_with(LOCAL) => WELL,
                    None => NEITHER,
                };
                let text = format!("{}: {}", spec.title, column.name);
                bars.push(Bar { text, figure, target, colour });
            }
            if let Some(dal) = spec.dal {
                let figure = Quartiles { q1: dal, median: dal, q3: dal };
                let text = format!("{}: {DAL}", spec.title);
                bars.push(Bar { text, figure, target: None, colour: NEITHER });
            }
        }
        bars::chart("Microseconds of a call; less is better", &bars, AXIS)
    }
}

/// The text with its prose wrapped; tables, headings and pictures stay.
fn wrapped(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut columns = 0;
        for (at, word) in line.split(' ').enumerate() {
            let len = word.chars().count();
            if at > 0 && columns + 1 + len > COLUMNS && !line.starts_with(['|', '#', '!']) {
                let _ = write!(whole, "\n{indent}{word}");
                columns = indent.len() + len;
            } else {
                whole.push_str(if at > 0 { " " } else { "" });
                whole.push_str(word);
                columns += len + usize::from(at > 0);
            }
        }
        whole.push('\n');
    }
    whole
}

/// A median with its quartiles.
fn shown(spec: &RowSpec, figure: Option<Quartiles>) -> String {
    let Some(Quartiles { q1, median, q3 }) = figure else { return "–".to_owned() };
    format!("{} ({}–{})", spec.shown(median), bare(spec, q1), bare(spec, q3))
}

/// A figure without its unit.
fn bare(spec: &RowSpec, figure: f64) -> String {
    spec.shown(figure).trim_end_matches(" us").to_owned()
}

fn is_met(spec: &RowSpec, wanted: f64, reached: Quartiles) -> bool {
    let worse = if spec.is_time { reached.q3 } else { reached.q1 };
    spec.ratio(worse, wanted) >= WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quartiles(q1: f64, median: f64, q3: f64) -> Quartiles {
        Quartiles { q1, median, q3 }
    }

    /// The worse quartile decides: of times the upper one, of rates the lower. 5 % are forgiven.
    #[test]
    fn the_worse_quartile_decides() {
        let (time, rate) = (&ROWS[Row::ReadP50 as usize], &ROWS[Row::Reads as usize]);
        assert!(is_met(time, 0.4, quartiles(0.1, 0.2, 0.41)));
        assert!(!is_met(time, 0.4, quartiles(0.1, 0.2, 0.43)));
        assert!(is_met(rate, 100.0, quartiles(96.0, 200.0, 300.0)));
        assert!(!is_met(rate, 100.0, quartiles(94.0, 200.0, 300.0)));
        assert_eq!(shown(time, Some(quartiles(0.1, 0.2, 12.0))), "0.20 us (0.10–12.0)");
        assert_eq!(shown(rate, None), "–");
    }

    /// Prose has lines of 100 columns at most, and no word is lost; a table stays as it is.
    #[test]
    fn prose_is_wrapped() {
        let (prose, table) = (format!("- {}.", "word ".repeat(50).trim()), "| cell ".repeat(30));
        let text = wrapped(&format!("{prose}\n{table}|\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 3 && lines[1].starts_with("  word"), "{text}");
        assert!(lines[..lines.len() - 1].iter().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(lines[lines.len() - 1], format!("{table}|"));
        assert_eq!(text.matches("word").count(), 50);
    }
}
