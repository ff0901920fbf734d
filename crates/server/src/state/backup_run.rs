//! The thread that makes a backup: it has all shards stand, orders marks, and copies.
//!
//! ```text
//! all shards stand ── marks ordered ── they go on ── marks told ── copy, at its pace ── rename
//!      (at most 100 ms)                                (a sync)      (minutes)
//! ```
//!
//! 1. All shards stand while the marks are ordered: no change of any falls between two of them.
//!    They stand for [`STAND_MOST`] at a time, and go on whether all have come by then or not.
//! 2. What is held for it at the logs is let go, however it ends, without waiting for their
//!    threads. One of them may wait for room on a disk for ever, and the keeper that ends it waits
//!    for this thread.
//! 3. It gives way to the other threads, and moves no more bytes in a second than `backup-rate`.
//!
//! Belongs to the thread.

use crate::state::backups::BackupSource;
use crate::state::shared::Shared;
use crate::state::still::OUTSIDE;
use crate::sync::OnDrop;
use crate::tenant::TenantId;
use nigh_log::{
    BackupError, BackupProgress, BackupReport, ChainMark, RealBackupPlace, backup_meta,
    make_backup, read_meta,
};
use nigh_store::{EndOrder, LogOrder, Ordered};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

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

/// Begins a backup into a folder; gives its number. An error is a sentence that says why there can
/// be none.
pub(crate) fn begin(shared: &Arc<Shared>, dir: PathBuf) -> Result<u64, String> {
    if shared.stopping().is_some() {
        return Err("the server ends".into());
    }
    shared.backups.begin(dir, |source, dir| {
        let shared = Arc::clone(shared);
        let run = move || BackupRun { shared: &shared, source: &source }.run(&dir);
        std::thread::Builder::new().name("nigh-backup".into()).spawn(run)
    })
}

/// A backup that is made.
#[derive(Clone, Copy)]
struct BackupRun<'a> {
    shared: &'a Shared,
    source: &'a BackupSource,
}

