//! Copies of keyspaces into others with more or fewer partitions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use nigh_shm::{Domain, Participant, WriteError, tag};
use nigh_store::{
    Copied, CopyError, Copying, Edition, Keyspace, Refused, Source, StoreOptions, Turn, copy_bytes,
    left_in,
};

use crate::support::{Resp2, START_MS, op};

const MIB: u64 = 1 << 20;
/// Most steps of a copy.
const STEPS_MAX: u32 = 100_000;

/// A key's value and expiry.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

struct Fixture {
    dir: tempfile::TempDir,
    domain: Arc<Domain>,
    participant: Participant,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        let domain = Domain::new(1);
        let participant = domain.join();
        Fixture { dir: dir.expect("a directory in /dev/shm"), domain, participant }
    }

    fn open(&self, name: &str, partitions: usize, capacity_bytes: u64) -> Keyspace {
        let mut options = StoreOptions::new(self.dir.path().join(name), capacity_bytes);
        options.partitions = partitions;
        Keyspace::open(&options, &self.domain).expect("it opens").0
    }

    fn apply(&mut self, keyspace: &mut Keyspace, args: &[&[u8]]) -> Vec<u8> {
        let partition = keyspace.partition_of(args[1]);
        for _ in 0..STEPS_MAX {
            let pin = self.participant.pin();
            let turn = Turn { now_ms: START_MS, pin: &pin, random: 1 };
            let mut reply = Resp2::default();
            let store = keyspace.part_mut(partition);
            store.apply(op(args[0]), args, &turn, &mut reply);
            let busy = store.take_busy().is_some();
            keyspace.maintain(&turn);
            self.participant.quiescent();
            if !busy {
                return reply.0;
            }
        }
        panic!("memory never comes back");
    }

    fn fill(&mut self, keyspace: &mut Keyspace, model: &Model) {
        for (key, (value, expiry_ms)) in model {
            let at = expiry_ms.to_string();
            let command: &[&[u8]] = match expiry_ms {
                0 => &[b"SET", key, value],
                _ => &[b"SET", key, value, b"PXAT", at.as_bytes()],
            };
            assert_eq!(self.apply(keyspace, command), b"+OK\r\n");
        }
    }

    fn put_library(&mut self, keyspace: &mut Keyspace, name: &[u8], source: &[u8]) {
        let pin = self.participant.pin();
        let turn = Turn { now_ms: START_MS, pin: &pin, random: 1 };
        keyspace.librarian_mut().put_library(name, source, &turn).expect("there is room");
    }

    fn copy<'k>(
        &mut self,
        from: impl Into<Source<'k>>,
        to: &'k mut Keyspace,
        now_ms: u64,
    ) -> Result<Copied, Refused> {
        let mut copying = Copying::new(from, to, now_ms);
        for _ in 0..STEPS_MAX {
            let step = copying.step(&self.participant.pin());
            self.participant.quiescent();
            match step {
                Ok(true) => return Ok(copying.copied()),
                Ok(false) | Err(CopyError::Refused(Refused { error: WriteError::Busy, .. })) => {}
                Err(CopyError::Refused(refused)) => return Err(refused),
                Err(CopyError::Unreadable(error)) => panic!("{error}"),
            }
        }
        panic!("the copy never ends");
    }

    /// All keys, each in its partition.
    fn content(&self, keyspace: &Keyspace) -> Model {
        let pin = self.participant.pin();
        let mut model = Model::new();
        for (partition, store) in keyspace.parts().iter().enumerate() {
            let mut cursor = 0;
            loop {
                cursor = store.reader().scan(&pin, cursor, 64, &mut |record| {
                    assert_eq!(keyspace.partition_of(record.key()), partition);
                    let content = (record.value().to_vec(), record.expiry_ms());
                    assert_eq!(model.insert(record.key().to_vec(), content), None);
                });
                if cursor == 0 {
                    break;
                }
            }
        }
        model
    }
}

/// Small and large values, tags, empty ones, and expiries, some of which are over a second later.
fn model(keys: u32) -> Model {
    let key = |n: u32| match n % 3 {
        0 => format!("{{tag{}}}:{n}", n % 7).into_bytes(),
        1 => format!("key:{n}").into_bytes(),
        _ => n.to_le_bytes().to_vec(),
    };
    let value = |n: u32| match n % 500 {
        0 => vec![b'r'; 300_000],
        1 => Vec::new(),
        _ => format!("value {n}").into_bytes(),
    };
    let expiry = |n: u32| match n % 11 {
        0 => START_MS + 1000 + u64::from(n % 2),
        1 => START_MS + 100_000,
        _ => 0,
    };
    (0..keys).map(|n| (key(n), (value(n), expiry(n)))).collect()
}

