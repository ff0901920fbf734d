//! Building arenas from the log, and from the journal behind it.
//!
//! 1. An arena has its name when it is whole: one that a kill cut off is begun anew.
//! 2. A key that stands on nothing, and that no later change healed, refuses the start.
//! 3. Keys that are over go at the end only: an expired version hides older ones until then.
//!
//! One thread for each chain.

use crate::error::StoreError;
use crate::open::durable::log_options::ReplayProgress;
use crate::open::durable::streams_of::Stream;
use nigh_log::{FramedChange, LogRecovery, ReplayedCommit, Storage};
use nigh_shm::{
    Domain, Effect, Participant, ReplayError, StreamChange, UpkeepBudget, WriteError, Writer,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Commits between two looks after the arena's memory.
const COMMITS_PER_UPKEEP: u32 = 256;
/// Changes whose cache misses overlap: their keys are asked for together.
const CHANGES_ASKED: usize = 32;
/// Tries of a commit for which memory is on its way: some seconds.
const TRIES_MOST: u32 = 20_000;
/// Between two of them.
const TRY_STEP: Duration = Duration::from_micros(200);

/// An arena that is being built.
pub(super) struct Building {
    stream: Stream,
    writer: Writer,
    participant: Participant,
    /// Keys that stand on nothing, and the change that they would stand on it with.
    dangling: HashMap<Vec<u8>, Dangling>,
    commits: u32,
}

/// A change that stands on nothing.
struct Dangling {
    lsn: u64,
    place: String,
}

impl Building {
    pub(super) fn begin(stream: Stream) -> Result<Building, StoreError> {
        // Of its own: nobody else looks at it before it is adopted.
        let domain = Domain::new(1);
        let writer = Writer::build(&stream.spec, &domain)?;
        let participant = domain.join();
        Ok(Building { stream, writer, participant, dangling: HashMap::new(), commits: 0 })
    }

    /// Does a commit again.
    pub(super) fn apply(
        &mut self,
        changes: &[StreamChange<'_>],
        place: &dyn Fn() -> String,
    ) -> Result<(), StoreError> {
        let replayed = self.replay(changes);
        let replayed = replayed.map_err(|error| StoreError::Replay {
            path: self.stream.spec.path.clone(),
            place: place(),
            is_damage: matches!(error, ReplayError::Record { .. }),
            what: error.to_string(),
        })?;
        if !replayed.is_empty() || !self.dangling.is_empty() {
            self.note_dangling(changes, &replayed, place);
        }
        self.commits += 1;
        if self.commits.is_multiple_of(COMMITS_PER_UPKEEP) {
            self.look_after();
        }
        Ok(())
    }

    fn replay(&mut self, changes: &[StreamChange<'_>]) -> Result<Vec<usize>, ReplayError> {
        for _ in 0..TRIES_MOST {
            match self.writer.replay(&self.participant.pin(), changes) {
                Ok(replayed) => return Ok(replayed.dangling),
                Err(ReplayError::Write(WriteError::Busy)) => {}
                Err(error) => return Err(error),
            }
            self.look_after();
            std::thread::sleep(TRY_STEP);
        }
        Err(ReplayError::Write(WriteError::Busy))
    }

    fn look_after(&mut self) {
        self.participant.quiescent();
        self.writer.maintain(UpkeepBudget::default());
    }

    fn note_dangling(
        &mut self,
        changes: &[StreamChange<'_>],
        stands_on_nothing: &[usize],
        place: &dyn Fn() -> String,
    ) {
        for (at, change) in changes.iter().enumerate() {
            if change.effect == Effect::Clear {
                self.dangling.clear();
            } else if let Ok(Some(key)) = change.key() {
                self.dangling.remove(key);
                if stands_on_nothing.contains(&at) {
                    let dangling = Dangling { lsn: change.lsn, place: place() };
                    self.dangling.insert(key.to_vec(), dangling);
                }
            }
        }
    }

    /// All was done again: the arena is whole, and gets its name.
    pub(super) fn finish(
        mut self,
        last_lsn: u64,
        [log_id, boot_id]: [&[u8; 16]; 2],
    ) -> Result<(), StoreError> {
        if let Some((key, dangling)) = self.dangling.iter().min_by_key(|(_, it)| it.lsn) {
            return Err(StoreError::NoBase {
                key: String::from_utf8_lossy(key).into_owned(),
                place: dangling.place.clone(),
                lsn: dangling.lsn,
            });
        }
        self.writer.end_replay(last_lsn);
        self.writer.set_log_id(log_id);
        self.writer.set_boot_id(boot_id);
        Ok(self.writer.give_name()?)
    }
}

/// Builds the arenas of a chain's streams, as far as the log goes.
pub(super) fn replay_chain<S: Storage>(
    chain: &LogRecovery<S>,
    streams: Vec<Stream>,
    progress: &(dyn Fn(ReplayProgress) + Sync),
    (read, all_bytes): (&AtomicU64, u64),
) -> Result<BTreeMap<u32, Building>, StoreError> {
    let mut building = BTreeMap::new();
    for stream in streams {
        building.insert(stream.number, Building::begin(stream)?);
    }
    let mut refused = None;
    let mut changes = Vec::new();
    // Changes that have been asked for, and whose turn is still to come.
    let mut asked = 0;
    let mut each = |commit: &ReplayedCommit<'_>| {
        let Some(first) = commit.changes.first() else { return Ok(()) };
        if asked == 0 {
            asked = ask_for(&building, commit);
        }
        asked = asked.saturating_sub(commit.changes.len());
        let Some(arena) = building.get_mut(&first.header.stream) else { return Ok(()) };
        // The vector's memory is used again: its elements are of this commit only.
        let mut of_commit = std::mem::take(&mut changes);
        of_commit.extend(commit.changes.iter().map(change_of));
        let done = arena.apply(&of_commit, &|| format!("{} of its chain", commit.at));
        changes = recycled(of_commit);
        done.map_err(|error| {
            let text = error.to_string();
            refused = Some(error);
            text
        })
    };
    let mut before = 0;
    let replayed = chain.replay(&mut each, &mut |bytes| {
        let read_bytes = read.fetch_add(bytes - before, Relaxed) + bytes - before;
        before = bytes;
        progress(ReplayProgress { read_bytes, all_bytes });
    });
    match (refused, replayed) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(error.into()),
        (None, Ok(())) => Ok(building),
    }
}

/// A change as an arena takes it.
fn change_of<'a>(change: &FramedChange<'a>) -> StreamChange<'a> {
    StreamChange {
        lsn: change.header.lsn,
        effect: Effect::of_byte(change.header.kind.byte()).expect("as in the journal"),
        payload: change.payload,
        rest: &[],
    }
}

