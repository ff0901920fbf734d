//! Backups of the log: the one that is under way, and what became of the last ones.
//!
//! ```text
//! BACKUP DIR ──> begin ──> thread nigh-backup ── change, end ──> state ──> BACKUP STATUS, INFO
//! ```
//!
//! 1. One is under way at a time. Its thread ends before the logs' threads do.
//!
//! Any thread.

use crate::observe::inside::{Fields, put};
use crate::sync::lock;
use nigh_log::{BackupPhase, BackupProgress, BackupReport, RealFolder, World};
use nigh_store::{LogHealth, LogOrder, LogStatus};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Outcomes that are kept.
const ENDED_MOST: usize = 16;

/// What backups are made of.
#[derive(Clone)]
pub(crate) struct BackupSource {
    /// The log's folder, clock and chance.
    pub(crate) world: World<RealFolder>,
    /// Its path.
    pub(crate) dir: PathBuf,
    /// By shard.
    pub(crate) logs: Arc<[Arc<LogStatus>]>,
    /// By shard: orders to its log's thread.
    pub(crate) orders: Vec<SyncSender<LogOrder>>,
}

/// A backup that is under way or has ended.
#[derive(Debug, Clone)]
pub(crate) struct BackupState {
    pub(crate) number: u64,
    pub(crate) dir: PathBuf,
    pub(crate) progress: BackupProgress,
    /// For how long the shards stood.
    pub(crate) stood: Duration,
    began: Instant,
    /// So long it took, or takes.
    pub(crate) took: Duration,
    /// `None`: it is under way.
    pub(crate) outcome: Option<Result<BackupReport, String>>,
}

#[derive(Default)]
struct BackupHistory {
    /// `None`: there is no log.
    source: Option<BackupSource>,
    /// The newest last; only that may be under way.
    all: VecDeque<BackupState>,
    complete: u64,
    /// When the last one was complete, Unix seconds; before: when the server started.
    last_s: u64,
    thread: Option<JoinHandle<()>>,
}

impl BackupHistory {
    fn under_way(&self) -> Option<&BackupState> {
        self.all.back().filter(|last| last.outcome.is_none())
    }
}

/// The backups of a server.
pub(crate) struct Backups {
    history: Mutex<BackupHistory>,
    stops: AtomicBool,
}

impl Backups {
    pub(crate) fn new() -> Self {
        let history = BackupHistory { last_s: now_s(), ..BackupHistory::default() };
        Self { history: Mutex::new(history), stops: AtomicBool::new(false) }
    }

    /// There is a log from now on.
    pub(crate) fn attach(&self, source: BackupSource) {
        lock(&self.history).source = Some(source);
    }

    /// Begins a backup into a folder, with a thread that `spawn` makes; gives its number. An error
    /// is a sentence that says why there can be none.
    pub(crate) fn begin(
        &self,
        dir: PathBuf,
        spawn: impl FnOnce(BackupSource, PathBuf) -> io::Result<JoinHandle<()>>,
    ) -> Result<u64, String> {
        let mut history = lock(&self.history);
        let Some(source) = history.source.clone() else {
            return Err("there is no whole log to back up: CONFIG SET appendonly yes begins one; \
                        one that is being written counts soon (log_state of INFO persistence)"
                .into());
        };
        let broken = source.logs.iter().position(|log| log.health() == LogHealth::Broken);
        if let Some(shard) = broken {
            let cause = source.logs[shard].cause();
            return Err(format!(
                "the log of shard {shard} is broken, so nothing can be backed up: {cause}"
            ));
        }
        if !dir.is_absolute() {
            return Err("the folder's path must be absolute: the server has its own folder".into());
        }
        if let Some(under_way) = history.under_way() {
            return Err(format!(
                "a backup into {} is under way: BACKUP CANCEL stops it",
                under_way.dir.display()
            ));
        }
        if let Some(ended) = history.thread.take() {
            // It has told its outcome: it does nothing more.
            let _ = ended.join();
        }
        let number = history.all.back().map_or(1, |last| last.number + 1);
        self.stops.store(false, Ordering::Release);
        // What the thread tells waits for this lock.
        let spawned = spawn(source, dir.clone());
        history.thread = Some(spawned.map_err(|error| format!("no thread for it: {error}"))?);
        history.all.push_back(BackupState {
            number,
            dir,
            progress: BackupProgress::default(),
            stood: Duration::ZERO,
            began: Instant::now(),
            took: Duration::ZERO,
            outcome: None,
        });
        if history.all.len() > ENDED_MOST {
            history.all.pop_front();
        }
        Ok(number)
    }

