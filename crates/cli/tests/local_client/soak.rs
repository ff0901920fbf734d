//! Readers in other processes while the owner writes, is killed, and starts again: the test binary
//! runs itself as the readers.
//!
//! ```text
//! round n of the writer: one of many keys := n │ pair := n, in one commit │ beacon := n │ acked := n
//! a reader:              a key is whole, of a round that doesn't go back │ the pair is of one round
//!                        │ acked, then the beacon: not older
//! ```
//!
//! A value's bytes all follow from key and round. `NIGH_LOCAL_SOAK_SECONDS` makes it as long as one
//! likes.

use super::{local, serve};
use crate::support::folder;
use nigh_client::{Address, CallError, Client, ClientOptions, ForeignValues, LocalUse};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECONDS: &str = "NIGH_LOCAL_SOAK_SECONDS";
/// Tells a reader its folder.
const JOB: &str = "NIGH_LOCAL_SOAK_JOB";
const READERS: usize = 2;
const KEYS: u64 = 500;
const PAIR: [&str; 2] = ["{pair}a", "{pair}b"];
const MAXMEMORY: &str = "32mb";
/// Life of a server, about.
const LIFE: Duration = Duration::from_millis(700);
/// How long a client waits for the next one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds between two removals of all keys.
const CLEAR_EVERY: u64 = 5000;

fn value(key: &str, round: u64) -> Vec<u8> {
    let unit = format!("{key}:{round};").into_bytes();
    let bytes = if round.is_multiple_of(97) { 150_000 } else { 30 + round % 400 };
    unit.into_iter().cycle().take(usize::try_from(bytes).expect("small")).collect()
}

/// The round of a value, which is whole.
fn round_of(key: &str, found: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(&found[..found.len().min(60)]).into_owned();
    let round = text.strip_prefix(key).and_then(|it| it.strip_prefix(':'));
    let round = round.and_then(|it| it.split(';').next()).and_then(|it| it.parse().ok());
    let round = round.unwrap_or_else(|| panic!("{key} has garbage: {text}"));
    assert!(found == value(key, round), "{key} of round {round} is torn: {text}");
    round
}

#[test]
fn readers_see_whole_values_while_servers_die() {
    let seconds = std::env::var(SECONDS).map_or(1.5, |it| it.parse().expect("seconds"));
    let folder = folder();
    let acked = File::create(folder.path().join("acked")).expect("our folder");
    acked.write_all_at(&0u64.to_le_bytes(), 0).expect("our file");
    let start = || serve(folder.path(), &["--maxmemory", MAXMEMORY, "--shards", "1"]);
    let mut server = Some(start());
    let mut readers: Vec<Child> = (0..READERS).map(|_| reader(folder.path())).collect();
    let (stop, begin, mut deaths) = (AtomicBool::new(false), Instant::now(), 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(folder.path(), &acked, &stop));
        while begin.elapsed() < Duration::from_secs_f64(seconds) && !writer.is_finished() {
            std::thread::sleep(LIFE);
            let old = server.take().expect("started below");
            if deaths % 4 == 1 {
                old.signal(rustix::process::Signal::TERM);
                old.ended();
            } else {
                old.kill();
            }
            server = Some(start());
            deaths += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let rounds = writer.join().expect("the writer didn't panic");
        assert!(rounds > 50 && deaths > 1, "{rounds} rounds, {deaths} deaths");
    });
    File::create(folder.path().join("stop")).expect("our folder");
    for reader in &mut readers {
        let status = reader.wait().expect("our child");
        assert!(status.success(), "a reader says what it has seen");
    }
    drop(server);
}

