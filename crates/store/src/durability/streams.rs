//! The streams of all shards: how far each is durable, and whose log it is.
//!
//! Any thread.

use crate::durability::log_status::{LogHealth, LogStatus};
use nigh_shm::DurableWord;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A stream's durable LSN, and the state of its log.
type SharedStream = (DurableWord, Arc<LogStatus>);

/// All streams.
#[derive(Default)]
pub struct SharedStreams(RwLock<BTreeMap<u32, SharedStream>>);

impl SharedStreams {
    /// Adds a stream.
    pub fn add(&self, stream: u32, word: DurableWord, status: Arc<LogStatus>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(stream, (word, status));
    }

    /// The durable LSN of a stream; of one that isn't there, all is.
    pub(crate) fn durable(&self, stream: u32) -> u64 {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&stream).map_or(u64::MAX, |(word, _)| word.load())
    }

    /// Has the logs of these streams synced at once. Fails if one of them is broken.
    pub(crate) fn want_sync(&self, needs: &[(u32, u64)]) -> Result<(), ()> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (stream, lsn) in needs {
            if let Some((word, status)) = all.get(stream)
                && word.load() < *lsn
            {
                if status.health() == LogHealth::Broken {
                    return Err(());
                }
                status.want_sync();
            }
        }
        Ok(())
    }
}
