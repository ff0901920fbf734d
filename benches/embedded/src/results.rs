//! The file of results: a line of JSON each, added row by row; and figures from it.
//!
//! 1. A line is never changed. Of several runs of a row the latest counts.
//! 2. A row's slices get into the file together, when the row has ended. So a run that is cut off
//!    leaves nothing of the row in which it was, and the run before counts on.
//! 3. A ratio is taken within a pair, of one run; never between two medians.

use crate::host::Footprint;
use crate::machine::Machine;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Where results are, unless somebody says.
pub(crate) const RESULTS_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/results.jsonl");

/// A line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Entry {
    Run(RunNote),
    Sample(Sample),
    Bytes(BytesNote),
}

/// What holds for all of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunNote {
    /// When it began, Unix ms; it names the run.
    pub(crate) run: u64,
    pub(crate) machine: Machine,
    pub(crate) keys: u64,
    pub(crate) pairs: u64,
    /// Of a slice, ms.
    pub(crate) millis: u64,
    /// As the program was called.
    pub(crate) command: String,
}

/// One slice of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) run: u64,
    pub(crate) row: String,
    pub(crate) engine: String,
    pub(crate) threads: u32,
    pub(crate) keys: u64,
    /// Slices of the same number go together.
    pub(crate) pair: u64,
    pub(crate) operations: u64,
    pub(crate) nanos: u64,
}

/// Bytes after a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BytesNote {
    pub(crate) run: u64,
    pub(crate) row: String,
    pub(crate) engine: String,
    pub(crate) threads: u32,
    pub(crate) keys: u64,
    pub(crate) footprint: Footprint,
}

impl Sample {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 * 1e9 / self.nanos as f64
    }

    /// Milliseconds.
    pub(crate) fn millis(&self) -> f64 {
        self.nanos as f64 / 1e6
    }
}

/// A file that results are added to.
pub(crate) struct Book {
    file: File,
    /// Lines of the row that is being measured.
    held: String,
    pub(crate) run: u64,
    /// Of this run.
    pub(crate) results: Results,
}

impl Book {
    /// Opens the file, or makes it, and notes a run's beginning.
    pub(crate) fn begin(path: &Path, note: RunNote) -> Result<Book> {
        let opened = File::options().create(true).append(true).open(path);
        let file =
            opened.with_context(|| format!("the results can't go into {}", path.display()))?;
        let (run, held, results) = (note.run, String::new(), Results::default());
        let mut book = Book { file, held, run, results };
        book.add(Entry::Run(note))?;
        Ok(book)
    }

    /// Adds an entry; a slice is held back until its row ends.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<()> {
        let line = serde_json::to_string(&entry)? + "\n";
        match entry {
            Entry::Sample(_) => self.held.push_str(&line),
            Entry::Run(_) | Entry::Bytes(_) => self.file.write_all(line.as_bytes())?,
        }
        self.results.add(entry);
        Ok(())
    }

    /// The row has ended, or the rows that were measured in turn: their slices count.
    pub(crate) fn end_row(&mut self) -> Result<()> {
        self.file.write_all(self.held.as_bytes())?;
        self.held.clear();
        Ok(())
    }
}

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) runs: Vec<RunNote>,
    samples: Vec<Sample>,
    bytes: Vec<BytesNote>,
}

/// A row: what was done, by how many threads, with how many keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowId<'a> {
    pub(crate) row: &'a str,
    pub(crate) threads: u32,
    pub(crate) keys: u64,
}

