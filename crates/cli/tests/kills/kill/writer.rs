//! A writer of small and large values, logs and brief keys, and what a server may have of it.

use crate::support::held::{BRIEF_MS, Found, HOUR_MS, Held, Part, now_ms};
use crate::support::load::{Random, bytes, words};
use nigh_client::{Connection, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Operations of a connection that are unanswered at a time.
const IN_FLIGHT: usize = 16;
/// Most keys of a writer: enough for the index to grow several times.
const KEYS: u64 = 20_000;
/// Log keys of a writer, to which it mostly appends; and pairs of brief keys.
const LOGS: u64 = 6;
const BRIEF: u64 = 300;
/// Keys in one read.
const READ_AT_ONCE: usize = 500;
/// A value that doesn't fit into half a segment of the tests' arena.
const LARGE: usize = 700_000;
/// One value in this many is large.
const LARGE_EVERY: u64 = 500;
/// One log in this many begins with a large part.
const LARGE_LOG_EVERY: u64 = 10;
/// Mean number of appends to a log before it begins anew.
const LOG_PARTS: u64 = 60;

type State = BTreeMap<String, Option<Held>>;

/// The change of one key by an operation.
#[derive(Clone, Copy)]
enum Change {
    Set(Part, u64),
    Append(Part),
    Expiry(u64),
    Delete,
}

fn apply(state: &mut State, changes: &[(String, Change)]) {
    for (key, change) in changes {
        let held = state.entry(key.clone()).or_insert(None);
        match *change {
            Change::Set(part, expiry_ms) => *held = Some(Held { parts: vec![part], expiry_ms }),
            Change::Append(part) => match held {
                Some(held) => held.parts.push(part),
                None => *held = Some(Held { parts: vec![part], expiry_ms: 0 }),
            },
            Change::Expiry(expiry_ms) => {
                if let Some(held) = held {
                    held.expiry_ms = expiry_ms;
                }
            }
            Change::Delete => *held = None,
        }
    }
}

/// Commands that happen all or not at all.
struct Op {
    commands: Vec<Vec<Vec<u8>>>,
    changes: Vec<(String, Change)>,
}

impl Op {
    /// One command for each change; a transaction if there are several.
    fn of(changes: Vec<(String, Change)>) -> Op {
        let command = |(key, change): &(String, Change)| {
            let key = key.as_bytes();
            match *change {
                Change::Set(part, 0) => words(&[b"SET", key, &bytes(part)]),
                Change::Set(part, expiry_ms) => {
                    words(&[b"SET", key, &bytes(part), b"PXAT", expiry_ms.to_string().as_bytes()])
                }
                Change::Append(part) => words(&[b"APPEND", key, &bytes(part)]),
                Change::Expiry(0) => words(&[b"PERSIST", key]),
                Change::Expiry(expiry_ms) => {
                    words(&[b"PEXPIREAT", key, expiry_ms.to_string().as_bytes()])
                }
                Change::Delete => words(&[b"DEL", key]),
            }
        };
        let mut commands: Vec<_> = changes.iter().map(command).collect();
        if commands.len() > 1 {
            commands.insert(0, words(&[b"MULTI"]));
            commands.push(words(&[b"EXEC"]));
        }
        Op { commands, changes }
    }

    /// MSET of these keys to one value.
    fn mset(keys: &[String], part: Part) -> Op {
        let data = bytes(part);
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &data]);
        let command: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        let changes = keys.iter().map(|key| (key.clone(), Change::Set(part, 0))).collect();
        Op { commands: vec![words(&command)], changes }
    }
}

/// One writer's view of the world.
pub(crate) struct Writer {
    id: u64,
    random: Random,
    sequence: u64,
    pub(crate) acknowledged: State,
    unanswered: VecDeque<Op>,
    /// Keys that were written since the last comparison.
    touched: BTreeSet<String>,
    /// It waits so long behind each acknowledged operation.
    pub(crate) pause: Duration,
    pub(crate) count: u64,
    pub(crate) appends: u64,
    /// Brief keys that had expired when they were looked for.
    pub(crate) over: u64,
    /// Comparisons in which some of the unanswered writes had happened.
    pub(crate) in_part: u64,
}

