//! How a watch begins: now, or from a place.
//!
//! ```text
//! all locks ── the next numbers, the journals' tails ── a queue for what comes ── unlock
//!                └── earlier: each log's thread ends a frame there, and holds its files ── the file of that change
//! ```
//!
//! 1. What comes while the logs are asked goes into the queue, so nothing is between both.
//! 2. A watch reads the logs without the folder's lock: that goes when the database is closed.
//!
//! Any thread.

use crate::error::DbError;
use crate::shared_db::SharedDb;
use crate::watch::Watch;
use crate::watch_history::{MarkedLog, WatchHistory};
use crate::watch_place::WatchPlace;
use nigh_log::{LogError, LogFollower, Meta, RealFolder, World, look_at_meta};
use nigh_store::data_stream;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Changes of a partition that were before a watch began.
struct Earlier {
    partition: usize,
    changes: Range<u64>,
    /// The journal's tail when the watch began.
    tail: u64,
}

impl SharedDb {
    /// Tells what comes from now on.
    pub(crate) fn watch(&self, prefix: &[u8]) -> Result<Watch, DbError> {
        // With the locks no change is under way: all later ones have greater numbers.
        let _owning = self.own_all()?;
        self.watches.begin(prefix, &self.next_changes(), self.watch_bytes)
    }

    /// Tells what comes behind a place.
    pub(crate) fn watch_from(&self, prefix: &[u8], place: &WatchPlace) -> Result<Watch, DbError> {
        let wanted = self.watches.changes_of(place, self.partitions.len())?;
        let (mut watch, earlier) = {
            let mut owning = self.own_all()?;
            let next = self.next_changes();
            let mut earlier = Vec::new();
            for (partition, owning) in owning.iter_mut().enumerate() {
                let changes = wanted[partition]..next[partition];
                if changes.end < changes.start {
                    let (change, last) = (changes.start - 1, changes.end - 1);
                    return Err(DbError::PlaceAhead { partition, change, last });
                }
                if !changes.is_empty() {
                    earlier.push(Earlier { partition, changes, tail: owning.owner().tail() });
                }
            }
            (self.watches.begin(prefix, &next, self.watch_bytes)?, earlier)
        };
        if !earlier.is_empty() {
            watch.go_back(self.history(prefix, wanted, &earlier)?);
        }
        Ok(watch)
    }

    /// These changes, from the logs, which are marked where they end.
    fn history(
        &self,
        prefix: &[u8],
        wanted: &[u64],
        earlier: &[Earlier],
    ) -> Result<VecDeque<WatchHistory>, DbError> {
        // All logs are asked before the first is waited for.
        let log_of = |it: &Earlier| &self.partitions[it.partition].log;
        let asked = earlier.iter().map(|it| log_of(it).ask_mark(it.tail));
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        let marked = earlier.iter().zip(asked).map(|(it, asked)| log_of(it).wait_mark(asked));
        let marked = marked.collect::<Result<Vec<_>, _>>()?;
        let (mut histories, mut left) = (VecDeque::new(), wanted.to_vec());
        let mut are_gone = false;
        let storage = Arc::new(self.world.storage.to_read().map_err(unread)?);
        let meta = look_at_meta(&*storage).map_err(unread)?;
        let world = World { storage, ..self.world.clone() };
        for (it, log) in earlier.iter().zip(marked) {
            match history_of(&world, prefix, it, log, meta.as_ref())? {
                Ok(history) => histories.push_back(history),
                Err(first) => (left[it.partition], are_gone) = (first, true),
            }
        }
        match are_gone {
            true => Err(DbError::ChangesGone { oldest: self.watches.place(left) }),
            false => Ok(histories),
        }
    }
}

/// The same of a partition, from the log in `world`. `Err`: the first change that is left.
fn history_of(
    world: &World<RealFolder>,
    prefix: &[u8],
    it: &Earlier,
    log: MarkedLog,
    meta: Option<&Meta>,
) -> Result<Result<WatchHistory, u64>, DbError> {
    let MarkedLog { mark, held } = log;
    let Earlier { partition, changes, .. } = it;
    let Some(meta) = meta else { return Ok(Err(changes.end)) };
    let first = (data_stream(*partition), changes.start);
    let from = (&mark.chain, mark.end.at);
    let follower = LogFollower::from_change(world, meta, from, first).map_err(unread)?;
    let told = (changes.start, changes.end);
    Ok(match follower {
        Ok(follower) => Ok(WatchHistory::new(follower, held, (*partition, prefix), told)),
        // What is left of the log may end before the watch begins.
        Err(first) => Err(first.min(changes.end)),
    })
}

fn unread(error: LogError) -> DbError {
    DbError::Unread { cause: error.to_string() }
}
