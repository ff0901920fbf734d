//! Copying a tenant's data into a keyspace with another number of partitions.
//!
//! ```text
//! from: partition 0, 1, … ──hash of the tag──> to: partition 0, 1, …
//!       libraries         ───────────────────> libraries
//! ```
//!
//! 1. Both keyspaces are held whole, by one thread, and nobody else writes: `from` doesn't change.
//! 2. A step that is refused has changed `to` only by keys that it counts; the next goes on behind them.
//! 3. A copy that is done has every key but those whose time was over when it began, with value and
//!    expiry, and every library.
//!
//! Thread: the one that opened the keyspaces.

use std::path::Path;

use nigh_shm::layout::Geometry;
use nigh_shm::{HeaderInfo, Pin, Record, WriteError};

use crate::error::StoreError;
use crate::folder::look;
use crate::keyspace::Keyspace;
use crate::store::{Turn, is_over};

/// Home lines in one step, each some 6 records: some 100 µs, if values are small.
const LINES_PER_STEP: u32 = 64;
/// Index memory that a key takes at most, bytes: entries of 8 in a table two fifths full, and while the index
/// grows, the half as large one before it. (Tables double, at four fifths.)
const INDEX_BYTES_PER_KEY: u64 = 30;
/// Memory of an arena with next to nothing in it, bytes.
const EMPTY_ARENA_BYTES: u64 = 160 << 10;
/// Segments that an arena keeps free or half filled, at most, if it has more than a few.
const SPARE_SEGMENTS: u64 = 6;
/// What segments lose at their ends and keep ready ahead, at most: one part in so many of the records.
const SLACK_SHARE: u64 = 16;

/// What lies in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Partitions of the tenant's data.
    pub partitions: usize,
    /// Bytes of memory that they may use, all together.
    pub capacity_bytes: u64,
}

/// Looks what a server left of a tenant's data, without opening it. `None` if there is none.
///
/// # Errors
///
/// The directory or an arena can't be read, or the tenant's name is none.
pub fn left_in(dir: &Path, tenant: &str) -> Result<Option<Left>, StoreError> {
    let found = look(dir, tenant)?;
    let Some(partitions) = found.partitions.filter(|_| !found.there.is_empty()) else {
        return Ok(None);
    };
    let capacity_bytes: u64 = found.there.values().map(HeaderInfo::capacity_bytes).sum();
    // Those that a first start didn't come to make would have been like the others.
    let capacity_bytes = capacity_bytes / found.there.len() as u64 * partitions as u64;
    Ok(Some(Left { partitions, capacity_bytes }))
}

/// About how much memory a copy takes, bytes: into so many partitions, which may use so much together.
#[must_use]
pub fn copy_bytes(from: &Keyspace, partitions: usize, capacity_bytes: u64) -> u64 {
    let (stats, partitions) = (from.stats(), partitions as u64);
    let records = stats.data.used_bytes + stats.system.used_bytes;
    let index = stats.keys * INDEX_BYTES_PER_KEY;
    let segment = Geometry::new(capacity_bytes / partitions).map_or(0, |g| g.slot_bytes());
    let spare = (SPARE_SEGMENTS * segment * partitions).min(2 * records);
    records + records / SLACK_SHARE + index + spare + EMPTY_ARENA_BYTES * (partitions + 1)
}

/// What has been copied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Keys.
    pub keys: u64,
    /// Keys left out, as their time was over.
    pub expired: u64,
    /// Libraries.
    pub libraries: u64,
}

/// A key couldn't be copied. With [`WriteError::Busy`], try again after announcing a quiescent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The partition that took it not; `None` for a library.
    pub partition: Option<usize>,
    /// Why.
    pub error: WriteError,
}

/// A copy that is under way.
pub struct Copying<'k> {
    from: &'k Keyspace,
    to: &'k mut Keyspace,
    now_ms: u64,
    /// The partition that is being copied; behind the last one, the libraries.
    at: usize,
    /// Where in it.
    cursor: u64,
    /// Records from there on that are copied already.
    ahead: usize,
    copied: Copied,
}

impl<'k> Copying<'k> {
    /// Begins to copy `from`, into `to` that is empty. `now_ms`, Unix ms, says whose time is over.
    ///
    /// # Panics
    ///
    /// If `to` isn't empty, or one of them isn't owned whole.
    #[must_use]
    pub fn new(from: &'k Keyspace, to: &'k mut Keyspace, now_ms: u64) -> Copying<'k> {
        let whole = |keyspace: &Keyspace| keyspace.parts().iter().all(|store| store.is_owner());
        assert!(whole(from) && whole(to), "keyspaces are copied before they are divided");
        assert!(to.parts().iter().all(|store| store.keys() == 0), "a copy begins empty");
        Copying { from, to, now_ms, at: 0, cursor: 0, ahead: 0, copied: Copied::default() }
    }

    /// What has been copied so far.
    #[must_use]
    pub fn copied(&self) -> Copied {
        self.copied
    }

    /// Copies some more; true when all is copied. A quiescent state is to be announced between two steps.
    ///
    /// # Errors
    ///
    /// A key or library can't be written: [`Refused`] says why.
    ///
    /// # Panics
    ///
    /// If the copy turns out to lack something in the end.
    pub fn step(&mut self, pin: &Pin<'_>) -> Result<bool, Refused> {
        // The clock stands still: what is copied doesn't expire before all is counted.
        let turn = Turn { now_ms: self.now_ms, pin, random: 0 };
        self.to.maintain(&turn);
        let from = self.from;
        let reader = match from.parts().get(self.at) {
            Some(store) => store.reader(),
            None => &from.librarian().libraries.reader,
        };
        let mut records = Vec::new();
        let next =
            reader.scan(pin, self.cursor, LINES_PER_STEP, &mut |record| records.push(record));
        for record in &records[self.ahead..] {
            self.copy(record, &turn)?;
            self.ahead += 1;
        }
        (self.cursor, self.ahead) = (next, 0);
        self.at += usize::from(next == 0);
        let done = self.at > from.partitions();
        if done {
            self.check();
        }
        Ok(done)
    }

    fn copy(&mut self, record: &Record<'_>, turn: &Turn<'_>) -> Result<(), Refused> {
        let (key, value, expiry_ms) = (record.key(), record.value(), record.expiry_ms());
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

    /// Nothing is missing and nothing came twice.
    fn check(&self) {
        let keys = |keyspace: &Keyspace| -> u64 {
            keyspace.parts().iter().map(|store| store.keys()).sum()
        };
        let libraries = |keyspace: &Keyspace| keyspace.librarian().libraries.writer.keys();
        let Copied { keys: copied, expired, libraries: of_libraries } = self.copied;
        assert_eq!(keys(self.from), copied + expired, "keys that the copy has met");
        assert_eq!(keys(self.to), copied, "keys that the copy has");
        assert_eq!(libraries(self.from), of_libraries, "libraries that the copy has met");
        assert_eq!(libraries(self.to), of_libraries, "libraries that the copy has");
    }
}
