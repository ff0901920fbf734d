//! SIGKILL while memory is full: writes are refused or evict keys, the cleaner never rests, and the
//! index grows and shrinks. The next server keeps the promises below, and `nigh check` finds
//! nothing.
//!
//! ```text
//! round:  start (adopts) ─► compare, scan ─► writers in parallel ─► SIGKILL ─► nigh check
//! ```
//!
//! Each writer has keys of its own and one connection, whose commands run in order.
//!
//! 1. A key has the value of its last acknowledged write. A refused write (`OOM`, `TRYAGAIN`)
//!    changed nothing. Deleting is never refused.
//! 2. A prefix of the unanswered writes happened, in order. Any of them may have been refused: the
//!    test can't know which. Each MSET and each transaction happened wholly or not at all, as its
//!    reply says.
//! 3. Under eviction any key may be missing, but no key has an older value. A missing key stays
//!    missing until it is written.
//! 4. There is no other key.
//!
//! `NIGH_KILLS` sets the number of kills.

use crate::support::load::{self, Random, Value, bytes, words, write_of};
use crate::support::{Server, assert_whole, folder};
use nigh_client::{Connection, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Number of kills, unless `NIGH_KILLS` is set.
const KILLS: u64 = 6;
/// The least memory with which a server starts.
const MAXMEMORY: &str = "8mb";
/// Connections that write at the same time.
const WRITERS: u64 = 3;
/// Operations of a connection that are unanswered at a time.
const IN_FLIGHT: usize = 16;
/// Keys of a writer that fill memory: with values of mean length they need more than there is.
const FILLERS: u64 = 90;
/// Lengths of their values: in segments, and (one of so many) in runs.
const FILLER_BYTES: std::ops::Range<usize> = 2000..60_000;
const LARGE_BYTES: std::ops::Range<usize> = 70_000..300_000;
const LARGE_EVERY: u64 = 60;
/// Small keys of a writer. It sets all, then deletes all, so the index grows and shrinks.
const SMALL: u64 = 1600;
/// Small keys in one operation.
const SMALL_AT_ONCE: u64 = 8;
/// Keys in one read.
const READ_AT_ONCE: usize = 200;
/// Time of load before a kill, ms: the least, and the most that is added.
const LOAD_MS: (u64, u64) = (20, 100);
/// The first load fills memory.
const FIRST_LOAD: Duration = Duration::from_millis(800);

type State = BTreeMap<String, Value>;

/// Keys that change together or not at all.
struct Part {
    changes: Vec<(String, Value)>,
    may_be_refused: bool,
}

/// A command or a transaction.
struct Op {
    commands: Vec<Vec<Vec<u8>>>,
    parts: Vec<Part>,
    /// The key whose value is the answer.
    reads: Option<String>,
}

/// One writer's view of the world.
struct Writer {
    id: u64,
    evicts: bool,
    random: Random,
    sequence: u64,
    /// The next small key, and whether small keys are being deleted.
    small: (u64, bool),
    known: State,
    unanswered: VecDeque<Op>,
    answered: u64,
    refused: u64,
}

impl Writer {
    fn new(id: u64, evicts: bool) -> Self {
        Self {
            id,
            evicts,
            random: Random(id + 1),
            sequence: 0,
            small: (0, false),
            known: State::new(),
            unanswered: VecDeque::new(),
            answered: 0,
            refused: 0,
        }
    }

    fn value(&mut self, length: std::ops::Range<usize>) -> (u64, usize) {
        self.sequence += 1;
        (self.sequence, self.random.length(length))
    }

    /// The next operation: as often on small keys as on those that fill memory.
    fn op(&mut self) -> Op {
        if self.random.draw(2) == 0 {
            return self.small_op();
        }
        let key = format!("w{}:filler:{}", self.id, self.random.draw(FILLERS));
        let large = self.random.draw(LARGE_EVERY) == 0;
        let value = self.value(if large { LARGE_BYTES } else { FILLER_BYTES });
        let other = format!("{key}:twin");
        self.any_op(key, other, value)
    }

    fn small_op(&mut self) -> Op {
        let (first, go) = self.small;
        let next = first + SMALL_AT_ONCE;
        self.small = if next < SMALL { (next, go) } else { (0, !go) };
        let keys = (first..next).map(|number| format!("w{}:small:{number}", self.id));
        let keys: Vec<String> = keys.collect();
        if go {
            return Op::delete(keys);
        }
        let value = self.value(8..100);
        let data = bytes(value);
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &data]);
        let command: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        let changes = keys.iter().map(|key| (key.clone(), Some(value))).collect();
        Op::new(vec![words(&command)], changes)
    }

    fn any_op(&mut self, key: String, other: String, value: (u64, usize)) -> Op {
        let data = bytes(value);
        let (first, second) = (key.as_bytes(), other.as_bytes());
        let set = |key: &[u8]| words(&[b"SET", key, &data]);
        let exec = |a, b| vec![words(&[b"MULTI"]), a, b, words(&[b"EXEC"])];
        match self.random.draw(16) {
            0..=6 => Op::new(vec![set(first)], vec![(key, Some(value))]),
            7 | 8 => Op::delete(vec![key]),
            9 => Op::delete(vec![key, other]),
            10 | 11 => {
                let command = words(&[b"MSET", first, &data, second, &data]);
                Op::new(vec![command], vec![(key, Some(value)), (other, Some(value))])
            }
            12 => {
                let commands = exec(set(first), set(second));
                Op::new(commands, vec![(key, Some(value)), (other, Some(value))])
            }
            13 => {
                let commands = exec(words(&[b"DEL", first]), set(second));
                Op::new(commands, vec![(key, None), (other, Some(value))])
            }
            // This copies a record of any length while memory is full, and changes no value.
            14 => Op::new(vec![words(&[b"EXPIRE", first, b"100000"])], vec![]),
            _ => {
                let op = Op::new(vec![words(&[b"GET", first])], vec![]);
                Op { reads: Some(key), ..op }
            }
        }
    }

    /// Writes until the connection breaks.
    fn write(&mut self, connection: &mut Connection) {
        loop {
            while self.unanswered.len() < IN_FLIGHT {
                let op = self.op();
                let sent = op.commands.iter().try_for_each(|command| connection.send(command));
                // The failed send may have sent a part.
                self.unanswered.push_back(op);
                if sent.is_err() {
                    return;
                }
            }
            let Some(op) = self.unanswered.front() else { return };
            let mut reply = Frame::Null;
            for _ in 0..op.commands.len() {
                match connection.receive() {
                    Ok(next) => reply = next,
                    Err(_) => return,
                }
            }
            let Some(op) = self.unanswered.pop_front() else { return };
            self.answered += 1;
            self.learn(op, &reply);
        }
    }

    /// Takes over the effect of an operation, by its (last) reply.
    fn learn(&mut self, op: Op, reply: &Frame) {
        if let Some(key) = op.reads {
            let value = reply.bytes().map(write_of);
            assert!(value.is_some() || reply.is_null(), "{key}: {reply:?}");
            let known = self.known.entry(key.clone()).or_default();
            let is_gone = self.evicts && value.is_none();
            assert!(*known == value || is_gone, "{key} is {value:?}, should be {known:?}");
            *known = value;
        }
        let mut replies = reply.elements().into_iter().flatten();
        assert!(replies.all(|reply| reply.error().is_none()), "half of a transaction: {reply:?}");
        for part in op.parts {
            match reply.error().map(String::from_utf8_lossy) {
                None => self.known.extend(part.changes),
                Some(text) => {
                    let text =
                        text.trim_start_matches("EXECABORT Transaction discarded because of: ");
                    assert!(part.may_be_refused, "what needs no memory was refused: {text}");
                    assert!(text.starts_with("OOM ") || text.starts_with("TRYAGAIN "), "{text}");
                    self.refused += 1;
                }
            }
        }
    }

    /// Compares with the server's keys, and takes these over.
    fn compare(&mut self, connection: &mut Connection) {
        let ops: Vec<Op> = self.unanswered.drain(..).collect();
        let parts = || ops.iter().flat_map(|op| &op.parts);
        let changed = parts().flat_map(|part| &part.changes).map(|(key, _)| key.clone());
        let touched: BTreeSet<String> = changed.collect();
        for key in &touched {
            self.known.entry(key.clone()).or_default();
        }
        let found = self.read_all(connection);
        let fits = |known: Value, found: Value| found == known || self.evicts && found.is_none();
        for (key, &known) in self.known.iter().filter(|(key, _)| !touched.contains(*key)) {
            assert!(fits(known, found[key]), "{key} is {:?}, should be {known:?}", found[key]);
        }
        let explained = (0..=ops.len()).any(|end| {
            // From the last to the first: a later write hides the effect of an earlier one.
            let mut open = touched.clone();
            let parts = ops[..end].iter().enumerate().rev();
            let parts = parts.flat_map(|(i, op)| op.parts.iter().rev().map(move |part| (i, part)));
            let mut parts = parts.map(|(i, part)| (i + 1 == end, part));
            let in_order = parts.all(|(was_cut, part)| {
                let mut left = part.changes.iter().filter(|(key, _)| open.contains(key));
                let happened = left.all(|(key, value)| fits(*value, found[key]));
                if happened {
                    open.retain(|key| part.changes.iter().all(|(changed, _)| changed != key));
                }
                happened || part.may_be_refused || was_cut
            });
            in_order && open.iter().all(|key| fits(self.known[key], found[key]))
        });
        assert!(
            explained,
            "writer {}: no way of the unanswered {:?} explains what was found (before, found): {:?}",
            self.id,
            parts().map(|part| &part.changes).collect::<Vec<_>>(),
            touched.iter().map(|key| (key, self.known[key], found[key])).collect::<Vec<_>>()
        );
        self.known = found;
    }

    fn read_all(&self, connection: &mut Connection) -> State {
        let keys: Vec<&str> = self.known.keys().map(String::as_str).collect();
        let mut found = State::new();
        for keys in keys.chunks(READ_AT_ONCE) {
            let command = std::iter::once("MGET").chain(keys.iter().copied());
            let reply = connection.call(command).expect("the server is up");
            let values = reply.elements().expect("MGET answers a list");
            let values = values.iter().map(|value| value.bytes().map(write_of));
            found.extend(keys.iter().map(|&key| key.to_owned()).zip(values));
        }
        found
    }
}

