//! Three panels over one axis of time: throughput of both arenas, memory, longest step.

use std::fmt::Write;

/// Left and right border of the panels, pixels.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 820.0;
/// Height of a panel, and distance of two panels' tops, pixels.
const PANEL: f64 = 130.0;
const STRIDE: f64 = 190.0;
/// Top of the first panel, pixels.
const TOP: f64 = 84.0;

/// A line, or a limit, in a panel.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) color: &'static str,
    pub(crate) dashed: bool,
    pub(crate) values: Vec<f64>,
}

/// One panel.
pub(crate) struct Panel {
    /// What is shown, and its unit.
    pub(crate) label: &'static str,
    pub(crate) series: Vec<Series>,
}

/// A round number of which four reach `most`.
fn step_for(most: f64) -> f64 {
    let rough = (most / 4.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(10.0 * power)
}

fn panel(out: &mut String, n: usize, panel: &Panel, times_s: &[f64]) {
    let top = TOP + STRIDE * u32::try_from(n).map_or(0.0, f64::from);
    let bottom = top + PANEL;
    let end = times_s.last().copied().unwrap_or(1.0);
    let most = panel.series.iter().flat_map(|s| &s.values).fold(0.0, |a: f64, b| a.max(*b));
    let step = step_for(most * 1.02);
    let y = |v: f64| bottom - v / (4.0 * step) * PANEL;
    let x = |t: f64| LEFT + t / end * (RIGHT - LEFT);
    let _ = writeln!(
        out,
        r#"<text x="16" y="{:.0}" font-weight="bold">{}</text>"#,
        top - 12.0,
        panel.label
    );
    for i in 0..=4 {
        let (v, at) = (step * f64::from(i), y(step * f64::from(i)));
        let _ = writeln!(
            out,
            r##"<path d="M{LEFT} {at:.1}H{RIGHT}" stroke="#ddd"/><text x="{:.0}" y="{:.1}" text-anchor="end" fill="#555">{}</text>"##,
            LEFT - 8.0,
            at + 4.0,
            (v * 1000.0).round() / 1000.0,
        );
    }
    let tick = step_for(end);
    let mut t = 0.0;
    while t <= end * 1.001 {
        let _ = writeln!(
            out,
            r##"<path d="M{0:.1} {bottom}v5" stroke="#888"/><text x="{0:.1}" y="{1:.0}" text-anchor="middle" fill="#555">{t}</text>"##,
            x(t),
            bottom + 18.0,
        );
        t += tick;
    }
    let mut legend = RIGHT;
    for s in panel.series.iter().rev() {
        let points: Vec<String> = times_s
            .iter()
            .zip(&s.values)
            .map(|(t, v)| format!("{:.1},{:.1}", x(*t), y(*v)))
            .collect();
        let dash = if s.dashed { r#" stroke-dasharray="5 4""# } else { "" };
        let _ = writeln!(
            out,
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="1.6"{dash}/>"#,
            points.join(" "),
            s.color,
        );
        let _ = writeln!(
            out,
            r#"<text x="{legend:.0}" y="{:.0}" text-anchor="end" fill="{}">{}</text>"#,
            top - 12.0,
            s.color,
            s.name,
        );
        legend -= 7.0 * u32::try_from(s.name.len()).map_or(0.0, f64::from) + 18.0;
    }
}

/// The picture. Each series has a value for each time.
pub(crate) fn svg(title: &str, note: &str, times_s: &[f64], panels: &[Panel]) -> String {
    let height = TOP + STRIDE * u32::try_from(panels.len()).map_or(0.0, f64::from) - 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 840 {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">{title}</text>\n\
         <text x=\"16\" y=\"42\" fill=\"#555\">{note}</text>\n"
    );
    for (n, one) in panels.iter().enumerate() {
        panel(&mut out, n, one, times_s);
    }
    let _ = writeln!(
        out,
        r##"<text x="{:.0}" y="{:.0}" text-anchor="middle" fill="#555">wall time of the run, seconds</text></svg>"##,
        f64::midpoint(LEFT, RIGHT),
        height - 8.0,
    );
    out
}
