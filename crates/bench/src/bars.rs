//! Charts of medians with quartiles and targets, on a logarithmic axis.
//!
//! ```text
//! GET, c50 P64  ▐██████████████├─┤|    bar: median; whisker: quartiles; line: target
//!               0.5   1   2   4   8    logarithmic
//! ```
//!
//! Invariant: the chart is well-formed XML for any title.

use crate::figures::Quartiles;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// The left end of bars, right of the titles.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 790.0;
const TOP: f64 = 60.0;
const STEP: f64 = 26.0;
const BAR: f64 = 14.0;

/// The colours of bars: well, badly, neither.
pub(crate) const WELL: &str = "#2f7d5b";
pub(crate) const BADLY: &str = "#c0622d";
pub(crate) const NEITHER: &str = "#8a94a6";

/// One bar: its title, quartiles and target.
pub(crate) struct Bar {
    pub(crate) text: String,
    pub(crate) figure: Quartiles,
    pub(crate) target: Option<f64>,
    pub(crate) colour: &'static str,
}

/// The whole picture: bars on an axis from `least`, where smaller figures end, to `most` at least.
pub(crate) fn chart(title: &str, bars: &[Bar], (least, most): (f64, f64)) -> String {
    let ends = bars.iter().map(|bar| bar.figure.q3.max(bar.target.unwrap_or(least)));
    let most = ends.fold(most, f64::max) * 1.2;
    let x = |figure: f64| {
        let share = (figure.max(least) / least).ln() / (most / least).ln();
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
    let mut tick = least;
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
    let (low, high, end) = (x(bar.figure.q1), x(bar.figure.q3), x(bar.figure.median));
    let (middle, colour) = (y + BAR / 2.0, bar.colour);
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
         <path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\" \
         stroke=\"#111\" fill=\"none\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escape(&bar.text),
        end - LEFT,
        middle - 3.0,
        middle - 3.0,
        end.max(high).max(bar.target.map_or(0.0, x)) + 6.0,
        middle + 4.0,
        bar.figure.median
    );
    if let Some(target) = bar.target {
        let (aim, top, height) = (x(target), y - 3.0, BAR + 6.0);
        let _ = writeln!(
            text,
            "<path d=\"M{aim:.1} {top:.1}v{height:.1}\" stroke=\"#111\" stroke-width=\"2\"/>"
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
