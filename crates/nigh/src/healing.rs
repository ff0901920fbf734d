//! A log that broke is written anew from memory, while reads go on.
//!
//! ```text
//! broken ── its thread ends ── owner: begin_base, another status ── a thread: records, one after the other ── counts
//!    ^                              └── the upkeep walks over all keys ──┘                                      │
//!    └──────────────── it can't be written: again in ten seconds ────────────┘            writes are taken again
//! ```
//!
//! 1. The steps are those of a server's log (`LogKeeper`); here each owner has one partition, and
//!    does at once what it is asked for. If the log of one partition breaks, all are written anew.
//! 2. Writes are refused until the new log counts, so the journal has room for what expires.
//! 3. Changes that the broken log's thread hadn't read are lost for watches, and told so.
//!
//! The upkeep's thread.

use crate::shared_db::SharedDb;
use nigh_log::RealFolder;
use nigh_shm::JournalWriter;
use nigh_store::{
    AttachedShard, LiveLog, LogBerth, LogHealth, LogKeeper, LogNews, LogPort, LogStatuses,
    LogThreadEnds, SharedStreams, SyncMode, ThreadLog,
};
use std::sync::Arc;

/// Heals the log of a database.
pub(crate) struct LogHealer {
    keeper: LogKeeper<RealFolder>,
    /// What the owners had when the base began.
    attached: Option<Vec<AttachedShard>>,
    /// What the bases' threads get.
    ends: Vec<LogThreadEnds>,
}

impl LogHealer {
    /// Of a log that was opened, and whose status this is.
    pub(crate) fn new(live: LiveLog<RealFolder>, statuses: LogStatuses, mode: SyncMode) -> Self {
        let keeper = LogKeeper::of_start(live, statuses, mode);
        LogHealer { keeper, attached: None, ends: Vec::new() }
    }

    /// Does what can be done without waiting for another thread. Whether something is under way.
    pub(crate) fn step(&mut self, shared: &SharedDb) -> bool {
        let LogHealer { keeper, attached, ends } = self;
        keeper.step(&mut OwnerPort { shared, attached, ends });
        keeper.is_busy()
    }
}

/// The owners and the logs' threads, as the keeper of the log asks them.
struct OwnerPort<'a> {
    shared: &'a SharedDb,
    attached: &'a mut Option<Vec<AttachedShard>>,
    ends: &'a mut Vec<LogThreadEnds>,
}

impl LogPort<RealFolder> for OwnerPort<'_> {
    fn end_threads(&mut self, abandoned: bool) {
        for partition in &self.shared.partitions {
            let status = partition.log.status();
            if abandoned { status.abandon() } else { status.close() }
        }
    }

    fn threads_ended(&mut self) -> bool {
        self.shared.partitions.iter().all(|it| it.log.has_thread_ended())
    }

    fn attach(&mut self, berths: Vec<LogBerth>, _: Vec<JournalWriter>, logs: LogStatuses) {
        let mut attached = Vec::new();
        self.ends.clear();
        let partitions = self.shared.partitions.iter().enumerate();
        for ((number, partition), (berth, status)) in partitions.zip(berths.iter().zip(&*logs)) {
            // A writer panicked: the database has to be opened again.
            let Ok(mut owning) = partition.owner.take() else { return };
            let (ends, compaction) = LogThreadEnds::new();
            attached.push(owning.owner().begin_base(berth, compaction));
            self.ends.push(ends);
            self.shared.watches.skip_to(number, partition.reader.begun_lsn() + 1);
            partition.log.begin_anew(Arc::clone(status));
        }
        *self.attached = Some(attached);
    }

    fn attached(&mut self) -> Option<Vec<AttachedShard>> {
        self.attached.take()
    }

    fn spawn(&mut self, logs: Vec<ThreadLog<RealFolder>>, streams: &Arc<SharedStreams>) {
        let ends = std::mem::take(self.ends);
        for (partition, (log, ends)) in
            self.shared.partitions.iter().zip(logs.into_iter().zip(ends))
        {
            let status = Arc::clone(&log.status);
            if let Err(error) = partition.log.spawn(log, ends, streams) {
                let cause = format!("its thread can't be started: {error}");
                status.tell_health(LogHealth::Broken, cause);
            }
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
            LogNews::Counts | LogNews::BaseFailed(_) | LogNews::Off(_) => {
                self.shared.partitions.iter().for_each(|it| it.log.tell());
            }
        }
    }
}
