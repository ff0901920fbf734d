//! The thread that keeps the log: it begins, heals and ends it while the shards serve.
//!
//! ```text
//! desk ── requests ──> keeper ── asks at the seats ──> shards ── what they have ──> keeper
//!                         └── starts and ends the logs' threads; writes meta
//! ```
//!
//! 1. It waits for no shard: it looks again a little later. So a shard may wait for it.
//! 2. It ends behind the shards, and has the logs' threads write and sync what is left. If the
//!    arenas are to go, they go behind that, then the journals; unless a log lacks what these have:
//!    long values that a journal names lie in the arenas.
//!
//! One thread, `nigh-log-keeper`.

use crate::config::Config;
use crate::error::ServeError;
use crate::folder::log_folder::{self, LogFolder};
use crate::log_threads::{LogThreads, log_options, pace_of, refused, world_of};
use crate::observe::rewrites::RewriteNews;
use crate::state::backups::BackupSource;
use crate::state::log_desk::Wanted;
use crate::state::seat::{LogAsk, NewSide};
use crate::state::shared::{Shared, Stop};
use nigh_log::RealFolder;
use nigh_shm::JournalWriter;
use nigh_store::{
    AttachedShard, ClosedArenas, CompactionPace, LiveLog, LogBerth, LogKeeper, LogNews, LogPort,
    LogStatuses, LogThreadEnds, ReplayProgress, SharedStreams, StoreOptions, ThreadLog,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between looks at what is under way.
const SOON: Duration = Duration::from_millis(2);
/// Between looks at logs that may have broken.
const TICK: Duration = Duration::from_millis(200);

/// What the keeper begins with.
pub(crate) struct Keeping {
    pub(crate) keeper: LogKeeper<RealFolder>,
    pub(crate) threads: LogThreads,
    pub(crate) statuses: Option<LogStatuses>,
    pub(crate) options: StoreOptions,
}

/// The keeper's thread; dropped, it has ended.
#[derive(Default)]
pub(crate) struct KeeperHandle(Option<(JoinHandle<bool>, Arc<Shared>)>);

impl KeeperHandle {
    /// Starts it.
    pub(crate) fn spawn(keeping: Keeping, shared: &Arc<Shared>) -> Result<Self, ServeError> {
        let of = Arc::clone(shared);
        let (ready, started) = sync_channel(1);
        let run = move || {
            of.log_desk.keep();
            let _ = ready.send(());
            run(keeping, &of)
        };
        let thread = std::thread::Builder::new().name("nigh-log-keeper".to_owned()).spawn(run)?;
        // A client that is served from now on finds it.
        let _ = started.recv();
        Ok(KeeperHandle(Some((thread, Arc::clone(shared)))))
    }

    /// Has all logs write and sync what is left, and waits for that. False if a thread panicked.
    pub(crate) fn close(&mut self) -> bool {
        let Some((thread, shared)) = self.0.take() else { return true };
        shared.log_desk.end();
        thread.join().unwrap_or(false)
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(keeping: Keeping, shared: &Arc<Shared>) -> bool {
    let Keeping { mut keeper, threads, statuses, options } = keeping;
    let pace = pace_of(&shared.config());
    let mut port = ShardPort {
        shared: Arc::clone(shared),
        threads,
        pace,
        statuses,
        ends: Vec::new(),
        attached: None,
        detached: None,
        source: None,
        rounds: false,
    };
    while !shared.log_desk.ends() {
        // The end of an earlier log isn't long.
        let takes = keeper.is_off() || !keeper.is_ending();
        if let Some((client, wanted)) = takes.then(|| shared.log_desk.next()).flatten() {
            let outcome = match wanted {
                Wanted::On(config) => begin(&mut keeper, &mut port, &config, &options),
                Wanted::Off => end(&mut keeper, &mut port),
            };
            shared.log_desk.serve(client, outcome);
            shared.note_all();
        }
        // What hinders one was told to the client, or has come since.
        if shared.log_desk.take_rewrite() && keeper.rewrite().is_ok_and(|is_base| !is_base) {
            shared.log_desk.tell_rewrite(RewriteNews::Begins);
            port.rounds = true;
        }
        keeper.step(&mut port);
        if !port.is_in_round() {
            port.end_round(RewriteNews::of_round(port.statuses.as_deref().unwrap_or_default()));
        }
        let is_busy = keeper.is_busy() || port.rounds || shared.log_desk.has_requests();
        std::thread::park_timeout(if is_busy { SOON } else { TICK });
    }
    let all_well = port.threads.close();
    let closed = shared.take_arenas();
    if all_well {
        end_memory(&mut keeper, shared, closed);
    }
    all_well
}

/// Owners and threads have ended: arenas and journals go if that is wanted, and the log has what
/// they have.
fn end_memory(keeper: &mut LogKeeper<RealFolder>, shared: &Shared, closed: Vec<ClosedArenas>) {
    let removes = shared.stopping() == Some(Stop::Remove);
    match (keeper.lacks_changes(), removes) {
        (true, true) => tracing::warn!(
            "arenas and journals stay for the next start: they have changes that the log lacks"
        ),
        (true, false) => tracing::warn!(
            "the log lacks changes that arenas and journals have: keep these, and the next start \
             adds them"
        ),
        (false, true) => {
            // A start with journals alone goes by the log, which has all that these name.
            closed.into_iter().for_each(ClosedArenas::remove);
            if let Err(error) = keeper.remove_journals() {
                tracing::warn!(%error, "the journals couldn't be removed");
            }
        }
        (false, false) => {}
    }
}

/// Begins a log: refuses what a start refuses.
fn begin(
    keeper: &mut LogKeeper<RealFolder>,
    port: &mut ShardPort,
    config: &Config,
    options: &StoreOptions,
) -> Result<(), String> {
    if !keeper.is_off() {
        // Somebody else's wish.
        return Ok(());
    }
    let told = |error: ServeError| error.to_string();
    let folder = LogFolder::open(config, &options.dir).map_err(told)?;
    let (dir, is_made) = (folder.path.clone(), folder.is_made);
    let world = world_of(folder);
    let boot_id = nigh_log::boot_id().map_err(|error| error.to_string())?;
    let progress = Arc::new(|_: ReplayProgress| {});
    let log = log_options(config, port.shared.shards(), boot_id, progress);
    let why = |error| {
        LogFolder::undo(&dir, is_made);
        told(refused(&dir, error))
    };
    let (live, journals) = LiveLog::begin(options, &log, &world).map_err(why)?;
    keeper.begin(live, journals, log.mode, port).map_err(|error| error.to_string())?;
    port.set_flag("yes");
    Ok(())
}

fn end(keeper: &mut LogKeeper<RealFolder>, port: &mut ShardPort) -> Result<(), String> {
    keeper.retire(port).map_err(|error| error.to_string())?;
    port.set_flag("no");
    Ok(())
}

/// The shards, and the logs' threads.
struct ShardPort {
    shared: Arc<Shared>,
    threads: LogThreads,
    pace: CompactionPace,
    statuses: Option<LogStatuses>,
    /// By shard: what its thread gets.
    ends: Vec<LogThreadEnds>,
    attached: Option<(Receiver<AttachedShard>, Vec<AttachedShard>)>,
    detached: Option<(Receiver<()>, usize)>,
    /// What backups will be made of when the base counts.
    source: Option<BackupSource>,
    /// Whether a round of compaction is under way that somebody asked for.
    rounds: bool,
}

impl ShardPort {
    fn is_in_round(&self) -> bool {
        self.statuses.iter().flat_map(|all| all.iter()).any(|status| status.is_in_round())
    }

    /// The round of compaction is over, if one was under way.
    fn end_round(&mut self, news: RewriteNews) {
        if std::mem::take(&mut self.rounds) {
            self.shared.log_desk.tell_rewrite(news);
        }
    }

    /// The setting changes, by a client's wish or by a fault.
    fn set_flag(&self, text: &str) {
        let changed = self.shared.change_config(|config| {
            let mut config = config.clone();
            config.set("appendonly", text).map(|()| config)
        });
        if let Err(error) = changed {
            tracing::error!(%error, "appendonly can't be set");
        }
    }
}

impl LogPort<RealFolder> for ShardPort {
    fn end_threads(&mut self, abandoned: bool) {
        self.source = None;
        // Their threads can't tell its end: else a base behind it passed for it.
        self.end_round(RewriteNews::Stops);
        self.shared.backups.detach();
        for status in self.statuses.iter().flat_map(|all| all.iter()) {
            if abandoned { status.abandon() } else { status.close() }
        }
    }

    fn threads_ended(&mut self) -> bool {
        self.threads.have_ended()
    }

    fn attach(&mut self, berths: Vec<LogBerth>, journals: Vec<JournalWriter>, logs: LogStatuses) {
        let (done, attached) = sync_channel(berths.len());
        let mut journals = journals.into_iter();
        self.ends.clear();
        for berth in berths {
            let (ends, compaction) = LogThreadEnds::new();
            self.ends.push(ends);
            let (journal, statuses, done) = (journals.next(), Arc::clone(&logs), done.clone());
            let ask =
                LogAsk::Attach(Box::new(NewSide { berth, journal, statuses, compaction, done }));
            self.shared.seats[berth.shard].ask_of_log(ask);
        }
        self.attached = Some((attached, Vec::new()));
        self.statuses = Some(logs);
    }

    fn attached(&mut self) -> Option<Vec<AttachedShard>> {
        let (coming, there) = self.attached.as_mut()?;
        there.extend(coming.try_iter());
        if there.len() < self.shared.shards() {
            return None;
        }
        self.attached.take().map(|(_, there)| there)
    }

    fn spawn(&mut self, logs: Vec<ThreadLog<RealFolder>>, streams: &Arc<SharedStreams>) {
        let world = logs.first().map(|log| log.world.clone());
        for (log, ends) in logs.into_iter().zip(std::mem::take(&mut self.ends)) {
            self.threads.spawn(log, ends, streams, self.pace, &self.shared);
        }
        let dir = log_folder::path_of(&self.shared.config()).ok();
        let logs = self.statuses.clone();
        self.source = world.zip(dir).zip(logs).map(|((world, dir), logs)| BackupSource {
            world,
            dir,
            logs,
            orders: self.threads.orders.clone(),
        });
    }

    fn detach(&mut self) {
        let (done, detached) = sync_channel(self.shared.shards());
        for seat in &self.shared.seats {
            seat.ask_of_log(LogAsk::Detach(done.clone()));
        }
        self.detached = Some((detached, 0));
    }

    fn detached(&mut self) -> bool {
        let Some((coming, there)) = &mut self.detached else { return true };
        *there += coming.try_iter().count();
        *there == self.shared.shards()
    }

    fn tell(&mut self, news: &LogNews) {
        let desk = &self.shared.log_desk;
        match news {
            LogNews::BaseBegins(None) => {
                desk.tell_rewrite(RewriteNews::Begins);
                tracing::info!("a log begins: it counts when it has all that memory has");
            }
            LogNews::BaseBegins(Some(cause)) => {
                desk.tell_rewrite(RewriteNews::Begins);
                tracing::warn!(%cause, "the log broke: a new one is written from memory");
            }
            LogNews::Counts => {
                desk.tell_rewrite(RewriteNews::Ends);
                tracing::info!("the new log has all that memory has, and counts");
                if let Some(source) = self.source.take() {
                    self.shared.backups.attach(source);
                }
                // Replies may wait for it from now on.
                self.shared.settings_changed();
                self.shared.tell_synced();
            }
            LogNews::BaseFailed(cause) => {
                desk.tell_rewrite(RewriteNews::Fails(cause.clone()));
                let again = "it is tried again in 10 seconds, or by BGREWRITEAOF";
                tracing::error!(%cause, "the new log couldn't be written: {again}");
            }
            LogNews::Off(None) => {
                desk.tell_rewrite(RewriteNews::Stops);
                tracing::info!("the log is retired, its files are removed");
            }
            LogNews::Off(Some(cause)) => {
                desk.tell_rewrite(RewriteNews::Fails(cause.clone()));
                self.set_flag("no");
                tracing::error!(%cause, "the log couldn't begin: appendonly is no again");
            }
            LogNews::Left(cause) => {
                tracing::warn!(%cause, "files of the old log are left: the next start removes them");
            }
        }
    }
}
