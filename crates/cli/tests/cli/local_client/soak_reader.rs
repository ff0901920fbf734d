//! The values of the soak, and a process that reads them.
//!
//! A value is words of 8 bytes: key, version, key, version, … Both tell its length. So each byte of
//! it follows from them, and a look at all of them takes no longer than a comparison of memory.
//!
//! What is acknowledged of a key is a word: its version, alone or with [`GOES`] or [`GONE`].

use super::soak::PATIENCE;
use nigh_client::{Address, CallError, Client, ClientOptions, ForeignValues, LocalUse};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Tells a reader its folder, and its number.
const JOB: &str = "NIGH_LOCAL_SOAK_JOB";
const NUMBER: &str = "NIGH_LOCAL_SOAK_NUMBER";

/// Keys that are overwritten; those of a group, which have one version; those that grow in number
/// and go together. All have a slot.
pub(crate) const KEYS: usize = 500;
pub(crate) const GROUP_AT: usize = KEYS;
pub(crate) const GROUP: usize = 8;
pub(crate) const GROWN_AT: usize = GROUP_AT + GROUP;
pub(crate) const GROWN: usize = 2_500;
pub(crate) const SLOTS: usize = GROWN_AT + GROWN;

/// Keys of one multi-get.
const TOGETHER: usize = 64;
/// Keys of a batch that are read one by one.
const SINGLE: usize = 8;
/// Multi-gets between two views, and two looks for the end.
const VIEW_EVERY: u64 = 8;
const STOP_EVERY: u64 = 256;

/// Its removal is under way: the key is there, or not.
pub(crate) const GOES: u64 = 1 << 62;
/// It was removed, and all versions up to this one with it.
pub(crate) const GONE: u64 = 1 << 63;
const VERSION: u64 = GOES - 1;

pub(crate) fn key(slot: usize) -> Vec<u8> {
    match slot {
        GROUP_AT..GROWN_AT => format!("{{group}}{slot}"),
        slot => format!("k{slot}"),
    }
    .into_bytes()
}

/// Bytes of a value. Some lie in a run.
fn bytes(slot: usize, version: u64) -> usize {
    let of_version = (version.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
    match slot {
        ..GROUP_AT if version.is_multiple_of(397) => 150_000,
        ..GROWN_AT => 16 * (1 + of_version % 120),
        _ => 16 * (1 + of_version % 3),
    }
}

pub(crate) fn value(slot: usize, version: u64) -> Vec<u8> {
    let words = [(slot as u64).to_le_bytes(), version.to_le_bytes()].concat();
    words.repeat(bytes(slot, version) / 16)
}

/// The version of a value, which is whole.
fn version_of(slot: usize, found: &[u8]) -> u64 {
    let word = |at: usize| found.get(8 * at..8 * at + 8).map(|it| it.try_into().expect("8 bytes"));
    let [of, version] = [0, 1].map(|at| u64::from_le_bytes(word(at).unwrap_or_default()));
    assert!(of == slot as u64, "slot {slot} has garbage: {:?}", &found[..found.len().min(40)]);
    let is_whole = found.len() == bytes(slot, version) && found[16..] == found[..found.len() - 16];
    assert!(is_whole, "slot {slot} of version {version} is torn: {} bytes", found.len());
    version
}

pub(crate) fn spawn(folder: &Path, number: usize) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "local_client::soak_reader::reader_job", "--nocapture"])
        .env(JOB, folder)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// How much a reader has read so far, how much of that of keys that were gone, and its views that
/// were of one moment.
pub(crate) fn counts(folder: &Path, number: usize) -> [u64; 3] {
    let text = std::fs::read_to_string(folder.join(format!("reads-{number}"))).unwrap_or_default();
    let mut counts = text.split_whitespace().map_while(|it| it.parse().ok());
    [0; 3].map(|none| counts.next().unwrap_or(none))
}

/// The reader's side; nothing unless the environment says so.
#[test]
fn reader_job() {
    let Some(folder) = std::env::var_os(JOB) else { return };
    let folder = Path::new(&folder);
    let number = std::env::var(NUMBER).expect("the parent's");
    let options = ClientOptions { wait: PATIENCE, ..ClientOptions::default() };
    let options = ClientOptions { local: LocalUse::Required, ..options };
    let address = Address::unix(super::socket(folder));
    let client = Client::connect_with(&address, options).expect("a client");
    let mut reader = Reader {
        client,
        acked: File::open(folder.join("acked")).expect("the writer's file"),
        keys: (0..SLOTS).map(key).collect(),
        seen: vec![(0, false); SLOTS],
        before: Vec::new(),
        values: ForeignValues::new(),
        reads: 0,
        gone: 0,
        views: 0,
    };
    let written = File::create(folder.join(format!("reads-{number}"))).expect("our folder");
    let (mut turn, mut at, mut hot_at) = (0u64, 0, 0);
    while !turn.is_multiple_of(STOP_EVERY) || !folder.join("stop").exists() {
        turn += 1;
        // Most reads are of the keys that are overwritten all the time. All places come in turn.
        let (next, keys) = match turn.is_multiple_of(4) {
            true => (&mut at, SLOTS),
            false => (&mut hot_at, KEYS),
        };
        let last = keys - TOGETHER;
        *next = if *next == last { 0 } else { last.min(*next + TOGETHER) };
        let first = *next;
        reader.read_together(first);
        reader.read_group();
        reader.read_one_by_one(first);
        if turn.is_multiple_of(VIEW_EVERY) {
            reader.view_group();
        }
        if turn.is_multiple_of(STOP_EVERY) {
            let counts = format!("{:20} {:20} {:20}", reader.reads, reader.gone, reader.views);
            written.write_all_at(counts.as_bytes(), 0).expect("our file");
        }
    }
}

