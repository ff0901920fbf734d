//! A snapshot that is read in steps.
//!
//! 1. What was read stays until it was given: a step that finds no memory loses nothing.
//!
//! One thread at a time.

use crate::fault::Fault;
use nigh::{Snapshot, WatchPlace};

/// Bytes behind which a step ends.
const STEP_BYTES: usize = 1 << 20;

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// A snapshot, and what was read of it and not given yet.
pub(crate) struct SnapshotSteps {
    snapshot: Snapshot,
    found: Vec<Pair>,
}

impl SnapshotSteps {
    pub(crate) fn of(snapshot: Snapshot) -> SnapshotSteps {
        SnapshotSteps { snapshot, found: Vec::new() }
    }

    /// The place of its moment.
    pub(crate) fn place(&self) -> &WatchPlace {
        self.snapshot.place()
    }

    /// Passes the next pairs to `give`, `count` at most, and at least one unless it is the end. If
    /// it fails, the next step has them again.
    pub(crate) fn step<R>(
        &mut self,
        count: u32,
        give: impl FnOnce(&[Pair]) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        if self.found.is_empty() {
            self.read(count)?;
        }
        let count = count.min(self.found.len());
        let given = give(&self.found[..count])?;
        self.found.drain(..count);
        Ok(given)
    }

    /// Reads the next pairs. An error comes behind what was read before it.
    fn read(&mut self, count: usize) -> Result<(), Fault> {
        let mut bytes = 0;
        while self.found.len() < count && bytes < STEP_BYTES {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            match self.snapshot.next_into(&mut key, &mut value) {
                Ok(true) => {}
                Err(error) if self.found.is_empty() => return Err(error.into()),
                _ => break,
            }
            bytes += key.len() + value.len();
            self.found.push((key, value));
        }
        Ok(())
    }
}
