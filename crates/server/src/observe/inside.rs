//! What INFO shows of the inside: a line for each shard, percentiles of run times, the hottest
//! keys.
//!
//! Belongs to the shard's thread.

use crate::commands;
use crate::observe::hotkeys;
use crate::observe::snapshot::{Part, Snapshot};

/// Name and value of each line.
pub(crate) type Fields = Vec<(String, String)>;

pub(crate) fn put(fields: &mut Fields, name: &str, value: impl ToString) {
    fields.push((name.to_owned(), value.to_string()));
}

/// The percentiles that INFO latencystats shows: name and thousandths.
const PERCENTILES: [(&str, u64); 3] = [("p50", 500), ("p99", 990), ("p99.9", 999)];

/// A line for each shard, in their order.
pub(crate) fn shards(all: &Snapshot) -> Fields {
    let mut parts: Vec<&Part> = all.parts.iter().collect();
    parts.sort_by_key(|part| part.number);
    parts.into_iter().map(|part| (format!("shard_{}", part.number), shard(part))).collect()
}

fn shard(part: &Part) -> String {
    format!(
        "connections={},operations={},ops_per_sec={},hops_out={},hops_in={},mailbox_depth={},\
         mailbox_full={},wakes={},utilisation={}.{:03},longest_step_us={},longest_turn_us={},\
         function_calls={}",
        part.connections,
        part.operations,
        part.operations_per_s,
        part.hops_out,
        part.hops_in,
        part.mailbox_depth,
        part.mailbox_full,
        part.wakes,
        part.utilisation_permille / 1000,
        part.utilisation_permille % 1000,
        part.longest_step_ns / 1000,
        part.longest_turn_ns / 1000,
        part.function_calls,
    )
}

/// Percentiles of the run times of each command that ran.
pub(crate) fn latencystats(all: &Snapshot) -> Fields {
    let mut fields = Fields::new();
    for (spec, times) in commands::table().iter().zip(&all.stats.times) {
        if times.calls() == 0 {
            continue;
        }
        let percentile = |(name, thousandths)| {
            let ns = times.percentile(thousandths);
            format!("{name}={}.{:03}", ns / 1000, ns % 1000)
        };
        let values = PERCENTILES.map(percentile).join(",");
        fields.push((format!("latency_percentiles_usec_{}", spec.name), values));
    }
    fields
}

/// The hottest keys. The key comes last in its line: it may hold any printable character.
pub(crate) fn hot_keys(all: &Snapshot) -> Fields {
    let mut fields = vec![
        ("hotkeys_one_sample_in".to_owned(), hotkeys::ONE_IN.to_string()),
        ("hotkeys_samples".to_owned(), all.hot_keys.samples.to_string()),
    ];
    for (at, key) in all.hot_keys.hottest().into_iter().enumerate() {
        let (samples, error, bytes) = (key.samples, key.error, key.bytes);
        let value = format!("samples={samples},error={error},bytes={bytes},key={}", key.quoted());
        fields.push((format!("hotkey_{}", at + 1), value));
    }
    fields
}
