//! Rings by themselves, with records of no arena.

#![expect(clippy::cast_possible_truncation, reason = "values are made of counters")]

mod files;
mod hostile;
mod rings;

use super::entry::ChangeHead;
use super::journal_file::{JournalFile, JournalSpec};
use super::layout::{CommitSize, Effect, JOURNAL_BYTES_MIN, change_bytes, entry as e};
use super::payload::StreamChange;
use super::ring_reader::JournalReader;
use super::ring_writer::JournalWriter;
use crate::format::head::Head;
use crate::format::layout::record as r;
use crate::format::record;
use crate::format::words::{HeapWords, SharedWords};
use std::sync::Arc;

const STREAM: u32 = 7 << 8 | 3;

fn spec() -> JournalSpec {
    JournalSpec {
        shard: 2,
        ring_bytes: JOURNAL_BYTES_MIN,
        log_id: [1; 16],
        boot_id: [2; 16],
        holds_values: false,
    }
}

/// Both sides of a ring of the least size.
struct Ring {
    dir: tempfile::TempDir,
    writer: JournalWriter,
    reader: JournalReader,
    lsn: u64,
}

/// A change that outlives its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    lsn: u64,
    effect: Effect,
    payload: Vec<u8>,
}

impl Kept {
    fn of(change: &StreamChange<'_>) -> Kept {
        let payload = [change.payload, change.rest].concat();
        Kept { lsn: change.lsn, effect: change.effect, payload }
    }
}

/// The bytes of a record.
fn record_of(key: &[u8], value: &[u8], lsn: u64, flags: u8) -> Vec<u8> {
    let (value_len, key_len) = (value.len() as u32, key.len() as u16);
    let head = Head { value_len, lsn, key_len, kind: r::KIND_STRING, flags, ..Head::EMPTY };
    let mut bytes = vec![0; head.bytes() as usize];
    let words = HeapWords::new(bytes.len());
    record::write(&words, 0, &head, key, &[value]);
    words.copy_out(0, &mut bytes);
    bytes
}

impl Ring {
    fn new() -> Ring {
        let dir = crate::tests::directory();
        let file = JournalFile::create(dir.path(), &spec()).expect("a journal");
        Ring::over(dir, file)
    }

    fn over(dir: tempfile::TempDir, file: JournalFile) -> Ring {
        let file = Arc::new(file);
        let (writer, reader) = (JournalWriter::new(&file), JournalReader::new(&file));
        Ring { dir, writer, reader, lsn: 0 }
    }

    /// The changes of a commit that puts values of these lengths; of one that deletes for `None`.
    fn changes(&self, values: &[Option<usize>]) -> Vec<Kept> {
        let change = |(lsn, value): (u64, &Option<usize>)| {
            let key = format!("key {lsn}");
            let (effect, value, flags) = match value {
                Some(len) => (Effect::Put, vec![lsn as u8; *len], 0),
                None => (Effect::Gone, vec![], r::FLAG_TOMBSTONE),
            };
            Kept { lsn, effect, payload: record_of(key.as_bytes(), &value, lsn, flags) }
        };
        (self.lsn + 1..).zip(values).map(change).collect()
    }

    /// Bytes of their entry.
    fn bytes(changes: &[Kept], needs: usize) -> u64 {
        let changes = changes.iter().map(|it| change_bytes(it.payload.len() as u64));
        e::HEADER_BYTES + needs as u64 * e::NEED_BYTES + changes.sum::<u64>()
    }

    /// Publishes a commit.
    fn publish(&mut self, changes: &[Kept], needs: &[(u32, u64)], clock_ms: u64) {
        let bytes = Ring::bytes(changes, needs.len());
        let mut entry = self.writer.begin(bytes, needs, changes.len() as u32, clock_ms);
        for (i, Kept { lsn, effect, payload }) in changes.iter().enumerate() {
            entry.change(ChangeHead {
                payload_bytes: payload.len() as u32,
                stream: STREAM,
                lsn: *lsn,
                effect: *effect,
                more: i + 1 < changes.len(),
            });
            entry.bytes(payload);
            entry.end_change();
        }
        entry.publish();
        self.writer.settle();
        self.lsn += changes.len() as u64;
    }

    fn put(&mut self, values: &[Option<usize>]) -> Vec<Kept> {
        let changes = self.changes(values);
        self.publish(&changes, &[], self.lsn);
        changes
    }

    /// The changes of the next entry.
    fn next(&mut self) -> Option<Vec<Kept>> {
        let entry = self.reader.advance().expect("a whole ring")?;
        Some(entry.changes().map(|change| Kept::of(&change.expect("no names"))).collect())
    }

    /// The log's thread has written all that was read, and the turn ends.
    fn leave(&mut self) {
        let position = self.reader.position();
        self.reader.written(position);
        self.writer.leave();
    }
}

/// The bytes that such a commit is said to take.
fn said(values: &[Option<usize>], keys: usize) -> u64 {
    let mut size = CommitSize::new(0, false);
    for value in values {
        match value {
            Some(len) => size.put(keys, *len, false),
            None => size.gone(keys),
        }
    }
    size.bytes()
}
