//! What one client has sent, what was answered, and which prefix of it a later server has.
//!
//! ```text
//! base ── op 1 ── op 2 ── … ── op n      found: what the next server has
//!          └─ answered ─┘ └ not ┘       shortest, longest: numbers of ops that explain it
//! ```
//!
//! 1. A writer's keys are in one partition (`{wN}`), and it has one connection. So its operations
//!    are in one order, and a server has a prefix of them, whatever was lost.
//! 2. An operation is whole or not there: an MSET, an EXEC, a RENAME.
//! 3. Brief keys expire meanwhile. One that is over may be missing, or must be if it was long ago.

use crate::support::held::{BRIEF_MS, Found, HOUR_MS, Held, Part, now_ms};
use crate::support::load::{Random, bytes, words};
use nigh_client::{Connection, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Keys of a writer: small ones; large ones; values that grow; keys with a brief life.
const SMALL: u64 = 400;
const LARGE: u64 = 10;
const GROWING: u64 = 6;
const BRIEF: u64 = 60;
/// Operations that are sent before their answers are read, at most.
const AT_ONCE: u64 = 12;
/// Bytes of a large value: it lies in a run of its own, and is no commit of the journal's ring.
const LARGE_BYTES: std::ops::Range<usize> = 300_000..600_000;
/// Mean number of appends to a growing value before it begins anew.
const PARTS: u64 = 60;

type State = BTreeMap<String, Option<Held>>;

/// The change of a key, or of all.
#[derive(Clone, Debug)]
enum Change {
    Set(Part, u64),
    Append(Part),
    Expiry(u64),
    Delete,
    /// To this key, if the other is there.
    Rename(String),
    Copy(String),
    Flush,
}

/// A command or transaction that was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    changes: Vec<(String, Change)>,
    pub(crate) sent_at: Instant,
    pub(crate) answered_at: Option<Instant>,
}

/// Numbers of operations that explain what a server has: the fewest and the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) shortest: usize,
    pub(crate) longest: usize,
}

/// One writer's view of the world.
pub(crate) struct Writer {
    id: u64,
    random: Random,
    sequence: u64,
    /// What the server had when it was looked at.
    base: State,
    /// The operations since then, in order.
    pub(crate) sent: Vec<Sent>,
    /// `base` with all of them that were answered.
    live: State,
    pub(crate) refused: u64,
    /// Brief keys that were over and gone.
    pub(crate) over: u64,
}

fn apply(state: &mut State, changes: &[(String, Change)]) {
    for (key, change) in changes {
        let old = state.entry(key.clone()).or_insert(None);
        match change {
            Change::Set(part, expiry_ms) => {
                *old = Some(Held { parts: vec![*part], expiry_ms: *expiry_ms });
            }
            Change::Append(part) => match old {
                Some(held) => held.parts.push(*part),
                None => *old = Some(Held { parts: vec![*part], expiry_ms: 0 }),
            },
            Change::Expiry(expiry_ms) => {
                old.iter_mut().for_each(|held| held.expiry_ms = *expiry_ms);
            }
            Change::Delete => *old = None,
            Change::Rename(to) => {
                if let Some(held) = old.take() {
                    state.insert(to.clone(), Some(held));
                }
            }
            Change::Copy(to) => {
                if let Some(held) = old.clone() {
                    state.insert(to.clone(), Some(held));
                }
            }
            Change::Flush => state.values_mut().for_each(|held| *held = None),
        }
    }
}

/// The keys that a change touches.
fn touched<'a>(state: &'a State, changes: &'a [(String, Change)]) -> Vec<&'a str> {
    let of = |(key, change): &'a (String, Change)| match change {
        Change::Rename(to) | Change::Copy(to) => vec![key.as_str(), to],
        Change::Flush => state.keys().map(String::as_str).collect(),
        _ => vec![key.as_str()],
    };
    changes.iter().flat_map(of).collect()
}

