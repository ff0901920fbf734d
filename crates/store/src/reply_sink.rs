//! The sink that takes a command's reply.
//!
//! The store calls it with values. The implementor encodes them as RESP2 or RESP3.
//!
//! 1. A command writes exactly one reply: a scalar, or the head of an aggregate with as many
//!    replies behind it as the head says.
//! 2. A value is passed as a record, so that a large one can be sent without a copy.
//!
//! Thread: the shard that owns the store.

use nigh_shm::{Reader, Record};

/// Takes one reply after the other. The server implements it over its RESP encoder.
pub trait ReplySink {
    /// `+OK`.
    fn ok(&mut self);
    /// A simple string.
    fn simple(&mut self, text: &str);
    /// An error: the whole text with its code (`ERR syntax error`), without CR and LF.
    fn error(&mut self, text: &str);
    /// An integer.
    fn int(&mut self, value: i64);
    /// A bulk string.
    fn bulk(&mut self, bytes: &[u8]);
    /// The value of a record as a bulk string. The record stays valid until the shard announces.
    /// So an implementor may keep [`Record::value_ref`] and send the value from the arena.
    fn value(&mut self, reader: &Reader, record: Record<'_>) {
        let _ = reader;
        self.bulk(record.value());
    }
    /// No value: `$-1` in RESP2, `_` in RESP3.
    fn null(&mut self);
    /// No array: `*-1` in RESP2, `_` in RESP3.
    fn null_array(&mut self);
    /// Head of an array of `len` replies.
    fn array(&mut self, len: usize);
    /// Head of a map of `len` pairs: `2 * len` replies follow.
    fn map(&mut self, len: usize);
    /// Head of a set of `len` replies.
    fn set(&mut self, len: usize);
    /// A double.
    fn double(&mut self, value: f64);
}
