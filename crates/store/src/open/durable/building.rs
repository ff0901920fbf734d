//! An arena that is being built from the log, and from the journal behind it.
//!
//! 1. It has its name when it is whole: one that a kill cut off is begun anew. The writer that has
//!    built it goes on as its writer.
//! 2. A key that stands on nothing, and that no later change healed, refuses the start.
//! 3. Keys that are over go at the end only: an expired version hides older ones until then.
//!
//! One thread at a time.

use crate::error::StoreError;
use crate::open::durable::streams_of::Stream;
use nigh_shm::{
    CheckedChange, Domain, ReplayError, StreamChange, UpkeepBudget, WriteError, Writer,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Commits between two looks after the arena's memory.
const COMMITS_PER_UPKEEP: u32 = 256;
/// Tries of a commit for which memory is on its way: some seconds.
const TRIES_MOST: u32 = 20_000;
/// Between two of them.
const TRY_STEP: Duration = Duration::from_micros(200);

/// An arena that is being built.
pub(super) struct Building {
    stream: Stream,
    writer: Writer,
    /// Keys that stand on nothing, and the change that they would stand on it with.
    dangling: HashMap<Vec<u8>, Dangling>,
    commits: u32,
    /// The index may be made for keys that are only guessed.
    guesses: bool,
}

/// A change that stands on nothing.
struct Dangling {
    lsn: u64,
    place: String,
}

impl Building {
    /// A new arena, of which nobody in the domain knows yet.
    pub(super) fn begin(stream: Stream, domain: &Arc<Domain>) -> Result<Building, StoreError> {
        let writer = Writer::build(&stream.spec, domain)?;
        let dangling = HashMap::new();
        Ok(Building { stream, writer, dangling, commits: 0, guesses: true })
    }

    /// A change whose bytes are right.
    pub(super) fn check<'a>(
        &self,
        change: &StreamChange<'a>,
    ) -> Result<CheckedChange<'a>, ReplayError> {
        self.writer.check_change(change)
    }

    /// Asks for what some changes will look at.
    pub(super) fn ask_for(&self, changes: &[CheckedChange<'_>]) {
        self.writer.prefetch_changes(changes);
    }

    /// So many of all bytes of its log were read: each of the others may have as many keys. A guess
    /// that is too high costs a part of the arena's table, a 64th of the arena at most.
    pub(super) fn expect(&mut self, read_bytes: u64, all_bytes: u64) {
        if !self.guesses {
            return;
        }
        let rest = u128::from(all_bytes.saturating_sub(read_bytes));
        let more = u128::from(self.writer.keys()) * rest / u128::from(read_bytes.max(1));
        self.writer.expect_keys(u64::try_from(more).unwrap_or(u64::MAX));
    }

    /// Does a commit again.
    pub(super) fn apply(
        &mut self,
        changes: &[StreamChange<'_>],
        place: &dyn Fn() -> String,
    ) -> Result<(), StoreError> {
        let checked = changes.iter().map(|change| self.check(change));
        let checked = checked.collect::<Result<Vec<_>, _>>();
        let checked = checked.map_err(|error| self.refused(error, place))?;
        self.apply_checked(&checked, place)
    }

    /// The same with changes that it has checked.
    pub(super) fn apply_checked(
        &mut self,
        changes: &[CheckedChange<'_>],
        place: &dyn Fn() -> String,
    ) -> Result<(), StoreError> {
        let replayed = self.replay(changes).map_err(|error| self.refused(error, place))?;
        if !replayed.is_empty() || !self.dangling.is_empty() {
            self.note_dangling(changes, &replayed, place);
        }
        self.commits += 1;
        if self.commits.is_multiple_of(COMMITS_PER_UPKEEP) {
            self.look_after();
        }
        Ok(())
    }

    /// The error of a commit that can't be done.
    pub(super) fn refused(&self, error: ReplayError, place: &dyn Fn() -> String) -> StoreError {
        StoreError::Replay {
            path: self.stream.spec.path.clone(),
            place: place(),
            is_damage: matches!(error, ReplayError::Record { .. }),
            is_denied: matches!(
                error,
                ReplayError::Write(WriteError::Denied(_) | WriteError::Busy)
            ),
            what: error.to_string(),
        }
    }

    fn replay(&mut self, changes: &[CheckedChange<'_>]) -> Result<Vec<usize>, ReplayError> {
        for _ in 0..TRIES_MOST {
            match self.writer.replay_checked(changes) {
                Ok(replayed) => return Ok(replayed.dangling),
                Err(ReplayError::Write(WriteError::Busy)) => {}
                // A smaller table than that for the guessed keys may do.
                Err(ReplayError::Write(_)) if self.guesses => {
                    self.guesses = false;
                    self.writer.expect_keys(0);
                }
                Err(error) => return Err(error),
            }
            self.look_after();
            std::thread::sleep(TRY_STEP);
        }
        Err(ReplayError::Write(WriteError::Busy))
    }

    fn look_after(&mut self) {
        self.writer.maintain(UpkeepBudget::default());
    }

    fn note_dangling(
        &mut self,
        changes: &[CheckedChange<'_>],
        stands_on_nothing: &[usize],
        place: &dyn Fn() -> String,
    ) {
        for (at, change) in changes.iter().enumerate() {
            let Some(key) = change.key() else {
                self.dangling.clear();
                continue;
            };
            self.dangling.remove(key);
            if stands_on_nothing.contains(&at) {
                let dangling = Dangling { lsn: change.lsn(), place: place() };
                self.dangling.insert(key.to_vec(), dangling);
            }
        }
    }

    /// All was done again: no key stands on nothing.
    pub(super) fn check_whole(&self) -> Result<(), StoreError> {
        match self.dangling.iter().min_by_key(|(_, it)| it.lsn) {
            None => Ok(()),
            Some((key, dangling)) => Err(StoreError::NoBase {
                key: String::from_utf8_lossy(key).into_owned(),
                place: dangling.place.clone(),
                lsn: dangling.lsn,
            }),
        }
    }

    /// The arena is whole, and gets its name. Others read it from then on, so it has its clock
    /// before: what was over stays over, though the machine's clock stepped back.
    pub(super) fn finish(
        mut self,
        last_lsn: u64,
        clock_ms: u64,
        [log_id, boot_id]: [&[u8; 16]; 2],
    ) -> Result<Writer, StoreError> {
        self.writer.end_replay(last_lsn);
        self.writer.set_log_id(log_id);
        self.writer.set_boot_id(boot_id);
        self.writer.note_time(clock_ms);
        self.writer.expect_keys(0);
        self.writer.give_name()?;
        Ok(self.writer)
    }
}
