//! An arena that tells a journal, and one that is made of what was told.

use super::{Arena, TURNS_MAX, directory, spec};
use crate::{
    Effect, ForeignReader, JournalFile, JournalReader, JournalSpec, JournalWriter, ReplayError,
    StreamChange, UpkeepBudget, WriteError, Writer, verify,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

pub(super) const STREAM: u32 = 3 << 8;
/// Bytes of the ring.
const RING_BYTES: u64 = 1 << 20;

/// A change that outlives its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptChange {
    pub(super) lsn: u64,
    pub(super) effect: Effect,
    pub(super) payload: Vec<u8>,
}

impl KeptChange {
    pub(super) fn of(change: &StreamChange<'_>) -> KeptChange {
        let payload = [change.payload, change.rest].concat();
        KeptChange { lsn: change.lsn, effect: change.effect, payload }
    }

    pub(super) fn change(&self) -> StreamChange<'_> {
        StreamChange { lsn: self.lsn, effect: self.effect, payload: &self.payload, rest: &[] }
    }
}

/// An arena that tells a journal.
pub(super) struct Telling {
    pub(super) a: Arena,
    pub(super) ring: JournalWriter,
    pub(super) reader: JournalReader,
    pub(super) dir: TempDir,
}

pub(super) fn journal_spec() -> JournalSpec {
    JournalSpec {
        shard: 0,
        ring_bytes: RING_BYTES,
        log_id: [1; 16],
        boot_id: [2; 16],
        holds_values: false,
    }
}

impl Telling {
    pub(super) fn new(capacity: u64) -> Telling {
        Telling::with(capacity, journal_spec())
    }

    /// The same with a journal that holds values.
    pub(super) fn holding(capacity: u64) -> Telling {
        Telling::with(capacity, JournalSpec { holds_values: true, ..journal_spec() })
    }

    fn with(capacity: u64, journal: JournalSpec) -> Telling {
        let dir = directory();
        let a = Arena::create(&spec(dir.path().join("a"), capacity));
        let file = JournalFile::create(dir.path(), &journal).expect("a journal");
        Telling::over(dir, a, file)
    }

    /// The arena tells this journal, whose entries have left.
    pub(super) fn over(dir: TempDir, mut a: Arena, file: JournalFile) -> Telling {
        let file = Arc::new(file);
        let (ring, mut reader) = (JournalWriter::new(&file), JournalReader::new(&file));
        reader.set_arena(STREAM, a.writer.region().clone());
        a.writer.set_journal(&ring, STREAM);
        Telling { a, ring, reader, dir }
    }

    /// The commits that the log's thread finds now.
    pub(super) fn read(&mut self) -> Vec<Vec<KeptChange>> {
        let mut commits = Vec::new();
        while let Some(entry) = self.reader.advance().expect("whole entries") {
            let changes = entry.changes().map(|it| KeptChange::of(&it.expect("its value")));
            commits.push(changes.collect());
        }
        commits
    }

    /// That thread has written all that it has read; the turn ends.
    pub(super) fn leave(&mut self) {
        let position = self.reader.position();
        self.reader.written(position);
        self.ring.leave();
        self.a.turn();
    }
}

/// Value, expiry and number by key.
pub(super) type State = BTreeMap<Vec<u8>, (Vec<u8>, u64, u64)>;

pub(super) fn state(a: &Arena) -> State {
    let (pin, mut state, mut cursor) = (a.me.pin(), State::new(), 0);
    loop {
        cursor = a.reader.scan(&pin, cursor, 64, &mut |record| {
            let value = (record.value().to_vec(), record.expiry_ms(), record.lsn());
            state.insert(record.key().to_vec(), value);
        });
        if cursor == 0 {
            return state;
        }
    }
}

/// Builds an arena from commits.
pub(super) fn replayed(commits: &[Vec<KeptChange>], capacity: u64) -> (TempDir, Arena) {
    let dir = directory();
    let domain = crate::Domain::new(4);
    let spec = spec(dir.path().join("b"), capacity);
    let writer = Writer::build(&spec, &domain).expect("an arena");
    assert!(!spec.path.exists(), "it isn't whole yet");
    let mut b = Arena::of(writer, domain, spec);
    let mut last = 0;
    for commit in commits {
        let changes: Vec<_> = commit.iter().map(KeptChange::change).collect();
        last = changes.iter().map(|it| it.lsn).fold(last, u64::max);
        assert_eq!(replay(&mut b, &changes), Ok(vec![]), "{:?}", commit[0].effect);
    }
    b.writer.end_replay(last);
    b.writer.give_name().expect("its name");
    let foreign = ForeignReader::open(&b.spec.path).expect("it is whole");
    let (stats, counters) = (b.writer.stats(), foreign.counters());
    assert_eq!((foreign.begun_lsn(), counters.committed_lsn, stats.lsn), (last, last, last));
    assert_eq!((counters.keys, counters.appended_bytes), (stats.keys, stats.appended_bytes));
    assert!(b.writer.based.is_empty(), "nothing is staged any more");
    let report = verify(&b.spec.path).expect("it is whole");
    assert_eq!((stats.keys, stats.expires), (report.keys, report.expires));
    (dir, b)
}

/// Does a commit again; returns which of its changes stand on nothing.
pub(super) fn replay(
    b: &mut Arena,
    changes: &[StreamChange<'_>],
) -> Result<Vec<usize>, ReplayError> {
    for _ in 0..TURNS_MAX {
        let done = b.writer.replay(changes);
        b.me.quiescent();
        b.writer.maintain(UpkeepBudget::default());
        match done {
            Err(ReplayError::Write(WriteError::Busy)) => std::thread::yield_now(),
            other => return other.map(|it| it.dangling),
        }
    }
    panic!("memory never comes back");
}