/// Asks for what a commit, and those behind it, will look at. Returns how many changes that are.
fn ask_for(building: &BTreeMap<u32, Building>, commit: &ReplayedCommit<'_>) -> usize {
    let soon = || commit.changes.iter().chain(commit.behind).take(CHANGES_ASKED);
    let mut hashes = [None; CHANGES_ASKED];
    for (change, hash) in soon().zip(&mut hashes) {
        let arena = building.get(&change.header.stream);
        *hash = arena.and_then(|arena| arena.writer.prefetch_change(&change_of(change)));
    }
    for (change, hash) in soon().zip(hashes) {
        if let (Some(arena), Some(hash)) = (building.get(&change.header.stream), hash) {
            arena.writer.prefetch_changed(hash);
        }
    }
    soon().count()
}

/// An empty vector with the memory of this one.
fn recycled<'b>(mut changes: Vec<StreamChange<'_>>) -> Vec<StreamChange<'b>> {
    changes.clear();
    changes.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// Which arenas of a start are built, by shard of the chains.
pub(super) fn by_chain(streams: Vec<Stream>, chains: usize) -> Vec<Vec<Stream>> {
    let mut all: Vec<Vec<Stream>> = (0..chains).map(|_| Vec::new()).collect();
    for stream in streams {
        let shard = stream.shard(chains);
        all[shard].push(stream);
    }
    all
}
