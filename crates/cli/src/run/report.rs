//! What a run did, for people and for programs.

use super::timing::{KINDS, KindTimes};
use super::worker::FileRun;
use crate::output::whole_text;
use crate::render::thousands;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Sums over all files.
pub(super) struct RunReport {
    files: usize,
    commands: usize,
    found: u64,
    /// Of the logs, before the databases were closed.
    syncs: u64,
    /// From the first thread's begin to the last one's end.
    elapsed: Duration,
    /// Reading and parsing, before that.
    prepared: Duration,
    cores: BTreeSet<usize>,
    kinds: [KindTimes; KINDS.len()],
    failed: Vec<String>,
}

impl RunReport {
    pub(super) fn of(runs: &[FileRun], syncs: u64, prepared: Duration) -> RunReport {
        let begin = runs.iter().map(|run| run.begin).min();
        let end = runs.iter().map(|run| run.end).max();
        let mut kinds: [KindTimes; KINDS.len()] = std::array::from_fn(|_| KindTimes::new());
        for run in runs {
            kinds.iter_mut().zip(&run.times).for_each(|(all, thread)| all.merge(thread));
        }
        RunReport {
            files: runs.len(),
            commands: runs.iter().map(|run| run.commands).sum(),
            found: runs.iter().map(|run| run.found).sum(),
            syncs,
            elapsed: end.zip(begin).map_or(Duration::ZERO, |(end, begin)| end - begin),
            prepared,
            cores: runs.iter().map(|run| run.core).collect(),
            kinds,
            failed: runs.iter().filter_map(|run| run.failed.as_ref().map(whole_text)).collect(),
        }
    }

    /// What failed, a sentence for each file.
    pub(super) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// A table, and a sentence.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:9}{:>12}{:>14}{:>14}{:>12}{:>12}{:>12}\n",
            "operation", "count", "total ms", "per second", "p50 us", "p99 us", "max us"
        );
        for (name, kind) in KINDS.iter().zip(&self.kinds).filter(|(_, kind)| kind.count() > 0) {
            let (count, rate) = (thousands(kind.count() as f64), thousands(kind.per_second()));
            let (total, p50, p99) = (kind.total_ms(), kind.p50_us(), kind.p99_us());
            let max = kind.max_us();
            let _ = writeln!(
                text,
                "{name:9}{count:>12}{total:>14.1}{rate:>14}{p50:>12.1}{p99:>12.1}{max:>12.1}"
            );
        }
        let [_, _, gets, _] = &self.kinds;
        if gets.count() > 0 {
            let (found, gets) = (thousands(self.found as f64), thousands(gets.count() as f64));
            let _ = writeln!(text, "{found} of {gets} gets found their key");
        }
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        let _ = write!(
            text,
            "{} commands of {} files in {:.3} s with {} syncs, on cores {} (read and checked in {:.3} s)",
            thousands(self.commands as f64),
            self.files,
            self.elapsed.as_secs_f64(),
            thousands(self.syncs as f64),
            cores.join(", "),
            self.prepared.as_secs_f64()
        );
        text
    }

    /// The same, as a JSON object.
    pub(super) fn json(&self) -> String {
        let kind = |kind: &KindTimes| {
            json!({
                "count": kind.count(),
                "total_ms": kind.total_ms(),
                "per_second": kind.per_second(),
                "p50_us": kind.p50_us(),
                "p99_us": kind.p99_us(),
                "max_us": kind.max_us(),
            })
        };
        let kinds = KINDS.iter().zip(&self.kinds);
        let kinds: Map<String, Value> = kinds.map(|it| ((*it.0).to_owned(), kind(it.1))).collect();
        let whole = json!({
            "files": self.files,
            "commands": self.commands,
            "found": self.found,
            "syncs": self.syncs,
            "seconds": self.elapsed.as_secs_f64(),
            "prepare_seconds": self.prepared.as_secs_f64(),
            "cores": self.cores,
            "operations": kinds,
            "failed": self.failed,
        });
        whole.to_string()
    }
}