impl Op {
    fn new(commands: Vec<Vec<Vec<u8>>>, changes: Vec<(String, Value)>) -> Op {
        Op { commands, parts: vec![Part { changes, may_be_refused: true }], reads: None }
    }

    /// One commit if there is memory for that, else one key after another.
    fn delete(keys: Vec<String>) -> Op {
        let command: Vec<&[u8]> =
            [&b"DEL"[..]].into_iter().chain(keys.iter().map(|key| key.as_bytes())).collect();
        let commands = vec![words(&command)];
        let part = |key| Part { changes: vec![(key, None)], may_be_refused: false };
        Op { commands, parts: keys.into_iter().map(part).collect(), reads: None }
    }
}

/// Every key of a server, by SCAN.
fn scan(connection: &mut Connection) -> BTreeSet<String> {
    let (mut keys, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let reply = connection.call(["SCAN", &cursor, "COUNT", "1000"]).expect("the server is up");
        let text =
            |frame: &Frame| String::from_utf8(frame.bytes().expect("text").to_vec()).expect("text");
        let parts = reply.elements().expect("a cursor and a list");
        keys.extend(parts[1].elements().expect("a list").iter().map(text));
        cursor = text(&parts[0]);
        if cursor == "0" {
            return keys;
        }
    }
}

