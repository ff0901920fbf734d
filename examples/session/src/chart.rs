//! The picture of a run: percentiles of the latencies, and what is acknowledged around a kill.

use crate::report::{AFTER_MS, BEFORE_MS, Report};
use hdrhistogram::Histogram;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 830.0;
/// Colours of the stores, in turn.
const COLOURS: [&str; 2] = ["#2f7d5b", "#c0622d"];
const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p99.9")];
/// Height of a line of latencies.
const LINE: f64 = 17.0;
/// Upper edge, and height, of the panel of time.
const TIME_TOP: f64 = 330.0;
const TIME_HEIGHT: f64 = 180.0;

/// The whole picture.
pub(crate) fn chart(stores: &[(&str, Report)]) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 560\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">Workers without state; some are killed</text>\n"
    );
    for (at, (name, _)) in stores.iter().enumerate() {
        let (x, colour) = (RIGHT - 120.0 + 65.0 * at as f64, COLOURS[at % COLOURS.len()]);
        let _ = writeln!(text, "<text x=\"{x:.0}\" y=\"24\" fill=\"{colour}\">{name}</text>");
    }
    latencies(&mut text, stores);
    around_kills(&mut text, stores);
    text.push_str("</svg>\n");
    text
}

/// Times that a report has.
type TimesOf = fn(&Report) -> &Histogram<u64>;

/// A dot for each percentile, on a logarithmic axis.
fn latencies(text: &mut String, stores: &[(&str, Report)]) {
    let groups: [(&str, TimesOf); 2] = [
        ("update at the worker", |it| &it.update_ns),
        ("event to acknowledgement", |it| &it.whole_ns),
    ];
    let at = |times: &Histogram<u64>, percent| {
        (times.value_at_percentile(percent) as f64 / 1e3).max(0.1)
    };
    let every = || stores.iter().flat_map(|(_, it)| groups.iter().map(move |(_, of)| of(it)));
    let least = every().map(|it| at(it, 50.0)).fold(f64::MAX, f64::min) / 1.5;
    let most = every().map(|it| at(it, 99.9)).fold(1.0, f64::max) * 1.5;
    let x = |us: f64| LEFT + (RIGHT - LEFT) * (us / least).ln() / (most / least).ln();
    let (top, lines) = (60.0, groups.len() * PERCENTILES.len());
    let bottom = top + LINE * (lines as f64 + 1.0);
    let _ =
        writeln!(text, "<text x=\"16\" y=\"{:.0}\" fill=\"#666\">latency, µs</text>", top - 8.0);
    let ticks = std::iter::successors(Some(0.1f64), |tick| Some(tick * 10.0));
    for tick in ticks.skip_while(|tick| *tick < least).take_while(|tick| *tick <= most) {
        let _ = writeln!(
            text,
            "<path d=\"M{0:.1} {top}V{bottom:.0}\" stroke=\"#ddd\"/><text x=\"{0:.1}\" y=\"{1:.0}\" \
             text-anchor=\"middle\" fill=\"#666\">{tick}</text>",
            x(tick),
            bottom + 14.0
        );
    }
    for (group, (name, of)) in groups.iter().enumerate() {
        for (line, (percent, label)) in PERCENTILES.iter().enumerate() {
            let y = top + LINE * (group as f64 * 3.5 + line as f64 + 0.8);
            let label = if line == 0 { format!("{name}, {label}") } else { (*label).to_owned() };
            let _ = writeln!(
                text,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 4.0
            );
            for (store, (_, report)) in stores.iter().enumerate() {
                let us = at(of(report), *percent);
                let _ = writeln!(
                    text,
                    "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{}\"/>",
                    x(us),
                    COLOURS[store % COLOURS.len()]
                );
            }
        }
    }
}

/// A line for each store: what was acknowledged in each millisecond, the mean of all kills.
fn around_kills(text: &mut String, stores: &[(&str, Report)]) {
    let mean = |report: &Report, ms: usize| report.around[ms] as f64 / report.kills.max(1) as f64;
    let every =
        || stores.iter().flat_map(|(_, it)| (0..it.around.len()).map(move |ms| mean(it, ms)));
    let most = every().fold(1.0, f64::max) * 1.1;
    let x = |ms: f64| LEFT + (RIGHT - LEFT) * ms / (BEFORE_MS + AFTER_MS) as f64;
    let y = |count: f64| TIME_TOP + TIME_HEIGHT * (1.0 - count / most);
    let _ = writeln!(
        text,
        "<text x=\"16\" y=\"{:.0}\" fill=\"#666\">acknowledged updates in each millisecond around a \
         kill</text>",
        TIME_TOP - 12.0
    );
    for tick in 0..=4 {
        let count = most * f64::from(tick) / 4.0;
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {0:.1}H{RIGHT}\" stroke=\"#ddd\"/><text x=\"{1:.0}\" y=\"{2:.1}\" \
             text-anchor=\"end\" fill=\"#666\">{count:.0}</text>",
            y(count),
            LEFT - 8.0,
            y(count) + 4.0
        );
    }
    for ms in (0..=BEFORE_MS + AFTER_MS).step_by(20) {
        let label = match ms == BEFORE_MS {
            true => "kill".to_owned(),
            false => format!("{} ms", ms as i64 - BEFORE_MS as i64),
        };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>",
            x(ms as f64),
            TIME_TOP + TIME_HEIGHT + 18.0
        );
    }
    let kill = x(BEFORE_MS as f64);
    let (top, bottom) = (TIME_TOP, TIME_TOP + TIME_HEIGHT);
    let _ = writeln!(
        text,
        "<path d=\"M{kill:.1} {top}V{bottom}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>"
    );
    for (store, (_, report)) in stores.iter().enumerate() {
        let point = |ms: usize| format!("{:.1},{:.1}", x(ms as f64 + 0.5), y(mean(report, ms)));
        let points: Vec<String> = (0..report.around.len()).map(point).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
            points.join(" "),
            COLOURS[store % COLOURS.len()]
        );
    }
}
