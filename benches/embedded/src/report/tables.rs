//! The tables of figures.

use super::targets::threads_text;
use super::text::{figure, mebibytes};
use crate::engines::{ENGINES, OURS};
use crate::results::{Results, RowId, Sample};
use crate::workloads::{FILL_RANDOM, FILL_SEQ, has_rates, is_opening, rows};
use std::fmt::Write;

fn head(text: &mut String, first: &str) {
    let titles: Vec<&str> = ENGINES.iter().map(|engine| engine.title).collect();
    let _ = writeln!(text, "| {first} | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---{}|", "|---".repeat(titles.len()));
}

/// A row with a cell for each engine; left out if no engine has a figure.
fn line(text: &mut String, title: &str, cell: impl Fn(&'static str) -> Option<String>) {
    let cells: Vec<Option<String>> = ENGINES.iter().map(|engine| cell(engine.name)).collect();
    if cells.iter().any(Option::is_some) {
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or("–".into())).collect();
        let _ = writeln!(text, "| {title} | {} |", cells.join(" | "));
    }
}

/// Rates, and Nigh's ratios to the others, for each number of threads.
pub(super) fn rates(text: &mut String, results: &Results, keys: u64) {
    let mut numbers: Vec<u32> =
        rows().filter(|row| has_rates(row)).flat_map(|row| results.threads_of(row, keys)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for threads in numbers {
        let _ = writeln!(
            text,
            "\nThousands of operations per second, {}: median (quartiles).\n",
            threads_text(threads)
        );
        head(text, "row");
        for row in rows().filter(|row| has_rates(row)) {
            line(text, row, |engine| {
                let id = RowId { row, threads, keys };
                let rate = results.quartiles(id, engine, |slice| slice.rate() / 1000.0)?;
                let (q1, q3) = (figure(rate.q1), figure(rate.q3));
                Some(format!("{} ({q1}–{q3})", figure(rate.median)))
            });
        }
        let _ = writeln!(
            text,
            "\nNigh ÷ the engine, {}: median of the ratios (quartiles).\n",
            threads_text(threads)
        );
        head(text, "row");
        for row in rows().filter(|row| has_rates(row)) {
            line(text, row, |engine| {
                let id = RowId { row, threads, keys };
                let ratio = results.ratios((id, OURS), (id, engine))?;
                (engine != OURS)
                    .then(|| format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.q1, ratio.q3))
            });
        }
    }
}

/// Times of openings.
pub(super) fn openings(text: &mut String, results: &Results, keys: u64) {
    let opened = || rows().filter(|row| is_opening(row));
    if opened().all(|row| results.threads_of(row, keys).is_empty()) {
        return;
    }
    text.push_str(
        "\n### Opening\n\n\
         Milliseconds from before the open until the first `get` has its value, least and most in \
         brackets. A tenth of the keys was written again right before. Files are still in the \
         kernel's cache. After SIGKILL Nigh finds its memory in the tmpfs. After a close it has \
         given the memory back, and reads its whole log; so it does after a power cut.\n\n",
    );
    head(text, "row");
    for row in opened() {
        line(text, row, |engine| {
            let slices = results.slices(RowId { row, threads: 1, keys }, engine);
            let times = || slices.iter().map(|slice| slice.millis());
            let least = figure(times().reduce(f64::min)?);
            let most = figure(times().reduce(f64::max)?);
            let middle =
                results.quartiles(RowId { row, threads: 1, keys }, engine, Sample::millis)?;
            Some(format!("{} ({least}–{most})", figure(middle.median)))
        });
    }
}

/// Bytes after loads.
pub(super) fn footprints(text: &mut String, results: &Results, keys: u64) {
    let loads = || {
        let of = |row| results.threads_of(row, keys).into_iter().map(move |n| (row, n));
        [FILL_SEQ, FILL_RANDOM].into_iter().flat_map(of)
    };
    if loads().next().is_none() {
        return;
    }
    text.push_str(
        "\n### Bytes after a load\n\n\
         MiB, about a second after the last write. On disk: blocks of the files in the folder. In \
         memory: the process's own pages, pages of files that it maps, and blocks of its files in a \
         tmpfs. The kernel's cache of files that aren't mapped is in none of them.\n\n",
    );
    head(text, "load");
    for (row, threads) in loads() {
        let id = RowId { row, threads, keys };
        line(text, &format!("{row}, {}: disk", threads_text(threads)), |engine| {
            Some(mebibytes(results.footprint(id, engine)?.disk))
        });
        line(
            text,
            &format!("{row}, {}: memory (own + mapped + tmpfs)", threads_text(threads)),
            |engine| {
                let bytes = results.footprint(id, engine)?;
                let sum = bytes.private + bytes.mapped + bytes.tmpfs;
                let parts = [bytes.private, bytes.mapped, bytes.tmpfs].map(mebibytes);
                Some(format!("{} ({})", mebibytes(sum), parts.join(" + ")))
            },
        );
    }
}
