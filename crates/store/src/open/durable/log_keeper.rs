//! The keeper of the log has it begin, heal and end while the server serves, a step at a time.
//!
//! ```text
//! Off ── begin ──> Attaches ──> Writes ── named ──> Counts ── a log broke ──> Ends ──> Attaches
//!  ^                  │            │                                           ^
//!  │                  └──> Fails <─┘── something counts: Broken ── in 10 s ────┘
//!  │                         └── nothing does ──┐
//!  └── Leaves <── Retires <── retire ───────────┘
//! ```
//!
//! 1. No step waits: what owners and threads have to do is asked for, and looked at later.
//! 2. Threads have ended before what they read goes, or is read by others.
//! 3. A base that fails is tried again, if something counted before, at most every ten seconds: it
//!    writes all that memory has. Without, the log ends, and the server is as before.
//!
//! One thread, which belongs to the log. Rules: docs/formats/log.md, Bases.

use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::log_thread::ThreadLog;
use crate::durability::streams::SharedStreams;
use crate::durability::sync_mode::SyncMode;
use crate::error::StoreError;
use crate::open::durable::attached::{AttachedShard, LogBerth};
use crate::open::durable::live_log::{BaseLook, LiveFault, LiveLog};
use nigh_log::Storage;
use nigh_shm::JournalWriter;
use std::sync::Arc;

/// Between the beginnings of two bases that take the place of a broken log, µs.
const AGAIN_US: u64 = 10_000_000;

/// The states of all shards' logs, by shard.
pub type LogStatuses = Arc<[Arc<LogStatus>]>;

/// The owners, and the threads of their logs.
pub trait LogPort<S: Storage> {
    /// Has all threads end: when they have written what is left, or, `abandoned`, at once.
    fn end_threads(&mut self, abandoned: bool);

    /// Whether none is left.
    fn threads_ended(&mut self) -> bool;

    /// Asks all owners to begin a base: see [`crate::Keyspace::begin_base`]. `journals` are theirs
    /// from now on, by shard, if they have none.
    fn attach(&mut self, berths: Vec<LogBerth>, journals: Vec<JournalWriter>, logs: LogStatuses);

    /// What they had then, once all have done it. Gives it once.
    fn attached(&mut self) -> Option<Vec<AttachedShard>>;

    /// Starts the threads of a base.
    fn spawn(&mut self, logs: Vec<ThreadLog<S>>, streams: &Arc<SharedStreams>);

    /// Asks all owners to leave the log: see [`crate::Keyspace::leave_log`].
    fn detach(&mut self);

    /// Whether all have done it.
    fn detached(&mut self) -> bool;

    /// Something has happened that others should know.
    fn tell(&mut self, news: &LogNews);
}

/// What a keeper tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogNews {
    /// A base begins; why, if a log broke.
    BaseBegins(Option<String>),
    /// It counts.
    Counts,
    /// It failed, by this cause; it is tried again.
    BaseFailed(String),
    /// There is no log any more; why, if its base failed.
    Off(Option<String>),
    /// Files or journals can't be removed.
    Left(String),
}

/// What is asked of a keeper in vain.
#[derive(Debug, thiserror::Error)]
pub enum KeeperRefusal {
    /// A log is there, or is ending.
    #[error("the log that was there is still ending: try again")]
    Ending,
    /// A base is being written.
    #[error("Background append only file rewriting already in progress")]
    InProgress,
    /// There is none.
    #[error("there is no log to rewrite: appendonly is no")]
    Off,
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log isn't retired.
    #[error(transparent)]
    Retire(#[from] LiveFault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Off,
    Counts,
    /// The threads of a log that broke end, by this cause.
    Ends(String),
    Attaches,
    Writes,
    /// The threads of a base that failed end.
    Fails(String),
    Broken(String),
    /// The threads of a log that is retired end.
    Retires,
    /// Owners leave it; why, if its base failed.
    Leaves(Option<String>),
}

/// See the header of this file.
pub struct LogKeeper<S: Storage> {
    live: Option<LiveLog<S>>,
    mode: SyncMode,
    statuses: LogStatuses,
    stage: Stage,
    /// When the next base may begin, µs of the log's clock.
    next_base_us: u64,
}

impl<S: Storage> LogKeeper<S> {
    /// Without a log.
    #[must_use]
    pub fn off() -> Self {
        LogKeeper {
            live: None,
            mode: SyncMode::EverySecond,
            statuses: Arc::new([]),
            stage: Stage::Off,
            next_base_us: 0,
        }
    }