/// From one partition to many, to fewer, and back to one. Each time all keys are there, each in its
/// partition, but for those whose time was over meanwhile. Libraries go along. Adopting the copy
/// changes nothing.
#[test]
fn a_copy_has_everything_at_its_place() {
    let mut fixture = Fixture::new();
    let mut model = model(5000);
    let mut from = fixture.open("1", 1, 128 * MIB);
    fixture.fill(&mut from, &model);
    fixture.put_library(&mut from, b"one", b"source of one");
    fixture.put_library(&mut from, b"two", b"source of two");
    // Some keys are over after the first of these times, others after the second.
    let targets = [("7", 7, 1001), ("64", 64, 1002), ("2", 2, 1003), ("1again", 1, 1004)];
    for (name, partitions, after_ms) in targets {
        let now_ms = START_MS + after_ms;
        let all = model.len();
        model.retain(|_, (_, expiry_ms)| *expiry_ms == 0 || *expiry_ms >= now_ms);
        let mut to = fixture.open(name, partitions, 128 * MIB);
        let copied = fixture.copy(&from, &mut to, now_ms).expect("there is room");
        assert_eq!(copied.keys, model.len() as u64);
        assert_eq!(copied.expired, (all - model.len()) as u64);
        assert_eq!(copied.libraries, 2);
        drop((from, to));
        fixture.participant.quiescent();
        from = fixture.open(name, partitions, 128 * MIB);
        assert!(fixture.content(&from) == model, "{name}");
        let pin = fixture.participant.pin();
        let turn = Turn { now_ms, pin: &pin, random: 1 };
        let libraries = from.librarian().libraries(&turn);
        assert_eq!(libraries, [(&b"one"[..], &b"source of one"[..]), (b"two", b"source of two")]);
    }
    assert!(model.len() < 5000 - 400, "some keys ended on the way");
}

/// The copy takes no more memory than was estimated, also where it is nearly all index or all
/// spare.
#[test]
fn a_copy_takes_no_more_memory_than_said() {
    let mut fixture = Fixture::new();
    let tiny: Model = (0..60_000u32).map(|n| (n.to_le_bytes().to_vec(), (Vec::new(), 0))).collect();
    let awkward: Model =
        (0..600u32).map(|n| (n.to_le_bytes().to_vec(), (vec![7; 43_000], 0))).collect();
    for (name, model) in [("empty", Model::new()), ("tiny", tiny), ("awkward", awkward)] {
        let mut from = fixture.open(name, 1, 128 * MIB);
        fixture.fill(&mut from, &model);
        for partitions in [3, 64] {
            let mut to = fixture.open(&format!("{name}{partitions}"), partitions, 256 * MIB);
            fixture.copy(&from, &mut to, START_MS).expect("there is room");
            let (said, stats) = (copy_bytes(&from, partitions, 256 * MIB), to.stats());
            let taken = stats.data.backed_bytes + stats.system.backed_bytes;
            assert!(taken <= said, "{name} to {partitions}: {taken} taken, {said} said");
        }
    }
}

/// Keys with one tag all go to one partition, and don't fit into its share of the memory. The error
/// names the partition.
#[test]
fn a_partition_without_room_is_named() {
    let mut fixture = Fixture::new();
    let mut from = fixture.open("1", 1, 64 * MIB);
    let value = vec![b'v'; 10_000];
    let model: Model =
        (0..2000).map(|n| (format!("{{t}}{n}").into_bytes(), (value.clone(), 0))).collect();
    fixture.fill(&mut from, &model);
    let mut to = fixture.open("8", 8, 64 * MIB);
    let refused = fixture.copy(&from, &mut to, START_MS).expect_err("20 MB in 8");
    assert_eq!(refused.error, WriteError::Oom);
    assert_eq!(tag(b"{t}1"), b"t");
    assert_eq!(refused.partition, Some(to.partition_of(b"{t}1")));
    assert!(fixture.content(&from) == model, "the other one is as it was");
}

/// Partitions and memory of a tenant are known without opening the directory, and of that tenant
/// alone.
#[test]
fn what_was_left_is_known_without_opening_it() {
    let fixture = Fixture::new();
    drop(fixture.open("3", 3, 48 * MIB));
    let dir = fixture.dir.path().join("3");
    let left = left_in(&dir, "default", Edition::Living)
        .expect("it is readable")
        .expect("something is there");
    assert_eq!((left.partitions, left.capacity_bytes), (3, 48 * MIB));
    assert_eq!(left_in(&dir, "other", Edition::Living).expect("it is readable"), None);
    assert!(left_in(&dir, "../3/default", Edition::Living).is_err(), "no name of a tenant");
    assert!(left_in(Path::new("/dev/shm/nigh-is-not-there"), "default", Edition::Living).is_err());
}
