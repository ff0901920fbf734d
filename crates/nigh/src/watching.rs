//! How a watch begins: now, or with an earlier change.
//!
//! ```text
//! lock ── the next number, the journal's tail ── a queue for what comes ── unlock
//!           └── earlier: the log's thread ends a frame there, and holds its files ── the file of that change
//! ```
//!
//! 1. What comes while the log is asked goes into the queue, so nothing is between both.
//!
//! Any thread.

use crate::error::DbError;
use crate::shared_db::SharedDb;
use crate::watch::Watch;
use crate::watch_history::{MarkedLog, WatchHistory};
use nigh_log::{LogError, LogFollower, look_at_meta};
use nigh_store::data_stream;

impl SharedDb {
    /// Tells what comes from now on.
    pub(crate) fn watch(&self, prefix: &[u8]) -> Result<Watch, DbError> {
        // With the locks no change is under way: all later ones have greater numbers.
        let _owning = self.own_all()?;
        let next = self.partitions.iter().map(|it| it.reader.begun_lsn() + 1);
        self.watches.begin(prefix, &next.collect::<Vec<_>>(), self.watch_bytes)
    }

    /// Tells what comes from a change on.
    pub(crate) fn watch_from(&self, prefix: &[u8], change: u64) -> Result<Watch, DbError> {
        let [partition] = &*self.partitions else {
            return Err(DbError::NumbersOfEach { partitions: self.partitions.len() });
        };
        let change = change.max(1);
        let (mut watch, next, tail) = {
            let mut owning = partition.owner.take()?;
            let next = partition.reader.begun_lsn() + 1;
            if change > next {
                return Err(DbError::NoSuchChange { change, last: next - 1 });
            }
            let watch = self.watches.begin(prefix, &[next], self.watch_bytes)?;
            (watch, next, owning.owner().tail())
        };
        if change < next {
            watch.go_back(self.history(prefix, change..next, partition.log.mark(tail)?)?);
        }
        Ok(watch)
    }

    /// These changes of the only partition, from a log that was marked.
    fn history(
        &self,
        prefix: &[u8],
        changes: std::ops::Range<u64>,
        log: MarkedLog,
    ) -> Result<WatchHistory, DbError> {
        let MarkedLog { mark, held } = log;
        let told = |error: LogError| DbError::Unread { cause: error.to_string() };
        let meta = look_at_meta(&*self.world.storage).map_err(told)?;
        let meta = meta.ok_or(DbError::ChangesGone { first: changes.end })?;
        let wanted = (data_stream(0), changes.start);
        let from = (&mark.chain, mark.end.at);
        let follower = LogFollower::from_change(&self.world, &meta, from, wanted).map_err(told)?;
        // What is left of the log may end before the watch begins.
        let gone = |first: u64| DbError::ChangesGone { first: first.min(changes.end) };
        let follower = follower.map_err(gone)?;
        Ok(WatchHistory::new(follower, held, (0, prefix), (changes.start, changes.end)))
    }
}
