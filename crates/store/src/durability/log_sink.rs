//! What the log's thread writes to, and where it tells of it: the writer of a chain, and the
//! durable words.
//!
//! 1. An entry is taken as a whole, or waits until it can be: for another log's sync, or for room.
//!    A log that is being closed waits for no room, but for another log as long as that one's
//!    thread runs. Entries need only what began before them, so no two logs wait for each other.
//! 2. Durable words are stored behind the sync, and then the shards are woken that wait for them.
//! 3. Syncs run beside: entries are taken and written meanwhile. Only the end of a file waits for
//!    the sync under way, and syncs that file and the next one's BEGIN in place.
//!
//! The log's thread, or a writer that syncs in its place.

use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::log_sync::LogSync;
use crate::durability::orders::AgainRecord;
use crate::durability::streams::SharedStreams;
use crate::durability::sync_mode::SyncMode;
use nigh_log::{
    Added, ChangeKind, LogError, LogWriter, NewChange, NewCommit, Storage, SyncEnd, World,
};
use nigh_shm::{DurableWord, Effect, JournalEntry, JournalError, PlainEntry};
use std::sync::Arc;
use std::time::Duration;

/// Between looks at what an entry waits for.
const WAIT: Duration = Duration::from_micros(200);
/// Between tries to prepare a file where there was no room.
pub(crate) const RETRY_US: u64 = 1_000_000;

/// What stops the log's thread.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogStop {
    /// The journal's bytes contradict each other.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log broke.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record of a base is bad in memory.
    #[error(
        "{0} is bad in memory, so no base can be written: end the log (CONFIG SET appendonly no), \
         delete it, and begin the log again"
    )]
    BadMemory(String),
    /// What it needs is in a log that broke.
    #[error("a commit needs what another shard's log has, and that broke")]
    Needed,
    /// The server ends while there is no room, or another log has ended without what is needed.
    /// What is left stays in the journal.
    #[error("the server ends, and the log can't go on")]
    Left,
}

/// See the header of this file.
pub(crate) struct LogSink<S: Storage> {
    pub(crate) writer: LogWriter<S>,
    pub(crate) sync: LogSync<S>,
    pub(crate) world: World<S>,
    pub(crate) status: Arc<LogStatus>,
    /// The durable words of the shard's own streams.
    pub(crate) words: Vec<(u32, DurableWord)>,
    /// Those of all shards.
    pub(crate) streams: Arc<SharedStreams>,
    /// Wakes the shards that wait for a sync.
    pub(crate) wake_shards: Arc<dyn Fn() + Send + Sync>,
}

impl<S: Storage> LogSink<S> {
    /// Adds a commit of the journal.
    pub(crate) fn add_entry(&mut self, entry: &JournalEntry<'_>) -> Result<(), LogStop> {
        let needs: Vec<(u32, u64)> = match self.status.mode() {
            SyncMode::No => Vec::new(),
            _ => entry.needs().collect(),
        };
        let changes = entry.changes().collect::<Result<Vec<_>, _>>()?;
        let payloads: Vec<[&[u8]; 2]> = changes.iter().map(|it| [it.payload, it.rest]).collect();
        let new = changes.iter().zip(&payloads);
        let new = new.map(|(it, payload)| NewChange { kind: kind_of(it.effect), payload });
        self.add(&NewCommit {
            stream: entry.stream(),
            first_lsn: entry.first_lsn(),
            again: false,
            changes: &new.collect::<Vec<_>>(),
            needs: &needs,
            clock_ms: entry.clock_ms(),
        })
    }

    /// The same, without an allocation.
    pub(crate) fn add_plain(&mut self, entry: &PlainEntry<'_>) -> Result<(), LogStop> {
        let PlainEntry { stream, lsn, effect, clock_ms, payload } = *entry;
        let changes = [NewChange { kind: kind_of(effect), payload: &[payload] }];
        let (first_lsn, again, needs) = (lsn, false, &[][..]);
        self.add(&NewCommit { stream, first_lsn, again, changes: &changes, needs, clock_ms })
    }

    /// Adds a record again.
    pub(crate) fn add_again(&mut self, record: &AgainRecord) -> Result<(), LogStop> {
        let value = record.value.as_ref().map_or(&[][..], |value| value.bytes());
        let payload = [record.record.as_slice(), value];
        let changes = [NewChange { kind: ChangeKind::Put, payload: &payload }];
        let (stream, first_lsn, needs) = (record.stream, record.lsn, &[][..]);
        let (again, clock_ms) = (true, 0);
        self.add(&NewCommit { stream, first_lsn, again, changes: &changes, needs, clock_ms })
    }

