//! The pictures: ratios with their targets, and rates of all engines.
//!
//! ```text
//! readrandom  Nigh    ▐██████████████├─┤    bar: median; whisker: quartiles; logarithmic
//!             LMDB    ▐███████├┤
//! ```
//!
//! Invariant: a picture is well-formed XML for any titles.

use super::targets::Verdict;
use crate::results::Quartiles;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// The left end of bars, right of the titles.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 780.0;
const TOP: f64 = 64.0;
/// Colours of bars: a target that is met, and one that isn't.
const MET: &str = "#2f7d5b";
const MISSED: &str = "#c0622d";
/// Colours of engines, in their order.
const COLOURS: [&str; 6] = ["#2f7d5b", "#b5651d", "#c9a227", "#4a6fa5", "#8e5aa8", "#7f8c8d"];

/// One bar.
pub(super) struct Bar {
    pub(super) title: String,
    pub(super) value: Quartiles,
    pub(super) label: String,
    /// The number of a colour.
    pub(super) colour: usize,
}

/// Bars that belong together.
pub(super) struct Group {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

/// A logarithmic axis from `least` up.
struct Axis {
    least: f64,
    most: f64,
    /// From one tick to the next.
    factor: f64,
    unit: &'static str,
}

impl Axis {
    fn x(&self, value: f64) -> f64 {
        let share = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        LEFT + (RIGHT - LEFT) * share
    }

    /// The lines of the axis, down to `bottom`.
    fn draw(&self, text: &mut String, bottom: f64) {
        let mut tick = self.least;
        while tick <= self.most {
            let (at, below) = (self.x(tick), bottom + 16.0);
            let name = if tick < 1000.0 {
                format!("{tick}{}", self.unit)
            } else {
                format!("{}{}", tick / 1000.0, if self.unit == " k" { " M" } else { " k" })
            };
            let _ = writeln!(
                text,
                "<path d=\"M{at:.1} {TOP}V{bottom:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\" fill=\"#666\">\
                 {name}</text>"
            );
            tick *= self.factor;
        }
    }
}

fn begin(title: &str, subtitle: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">{}</text>\n\
         <text x=\"16\" y=\"44\" fill=\"#666\">{}</text>\n",
        escaped(title),
        escaped(subtitle)
    )
}

/// A bar with its title, whisker and label; what is to be right of all is `beyond`.
fn bar(
    text: &mut String,
    axis: &Axis,
    (y, height): (f64, f64),
    bar: &Bar,
    fill: &str,
    beyond: f64,
) {
    let (low, high) = (axis.x(bar.value.q1), axis.x(bar.value.q3));
    let (end, middle) = (axis.x(bar.value.median), y + height / 2.0);
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height}\" fill=\"{fill}\"/>\
         <path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\" \
         stroke=\"#111\" fill=\"none\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escaped(&bar.title),
        end - LEFT,
        middle - 3.0,
        middle - 3.0,
        end.max(high).max(beyond) + 6.0,
        middle + 4.0,
        escaped(&bar.label)
    );
}

/// Ratios of what was reached to targets: 1 is met.
pub(super) fn targets(title: &str, verdicts: &[Verdict]) -> String {
    const STEP: f64 = 26.0;
    const HEIGHT: f64 = 14.0;
    let parts = |verdict: &Verdict| {
        let Quartiles { q1, median, q3 } = verdict.reached;
        let wanted = verdict.wanted;
        Quartiles { q1: q1 / wanted, median: median / wanted, q3: q3 / wanted }
    };
    let most = verdicts.iter().map(|verdict| parts(verdict).q3).fold(4.0, f64::max) * 1.1;
    let axis = Axis { least: 0.125, most, factor: 2.0, unit: "" };
    let bottom = TOP + STEP * verdicts.len() as f64;
    let subtitle = "reached ÷ wanted; bar: median, whisker: quartiles, line: target; logarithmic";
    let mut text = begin(title, subtitle, bottom + 32.0);
    axis.draw(&mut text, bottom);
    for (at, verdict) in verdicts.iter().enumerate() {
        let y = TOP + STEP * at as f64 + (STEP - HEIGHT) / 2.0;
        let (wanted, median) = (verdict.wanted, verdict.reached.median);
        let (title, label) = match verdict.is_rate {
            true => (
                format!("{} ÷ {wanted:.0} per second", verdict.row),
                format!("{median:.0} per second"),
            ),
            false => (
                format!("{} ÷ {wanted} × {}", verdict.row, verdict.against),
                format!("{median:.2} ×"),
            ),
        };
        let drawn = Bar { title, value: parts(verdict), label, colour: 0 };
        let fill = if verdict.is_met() { MET } else { MISSED };
        let target = axis.x(1.0);
        bar(&mut text, &axis, (y, HEIGHT), &drawn, fill, target);
        let _ = writeln!(
            text,
            "<path d=\"M{target:.1} {:.1}v{:.1}\" stroke=\"#111\" stroke-width=\"2\"/>",
            y - 3.0,
            HEIGHT + 6.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Thousands of operations per second, by groups.
pub(super) fn rates(title: &str, groups: &[Group]) -> String {
    const STEP: f64 = 14.0;
    const HEIGHT: f64 = 10.0;
    const GAP: f64 = 12.0;
    let all = || groups.iter().flat_map(|group| &group.bars);
    let most = all().map(|bar| bar.value.q3).fold(1000.0, f64::max) * 1.3;
    let axis = Axis { least: 1.0, most, factor: 10.0, unit: " k" };
    let bottom = TOP + STEP * all().count() as f64 + GAP * groups.len() as f64;
    let subtitle = "operations per second; bar: median, whisker: quartiles; logarithmic";
    let mut text = begin(title, subtitle, bottom + 32.0);
    axis.draw(&mut text, bottom);
    let mut y = TOP + GAP / 2.0;
    for group in groups {
        let middle = y + HEIGHT / 2.0 + 4.0;
        let _ = writeln!(
            text,
            "<text x=\"16\" y=\"{middle:.1}\" font-weight=\"bold\">{}</text>",
            escaped(&group.title)
        );
        for drawn in &group.bars {
            let fill = COLOURS[drawn.colour % COLOURS.len()];
            bar(&mut text, &axis, (y, HEIGHT), drawn, fill, 0.0);
            y += STEP;
        }
        y += GAP;
    }
    text.push_str("</svg>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faster is longer, a title with signs of XML does no harm, and whiskers stand at quartiles.
    #[test]
    fn a_picture_of_rates_has_a_bar_for_each_figure() {
        let bar = |title: &str, median| Bar {
            title: title.to_owned(),
            value: Quartiles { q1: median * 0.9, median, q3: median * 1.1 },
            label: format!("{median}"),
            colour: 1,
        };
        let bars = vec![bar("slow & <old>", 10.0), bar("fast", 1000.0)];
        let text = rates("R & D", &[Group { title: "reads".to_owned(), bars }]);
        assert!(text.contains("slow &amp; &lt;old&gt;") && text.contains("R &amp; D"), "{text}");
        let widths: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("fill=\"#b5651d\""))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(widths.len() == 2 && widths[0] > 0.0 && widths[1] > 2.5 * widths[0], "{widths:?}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
