//! Backups of the log: the one that is under way, and what became of the last ones.
//!
//! ```text
//! BACKUP DIR ──> Backups::begin ──> thread nigh-backup: all shards stand, marks ─> copy ─> rename
//! BACKUP STATUS <── what it tells <──┘                        (a few ms)    (minutes, at its pace)
//! ```
//!
//! 1. One is under way at a time. Its thread ends before the logs' threads do.
//! 2. All shards stand while the marks are ordered: no change of any falls between two of them.
//!    They stand for [`STAND_MOST`] at a time, and go on whether all have come by then or not.
//! 3. What is held for it at the logs is let go, however it ends.
//!
//! Any thread; the copying is the thread's of its own, which gives way to the others.

use crate::observe::inside::Fields;
use crate::state::shared::Shared;
use crate::state::still::OUTSIDE;
use crate::sync::lock;
use crate::tenant::TenantId;
use nigh_log::{
    BackupPhase, BackupProgress, BackupReport, ChainMark, RealBackupPlace, RealFolder, World,
    backup_meta, make_backup, read_meta,
};
use nigh_store::{EndOrder, LogHealth, LogOrder, LogStatus, Ordered};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time for which shards stand until all do.
const STAND_MOST: Duration = Duration::from_millis(100);
/// Times that they are asked to. Between two there is a pause, in which a long call may end.
const STANDS_MOST: u32 = 5;
const STAND_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for calls of functions that have other shards stand.
const QUEUE_MOST: Duration = Duration::from_secs(10);
/// Between looks whether all stand.
const LOOK: Duration = Duration::from_micros(100);
/// Longest wait for a log to be on disk up to its mark.
const MARK_MOST: Duration = Duration::from_secs(60);
/// Between looks whether the server ends.
const NAP: Duration = Duration::from_millis(50);
/// What the pace may make up for behind a pause: so it never reads much at once.
const CREDIT: Duration = Duration::from_millis(20);
/// How far the thread gives way to others: see nice(1).
const NICE: i32 = 10;
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
    /// So long it took, or takes.
    pub(crate) took: Duration,
    /// `None`: it is under way.
    pub(crate) outcome: Option<Result<BackupReport, String>>,
}

#[derive(Default)]
struct Desk {
    /// `None`: there is no log.
    source: Option<BackupSource>,
    /// The newest last; only that may be under way.
    all: VecDeque<BackupState>,
    began: Option<Instant>,
    begun: u64,
    complete: u64,
    /// When the last one was complete, Unix seconds; before: when the server started.
    last_s: u64,
    thread: Option<JoinHandle<()>>,
}

/// The backups of a server.
pub(crate) struct Backups {
    desk: Mutex<Desk>,
    stops: AtomicBool,
}

impl Backups {
    pub(crate) fn new() -> Self {
        let desk = Desk { last_s: now_s(), ..Desk::default() };
        Self { desk: Mutex::new(desk), stops: AtomicBool::new(false) }
    }

    /// There is a log from now on.
    pub(crate) fn attach(&self, source: BackupSource) {
        lock(&self.desk).source = Some(source);
    }