    fn add(&mut self, commit: &NewCommit<'_>) -> Result<(), LogStop> {
        let mut retry_us = 0;
        loop {
            // Whether what this waits for may come while the log is being closed.
            let comes = match self.writer.add(commit, &|stream| self.streams.durable(stream)) {
                Ok(Added::Taken) => return Ok(()),
                Ok(Added::Syncs) => {
                    self.wait_sync()?;
                    continue;
                }
                Ok(Added::Waits) => {
                    self.sync_on()?;
                    self.streams.want_sync(commit.needs).map_err(|()| LogStop::Needed)?
                }
                Err(error @ LogError::Full { .. })
                    if self.writer.broken().is_none() && self.status.counts() =>
                {
                    self.status.tell_health(LogHealth::Full, error.to_string());
                    // What is there is synced, so that those that wait for it go on.
                    self.sync_on()?;
                    let now = self.world.clock.rising_us();
                    if now >= retry_us {
                        retry_us = now + RETRY_US;
                        self.prepare()?;
                    }
                    false
                }
                Err(error) => return Err(error.into()),
            };
            if !comes && self.status.is_closing() || self.status.is_abandoned() {
                return Err(LogStop::Left);
            }
            let syncs = self.writer.is_syncing();
            self.status.rest(WAIT, true, || syncs && self.status.has_sync_ended());
        }
    }

    /// One step towards a prepared file; whether it is there. Without room: the log is full.
    pub(crate) fn prepare(&mut self) -> Result<Option<bool>, LogStop> {
        self.writer.write_zeros(self.status.mode() == SyncMode::Always);
        match self.writer.prepare() {
            Ok(done) => {
                if done && self.status.health() == LogHealth::Full {
                    self.status.tell_health(LogHealth::Well, String::new());
                }
                Ok(Some(done))
            }
            Err(error) if self.writer.broken().is_some() => Err(error.into()),
            Err(error) => {
                self.status.tell_health(LogHealth::Full, error.to_string());
                Ok(None)
            }
        }
    }

    /// Begins a sync of all that was added; if nothing is to be synced, it has ended.
    pub(crate) fn begin_sync(&mut self) -> Result<(), LogStop> {
        let wanted = self.status.take_wanted();
        self.sync.begins(wanted, self.world.clock.rising_us());
        match self.writer.begin_sync()? {
            Some(job) => self.sync.syncer.begin(job),
            None => self.sync_ended(false),
        }
        Ok(())
    }

    /// Tells the end of the sync under way, if it has ended.
    pub(crate) fn end_sync(&mut self) -> Result<(), LogStop> {
        if !self.writer.is_syncing() {
            return Ok(());
        }
        self.status.forget_sync_ended();
        self.sync.syncer.take().map_or(Ok(()), |end| self.take_end(end))
    }

    /// Waits for the end of the sync under way, if there is one, and tells it.
    pub(crate) fn wait_sync(&mut self) -> Result<(), LogStop> {
        if !self.writer.is_syncing() {
            return Ok(());
        }
        let end = self.sync.syncer.wait();
        self.take_end(end)
    }

    /// Has a sync under way while something isn't synced.
    fn sync_on(&mut self) -> Result<(), LogStop> {
        self.end_sync()?;
        if !self.writer.is_syncing() {
            self.begin_sync()?;
        }
        self.end_sync()
    }

    fn take_end(&mut self, end: SyncEnd) -> Result<(), LogStop> {
        self.writer.end_sync(end)?;
        self.sync_ended(true);
        Ok(())
    }

    fn sync_ended(&mut self, counts: bool) {
        let (took_us, wanted) = self.sync.ends(self.world.clock.rising_us());
        if counts {
            self.status.count_sync(took_us);
        }
        if !self.tell_durable() && wanted {
            (self.wake_shards)();
        }
    }

    /// Stores the durable words; wakes the shards if one rose.
    pub(crate) fn tell_durable(&self) -> bool {
        let mut rose = false;
        for (stream, word) in &self.words {
            let durable = self.writer.durable(*stream);
            if !self.status.counts() {
                self.streams.tell_synced(*stream, durable);
            } else if durable > word.load() {
                word.store(durable);
                rose = true;
            }
        }
        if rose {
            (self.wake_shards)();
        }
        rose
    }
}

/// The log's kind of a change of the journal: they have the same bytes.
pub(crate) fn kind_of(effect: Effect) -> ChangeKind {
    ChangeKind::of_byte(effect.byte()).expect("journal and log have the same kinds")
}