fn command(key: &str, change: &Change) -> Vec<Vec<u8>> {
    let key = key.as_bytes();
    match change {
        Change::Set(part, 0) => words(&[b"SET", key, &bytes(*part)]),
        Change::Set(part, at) => {
            words(&[b"SET", key, &bytes(*part), b"PXAT", at.to_string().as_bytes()])
        }
        Change::Append(part) => words(&[b"APPEND", key, &bytes(*part)]),
        Change::Expiry(0) => words(&[b"PERSIST", key]),
        Change::Expiry(at) => words(&[b"PEXPIREAT", key, at.to_string().as_bytes()]),
        Change::Delete => words(&[b"DEL", key]),
        Change::Rename(to) => words(&[b"RENAME", key, to.as_bytes()]),
        Change::Copy(to) => words(&[b"COPY", key, to.as_bytes(), b"REPLACE"]),
        Change::Flush => words(&[b"FLUSHALL"]),
    }
}

impl Writer {
    pub(crate) fn new(id: u64) -> Writer {
        Writer {
            id,
            random: Random(id + 1),
            sequence: 0,
            base: State::new(),
            sent: Vec::new(),
            live: State::new(),
            refused: 0,
            over: 0,
        }
    }

    fn key(&mut self, kind: &str, of: u64) -> String {
        format!("{{w{}}}:{kind}:{}", self.id, self.random.draw(of))
    }

    fn part(&mut self, length: std::ops::Range<usize>) -> Part {
        self.sequence += 1;
        (self.sequence, self.random.length(length))
    }

    /// The next changes, and whether they are an MSET.
    fn next(&mut self) -> (Vec<(String, Change)>, bool) {
        use Change::{Append, Copy, Delete, Expiry, Rename, Set};
        let hour = now_ms() + HOUR_MS;
        let (key, part) = (self.key("small", SMALL), self.part(8..128));
        let other = self.key("small", SMALL);
        let one = |key, change| (vec![(key, change)], false);
        match self.random.draw(20) {
            0..=3 => one(key, Set(part, 0)),
            4 => one(key, Set(part, hour)),
            5 => one(key, Delete),
            6 => one(key, Append(part)),
            7 => one(key, Expiry(hour * self.random.draw(2))),
            8 if key != other => one(key, Rename(other)),
            9 | 10 => {
                let keys: BTreeSet<_> = (0..8).map(|_| self.key("small", SMALL)).collect();
                (keys.into_iter().map(|key| (key, Set(part, 0))).collect(), true)
            }
            11 if key != other => (vec![(key, Delete), (other, Append(part))], false),
            12 if key != other => (
                vec![(key.clone(), Set(part, 0)), (key, Expiry(hour)), (other, Set(part, 0))],
                false,
            ),
            13 | 14 => self.grow(),
            15 => {
                let number = self.random.draw(BRIEF / 2);
                let at = now_ms() + self.random.draw(BRIEF_MS);
                let key = |n| format!("{{w{}}}:brief:{n}", self.id);
                let (first, second) = (key(2 * number), key(2 * number + 1));
                (vec![(first, Set(part, at)), (second, Set(part, at))], false)
            }
            16 if self.random.draw(4) == 0 => {
                let key = self.key("large", LARGE);
                let (large, part) = (self.part(LARGE_BYTES), self.part(8..4000));
                let to = self.key("large", LARGE);
                match self.random.draw(10) {
                    0..=3 => one(key, Set(large, 0)),
                    4..=6 => one(key, Append(part)),
                    7 => one(key, Expiry(hour)),
                    8 if key != to => one(key, Rename(to)),
                    9 if key != to => one(key, Copy(to)),
                    _ => one(key, Delete),
                }
            }
            _ => one(key, Set(part, 0)),
        }
    }

    fn grow(&mut self) -> (Vec<(String, Change)>, bool) {
        let (key, other) = (self.key("grows", GROWING), self.key("grows", GROWING));
        if self.random.draw(PARTS) == 0 {
            let length = if self.random.draw(4) == 0 { LARGE_BYTES } else { 8..128 };
            return (vec![(key, Change::Set(self.part(length), 0))], false);
        }
        let part = self.part(8..400);
        let mut changes = vec![(key, Change::Append(part))];
        if self.random.draw(4) == 0 {
            changes.push((other, Change::Append(part)));
        }
        (changes, false)
    }

