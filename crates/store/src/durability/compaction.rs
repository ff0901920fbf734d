//! The log thread's part of compaction: it reads the oldest file, and asks the owner which of its
//! changes are still the newest.
//!
//! 1. It reads ahead of the owner by a few batches only: the owner's pace is the pace.
//! 2. A file that can't be read as a whole breaks the log: memory has all, and a base takes its
//!    place. One that can't be opened, or for which there is no memory, is tried again.
//! 3. A file stays of which a record can't be appended again, and its fault is told. Nothing is
//!    compacted then until the next start; unless the record can be mended: see `mending`.
//! 4. No file is begun before the shard has told how much is alive: all would look like garbage.
//!
//! The log's thread.

use crate::durability::log_sink::RETRY_US;
use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::orders::{AgainRecord, BadRecord, Look, LookBatch, Placed};
use nigh_log::{ChangeKind, LogError, LogWriter, Storage, VictimReader, VictimStep};
use nigh_shm::{Effect, StreamChange};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

/// Bytes of a file that are read for a batch.
pub(super) const BATCH_BYTES: usize = 256 << 10;
/// Steps of a pass: as many as fill the owner's channel, and those that begin and end a file.
const STEPS_PER_PASS: usize = 12;
/// While less than this part of the files is garbage, nothing is compacted: an eighth.
const LEAST_GARBAGE: u64 = 8;
/// For the frames that say that a file has gone.
const NOTES_BYTES: u64 = 16 << 10;
/// With a full disk, this part of a file's bytes is enough: less than removals may have of it.
const GARBAGE_SHARE: u64 = 4;

/// When a log is compacted.
#[derive(Debug, Clone, Copy)]
pub struct CompactionPace {
    /// Bytes of garbage that files may have, in per cent of the live bytes.
    pub garbage_percent: u64,
    /// Bytes of files from which on it is compacted in any case; 0: none.
    pub max_bytes: u64,
    /// Bytes of a file: three of them may be garbage in any case.
    pub file_bytes: u64,
}

impl CompactionPace {
    /// Whether a log is compacted whose disk has room: by the bytes of the files that count, and of
    /// the records that are alive.
    #[must_use]
    pub fn is_due(&self, files: u64, live: u64) -> bool {
        let garbage = files.saturating_sub(live);
        let is_too_long = self.max_bytes > 0 && files > self.max_bytes;
        let has_much = garbage > self.allowed(live);
        has_much || is_too_long && garbage > self.few().max(files / LEAST_GARBAGE)
    }

    /// Whether more is written than is compacted: a sync ahead of time lets a file go.
    fn is_late(&self, files: u64, live: u64) -> bool {
        files.saturating_sub(live) > 2 * self.allowed(live)
    }

    /// The file that is written, and those beside it that are hardly worth their rewriting.
    fn few(&self) -> u64 {
        3 * self.file_bytes
    }

    /// Bytes of garbage that files may have.
    fn allowed(&self, live: u64) -> u64 {
        self.few() + live / 100 * self.garbage_percent
    }
}

/// A round over all files. One that leaves as many bytes as it found has found no garbage: copies
/// of what was appended again twice, by a process that ended in the midst, look alive. Then nothing
/// is compacted until as much as a file has was written anew; with a full disk, until there is more
/// garbage than that round has left.
#[derive(Debug, Default)]
struct CompactionCycle {
    /// The newest file when it began.
    last: u64,
    /// Bytes of all files then, and what looked like garbage.
    bytes: u64,
    garbage: u64,
    /// Position in the journal before which nothing is compacted.
    rests_until: u64,
    /// What looks like garbage, and isn't: a round that freed nothing had it when it began.
    left: u64,
}

impl CompactionCycle {
    fn begins(&mut self, victim: u64, newest: u64, bytes: u64, garbage: u64) {
        if victim > self.last || self.last == 0 {
            (self.last, self.bytes, self.garbage) = (newest, bytes, garbage);
        }
    }

    /// Whether another file may be compacted, at a position of the journal.
    fn goes_on(&mut self, victim: u64, bytes: u64, position: u64, file_bytes: u64) -> bool {
        if self.last > 0 && victim > self.last && bytes >= self.bytes {
            (self.last, self.rests_until, self.left) = (0, position + file_bytes, self.garbage);
        }
        position >= self.rests_until
    }

    /// The same with a full disk and so much garbage: a part of a file is enough, or any if nothing
    /// more may be written.
    fn goes_on_full(&mut self, garbage: u64, file_bytes: u64, is_shut: bool) -> bool {
        self.left = self.left.min(garbage);
        let least = if is_shut { 1 } else { file_bytes / GARBAGE_SHARE };
        garbage >= self.left + least
    }
}

/// A file that is compacted.
pub(super) enum Stage<S: Storage> {
    Nothing,
    Reading(Box<VictimReader<S>>),
    /// The owner has the rest to do.
    Asked,
    /// Something is to be tried again at this time, µs.
    Waits(u64, Again<S>),
    /// The owner has the right bytes of this record. Reading goes on with its change.
    Mending(BadRecord, Box<VictimReader<S>>),
    Stopped,
}

