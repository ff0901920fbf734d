//! A journal has enough to make the same store again: all keys, with their expiries and numbers.

use std::sync::{Arc, Mutex};

use nigh_shm::{
    ArenaSpec, Domain, Effect, JournalFile, JournalReader, JournalSpec, JournalWriter, Participant,
    Reader, ReplayError, StreamChange, UpkeepBudget, WriteError, Writer,
};
use nigh_store::Policy;
use tempfile::TempDir;

use crate::support::{Fixture, START_MS};

const MIB: usize = 1 << 20;
/// Most turns that a commit waits for memory.
const TURNS_MAX: u32 = 200_000;
/// The stream of all stores here.
const STREAM: u32 = 1 << 8;

/// A change that outlives its commit.
#[derive(Clone)]
struct Told {
    lsn: u64,
    effect: Effect,
    /// The whole payload.
    payload: Vec<u8>,
}

impl Told {
    fn new(change: &StreamChange<'_>) -> Told {
        let payload = [change.payload, change.rest].concat();
        Told { lsn: change.lsn, effect: change.effect, payload }
    }

    fn change(&self) -> StreamChange<'_> {
        StreamChange { lsn: self.lsn, effect: self.effect, payload: &self.payload, rest: &[] }
    }

    fn key(&self) -> &[u8] {
        self.change().key().expect("a whole payload").unwrap_or_default()
    }

    /// The number of the change that it stands on.
    fn base_lsn(&self) -> Option<u64> {
        let (lsn, _) = self.payload.split_first_chunk()?;
        (self.effect == Effect::Based).then_some(u64::from_le_bytes(*lsn))
    }
}

/// A journal, and what was read from it: commits, in order.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Mutex<Recorded>>);

struct Recorded {
    writer: JournalWriter,
    reader: JournalReader,
    commits: Vec<Vec<Told>>,
    _dir: TempDir,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        let dir = dir.expect("a directory in /dev/shm");
        let spec = JournalSpec {
            shard: 0,
            ring_bytes: 16 << 20,
            log_id: [1; 16],
            boot_id: [2; 16],
            holds_values: false,
        };
        let file = Arc::new(JournalFile::create(dir.path(), &spec).expect("a journal"));
        let (writer, reader) = (JournalWriter::new(&file), JournalReader::new(&file));
        Recorder(Arc::new(Mutex::new(Recorded { writer, reader, commits: vec![], _dir: dir })))
    }
}

impl Recorder {
    /// Has a store's commits told to this journal, too, from now on.
    pub(crate) fn listen(&self, fixture: &mut Fixture) {
        fixture.told = Some(self.clone());
        let mut recorded = self.0.lock().unwrap();
        fixture.turn(|store, _| {
            recorded.reader.set_arena(STREAM, store.data_region().clone());
            store.set_journal(&recorded.writer, STREAM);
        });
    }

    /// Takes what the journal has, as a log's thread does.
    pub(crate) fn record(&self) {
        let recorded = &mut *self.0.lock().unwrap();
        while let Some(entry) = recorded.reader.advance().expect("whole entries") {
            let changes = entry.changes().map(|change| Told::new(&change.expect("its value")));
            let commit: Vec<Told> = changes.collect();
            assert!(!commit.is_empty(), "a commit changes something");
            recorded.commits.push(commit);
        }
        let position = recorded.reader.position();
        recorded.reader.written(position);
        recorded.writer.leave();
    }

    /// Takes what the journal has, and forgets the arena.
    pub(crate) fn let_go(&self) {
        self.record();
        self.0.lock().unwrap().reader.forget_arena(STREAM);
    }

    /// Number of commits so far.
    pub(crate) fn commits(&self) -> usize {
        self.record();
        self.0.lock().unwrap().commits.len()
    }

    /// Bytes of all changes, with 32 for the numbers of each.
    fn size(&self) -> usize {
        self.record();
        let recorded = self.0.lock().unwrap();
        recorded.commits.iter().flatten().map(|told| 32 + told.payload.len()).sum()
    }