/// Writes rounds; returns how many.
fn write(folder: &Path, acked: &File, stop: &AtomicBool) -> u64 {
    let mut client = local(folder, PATIENCE);
    let (mut round, mut unknown) = (0, 0u64);
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut sent = |request: &[&[u8]]| match client.call(request) {
            Ok(reply) => assert!(reply.error().is_none(), "{reply:?}"),
            // A later round comes over it, whether it happened or not.
            Err(CallError::Unknown { .. }) => unknown += 1,
            Err(error) => panic!("{error}"),
        };
        if round % CLEAR_EVERY == 0 {
            acked.write_all_at(&0u64.to_le_bytes(), 0).expect("our file");
            sent(&[b"FLUSHALL"]);
        }
        let key = format!("k{}", round * 7919 % KEYS);
        sent(&[b"SET", key.as_bytes(), &value(&key, round)]);
        let pair = PAIR.map(|key| value(key, round));
        sent(&[b"MSET", PAIR[0].as_bytes(), &pair[0], PAIR[1].as_bytes(), &pair[1]]);
        let before = unknown;
        let beacon = value("beacon", round);
        match client.set(b"beacon", &beacon) {
            Ok(()) => {}
            Err(CallError::Unknown { .. }) => unknown += 1,
            Err(error) => panic!("{error}"),
        }
        if unknown == before {
            acked.write_all_at(&round.to_le_bytes(), 0).expect("our file");
        }
    }
    round
}

fn reader(folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "soak::reader_job", "--nocapture"])
        .env(JOB, folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// The reader's side; nothing unless the environment says so.
#[test]
fn reader_job() {
    let Some(folder) = std::env::var_os(JOB) else { return };
    let folder = Path::new(&folder);
    let options = ClientOptions { wait: PATIENCE, ..ClientOptions::default() };
    let options = ClientOptions { local: LocalUse::Required, ..options };
    let address = Address::unix(super::socket(folder));
    let mut client = Client::connect_with(&address, options).expect("a client");
    let acked = File::open(folder.join("acked")).expect("the writer's file");
    let mut reads = ReaderSide { seen: HashMap::new(), values: ForeignValues::new(), reads: 0 };
    while !folder.join("stop").exists() {
        for key in 0..KEYS {
            reads.read_all(&mut client, key, &acked);
        }
    }
    assert!(reads.reads > 1000, "{} reads", reads.reads);
    eprintln!("{} reads", reads.reads);
}

/// What a reader has seen.
struct ReaderSide {
    /// The last round of each key.
    seen: HashMap<String, u64>,
    values: ForeignValues,
    reads: u64,
}

impl ReaderSide {
    fn note(&mut self, key: &str, found: Option<&[u8]>) -> Option<u64> {
        self.reads += 1;
        let round = round_of(key, found?);
        let last = self.seen.entry(key.to_owned()).or_default();
        assert!(round >= *last, "{key} goes back from {last} to {round}");
        *last = round;
        Some(round)
    }

    fn read_all(&mut self, client: &mut Client, key: u64, acked: &File) {
        let key = format!("k{key}");
        let found = client.get(key.as_bytes()).expect("waits for the next server");
        self.note(&key, found.as_deref());
        let mut values = std::mem::take(&mut self.values);
        let keys = PAIR.map(str::as_bytes);
        client.multi_get_into(&keys, &mut values).expect("waits for the next server");
        let rounds = [0, 1].map(|at| self.note(PAIR[at], values.get(at)));
        assert_eq!(rounds[0], rounds[1], "of one commit");
        self.values = values;
        let pair = client.view(|view| Ok([view.get(keys[0])?, view.get(keys[1])?]));
        let pair = match pair {
            Ok(pair) => pair,
            Err(CallError::TooNew { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let rounds = [0, 1].map(|at| self.note(PAIR[at], pair[at].as_deref()));
        assert_eq!(rounds[0], rounds[1], "of one commit");
        let before = number(acked);
        let beacon = client.get(b"beacon").expect("waits for the next server");
        match self.note("beacon", beacon.as_deref()) {
            Some(round) => assert!(round >= before, "{before} was acknowledged before {round}"),
            None => assert!(before == 0 || number(acked) != before, "{before} was acknowledged"),
        }
    }
}

fn number(acked: &File) -> u64 {
    let mut bytes = [0; 8];
    acked.read_exact_at(&mut bytes, 0).expect("the writer's file");
    u64::from_le_bytes(bytes)
}