/// What is tried again.
pub(super) enum Again<S: Storage> {
    /// To begin: the file couldn't be opened.
    Begin,
    /// To read on: memory was short.
    Read(Box<VictimReader<S>>),
    /// To have a record mended: its right bytes couldn't be read, or there is no room for them.
    Mend(BadRecord),
}

/// Compaction at a log's thread.
pub(crate) struct LogCompaction<S: Storage> {
    looks: SyncSender<LookBatch>,
    wake: Arc<dyn Fn() + Send + Sync>,
    pace: CompactionPace,
    pub(super) stage: Stage<S>,
    /// Stream and LSN of the last change of the file whose record was bad.
    pub(super) last_bad: Option<(u32, u64)>,
    cycle: CompactionCycle,
    /// Files before this one are compacted, due or not: a round that was asked for.
    round: u64,
    pub(super) waiting: Option<LookBatch>,
    pub(super) placed: Vec<Placed>,
}

impl<S: Storage> LogCompaction<S> {
    pub(crate) fn new(
        (looks, wake): (SyncSender<LookBatch>, Arc<dyn Fn() + Send + Sync>),
        pace: CompactionPace,
    ) -> LogCompaction<S> {
        LogCompaction {
            looks,
            wake,
            pace,
            stage: Stage::Nothing,
            last_bad: None,
            cycle: CompactionCycle::default(),
            round: 0,
            waiting: None,
            placed: Vec::new(),
        }
    }

