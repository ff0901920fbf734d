//! The io memory: through it Rust, C++ and the prelude exchange all data. Each isolate has one.
//!
//! ```text
//! 0       4096     131072    262144     +640 MiB     +576 MiB                 +576 MiB    +64 MiB
//! | words | key    | text    | request  | response   | write set table, bytes | scan      |
//! ```
//!
//! 1. It is reserved once and never moves. Only touched pages cost memory.
//! 2. The first 4,096 bytes are words. `STATE`, `KILL`, `ISSUED` and `OVERTIME` are shared with the
//!    watchdog, and are atomic. One side writes all other bytes while the other waits, on one
//!    thread.
//! 3. The prelude and the shim have the same constants; a test compares them (layouts_agree.rs).
//!
//! | file | what it does |
//! |---|---|
//! | `io_memory` | reserves the memory, reads and writes it |
//! | `call_writer` | writes the calls of a batch into the request |
//! | `results` | reads the results of calls, and the functions of a module, from the response |
//! | `write_set` | reads the write set of a call |
//! | `found_keys` | writes the keys that a scan has found |

pub(crate) mod call_writer;
pub(crate) mod found_keys;
mod io_memory;
#[cfg(test)]
mod layouts_agree;
pub(crate) mod results;
pub(crate) mod write_set;

use crate::caller::function_limits::{VALUE_BYTES_MAX, WRITE_KEYS_MAX};

pub(crate) use io_memory::{Io, Mapped};

/// Number of the call whose user code runs; 0: none. Written by the runtime's thread.
pub(crate) const STATE: usize = 0;
/// Number of the call about which the watchdog decides whether to stop it; else 0.
pub(crate) const KILL: usize = 3;
/// Number of the call that the watchdog stopped last.
pub(crate) const ISSUED: usize = 4;
/// Number of the first call of the entry whose batch has had its time: after the running call, no
/// further one begins.
pub(crate) const OVERTIME: usize = 9;
/// Number of the call in which the heap came near its limit, so that V8 stops the call; -1: it did
/// in code that is not to be stopped; 0: it didn't.
pub(crate) const HEAP_HIT: usize = 2;
/// Partitions whose owners stand still during the batch, a bit for each.
pub(crate) const IN_STILL: usize = 12;
pub(crate) const IN_NOW: usize = 16;
pub(crate) const IN_SEED: usize = 18;
pub(crate) const IN_RESULT_BYTES: usize = 20;
pub(crate) const IN_RESULT_DEPTH: usize = 21;
pub(crate) const IN_WRITE_BYTES: usize = 22;
pub(crate) const IN_WRITE_KEYS: usize = 23;
pub(crate) const IN_FIRST_STATE: usize = 24;
/// Index in its batch of the first call of this entry.
pub(crate) const IN_FIRST_INDEX: usize = 25;
/// Word where that call begins in the request.
pub(crate) const IN_FIRST_HEAD: usize = 26;
/// Number of calls of this entry.
pub(crate) const IN_COUNT: usize = 27;
/// Bytes of results after which this entry ends, at most [`RESPONSE_FLUSH`].
pub(crate) const IN_FLUSH_BYTES: usize = 30;
/// In 64-bit words: Unix ms as a double.
pub(crate) const IN_NOW_F64: usize = 14;
/// The inputs of a batch lie in these bytes.
pub(crate) const INPUTS_AT: usize = IN_STILL * 4;
pub(crate) const INPUTS_END: usize = OUT_DONE * 4;
pub(crate) const OUT_DONE: usize = 32;
/// The farthest end of results since the last trim, as an offset.
pub(crate) const OUT_END: usize = 33;
pub(crate) const OUT_WRITES: usize = 34;
/// The farthest end of a write set's bytes since the last trim, as an offset; also of bytes that a
/// failed write has left behind the set.
pub(crate) const OUT_WRITE_HIGH: usize = 35;

pub(crate) const REQUEST_AT: usize = 262_144;
/// A call may carry one value of 512 MiB and more beside it.
pub(crate) const REQUEST_ROOM: usize = 640 << 20;
pub(crate) const RESPONSE_AT: usize = REQUEST_AT + REQUEST_ROOM;
/// One result of 512 MiB, and the results that the dispatcher gathers before it.
pub(crate) const RESPONSE_ROOM: usize = 576 << 20;
/// The dispatcher ends an entry once it has gathered so many bytes of results, or fewer if the
/// caller wants fewer.
pub(crate) const RESPONSE_FLUSH: usize = 16 << 20;
pub(crate) const WRITES_AT: usize = RESPONSE_AT + RESPONSE_ROOM;
pub(crate) const WRITES_ROOM: usize = 576 << 20;
/// Bytes of the write set's table.
pub(crate) const WRITES_TABLE: usize = 32 << 20;
/// Bytes of an entry of that table.
pub(crate) const WRITES_ENTRY: usize = 32;
/// The keys that the last scan has found. They have a part of their own, since a getter may scan
/// while its result is being encoded.
pub(crate) const SCAN_AT: usize = WRITES_AT + WRITES_ROOM;
/// Ten times the bytes of 100 keys of the greatest length: a page of a scan may have more than 100
/// keys.
pub(crate) const SCAN_ROOM: usize = 64 << 20;
pub(crate) const TOTAL: usize = SCAN_AT + SCAN_ROOM;
/// Of each part, pages behind so many bytes go back to the system after the batch. The write set is
/// two parts: its table, and its bytes.
pub(crate) const KEEP_BYTES: usize = 8 << 20;

// The prelude computes with int32.
const _: () = assert!(TOTAL < 1 << 31);
const _: () = assert!(VALUE_BYTES_MAX + RESPONSE_FLUSH + (1 << 20) <= RESPONSE_ROOM);
const _: () = assert!(WRITE_KEYS_MAX as usize * WRITES_ENTRY <= WRITES_TABLE);
const _: () = assert!(VALUE_BYTES_MAX + WRITES_TABLE + (1 << 20) <= WRITES_ROOM);

/// A number as a word; the largest word if it is too large.
pub(crate) fn word_of(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A word that is a length, a count or an offset.
pub(crate) fn size_of(word: i32) -> usize {
    usize::try_from(word).unwrap_or(0)
}
