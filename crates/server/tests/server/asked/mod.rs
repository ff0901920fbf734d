//! What clients ask of a few keys at random, and what the replies say.

#![allow(unreachable_pub, reason = "a module of tests")]

use crate::history::whole::Act;
use crate::history::whole::Act::{Clear, Count, Delete, Read, Set};
use nigh_resp::frame::Frame;
use std::time::Instant;

/// A generator that gives the same story each time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("small")
    }
}

/// Keys of each partition: few, so that operations meet.
pub const KEYS: usize = 3;
/// Keys that are never there, asked for between two that are: so much longer takes a read of
/// several, and so much more may be written within it.
const FILLERS: usize = 100;
/// A key with an expiry goes within so many ms: about as long as a story.
const EXPIRY_MS: usize = 8;

/// A key by its partition and its number there.
type Key = (usize, usize);

/// Where a story takes place.
pub struct Scene {
    /// Names of the keys of each partition.
    pub names: Vec<Vec<String>>,
    /// The clock of calls and returns, and the Unix time at which it was 0, ns: expiries are Unix
    /// times.
    pub began: Instant,
    pub began_unix_ns: u64,
}

/// An operation as a client sent it: what it does to keys, and how to read its reply.
pub struct Asked {
    pub wire: Vec<u8>,
    /// Replies before the one that counts: of MULTI and of what is queued.
    pub queued: usize,
    /// Its parts, with the partition of each; what was read is filled in.
    pub parts: Vec<(usize, Act)>,
    /// Unix ms at which what it sets is over.
    pub over_ms: Option<u64>,
    /// Elements of the reply from that of one part to that of the next.
    pub stride: usize,
}

