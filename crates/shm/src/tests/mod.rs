//! Stories about whole arenas, told through the public API. Each opens its own file in /dev/shm.

#![expect(clippy::cast_possible_truncation, reason = "values are made of counters")]

mod adopted;
mod agree;
mod alike;
mod churn;
mod cleaning;
mod commit_steps;
mod commits;
mod crash;
mod damage;
mod deaths;
mod denied;
mod edition1_kept;
mod foreign_arenas;
mod foreign_scan;
mod full;
mod growing;
mod held;
mod ids;
mod in_place;
mod index_copies;
mod kept;
mod left;
mod model;
mod models;
mod moments;
mod mounts;
mod outside;
mod outside_adoption;
mod outside_counts;
mod outside_process;
mod parts;
mod readers;
mod replayed;
mod room;
mod sparse;
mod standing;
mod stepped;
mod stories;
mod sums;
mod table_bounds;
mod tables;
mod telling;
mod together;
mod told;
mod verified;

use crate::{ArenaSpec, Domain, Participant, Reader, UpkeepBudget, Writer};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Turns in which something is done that end by themselves, and more.
const TURNS_MAX: u32 = 100_000;

/// Tells the other threads of a story to stop when its thread ends, also by a failure: else they
/// went on for ever.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory in tmpfs that vanishes with the test.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("nigh-shm-test-")
        .tempdir_in("/dev/shm")
        .expect("a tmpfs directory")
}

/// The writer has counted what a walk over its arena counts. (A run that was extended has room that
/// the walk doesn't see.)
pub(crate) fn assert_counted(a: &Arena) {
    let (stats, report) = (a.writer.stats(), crate::verify(&a.spec.path).expect("an arena"));
    let counted = (stats.keys, stats.expires, stats.used_bytes);
    assert_eq!(counted, (report.keys, report.expires, report.live_bytes));
}

/// An arena, its readers and one participant.
pub(crate) struct Arena {
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    pub(crate) me: Participant,
    pub(crate) domain: Arc<Domain>,
    pub(crate) spec: ArenaSpec,
    /// What a turn's upkeep may do, and the time that it is told.
    pub(crate) budget: UpkeepBudget,
}

pub(crate) fn spec(path: PathBuf, capacity_bytes: u64) -> ArenaSpec {
    ArenaSpec {
        path,
        tenant: "test".into(),
        partition: 0,
        partitions: 1,
        capacity_bytes,
        // Given, so that what fits in doesn't hang on it: near its limit an index may want to grow
        // at one key more or less, and memory for that may be there or not.
        seed: Some(1),
    }
}

impl Arena {
    /// Any number of keys may have one hash, as keys of neighbouring hashes may fill the same
    /// lines: `alike.rs` has the stories of the limit.
    pub(crate) fn of(mut writer: Writer, domain: Arc<Domain>, spec: ArenaSpec) -> Arena {
        writer.alike_max = usize::MAX;
        let (reader, me) = (writer.reader(), domain.join());
        Arena { writer, reader, me, domain, spec, budget: UpkeepBudget::default() }
    }

    pub(crate) fn create(spec: &ArenaSpec) -> Arena {
        let domain = Domain::new(4);
        let writer = Writer::create(spec, &domain).expect("an arena");
        Arena::of(writer, domain, spec.clone())
    }

    pub(crate) fn adopt(spec: &ArenaSpec) -> (Arena, crate::Adoption) {
        let domain = Domain::new(4);
        let (writer, adoption) =
            Writer::adopt(spec, &domain).expect("an arena that can be adopted");
        (Arena::of(writer, domain, spec.clone()), adoption)
    }

    /// Closes it and adopts it again.
    pub(crate) fn again(self) -> (Arena, crate::Adoption) {
        let spec = self.spec.clone();
        drop(self);
        Arena::adopt(&spec)
    }

    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: u64,
    ) -> Result<(), crate::WriteError> {
        let hash = self.writer.hash(key);
        self.writer.put(&self.me.pin(), hash, key, &[value], expiry)
    }

    /// Puts; turns as long as memory is coming back.
    pub(crate) fn put_soon(&mut self, key: &[u8], value: &[u8]) -> Result<(), crate::WriteError> {
        self.soon(|a| a.put(key, value, 0))
    }

    /// Tries a write; turns as long as memory is coming back. What other threads take for that
    /// doesn't count.
    pub(crate) fn soon<T>(
        &mut self,
        mut write: impl FnMut(&mut Arena) -> Result<T, crate::WriteError>,
    ) -> Result<T, crate::WriteError> {
        let mut alone = 0;
        while alone < TURNS_MAX {
            match write(self) {
                Err(crate::WriteError::Busy) => {
                    alone += u32::from(!self.turn().waiting);
                    std::thread::yield_now();
                }
                other => return other,
            }
        }
        panic!("memory never comes back: {:?}", self.writer.stats());
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let hash = self.writer.hash(key);
        self.writer.delete(&self.me.pin(), hash, key)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let pin = self.me.pin();
        self.reader.get(&pin, self.reader.hash(key), key).map(|record| record.value().to_vec())
    }

    /// One loop turn.
    pub(crate) fn turn(&mut self) -> crate::Upkeep {
        self.me.quiescent();
        self.writer.maintain(self.budget)
    }

    /// Turns until nothing is left to do, however long other threads take for what is theirs.
    pub(crate) fn settle(&mut self) {
        let mut turns = 0;
        while turns < TURNS_MAX {
            let done = self.turn();
            if !done.more && !done.waiting {
                return;
            }
            turns += u32::from(done.more);
            if !done.more {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        panic!("maintenance never settles: {:?}", self.writer.stats());
    }
}