    /// What is due in a pass, when the journal was read up to a position, and so many bytes more
    /// may come without being asked. Whether there is more to do at once.
    ///
    /// # Errors
    /// A file that counts can't be read: the log needs a base.
    pub(crate) fn pass(
        &mut self,
        writer: &mut LogWriter<S>,
        status: &LogStatus,
        (position, promised): (u64, u64),
        now_us: u64,
    ) -> Result<bool, LogError> {
        for _ in 0..STEPS_PER_PASS {
            if !self.step(writer, status, (position, promised), now_us)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A bounded step.
    fn step(
        &mut self,
        writer: &mut LogWriter<S>,
        status: &LogStatus,
        (position, promised): (u64, u64),
        now_us: u64,
    ) -> Result<bool, LogError> {
        if let Some(batch) = self.waiting.take()
            && !self.send(batch)
        {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Waits(until_us, _) if now_us >= until_us) {
            self.try_again(writer, status, now_us);
        }
        match &mut self.stage {
            Stage::Nothing => {
                let Some(live) = status.live_bytes() else { return Ok(false) };
                let (oldest, bytes) = (writer.oldest(), writer.counted_bytes());
                let file_bytes = self.pace.file_bytes;
                let goes_on = self.cycle.goes_on(writer.next_victim(), bytes, position, file_bytes);
                let is_due = if status.health() == LogHealth::Full {
                    let garbage = garbage_of(writer, live);
                    let is_shut = writer.room_to_add() == 0;
                    self.cycle.goes_on_full(garbage, file_bytes, is_shut)
                } else {
                    goes_on && self.pace.is_due(bytes, live)
                };
                if status.counts() && status.take_round() {
                    self.round = writer.newest_file();
                }
                let is_asked = oldest < self.round;
                if !is_asked {
                    status.end_round();
                }
                if is_asked || is_due {
                    self.begin(writer, status, (live, promised), now_us)?;
                }
                Ok(self.is_active())
            }
            Stage::Reading(_) => self.read(writer, status, now_us),
            // Nobody knows when a record can be mended.
            Stage::Stopped | Stage::Waits(_, Again::Mend(_)) => {
                // What hinders it stands in the figures.
                let _ = status.take_round();
                status.end_round();
                Ok(false)
            }
            Stage::Asked | Stage::Waits(..) | Stage::Mending(..) => Ok(false),
        }
    }

    /// The time has come to do so.
    fn try_again(&mut self, writer: &LogWriter<S>, status: &LogStatus, now_us: u64) {
        match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Waits(_, Again::Begin) => {}
            Stage::Waits(_, Again::Read(reader)) => self.stage = Stage::Reading(reader),
            Stage::Waits(_, Again::Mend(bad)) => return self.mend(writer, status, bad, now_us),
            other => self.stage = other,
        }
        status.tell_compaction_fault(String::new());
    }

    fn begin(
        &mut self,
        writer: &mut LogWriter<S>,
        status: &LogStatus,
        (live, promised): (u64, u64),
        now_us: u64,
    ) -> Result<(), LogError> {
        // With a full disk, what is still alive must find room in the files that are there, and the
        // file before must have gone: at most a file, or all live records. (Twice, for the frames,
        // and what is removed meanwhile.)
        let needed = writer.room_to_compact().min(2 * live + NOTES_BYTES);
        let is_full = status.health() == LogHealth::Full;
        if is_full && (writer.room() < needed + promised || !writer.is_synced()) {
            return Ok(());
        }
        match writer.victim() {
            Ok(Some(reader)) => {
                let (newest, bytes) = (writer.newest_file(), writer.counted_bytes());
                self.cycle.begins(reader.file(), newest, bytes, garbage_of(writer, live));
                (self.stage, self.last_bad) = (Stage::Reading(Box::new(reader)), None);
                status.tell_compaction_fault(String::new());
            }
            Ok(None) => {}
            // Such as no descriptor left.
            Err(error @ LogError::Io { .. }) => {
                status.tell_compaction_fault(error.to_string());
                self.stage = Stage::Waits(now_us + RETRY_US, Again::Begin);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks for what comes next in the file. Whether there may be more to do at once.
    fn read(
        &mut self,
        writer: &LogWriter<S>,
        status: &LogStatus,
        now_us: u64,
    ) -> Result<bool, LogError> {
        let Stage::Reading(mut reader) = std::mem::replace(&mut self.stage, Stage::Nothing) else {
            return Ok(false);
        };
        let file = reader.file();
        let step = match reader.advance(BATCH_BYTES) {
            Ok(step) => step.map(|step| (step.at.position, looks_of(&step))),
            Err(error) if error.is_lack_of_memory() => {
                status.tell_compaction_fault(error.to_string());
                self.stage = Stage::Waits(now_us + RETRY_US, Again::Read(reader));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let is_last = step.is_none();
        let (frame, (looks, keys)) = step.unwrap_or_default();
        let ends = is_last.then(|| writer.lasts_behind(file));
        self.stage = if is_last { Stage::Asked } else { Stage::Reading(reader) };
        if is_last || !looks.is_empty() {
            let (newest, placed) = (writer.newest_file(), std::mem::take(&mut self.placed));
            self.send(LookBatch { file, frame, newest, placed, looks, keys, ends, right: None });
        }
        Ok(true)
    }

    /// Sends a batch to the owner; false if it has enough to do.
    pub(super) fn send(&mut self, batch: LookBatch) -> bool {
        match self.looks.try_send(batch) {
            Ok(()) => {
                (self.wake)();
                true
            }
            Err(TrySendError::Full(batch)) => {
                self.waiting = Some(batch);
                false
            }
            // The shard has ended.
            Err(TrySendError::Disconnected(_)) => {
                self.stage = Stage::Stopped;
                false
            }
        }
    }

    /// Whether a file waits for a sync, and others for that one.
    pub(super) fn awaits_sync(&self, writer: &LogWriter<S>, status: &LogStatus) -> bool {
        let is_late = |live| self.pace.is_late(writer.counted_bytes(), live);
        writer.is_releasing()
            && (status.health() == LogHealth::Full || status.live_bytes().is_some_and(is_late))
    }

    /// Whether a file is under way, and not put off.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Reading(_) | Stage::Asked | Stage::Mending(..))
    }

    /// Whether nothing is compacted any more.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.stage, Stage::Stopped)
    }

    /// A record was appended again, to this file.
    pub(crate) fn placed(&mut self, record: &AgainRecord, file: u64) {
        let (stream, lsn) = (record.stream, record.lsn);
        let of = StreamChange { lsn, effect: Effect::Put, payload: &record.record, rest: &[] };
        // Only values in runs are such that others stand on them.
        if record.value.is_some()
            && let Ok(Some(key)) = of.key()
        {
            self.placed.push(Placed { stream, lsn, key: key.into(), file });
        }
    }

    /// The owner has done its part of the file.
    pub(crate) fn released(&mut self) {
        if matches!(self.stage, Stage::Asked) {
            self.stage = Stage::Nothing;
        }
    }

    /// The file stays, and nothing is compacted any more.
    pub(crate) fn stop(&mut self, what: String, status: &LogStatus) {
        status.tell_compaction_fault(what);
        (self.stage, self.waiting) = (Stage::Stopped, None);
    }
}

/// Bytes of frames that aren't live records.
fn garbage_of<S: Storage>(writer: &LogWriter<S>, live: u64) -> u64 {
    writer.changes_bytes().saturating_sub(live)
}

/// What the owner is to look at: changes of which a record may be there, and their keys.
fn looks_of(step: &VictimStep<'_>) -> (Vec<Look>, Vec<u8>) {
    let (mut looks, mut keys) = (Vec::with_capacity(step.changes.len()), Vec::new());
    for change in &step.changes {
        let (kind, stream, lsn) = (change.header.kind, change.header.stream, change.header.lsn);
        let Some(effect) = Effect::of_byte(kind.byte()) else { continue };
        // A payload that can't be read is none that could be live: it was never replayed either.
        let of = StreamChange { lsn, effect, payload: change.payload, rest: &[] };
        if matches!(kind, ChangeKind::Put | ChangeKind::Based)
            && let Ok(Some(key)) = of.key()
        {
            keys.extend_from_slice(key);
            looks.push(Look { stream, lsn, key_end: keys.len() });
        }
    }
    (looks, keys)
}