    fn last(&self) -> Vec<Told> {
        self.record();
        self.0.lock().unwrap().commits.last().expect("some commit").clone()
    }
}

/// Number, expiry and value of each of some keys.
pub(crate) type State = Vec<Option<(u64, u64, u32, usize)>>;

/// These keys as a reader finds them.
pub(crate) fn state(reader: &Reader, participant: &Participant, keys: &[Vec<u8>]) -> State {
    let pin = participant.pin();
    let of = |key: &Vec<u8>| {
        let record = reader.get(&pin, reader.hash(key), key)?;
        let value = record.value();
        let sum = value.iter().fold(1u32, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
        Some((record.lsn(), record.expiry_ms(), sum, value.len()))
    };
    keys.iter().map(of).collect()
}

/// An arena that is made from a journal.
pub(crate) struct Replica {
    writer: Writer,
    participant: Participant,
    done: usize,
    _dir: TempDir,
}

impl Replica {
    pub(crate) fn new(capacity_bytes: u64) -> Replica {
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        let dir = dir.expect("a directory in /dev/shm");
        let domain = Domain::new(1);
        let spec = ArenaSpec {
            path: dir.path().join("replica"),
            tenant: "replica".into(),
            partition: 0,
            partitions: 1,
            capacity_bytes,
            seed: Some(7),
        };
        let writer = Writer::create(&spec, &domain).expect("an arena");
        Replica { writer, participant: domain.join(), done: 0, _dir: dir }
    }

    /// Replays up to so many commits; returns these keys then.
    pub(crate) fn replay(&mut self, told: &Recorder, commits: usize, keys: &[Vec<u8>]) -> State {
        told.record();
        let recorded = told.0.lock().unwrap();
        for commit in &recorded.commits[self.done..commits] {
            let changes: Vec<StreamChange<'_>> = commit.iter().map(Told::change).collect();
            self.replay_one(&changes).expect("what was told can be done again");
        }
        self.done = commits;
        state(&self.writer.reader(), &self.participant, keys)
    }

    fn replay_one(&mut self, changes: &[StreamChange<'_>]) -> Result<(), ReplayError> {
        for _ in 0..TURNS_MAX {
            let outcome = self.writer.replay(changes);
            self.participant.quiescent();
            self.writer.maintain(UpkeepBudget::default());
            if outcome != Err(ReplayError::Write(WriteError::Busy)) {
                return outcome.map(|replayed| assert!(replayed.dangling.is_empty()));
            }
        }
        panic!("memory never comes back");
    }

    /// The number of the newest change.
    pub(crate) fn lsn(&self) -> u64 {
        self.writer.stats().lsn
    }
}

/// A store of so many bytes whose commits are recorded.
fn recorded(capacity_bytes: u64) -> (Fixture, Recorder) {
    let (mut fixture, told) = (Fixture::with_capacity(capacity_bytes), Recorder::default());
    told.listen(&mut fixture);
    (fixture, told)
}

fn stored(fixture: &mut Fixture, keys: &[Vec<u8>]) -> State {
    let reader = fixture.turn(|store, _| store.reader().clone());
    state(&reader, &fixture.participant, keys)
}

#[test]
fn a_kilobyte_appended_is_a_kilobyte_told() {
    // Each APPEND once copied the whole value: 16,777 of them took minutes, and a log of whole
    // values would have 140 GB. A SETRANGE at the end is an APPEND.
    let (mut fixture, told) = recorded(256 << 20);
    let piece = vec![b'x'; 1024];
    for n in 1..=16_777usize {
        let end = ((n - 1) * piece.len()).to_string();
        let reply = match n % 2 {
            0 => fixture.bytes(&[b"SETRANGE", b"log", end.as_bytes(), &piece]),
            _ => fixture.bytes(&[b"APPEND", b"log", &piece]),
        };
        assert_eq!(reply, format!(":{}\r\n", n * piece.len()).into_bytes());
    }
    let appended = 16_777 * piece.len();
    assert!(told.size() <= 2 * appended, "{} for {appended}", told.size());
    let written = fixture.turn(|store, _| store.stats().data.appended_bytes);
    assert!(written < 4 * appended as u64, "{written}: the value is copied as often as it doubles");
    let keys = [b"log".to_vec()];
    let mut replica = Replica::new(256 << 20);
    assert_eq!(replica.replay(&told, told.commits(), &keys), stored(&mut fixture, &keys));
}

#[test]
fn another_expiry_or_name_of_a_long_value_is_told_in_few_bytes() {
    let (mut fixture, told) = recorded(256 << 20);
    let value = vec![b'x'; 100 * MIB];
    assert_eq!(fixture.bytes(&[b"SET", b"long", &value]), b"+OK\r\n");
    let before = told.size();
    fixture.script(&[("EXPIRE long 100", ":1"), ("RENAME long longer", "+OK")]);
    fixture.script(&[("PERSIST longer", ":1"), ("APPEND longer abc", ":104857603")]);
    assert!(told.size() - before < 1024, "{}", told.size() - before);
    let keys = [b"long".to_vec(), b"longer".to_vec()];
    let mut replica = Replica::new(256 << 20);
    assert_eq!(replica.replay(&told, told.commits(), &keys), stored(&mut fixture, &keys));
}

#[test]
fn what_a_transaction_makes_stands_on_what_was_published_before() {
    let (mut fixture, told) = recorded(64 << 20);
    let long = "l".repeat(700_000);
    fixture.run(&format!("SET a {long}"));
    let base = told.last()[0].lsn;
    // Twice extended and renamed: one change, from the version that others have seen.
    fixture.turn(|store, _| store.begin());
    fixture.script(&[("APPEND a one", ":700003"), ("APPEND a two", ":700006")]);
    fixture.script(&[("RENAME a b", "+OK"), ("SET new v", "+OK"), ("APPEND new w", ":2")]);
    fixture.run(&format!("SET c {long}"));
    fixture.script(&[("APPEND c d", ":700001")]);
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    let last = told.last();
    let of = |key: &[u8]| last.iter().find(|it| it.key() == key).expect("a change of this key");
    assert_eq!(of(b"b").base_lsn(), Some(base));
    assert!(of(b"b").payload.ends_with(b"aonetwo"), "the source's key, and what is new");
    assert_eq!((of(b"a").effect, of(b"new").effect), (Effect::Gone, Effect::Put));
    // Its base was never seen, so the change has the whole value.
    assert!(of(b"c").effect == Effect::Put && of(b"c").payload.len() > 700_001);
    let keys = ["a", "b", "c", "new"].map(|key| key.as_bytes().to_vec());
    let mut replica = Replica::new(64 << 20);
    assert_eq!(replica.replay(&told, told.commits(), &keys), stored(&mut fixture, &keys));
}

#[test]
fn expiries_evictions_and_clearing_are_told_like_all_else() {
    let (mut fixture, told) = recorded(4 << 20);
    fixture.turn(|store, _| store.set_eviction(Policy::AllKeysLru, 5));
    let keys: Vec<Vec<u8>> = (0..4000).map(|n| format!("key{n}").into_bytes()).collect();
    let value = vec![b'v'; 2000];
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(fixture.bytes(&[b"SET", key, &value]), b"+OK\r\n");
        if n % 7 == 0 {
            fixture.bytes(&[b"PEXPIRE", key, b"50"]);
        }
        fixture.now_ms += 1;
    }
    let stats = fixture.turn(|store, _| store.stats());
    assert!(stats.evicted_keys > 100 && stats.expired_keys > 100, "{stats:?}");
    // The replica has more room. Replayed evictions make room, not the replica's own.
    let mut replica = Replica::new(16 << 20);
    assert_eq!(replica.replay(&told, told.commits(), &keys), stored(&mut fixture, &keys));
    assert_eq!(replica.lsn(), fixture.turn(|store, _| store.stats().data.lsn));
    fixture.script(&[("FLUSHALL", "+OK"), ("SET key1 v", "+OK")]);
    assert_eq!(replica.replay(&told, told.commits(), &keys), stored(&mut fixture, &keys));
    assert!(fixture.now_ms > START_MS);
}
