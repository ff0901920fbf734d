//! The log of a server: its folder, and a thread for each shard's.
//!
//! 1. The folder is locked from before it is looked at until the last thread has ended.
//! 2. The threads end behind the shards: they write and sync what is left in the journals.
//!
//! The thread that starts the server; the keeper's.

pub(crate) mod log_keeper;
mod sync_thread;

use crate::config::Config;
use crate::error::ServeError;
use crate::folder::log_folder::{self, LogFolder, last_place};
use crate::loading::LoadingState;
use crate::state::backups::BackupSource;
use crate::state::shared::Shared;
use nigh_log::{LogSettings, RealChance, RealClock, RealFolder, World, boot_id, look_at_meta};
use nigh_shm::{Domain, JournalWriter};
use nigh_store::{
    CompactionPace, Keyspace, LiveLog, LogHealth, LogOptions, LogOrder, LogRunner, LogStatus,
    LogThread, LogThreadEnds, LogThreadParts, Opened, OpenedLog, ReplayProgress, ShardCompaction,
    ShardLog, SharedStreams, StartReport, StoreError, StoreOptions, ThreadLog, log_of,
    remove_journals, retire_log,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Instant;
use sync_thread::SyncThread;

/// Bytes between two lines that tell how far a replay is.
const TELL_BYTES: u64 = 1 << 30;

/// A log that was opened, and whose threads don't run yet.
pub(crate) struct ServerLog {
    pub(crate) opened: OpenedLog<RealFolder>,
    live: LiveLog<RealFolder>,
    pace: CompactionPace,
}

/// What a shard has of its log: its side of the journal, and its part of compaction.
pub(crate) type ShardSide = (JournalWriter, ShardCompaction);

/// The threads of all shards' logs.
#[derive(Default)]
pub(crate) struct LogThreads {
    threads: Vec<(JoinHandle<()>, Arc<LogStatus>)>,
    /// By shard: orders to its thread, which takes it for its end if this is dropped.
    orders: Vec<SyncSender<LogOrder>>,
    /// One ended by a panic.
    panicked: bool,
}

impl ServerLog {
    /// Opens the log that the settings name, and the keyspace that it has the changes of.
    pub(crate) fn open(
        config: &Config,
        options: &StoreOptions,
        shards: usize,
        domain: &Arc<Domain>,
        loading: &Arc<LoadingState>,
    ) -> Result<(Keyspace, Opened, ServerLog), ServeError> {
        let folder = LogFolder::open(config, &options.dir)?;
        let (dir, is_made) = (folder.path.clone(), folder.is_made);
        let world = world_of(folder);
        let began = Instant::now();
        let (told, loading) = (AtomicU64::new(0), Arc::clone(loading));
        let progress = Arc::new(move |progress| {
            loading.tell(progress);
            tell(&told, progress);
        });
        let settings = log_options(config, shards, boot_id()?, progress);
        let opened = Keyspace::open_with_log(options, &settings, &world, domain);
        let (keyspace, opened, log) = opened.map_err(|error| {
            // The folder is held by `world` until this returns.
            LogFolder::undo(&dir, is_made);
            refused_start(&dir, &options.dir, error)
        })?;
        tell_start(&log.report, &dir, began);
        let live = LiveLog::of_start(&log, options, &settings);
        Ok((keyspace, opened, ServerLog { opened: log, live, pace: pace_of(config) }))
    }

    /// By shard: what all threads see of the logs.
    pub(crate) fn statuses(&self) -> Arc<[Arc<LogStatus>]> {
        self.opened.shards.iter().map(|shard| Arc::clone(&shard.log.status)).collect()
    }

    /// Starts the threads. Gives, by shard, what that has of its log; and the log for its keeper.
    pub(crate) fn spawn(
        self,
        shared: &Arc<Shared>,
    ) -> Result<(LogThreads, Vec<ShardSide>, LiveLog<RealFolder>), ServeError> {
        let logs = self.statuses();
        let OpenedLog { world, shards, streams, .. } = self.opened;
        let (mut all, mut sides) = (LogThreads::default(), Vec::new());
        for ShardLog { journal, log } in shards {
            let (ends, compaction) = LogThreadEnds::new();
            sides.push((journal, compaction));
            all.spawn(log, ends, &streams, self.pace, shared);
        }
        shared.backups.attach(BackupSource {
            world,
            dir: log_folder::path_of(&shared.config())?,
            logs,
            orders: all.orders.clone(),
        });
        Ok((all, sides, self.live))
    }
}

impl LogThreads {
    /// Starts the thread of a shard's log. One that can't be started is a log that is broken.
    pub(crate) fn spawn(
        &mut self,
        log: ThreadLog<RealFolder>,
        ends: LogThreadEnds,
        streams: &Arc<SharedStreams>,
        pace: CompactionPace,
        shared: &Arc<Shared>,
    ) {
        let (number, status) = (log.writer.chain().shard as usize, Arc::clone(&log.status));
        let (woken, synced) = (Arc::clone(shared), Arc::clone(shared));
        let thread = LogThread::new(LogThreadParts {
            log,
            streams: Arc::clone(streams),
            orders: ends.orders,
            looks: (ends.looks, Arc::new(move || woken.seats[number].wake())),
            pace,
            wake_shards: Arc::new(move || synced.tell_synced()),
        });
        let spawned = SyncThread::spawn(number, Arc::clone(&status)).and_then(|syncer| {
            let runner = LogRunner::new(thread.with_syncer(Box::new(syncer)));
            let run = move || runner.run();
            std::thread::Builder::new().name(format!("nigh-log-{number}")).spawn(run)
        });
        match spawned {
            Ok(thread) => {
                self.threads.push((thread, status));
                self.orders.push(ends.sender);
            }
            Err(error) => {
                let cause = format!("its thread can't be started: {error}");
                status.tell_health(LogHealth::Broken, cause);
                shared.tell_synced();
            }
        }
    }

    /// Whether all have ended, by themselves or since they were told to.
    pub(crate) fn have_ended(&mut self) -> bool {
        if self.threads.iter().any(|(thread, _)| !thread.is_finished()) {
            return false;
        }
        self.join();
        true
    }

    fn join(&mut self) {
        for (thread, _) in self.threads.drain(..) {
            self.panicked |= thread.join().is_err();
        }
        self.orders.clear();
    }

    /// Has all threads write and sync what is left, and waits for them. False if one panicked.
    pub(crate) fn close(&mut self) -> bool {
        self.threads.iter().for_each(|(_, status)| status.close());
        self.join();
        !self.panicked
    }
}

impl Drop for LogThreads {
    fn drop(&mut self) {
        self.close();
    }
}

/// Sees to a log that arenas have which are to be served without, or to go: it is retired. A log of
/// the folder stays if no arena names it: it may be another server's. If arenas are to go whose log
/// isn't in the folder, only their journals go: nothing is left of them to be retired.
pub(crate) fn retire_logged(config: &Config, options: &StoreOptions) -> Result<(), ServeError> {
    let dir = log_folder::path_of(config)?;
    let told = |error| refused(&dir, error);
    let log = log_of(&options.dir).map_err(told)?;
    if options.fresh {
        let there = match log_in(&dir) {
            Err(error) if log.is_none() => {
                tracing::warn!(dir = %dir.display(), "what is here isn't read, and stays: {error}");
                None
            }
            there => there.map_err(told)?,
        };
        let stays = there.filter(|(id, counts)| *counts && log != Some(*id)).is_some();
        if stays {
            tracing::warn!(
                dir = %dir.display(),
                "a log that isn't of the arenas stays, and a start with it has its keys: remove its \
                 folder to be rid of it"
            );
        }
        if log.is_some() && log != there.map(|(id, _)| id) {
            tracing::warn!(
                dir = %dir.display(),
                "the log of the arenas isn't here: if it is elsewhere, it keeps its keys"
            );
            return remove_journals(&options.dir).map_err(told);
        }
    }
    let Some(id) = log else { return Ok(()) };
    let world = world_of(LogFolder::open(config, &options.dir)?);
    retire_log(options, id, &boot_id()?, &world).map_err(told)?;
    tracing::warn!(dir = %dir.display(), "appendonly is no: the log is retired, its files are removed");
    Ok(())
}

/// The id of the log in a folder, if there is one, and whether it counts. Nothing is changed.
fn log_in(dir: &Path) -> Result<Option<([u8; 16], bool)>, StoreError> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let meta = look_at_meta(&RealFolder::open_to_read(dir)?)?;
    // One with a mark is a backup.
    Ok(meta.filter(|meta| meta.mark.is_none()).map(|meta| (meta.id, !meta.chains.is_empty())))
}

