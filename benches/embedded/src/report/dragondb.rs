//! The section with DragonDB's tables: its published figures, and the same operations here.

use super::targets::threads_text;
use super::text::{figure, with_commas};
use crate::engines::OURS;
use crate::plan::{DRAGON_REPEATS, DRAGON_TIME};
use crate::results::{Results, RowId, Sample};
use crate::workloads::{dragon_row, is_dragon_row};
use std::fmt::Write;

/// As published, and what isn't told about it.
const PUBLISHED: &str = "\
    Published, ms, on a machine of 4 cores:\n\n\
    | operations | puts | gets | mixed |\n|---|---|---|---|\n\
    | 10,000 | 8,228 | 19 | 66 weak, 33,907 strong |\n\
    | 100,000 | 541,403 with 4 cores, 1,317,296 with 1 core | 7,012 | 538,036 |\n\n\
    The publication's machine, disk, keys and values aren't those here, so the tables stand beside \
    each other without ratios. Here weak is eventual: a killed process loses nothing, and data is on \
    disk within about a second; strong is on disk when the call returns.\n";

/// The section; nothing if nothing was measured.
pub(super) fn section(text: &mut String, results: &Results) {
    let sizes = results.keys_of(is_dragon_row);
    if sizes.is_empty() {
        return;
    }
    text.push_str(
        "\n## DragonDB's tables\n\n\
         Nigh alone, ms for all operations together: puts of so many keys in random order into an \
         empty store, gets of random keys, and both in turn. A figure is the median of the \
         repetitions (least–most).",
    );
    let _ = writeln!(
        text,
        " There are {DRAGON_REPEATS} of them, but none begins when those before took more than {} s \
         together.\n",
        DRAGON_TIME.as_secs()
    );
    text.push_str(
        "| operations | threads | repetitions | puts | gets | mixed |\n|---|---|---|---|---|---|\n",
    );
    for keys in sizes {
        for strong in [false, true] {
            let puts = dragon_row("puts", strong);
            for threads in results.threads_of(&puts, keys) {
                let repetitions = results.slices(RowId { row: &puts, threads, keys }, OURS).len();
                let cells = ["puts", "gets", "mixed"].map(|name| {
                    let row = dragon_row(name, strong);
                    cell(results, RowId { row: &row, threads, keys }).unwrap_or_default()
                });
                let _ = writeln!(
                    text,
                    "| {}, {} | {} | {repetitions} | {} |",
                    with_commas(keys),
                    if strong { "strong" } else { "weak" },
                    threads_text(threads),
                    cells.join(" | ")
                );
            }
        }
    }
    text.push('\n');
    text.push_str(PUBLISHED);
}

fn cell(results: &Results, id: RowId<'_>) -> Option<String> {
    let middle = results.quartiles(id, OURS, Sample::millis)?.median;
    let slices = results.slices(id, OURS);
    let times = || slices.iter().map(|slice| slice.millis());
    let (least, most) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
    Some(match slices.len() {
        1 => figure(middle),
        _ => format!("{} ({}–{})", figure(middle), figure(least), figure(most)),
    })
}
