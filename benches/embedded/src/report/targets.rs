//! What Nigh wants to reach, and what it reached.

use crate::engines::OURS;
use crate::results::{Quartiles, Results, RowId, Sample};
use crate::workloads::{FILL_RANDOM, FILL_SYNC, GROUP_WRITERS, OVERWRITE, READ_RANDOM};

/// A target is met if the lower quartile reaches this part of it: machines drift.
const REACHED: f64 = 0.95;

/// What is compared with what.
enum Against {
    /// The same row of another engine.
    Engine(&'static str, &'static str),
    /// Nigh's own row with one thread.
    OwnOneThread,
    /// A number of operations per second.
    Rate,
}

/// A target that was measured.
pub(super) struct Verdict {
    pub(super) row: String,
    pub(super) against: String,
    pub(super) wanted: f64,
    pub(super) reached: Quartiles,
    /// Whether the figures are operations per second; else ratios.
    pub(super) is_rate: bool,
}

impl Verdict {
    pub(super) fn is_met(&self) -> bool {
        self.reached.q1 >= REACHED * self.wanted
    }
}

/// The targets that figures of so many keys tell of.
pub(super) fn verdicts(results: &Results, keys: u64) -> Vec<Verdict> {
    let mut wanted = Vec::new();
    for row in [FILL_RANDOM, OVERWRITE] {
        for threads in [1, 2] {
            wanted.push((row, threads, Against::Engine("lmdb", "LMDB"), 2.0));
            wanted.push((row, threads, Against::Engine("leveldb", "LevelDB"), 3.0));
        }
    }
    wanted.push((READ_RANDOM, 1, Against::Engine("lmdb", "LMDB"), 1.5));
    wanted.push((READ_RANDOM, 2, Against::OwnOneThread, 1.6));
    wanted.push((FILL_SYNC, 1, Against::Engine("leveldb", "LevelDB"), 1.2));
    wanted.push((FILL_SYNC, GROUP_WRITERS, Against::Rate, 150_000.0));
    let judge = |(row, threads, against, wanted)| {
        let id = RowId { row, threads, keys };
        let is_rate = matches!(against, Against::Rate);
        let (against, reached) = match against {
            Against::Engine(name, title) => {
                (title.to_owned(), results.ratios((id, OURS), (id, name)))
            }
            Against::OwnOneThread => {
                let one = RowId { threads: 1, ..id };
                ("its own with 1 thread".to_owned(), results.ratios((id, OURS), (one, OURS)))
            }
            Against::Rate => ("per second".to_owned(), results.quartiles(id, OURS, Sample::rate)),
        };
        let row = format!("{row}, {}", threads_text(threads));
        Some(Verdict { row, against, wanted, reached: reached?, is_rate })
    };
    wanted.into_iter().filter_map(judge).collect()
}

/// "1 thread", "2 threads".
pub(super) fn threads_text(threads: u32) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lower quartile within five hundredths of the target meets it; a median above it doesn't
    /// help a lower quartile that is further below.
    #[test]
    fn the_lower_quartile_decides() {
        let verdict = |q1, median| Verdict {
            row: String::new(),
            against: String::new(),
            wanted: 2.0,
            reached: Quartiles { q1, median, q3: 9.0 },
            is_rate: false,
        };
        assert!(verdict(1.91, 1.95).is_met());
        assert!(!verdict(1.89, 4.0).is_met());
    }
}