impl BackupRun<'_> {
    fn is_stopped(&self) -> bool {
        self.shared.backups.is_cancelled() || self.shared.stopping().is_some()
    }

    /// The thread.
    fn run(self, dir: &Path) {
        // It is a wish.
        let _ = rustix::process::nice(NICE);
        let told = OnDrop(|| {
            if std::thread::panicking() {
                self.shared.backups.end(Err("its thread ended by a fault of its own".into()));
            }
        });
        let made = self.make(dir);
        drop(told);
        match &made {
            Ok(report) => {
                let BackupReport { files, reused_files, bytes, .. } = report;
                tracing::info!(dir = %dir.display(), files, reused_files, bytes, "a backup is complete");
            }
            Err(cause) => tracing::warn!(dir = %dir.display(), %cause, "a backup wasn't made"),
        }
        self.shared.backups.end(made);
    }

    fn make(&self, dir: &Path) -> Result<BackupReport, String> {
        let (shared, source) = (self.shared, self.source);
        let text = |error| told_of(dir, &error);
        // What can be refused is, before anybody stands.
        let mut place = RealBackupPlace::open(dir, &source.dir).map_err(text)?;
        let _told = OnDrop(|| source.logs.iter().for_each(|log| log.want_sync()));
        let held = Arc::new(());
        let marks = self.mark(&held)?;
        let meta = read_meta(&*source.world.storage).map_err(|error| error.to_string())?;
        let meta = meta.ok_or("the log has no meta")?;
        let meta = backup_meta(&meta, &marks, &*source.world.chance).map_err(text)?;
        let mut pace = Pace { next: Instant::now() };
        let mut watch = |progress: &BackupProgress, bytes: u64| {
            shared.backups.change(|it| it.progress = *progress);
            pace.wait(bytes, shared.config().unsigned("backup-rate"), || self.is_stopped());
            !self.is_stopped()
        };
        make_backup(&source.world, &meta, &mut place, &mut watch).map_err(text)
    }

    /// Marks all logs at one moment, and waits until they are on disk up to there.
    fn mark(&self, held: &Arc<()>) -> Result<Vec<ChainMark>, String> {
        let shards = self.source.logs.len();
        let mut marks = Vec::with_capacity(shards);
        let told = self.stand(held)?;
        let began = Instant::now();
        while marks.len() < shards {
            match told.recv_timeout(NAP) {
                Ok(mark) => marks.push(mark.map_err(|cause| format!("a log broke: {cause}"))?),
                Err(RecvTimeoutError::Disconnected) => return Err("a log's thread ended".into()),
                Err(RecvTimeoutError::Timeout) if self.is_stopped() => {
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
    fn stand(&self, held: &Arc<()>) -> Result<Receiver<Result<ChainMark, String>>, String> {
        let (shared, source) = (self.shared, self.source);
        for attempt in 0..STANDS_MOST {
            let began = Instant::now();
            while attempt > 0 && began.elapsed() < STAND_PAUSE && !self.is_stopped() {
                std::thread::sleep(NAP);
            }
            let (sender, told) = sync_channel(source.logs.len());
            let ordered = self.stand_once(&sender, held);
            shared.still.release(OUTSIDE, |shard| shared.wake(shard));
            source.logs.iter().for_each(|log| log.want_sync());
            match ordered? {
                Some(stood) => {
                    shared.backups.change(|it| it.stood = stood);
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
        told: &SyncSender<Result<ChainMark, String>>,
        held: &Arc<()>,
    ) -> Result<Option<Duration>, String> {
        let (shared, source) = (self.shared, self.source);
        let (queued, mut asked) = (Instant::now(), None);
        let all = u64::MAX >> (64 - source.logs.len());
        while !shared.still.ask(OUTSIDE, TenantId::DEFAULT, all, |shard| shared.wake(shard)) {
            if self.is_stopped() {
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
            let (told, holder) = (told.clone(), Arc::downgrade(held));
            let what = Ordered::EndFrame(EndOrder { told, hold_bytes, holder });
            if orders.try_send(LogOrder { tail: log.stood_at(), what }).is_err() {
                // It has much to do, or has ended. A mark that nobody waits for does no harm.
                return Ok(None);
            }
        }
        // A shard stands as soon as it is asked: before the first look, if all do at once.
        Ok(Some(asked.unwrap_or(queued).elapsed()))
    }
}

/// What is told of an error: of what is wrong where the copy is made, its folder too.
fn told_of(dir: &Path, error: &BackupError) -> String {
    match error {
        BackupError::NoRoom { .. } | BackupError::Target(_) | BackupError::NotWhole(_) => {
            format!("{}: {error}", dir.display())
        }
        _ => error.to_string(),
    }
}

/// Spreads pieces over time.
struct Pace {
    next: Instant,
}

impl Pace {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::folder::starts::Skips;
    use crate::state::seat::Seat;
    use mio::{Poll, Token, Waker};
    use nigh_log::{RealChance, RealClock, RealFolder, World};
    use nigh_store::{LogStatus, SyncMode};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    const SHARDS: usize = 2;
    /// Of each shard's journal, when it stands.
    const TAILS: [u64; SHARDS] = [7, 9];

    /// Shards, and what backups of them are made of; what the shards' logs are ordered, of which
    /// so many wait.
    fn shards(dir: &Path, most: usize) -> (Arc<Shared>, BackupSource, Vec<Receiver<LogOrder>>) {
        let polls: Vec<Poll> = (0..SHARDS).map(|_| Poll::new().expect("a poll")).collect();
        let waker = |poll: &Poll| Waker::new(poll.registry(), Token(0)).expect("a waker");
        let seats = polls.iter().map(|poll| Seat::new(Arc::new(waker(poll)))).collect();
        let skips = Skips::open(dir).expect("a folder");
        let shared = Shared::new(seats, Config::default(), 0, 100, String::new(), skips);
        let (orders, ordered): (Vec<_>, Vec<_>) = (0..SHARDS).map(|_| sync_channel(most)).unzip();
        let log = dir.join("log");
        let storage = Arc::new(RealFolder::open(&log, true).expect("a folder"));
        let source = BackupSource {
            world: World {
                storage,
                clock: Arc::new(RealClock::new()),
                chance: Arc::new(RealChance),
            },
            dir: log,
            logs: (0..SHARDS).map(|_| Arc::new(LogStatus::new(SyncMode::EverySecond))).collect(),
            orders,
        };
        (shared, source, ordered)
    }

    /// The log's threads wait for room on a full disk, and take no orders. The backup's thread
    /// waited for them, so the log couldn't be ended, nor the server.
    #[test]
    fn the_end_of_a_backup_waits_for_no_log() {
        let dir = tempfile::tempdir().expect("a folder");
        let (shared, source, _ordered) = shards(dir.path(), 0);
        shared.backups.detach();
        let (told, ended) = channel();
        let into = dir.path().join("backup");
        std::thread::spawn(move || {
            let made = BackupRun { shared: &shared, source: &source }.make(&into);
            let _ = told.send(made.map(drop));
        });
        let made = ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert_eq!(made, Err("it was stopped before it was complete".to_owned()));
    }

    /// One shard stands as soon as it is asked, the other's turn lasts for long. No mark is ordered
    /// then: a change could fall between the two. When both stand, one is, at what they stand at.
    #[test]
    fn no_mark_is_ordered_before_all_shards_stand() {
        let dir = tempfile::tempdir().expect("a folder");
        let (shared, source, ordered) = shards(dir.path(), 4);
        let run = BackupRun { shared: &shared, source: &source };
        let held = Arc::new(());
        let (told, _marks) = sync_channel(SHARDS);
        let (is_long, ends) = (AtomicBool::new(true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (shared, source, is_long, ends) = (&shared, &source, &is_long, &ends);
            for (shard, tail) in TAILS.into_iter().enumerate() {
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        let is_busy = shard == 1 && is_long.load(Ordering::Relaxed);
                        if shared.still.wants(shard) && !is_busy {
                            source.logs[shard].tell_stand(tail);
                            shared.still.stand(shard, TenantId::DEFAULT, |_| (), || false);
                        }
                        std::thread::yield_now();
                    }
                });
            }
            let _ended = OnDrop(|| {
                ends.store(true, Ordering::Relaxed);
                shared.still.release(OUTSIDE, |_| ());
            });
            let stood = run.stand_once(&told, &held).expect("it isn't stopped");
            assert!(stood.is_none(), "one doesn't stand");
            shared.still.release(OUTSIDE, |_| ());
            assert!(ordered.iter().all(|orders| orders.try_recv().is_err()), "a mark is ordered");
            is_long.store(false, Ordering::Relaxed);
            // On a busy machine they may not come in time.
            let mut tries = (0..100).map(|_| {
                let stood = run.stand_once(&told, &held).expect("it isn't stopped");
                shared.still.release(OUTSIDE, |_| ());
                stood
            });
            assert!(tries.any(|stood| stood.is_some()), "both stand");
            for (orders, tail) in ordered.iter().zip(TAILS) {
                let order = orders.try_recv().expect("a mark is ordered");
                assert!(matches!(order.what, Ordered::EndFrame(_)) && order.tail == tail);
                assert!(orders.try_recv().is_err(), "no other");
            }
        });
    }
}
