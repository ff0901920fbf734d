//! SIGKILL under write load: the next server has every acknowledged write, and no half of anything.
//!
//! ```text
//! round:  start (adopts) ─► compare with the oracle ─► writers in parallel ─► SIGKILL
//! ```
//!
//! Each writer has keys of its own and one connection, whose commands run in order. When the server
//! dies, some are unanswered: of these, any number from the front may have happened, each wholly.
//! So what is found must equal the oracle after *some* prefix of them.
//!
//! `NIGH_KILLS` sets the number of kills.

mod support;

use nigh_client::{Connection, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use support::load::{self, Random, Value, bytes, words};
use support::{Server, folder};

/// Kills without `NIGH_KILLS`.
const KILLS: u64 = 10;
/// Connections that write at the same time.
const WRITERS: u64 = 3;
/// Operations of a connection that are unanswered at a time.
const IN_FLIGHT: usize = 16;
/// Keys of a writer, at most: enough for the index to grow several times.
const KEYS: u64 = 20_000;
/// Keys that are read at once.
const READ_AT_ONCE: usize = 500;
/// A value that doesn't fit into half a segment of the tests' arena.
const LARGE: usize = 700_000;
/// Rounds after which all is flushed: what was overwritten stays in the arena until then.
const FLUSH_EVERY: u64 = 8;
/// One value of so many is large.
const LARGE_EVERY: u64 = 500;

type State = BTreeMap<String, Value>;

/// Some commands that happen wholly or not at all.
struct Op {
    commands: Vec<Vec<Vec<u8>>>,
    changes: Vec<(String, Value)>,
}

/// One writer's view of the world.
struct Writer {
    id: u64,
    random: Random,
    sequence: u64,
    acknowledged: State,
    unanswered: VecDeque<Op>,
    count: u64,
}

impl Writer {
    fn new(id: u64) -> Self {
        Self {
            id,
            random: Random(id + 1),
            sequence: 0,
            acknowledged: State::new(),
            unanswered: VecDeque::new(),
            count: 0,
        }
    }

    fn key(&mut self) -> String {
        let number = self.random.draw(KEYS);
        format!("w{}:{number}", self.id)
    }

    fn value(&mut self) -> (u64, usize) {
        self.sequence += 1;
        let small = 8 + usize::try_from(self.random.draw(120)).expect("small");
        (self.sequence, if self.random.draw(LARGE_EVERY) == 0 { LARGE } else { small })
    }

    /// The next operation: SET, DEL, or two keys at once by MSET, DEL or EXEC.
    fn op(&mut self) -> Op {
        let (key, value) = (self.key(), self.value());
        let data = bytes(value);
        let other = format!("{key}:twin");
        let (first, second) = (key.as_bytes(), other.as_bytes());
        let (set, delete) =
            (|key: &[u8]| words(&[b"SET", key, &data]), |key: &[u8]| words(&[b"DEL", key]));
        let exec = |inner: [Vec<Vec<u8>>; 2]| {
            let [a, b] = inner;
            vec![words(&[b"MULTI"]), a, b, words(&[b"EXEC"])]
        };
        let (commands, changed) = match self.random.0 >> 40 & 7 {
            0..=2 => (vec![set(first)], vec![Some(value)]),
            3 => (vec![delete(first)], vec![None]),
            4 | 5 => {
                let command = words(&[b"MSET", first, &data, second, &data]);
                (vec![command], vec![Some(value), Some(value)])
            }
            6 => (exec([set(first), set(second)]), vec![Some(value), Some(value)]),
            _ => (exec([delete(first), set(second)]), vec![None, Some(value)]),
        };
        let changes = [key, other].into_iter().zip(changed).collect();
        Op { commands, changes }
    }

    /// Writes until the connection breaks.
    fn write(&mut self, connection: &mut Connection) {
        loop {
            while self.unanswered.len() < IN_FLIGHT {
                let op = self.op();
                let sent = op.commands.iter().try_for_each(|command| connection.send(command));
                // What couldn't be sent may have been sent in part.
                self.unanswered.push_back(op);
                if sent.is_err() {
                    return;
                }
            }
            let Some(op) = self.unanswered.front() else { return };
            for _ in 0..op.commands.len() {
                match connection.receive() {
                    Ok(reply) => assert!(!is_refused(&reply), "{reply:?}"),
                    Err(_) => return,
                }
            }
            let Some(op) = self.unanswered.pop_front() else { return };
            self.acknowledged.extend(op.changes);
            self.count += 1;
        }
    }

    /// Compares with what a server has, and takes that over.
    fn compare(&mut self, connection: &mut Connection) {
        for op in &self.unanswered {
            for (key, _) in &op.changes {
                self.acknowledged.entry(key.clone()).or_insert(None);
            }
        }
        let keys: Vec<String> = self.acknowledged.keys().cloned().collect();
        let mut found = BTreeMap::new();
        for keys in keys.chunks(READ_AT_ONCE) {
            let command = std::iter::once("MGET").chain(keys.iter().map(String::as_str));
            let reply = connection.call(command).expect("the server is up");
            let values = reply.elements().expect("MGET answers a list").to_vec();
            found.extend(keys.iter().cloned().zip(values));
        }
        let mut expected = self.acknowledged.clone();
        let mut wrong = mismatch(&expected, &found);
        let first = wrong.clone();
        for op in std::mem::take(&mut self.unanswered) {
            if wrong.is_none() {
                break;
            }
            expected.extend(op.changes);
            wrong = mismatch(&expected, &found);
        }
        assert!(
            wrong.is_none(),
            "writer {}: no prefix of the unanswered writes explains what was found; with none of \
             them: {}; with all: {}",
            self.id,
            first.unwrap_or_default(),
            wrong.unwrap_or_default()
        );
        self.acknowledged = expected;
    }
}

/// An error, or a transaction in which one failed.
fn is_refused(reply: &Frame) -> bool {
    reply.error().is_some()
        || reply.elements().is_some_and(|replies| replies.iter().any(|r| r.error().is_some()))
}

/// The first key that isn't as expected.
fn mismatch(expected: &State, found: &BTreeMap<String, Frame>) -> Option<String> {
    expected.iter().find_map(|(key, value)| {
        let right = match (&found[key], value) {
            (Frame::Bulk(data), Some(value)) => *data == bytes(*value),
            (reply, None) => reply.is_null(),
            _ => false,
        };
        (!right).then(|| {
            let bytes = found[key].bytes().map(<[u8]>::len);
            format!("{key} should be {value:?} (number, length), has {bytes:?} bytes")
        })
    })
}

/// Kill after kill, with writers that SET, DEL, MSET and EXEC, small and large values, while the
/// index grows: all that was acknowledged is there, and commits are whole.
#[test]
fn killed_servers_lose_nothing_and_halve_nothing() {
    let kills = load::kills(KILLS);
    let folder = folder();
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut pause = Random(WRITERS + 1);
    for round in 0..=kills {
        let server = Server::start_with(folder.path(), &["--maxmemory", "2gb"]);
        for writer in &mut writers {
            writer.compare(&mut server.connect());
        }
        if round == kills {
            break;
        }
        if round % FLUSH_EVERY == FLUSH_EVERY - 1 {
            assert!(!is_refused(&server.call(&["FLUSHALL"])), "FLUSHALL always works");
            for writer in &mut writers {
                writer.acknowledged.values_mut().for_each(|value| *value = None);
            }
        }
        let span = Duration::from_millis(3 + pause.draw(60));
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let mut connection = server.connect();
                scope.spawn(move || writer.write(&mut connection));
            }
            std::thread::sleep(span);
            server.kill();
        });
    }
    let written: u64 = writers.iter().map(|writer| writer.count).sum();
    assert!(written > kills, "{written} acknowledged writes in {kills} rounds are no load");
    eprintln!("{kills} kills, {written} acknowledged writes, all there");
}