/// The settings of a log.
pub(crate) fn log_options(
    config: &Config,
    shards: usize,
    boot_id: [u8; 16],
    progress: Arc<dyn Fn(ReplayProgress) + Send + Sync>,
) -> LogOptions {
    LogOptions {
        shards,
        settings: LogSettings { file_bytes: config.unsigned("log-file-size") },
        journal_bytes: config.unsigned("journal-size").next_power_of_two(),
        mode: config.sync_mode(),
        boot_id,
        progress,
    }
}

/// When logs are compacted.
pub(crate) fn pace_of(config: &Config) -> CompactionPace {
    CompactionPace {
        garbage_percent: config.unsigned("log-garbage"),
        max_bytes: config.unsigned("log-max-size"),
        file_bytes: config.unsigned("log-file-size"),
    }
}

/// The log's folder, clock and chance.
pub(crate) fn world_of(folder: LogFolder) -> World<RealFolder> {
    World {
        storage: Arc::new(folder.real),
        clock: Arc::new(RealClock::new()),
        chance: Arc::new(RealChance),
    }
}

pub(crate) fn refused(dir: &Path, error: StoreError) -> ServeError {
    ServeError::Store(match error {
        StoreError::Log(error) => format!("the log in {}: {error}", dir.display()),
        error => error.to_string(),
    })
}