/// Work of the servers before they were killed.
#[derive(Debug, Default)]
struct Done {
    cleaned: u64,
    larger: u64,
    smaller: u64,
    evicted: u64,
}

impl Done {
    fn add(&mut self, server: &Server) {
        let info = server.call(&["INFO", "everything"]);
        let info = String::from_utf8_lossy(info.bytes().expect("a text")).into_owned();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok()).expect("a field of INFO")
        };
        // Counted since the arena was made.
        self.cleaned = field("cleaner_segments");
        self.larger += field("arena_index_rebuilds_larger");
        self.smaller += field("arena_index_rebuilds_smaller");
        self.evicted += field("evicted_keys");
        let (backed, most) = (field("arena_backed_bytes"), field("arena_capacity_bytes"));
        assert!(backed <= most, "{backed} bytes are backed of {most}");
    }
}

/// Kills servers with full memory, one after the other. Returns their work, and the number of
/// refusals.
fn kill_while_full(policy: &str) -> (Done, u64) {
    let (kills, evicts) = (load::kills(KILLS), policy != "noeviction");
    let folder = folder();
    let arenas = folder.path().join("arenas");
    let mut writers: Vec<Writer> = (0..WRITERS).map(|id| Writer::new(id, evicts)).collect();
    let (mut pause, mut done) = (Random(7), Done::default());
    for round in 0..=kills {
        let flags = ["--maxmemory", MAXMEMORY, "--maxmemory-policy", policy];
        let server = Server::start_with(folder.path(), &flags);
        let mut connection = server.connect();
        writers.iter_mut().for_each(|writer| writer.compare(&mut connection));
        let all = writers.iter().flat_map(|writer| &writer.known);
        let all: BTreeSet<String> =
            all.filter(|(_, value)| value.is_some()).map(|(key, _)| key.clone()).collect();
        let scanned = scan(&mut connection);
        assert!(scanned == all, "{:?} differ", scanned.symmetric_difference(&all));
        let size = server.call(&["DBSIZE"]).integer();
        assert_eq!(size, i64::try_from(all.len()).ok(), "DBSIZE");
        if round == kills {
            break;
        }
        let span = Duration::from_millis(LOAD_MS.0 + pause.draw(LOAD_MS.1));
        let span = if round == 0 { FIRST_LOAD } else { span };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let mut connection = server.connect();
                scope.spawn(move || writer.write(&mut connection));
            }
            std::thread::sleep(span.saturating_sub(begun.elapsed()));
            done.add(&server);
            server.kill();
        });
        assert_whole(&arenas);
    }
    let [answered, refused] = [|w: &Writer| w.answered, |w: &Writer| w.refused]
        .map(|count| writers.iter().map(count).sum::<u64>());
    eprintln!("{policy}: {kills} kills, {answered} answers, {refused} refused, {done:?}");
    assert!(done.cleaned > kills && done.larger > 0, "{done:?} is no load");
    (done, refused)
}

/// Without eviction a write that finds no memory is refused, and the old value stays. Every
/// acknowledged write is there.
#[test]
fn killed_servers_that_are_full_lose_nothing_and_keep_what_was_refused_out() {
    let (done, refused) = kill_while_full("noeviction");
    assert!(refused > 0 && done.evicted == 0, "{refused} refused, {done:?}");
}

/// With eviction keys may be missing. No value is old, no key comes back, and no write is refused.
#[test]
fn killed_servers_that_evict_lose_keys_but_bring_none_back() {
    let (done, refused) = kill_while_full("allkeys-lru");
    assert!(refused == 0 && done.evicted > 0, "{refused} refused, {done:?}");
}
