//! The thread of a shard's log: from the journal into frames, and to the disk.
//!
//! ```text
//! entries, orders ──> add ── write ── the journal's `written` ── sync ── durable words ── shards
//!        └──────────── goes on while a sync runs beside ─────────┘
//! ```
//!
//! 1. What was written is told to the journal only behind the `write` that has returned.
//!    A frame is written when it is full, when a sync begins, when nothing has come for a while, or
//!    when it holds a quarter of the journal back: one long write costs less than many short ones.
//! 2. A log that breaks is noted in the journal before anybody is told. Its thread does nothing
//!    more then: entries stay in the journal, and the next start writes a base.
//! 3. Each pass is bounded by bytes, and ends where a file begins; what it leaves is the next
//!    one's. It takes something only if the room is set aside that a log keeps, or the log is full.
//! 4. Of a full log, the journal learns how much more may come.
//! 5. A writer that syncs in place of the thread takes only what waits for nobody and begins no
//!    file.
//!
//! One thread at a time. Disk, clock and chance are the log's traits.

use crate::durability::base_stage::BasePart;
use crate::durability::compaction::{CompactionPace, LogCompaction};
use crate::durability::log_sink::{LogSink, LogStop, RETRY_US};
use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::log_sync::{LogSync, Syncer};
use crate::durability::orders::{LogOrder, LookBatch, Ordered};
use crate::durability::streams::SharedStreams;
use crate::durability::sync_mode::SyncMode;
use nigh_log::{LogWriter, Storage, World};
use nigh_shm::{DurableWord, JournalEntry, JournalReader};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most bytes of entries that a writer takes in place of the thread, others' too: less time than
/// the sync, if nobody watches.
const LIGHT_BYTES: u64 = 64 << 10;
/// Nothing follows for so long: a frame tells what was synced.
const IDLE_US: u64 = 10_000;
/// Between looks at the journal while a shard is busy: a few hundred KB of changes.
const NAP: Duration = Duration::from_millis(2);
/// Looks without a find, behind which the thread sleeps until it is woken.
const NAPS_MOST: u32 = 50;
/// The share of the journal that an open frame may hold back.
const HELD_SHARE: u64 = 4;
/// Longest sleep.
const SLEEP: Duration = Duration::from_secs(1);

/// What a pass has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// There may be more.
    More,
    /// Nothing, for now.
    Rests,
    /// The log is closed, or broken and nobody gives orders any more.
    Ended,
}

/// Sees the entries of the journal that it wants, each once, in order, before the log has it.
pub trait EntryObserver: Send {
    /// Whether it wants to see the entries that are published by now and weren't taken. If not, it
    /// may be shown some of them all the same.
    fn wants_entries(&self) -> bool;
    /// An entry comes.
    fn see(&mut self, entry: &JournalEntry<'_>);
}

/// The thread of one shard's log.
pub struct LogThread<S: Storage> {
    pub(super) reader: JournalReader,
    pub(super) observer: Option<Box<dyn EntryObserver>>,
    pub(super) sink: LogSink<S>,
    pub(super) base: BasePart,
    pub(super) orders: Receiver<LogOrder>,
    pub(super) ahead: VecDeque<LogOrder>,
    /// All entries before this position are in frames that were written.
    pub(super) framed: u64,
    pub(super) compaction: LogCompaction<S>,
    pub(super) prepared: bool,
    prepare_again_us: u64,
    /// The journal's limit.
    limit: u64,
    /// The newest file when room was set aside.
    pub(super) room_for: u64,
    /// The newest file at the last look.
    pub(super) newest_told: u64,
    /// The oldest file that counted at the last look.
    oldest_seen: u64,
    /// Files are held for these readers, up to so many bytes.
    pub(super) holders: Vec<Weak<()>>,
    pub(super) hold_bytes: u64,
    /// When the last pass looked at the journal, unless the thread rested since: what is there now
    /// came later.
    looked_us: Option<u64>,
    naps: u32,
}

/// What a start, or a base, leaves for the thread of one shard's log.
pub struct ThreadLog<S: Storage> {
    /// The log's world.
    pub world: World<S>,
    /// The log thread's side of the shard's journal.
    pub reader: JournalReader,
    /// The writer of the shard's chain.
    pub writer: LogWriter<S>,
    /// What the shard and others see of it.
    pub status: Arc<LogStatus>,
    /// The durable words of the shard's own streams.
    pub words: Vec<(u32, DurableWord)>,
}

/// What [`LogThread::new`] needs.
pub struct LogThreadParts<S: Storage> {
    /// What it works on.
    pub log: ThreadLog<S>,
    /// The streams of all shards.
    pub streams: Arc<SharedStreams>,
    /// What the shard asks for.
    pub orders: Receiver<LogOrder>,
    /// What the shard is to look at, and how it is woken for that.
    pub looks: (SyncSender<LookBatch>, Arc<dyn Fn() + Send + Sync>),
    /// When the log is compacted.
    pub pace: CompactionPace,
    /// Wakes the shards that wait for a sync.
    pub wake_shards: Arc<dyn Fn() + Send + Sync>,
}

impl<S: Storage> LogThread<S> {
    /// The thread's state. All that the writer has written is synced.
    pub fn new(parts: LogThreadParts<S>) -> LogThread<S> {
        let LogThreadParts { log, streams, orders, looks, pace, wake_shards } = parts;
        let ThreadLog { world, reader, mut writer, status, words } = log;
        writer.keep_room(reader.file().ring_bytes());
        let base = BasePart::of(status.stage());
        let sync = LogSync::new(world.clock.rising_us());
        let sink = LogSink { writer, sync, world, status, words, streams, wake_shards };
        if base.is_on {
            // Others may stand on what the base begins with.
            sink.tell_durable();
        }
        let mut thread = LogThread {
            newest_told: sink.writer.newest_file(),
            oldest_seen: sink.writer.oldest(),
            framed: reader.position(),
            base,
            reader,
            observer: None,
            sink,
            orders,
            ahead: VecDeque::new(),
            compaction: LogCompaction::new(looks, pace),
            prepared: false,
            prepare_again_us: 0,
            limit: u64::MAX,
            room_for: 0,
            holders: Vec::new(),
            hold_bytes: 0,
            looked_us: None,
            naps: 0,
        };
        // Before anybody is served: so a full log takes no writes at a start either. What fails
        // otherwise fails the first pass.
        let _ = thread.set_room_aside();
        thread.count_bytes();
        if !thread.base.is_on {
            thread.note_begun_files();
        }
        thread
    }

