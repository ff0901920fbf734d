//! Where Nigh loses: targets that it misses, and rows in which an engine is faster.

use super::targets::{threads_text, verdicts};
use super::text::{figure, with_commas};
use crate::engines::{ENGINES, OURS};
use crate::results::{Results, RowId, Sample};
use crate::workloads::{has_rates, is_opening, rows};

/// Rows in which an engine is faster than Nigh, as sentences.
pub(super) fn losses(results: &Results, keys: u64) -> Vec<String> {
    let mut losses = Vec::new();
    for verdict in verdicts(results, keys).iter().filter(|verdict| !verdict.is_met()) {
        let (row, against, wanted) = (&verdict.row, &verdict.against, verdict.wanted);
        let (median, q1) = (verdict.reached.median, verdict.reached.q1);
        losses.push(match verdict.is_rate {
            true => format!(
                "{row}: {} {against} (lower quartile {}), where {} are wanted.",
                with_commas(median as u64),
                with_commas(q1 as u64),
                with_commas(wanted as u64)
            ),
            false => format!(
                "{row}: {median:.2} × {against} (lower quartile {q1:.2}), where {wanted} × is wanted."
            ),
        });
    }
    for row in rows().filter(|row| has_rates(row)) {
        for threads in results.threads_of(row, keys) {
            let id = RowId { row, threads, keys };
            for engine in ENGINES.iter().filter(|engine| engine.name != OURS) {
                let Some(ratio) = results.ratios((id, OURS), (id, engine.name)) else { continue };
                if ratio.median < 1.0 {
                    losses.push(format!(
                        "{row}, {}: {:.2} × {} (quartiles {:.2}–{:.2}).",
                        threads_text(threads),
                        ratio.median,
                        engine.title,
                        ratio.q1,
                        ratio.q3
                    ));
                }
            }
        }
    }
    for row in rows().filter(|row| is_opening(row)) {
        let id = RowId { row, threads: 1, keys };
        let Some(ours) = results.quartiles(id, OURS, Sample::millis) else { continue };
        for engine in ENGINES.iter().filter(|engine| engine.name != OURS) {
            let Some(other) = results.quartiles(id, engine.name, Sample::millis) else { continue };
            if other.median < ours.median {
                losses.push(format!(
                    "{row}: {} ms, where {} takes {} ms.",
                    figure(ours.median),
                    engine.title,
                    figure(other.median)
                ));
            }
        }
    }
    losses
}
