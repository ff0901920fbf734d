//! Keys whose values depend on each other. They show whether a reader of several keys sees one
//! moment, and whether a growing value only grows.
//!
//! ```text
//! one writer:  SET first n, SET second n, ...   second is first, or one behind
//!              MSET left n right n, ...         they are equal
//!              APPEND grown ..., ...         its bytes are the beginning of one endless text;
//!              DEL grown                     after this, of another one
//! ```
//!
//! Each writer has keys of its own. FLUSHALL removes all of them at one moment.

use nigh_client::{Connection, Frame};
use nigh_shm::ForeignReader;
use std::sync::atomic::{AtomicU64, Ordering};

/// The growing value is deleted when it is longer than this. By then it lies in a run, and has been
/// copied to a larger one.
const GROWN_BYTES: u64 = 200_000;
/// Least growth at a time, in bytes; the most is twice as much.
const STEP_BYTES: u64 = 6_000;
/// Bits for a length.
const LENGTH_BITS: u32 = 32;

/// One writer's keys, and their expected values.
pub(crate) struct Together {
    writer: usize,
    /// Number of the newest MSET that was sent, and of the newest that was answered.
    issued: AtomicU64,
    acknowledged: AtomicU64,
    /// The grown key's text and length (`text << LENGTH_BITS | length`), as sent and as answered.
    grown_issued: AtomicU64,
    grown_acknowledged: AtomicU64,
}

/// Bytes of an endless text, from one position to another.
fn text(writer: usize, number: u64, from: u64, to: u64) -> Vec<u8> {
    let begin = format!("{writer}:{number:012};").into_bytes();
    let period = begin.len() as u64;
    (from..to)
        .map(|at| match usize::try_from(at) {
            Ok(i) if i < begin.len() => begin[i],
            // Each repetition differs from the one before, so no part can be mistaken for another.
            _ => begin[usize::try_from(at % period).expect("short")]
                .wrapping_add(u8::try_from(at / period % 97).expect("below 97")),
        })
        .collect()
}

fn number(frame: &Frame) -> Option<u64> {
    let text = frame.bytes().map(|bytes| std::str::from_utf8(bytes).expect("digits"));
    text.map(|text| text.parse().expect("a number"))
}

impl Together {
    pub(crate) fn new(writer: usize) -> Together {
        let zero = || AtomicU64::new(0);
        Together {
            writer,
            issued: zero(),
            acknowledged: zero(),
            grown_issued: zero(),
            grown_acknowledged: zero(),
        }
    }

    fn name(&self, what: &str) -> String {
        format!("together:{}:{what}", self.writer)
    }

    /// Does the next writes, one after the other. One thread calls it.
    pub(crate) fn write(&self, connection: &mut Connection) {
        let n = self.issued.load(Ordering::Relaxed) + 1;
        self.issued.store(n, Ordering::SeqCst);
        let digits = n.to_string();
        let mut ok = |words: &[&str]| {
            let reply = connection.call(words.iter().copied()).expect("the server is up");
            assert_eq!(reply, Frame::Simple(b"OK".to_vec()), "{words:?}");
        };
        ok(&["SET", &self.name("first"), &digits]);
        ok(&["MSET", &self.name("left"), &digits, &self.name("right"), &digits]);
        ok(&["SET", &self.name("second"), &digits]);
        self.acknowledged.store(n, Ordering::SeqCst);
        self.grow(connection, n);
    }

    fn grow(&self, connection: &mut Connection, n: u64) {
        let state = self.grown_issued.load(Ordering::Relaxed);
        let (number, length) = (state >> LENGTH_BITS, state & ((1 << LENGTH_BITS) - 1));
        let key = self.name("grown");
        if length > GROWN_BYTES {
            self.begin_anew();
            let reply = connection.call(["DEL", &key]).expect("the server is up");
            assert_eq!(reply.integer(), Some(1));
            self.began_anew();
            return;
        }
        let to = length + STEP_BYTES + n % STEP_BYTES;
        let bytes = text(self.writer, number, length, to);
        self.grown_issued.store(number << LENGTH_BITS | to, Ordering::SeqCst);
        let reply = connection.call([b"APPEND".as_slice(), key.as_bytes(), &bytes]);
        let reply = reply.expect("the server is up");
        assert_eq!(reply.integer(), i64::try_from(to).ok(), "{key}: {reply:?}");
        self.grown_acknowledged.store(number << LENGTH_BITS | to, Ordering::SeqCst);
    }

