//! The chart of steady overwrites: the log's bytes on the disk, and the slowest GETs, by time.
//!
//! Invariant: both panels have the same time axis, from 0 to the last sample of any contestant.

use super::churn::{Curve, Sample};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 830.0;
/// Upper edges of the panels.
const TOPS: [f64; 2] = [70.0, 330.0];
/// Height of a panel.
const HEIGHT: f64 = 200.0;
/// Colours of the contestants, in turn.
const COLOURS: [&str; 2] = ["#2f7d5b", "#c0622d"];
/// Steps of the time axis.
const TIME_STEPS: u32 = 6;

/// The whole picture.
pub(super) fn chart(curves: &[Curve]) -> String {
    let samples = || curves.iter().flat_map(|curve| &curve.samples);
    let seconds = samples().map(|sample| sample.seconds).fold(0.1, f64::max);
    let x = |seconds_in: f64| LEFT + (RIGHT - LEFT) * seconds_in / seconds;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 580\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">Steady overwrites with a log (everysec)</text>\n"
    );
    for (at, curve) in curves.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text x=\"{:.0}\" y=\"24\" fill=\"{}\">{}</text>",
            RIGHT - 120.0 + 60.0 * at as f64,
            COLOURS[at % COLOURS.len()],
            curve.name
        );
    }
    let most = samples().map(|sample| sample.disk_percent).fold(100.0, f64::max) * 1.1;
    let step = (most / 500.0).ceil() * 100.0;
    let share = |percent: f64| percent / most;
    let ticks = std::iter::successors(Some(0.0), |tick| Some(tick + step));
    panel(&mut text, TOPS[0], "disk used ÷ bytes of keys and values, in %", share, ticks, most);
    lines(&mut text, TOPS[0], curves, &x, |sample| share(sample.disk_percent));
    let least = 10.0f64;
    let most = samples().map(|sample| sample.slowest_us).fold(100.0, f64::max) * 1.2;
    let share = |us: f64| (us.max(least) / least).ln() / (most / least).ln();
    let ticks = std::iter::successors(Some(least), |tick| Some(tick * 10.0));
    panel(&mut text, TOPS[1], "slowest GET of each half second, in µs", share, ticks, most);
    lines(&mut text, TOPS[1], curves, &x, |sample| share(sample.slowest_us));
    for step in 0..=TIME_STEPS {
        let at = seconds * f64::from(step) / f64::from(TIME_STEPS);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666\">{at:.0} s</text>",
            x(at),
            TOPS[1] + HEIGHT + 18.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// The frame of a panel: title and horizontal lines at `ticks`, up to `most`.
fn panel(
    text: &mut String,
    top: f64,
    title: &str,
    share: impl Fn(f64) -> f64,
    ticks: impl Iterator<Item = f64>,
    most: f64,
) {
    let _ = writeln!(text, "<text x=\"16\" y=\"{:.0}\" fill=\"#666\">{title}</text>", top - 12.0);
    for tick in ticks.take_while(|tick| *tick <= most) {
        let y = top + HEIGHT * (1.0 - share(tick));
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{tick}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
}

/// A line for each contestant.
fn lines(
    text: &mut String,
    top: f64,
    curves: &[Curve],
    x: &impl Fn(f64) -> f64,
    share: impl Fn(&Sample) -> f64,
) {
    for (at, curve) in curves.iter().enumerate() {
        let point = |sample: &Sample| {
            format!("{:.1},{:.1}", x(sample.seconds), top + HEIGHT * (1.0 - share(sample)))
        };
        let points: Vec<String> = curve.samples.iter().map(point).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
            points.join(" "),
            COLOURS[at % COLOURS.len()]
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each contestant has a line in each panel, inside of it, whatever its figures are.
    #[test]
    fn lines_stay_in_their_panels() {
        let sample =
            |seconds, disk_percent, slowest_us| Sample { seconds, disk_percent, slowest_us };
        let curve = |name, samples| {
            let mut curve = Curve::new(name).expect("bounds");
            curve.samples = samples;
            curve
        };
        let curves = [
            curve("Nigh", vec![sample(0.5, 230.0, 90.0), sample(60.0, 8000.0, 2.0)]),
            curve("Redis", vec![sample(0.5, 0.0, 0.0), sample(61.0, 180.0, 2e6)]),
        ];
        let text = chart(&curves);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("<polyline")).collect();
        assert_eq!(lines.len(), 4, "{text}");
        for (at, line) in lines.iter().enumerate() {
            let points = line.split('"').nth(1).expect("points");
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').expect("two numbers");
                let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("one"));
                let top = TOPS[at / 2];
                assert!((LEFT..=RIGHT).contains(&x) && (top..=top + HEIGHT).contains(&y), "{line}");
            }
        }
    }
}