    /// Sends some operations, and takes their answers. False if the connection broke.
    pub(crate) fn batch(&mut self, connection: &mut Connection) -> bool {
        let first = self.sent.len();
        let mut replies = Vec::new();
        for _ in 0..=self.random.draw(AT_ONCE) {
            let (changes, at_once) = self.next();
            let commands = commands(&changes, at_once);
            let sent_at = Instant::now();
            self.sent.push(Sent { changes, sent_at, answered_at: None });
            replies.push(commands.len());
            // The failed send may have sent a part.
            if commands.iter().any(|command| connection.send(command).is_err()) {
                return false;
            }
        }
        let mut at = first;
        for count in replies {
            let mut last = Frame::Null;
            for _ in 0..count {
                match connection.receive() {
                    Ok(reply) => last = reply,
                    Err(_) => return false,
                }
            }
            at += usize::from(self.learn(at, &last));
        }
        true
    }

    /// Takes over an operation by its last reply. False if it was refused, and is taken out.
    fn learn(&mut self, at: usize, reply: &Frame) -> bool {
        let text = reply.error().map(|text| String::from_utf8_lossy(text).into_owned());
        let changes = &self.sent[at].changes;
        let gone = |key: &String| self.live.get(key).is_none_or(Option::is_none);
        if let Some(text) = text {
            let is_missing = text == "ERR no such key";
            let renames = matches!(&changes[..], [(key, Change::Rename(_))] if gone(key));
            assert!(text.contains("MISCONF") || is_missing && renames, "{changes:?}: {text}");
            if !is_missing {
                eprintln!(
                    "REFUSED {:?} {text} {:?}",
                    self.sent[at].sent_at.elapsed(),
                    changes[0].0
                );
                self.sent.remove(at);
                self.refused += 1;
                return false;
            }
        }
        let inner = reply.elements().into_iter().flatten();
        assert!(inner.clone().all(|reply| reply.error().is_none()), "{changes:?}: {reply:?}");
        let before = |key: &String| self.live.get(key).is_some_and(Option::is_some);
        let was_there = changes.first().is_some_and(|(key, _)| before(key));
        apply(&mut self.live, changes);
        match &changes[..] {
            [(_, Change::Delete | Change::Copy(_))] => {
                assert_eq!(reply.integer(), Some(was_there.into()), "{changes:?}");
            }
            [(key, Change::Append(_))] => {
                let length = self.live[key].as_ref().map(|held| held.len() as i64);
                assert_eq!(reply.integer(), length, "{changes:?}");
            }
            _ => {}
        }
        self.sent[at].answered_at = Some(Instant::now());
        true
    }

    /// A FLUSHALL was sent, while this writer waits.
    pub(crate) fn flushes(&mut self) {
        let changes = vec![(String::new(), Change::Flush)];
        self.sent.push(Sent { changes, sent_at: Instant::now(), answered_at: None });
    }

    /// It was answered.
    pub(crate) fn flushed(&mut self) {
        apply(&mut self.live, &[(String::new(), Change::Flush)]);
        self.live.remove("");
        self.sent.last_mut().expect("it was sent").answered_at = Some(Instant::now());
    }