    /// From now on the journal has the number of each file that is begun, before anything is
    /// written behind its BEGIN: by that a start knows that nobody else has gone on with the log.
    pub(super) fn note_begun_files(&mut self) {
        let journal = Arc::clone(self.reader.file());
        self.sink.writer.tell_begun(move |file| journal.set_newest_file(file));
    }

    /// Has syncs run by this, instead of in place.
    #[must_use]
    pub fn with_syncer(mut self, syncer: Box<dyn Syncer<S::File>>) -> LogThread<S> {
        self.sink.sync.syncer = syncer;
        self
    }

    /// Has this see the entries that it wants. It must be quick: the log waits for it, and writers
    /// wait for the log when the journal is full.
    #[must_use]
    pub fn with_observer(mut self, observer: Box<dyn EntryObserver>) -> LogThread<S> {
        self.observer = Some(observer);
        self
    }

    /// Its status, and what wakes those that wait for a sync.
    pub(crate) fn told(&self) -> (Arc<LogStatus>, Arc<dyn Fn() + Send + Sync>) {
        (Arc::clone(&self.sink.status), Arc::clone(&self.sink.wake_shards))
    }

    /// One pass: entries and orders, a write, a sync if one is due, and what else is to be done.
    pub fn pass(&mut self) -> Passed {
        if self.sink.status.is_abandoned() {
            self.sink.status.tell_end();
            return Passed::Ended;
        }
        if self.sink.status.has_ended() || self.sink.status.health() == LogHealth::Broken {
            return self.pass_broken();
        }
        let passed = match self.pass_well() {
            Ok(passed) => passed,
            Err(LogStop::Left) => {
                self.sink.status.tell_end();
                Passed::Ended
            }
            Err(stop) => self.fail(&stop.to_string()),
        };
        self.count_bytes();
        passed
    }

    /// Takes, writes and syncs what is in the journal, for one that waits for the disk. False: it
    /// has done nothing, since that might wait for something else, or take long.
    pub fn sync_now(&mut self) -> bool {
        let done = match self.sync_light() {
            Ok(done) => done,
            Err(stop) => {
                self.fail(&stop.to_string());
                true
            }
        };
        if done {
            self.count_bytes();
        }
        done
    }

