//! What is measured: a row each, with its unit, what is wanted, and what DAL's paper reports.
//!
//! Invariant: a helper's JSON names a row by [`RowSpec::name`].

use crate::report::thousands;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Row {
    ReadP50,
    ReadP99,
    Reads,
    KeysTogether,
    WriteP50,
    WriteP99,
    RestedWriteP50,
    RestedWriteP99,
    WritesTogether,
    Beside,
}

/// A row of the table.
pub(super) struct RowSpec {
    pub(super) row: Row,
    /// In JSON.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What exactly is measured.
    pub(super) about: &'static str,
    /// Whether it is a time in microseconds, of which less is better; else it is a rate per second.
    pub(super) is_time: bool,
    /// Of a local client of Nigh.
    pub(super) wanted: Option<f64>,
    /// Of the paper on DAL (HotCloud'17): 1 M keys, values of 100 bytes, its own machine.
    pub(super) dal: Option<f64>,
}

const fn row(
    row: Row,
    name: &'static str,
    title: &'static str,
    about: &'static str,
    (wanted, dal): (Option<f64>, Option<f64>),
) -> RowSpec {
    let is_time = wanted_is_time(row);
    RowSpec { row, name, title, about, is_time, wanted, dal }
}

const fn wanted_is_time(row: Row) -> bool {
    !matches!(row, Row::Reads | Row::KeysTogether | Row::WritesTogether | Row::Beside)
}

/// All rows, in the table's order.
pub(super) const ROWS: [RowSpec; 10] = [
    row(
        Row::ReadP50,
        "read_p50_us",
        "read, p50",
        "one key, chosen at random; each call is timed",
        (Some(0.40), Some(0.7)),
    ),
    row(Row::ReadP99, "read_p99_us", "read, p99", "the same calls", (Some(0.80), Some(1.1))),
    row(
        Row::Reads,
        "reads_per_s",
        "reads/s",
        "the same, one after the other, by one client on one core",
        (Some(2.5e6), None),
    ),
    row(
        Row::KeysTogether,
        "keys_per_s",
        "keys/s by multi-gets of 16",
        "16 random keys by one call: `multi_get`, MGET, `get` with 16 keys, a transaction",
        (Some(8e6), None),
    ),
    row(
        Row::WriteP50,
        "write_p50_us",
        "write, p50",
        "a new value for a random key; the next one follows at once, so the server doesn't sleep",
        (Some(0.9), Some(1.1)),
    ),
    row(Row::WriteP99, "write_p99_us", "write, p99", "the same calls", (Some(1.7), Some(1.7))),
    row(
        Row::RestedWriteP50,
        "rested_write_p50_us",
        "write to a sleeping server, p50",
        "the same, 500 us after the last one: the server sleeps, and has to be woken",
        (None, None),
    ),
    row(
        Row::RestedWriteP99,
        "rested_write_p99_us",
        "write to a sleeping server, p99",
        "the same calls",
        (None, None),
    ),
    row(
        Row::WritesTogether,
        "piped_writes_per_s",
        "pipelined writes/s",
        "1,024 writes of random keys are sent, then their replies are awaited (memcached: 256; \
         Node.js: 100 Promises)",
        (Some(1.6e6), Some(1.6e6)),
    ),
    row(
        Row::Beside,
        "beside_per_s",
        "written meanwhile/s",
        "what another client writes during the reads, on the server's core",
        (None, None),
    ),
];

/// The row of a name in JSON.
pub(super) fn row_named(name: &str) -> Option<Row> {
    ROWS.iter().find(|spec| spec.name == name).map(|spec| spec.row)
}

impl RowSpec {
    /// A figure with its unit.
    pub(super) fn shown(&self, figure: f64) -> String {
        match self.is_time {
            true if figure < 9.995 => format!("{figure:.2} us"),
            true => format!("{figure:.1} us"),
            false if figure < 1e6 => thousands(figure),
            false => format!("{:.2} M", figure / 1e6),
        }
    }

    /// How many times as good `figure` is as `other`.
    pub(super) fn ratio(&self, figure: f64, other: f64) -> f64 {
        if self.is_time { other / figure } else { figure / other }
    }
}

/// Figures of some rows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Figures([Option<f64>; ROWS.len()]);

impl Figures {
    pub(super) fn put(&mut self, row: Row, figure: f64) {
        self.0[row as usize] = Some(figure);
    }

    pub(super) fn get(&self, row: Row) -> Option<f64> {
        self.0[row as usize]
    }

    /// Adds those of other rows.
    pub(super) fn add(&mut self, other: &Figures) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.or(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row's figure lies where the row says; each name is of one row.
    #[test]
    fn rows_and_figures_agree() {
        let mut figures = Figures::default();
        for (at, spec) in ROWS.iter().enumerate() {
            assert_eq!(spec.row as usize, at);
            assert_eq!(row_named(spec.name), Some(spec.row));
            figures.put(spec.row, at as f64);
        }
        assert!(ROWS.iter().all(|spec| figures.get(spec.row) == Some(spec.row as usize as f64)));
        assert_eq!(row_named("nothing"), None);
        let times = &ROWS[0];
        assert_eq!((times.shown(0.4), times.shown(12.345)), ("0.40 us".into(), "12.3 us".into()));
        assert!((times.ratio(0.5, 1.0) - 2.0).abs() < 1e-9, "half the time is twice as good");
        assert_eq!(
            (ROWS[2].shown(2.5e6), ROWS[2].shown(45_000.4)),
            ("2.50 M".into(), "45,000".into())
        );
    }
}