impl Writer {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            random: Random(id + 1),
            sequence: 0,
            acknowledged: State::new(),
            unanswered: VecDeque::new(),
            touched: BTreeSet::new(),
            pause: Duration::ZERO,
            count: 0,
            appends: 0,
            over: 0,
            in_part: 0,
        }
    }

    fn key(&mut self) -> String {
        let number = self.random.draw(KEYS);
        format!("w{}:{number}", self.id)
    }

    fn part(&mut self, large_every: u64) -> Part {
        self.sequence += 1;
        let small = 8 + usize::try_from(self.random.draw(120)).expect("small");
        (self.sequence, if self.random.draw(large_every) == 0 { LARGE } else { small })
    }

    /// The next operation.
    fn op(&mut self) -> Op {
        use Change::{Append, Delete, Expiry, Set};
        let (key, part) = (self.key(), self.part(LARGE_EVERY));
        let twin = format!("{key}:twin");
        let hour = now_ms() + HOUR_MS;
        match self.random.draw(16) {
            0 | 1 => Op::of(vec![(key, Set(part, 0))]),
            2 => Op::of(vec![(key, Set(part, hour))]),
            3 => Op::of(vec![(key, Delete)]),
            4 => Op::of(vec![(key, Append(part))]),
            5 => Op::of(vec![(key, Expiry(hour))]),
            6 => Op::of(vec![(key, Expiry(0))]),
            7 => Op::mset(&[key, twin], part),
            8 => {
                let keys: Vec<String> = (0..8).map(|_| self.key()).collect();
                let keys: BTreeSet<String> = keys.into_iter().collect();
                Op::mset(&keys.into_iter().collect::<Vec<_>>(), part)
            }
            9 => Op::of(vec![(key, Set(part, 0)), (twin, Set(part, hour))]),
            10 => Op::of(vec![(key, Delete), (twin, Append(part))]),
            11 => {
                Op::of(vec![(key.clone(), Append(part)), (key, Expiry(hour)), (twin, Append(part))])
            }
            12 | 13 => self.log_op(),
            _ => self.brief_op(),
        }
    }

    /// Appends to a log, to two of them at once, or begins one anew.
    fn log_op(&mut self) -> Op {
        let number = self.random.draw(LOGS);
        let [key, next] = [number, (number + 1) % LOGS].map(|n| format!("w{}:log:{n}", self.id));
        if self.random.draw(LOG_PARTS) == 0 {
            let part = self.part(LARGE_LOG_EVERY);
            return Op::of(vec![(key, Change::Set(part, 0))]);
        }
        let part = self.part(u64::MAX);
        match self.random.draw(4) {
            0 => Op::of(vec![(key, Change::Append(part)), (next, Change::Append(part))]),
            _ => Op::of(vec![(key, Change::Append(part))]),
        }
    }

    /// Sets a brief key, or two at once with the same expiry. No other operation writes brief keys,
    /// so no outcome depends on which clock was ahead.
    fn brief_op(&mut self) -> Op {
        let (number, part) = (self.random.draw(BRIEF), self.part(u64::MAX));
        let at = now_ms() + self.random.draw(BRIEF_MS);
        let key = |n| format!("w{}:brief:{n}", self.id);
        match number % 3 {
            0 => Op::of(vec![(key(number), Change::Set(part, at))]),
            _ => {
                let pair = number - number % 3;
                Op::of(vec![
                    (key(pair + 1), Change::Set(part, at)),
                    (key(pair + 2), Change::Set(part, at)),
                ])
            }
        }
    }

    /// Writes until the connection breaks.
    pub(crate) fn write(&mut self, connection: &mut Connection) {
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
            let mut last = None;
            for _ in 0..op.commands.len() {
                match connection.receive() {
                    Ok(reply) => {
                        assert!(!is_refused(&reply), "{reply:?}");
                        last = Some(reply);
                    }
                    Err(_) => return,
                }
            }
            let Some(op) = self.unanswered.pop_front() else { return };
            apply(&mut self.acknowledged, &op.changes);
            if let [(key, Change::Append(_))] = &op.changes[..] {
                let expected = self.acknowledged[key].as_ref().map(|held| held.len() as i64);
                assert_eq!(last.and_then(|reply| reply.integer()), expected, "APPEND to {key}");
                self.appends += 1;
            }
            self.touched.extend(op.changes.into_iter().map(|(key, _)| key));
            self.count += 1;
            std::thread::sleep(self.pause);
        }
    }

    /// Compares with the server's keys, and takes these over. The error tells what is wrong.
    pub(crate) fn compare(&mut self, connection: &mut Connection) -> Result<(), String> {
        for (key, _) in self.unanswered.iter().flat_map(|op| &op.changes) {
            self.acknowledged.entry(key.clone()).or_insert(None);
            self.touched.insert(key.clone());
        }
        let found = self.read_all(connection);
        let mut expected = self.acknowledged.clone();
        let mut wrong = mismatch(&expected, &found);
        let first = wrong.clone();
        self.in_part += u64::from(wrong.is_some());
        for op in std::mem::take(&mut self.unanswered) {
            if wrong.is_none() {
                break;
            }
            apply(&mut expected, &op.changes);
            wrong = mismatch(&expected, &found);
        }
        if let Some(wrong) = wrong {
            let differ = expected.iter().filter(|(key, held)| !found[*key].is(held)).count();
            return Err(format!(
                "writer {}: no prefix of the unanswered writes explains what was found; with none \
                 of them: {}; with all: {wrong}; {differ} of {} keys differ",
                self.id,
                first.unwrap_or_default(),
                expected.len(),
            ));
        }
        // An expired key stays expired.
        for (key, held) in &mut expected {
            if held.as_ref().is_some_and(|held| held.expiry_ms != 0) && found[key].data.is_null() {
                *held = None;
                self.over += 1;
            }
        }
        self.acknowledged = expected;
        self.touched.clear();
        Ok(())
    }

    /// All keys, and the expiry of those that were written since the last comparison.
    fn read_all(&self, connection: &mut Connection) -> BTreeMap<String, Found> {
        let keys: Vec<String> = self.acknowledged.keys().cloned().collect();
        let mut all = BTreeMap::new();
        for keys in keys.chunks(READ_AT_ONCE) {
            let command = std::iter::once("MGET").chain(keys.iter().map(String::as_str));
            let from_ms = now_ms();
            let reply = connection.call(command).expect("the server is up");
            let read_ms = (from_ms, now_ms());
            let values = reply.elements().expect("MGET answers a list").to_vec();
            let found = values.into_iter().map(|data| Found { data, read_ms, expiry_ms: None });
            all.extend(keys.iter().cloned().zip(found));
        }
        for keys in self.touched.iter().collect::<Vec<_>>().chunks(READ_AT_ONCE) {
            for key in keys {
                connection.send(["PEXPIRETIME", key]).expect("the server is up");
            }
            for key in keys {
                let reply = connection.receive().expect("the server is up");
                let expiry = reply.integer().expect("PEXPIRETIME answers a number");
                // -1: no expiry; -2: no such key.
                let found = all.get_mut(*key).expect("it was read");
                found.expiry_ms = match expiry {
                    -2 => None,
                    expiry => Some(u64::try_from(expiry).unwrap_or(0)),
                };
            }
        }
        all
    }
}

/// An error, or a transaction in which one failed.
pub(crate) fn is_refused(reply: &Frame) -> bool {
    reply.error().is_some()
        || reply.elements().is_some_and(|replies| replies.iter().any(|r| r.error().is_some()))
}

/// The first key that isn't as expected, or whose twin of the same expiry is missing.
fn mismatch(expected: &State, found: &BTreeMap<String, Found>) -> Option<String> {
    // Two keys of one expiry go at one moment: what one MGET says of both.
    let mut pair: Option<(&Held, bool, (u64, u64))> = None;
    for (key, held) in expected {
        let is_there = !found[key].data.is_null();
        if !found[key].is(held) {
            return Some(format!("{key} should be {held:?}, has {}", found[key].tell()));
        }
        let Some(held) = held.as_ref().filter(|held| held.expiry_ms != 0) else { continue };
        let read_ms = found[key].read_ms;
        if let Some((first, was_there, first_read_ms)) = pair.replace((held, is_there, read_ms))
            && *first == *held
            && first_read_ms == read_ms
            && was_there != is_there
        {
            return Some(format!("{key} is there: {is_there}, the one before it: {was_there}"));
        }
    }
    None
}
