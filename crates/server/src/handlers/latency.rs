//! LATENCY. Run times of commands are counted, and HISTOGRAM answers them; latency events aren't
//! recorded, so every other answer says that there are none.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Latency, Row};
use crate::handlers::context::Context;
use crate::handlers::session;
use nigh_store::ReplySink;
use std::collections::BTreeSet;

const NO_EVENTS: &str = "No latency events are recorded. See LATENCY HISTOGRAM and SLOWLOG.\n";
const NO_SAMPLES: &str = "ERR No samples available for event '";

pub(crate) fn answer(context: &mut Context<'_, '_>, args: &[&[u8]], command: Latency) {
    match command {
        Latency::Doctor => context.reply().verbatim(NO_EVENTS),
        Latency::Graph => context.error_about(NO_SAMPLES, args[2], "'"),
        Latency::Histogram => histogram(context, &args[2..]),
        Latency::History | Latency::Latest => context.reply().array(0),
        Latency::Reset => context.reply().int(0),
    }
}

/// How long the calls of the named commands, or of all, took; a container's name means its
/// subcommands.
fn histogram(context: &mut Context<'_, '_>, names: &[&[u8]]) {
    let all = session::all_clients(context);
    let mut seen = BTreeSet::new(); // the answer is a map
    let rows: Vec<Row> = match names {
        [] => (0..).zip(commands::table()).map(|(row, _)| row).collect(),
        names => {
            let found = names.iter().flat_map(|name| rows_of(name));
            found.filter(|row| seen.insert(*row)).collect()
        }
    };
    let times = |row: Row| &all.stats.times[usize::from(row)];
    let shown: Vec<Row> = rows.into_iter().filter(|row| times(*row).calls() > 0).collect();
    let mut out = context.reply();
    out.map(shown.len());
    for row in shown {
        out.text(commands::of(row).name);
        out.map(2);
        out.figure("calls", times(row).calls());
        out.text("histogram_usec");
        let powers = times(row).powers();
        out.map(powers.len());
        for (end_us, calls) in powers {
            out.number(end_us);
            out.number(calls);
        }
    }
}

/// The rows that a name means: its own and its subcommands', or none.
fn rows_of(name: &[u8]) -> Vec<Row> {
    let Some(row) = commands::find_full(name) else { return Vec::new() };
    std::iter::once(row).chain(commands::subcommands(row).map(|(row, _)| row)).collect()
}
