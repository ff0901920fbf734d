//! Random commands against a `BTreeMap` that does the same, reply by reply.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::journal::{Recorder, Replica, State, state};
use crate::support::{CAPACITY_BYTES, Fixture};

/// A key's value and expiry.
type Oracle = BTreeMap<u8, (Vec<u8>, u64)>;

/// Few keys, so that commands meet the same ones.
const KEYS: u8 = 24;

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Set { key: u8, value: Vec<u8>, ttl_ms: Option<u16>, nx: bool, keep: bool },
    Append { key: u8, value: Vec<u8> },
    Incr { key: u8, by: i8 },
    MSet(Vec<(u8, Vec<u8>)>),
    MGet(Vec<u8>),
    Del(Vec<u8>),
    Rename { from: u8, to: u8 },
    Copy { from: u8, to: u8 },
    Expire { key: u8, ttl_ms: i16 },
    Persist(u8),
    PTtl(u8),
    Keys,
    DbSize,
    Flush,
    Wait(u8),
    Grow(u8),
    Begin,
    Commit,
    Rollback,
    Crash,
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..20),
        2 => (0..100_u8).prop_map(|number| number.to_string().into_bytes()),
        1 => (any::<u8>(), 30_000..200_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let set = (key(), value(), prop::option::of(any::<u16>()), any::<bool>(), any::<bool>());
    prop_oneof![
        6 => key().prop_map(Step::Get),
        8 => set.prop_map(|(key, value, ttl_ms, nx, keep)| {
            Step::Set { key, value, ttl_ms, nx, keep }
        }),
        2 => (key(), value()).prop_map(|(key, value)| Step::Append { key, value }),
        4 => (key(), any::<i8>()).prop_map(|(key, by)| Step::Incr { key, by }),
        3 => vec((key(), value()), 1..6).prop_map(Step::MSet),
        3 => vec(key(), 1..8).prop_map(Step::MGet),
        3 => vec(key(), 1..5).prop_map(Step::Del),
        4 => (key(), key()).prop_map(|(from, to)| Step::Rename { from, to }),
        3 => (key(), key()).prop_map(|(from, to)| Step::Copy { from, to }),
        4 => (key(), any::<i16>()).prop_map(|(key, ttl_ms)| Step::Expire { key, ttl_ms }),
        2 => key().prop_map(Step::Persist),
        3 => key().prop_map(Step::PTtl),
        2 => Just(Step::Keys),
        2 => Just(Step::DbSize),
        1 => Just(Step::Flush),
        3 => any::<u8>().prop_map(Step::Wait),
        1 => any::<u8>().prop_map(Step::Grow),
        2 => Just(Step::Begin),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => Just(Step::Crash),
    ]
}

fn name(key: u8) -> Vec<u8> {
    // Some short, some long enough to make records of different sizes.
    format!("key{}{key}", "-".repeat(usize::from(key) * 3)).into_bytes()
}