    /// Begins a backup into a folder; gives its number.
    ///
    /// # Errors
    /// A sentence that says why there can be none.
    pub(crate) fn begin(&self, shared: &Arc<Shared>, dir: PathBuf) -> Result<u64, String> {
        let mut desk = lock(&self.desk);
        let Some(source) = desk.source.clone() else {
            return Err("there is no log to back up: start the server with appendonly yes".into());
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
        if let Some(under_way) = desk.all.back().filter(|last| last.outcome.is_none()) {
            return Err(format!(
                "a backup into {} is under way: BACKUP CANCEL stops it",
                under_way.dir.display()
            ));
        }
        if shared.stopping().is_some() {
            return Err("the server ends".into());
        }
        if let Some(ended) = desk.thread.take() {
            // It has told its outcome: it does nothing more.
            let _ = ended.join();
        }
        let number = desk.begun + 1;
        self.stops.store(false, Ordering::Release);
        let (its, path) = (Arc::clone(shared), dir.clone());
        let run = move || its.backups.run(&its, &source, &path);
        let spawned = std::thread::Builder::new().name("nigh-backup".into()).spawn(run);
        desk.thread = Some(spawned.map_err(|error| format!("no thread for it: {error}"))?);
        (desk.begun, desk.began) = (number, Some(Instant::now()));
        desk.all.push_back(BackupState {
            number,
            dir,
            progress: BackupProgress::default(),
            stood: Duration::ZERO,
            took: Duration::ZERO,
            outcome: None,
        });
        if desk.all.len() > ENDED_MOST {
            desk.all.pop_front();
        }
        Ok(number)
    }

    /// What is known of a backup, or of the last one.
    pub(crate) fn state(&self, number: Option<u64>) -> Option<BackupState> {
        let desk = lock(&self.desk);
        let mut known = desk.all.iter().rev();
        let mut state = known.find(|it| number.is_none_or(|number| it.number == number))?.clone();
        if let (None, Some(began)) = (&state.outcome, desk.began) {
            state.took = began.elapsed();
        }
        Some(state)
    }

    /// Stops the one that is under way; false if there is none.
    pub(crate) fn cancel(&self) -> bool {
        let is_under_way = lock(&self.desk).all.back().is_some_and(|last| last.outcome.is_none());
        self.stops.store(is_under_way, Ordering::Release);
        is_under_way
    }

    /// When the last one was complete, Unix seconds; before: when the server started.
    pub(crate) fn last_s(&self) -> u64 {
        lock(&self.desk).last_s
    }

    /// The server ends: stops what is under way, and lets go of the log.
    pub(crate) fn close(&self) {
        self.stops.store(true, Ordering::Release);
        let thread = {
            let mut desk = lock(&self.desk);
            desk.source = None;
            desk.thread.take()
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
        let ended = lock(&self.desk).all.iter().rev().find(|it| it.outcome.is_some()).cloned();
        let seconds = |of: Option<&BackupState>| {
            of.map_or_else(|| "-1".to_owned(), |of| of.took.as_secs().to_string())
        };
        let is_well = ended.as_ref().is_none_or(|it| matches!(it.outcome, Some(Ok(_))));
        let (complete, last_s) = {
            let desk = lock(&self.desk);
            (desk.complete, desk.last_s)
        };
        for (name, value) in [
            ("rdb_bgsave_in_progress", u8::from(under_way.is_some()).to_string()),
            ("rdb_last_save_time", last_s.to_string()),
            ("rdb_last_bgsave_status", if is_well { "ok" } else { "err" }.to_owned()),
            ("rdb_last_bgsave_time_sec", seconds(ended.as_ref())),
            ("rdb_current_bgsave_time_sec", seconds(under_way)),
            ("rdb_saves", complete.to_string()),
        ] {
            f.push((name.to_owned(), value));
        }
    }

    fn is_stopped(&self, shared: &Shared) -> bool {
        self.stops.load(Ordering::Acquire) || shared.stopping().is_some()
    }

    fn change(&self, change: impl FnOnce(&mut BackupState)) {
        if let Some(last) = lock(&self.desk).all.back_mut() {
            change(last);
        }
    }

    /// The thread.
    fn run(&self, shared: &Shared, source: &BackupSource, dir: &Path) {
        // It is a wish.
        let _ = rustix::process::nice(NICE);
        let told = UntoldEnd(self);
        let made = self.make(shared, source, dir);
        drop(told);
        match &made {
            Ok(report) => {
                let BackupReport { files, reused_files, bytes, .. } = report;
                tracing::info!(dir = %dir.display(), files, reused_files, bytes, "a backup is complete");
            }
            Err(cause) => tracing::warn!(dir = %dir.display(), %cause, "a backup wasn't made"),
        }
        self.end(made);
    }

    fn end(&self, made: Result<BackupReport, String>) {
        let mut desk = lock(&self.desk);
        if made.is_ok() {
            (desk.complete, desk.last_s) = (desk.complete + 1, now_s());
        }
        let took = desk.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        if let Some(last) = desk.all.back_mut() {
            (last.took, last.outcome) = (took, Some(made));
        }
    }

    fn make(
        &self,
        shared: &Shared,
        source: &BackupSource,
        dir: &Path,
    ) -> Result<BackupReport, String> {
        let text = |error: nigh_log::BackupError| error.to_string();
        // What can be refused is, before anybody stands.
        let mut place = RealBackupPlace::open(dir, &source.dir).map_err(text)?;
        let _held = Held(source);
        let marks = self.mark(shared, source)?;
        let meta = read_meta(&*source.world.storage).map_err(|error| error.to_string())?;
        let meta = meta.ok_or("the log has no meta")?;
        let meta = backup_meta(&meta, &marks, &*source.world.chance).map_err(text)?;
        let mut pace = Pace::new();
        let mut watch = |progress: &BackupProgress, bytes: u64| {
            self.change(|it| it.progress = *progress);
            pace.wait(bytes, shared.config().unsigned("backup-rate"), || self.is_stopped(shared));
            !self.is_stopped(shared)
        };
        make_backup(&source.world, &meta, &mut place, &mut watch).map_err(text)
    }

    /// Marks all logs at one moment, and waits until they are on disk up to there.
    fn mark(&self, shared: &Shared, source: &BackupSource) -> Result<Vec<ChainMark>, String> {
        let shards = source.logs.len();
        let mut marks = Vec::with_capacity(shards);
        let told = self.stand(shared, source)?;
        let began = Instant::now();
        while marks.len() < shards {
            match told.recv_timeout(NAP) {
                Ok(mark) => marks.push(mark.map_err(|cause| format!("a log broke: {cause}"))?),
                Err(RecvTimeoutError::Disconnected) => return Err("a log's thread ended".into()),
                Err(RecvTimeoutError::Timeout) if self.is_stopped(shared) => {
                    return Err("it was stopped before it was complete".into());
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() > MARK_MOST => {
                    return Err(format!(
                        "the log isn't on disk after {} s: see log_state in INFO persistence",
                        MARK_MOST.as_secs()
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(marks)
    }

    /// Has all shards stand, and orders the marks.
    fn stand(
        &self,
        shared: &Shared,
        source: &BackupSource,
    ) -> Result<Receiver<Result<ChainMark, String>>, String> {
        for attempt in 0..STANDS_MOST {
            let began = Instant::now();
            while attempt > 0 && began.elapsed() < STAND_PAUSE && !self.is_stopped(shared) {
                std::thread::sleep(NAP);
            }
            let (sender, told) = sync_channel(source.logs.len());
            let ordered = self.stand_once(shared, source, &sender);
            shared.still.release(OUTSIDE, |shard| shared.wake(shard));
            source.logs.iter().for_each(|log| log.want_sync());
            match ordered? {
                Some(stood) => {
                    self.change(|it| it.stood = stood);
                    return Ok(told);
                }
                None => tracing::debug!(attempt, "not all shards stood still in time"),
            }
        }
        Err(format!(
            "the shards didn't all come to the end of a turn within {} ms, {STANDS_MOST} times: a \
             function runs for long, or the machine has too much to do: try again",
            STAND_MOST.as_millis()
        ))
    }

    /// Has all shards stand, and orders the marks if all do in time; tells for how long the first
    /// of them stood at most. The caller releases them.
    fn stand_once(
        &self,
        shared: &Shared,
        source: &BackupSource,
        told: &SyncSender<Result<ChainMark, String>>,
    ) -> Result<Option<Duration>, String> {
        let (queued, mut asked) = (Instant::now(), None);
        let all = u64::MAX >> (64 - source.logs.len());
        while !shared.still.ask(OUTSIDE, TenantId::DEFAULT, all, |shard| shared.wake(shard)) {
            if self.is_stopped(shared) {
                return Err("it was stopped before it was complete".into());
            }
            if shared.still.is_asker(OUTSIDE) {
                let asked = asked.get_or_insert_with(Instant::now);
                if asked.elapsed() >= STAND_MOST {
                    return Ok(None);
                }
            } else if queued.elapsed() > QUEUE_MOST {
                return Err("functions have had other shards stand for 10 s: try again".into());
            }
            std::thread::sleep(LOOK);
        }
        let hold_bytes = shared.config().unsigned("log-hold-size");
        for (log, orders) in source.logs.iter().zip(&source.orders) {
            let what = Ordered::EndFrame(EndOrder { told: told.clone(), hold_bytes });
            if orders.try_send(LogOrder { tail: log.stood_at(), what }).is_err() {
                // It has much to do, or has ended. A mark that nobody waits for does no harm.
                return Ok(None);
            }
        }
        // A shard stands as soon as it is asked: before the first look, if all do at once.
        Ok(Some(asked.unwrap_or(queued).elapsed()))
    }
}

/// Lets go of what is held at the logs.
struct Held<'a>(&'a BackupSource);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (log, orders) in self.0.logs.iter().zip(&self.0.orders) {
            // One that has ended holds nothing.
            let _ = orders.send(LogOrder { tail: log.stood_at(), what: Ordered::LetGo });
            log.want_sync();
        }
    }
}

/// Tells the end of a backup whose thread panics.
struct UntoldEnd<'a>(&'a Backups);

impl Drop for UntoldEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Err("its thread ended by a fault of its own".into()));
        }
    }
}

/// Spreads pieces over time.
struct Pace {
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// So many bytes were moved, and so many may be in a second; 0: as many as can be.
    fn wait(&mut self, bytes: u64, rate: u64, stops: impl Fn() -> bool) {
        let now = Instant::now();
        let least = now.checked_sub(CREDIT).unwrap_or(now);
        let nanos = bytes.saturating_mul(1_000_000_000).checked_div(rate).unwrap_or(0);
        self.next = self.next.max(least) + Duration::from_nanos(nanos);
        while let Some(rest) = self.next.checked_duration_since(Instant::now())
            && !rest.is_zero()
            && !stops()
        {
            std::thread::sleep(rest.min(NAP));
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