/// The same of a start that goes by the log, with what to do about a damaged one.
fn refused_start(dir: &Path, arenas: &Path, error: StoreError) -> ServeError {
    if let StoreError::Partitions { found, wanted, .. } = error {
        let (log, arenas) = (dir.display(), arenas.display());
        return ServeError::Store(format!(
            "the log in {log} holds data in {found} partition(s), and {wanted} were asked for: start \
             with --partitions {found}, or convert the data first with `nigh convert --dir {log} \
             --shm-dir {arenas} --partitions {wanted}`"
        ));
    }
    if matches!(error, StoreError::LogMissing { .. } | StoreError::OtherLog { .. }) {
        return ServeError::Store(format!("{error}{}", last_place(arenas, dir)));
    }
    let is_damage = error.is_log_damage();
    let ServeError::Store(text) = refused(dir, error) else { unreachable!("it is of the store") };
    if !is_damage {
        return ServeError::Store(text);
    }
    // Memory that survived has more than a salvage of the log has.
    let first = match log_of(arenas) {
        Ok(Some(_)) => format!(
            "if all arenas in {} are whole and of this boot, --appendonly no goes on with them and \
             retires this log; else ",
            arenas.display()
        ),
        _ => String::new(),
    };
    ServeError::Store(format!(
        "{text}: {first}restore a backup, or save what is whole into another folder with `nigh check \
         {} --salvage NEW`",
        dir.display()
    ))
}

/// Tells how far a replay is, now and then.
fn tell(told: &AtomicU64, progress: ReplayProgress) {
    let ReplayProgress { read_bytes, all_bytes } = progress;
    let before = told.load(Relaxed);
    let due = read_bytes >= before + TELL_BYTES;
    if due && told.compare_exchange(before, read_bytes, Relaxed, Relaxed).is_ok() {
        let percent = (read_bytes * 100).checked_div(all_bytes).unwrap_or(100);
        tracing::info!(read_bytes, all_bytes, percent, "reading the log");
    }
}

fn tell_start(report: &StartReport, dir: &Path, began: Instant) {
    for (shard, torn) in &report.torn {
        let (file, position, bytes) = (torn.at.file, torn.at.position, torn.bytes);
        tracing::warn!(shard, file, position, bytes, "the log's torn tail was cut off");
    }
    for aside in &report.set_aside {
        let file = aside.display();
        tracing::warn!(%file, "an arena that was damaged, or lacked what the log has, was built anew from the log");
    }
    for stray in &report.strays {
        let file = stray.display();
        tracing::warn!(%file, "an arena that a conversion had left was removed: the log has its keys");
    }
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let StartReport { adopted, rebuilt, completed, replayed_bytes, base, .. } = report;
    tracing::info!(
        dir = %dir.display(), adopted, rebuilt, completed, replayed_bytes, ms,
        base = ?base, "the log is open"
    );
}
