//! A client that writes as fast as it can, and knows what a server may have of it.
//!
//! ```text
//! keys: the number of the last command on each    sent: the numbers since then, in order
//!                                                  └─ answered ─┘ └─ maybe done ─┘
//! ```
//!
//! 1. A command's number determines its keys and its value, and a value tells the number. Numbers
//!    are never used again: what comes back from the dead is seen.
//! 2. All keys are in one partition, and the client has one connection. So its commands are done in
//!    one order, and the last one that was done is the highest number among the values.
//! 3. Each answer is `+OK`: answers are counted, not parsed.

use crate::support::load::{bytes, words, write_of};
use nigh_client::Connection;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Keys of a client.
const KEYS: u64 = 512;
/// Commands that are sent at once, and batches that are unanswered at a time.
const BATCH: u64 = 32;
const BATCHES: u64 = 4;
/// One command in so many writes two keys at once.
const PAIR_EVERY: u64 = 8;
/// One value in so many lies in a run of its own.
const LONG_EVERY: u64 = 997;
const LONG_BYTES: usize = 90_000;
/// Values that are read at once.
const READ_AT_ONCE: usize = 128;
const ANSWER: &[u8] = b"+OK\r\n";

/// See the header of this file.
pub(crate) struct Client {
    id: u64,
    /// The last command on each key; 0: none.
    keys: Vec<u64>,
    /// The first command since `keys`, the first that wasn't answered, and the first that wasn't
    /// sent.
    first: u64,
    answered: u64,
    sent: u64,
    /// When each batch was answered, with the number of its first command.
    times: Vec<(u64, Instant)>,
}

/// The places of the keys that a command writes: one, or two.
fn keys_of(number: u64) -> (u64, Option<u64>) {
    let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let other = (place + 1 + number % (KEYS - 1)) % KEYS;
    (place % KEYS, (number.is_multiple_of(PAIR_EVERY) && other != place % KEYS).then_some(other))
}

fn value(number: u64) -> Vec<u8> {
    let length = 12 + usize::try_from(number % 90).expect("small");
    bytes((number, if number.is_multiple_of(LONG_EVERY) { LONG_BYTES } else { length }))
}

impl Client {
    pub(crate) fn new(id: u64) -> Client {
        let keys = vec![0; usize::try_from(KEYS).expect("few")];
        // No number is 0: that is a key without a value.
        Client { id, keys, first: 1, answered: 1, sent: 1, times: Vec::new() }
    }

    fn key(&self, place: u64) -> Vec<u8> {
        format!("{{c{}}}:{place}", self.id).into_bytes()
    }

    fn command(&self, number: u64, into: &mut Vec<u8>) {
        let (place, other) = keys_of(number);
        let (key, value) = (self.key(place), value(number));
        let command = match other {
            None => words(&[b"SET", &key, &value]),
            Some(other) => words(&[b"MSET", &key, &value, &self.key(other), &value]),
        };
        let _ = write!(into, "*{}\r\n", command.len());
        for word in command {
            let _ = write!(into, "${}\r\n", word.len());
            into.extend(word);
            into.extend(b"\r\n");
        }
    }

    /// Writes until the connection breaks; counts answers for all to see.
    pub(crate) fn write(&mut self, address: (&str, u16), answers: &AtomicU64) {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        stream.set_nodelay(true).expect("it is a socket");
        let (mut batch, mut buffer, mut held) = (Vec::new(), vec![0; 16 << 10], 0);
        loop {
            while self.sent < self.answered + BATCH * BATCHES {
                batch.clear();
                for number in self.sent..self.sent + BATCH {
                    self.command(number, &mut batch);
                }
                // The failed write may have sent a part.
                self.sent += BATCH;
                if stream.write_all(&batch).is_err() {
                    return;
                }
            }
            let Ok(count @ 1..) = stream.read(&mut buffer[held..]) else { return };
            held += count;
            let (whole, rest) = buffer[..held].as_chunks::<{ ANSWER.len() }>();
            let text = String::from_utf8_lossy(&buffer[..held.min(200)]);
            assert!(whole.iter().all(|answer| answer == ANSWER), "a write got {text:?}");
            let (count, rest) = (whole.len() as u64, rest.len());
            buffer.copy_within(held - rest..held, 0);
            held = rest;
            self.times.push((self.answered, Instant::now()));
            self.answered += count;
            answers.fetch_add(count, Relaxed);
        }
    }

    /// The first command that a server doesn't have.
    ///
    /// # Errors
    /// What it has is no state between two commands; in words.
    pub(crate) fn find(&mut self, connection: &mut Connection) -> Result<u64, String> {
        let found = self.read(connection);
        let last = found.iter().copied().max().unwrap_or(0);
        let next = self.first.max(last + 1);
        if next > self.sent {
            return Err(format!("command {last} is there, sent are those before {}", self.sent));
        }
        let mut keys = self.keys.clone();
        for number in self.first..next {
            let (place, other) = keys_of(number);
            for place in std::iter::once(place).chain(other) {
                keys[usize::try_from(place).expect("few")] = number;
            }
        }
        let wrong = keys.iter().zip(&found).position(|(wanted, found)| wanted != found);
        match wrong {
            None => {
                self.keys = keys;
                Ok(next)
            }
            Some(place) => Err(format!(
                "client {}: after command {} key {place} has {}, not {}; {} were answered, {} sent",
                self.id,
                next - 1,
                found[place],
                keys[place],
                self.answered - 1,
                self.sent - 1
            )),
        }
    }

    /// The number of the last command on each key.
    fn read(&self, connection: &mut Connection) -> Vec<u64> {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|place| self.key(place)).collect();
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE) {
            let command = std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice));
            let reply = connection.call(command).expect("the server is up");
            let values = reply.elements().unwrap_or_else(|| panic!("{reply:?}"));
            found.extend(values.iter().map(|value| value.bytes().map_or(0, |it| write_of(it).0)));
        }
        found
    }

    /// Answers of this round.
    pub(crate) fn answered(&self) -> u64 {
        self.answered - self.first
    }

    /// Those that are lost, if the server has none from this command on.
    pub(crate) fn lost(&self, next: u64) -> u64 {
        self.answered.saturating_sub(next)
    }

    /// When a command was answered, if it was.
    pub(crate) fn answered_at(&self, number: u64) -> Option<Instant> {
        let behind = self.times.partition_point(|(first, _)| *first <= number);
        (number < self.answered).then(|| behind.checked_sub(1).map(|at| self.times[at].1))?
    }

    /// The next round begins: what was sent and isn't there never will be.
    pub(crate) fn go_on_from(&mut self, next: u64) {
        assert!(next <= self.sent, "{next}");
        self.first = self.sent;
        self.answered = self.sent;
        self.times.clear();
    }
}