struct Reader {
    client: Client,
    acked: File,
    keys: Vec<Vec<u8>>,
    /// The last version of each key, and whether it was gone behind that.
    seen: Vec<(u64, bool)>,
    /// What was acknowledged before the reads at hand.
    before: Vec<u64>,
    values: ForeignValues,
    reads: u64,
    /// Those of keys that were gone.
    gone: u64,
    views: u64,
}

impl Reader {
    /// Notes what is acknowledged now of so many keys.
    fn begin(&mut self, first: usize, count: usize) {
        let mut bytes = vec![0; 8 * count];
        self.acked.read_exact_at(&mut bytes, 8 * first as u64).expect("the writer's file");
        self.before.clear();
        let words = bytes.as_chunks::<8>().0.iter();
        self.before.extend(words.map(|word| u64::from_le_bytes(*word)));
    }

    /// Compares what was found of a key, `before` of which was acknowledged.
    fn note(&mut self, slot: usize, found: Option<&[u8]>, before: u64) -> Option<u64> {
        let (acknowledged, is_gone) = (before & VERSION, before & GONE != 0);
        self.reads += 1;
        self.gone += u64::from(is_gone);
        let last = &mut self.seen[slot];
        let Some(found) = found else {
            // It was to go, if the writer has said so before it let it go.
            if acknowledged > 0 && before == acknowledged {
                let mut now = [0; 8];
                self.acked.read_exact_at(&mut now, 8 * slot as u64).expect("the writer's file");
                assert_ne!(u64::from_le_bytes(now), before, "slot {slot} is lost: acknowledged");
            }
            *last = (last.0.max(acknowledged), true);
            return None;
        };
        let version = version_of(slot, found);
        let least = acknowledged + u64::from(is_gone);
        assert!(version >= least, "slot {slot} is stale: {version}, acknowledged {before:#x}");
        let least = last.0 + u64::from(last.1);
        assert!(version >= least, "slot {slot} goes back from {last:?} to {version}");
        *last = (version, false);
        Some(version)
    }

    fn read_together(&mut self, first: usize) {
        self.begin(first, TOGETHER);
        let keys: [&[u8]; TOGETHER] = std::array::from_fn(|at| &self.keys[first + at][..]);
        let mut values = std::mem::take(&mut self.values);
        self.client.multi_get_into(&keys, &mut values).expect("waits for the next server");
        for at in 0..TOGETHER {
            self.note(first + at, values.get(at), self.before[at]);
        }
        self.values = values;
    }

    fn read_one_by_one(&mut self, first: usize) {
        let mut value = Vec::new();
        for slot in first..first + SINGLE {
            self.begin(slot, 1);
            let found = self.client.get_into(&self.keys[slot], &mut value);
            let found = found.expect("waits for the next server").then_some(&value[..]);
            self.note(slot, found, self.before[0]);
        }
    }

    fn read_group(&mut self) {
        self.begin(GROUP_AT, GROUP);
        let keys: [&[u8]; GROUP] = std::array::from_fn(|at| &self.keys[GROUP_AT + at][..]);
        let mut values = std::mem::take(&mut self.values);
        self.client.multi_get_into(&keys, &mut values).expect("waits for the next server");
        let found: [_; GROUP] =
            std::array::from_fn(|at| self.note(GROUP_AT + at, values.get(at), self.before[at]));
        assert!(found.iter().all(|it| *it == found[0]), "not of one moment: {found:?}");
        self.values = values;
    }

    fn view_group(&mut self) {
        self.begin(GROUP_AT, GROUP);
        let keys: [&[u8]; GROUP] = std::array::from_fn(|at| &self.keys[GROUP_AT + at][..]);
        let view = self.client.view(|view| keys.iter().map(|key| view.get(key)).collect());
        let view: Vec<Option<Vec<u8>>> = match view {
            Ok(view) => view,
            Err(CallError::TooNew { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let found: [_; GROUP] = std::array::from_fn(|at| {
            self.note(GROUP_AT + at, view[at].as_deref(), self.before[at])
        });
        assert!(found.iter().all(|it| *it == found[0]), "not of one moment: {found:?}");
        self.views += 1;
    }
}
