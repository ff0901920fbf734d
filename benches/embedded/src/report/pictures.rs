//! The names of the pictures, and what they show.

use super::svg::{Bar, Group};
use super::text::figure;
use crate::engines::ENGINES;
use crate::results::{Results, RowId};
use crate::workloads::{FILL_RANDOM, WORKLOADS, has_rates};

/// The names of page and pictures begin so.
pub(super) const STEM: &str = "benchmarks-embedded";

/// The name of the picture of targets.
pub(super) fn targets_picture(keys: u64) -> String {
    format!("{STEM}-{keys}-targets.svg")
}

/// The name of the picture of rates.
pub(super) fn rates_picture(keys: u64, threads: u32) -> String {
    format!("{STEM}-{keys}-threads-{threads}.svg")
}

/// The numbers of threads that have a picture: those with loads.
pub(super) fn threads_pictured(results: &Results, keys: u64) -> Vec<u32> {
    results.threads_of(FILL_RANDOM, keys)
}

/// The bars of a picture of rates.
pub(super) fn groups(results: &Results, keys: u64, threads: u32) -> Vec<Group> {
    let mut groups = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| has_rates(workload.name)) {
        let id = RowId { row: workload.name, threads, keys };
        let bars: Vec<Bar> = ENGINES
            .iter()
            .enumerate()
            .filter_map(|(colour, engine)| {
                let value = results.quartiles(id, engine.name, |slice| slice.rate() / 1000.0)?;
                let label = format!("{} k", figure(value.median));
                Some(Bar { title: engine.title.to_owned(), value, label, colour })
            })
            .collect();
        if !bars.is_empty() {
            groups.push(Group { title: workload.name.to_owned(), bars });
        }
    }
    groups
}
