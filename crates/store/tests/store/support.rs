//! A store in a directory of its own, a clock, and replies as RESP2 text.

use std::sync::Arc;

use nigh_shm::{Domain, Participant};
use nigh_store::{Op, Opened, ReplySink, Store, StoreOptions, Turn};
use tempfile::TempDir;

use crate::journal::Recorder;

/// Unix ms at which every test starts.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
/// Capacity unless a test chooses.
pub(crate) const CAPACITY_BYTES: u64 = 64 << 20;
/// Most turns that a command waits for memory: some 20 seconds, since the memory thread may be held
/// up.
const TURNS_MAX: u32 = 200_000;

/// Writes RESP2, as a client would see it.
#[derive(Default)]
pub(crate) struct Resp2(pub(crate) Vec<u8>);

impl Resp2 {
    fn line(&mut self, kind: char, text: &str) {
        self.0.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
    }
}

impl ReplySink for Resp2 {
    fn ok(&mut self) {
        self.line('+', "OK");
    }
    fn simple(&mut self, text: &str) {
        self.line('+', text);
    }
    fn error(&mut self, text: &str) {
        assert!(!text.contains(['\r', '\n']), "an error of several lines: {text:?}");
        self.line('-', text);
    }
    fn int(&mut self, value: i64) {
        self.line(':', &value.to_string());
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.line('$', &bytes.len().to_string());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }
    fn null(&mut self) {
        self.line('$', "-1");
    }
    fn null_array(&mut self) {
        self.line('*', "-1");
    }
    fn array(&mut self, len: usize) {
        self.line('*', &len.to_string());
    }
    fn map(&mut self, len: usize) {
        self.array(2 * len);
    }
    fn set(&mut self, len: usize) {
        self.array(len);
    }
    fn double(&mut self, value: f64) {
        self.bulk(value.to_string().as_bytes());
    }
}

/// A store, its clock, and a participant in place of its shard.
pub(crate) struct Fixture {
    pub(crate) store: Option<Store>,
    pub(crate) participant: Participant,
    pub(crate) domain: Arc<Domain>,
    pub(crate) dir: TempDir,
    pub(crate) capacity_bytes: u64,
    pub(crate) now_ms: u64,
    /// Where its commits are recorded, if they are.
    pub(crate) told: Option<Recorder>,
    turns: u64,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::with_capacity(CAPACITY_BYTES)
    }

    pub(crate) fn with_capacity(capacity_bytes: u64) -> Fixture {
        let domain = Domain::new(4);
        let participant = domain.join();
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        let dir = dir.expect("a directory in /dev/shm");
        let mut fixture = Fixture {
            store: None,
            participant,
            domain,
            dir,
            capacity_bytes,
            now_ms: START_MS,
            told: None,
            turns: 0,
        };
        let opened = fixture.open();
        assert!(opened.data.is_none() && opened.system.is_none(), "nothing to adopt yet");
        fixture
    }

    /// Opens the store, which must be closed.
    pub(crate) fn open(&mut self) -> Opened {
        assert!(self.store.is_none());
        let mut options = StoreOptions::new(self.dir.path().join("arenas"), self.capacity_bytes);
        options.system_capacity_bytes = 16 << 20;
        let (store, opened) = Store::open(&options, &self.domain).expect("the store opens");
        self.store = Some(store);
        opened
    }

    /// Drops the store without closing it, as a crash does, and adopts its arenas.
    pub(crate) fn crash(&mut self) -> Opened {
        self.told.iter().for_each(Recorder::let_go);
        drop(self.store.take());
        self.participant.quiescent();
        self.open()
    }

    /// Runs `f` as a part of a turn.
    pub(crate) fn turn<T>(&mut self, f: impl FnOnce(&mut Store, &Turn<'_>) -> T) -> T {
        self.turns += 1;
        let pin = self.participant.pin();
        let turn = Turn { now_ms: self.now_ms, pin: &pin, random: self.turns };
        f(self.store.as_mut().expect("an open store"), &turn)
    }

    /// Ends a turn: upkeep outside of transactions, and the shard's announcement.
    pub(crate) fn end_turn(&mut self) {
        self.turn(|store, turn| {
            if !store.in_transaction() {
                store.maintain(turn);
            }
        });
        self.told.iter().for_each(Recorder::record);
        self.participant.quiescent();
    }

    /// Applies a command as a turn of its own and returns the reply's bytes. Applies it again in
    /// the next turn if memory is on its way, as a shard does.
    pub(crate) fn bytes(&mut self, args: &[&[u8]]) -> Vec<u8> {
        let op = op(args[0]);
        for _ in 0..TURNS_MAX {
            let (reply, busy) = self.turn(|store, turn| {
                let mut out = Resp2::default();
                store.apply(op, args, turn, &mut out);
                (out.0, store.take_busy().is_some())
            });
            let staged = self.turn(|store, _| store.in_transaction());
            self.end_turn();
            if !busy || staged {
                return reply;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        panic!("memory never comes back");
    }

    /// [`Fixture::bytes`] for a command of words, where `''` is the empty word. Line breaks of the
    /// reply become spaces.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let args: Vec<&[u8]> = command
            .split(' ')
            .map(|word| if word == "''" { &b""[..] } else { word.as_bytes() })
            .collect();
        let reply = String::from_utf8(self.bytes(&args)).expect("text");
        reply.trim_end().replace("\r\n", " ")
    }

    /// Runs commands and compares each reply with [`Fixture::run`]'s form of it.
    pub(crate) fn script(&mut self, lines: &[(&str, &str)]) {
        for (command, wanted) in lines {
            assert_eq!(self.run(command), *wanted, "reply to {command:?} in {lines:?}");
        }
    }
}

/// The command with this name.
pub(crate) fn op(name: &[u8]) -> Op {
    let name = std::str::from_utf8(name).expect("a name").to_ascii_lowercase();
    let found = Op::ALL.iter().find(|op| op.name() == name);
    *found.unwrap_or_else(|| panic!("no command {name}"))
}
