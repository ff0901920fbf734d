//! The charts of ratios to each peer, with quartiles and targets: docs/benchmarks.svg, and
//! docs/benchmarks-log.svg of the rows with a log.
//!
//! ```text
//! GET, c50 P64  ▐██████████████├─┤|    bar: median; whisker: quartiles; line: target
//!               0.5   1   2   4   8    logarithmic
//! ```
//!
//! Invariant: the chart is well-formed XML for any title.

use super::contest::ResultRow;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// The left end of bars, right of the titles.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 790.0;
const TOP: f64 = 60.0;
const STEP: f64 = 26.0;
const BAR: f64 = 14.0;
/// Least ratio on the axis; bars of smaller ratios end there.
const LEAST: f64 = 0.25;

/// One bar: its title, quartiles and target.
struct Bar {
    text: String,
    ratio: crate::figures::Quartiles,
    target: f64,
    met: bool,
}

/// The whole picture.
pub(super) fn chart(title: &str, rows: &[ResultRow]) -> String {
    let bars = bars(rows);
    let most = bars.iter().map(|bar| bar.ratio.q3.max(bar.target)).fold(8.0, f64::max) * 1.2;
    let x = |ratio: f64| {
        let share = (ratio.max(LEAST) / LEAST).ln() / (most / LEAST).ln();
        LEFT + (RIGHT - LEFT) * share
    };
    let bottom = TOP + STEP * bars.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">{}</text>\n\
         <text x=\"16\" y=\"42\" fill=\"#666\">bar: median, whisker: quartiles, \
         vertical line: target; logarithmic</text>\n",
        bottom + 40.0,
        escape(title)
    );
    let mut tick = LEAST;
    while tick <= most {
        let at = x(tick);
        let _ = writeln!(
            text,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666\">{tick}</text>",
            bottom + 16.0
        );
        tick *= 2.0;
    }
    for (at, bar) in bars.iter().enumerate() {
        draw(&mut text, bar, TOP + STEP * at as f64 + (STEP - BAR) / 2.0, &x);
    }
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, bar: &Bar, y: f64, x: &impl Fn(f64) -> f64) {
    let (low, high, end, aim) =
        (x(bar.ratio.q1), x(bar.ratio.q3), x(bar.ratio.median), x(bar.target));
    let middle = y + BAR / 2.0;
    let colour = if bar.met { "#2f7d5b" } else { "#c0622d" };
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
         <path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\" \
         stroke=\"#111\" fill=\"none\"/>\
         <path d=\"M{aim:.1} {:.1}v{:.1}\" stroke=\"#111\" stroke-width=\"2\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escape(&bar.text),
        end - LEFT,
        middle - 3.0,
        middle - 3.0,
        y - 3.0,
        BAR + 6.0,
        end.max(high).max(aim) + 6.0,
        middle + 4.0,
        bar.ratio.median
    );
}

/// A bar for each ratio that has a target.
fn bars(rows: &[ResultRow]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for row in rows {
        for (target, verdict) in row.targets.iter().zip(row.verdicts()) {
            if let (super::contest::RowTarget::Ratio(name, least), Some(ratio)) =
                (target, verdict.ratio)
            {
                let text = format!("{} ÷ {name}", row.title);
                bars.push(Bar { text, ratio, target: *least, met: verdict.met });
            }
        }
    }
    bars
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