fn names() -> Vec<Vec<u8>> {
    (0..KEYS).map(name).collect()
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

const NULL: &[u8] = b"$-1\r\n";
const OK: &[u8] = b"+OK\r\n";

fn int(value: impl Into<i128>) -> Vec<u8> {
    format!(":{}\r\n", value.into()).into_bytes()
}

/// The store, the oracle, and the oracle at the start of the transaction.
struct Pair {
    fixture: Fixture,
    oracle: Oracle,
    before: Option<Oracle>,
    told: Recorder,
    /// For some numbers of commits: the keys after so many.
    seen: Vec<(usize, State)>,
}

impl Pair {
    fn new() -> Pair {
        let (mut fixture, told) = (Fixture::new(), Recorder::default());
        told.listen(&mut fixture);
        Pair { fixture, oracle: Oracle::new(), before: None, told, seen: Vec::new() }
    }

    /// Notes the arena's keys now, for [`Self::replay`].
    fn note(&mut self) {
        let commits = self.told.commits();
        if self.seen.last().is_none_or(|(known, _)| *known != commits) {
            let reader = self.fixture.turn(|store, _| store.reader().clone());
            self.seen.push((commits, state(&reader, &self.fixture.participant, &names())));
        }
    }

    /// Makes the store again from the journal, and compares it at each note.
    fn replay(&mut self) {
        let mut replica = Replica::new(CAPACITY_BYTES);
        for (commits, wanted) in &self.seen {
            let found = replica.replay(&self.told, *commits, &names());
            assert_eq!(found, *wanted, "after {commits} commits");
        }
        assert_eq!(replica.lsn(), self.fixture.turn(|store, _| store.stats().data.lsn));
    }

    fn expect(&mut self, args: &[&[u8]], wanted: &[u8]) {
        let reply = self.fixture.bytes(args);
        assert!(
            reply == wanted,
            "{}: {} instead of {}",
            String::from_utf8_lossy(&args.join(&b' ')[..]).chars().take(100).collect::<String>(),
            String::from_utf8_lossy(&reply).chars().take(100).collect::<String>(),
            String::from_utf8_lossy(wanted).chars().take(100).collect::<String>(),
        );
    }

    fn bury(&mut self) {
        let now = self.fixture.now_ms;
        self.oracle.retain(|_, (_, expiry)| *expiry == 0 || *expiry >= now);
    }

    fn take(&mut self, step: &Step) {
        self.bury();
        match step {
            Step::Wait(_)
            | Step::Grow(_)
            | Step::Begin
            | Step::Commit
            | Step::Rollback
            | Step::Crash => self.take_event(step),
            Step::MSet(_)
            | Step::MGet(_)
            | Step::Del(_)
            | Step::Rename { .. }
            | Step::Copy { .. }
            | Step::Keys
            | Step::DbSize
            | Step::Flush => self.take_many(step),
            _ => self.take_one(step),
        }
    }

    fn take_one(&mut self, step: &Step) {
        let now = self.fixture.now_ms;
        match step {
            Step::Get(key) => {
                let wanted = self.oracle.get(key).map_or(NULL.to_vec(), |(value, _)| bulk(value));
                self.expect(&[b"GET", &name(*key)], &wanted);
            }
            Step::Set { key, value, ttl_ms, nx, keep } => {
                self.take_set(*key, value, *ttl_ms, *nx, *keep);
            }
            Step::Append { key, value } => {
                let entry = self.oracle.entry(*key).or_default();
                entry.0.extend_from_slice(value);
                let wanted = int(entry.0.len() as u64);
                self.expect(&[b"APPEND", &name(*key), value], &wanted);
            }
            Step::Incr { key, by } => self.take_incr(*key, *by),
            Step::Expire { key, ttl_ms } => {
                let ttl = ttl_ms.to_string();
                let there = self.oracle.contains_key(key);
                match u64::try_from(*ttl_ms).ok().filter(|ttl| *ttl > 0) {
                    Some(ttl) if there => {
                        self.oracle.get_mut(key).expect("there").1 = now + ttl;
                    }
                    Some(_) => {}
                    None => {
                        self.oracle.remove(key);
                    }
                }
                self.expect(&[b"PEXPIRE", &name(*key), ttl.as_bytes()], &int(i64::from(there)));
            }
            Step::Persist(key) => {
                let entry = self.oracle.get_mut(key).filter(|(_, expiry)| *expiry != 0);
                let wanted = int(i64::from(entry.is_some()));
                if let Some(entry) = entry {
                    entry.1 = 0;
                }
                self.expect(&[b"PERSIST", &name(*key)], &wanted);
            }
            Step::PTtl(key) => {
                let wanted = match self.oracle.get(key) {
                    None => int(-2),
                    Some((_, 0)) => int(-1),
                    Some((_, expiry)) => int(expiry - now),
                };
                self.expect(&[b"PTTL", &name(*key)], &wanted);
            }
            other => unreachable!("{other:?} is no command of one key"),
        }
    }

    fn take_set(&mut self, key: u8, value: &[u8], ttl_ms: Option<u16>, nx: bool, keep: bool) {
        let now = self.fixture.now_ms;
        let name = name(key);
        let ttl = ttl_ms.map(|ttl| (u64::from(ttl) + 1).to_string());
        let mut args: Vec<&[u8]> = vec![b"SET", &name, value];
        if nx {
            args.push(b"NX");
        }
        match &ttl {
            Some(ttl) => args.extend([&b"PX"[..], ttl.as_bytes()]),
            None if keep => args.push(b"KEEPTTL"),
            None => {}
        }
        let old = self.oracle.get(&key).map(|(_, expiry)| *expiry);
        if nx && old.is_some() {
            return self.expect(&args, NULL);
        }
        let kept = if keep { old.unwrap_or(0) } else { 0 };
        let expiry = ttl_ms.map_or(kept, |ttl| now + u64::from(ttl) + 1);
        self.oracle.insert(key, (value.to_vec(), expiry));
        self.expect(&args, OK);
    }

    fn take_incr(&mut self, key: u8, by: i8) {
        let entry = self.oracle.get(&key).cloned().unwrap_or((b"0".to_vec(), 0));
        let number = std::str::from_utf8(&entry.0)
            .ok()
            .and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
        let by_text = by.to_string();
        let args: [&[u8]; 3] = [b"INCRBY", &name(key), by_text.as_bytes()];
        match number.and_then(|number| number.checked_add(i64::from(by))) {
            Some(sum) => {
                self.oracle.insert(key, (sum.to_string().into_bytes(), entry.1));
                self.expect(&args, &int(sum));
            }
            None => self.expect(&args, b"-ERR value is not an integer or out of range\r\n"),
        }
    }

    fn take_keys(&mut self) {
        let reply = self.fixture.bytes(&[b"KEYS", b"key*"]);
        let reply = String::from_utf8(reply).expect("text");
        let mut keys: Vec<&str> =
            reply.split("\r\n").filter(|line| line.starts_with("key")).collect();
        keys.sort_unstable();
        let mut wanted: Vec<String> =
            self.oracle.keys().map(|key| String::from_utf8(name(*key)).expect("text")).collect();
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
        assert!(reply.starts_with(&format!("*{}\r\n", wanted.len())));
    }

    fn take_many(&mut self, step: &Step) {
        match step {
            Step::MSet(pairs) => {
                let names: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| name(*key)).collect();
                let mut args: Vec<&[u8]> = vec![b"MSET"];
                for (name, (key, value)) in names.iter().zip(pairs) {
                    args.extend([&name[..], value]);
                    self.oracle.insert(*key, (value.clone(), 0));
                }
                self.expect(&args, OK);
            }
            Step::MGet(keys) => {
                let names: Vec<Vec<u8>> = keys.iter().map(|key| name(*key)).collect();
                let mut args: Vec<&[u8]> = vec![b"MGET"];
                args.extend(names.iter().map(Vec::as_slice));
                let mut wanted = format!("*{}\r\n", keys.len()).into_bytes();
                for key in keys {
                    match self.oracle.get(key) {
                        Some((value, _)) => wanted.extend(bulk(value)),
                        None => wanted.extend(NULL),
                    }
                }
                self.expect(&args, &wanted);
            }
            Step::Del(keys) => {
                let names: Vec<Vec<u8>> = keys.iter().map(|key| name(*key)).collect();
                let mut args: Vec<&[u8]> = vec![b"DEL"];
                args.extend(names.iter().map(Vec::as_slice));
                let count = keys.iter().filter(|key| self.oracle.remove(key).is_some()).count();
                self.expect(&args, &int(count as u64));
            }
            Step::Rename { from, to } => {
                let wanted = match self.oracle.get(from).cloned() {
                    Some(entry) => {
                        self.oracle.remove(from);
                        self.oracle.insert(*to, entry);
                        OK
                    }
                    None => b"-ERR no such key\r\n",
                };
                self.expect(&[b"RENAME", &name(*from), &name(*to)], wanted);
            }
            Step::Copy { from, to } => {
                let wanted = match self.oracle.get(from).cloned() {
                    _ if from == to => {
                        b"-ERR source and destination objects are the same\r\n".to_vec()
                    }
                    Some(entry) => {
                        self.oracle.insert(*to, entry);
                        int(1)
                    }
                    None => int(0),
                };
                self.expect(&[b"COPY", &name(*from), &name(*to), b"REPLACE"], &wanted);
            }
            Step::Keys => self.take_keys(),
            Step::DbSize => {
                // DBSIZE counts keys whose time is over until they are met: meet all of them.
                for key in 0..KEYS {
                    self.fixture.bytes(&[b"EXISTS", &name(key)]);
                }
                if self.before.is_none() {
                    self.expect(&[b"DBSIZE"], &int(self.oracle.len() as u64));
                }
            }
            Step::Flush => {
                self.oracle.clear();
                self.expect(&[b"FLUSHALL"], OK);
            }
            other => unreachable!("{other:?} is no command of several keys"),
        }
    }

    fn take_event(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => self.fixture.now_ms += u64::from(*ms) * 50,
            Step::Grow(seed) if self.before.is_none() => {
                // Makes the index grow, and keeps it large.
                for n in 0..2000 {
                    let other = format!("other{seed}-{n}");
                    self.expect(&[b"SET", other.as_bytes(), b"x"], OK);
                }
                for n in 0..2000 {
                    let other = format!("other{seed}-{n}");
                    self.expect(&[b"DEL", other.as_bytes()], b":1\r\n");
                }
            }
            Step::Begin if self.before.is_none() => {
                self.before = Some(self.oracle.clone());
                self.fixture.turn(|store, _| store.begin());
            }
            Step::Commit if self.before.is_some() => {
                self.before = None;
                self.fixture.turn(|store, turn| store.commit(turn)).expect("the commit has room");
                self.fixture.end_turn();
            }
            Step::Rollback => {
                if let Some(before) = self.before.take() {
                    self.oracle = before;
                }
                self.fixture.turn(|store, _| store.rollback());
            }
            Step::Crash => {
                if let Some(before) = self.before.take() {
                    self.oracle = before;
                }
                self.fixture.crash();
                self.told.listen(&mut self.fixture);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default()
    })]

    /// For any commands, with keys that die, transactions that end either way, growth and crashes,
    /// the store answers as a map would. Its journal, cut behind any commit, makes the keys of that
    /// time, numbers and all.
    #[test]
    fn the_store_answers_as_a_map_would(steps in vec(step(), 1..150)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.take(step);
            pair.note();
        }
        pair.take(&Step::Commit);
        pair.note();
        pair.replay();
        for key in 0..KEYS {
            pair.take(&Step::Get(key));
            pair.take(&Step::PTtl(key));
        }
        pair.take(&Step::DbSize);
        pair.take(&Step::Crash);
        for key in 0..KEYS {
            pair.take(&Step::Get(key));
        }
    }
}