    /// With a log that a start has opened.
    #[must_use]
    pub fn of_start(live: LiveLog<S>, statuses: LogStatuses, mode: SyncMode) -> Self {
        LogKeeper { live: Some(live), mode, statuses, stage: Stage::Counts, next_base_us: 0 }
    }

    /// Whether there is no log, and nothing is left of an earlier one.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.stage == Stage::Off
    }

    /// Whether a step is due soon: something is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Off | Stage::Counts | Stage::Broken(_))
    }

    /// Whether the log is retired, and something is left of it.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Retires | Stage::Leaves(_) | Stage::Fails(_))
    }

    /// Begins a log. It counts later, or [`LogNews::Off`] says that it doesn't.
    ///
    /// # Errors
    /// One is there; or meta can't be written. All is as it was.
    pub fn begin(
        &mut self,
        mut live: LiveLog<S>,
        journals: Vec<JournalWriter>,
        mode: SyncMode,
        port: &mut dyn LogPort<S>,
    ) -> Result<(), KeeperRefusal> {
        if self.stage != Stage::Off {
            return Err(KeeperRefusal::Ending);
        }
        if let Err(error) = live.begin_base() {
            let _ = live.remove_journals();
            return Err(error.into());
        }
        (self.live, self.mode) = (Some(live), mode);
        self.attach(None, journals, port);
        Ok(())
    }

    /// Ends the log: when this returns, no state of it can return.
    ///
    /// # Errors
    /// It isn't retired.
    pub fn retire(&mut self, port: &mut dyn LogPort<S>) -> Result<(), KeeperRefusal> {
        if matches!(self.stage, Stage::Off | Stage::Retires | Stage::Leaves(_)) {
            return Ok(());
        }
        let Some(live) = &mut self.live else { return Ok(()) };
        live.retire(&self.statuses)?;
        port.end_threads(true);
        self.stage = Stage::Retires;
        Ok(())
    }

    /// Begins a base in place of a broken log now, or has a log that is well compacted. True: a
    /// base.
    ///
    /// # Errors
    /// There is no log, or a base is under way.
    pub fn rewrite(&mut self) -> Result<bool, KeeperRefusal> {
        match self.stage {
            Stage::Off | Stage::Retires | Stage::Leaves(_) => Err(KeeperRefusal::Off),
            Stage::Counts if !self.is_broken() => {
                self.statuses.iter().for_each(|status| status.want_round());
                Ok(false)
            }
            Stage::Counts | Stage::Broken(_) => {
                self.next_base_us = 0;
                Ok(true)
            }
            _ => Err(KeeperRefusal::InProgress),
        }
    }

    /// Removes the journals of a server that has ended and removed its arenas: owners and threads
    /// have ended. False: the log lacks what they have, so they stay, and the arenas should too.
    ///
    /// # Errors
    /// The folder can't be changed.
    pub fn remove_journals(&mut self) -> Result<bool, StoreError> {
        if self.lacks_changes() {
            return Ok(false);
        }
        self.live.as_mut().map_or(Ok(()), LiveLog::remove_journals).map(|()| true)
    }

    /// Whether a log counts which may lack what the journals have: one that broke, or that had no
    /// room at its end. Owners and threads have ended.
    #[must_use]
    pub fn lacks_changes(&self) -> bool {
        let is_retired = matches!(self.stage, Stage::Retires | Stage::Leaves(_));
        let is_well = self.stage == Stage::Counts && !self.is_broken();
        let counts = |live: &&LiveLog<S>| live.counts() && !is_retired;
        self.live.as_ref().filter(counts).is_some_and(|live| !is_well || !live.has_all())
    }

    fn is_broken(&self) -> bool {
        self.statuses.iter().any(|status| status.health() == LogHealth::Broken)
    }

    /// A step, as far as nobody has to be waited for.
    pub fn step(&mut self, port: &mut dyn LogPort<S>) {
        let Some(live) = &self.live else { return };
        let now_us = live.world().clock.rising_us();
        let is_due = now_us >= self.next_base_us;
        match &self.stage {
            Stage::Counts if is_due => {
                let broken = self.statuses.iter().find(|it| it.health() == LogHealth::Broken);
                if let Some(broken) = broken {
                    let cause = broken.cause();
                    // Nobody writes what is changed from the end of the threads on.
                    self.statuses.iter().for_each(|status| status.heals_from_now(&cause));
                    self.stage = Stage::Ends(cause);
                    port.end_threads(false);
                }
            }
            Stage::Broken(cause) if is_due => self.stage = Stage::Ends(cause.clone()),
            Stage::Ends(cause) if port.threads_ended() => {
                let cause = cause.clone();
                self.next_base_us = now_us + AGAIN_US;
                self.begin_again(cause, port);
            }
            Stage::Attaches => {
                if let Some(attached) = port.attached() {
                    self.begin_chains(attached, port);
                }
            }
            Stage::Writes => self.look_at_base(port),
            Stage::Fails(cause) if port.threads_ended() => {
                let cause = cause.clone();
                self.drop_base(cause, port);
            }
            Stage::Retires if port.threads_ended() => self.leave(None, port),
            Stage::Leaves(cause) if port.detached() => {
                let cause = cause.clone();
                self.forget(cause, port);
            }
            Stage::Off
            | Stage::Counts
            | Stage::Broken(_)
            | Stage::Ends(_)
            | Stage::Fails(_)
            | Stage::Retires
            | Stage::Leaves(_) => {}
        }
    }

    /// The threads of a log that broke have ended: a base begins in its place.
    fn begin_again(&mut self, cause: String, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        match live.begin_base() {
            Ok(()) => self.attach(Some(cause), Vec::new(), port),
            Err(error) => self.stays_broken(error.to_string(), port),
        }
    }

    /// All owners have attached: the threads of the base begin.
    fn begin_chains(&mut self, attached: Vec<AttachedShard>, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        match live.begin_chains(attached, &self.statuses) {
            Ok((logs, streams)) => {
                port.spawn(logs, &streams);
                self.stage = Stage::Writes;
            }
            Err(error) => self.fail(error.to_string(), port),
        }
    }

    /// Names the base if it is whole: then it counts.
    fn look_at_base(&mut self, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        match live.look(&self.statuses) {
            BaseLook::Goes => {}
            BaseLook::Failed(cause) => self.fail(cause, port),
            BaseLook::Whole => match live.name_base(&self.statuses) {
                Ok(left) => {
                    self.stage = Stage::Counts;
                    port.tell(&LogNews::Counts);
                    tell_left(left, port);
                }
                Err(fault) => self.fail(fault.to_string(), port),
            },
        }
    }

    /// The threads of a base that failed have ended: its files go.
    fn drop_base(&mut self, cause: String, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        tell_left(live.drop_base(), port);
        if live.counts() {
            self.stays_broken(cause, port);
        } else {
            self.leave(Some(cause), port);
        }
    }

    /// All owners have left the log: its files go.
    fn forget(&mut self, cause: Option<String>, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        tell_left(live.remove_files(), port);
        (self.live, self.statuses, self.stage) = (None, Arc::new([]), Stage::Off);
        port.tell(&LogNews::Off(cause));
    }

    fn attach(
        &mut self,
        broke: Option<String>,
        journals: Vec<JournalWriter>,
        port: &mut dyn LogPort<S>,
    ) {
        let Some(live) = &self.live else { return };
        let berths: Vec<LogBerth> = live.berths();
        let status = |_| Arc::new(LogStatus::of_base(self.mode, broke.as_deref()));
        self.statuses = berths.iter().map(status).collect();
        port.attach(berths, journals, Arc::clone(&self.statuses));
        port.tell(&LogNews::BaseBegins(broke));
        self.stage = Stage::Attaches;
    }

    fn fail(&mut self, cause: String, port: &mut dyn LogPort<S>) {
        port.end_threads(true);
        self.stage = Stage::Fails(cause);
    }

    /// Memory has all, and writes are refused until a later base counts.
    fn stays_broken(&mut self, cause: String, port: &mut dyn LogPort<S>) {
        self.statuses.iter().for_each(|status| status.refuse(&cause));
        port.tell(&LogNews::BaseFailed(cause.clone()));
        self.stage = Stage::Broken(cause);
    }

    /// No thread reads the journals any more: they go, then owners leave them.
    fn leave(&mut self, cause: Option<String>, port: &mut dyn LogPort<S>) {
        let Some(live) = &mut self.live else { return };
        if let Err(error) = live.remove_journals() {
            // They stand where the arenas do: a start tells what is wrong.
            tell_left(Some(error.to_string()), port);
        }
        port.detach();
        self.stage = Stage::Leaves(cause);
    }
}

fn tell_left<S: Storage>(left: Option<String>, port: &mut dyn LogPort<S>) {
    if let Some(left) = left {
        port.tell(&LogNews::Left(left));
    }
}
