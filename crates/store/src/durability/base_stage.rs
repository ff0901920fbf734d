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

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
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

/// In the byte of a stage: changes are refused until it counts.
const HEALS: u8 = 0x80;

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct BaseStage {
    /// The stage's place in [`STAGES`], and [`HEALS`]: both change at once.
    stage: AtomicU8,
    /// Nothing more of it is needed: its thread ends at once.
    abandoned: AtomicBool,
}

impl BaseStage {
    /// A base begins; `heals`: in place of a log that broke.
    pub(crate) fn begun(heals: bool) -> BaseStage {
        let stage = code(LogStage::Walks) | if heals { HEALS } else { 0 };
        BaseStage { stage: AtomicU8::new(stage), ..BaseStage::default() }
    }

    pub(crate) fn get(&self) -> LogStage {
        let code = self.stage.load(Acquire) & !HEALS;
        STAGES[usize::from(code).min(STAGES.len() - 1)]
    }

    pub(crate) fn set(&self, stage: LogStage) {
        let kept = if stage == LogStage::Counts { 0 } else { HEALS };
        let change = |word| Some(word & kept | code(stage));
        let _ = self.stage.fetch_update(AcqRel, Acquire, change);
    }

    pub(crate) fn heals(&self) -> bool {
        self.stage.load(Acquire) & HEALS != 0
    }

    pub(crate) fn refuse(&self) {
        self.stage.fetch_or(HEALS, AcqRel);
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Acquire)
    }
}

fn code(stage: LogStage) -> u8 {
    let place = STAGES.iter().position(|it| *it == stage).unwrap_or_default();
    u8::try_from(place).unwrap_or_default()
}

/// A base at a log's thread.
#[derive(Debug, Default)]
pub(crate) struct BasePart {
    /// The chain doesn't count.
    pub(crate) is_on: bool,
    /// The journal's tail when a sync of all was asked for.
    pub(super) target: Option<u64>,
}

impl BasePart {
    pub(crate) fn of(stage: LogStage) -> BasePart {
        BasePart { is_on: stage != LogStage::Counts, target: None }
    }
}
