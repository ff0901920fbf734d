//! A turn of all partitions at once, for a call: it may read any of them.
//!
//! ```text
//! all locks, in order ── a turn of each owner, within that of the one before ── the call ── unlock
//!   └── no room: unlock, and again a little later, for a bounded time
//! ```
//!
//! 1. With all locks nothing changes but by the call: what it reads is one moment of all
//!    partitions. All turns have one time.
//! 2. Locks are taken in the partitions' order, as by any thread that takes several: so two can't
//!    wait for each other.
//! 3. Nobody waits for the disk, or for memory, with a lock.
//!
//! Any thread.

use super::function_error::FunctionError;
use crate::error::{DbError, WriteRefusal};
use crate::options::{Durability, WriteOptions, unix_ms};
use crate::owner::Owning;
use crate::shared_db::SharedDb;
use crate::writes::{Patience, SNAPSHOT_MOST, lacks_memory};
use nigh_shm::WriteError;
use nigh_store::{Keyspace, Turn};
use std::ops::Range;
use std::time::SystemTime;

/// A partition within the turn.
pub(super) struct PartTurn<'a> {
    /// Owns the partition, and has views of the others.
    pub(super) keyspace: &'a mut Keyspace,
    pub(super) turn: &'a Turn<'a>,
}

/// Runs a call in a turn. What is done in part is an error within `Ok`: it isn't tried again.
type Attempt<'a, R> =
    dyn FnMut(&mut [PartTurn<'_>]) -> Result<Result<R, FunctionError>, WriteRefusal> + 'a;

/// Runs `work` in a turn of each owner.
fn in_turns<R>(owning: &mut [Owning<'_>], work: &mut dyn FnMut(&mut [PartTurn<'_>]) -> R) -> R {
    let latest_ms = owning.iter_mut().map(|it| it.owner().latest_ms()).max();
    let now_ms = unix_ms(SystemTime::now()).max(latest_ms.unwrap_or_default());
    let parts = Vec::with_capacity(owning.len());
    in_turns_of(owning, now_ms, parts, work)
}

/// The same, within the turns of the owners before these.
fn in_turns_of<R>(
    owning: &mut [Owning<'_>],
    now_ms: u64,
    before: Vec<PartTurn<'_>>,
    work: &mut dyn FnMut(&mut [PartTurn<'_>]) -> R,
) -> R {
    let mut parts = before;
    let Some((first, others)) = owning.split_first_mut() else { return work(&mut parts) };
    first.owner().turn_at(now_ms, |keyspace, turn| {
        let mut parts = parts;
        parts.push(PartTurn { keyspace, turn });
        in_turns_of(others, now_ms, parts, work)
    })
}

impl SharedDb {
    /// Runs what writes nothing.
    pub(super) fn look_at_all<R>(
        &self,
        look: &mut dyn FnMut(&mut [PartTurn<'_>]) -> R,
    ) -> Result<R, DbError> {
        Ok(in_turns(&mut self.own_all()?, look))
    }

    /// Runs an attempt to write in some of the partitions, again while it lacks what comes back.
    /// A strong one waits for all that had begun in any partition: it may have read that. One that
    /// is done in part is told that first, whatever comes of the wait.
    pub(super) fn commit_over_all<R>(
        &self,
        written: Range<usize>,
        options: &WriteOptions,
        attempt: &mut Attempt<'_, R>,
    ) -> Result<R, FunctionError> {
        let (mut patience, mut has_asked) = (Patience::of(options), false);
        let mut has_written = false;
        let answer = loop {
            let written = &self.partitions[written.clone()];
            written.iter().try_for_each(|it| it.log.check(false))?;
            if written.iter().any(|it| it.log.is_late()) {
                patience.wait(WriteError::JournalFull)?;
                continue;
            }
            let tried = {
                let mut owning = self.own_all()?;
                if has_asked || patience.has_waited() {
                    owning.iter_mut().for_each(|it| _ = it.owner().look_after());
                }
                let tried = in_turns(&mut owning, &mut |parts| {
                    let before = self.next_changes();
                    let tried = attempt(parts);
                    has_written = self.next_changes() != before;
                    tried
                });
                if lacks_memory(&tried) && patience.has_waited_for_memory(SNAPSHOT_MOST) {
                    // Each owner knows all snapshots.
                    owning[0].owner().snapshots.end_oldest();
                }
                tried
            };
            written.iter().for_each(|it| it.log.status().wake());
            if lacks_memory(&tried) {
                self.partitions.iter().for_each(|it| it.owner.announce());
                if !std::mem::replace(&mut has_asked, true) {
                    continue;
                }
            }
            match tried {
                Ok(answer) => break answer,
                Err(WriteRefusal::Final(error)) => return Err(error.into()),
                Err(WriteRefusal::Write(error)) => patience.wait(error)?,
            }
        };
        let is_strong = options.durability.unwrap_or(self.durability) == Durability::Strong;
        let waited = if is_strong { self.wait_for_all(has_written) } else { Ok(()) };
        let reply = answer?;
        waited?;
        Ok(reply)
    }
}
