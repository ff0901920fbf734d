//! A journal has enough to make the same store again: all keys, with their expiries and numbers.

use std::sync::{Arc, Mutex};

use nigh_shm::{
    ArenaSpec, Domain, Journal, NumberedChange, Participant, Reader, ReplayError, UpkeepBudget,
    What, WriteError, Writer,
};
use nigh_store::Policy;
use tempfile::TempDir;

use crate::support::{Fixture, START_MS};

const MIB: usize = 1 << 20;
/// Most turns that a commit waits for memory.
const TURNS_MAX: u32 = 200_000;

/// A change that outlives its commit.
#[derive(Clone)]
struct Told {
    lsn: u64,
    key: Vec<u8>,
    bytes: Vec<u8>,
    what: Kind,
}

#[derive(Clone)]
enum Kind {
    Put { expiry_ms: u64 },
    Extend { from: Vec<u8>, base_lsn: u64, base_len: u32, expiry_ms: u64 },
    Delete,
    Clear,
}

impl Told {
    fn new(change: &NumberedChange<'_>) -> Told {
        let (key, bytes, what) = match change.what {
            What::Put { key, value, expiry_ms } => (key, value, Kind::Put { expiry_ms }),
            What::Extend { key, from, base_lsn, base_len, bytes, expiry_ms } => {
                let from = from.to_vec();
                (key, bytes, Kind::Extend { from, base_lsn, base_len, expiry_ms })
            }
            What::Delete { key } => (key, &b""[..], Kind::Delete),
            What::Clear => (&b""[..], &b""[..], Kind::Clear),
        };
        Told { lsn: change.lsn, key: key.to_vec(), bytes: bytes.to_vec(), what }
    }

    fn change(&self) -> NumberedChange<'_> {
        let (key, bytes) = (&self.key[..], &self.bytes[..]);
        let what = match &self.what {
            Kind::Put { expiry_ms } => What::Put { key, value: bytes, expiry_ms: *expiry_ms },
            Kind::Extend { from, base_lsn, base_len, expiry_ms } => {
                let (base_lsn, base_len, expiry_ms) = (*base_lsn, *base_len, *expiry_ms);
                What::Extend { key, from, base_lsn, base_len, bytes, expiry_ms }
            }
            Kind::Delete => What::Delete { key },
            Kind::Clear => What::Clear,
        };
        NumberedChange { lsn: self.lsn, what }
    }

    /// Bytes of its keys and values, with 32 for its numbers.
    fn size(&self) -> usize {
        let from = if let Kind::Extend { from, .. } = &self.what { from.len() } else { 0 };
        32 + self.key.len() + self.bytes.len() + from
    }
}

/// A journal in memory: commits, in order.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Vec<Told>>>>);

impl Journal for Recorder {
    fn commit(&mut self, changes: &[NumberedChange<'_>]) {
        assert!(!changes.is_empty(), "a commit changes something");
        self.0.lock().unwrap().push(changes.iter().map(Told::new).collect());
    }
}

impl Recorder {
    /// Has a store's commits passed to this journal, too, from now on.
    pub(crate) fn listen(&self, fixture: &mut Fixture) {
        fixture.turn(|store, _| store.set_journal(Box::new(self.clone())));
    }

    /// Number of commits so far.
    pub(crate) fn commits(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Bytes of all changes.
    fn size(&self) -> usize {
        self.0.lock().unwrap().iter().flatten().map(Told::size).sum()
    }

    fn last(&self) -> Vec<Told> {
        self.0.lock().unwrap().last().expect("some commit").clone()
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
        let told = told.0.lock().unwrap();
        for commit in &told[self.done..commits] {
            let changes: Vec<NumberedChange<'_>> = commit.iter().map(Told::change).collect();
            self.replay_one(&changes).expect("what was told can be done again");
        }
        self.done = commits;
        state(&self.writer.reader(), &self.participant, keys)
    }

    fn replay_one(&mut self, changes: &[NumberedChange<'_>]) -> Result<(), ReplayError> {
        for _ in 0..TURNS_MAX {
            let outcome = self.writer.replay(&self.participant.pin(), changes);
            self.participant.quiescent();
            self.writer.maintain(UpkeepBudget::default());
            if outcome != Err(ReplayError::Write(WriteError::Busy)) {
                return outcome;
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
    // values would have 140 GB.
    let (mut fixture, told) = recorded(256 << 20);
    let piece = vec![b'x'; 1024];
    for n in 1..=16_777usize {
        let reply = fixture.bytes(&[b"APPEND", b"log", &piece]);
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
    let of = |key: &[u8]| last.iter().find(|it| it.key == key).expect("a change of this key");
    assert!(matches!(&of(b"b").what,
        Kind::Extend { from, base_lsn, .. } if from == b"a" && *base_lsn == base));
    assert_eq!(of(b"b").bytes, b"onetwo");
    assert!(matches!(of(b"a").what, Kind::Delete) && of(b"new").bytes == b"vw");
    // Its base was never seen, so the change has the whole value.
    assert!(matches!(of(b"c").what, Kind::Put { .. }) && of(b"c").bytes.len() == 700_001);
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

#[test]
fn a_commit_that_does_not_follow_is_refused_and_changes_nothing() {
    let mut replica = Replica::new(16 << 20);
    let put = |lsn, key| NumberedChange { lsn, what: What::Put { key, value: b"v", expiry_ms: 0 } };
    let based = |lsn, base_lsn, base_len| {
        let (key, from, bytes) = (&b"k"[..], &b"a"[..], &b"more"[..]);
        NumberedChange {
            lsn,
            what: What::Extend { key, from, base_lsn, base_len, bytes, expiry_ms: 0 },
        }
    };
    assert_eq!(replica.replay_one(&[put(1, b"a")]), Ok(()));
    let cases = [
        (vec![put(3, b"b")], ReplayError::Gap { expected: 2, found: 3 }),
        (vec![put(1, b"b")], ReplayError::Gap { expected: 2, found: 1 }),
        (vec![put(2, b"b"), put(4, b"c")], ReplayError::Gap { expected: 3, found: 4 }),
        (
            vec![put(2, b"b"), NumberedChange { lsn: 3, what: What::Clear }],
            ReplayError::ClearsLater { lsn: 3 },
        ),
        (
            vec![put(2, b"b"), based(3, 2, 1)],
            ReplayError::NoBase { lsn: 3, base_lsn: 2, base_len: 1 },
        ),
        (vec![based(2, 1, 2)], ReplayError::NoBase { lsn: 2, base_lsn: 1, base_len: 2 }),
    ];
    for (changes, wanted) in cases {
        assert_eq!(replica.replay_one(&changes), Err(wanted));
    }
    assert_eq!((replica.lsn(), replica.writer.keys()), (1, 1));
    assert_eq!(replica.replay_one(&[based(2, 1, 1)]), Ok(()));
    let (reader, pin) = (replica.writer.reader(), replica.participant.pin());
    let record = reader.get(&pin, reader.hash(b"k"), b"k").expect("it was made");
    assert_eq!((record.value(), record.lsn()), (&b"vmore"[..], 2));
}