    /// The prefix that the server has.
    ///
    /// # Panics
    /// If no prefix explains it.
    pub(crate) fn find(&mut self, connection: &mut Connection) -> Prefix {
        let mut state = self.base.clone();
        for op in &self.sent {
            let keys = touched(&self.base, &op.changes).into_iter().map(str::to_owned);
            state.extend(keys.collect::<Vec<_>>().into_iter().map(|key| (key, None)));
        }
        state.remove("");
        state.extend(self.base.clone());
        let found = self.read_all(&state, connection);
        let mut wrong: BTreeSet<String> = state
            .iter()
            .filter(|(key, held)| !found[*key].is(held))
            .map(|it| it.0.clone())
            .collect();
        let (mut explained, mut nearest) = (None, (usize::MAX, String::new()));
        for number in 0..=self.sent.len() {
            if wrong.is_empty() {
                let shortest = explained.map_or(number, |it: Prefix| it.shortest);
                explained = Some(Prefix { shortest, longest: number });
                self.base = state.clone();
            } else if wrong.len() <= nearest.0 {
                let tell = |key: &String| {
                    format!("{key} should be {:?}, has {}", state[key], found[key].tell())
                };
                let some: Vec<String> = wrong.iter().take(4).map(tell).collect();
                nearest = (wrong.len(), format!("after {number}: {}", some.join("; ")));
            }
            let Some(op) = self.sent.get(number) else { break };
            apply(&mut state, &op.changes);
            state.remove("");
            for key in touched(&state, &op.changes) {
                if !key.is_empty() && found[key].is(&state[key]) {
                    wrong.remove(key);
                } else if !key.is_empty() {
                    wrong.insert(key.to_owned());
                }
            }
        }
        let answered = self.answered();
        let Some(prefix) = explained else {
            panic!(
                "writer {}: no prefix of {} ops ({answered} answered) explains it; {} keys are \
                    wrong {}",
                self.id,
                self.sent.len(),
                nearest.0,
                nearest.1
            );
        };
        self.take_over(&found);
        prefix
    }

    /// The base is what was found: an expired key stays expired.
    fn take_over(&mut self, found: &BTreeMap<String, Found>) {
        let twin = |key: &str| -> Option<String> {
            let (begin, number) = key.rsplit_once(':')?;
            Some(format!("{begin}:{}", number.parse::<u64>().ok()? ^ 1))
        };
        let base = self.base.clone();
        for (key, held) in &mut self.base {
            let is_gone = found[key].data.is_null();
            let Some(was) = held.clone().filter(|_| is_gone) else { continue };
            *held = None;
            self.over += 1;
            let other = twin(key).filter(|_| key.contains(":brief:")).expect("only brief keys go");
            let same = base.get(&other).and_then(Option::as_ref).is_none_or(|it| *it == was);
            assert!(same && found[&other].data.is_null(), "{key} is over, {other} isn't");
        }
        self.live = self.base.clone();
    }

    /// Operations that were answered: the first ones.
    pub(crate) fn answered(&self) -> usize {
        self.sent.iter().take_while(|op| op.answered_at.is_some()).count()
    }

    /// All keys, and the expiry of each.
    fn read_all(&self, state: &State, connection: &mut Connection) -> BTreeMap<String, Found> {
        let mut all = BTreeMap::new();
        let keys: Vec<&String> = state.keys().collect();
        for keys in keys.chunks(100) {
            let command = std::iter::once("MGET").chain(keys.iter().map(|key| key.as_str()));
            let from_ms = now_ms();
            let reply = connection.call(command).expect("the server is up");
            let read_ms = (from_ms, now_ms());
            let values = reply.elements().unwrap_or_else(|| panic!("{reply:?}")).to_vec();
            keys.iter().for_each(|key| connection.send(["PEXPIRETIME", key]).expect("it is up"));
            for (&key, data) in keys.iter().zip(values) {
                let expiry = connection.receive().expect("it is up").integer().expect("a number");
                // -1: no expiry; -2: no such key.
                let expiry_ms = (expiry != -2).then(|| u64::try_from(expiry).unwrap_or(0));
                all.insert(key.clone(), Found { data, read_ms, expiry_ms });
            }
        }
        all
    }
}

fn commands(changes: &[(String, Change)], at_once: bool) -> Vec<Vec<Vec<u8>>> {
    if at_once {
        let mut all = words(&[b"MSET"]);
        for (key, change) in changes {
            let Change::Set(part, _) = change else { panic!("MSET only sets") };
            all.extend([key.clone().into_bytes(), bytes(*part)]);
        }
        return vec![all];
    }
    let mut all: Vec<_> = changes.iter().map(|(key, change)| command(key, change)).collect();
    if all.len() > 1 {
        all.insert(0, words(&[b"MULTI"]));
        all.push(words(&[b"EXEC"]));
    }
    all
}
