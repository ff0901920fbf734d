//! How far a base is that is written while the server serves, as one shard's log has it.
//!
//! ```text
//! Walks ──(owner: all is ordered; log: all is taken)──> Walked ──(keeper)──> Syncs ──(log)──> Synced ──(keeper: meta counts)──> Counts
//! ```
//!
//! 1. Each step is made by one thread only: the log's or the keeper's, as the picture says.
//! 2. The log's thread tells no durable LSN and no file before the chain counts. What it has synced
//!    it tells the other logs, for commits that stand on it.
//! 3. If a chain counted before, its journal gives no entry back until the new one counts.
//!
//! Any thread.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU8};

/// How far a shard's base is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStage {
    /// There is none: the chain counts.
    Counts,
    /// Records are being appended.
    Walks,
    /// All of them were taken.
    Walked,
    /// All that was told up to now is to be synced, since other bases may stand on it.
    Syncs,
    /// It is.
    Synced,
}

const STAGES: [LogStage; 5] =
    [LogStage::Counts, LogStage::Walks, LogStage::Walked, LogStage::Syncs, LogStage::Synced];

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct BaseStage {
    stage: AtomicU8,
    heals: AtomicBool,
    /// Nothing more of it is needed: its thread ends at once.
    abandoned: AtomicBool,
}

impl BaseStage {
    /// A base begins; `heals`: in place of a log that broke.
    pub(crate) fn begun(heals: bool) -> BaseStage {
        let stage = BaseStage { heals: AtomicBool::new(heals), ..BaseStage::default() };
        stage.set(LogStage::Walks);
        stage
    }

    pub(crate) fn get(&self) -> LogStage {
        STAGES[usize::from(self.stage.load(Acquire)).min(STAGES.len() - 1)]
    }

    pub(crate) fn set(&self, stage: LogStage) {
        let code = STAGES.iter().position(|it| *it == stage).unwrap_or_default();
        if stage == LogStage::Counts {
            self.heals.store(false, Release);
        }
        self.stage.store(u8::try_from(code).unwrap_or_default(), Release);
    }

    pub(crate) fn heals(&self) -> bool {
        self.heals.load(Acquire)
    }

    pub(crate) fn refuse(&self) {
        self.heals.store(true, Release);
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Acquire)
    }
}
