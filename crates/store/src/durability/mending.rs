//! The log thread's part of mending: the file that is compacted has the right bytes of a record
//! that has gone bad in memory.
//!
//! ```text
//! owner ── Stays ──> go to the change in its file ── its bytes ──> owner puts them in place
//!   Reading from that change on <── Mended ──────────────────────────┘
//! ```
//!
//! 1. Behind `Stays` the owner passes over what it was sent before, so nothing of the file is
//!    appended twice, and no order of the owner comes but `Mended`.
//! 2. What could not be appended counts as appended at the owner, which would pass it by later. So
//!    that stops compaction for good; and reading goes on at the bad record, which doesn't.
//! 3. What a later try may bring is tried again: the file can't be read, memory has no room, or
//!    the key may have been removed since. One try reads the file from the change on, up to a whole
//!    version of it, which mostly is the change. A round that was asked for has failed meanwhile.
//!    What no try brings stops compaction.
//! 4. A record that is bad again at once isn't mended again: so no change is sent for ever.
//!
//! The log's thread. Rules: docs/formats/log.md, Compaction.

use crate::durability::compaction::{Again, BATCH_BYTES, LogCompaction, Stage};
use crate::durability::log_status::LogStatus;
use crate::durability::orders::{BadRecord, LookBatch, MetChange, RightBytes};
use nigh_log::{ChangeKind, FramedChange, LogError, LogWriter, Storage, VictimReader};
use nigh_shm::MendError;

/// Until what couldn't be mended is tried again.
const AGAIN_US: u64 = 10_000_000;

/// Why a record's right bytes can't be sent.
enum NoBytes {
    /// Now.
    Yet(String),
    Ever(String),
}

impl<S: Storage> LogCompaction<S> {
    /// A record of the file is bad in memory: the file stays until the owner has mended it.
    pub(crate) fn stays(
        &mut self,
        writer: &LogWriter<S>,
        status: &LogStatus,
        bad: BadRecord,
        now_us: u64,
    ) {
        if self.is_stopped() {
            // What has stopped it is told, and holds.
            return;
        }
        let change = bad.change.map(|change| (change.stream, change.lsn));
        if change.is_some() && self.last_bad == change {
            return self.stop(never(&bad, "it was mended just now"), status);
        }
        self.last_bad = change;
        self.mend(writer, status, bad, now_us);
    }

    /// Sends the owner the bytes that the file has of a record.
    pub(super) fn mend(
        &mut self,
        writer: &LogWriter<S>,
        status: &LogStatus,
        bad: BadRecord,
        now_us: u64,
    ) {
        // What was read behind it is read again, and its memory isn't needed meanwhile.
        self.stage = Stage::Nothing;
        if let Some(batch) = self.waiting.take() {
            self.placed.extend(batch.placed);
        }
        let found = bad.change.map_or_else(
            || Err(NoBytes::Ever("another file may have it".to_owned())),
            |change| right_bytes(writer, change),
        );
        match found {
            Ok((reader, right)) => {
                let (file, newest) = (reader.file(), writer.newest_file());
                let placed = std::mem::take(&mut self.placed);
                let (looks, keys, ends, right) = (Vec::new(), Vec::new(), None, Some(right));
                self.stage = Stage::Mending(bad, Box::new(reader));
                self.send(LookBatch { file, frame: 0, newest, placed, looks, keys, ends, right });
            }
            Err(NoBytes::Yet(why)) => self.mend_later(bad, &why, status, now_us),
            Err(NoBytes::Ever(why)) => self.stop(never(&bad, &why), status),
        }
    }

    /// The owner has the record mended, or hasn't.
    pub(crate) fn mended(
        &mut self,
        done: Result<bool, MendError>,
        status: &LogStatus,
        now_us: u64,
    ) {
        let (bad, reader) = match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Mending(bad, reader) => (bad, reader),
            other => return self.stage = other,
        };
        match done {
            Ok(is_mended) => {
                if is_mended {
                    status.tell_mended();
                }
                status.tell_compaction_fault(String::new());
                self.stage = Stage::Reading(reader);
            }
            Err(error) if error.is_lasting() => {
                self.stop(never(&bad, &error.to_string()), status);
            }
            Err(error) => self.mend_later(bad, &error.to_string(), status, now_us),
        }
    }

    fn mend_later(&mut self, bad: BadRecord, why: &str, status: &LogStatus, now_us: u64) {
        let key = &bad.key;
        status.tell_compaction_fault(format!(
            "the record of key {key:?} is bad in memory, and is mended later: {why}"
        ));
        self.stage = Stage::Waits(now_us + AGAIN_US, Again::Mend(bad));
    }
}

fn never(bad: &BadRecord, why: &str) -> String {
    format!("the record of key {:?} is bad in memory, so its file stays: {why}", bad.key)
}

/// The bytes that the file has of a change, and a reader that goes on with it.
fn right_bytes<S: Storage>(
    writer: &LogWriter<S>,
    change: MetChange,
) -> Result<(VictimReader<S>, RightBytes), NoBytes> {
    let MetChange { stream, lsn, .. } = change;
    let mut ahead = reader_at(writer, change)?;
    let Some(payload) = whole_payload(&mut ahead, change)? else {
        return Err(ever("the file has only what it adds to an earlier version"));
    };
    Ok((reader_at(writer, change)?, RightBytes { stream, lsn, payload }))
}

/// A reader that gives a change next.
fn reader_at<S: Storage>(
    writer: &LogWriter<S>,
    change: MetChange,
) -> Result<VictimReader<S>, NoBytes> {
    let MetChange { stream, lsn, frame } = change;
    let reader = writer.victim_at(frame).map_err(fault)?;
    let mut reader = reader.ok_or_else(|| ever("the file isn't compacted any more"))?;
    let is_there = reader.go_to(stream, lsn).map_err(fault)?;
    if is_there { Ok(reader) } else { Err(ever("the file hasn't its change")) }
}

/// The first whole version of a change that comes: what only adds to an earlier version may stand
/// before it, and was then appended again, whole.
fn whole_payload<S: Storage>(
    reader: &mut VictimReader<S>,
    change: MetChange,
) -> Result<Option<Vec<u8>>, NoBytes> {
    let whole = (change.stream, change.lsn, ChangeKind::Put);
    while let Some(step) = reader.advance(BATCH_BYTES).map_err(fault)? {
        let of = |it: &FramedChange<'_>| (it.header.stream, it.header.lsn, it.header.kind);
        let Some(found) = step.changes.iter().find(|it| of(it) == whole) else { continue };
        let mut payload = Vec::new();
        if payload.try_reserve_exact(found.payload.len()).is_err() {
            let bytes = found.payload.len();
            return Err(NoBytes::Yet(format!("there is no memory for its {bytes} bytes")));
        }
        payload.extend_from_slice(found.payload);
        return Ok(Some(payload));
    }
    Ok(None)
}

/// Damage too may be that of the memory that the file was read into.
fn fault(error: LogError) -> NoBytes {
    NoBytes::Yet(error.to_string())
}

fn ever(why: &str) -> NoBytes {
    NoBytes::Ever(why.to_owned())
}