impl Scene {
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("centuries")
    }

    fn name(&self, (partition, key): Key) -> &str {
        &self.names[partition][key]
    }

    fn command(&self, first: &[&str], keys: &[Key], rest: &[&str]) -> Vec<u8> {
        let keys = keys.iter().map(|&key| self.name(key));
        let words: Vec<&str> =
            first.iter().copied().chain(keys).chain(rest.iter().copied()).collect();
        let mut wire = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| wire += &format!("${}\r\n{word}\r\n", word.len()));
        wire.into_bytes()
    }

    /// The same for a read of several keys, of which two have so many fillers between them.
    fn read(&self, first: &[&str], keys: &[Key], fillers: usize) -> Vec<u8> {
        let (&last, before) = keys.split_last().expect("several");
        let mut words = Vec::new();
        for &key in before {
            words.push(self.name(key).to_owned());
            words.extend((0..fillers).map(|n| format!("{}:filler:{n}", self.name(key))));
        }
        words.push(self.name(last).to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.command(first, &[], &words)
    }

    fn any_key(&self, random: &mut Random) -> Key {
        (random.below(self.names.len()), random.below(KEYS))
    }

    /// Some keys, each once: of one partition, or of all.
    fn any_keys(&self, random: &mut Random, of_one: bool) -> Vec<Key> {
        let only = random.below(self.names.len());
        let all = (0..self.names.len()).flat_map(|p| (0..KEYS).map(move |key| (p, key)));
        let mut keys: Vec<Key> = all.filter(|key| !of_one || key.0 == only).collect();
        (1..keys.len()).for_each(|i| keys.swap(i, random.below(i + 1)));
        keys.truncate(2 + random.below(keys.len() - 1));
        keys
    }

    pub fn any(&self, random: &mut Random, value: u64) -> Asked {
        let ask = |wire, parts| Asked { wire, queued: 0, parts, over_ms: None, stride: 1 };
        let read = |&(p, key): &Key| (p, Read(key, None));
        match random.below(16) {
            0..2 => {
                let key = self.any_key(random);
                ask(self.command(&["GET"], &[key], &[]), vec![read(&key)])
            }
            2..5 => {
                let key = self.any_key(random);
                let wire = self.command(&["SET"], &[key], &[&value.to_string()]);
                ask(wire, vec![(key.0, Set(key.1, value))])
            }
            5 => {
                let key = self.any_key(random);
                let now_ms = (self.began_unix_ns + self.now()) / 1_000_000;
                let over_ms = now_ms + random.below(EXPIRY_MS) as u64;
                let rest = [&value.to_string(), "PXAT", &over_ms.to_string()];
                let asked =
                    ask(self.command(&["SET"], &[key], &rest), vec![(key.0, Set(key.1, value))]);
                Asked { over_ms: Some(over_ms), ..asked }
            }
            6 => {
                let key = self.any_key(random);
                ask(self.command(&["DEL"], &[key], &[]), vec![(key.0, Delete(key.1, false))])
            }
            7 => self.several(random, value),
            8 => {
                let keys = self.any_keys(random, true);
                let mask = keys.iter().map(|key| 1 << key.1).sum();
                let wire = self.read(&["EXISTS"], &keys, FILLERS * random.below(2));
                ask(wire, vec![(keys[0].0, Count(mask, 0))])
            }
            9..11 => {
                let keys = self.any_keys(random, false);
                let fillers = FILLERS * random.below(2);
                let wire = self.read(&["FCALL_RO", "all", "0"], &keys, fillers);
                Asked { stride: 1 + fillers, ..ask(wire, keys.iter().map(read).collect()) }
            }
            11..13 => self.transaction(random, value),
            13 if random.below(4) == 0 => {
                let parts = (0..self.names.len()).map(|p| (p, Clear)).collect();
                ask(self.command(&["FLUSHALL"], &[], &[]), parts)
            }
            _ => {
                let keys = self.any_keys(random, false);
                let fillers = FILLERS * random.below(2);
                let wire = self.read(&["MGET"], &keys, fillers);
                Asked { stride: 1 + fillers, ..ask(wire, keys.iter().map(read).collect()) }
            }
        }
    }

    /// MSET.
    fn several(&self, random: &mut Random, value: u64) -> Asked {
        let keys = self.any_keys(random, true);
        let (mut words, mut parts) = (vec!["MSET".to_owned()], Vec::new());
        for (&key, value) in keys.iter().zip(value..) {
            words.extend([self.name(key).to_owned(), value.to_string()]);
            parts.push((key.0, Set(key.1, value)));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let wire = self.command(&words, &[], &[]);
        Asked { wire, queued: 0, parts, over_ms: None, stride: 1 }
    }

    /// MULTI with reads, writes or both, EXEC; of one partition.
    fn transaction(&self, random: &mut Random, value: u64) -> Asked {
        let keys = self.any_keys(random, true);
        let kinds = [1, 2, 3][random.below(3)];
        let (mut wire, mut parts) = (self.command(&["MULTI"], &[], &[]), Vec::new());
        for (&key, value) in keys.iter().zip(value..) {
            let both = kinds == 3 && random.below(2) == 0;
            if kinds == 1 || both {
                wire.extend(self.command(&["GET"], &[key], &[]));
                parts.push((key.0, Read(key.1, None)));
            }
            if kinds == 1 {
                continue;
            }
            if random.below(3) == 0 {
                wire.extend(self.command(&["DEL"], &[key], &[]));
                parts.push((key.0, Delete(key.1, false)));
            } else {
                wire.extend(self.command(&["SET"], &[key], &[&value.to_string()]));
                parts.push((key.0, Set(key.1, value)));
            }
        }
        wire.extend(self.command(&["EXEC"], &[], &[]));
        Asked { wire, queued: 1 + parts.len(), parts, over_ms: None, stride: 1 }
    }
}

fn value_in(frame: &Frame) -> Option<u64> {
    let text = frame.bytes().map(|bytes| std::str::from_utf8(bytes).expect("digits"));
    text.map(|text| text.parse().expect("a number"))
}

/// Fills in what a part's own reply says.
pub fn told(act: &mut Act, reply: &Frame) {
    let number = || u64::try_from(reply.integer().expect("a number")).expect("none is negative");
    match act {
        Read(_, value) => *value = value_in(reply),
        Delete(_, was) => *was = number() == 1,
        Count(_, count) => *count = number(),
        Set(..) | Clear | Act::Expire(..) => {
            assert_eq!(*reply, Frame::Simple(b"OK".to_vec()));
        }
    }
}
