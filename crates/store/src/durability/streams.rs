//! The streams of all shards: how far each is durable, and whose log it is.
//!
//! Any thread.

use crate::durability::log_status::{LogHealth, LogStatus};
use nigh_shm::DurableWord;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock};

/// A stream.
struct SharedStream {
    /// Its durable LSN.
    word: DurableWord,
    /// What was synced in a chain that doesn't count yet.
    synced: AtomicU64,
    /// The state of its log.
    status: Arc<LogStatus>,
}

impl SharedStream {
    fn durable(&self) -> u64 {
        // Commits in a base stand on each other: all bases count at once.
        self.word.load().max(self.synced.load(Acquire))
    }
}

/// All streams.
#[derive(Default)]
pub struct SharedStreams(RwLock<BTreeMap<u32, SharedStream>>);

impl SharedStreams {
    /// Adds a stream.
    pub fn add(&self, stream: u32, word: DurableWord, status: Arc<LogStatus>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(stream, SharedStream { word, synced: AtomicU64::new(0), status });
    }

    /// A stream is synced up to here in a chain that doesn't count yet.
    pub(crate) fn tell_synced(&self, stream: u32, lsn: u64) {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = all.get(&stream) {
            stream.synced.store(lsn, Release);
        }
    }

    /// Up to where a stream is on disk; one that isn't there as a whole.
    pub(crate) fn durable(&self, stream: u32) -> u64 {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&stream).map_or(u64::MAX, SharedStream::durable)
    }

    /// Has the logs of these streams synced at once. False: one of them has ended without that.
    /// Fails if one of them is broken.
    pub(crate) fn want_sync(&self, needs: &[(u32, u64)]) -> Result<bool, ()> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut comes = true;
        for (stream, lsn) in needs {
            let Some(it) = all.get(stream) else { continue };
            // In this order: a log tells what is durable before its end.
            let has_ended = it.status.has_ended();
            if it.durable() >= *lsn {
                continue;
            }
            if it.status.health() == LogHealth::Broken {
                return Err(());
            }
            comes &= !has_ended;
            it.status.want_sync();
        }
        Ok(comes)
    }
}
