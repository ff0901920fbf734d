//! Copying a tenant's data into a keyspace with another number of partitions, or from arenas of
//! edition 1.
//!
//! ```text
//! from: partition 0, 1, … ──hash of the tag──> to: partition 0, 1, …
//!       libraries         ───────────────────> libraries
//! ```
//!
//! 1. One thread holds both sides whole, and no other thread writes: `from` doesn't change.
//! 2. A step that is refused has changed `to` only by keys that it counts. The next step goes on
//!    behind them.
//! 3. A copy that is done has every key with its value and expiry, and every library. It leaves out
//!    keys whose time was over when the copy began.
//!
//! Thread: the one that opened the keyspaces.

use std::ops::ControlFlow;
use std::path::Path;

use nigh_shm::edition1::{Edition1, Entry1};
use nigh_shm::layout::Geometry;
use nigh_shm::{ArenaError, Pin, WriteError};

use crate::convert::old_keyspace::OldKeyspace;
use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::keyspace::Keyspace;
use crate::partition::store::Store;
use crate::turn::Turn;
use nigh_shm::layout::is_over;

/// Home lines in one step, of some 6 records each: some 100 µs, if values are small.
const LINES_PER_STEP: u32 = 64;
/// The same in places of edition 1's index, which has 8 in a line.
const PLACES_PER_STEP: u64 = 512;
/// Most index memory of a key, bytes: an entry of 8 in a table that is two fifths full; while the
/// index grows, also its entry in the table before, which is half as large. (Tables double at four
/// fifths.)
const INDEX_BYTES_PER_KEY: u64 = 30;
/// Memory of an arena with hardly any data, bytes.
const EMPTY_ARENA_BYTES: u64 = 160 << 10;
/// Most segments that an arena keeps free or half filled, if it has more than a few.
const SPARE_SEGMENTS: u64 = 6;
/// Segments lose memory at their ends, and are made ready ahead: at most one part in so many of the
/// records.
const SPARE_SHARE: u64 = 16;

/// The data of a tenant that a server has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Partitions of the tenant's data.
    pub partitions: usize,
    /// Bytes of memory that all partitions together may use.
    pub capacity_bytes: u64,
}

/// Looks for a tenant's data of this edition, without opening it; `None` if there is none.
///
/// # Errors
///
/// The directory or an arena can't be read, or the tenant's name is none.
pub fn left_in(dir: &Path, tenant: &str, edition: Edition) -> Result<Option<Left>, StoreError> {
    let found = look(dir, tenant, edition)?;
    let Some(partitions) = found.partitions.filter(|_| !found.there.is_empty()) else {
        return Ok(None);
    };
    let capacity_bytes: u64 = found.there.values().map(|header| header.capacity_bytes).sum();
    // A first start that was cut off would have made the missing arenas like the others.
    let capacity_bytes = capacity_bytes / found.there.len() as u64 * partitions as u64;
    Ok(Some(Left { partitions, capacity_bytes }))
}

/// The arenas that are copied.
#[derive(Clone, Copy)]
pub enum Source<'k> {
    /// Arenas as servers write them, opened whole.
    Living(&'k Keyspace),
    /// Arenas of edition 1.
    Old(&'k OldKeyspace),
}

impl<'k> From<&'k Keyspace> for Source<'k> {
    fn from(keyspace: &'k Keyspace) -> Source<'k> {
        Source::Living(keyspace)
    }
}

impl<'k> From<&'k OldKeyspace> for Source<'k> {
    fn from(keyspace: &'k OldKeyspace) -> Source<'k> {
        Source::Old(keyspace)
    }
}

impl Source<'_> {
    fn partitions(&self) -> usize {
        match self {
            Source::Living(keyspace) => keyspace.partitions(),
            Source::Old(keyspace) => keyspace.parts.len(),
        }
    }

    /// Number of keys, those whose time is over included.
    #[must_use]
    pub fn keys(&self) -> u64 {
        match self {
            Source::Living(keyspace) => keys(keyspace),
            Source::Old(keyspace) => keyspace.keys(),
        }
    }

    /// The latest time by which expiry was judged, Unix ms; 0 if it isn't known.
    fn clock_ms(&self) -> u64 {
        match self {
            Source::Living(keyspace) => keyspace.clock_ms(),
            Source::Old(_) => 0,
        }
    }

    fn libraries(&self) -> u64 {
        match self {
            Source::Living(keyspace) => libraries(keyspace),
            Source::Old(keyspace) => keyspace.libraries.as_ref().map_or(0, Edition1::keys),
        }
    }

    /// Bytes of all records and of their runs.
    fn record_bytes(&self) -> u64 {
        match self {
            Source::Living(keyspace) => {
                let stats = keyspace.stats();
                stats.data.used_bytes + stats.system.used_bytes
            }
            Source::Old(keyspace) => {
                keyspace.parts.iter().chain(&keyspace.libraries).map(Edition1::live_bytes).sum()
            }
        }
    }
}