impl Results {
    /// Reads a file of results.
    pub(crate) fn read(path: &Path) -> Result<Results> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("there are no results in {}: run first", path.display()))?;
        let mut results = Results::default();
        for (at, line) in text.lines().enumerate() {
            let entry = serde_json::from_str(line)
                .with_context(|| format!("{}: line {} is no result", path.display(), at + 1))?;
            results.add(entry);
        }
        ensure!(!results.samples.is_empty(), "{} has no figures yet: run first", path.display());
        Ok(results)
    }

    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Run(note) => self.runs.push(note),
            Entry::Sample(sample) => self.samples.push(sample),
            Entry::Bytes(note) => self.bytes.push(note),
        }
    }

    /// The latest run's slices of one engine, in order of their pairs.
    pub(crate) fn slices(&self, id: RowId<'_>, engine: &str) -> Vec<&Sample> {
        let is_of = |sample: &&Sample| {
            sample.row == id.row && sample.threads == id.threads && sample.keys == id.keys
        };
        let Some(run) = self.samples.iter().filter(is_of).map(|sample| sample.run).max() else {
            return Vec::new();
        };
        let is_ours = |sample: &&Sample| sample.run == run && sample.engine == engine;
        let mut slices: Vec<&Sample> = self.samples.iter().filter(is_of).filter(is_ours).collect();
        slices.sort_by_key(|sample| sample.pair);
        slices
    }

    /// Quartiles of a figure of the slices; `None` if there are none.
    pub(crate) fn quartiles(
        &self,
        id: RowId<'_>,
        engine: &str,
        figure: fn(&Sample) -> f64,
    ) -> Option<Quartiles> {
        Quartiles::of(self.slices(id, engine).into_iter().map(figure).collect())
    }

    /// Quartiles of the ratios of rates, pair by pair; of pairs that one run has.
    pub(crate) fn ratios(
        &self,
        (id, engine): (RowId<'_>, &str),
        (other_id, other): (RowId<'_>, &str),
    ) -> Option<Quartiles> {
        let others = self.slices(other_id, other);
        let ratio = |sample: &Sample| {
            let same = |other: &&&Sample| other.pair == sample.pair && other.run == sample.run;
            Some(sample.rate() / others.iter().find(same)?.rate())
        };
        Quartiles::of(self.slices(id, engine).into_iter().filter_map(ratio).collect())
    }

    /// The latest bytes after a load.
    pub(crate) fn footprint(&self, id: RowId<'_>, engine: &str) -> Option<Footprint> {
        let is_of = |note: &&BytesNote| {
            let same = note.row == id.row && note.threads == id.threads && note.keys == id.keys;
            same && note.engine == engine
        };
        Some(self.bytes.iter().rfind(is_of)?.footprint)
    }

    /// The numbers of keys of a row's runs, in order.
    pub(crate) fn keys_of(&self, is_row: impl Fn(&str) -> bool) -> Vec<u64> {
        let mut keys: Vec<u64> =
            self.samples.iter().filter(|sample| is_row(&sample.row)).map(|s| s.keys).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The names of rows with so many keys.
    pub(crate) fn rows_of(&self, keys: u64) -> Vec<String> {
        let is_of = |sample: &&Sample| sample.keys == keys;
        let mut rows: Vec<String> =
            self.samples.iter().filter(is_of).map(|sample| sample.row.clone()).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The numbers of threads of a row's runs, in order.
    pub(crate) fn threads_of(&self, row: &str, keys: u64) -> Vec<u32> {
        let is_of = |sample: &&Sample| sample.row == row && sample.keys == keys;
        let mut threads: Vec<u32> =
            self.samples.iter().filter(is_of).map(|sample| sample.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// The run that gave a row's latest slices.
    pub(crate) fn run_of(&self, id: RowId<'_>, engine: &str) -> Option<&RunNote> {
        let run = self.slices(id, engine).first()?.run;
        self.runs.iter().find(|note| note.run == run)
    }
}

/// The quartiles of a sample, by linear interpolation between order statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quartiles {
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
}

impl Quartiles {
    /// Of figures; `None` if there are none.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Quartiles> {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().checked_sub(1)?;
        let at = |quarter: usize| {
            let (below, part) = (last * quarter / 4, (last * quarter % 4) as f64 / 4.0);
            figures[below] + (figures[(below + 1).min(last)] - figures[below]) * part
        };
        Some(Quartiles { q1: at(1), median: at(2), q3: at(3) })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A slice of a second.
    pub(crate) fn slice(run: u64, pair: u64, engine: &str, operations: u64) -> Entry {
        let (row, engine) = ("readrandom".to_owned(), engine.to_owned());
        let nanos = 1_000_000_000;
        Entry::Sample(Sample { run, row, engine, threads: 1, keys: 10, pair, operations, nanos })
    }

    pub(crate) const READS: RowId<'static> = RowId { row: "readrandom", threads: 1, keys: 10 };

    /// Quartiles of small samples are interpolated as by R's default.
    #[test]
    fn quartiles_interpolate() {
        let five = Quartiles::of(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(five, Some(Quartiles { q1: 2.0, median: 3.0, q3: 4.0 }));
        let four = Quartiles::of(vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(four, Some(Quartiles { q1: 1.75, median: 2.5, q3: 3.25 }));
        assert_eq!(Quartiles::of(Vec::new()), None);
    }

    /// A machine that slows down doesn't change ratios, since a ratio is taken within a pair; and
    /// an older run of the same row no longer counts.
    #[test]
    fn ratios_are_of_pairs_of_the_latest_run() {
        let mut results = Results::default();
        let runs = [(1, 1, [900, 100]), (2, 2, [200, 100]), (2, 1, [100, 50]), (2, 3, [20, 10])];
        for (run, pair, rates) in runs {
            results.add(slice(run, pair, "a", rates[0]));
            results.add(slice(run, pair, "b", rates[1]));
        }
        let ratios = results.ratios((READS, "a"), (READS, "b"));
        assert_eq!(ratios, Some(Quartiles { q1: 2.0, median: 2.0, q3: 2.0 }));
        let rates = results.quartiles(READS, "a", Sample::rate).expect("rates");
        assert_eq!((rates.q1, rates.median, rates.q3), (60.0, 100.0, 150.0));
        assert_eq!(results.ratios((READS, "a"), (READS, "c")), None);
    }

    /// A run that was interrupted within a row leaves no slice of it: the whole run before counts.
    #[test]
    fn a_row_that_did_not_end_counts_for_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("results");
        for (run, pairs) in [(1, 3), (2, 1)] {
            let machine = Machine::look(dir.path());
            let command = String::new();
            let note = RunNote { run, machine, keys: 10, pairs: 3, millis: 1, command };
            let mut book = Book::begin(&path, note).expect("a book");
            for pair in 0..pairs {
                book.add(slice(run, pair, "a", run)).expect("a line");
            }
            assert_eq!(book.results.slices(READS, "a").len(), usize::try_from(pairs).expect("few"));
            if pairs == 3 {
                book.end_row().expect("a line");
            }
        }
        let results = Results::read(&path).expect("results");
        assert_eq!((results.runs.len(), results.slices(READS, "a").len()), (2, 3));
        assert_eq!(results.run_of(READS, "a").map(|note| note.run), Some(1));
    }

    /// What a book was told stands in the file, after what stood there.
    #[test]
    fn a_book_is_added_to() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("results");
        for run in [1, 2] {
            let machine = Machine::look(dir.path());
            let command = String::new();
            let note = RunNote { run, machine, keys: 10, pairs: 1, millis: 1, command };
            let mut book = Book::begin(&path, note).expect("a book");
            book.add(slice(run, 0, "a", run)).expect("a line");
            book.end_row().expect("a line");
        }
        let results = Results::read(&path).expect("results");
        assert_eq!(results.runs.len(), 2);
        assert_eq!(results.slices(READS, "a").len(), 1);
        assert_eq!(results.run_of(READS, "a").map(|note| note.run), Some(2));
        std::fs::write(&path, "{}\n").expect("a file");
        let error = Results::read(&path).expect_err("that is no result");
        assert!(error.to_string().contains("line 1 is no result"), "{error}");
    }
}
