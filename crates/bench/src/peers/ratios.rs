//! The charts of ratios to each peer, with quartiles and targets: docs/benchmarks.svg, and
//! docs/benchmarks-log.svg of the rows with a log.

use super::contest::{ResultRow, RowTarget};
use crate::bars::{self, BADLY, Bar, WELL};

/// The axis: bars of smaller ratios end at the first of these.
const AXIS: (f64, f64) = (0.25, 8.0);

/// The whole picture: a bar for each ratio that has a target.
pub(super) fn chart(title: &str, rows: &[ResultRow]) -> String {
    let mut bars = Vec::new();
    for row in rows {
        for (target, verdict) in row.targets.iter().zip(row.verdicts()) {
            if let (RowTarget::Ratio(name, least), Some(ratio)) = (target, verdict.ratio) {
                let text = format!("{} ÷ {name}", row.title);
                let colour = if verdict.met { WELL } else { BADLY };
                bars.push(Bar { text, figure: ratio, target: Some(*least), colour });
            }
        }
    }
    bars::chart(title, &bars, AXIS)
}
