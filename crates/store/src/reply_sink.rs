//! Where a command's answer goes.
//!
//! The store says *what* it answers; the implementor says how that looks in RESP2 or RESP3 and
//! where the bytes end up. Invariants:
//!
//! 1. A command writes exactly one reply: one scalar, or one aggregate header followed by as many
//!    replies as it announced.
//! 2. A value is handed over as a record, so that a large one can leave without a copy.
//!
//! Thread: the shard that owns the store.

use nigh_shm::{Reader, Record};

/// Takes one reply after the other; implemented by the server over its RESP encoder.
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
    /// The value of a record as a bulk string. The record stays valid until the shard announces,
    /// so an implementor may keep [`Record::value_ref`] and send the value from where it lies.
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
    /// A boolean.
    fn boolean(&mut self, value: bool);
}