    /// What is known of a backup, or of the last one.
    pub(crate) fn state(&self, number: Option<u64>) -> Option<BackupState> {
        let history = lock(&self.history);
        let mut known = history.all.iter().rev();
        let mut state = known.find(|it| number.is_none_or(|number| it.number == number))?.clone();
        if state.outcome.is_none() {
            state.took = state.began.elapsed();
        }
        Some(state)
    }

    /// Stops the one that is under way; false if there is none.
    pub(crate) fn cancel(&self) -> bool {
        let history = lock(&self.history);
        let is_under_way = history.under_way().is_some();
        // Under the lock, as in `begin`: one that begins now is another one.
        self.stops.store(is_under_way, Ordering::Release);
        is_under_way
    }

    /// When the last one was complete, Unix seconds; before: when the server started.
    pub(crate) fn last_s(&self) -> u64 {
        lock(&self.history).last_s
    }

    /// The log or the server ends: stops what is under way, and lets go of the log.
    pub(crate) fn detach(&self) {
        let thread = {
            let mut history = lock(&self.history);
            // Under the lock, or one that begins now would never hear of it.
            self.stops.store(true, Ordering::Release);
            history.source = None;
            history.thread.take()
        };
        if let Some(thread) = thread {
            // Its outcome is told if it ends as it should; a panic has been printed.
            let _ = thread.join();
        }
    }

    /// Fields of INFO: those of Redis for what it saves.
    pub(crate) fn fields(&self, f: &mut Fields) {
        let last = self.state(None);
        let under_way = last.as_ref().filter(|last| last.outcome.is_none());
        let history = lock(&self.history);
        let ended = history.all.iter().rev().find(|it| it.outcome.is_some());
        let seconds = |of: Option<&BackupState>| {
            of.map_or_else(|| "-1".to_owned(), |of| of.took.as_secs().to_string())
        };
        let is_well = ended.is_none_or(|it| matches!(it.outcome, Some(Ok(_))));
        put(f, "rdb_bgsave_in_progress", u8::from(under_way.is_some()));
        put(f, "rdb_last_save_time", history.last_s);
        put(f, "rdb_last_bgsave_status", if is_well { "ok" } else { "err" });
        put(f, "rdb_last_bgsave_time_sec", seconds(ended));
        put(f, "rdb_current_bgsave_time_sec", seconds(under_way));
        put(f, "rdb_saves", history.complete);
    }

    /// Whether the one that is under way is to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Changes what is told of the one that is under way.
    pub(crate) fn change(&self, change: impl FnOnce(&mut BackupState)) {
        if let Some(last) = lock(&self.history).all.back_mut() {
            change(last);
        }
    }

    /// The one that is under way has ended.
    pub(crate) fn end(&self, made: Result<BackupReport, String>) {
        let mut history = lock(&self.history);
        if made.is_ok() {
            (history.complete, history.last_s) = (history.complete + 1, now_s());
        }
        if let Some(last) = history.all.back_mut() {
            (last.took, last.outcome) = (last.began.elapsed(), Some(made));
        }
    }
}

impl BackupState {
    /// What is being done, in a word.
    pub(crate) fn word(&self) -> &'static str {
        match (&self.outcome, self.progress.phase) {
            (Some(Ok(_)), _) => "complete",
            (Some(Err(_)), _) => "failed",
            (None, BackupPhase::Finding) => "marking",
            (None, BackupPhase::Copying) => "copying",
            (None, BackupPhase::Verifying) => "verifying",
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
