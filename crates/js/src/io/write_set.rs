//! Reads the write set of a call from the io memory, as 04_db.js writes it. The runtime's thread.

use super::{Io, OUT_WRITES, WRITES_AT, WRITES_ENTRY, size_of};
use crate::caller::function_limits::WRITE_KEYS_MAX;
use crate::caller::host_trait::CallWrite;

// Words of an entry, as in 04_db.js.
pub(super) const W_OP: usize = 0;
pub(super) const W_KEY: usize = 1;
pub(super) const W_KEY_LENGTH: usize = 2;
pub(super) const W_VALUE: usize = 3;
pub(super) const W_VALUE_LENGTH: usize = 4;
pub(super) const W_EXPIRY: usize = 5;
pub(super) const OP_PUT: i32 = 1;
pub(super) const OP_DELETE: i32 = 2;

/// The writes of the call that has ended.
pub(crate) fn writes(io: &Io) -> Vec<CallWrite<'_>> {
    let count = size_of(io.word(OUT_WRITES)).min(WRITE_KEYS_MAX as usize);
    (0..count).map(|index| entry(io, index)).collect()
}

fn entry(io: &Io, index: usize) -> CallWrite<'_> {
    let words = (WRITES_AT + index * WRITES_ENTRY) / 4;
    let word = |number: usize| io.word(words + number);
    let bytes = |at: usize, length: usize| io.bytes(size_of(word(at)), size_of(word(length)));
    let key = bytes(W_KEY, W_KEY_LENGTH);
    let expiry_ms = io.wide(words + W_EXPIRY);
    match word(W_OP) {
        OP_PUT => CallWrite::Put { key, value: bytes(W_VALUE, W_VALUE_LENGTH), expiry_ms },
        OP_DELETE => CallWrite::Delete { key },
        _ => CallWrite::Expire { key, expiry_ms },
    }
}