    fn sync_light(&mut self) -> Result<bool, LogStop> {
        // The thread's: what comes with a new file, a base, a log that isn't well, or orders. The
        // tail comes before the orders, as in `take_all`.
        let (status, writer) = (&self.sink.status, &self.sink.writer);
        let newest = writer.newest_file();
        let is_well = status.health() == LogHealth::Well && status.counts() && !self.base.is_on;
        let is_over = status.has_ended() || status.is_closing() || status.is_abandoned();
        let is_told = self.room_for == newest && self.newest_told == newest;
        let looks_us = self.sink.world.clock.rising_us();
        let end = self.reader.tail();
        let bytes = end - self.reader.position();
        let fits = bytes <= LIGHT_BYTES && writer.fits_here(bytes);
        if !is_well || is_over || !is_told || writer.is_syncing() || !fits {
            return Ok(false);
        }
        self.take_orders();
        if !self.ahead.is_empty() || !self.reader.stand_alone(end)? {
            return Ok(false);
        }
        while self.reader.position() < end {
            self.take_entry(end)?;
        }
        self.sink.sync.took(self.looked_us.take().unwrap_or(looks_us), true);
        let was_idle = looks_us >= self.sink.sync.ended_us() + IDLE_US;
        self.tell_age(None);
        self.sink.begin_sync()?;
        self.sink.end_sync()?;
        self.tell_written();
        self.tell_age(None);
        // What has come meanwhile is as old as the sync took.
        self.looked_us = (self.reader.tail() != end).then_some(looks_us);
        if was_idle {
            // The thread may sleep for long, and has to look after what follows a sync.
            self.sink.status.wake();
        }
        Ok(true)
    }

    fn count_bytes(&self) {
        let writer = &self.sink.writer;
        self.sink.status.count_bytes(writer.counted_bytes(), writer.bytes());
    }

    /// Tells since when the oldest change is there that isn't synced. While none was taken, one may
    /// be there since `least_us`.
    fn tell_age(&self, least_us: Option<u64>) {
        // A chain that doesn't count is late for nobody.
        let oldest_us = self.sink.sync.oldest_us().or(least_us).filter(|_| !self.base.is_on);
        self.sink.status.tell_unsynced_since(oldest_us);
    }

    fn pass_well(&mut self) -> Result<Passed, LogStop> {
        self.sink.end_sync()?;
        let looks_us = self.sink.world.clock.rising_us();
        let since_us = self.looked_us.replace(looks_us).unwrap_or(looks_us);
        // Whatever comes while this pass waits for the disk is at most so old.
        self.tell_age(Some(since_us));
        self.set_room_aside()?;
        let before = self.reader.position();
        let ordered = self.take_all()?;
        let entries = self.reader.position() != before;
        let took = entries || ordered;
        let now = self.sink.world.clock.rising_us();
        if took {
            self.sink.sync.took(since_us, entries);
            self.naps = 0;
        }
        let syncs = self.is_sync_due(now);
        if syncs {
            self.sink.begin_sync()?;
            self.sink.end_sync()?;
        } else if self.must_write(took) {
            self.sink.writer.write(false)?;
        }
        self.tell_written();
        let cares = self.look_at_base()? | self.look_after(now)?;
        self.tell_age(None);
        let is_empty = self.ahead.is_empty() && self.reader.position() == self.reader.tail();
        if is_empty && self.sink.status.is_closing() {
            self.sink.wait_sync()?;
            self.sink.writer.close()?;
            self.tell_written();
            self.sink.tell_durable();
            self.sink.status.tell_end();
            return Ok(Passed::Ended);
        }
        Ok(if took || cares { Passed::More } else { Passed::Rests })
    }

    /// Has all room set aside that is kept, behind the beginning of a file. If there is none, the
    /// log is full.
    fn set_room_aside(&mut self) -> Result<(), LogStop> {
        let newest = self.sink.writer.newest_file();
        if std::mem::replace(&mut self.room_for, newest) == newest {
            return Ok(());
        }
        while self.sink.status.health() == LogHealth::Well && self.sink.writer.lacks_room() {
            if self.sink.prepare()?.is_none() {
                self.prepare_again_us = self.sink.world.clock.rising_us() + RETRY_US;
            }
        }
        self.tell_limit();
        Ok(())
    }

    /// Tells the journal how much more there is room for.
    fn tell_limit(&mut self) {
        let status = &self.sink.status;
        let limit = match status.health() {
            LogHealth::Full if status.counts() => {
                self.reader.position() + self.sink.writer.room_to_add()
            }
            _ => u64::MAX,
        };
        let rose = limit > std::mem::replace(&mut self.limit, limit);
        self.reader.file().set_limit(limit);
        if rose {
            (self.sink.wake_shards)();
        }
    }

    /// Whether the open frame is written before a sync begins.
    fn must_write(&self, took: bool) -> bool {
        // Values that entries name hold the journal back too.
        let held = (self.reader.position() - self.framed).max(self.sink.writer.open_bytes());
        let is_quiet = !took && self.naps >= NAPS_MOST;
        is_quiet || held >= self.reader.file().ring_bytes() / HELD_SHARE
    }

