//! All partitions of a tenant, read from mapped memory.
//!
//! ```text
//! key ──tag──> partition ──> ForeignReader ── value of its own memory
//! ```
//!
//! 1. Keys of one partition that are read together are of one moment; each partition has its own.
//! 2. Expiry is judged by the owner's clock alone. A reader that judges by another one too does so
//!    behind it.
//!
//! Any thread may read; [`ForeignValues`] belongs to one.

use super::ForeignReader;
use super::copier::ForeignRecord;
use super::foreign_values::ForeignValues;
use crate::error::ArenaError;
use crate::partitioning::{PartitionNumber, partition_of};

/// Lines of the index that a step of a scan visits at most for each key it aims at.
const LINES_PER_KEY: u64 = 10;

/// The arenas of a tenant, in the order of their partitions.
pub struct ForeignArenas {
    /// At least one.
    arenas: Vec<ForeignReader>,
    /// Which writer had each of them at first.
    incarnations: Vec<u64>,
}

impl ForeignArenas {
    /// Of all partitions of a tenant, in their order.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(arenas: Vec<ForeignReader>) -> ForeignArenas {
        assert!(!arenas.is_empty(), "a tenant has a partition");
        let incarnations = arenas.iter().map(ForeignReader::incarnation).collect();
        ForeignArenas { arenas, incarnations }
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.arenas.len()
    }

    /// The arena of a partition.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn arena(&self, partition: usize) -> &ForeignReader {
        &self.arenas[partition]
    }

    /// The number of a key's partition.
    #[must_use]
    #[inline]
    pub fn partition(&self, key: &[u8]) -> usize {
        let hash_of = |key: &[u8]| self.arenas[0].hash(key);
        match self.arenas.len() {
            1 => 0,
            partitions => partition_of(key, hash_of(key), partitions, hash_of),
        }
    }

    /// Whether the same writer has a partition's arena as at first.
    #[must_use]
    #[inline]
    pub fn has_its_writer(&self, partition: usize) -> bool {
        self.arenas[partition].incarnation() == self.incarnations[partition]
    }

    /// The values of several keys: those of each partition are of one moment. Passes each
    /// partition that has some of them, and the number of its moment, to `moment`.
    ///
    /// # Errors
    /// Those of [`ForeignReader::view`].
    pub fn multi_get_into(
        &self,
        keys: &[&[u8]],
        values: &mut ForeignValues,
        moment: &mut dyn FnMut(usize, u64),
    ) -> Result<(), ArenaError> {
        values.reset(keys.len());
        if keys.is_empty() {
            return Ok(());
        }
        let mut numbers: Vec<usize> = (0..keys.len()).collect();
        if self.arenas.len() == 1 {
            moment(0, self.arenas[0].multi_get_into(keys, &numbers, values)?);
            return Ok(());
        }
        let partitions: Vec<usize> = keys.iter().map(|key| self.partition(key)).collect();
        numbers.sort_by_key(|number| partitions[*number]);
        for numbers in numbers.chunk_by(|a, b| partitions[*a] == partitions[*b]) {
            let partition = partitions[numbers[0]];
            moment(partition, self.arenas[partition].multi_get_into(keys, numbers, values)?);
        }
        Ok(())
    }

    /// A step of a walk over the keys that begin with `prefix`, with SCAN's guarantee: passes
    /// records to `found`, until it has said of about `count` that they are wanted. The first step
    /// has the cursor 0. Returns the cursor of the next one; 0 at the end.
    ///
    /// # Errors
    /// Those of [`ForeignReader::scan`]. What was passed before is right, and may come again.
    pub fn scan(
        &self,
        prefix: &[u8],
        mut cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&ForeignRecord) -> bool,
    ) -> Result<u64, ArenaError> {
        let count = u64::from(count.max(1));
        let (mut met, mut lines) = (0, count * LINES_PER_KEY);
        loop {
            let number = PartitionNumber::of_cursor(cursor, self.arenas.len() as u64);
            let partition = usize::try_from(number.partition).unwrap_or_default();
            let next = self.arenas[partition].scan(number.inward(cursor), prefix, &mut |record| {
                met += u64::from(found(record));
            });
            cursor = number.outward(next?);
            lines -= 1;
            if cursor == 0 || lines == 0 || met >= count {
                return Ok(cursor);
            }
        }
    }

    /// Whether all paths still name the files that were opened.
    #[must_use]
    pub fn have_their_names(&self) -> bool {
        self.arenas.iter().all(ForeignReader::has_its_name)
    }

    /// Whether all can be read; else why one can't.
    ///
    /// # Errors
    /// Those of [`ForeignReader::check`].
    pub fn check(&self) -> Result<(), ArenaError> {
        self.arenas.iter().try_for_each(ForeignReader::check)
    }
}