    /// The grown value is about to be deleted. The caller lets no thread write meanwhile.
    pub(crate) fn begin_anew(&self) {
        let number = self.grown_issued.load(Ordering::Relaxed) >> LENGTH_BITS;
        self.grown_issued.store((number + 1) << LENGTH_BITS, Ordering::SeqCst);
    }

    /// The grown value has been deleted.
    pub(crate) fn began_anew(&self) {
        self.grown_acknowledged.store(self.grown_issued.load(Ordering::Relaxed), Ordering::SeqCst);
    }

    /// Reads the numbers at one moment.
    pub(crate) fn read(&self, connection: &mut Connection) {
        let names = ["second", "left", "first", "right", "second"].map(|what| self.name(what));
        let from = self.acknowledged.load(Ordering::SeqCst);
        let words = ["MGET"].into_iter().chain(names.iter().map(String::as_str));
        let reply = connection.call(words).expect("the server is up");
        let to = self.issued.load(Ordering::SeqCst);
        let found: Vec<_> =
            reply.elements().unwrap_or_else(|| panic!("{reply:?}")).iter().map(number).collect();
        let [second, left, first, right, again] = found[..] else { panic!("{reply:?}") };
        assert!(second == again, "a change within one moment: {found:?}");
        assert!(left == right, "half of a write of two keys: {found:?}");
        let in_order = second.is_none_or(|second| first.is_some_and(|first| first >= second));
        assert!(in_order, "the second of two writes without the first: {found:?}");
        for found in found.into_iter().flatten() {
            assert!((from..=to).contains(&found), "{found} was not there between {from} and {to}");
        }
    }

    /// Reads the growing value: its length, or all of it.
    pub(crate) fn read_grown(&self, connection: &mut Connection, whole: bool) {
        let key = self.name("grown");
        let from = self.grown_acknowledged.load(Ordering::SeqCst);
        let command = if whole { "GET" } else { "STRLEN" };
        let reply = connection.call([command, &key]).expect("the server is up");
        let to = self.grown_issued.load(Ordering::SeqCst);
        assert!(reply.error().is_none(), "{reply:?}");
        match reply.bytes() {
            Some(bytes) => self.check_grown(bytes, from, to),
            None => self.check_length(reply.integer().unwrap_or(0), from, to),
        }
    }

    /// The same from another process, of all of the value. False if the reader gave up.
    pub(crate) fn read_grown_outside(&self, reader: &ForeignReader, bytes: &mut Vec<u8>) -> bool {
        let from = self.grown_acknowledged.load(Ordering::SeqCst);
        let found = reader.get(self.name("grown").as_bytes(), bytes);
        let to = self.grown_issued.load(Ordering::SeqCst);
        match found {
            Ok(Some(_)) => self.check_grown(bytes, from, to),
            Ok(None) => self.check_length(0, from, to),
            Err(_) => return false,
        }
        true
    }

    /// A length that was found between two states.
    fn check_length(&self, length: i64, from: u64, to: u64) {
        let length_of = |state: u64| state & ((1 << LENGTH_BITS) - 1);
        let went = to >> LENGTH_BITS > from >> LENGTH_BITS;
        let lengths = if went { 0..=u64::MAX } else { length_of(from)..=length_of(to) };
        let length = u64::try_from(length).expect("a length");
        assert!(
            lengths.contains(&length),
            "writer {}: {length} bytes, not {lengths:?}",
            self.writer
        );
    }

    /// A value that was found between two states.
    fn check_grown(&self, bytes: &[u8], from: u64, to: u64) {
        let key = self.name("grown");
        let digits = String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
        let number = digits.split([':', ';']).nth(1).and_then(|number| number.parse().ok());
        let number: u64 = number.unwrap_or_else(|| panic!("{key} holds {digits}"));
        let length = bytes.len() as u64;
        assert!(bytes == text(self.writer, number, 0, length), "{key}: {digits}: other bytes");
        let found = number << LENGTH_BITS | length;
        assert!((from..=to).contains(&found), "{key}: {number}, {length} bytes: {from} to {to}");
    }
}
