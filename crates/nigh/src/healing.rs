//! A log that broke is written anew from memory, while reads go on.
//!
//! ```text
//! broken ── its thread ends ── owner: begin_base, another status ── a thread: records, one after the other ── counts
//!    ^                              └── the upkeep walks over all keys ──┘                                      │
//!    └──────────────── it can't be written: again in ten seconds ────────────┘            writes are taken again
//! ```
//!
//! 1. The steps are those of a server's log (`LogKeeper`); here the owner has one partition, and
//!    does at once what it is asked for.
//! 2. Writes are refused until the new log counts, so the journal has room for what expires.
//! 3. Changes that the broken log's thread hadn't read are lost for watches, and told so.
//!
//! The upkeep's thread.

use crate::shared_db::SharedDb;
use nigh_log::RealFolder;
use nigh_shm::JournalWriter;
use nigh_store::{
    AttachedShard, BaseLog, LiveLog, LogBerth, LogHealth, LogKeeper, LogNews, LogPort, LogStatuses,
    LogThreadEnds, SharedStreams, SyncMode,
};
use std::sync::Arc;

/// Heals the log of a database.
pub(crate) struct LogHealer {
    keeper: LogKeeper<RealFolder>,
    /// What the owner had when the base began.
    attached: Option<AttachedShard>,
    /// What the base's thread gets.
    ends: Option<LogThreadEnds>,
}

impl LogHealer {
    /// Of a log that was opened, and whose status this is.
    pub(crate) fn new(live: LiveLog<RealFolder>, statuses: LogStatuses, mode: SyncMode) -> Self {
        let keeper = LogKeeper::of_start(live, statuses, mode);
        LogHealer { keeper, attached: None, ends: None }
    }

    /// Does what can be done without waiting for another thread. Whether something is under way.
    pub(crate) fn step(&mut self, shared: &SharedDb) -> bool {
        let LogHealer { keeper, attached, ends } = self;
        keeper.step(&mut OwnerPort { shared, attached, ends });
        keeper.is_busy()
    }
}

/// The owner and the log's thread, as the keeper of the log asks them.
struct OwnerPort<'a> {
    shared: &'a SharedDb,
    attached: &'a mut Option<AttachedShard>,
    ends: &'a mut Option<LogThreadEnds>,
}

impl LogPort<RealFolder> for OwnerPort<'_> {
    fn end_threads(&mut self, abandoned: bool) {
        let status = self.shared.log.status();
        if abandoned { status.abandon() } else { status.close() }
    }

    fn threads_ended(&mut self) -> bool {
        self.shared.log.has_thread_ended()
    }

    fn attach(&mut self, berths: Vec<LogBerth>, _: Vec<JournalWriter>, logs: LogStatuses) {
        let (Some(berth), Some(status)) = (berths.first(), logs.first()) else { return };
        // A writer panicked: the database has to be opened again.
        let Ok(mut owning) = self.shared.owner.take() else { return };
        let (ends, compaction) = LogThreadEnds::new();
        *self.attached = Some(owning.owner().begin_base(berth, compaction));
        self.shared.log.watches.skip_to(self.shared.reader.begun_lsn() + 1);
        *self.ends = Some(ends);
        self.shared.log.begin_anew(Arc::clone(status));
    }

    fn attached(&mut self) -> Option<Vec<AttachedShard>> {
        self.attached.take().map(|shard| vec![shard])
    }

    fn spawn(&mut self, logs: Vec<BaseLog<RealFolder>>, streams: &Arc<SharedStreams>) {
        let (Some(log), Some(ends)) = (logs.into_iter().next(), self.ends.take()) else { return };
        let status = Arc::clone(&log.status);
        if let Err(error) = self.shared.log.spawn(log, ends, streams) {
            let cause = format!("its thread can't be started: {error}");
            status.tell_health(LogHealth::Broken, cause);
        }
    }

    /// A log that counted stays, so owners never leave it.
    fn detach(&mut self) {}

    fn detached(&mut self) -> bool {
        true
    }

    fn tell(&mut self, news: &LogNews) {
        match news {
            LogNews::BaseBegins(_) | LogNews::Left(_) => {}
            LogNews::Counts | LogNews::BaseFailed(_) | LogNews::Off(_) => self.shared.log.tell(),
        }
    }
}