    fn is_sync_due(&self, now: u64) -> bool {
        if self.sink.writer.is_syncing() {
            return false;
        }
        let is_full = self.sink.status.health() == LogHealth::Full;
        let awaits_file = self.compaction.awaits_sync(&self.sink.writer, &self.sink.status);
        if self.sink.status.is_wanted() || awaits_file && !self.sink.writer.is_synced() {
            return true;
        }
        let Some(due) = self.sink.sync.due_us() else {
            return !self.sink.writer.is_synced();
        };
        match self.sink.status.mode() {
            // What compaction appends again needn't be there before its file goes.
            SyncMode::Always => self.sink.sync.has_entries() || !self.compaction.is_active(),
            SyncMode::EverySecond => now >= due,
            // Compaction waits for it.
            SyncMode::No => now >= due && (is_full || self.sink.writer.is_releasing()),
        }
    }

    /// What is done beside: the journal learns of a new file, the next file is prepared, a frame
    /// tells what was synced. Whether there is more of it.
    fn look_after(&mut self, now: u64) -> Result<bool, LogStop> {
        let newest = self.sink.writer.newest_file();
        if newest != self.newest_told && !self.base.is_on {
            (self.newest_told, self.prepared) = (newest, false);
            self.sink.tell_durable();
        }
        let oldest = self.sink.writer.oldest();
        if oldest != self.oldest_seen {
            // Files that went are prepared again, or removed.
            (self.oldest_seen, self.prepared, self.prepare_again_us) = (oldest, false, 0);
        }
        if !self.holders.is_empty() {
            self.look_at_holders();
        }
        if !self.prepared && now >= self.prepare_again_us {
            match self.sink.prepare()? {
                Some(done) => self.prepared = done,
                None => self.prepare_again_us = now + RETRY_US,
            }
        }
        let sync = &self.sink.sync;
        let is_idle = sync.is_done() && now >= sync.ended_us() + IDLE_US;
        if is_idle {
            self.sink.writer.idle_frame()?;
        }
        self.tell_limit();
        let (position, ring_bytes) = (self.reader.position(), self.reader.file().ring_bytes());
        let promised = self.limit.max(self.reader.tail()).min(position + ring_bytes) - position;
        let (writer, status) = (&mut self.sink.writer, &*self.sink.status);
        let compacts = self.compaction.pass(writer, status, (position, promised), now)?;
        Ok(compacts || !self.prepared && now >= self.prepare_again_us)
    }

    /// Notes that the log is broken, then tells it.
    fn fail(&mut self, cause: &str) -> Passed {
        self.reader.file().set_broken(self.sink.writer.chain().generation);
        self.sink.status.tell_health(LogHealth::Broken, cause.to_owned());
        (self.sink.wake_shards)();
        Passed::Rests
    }

    fn pass_broken(&mut self) -> Passed {
        self.take_orders();
        for order in self.ahead.drain(..) {
            if let Ordered::EndFrame(order) = order.what {
                let _ = order.told.send(Err(self.sink.status.cause()));
            }
        }
        if self.sink.status.is_closing() { Passed::Ended } else { Passed::Rests }
    }

    /// Begins to rest behind a pass. How long it may last; `None`: there is something to do.
    pub fn begin_rest(&mut self) -> Option<Duration> {
        (self.naps, self.looked_us) = (self.naps + 1, None);
        let (status, clock) = (&self.sink.status, &self.sink.world.clock);
        let is_well = status.health() != LogHealth::Broken;
        // The last look behind the naps writes the open frame.
        let is_soon = self.naps <= NAPS_MOST || self.compaction.is_active();
        let naps = is_well && status.mode() != SyncMode::Always && is_soon;
        let sync = &self.sink.sync;
        let due = sync.due_us().unwrap_or(sync.ended_us() + IDLE_US);
        let now = clock.rising_us();
        let mut most = if naps { NAP } else { SLEEP };
        if is_well && due > now {
            most = most.min(Duration::from_micros(due - now));
        }
        status.begin_rest(naps);
        let has_entries = !naps && self.reader.tail() != self.reader.position();
        // Of a log that broke, nobody takes the end.
        let is_told = match self.sink.writer.is_syncing() {
            true => status.has_sync_ended(),
            false => status.is_wanted(),
        };
        // The pass may have looked at the clock before.
        let is_due = status.mode() == SyncMode::EverySecond
            && !self.sink.writer.is_syncing()
            && sync.due_us().is_some_and(|due| due <= now);
        let has_work = status.is_closing() || is_well && (is_told || has_entries || is_due);
        (!has_work).then_some(most)
    }
}