fn keys(keyspace: &Keyspace) -> u64 {
    keyspace.parts().iter().map(Store::keys).sum()
}

fn libraries(keyspace: &Keyspace) -> u64 {
    keyspace.librarian().libraries.writer.keys()
}

/// About how much memory a copy takes, bytes, into so many partitions that together may use
/// `capacity_bytes`.
#[must_use]
pub fn copy_bytes<'k>(from: impl Into<Source<'k>>, partitions: usize, capacity_bytes: u64) -> u64 {
    let (from, partitions) = (from.into(), partitions as u64);
    let records = from.record_bytes();
    let index = from.keys() * INDEX_BYTES_PER_KEY;
    let segment = Geometry::new(capacity_bytes / partitions).map_or(0, |g| g.slot_bytes());
    let spare = (SPARE_SEGMENTS * segment * partitions).min(2 * records);
    records + records / SPARE_SHARE + index + spare + EMPTY_ARENA_BYTES * (partitions + 1)
}

/// The counts of a copy so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Keys.
    pub keys: u64,
    /// Keys left out because their time was over.
    pub expired: u64,
    /// Libraries.
    pub libraries: u64,
}

/// A key couldn't be copied. With [`WriteError::Busy`], try again after announcing a quiescent
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The partition that refused the key; `None` for a library.
    pub partition: Option<usize>,
    /// The reason.
    pub error: WriteError,
}

/// The reason why a copy doesn't go on.
#[derive(Debug)]
pub enum CopyError {
    /// A key or a library can't be written.
    Refused(Refused),
    /// The source can't be read.
    Unreadable(ArenaError),
}

impl From<Refused> for CopyError {
    fn from(refused: Refused) -> CopyError {
        CopyError::Refused(refused)
    }
}

impl From<ArenaError> for CopyError {
    fn from(error: ArenaError) -> CopyError {
        CopyError::Unreadable(error)
    }
}

/// A copy that is under way.
pub struct Copying<'k> {
    from: Source<'k>,
    to: &'k mut Keyspace,
    now_ms: u64,
    /// The partition that is being copied; behind the last one, the libraries.
    at: usize,
    /// The cursor in it.
    cursor: u64,
    /// Number of records behind the cursor that are copied already.
    ahead: usize,
    copied: Copied,
}

impl<'k> Copying<'k> {
    /// Begins to copy `from` into `to`, which is empty. Keys whose time is over at `now_ms`, Unix
    /// ms, are left out; so are those that were over by the clock of `from`, if that was ahead.
    ///
    /// # Panics
    ///
    /// If `to` isn't empty, or one of them isn't owned whole.
    #[must_use]
    pub fn new(from: impl Into<Source<'k>>, to: &'k mut Keyspace, now_ms: u64) -> Copying<'k> {
        let from = from.into();
        let whole = |keyspace: &Keyspace| keyspace.parts().iter().all(Store::is_owner);
        let is_whole = match from {
            Source::Living(from) => whole(from),
            Source::Old(_) => true,
        };
        assert!(is_whole && whole(to), "keyspaces are copied before they are divided");
        assert!(keys(to) == 0, "a copy begins empty");
        let now_ms = now_ms.max(from.clock_ms());
        Copying { from, to, now_ms, at: 0, cursor: 0, ahead: 0, copied: Copied::default() }
    }

    /// The time by which expiry is judged, Unix ms.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The counts so far.
    #[must_use]
    pub fn copied(&self) -> Copied {
        self.copied
    }

    /// Takes a step; true when all is copied. The caller announces a quiescent state between two
    /// steps.
    ///
    /// # Errors
    ///
    /// A key or library can't be written or read: [`CopyError`] says why.
    ///
    /// # Panics
    ///
    /// If the copy turns out to lack something in the end.
    pub fn step(&mut self, pin: &Pin<'_>) -> Result<bool, CopyError> {
        // The clock stands still, so that no copied key expires before all are counted.
        let turn = Turn { now_ms: self.now_ms, pin, random: 0 };
        self.to.maintain(&turn);
        let next = match self.from {
            Source::Living(from) => self.step_of(from, &turn)?,
            Source::Old(from) => self.step_of_old(from, &turn)?,
        };
        self.cursor = next.unwrap_or(0);
        self.at += usize::from(next.is_none());
        let done = self.at > self.from.partitions();
        if done {
            self.check();
        }
        Ok(done)
    }

    /// Takes a step; returns the cursor of the next one, if this partition has more.
    fn step_of(&mut self, from: &'k Keyspace, turn: &Turn<'_>) -> Result<Option<u64>, Refused> {
        let reader = match from.parts().get(self.at) {
            Some(store) => store.reader(),
            None => &from.librarian().libraries.reader,
        };
        let mut records = Vec::new();
        let next =
            reader.scan(turn.pin, self.cursor, LINES_PER_STEP, &mut |record| records.push(record));
        for record in &records[self.ahead..] {
            let (key, value, expiry_ms) = (record.key(), record.value(), record.expiry_ms());
            self.copy(Entry1 { key, value, expiry_ms }, turn)?;
            self.ahead += 1;
        }
        self.ahead = 0;
        Ok((next != 0).then_some(next))
    }

    /// The same, from arenas of edition 1.
    fn step_of_old(
        &mut self,
        from: &'k OldKeyspace,
        turn: &Turn<'_>,
    ) -> Result<Option<u64>, CopyError> {
        let Some(arena) = from.parts.get(self.at).or(from.libraries.as_ref()) else {
            return Ok(None);
        };
        let mut refused = None;
        let next = arena.scan(self.cursor, PLACES_PER_STEP, &mut |entry| {
            refused = self.copy(entry, turn).err();
            if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let Some(refused) = refused else { return Ok(next) };
        // The next step begins at the key that was refused.
        self.cursor = next.unwrap_or(self.cursor);
        Err(refused.into())
    }

    fn copy(&mut self, entry: Entry1<'_>, turn: &Turn<'_>) -> Result<(), Refused> {
        let Entry1 { key, value, expiry_ms } = entry;
        if self.at == self.from.partitions() {
            let libraries = &mut self.to.librarian_mut().libraries;
            let hash = libraries.reader.hash(key);
            let put = libraries.writer.put(turn.pin, hash, key, &[value], expiry_ms);
            put.map_err(|error| Refused { partition: None, error })?;
            self.copied.libraries += 1;
            return Ok(());
        }
        if is_over(expiry_ms, turn.now_ms) {
            self.copied.expired += 1;
            return Ok(());
        }
        // Another keyspace, another seed.
        let hash = self.to.hash(key);
        let partition = self.to.partition(key, hash);
        let data = &mut self.to.part_mut(partition).data;
        let put = data.put(turn.pin, hash, key, &[value], expiry_ms);
        put.map_err(|error| Refused { partition: Some(partition), error })?;
        self.copied.keys += 1;
        Ok(())
    }

    /// Asserts that no key is missing and none was copied twice.
    fn check(&self) {
        let Copied { keys: copied, expired, libraries: of_libraries } = self.copied;
        assert_eq!(self.from.keys(), copied + expired, "keys that the copy has met");
        assert_eq!(keys(self.to), copied, "keys that the copy has");
        assert_eq!(self.from.libraries(), of_libraries, "libraries that the copy has met");
        assert_eq!(libraries(self.to), of_libraries, "libraries that the copy has");
    }
}
