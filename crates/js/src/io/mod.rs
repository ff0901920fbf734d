//! The io memory: what Rust, C++ and the prelude exchange. One per isolate, reserved once so that
//! it never moves; only touched pages cost memory.
//!
//! ```text
//! 0       4096     131072    262144     +640 MiB     +576 MiB                 +576 MiB    +64 MiB
//! | words | key    | text    | request  | response   | write set table, bytes | scan      |
//! ```
//!
//! The first 4,096 bytes are words. `STATE`, `KILL`, `ISSUED` and `OVERTIME` are shared with the
//! watchdog; all else is written by one side while the other waits, on one thread. The prelude has
//! the same constants; a test compares them.

pub(crate) mod call_writer;

use std::sync::atomic::AtomicI32;

use rustix::mm::{MapFlags, ProtFlags};

/// Number of the call whose user code runs; 0: none. Written by the runtime's thread.
pub(crate) const STATE: usize = 0;
/// Number of the call that the watchdog wants to stop, while it decides; else 0.
pub(crate) const KILL: usize = 3;
/// Number of the call that the watchdog has stopped last.
pub(crate) const ISSUED: usize = 4;
/// Number of the first call of the entry whose batch has had its time: the calls after the one that
/// runs are not begun.
pub(crate) const OVERTIME: usize = 9;
/// Set when the heap came near its limit.
pub(crate) const HEAP_HIT: usize = 2;
/// Partitions whose owners stand still during the batch, a bit for each.
pub(crate) const IN_STILL_LOW: usize = 12;
pub(crate) const IN_STILL_HIGH: usize = 13;
pub(crate) const IN_NOW_LOW: usize = 16;
pub(crate) const IN_NOW_HIGH: usize = 17;
pub(crate) const IN_SEED_LOW: usize = 18;
pub(crate) const IN_SEED_HIGH: usize = 19;
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
/// Bytes in which the inputs of a batch lie.
pub(crate) const INPUTS_AT: usize = IN_NOW_LOW * 4;
pub(crate) const INPUTS_END: usize = OUT_DONE * 4;
pub(crate) const OUT_DONE: usize = 32;
pub(crate) const OUT_END: usize = 33;
pub(crate) const OUT_WRITES: usize = 34;
/// Where the write set ended at most since the last trim, bytes.
pub(crate) const OUT_WRITE_HIGH: usize = 35;

pub(crate) const REQUEST_AT: usize = 262_144;
/// A call may carry one value of 512 MiB and more beside it.
pub(crate) const REQUEST_ROOM: usize = 640 << 20;
pub(crate) const RESPONSE_AT: usize = REQUEST_AT + REQUEST_ROOM;
/// One result of 512 MiB, and what is gathered before the dispatcher stops to flush.
pub(crate) const RESPONSE_ROOM: usize = 576 << 20;
/// The dispatcher stops to flush once this much has been gathered, or less if the caller wants less
/// at a time.
pub(crate) const RESPONSE_FLUSH: usize = 16 << 20;
pub(crate) const WRITES_AT: usize = RESPONSE_AT + RESPONSE_ROOM;
pub(crate) const WRITES_ROOM: usize = 576 << 20;
/// Bytes of the write set's table.
pub(crate) const WRITES_TABLE: usize = 32 << 20;
/// Entries of the write set: the table has 32 bytes for each.
pub(crate) const WRITE_KEYS_MAX: u32 = 1 << 20;
/// The largest value there is, hence of the limits for results and write sets.
pub(crate) const VALUE_BYTES_MAX: usize = 512 << 20;
/// What the last scan has found: apart from all else, since a getter in a result may scan while
/// that is encoded.
pub(crate) const SCAN_AT: usize = WRITES_AT + WRITES_ROOM;
/// Ten times what a page of 100 keys needs if all have the greatest length: a step of a scan may
/// find more.
pub(crate) const SCAN_ROOM: usize = 64 << 20;
const TOTAL: usize = SCAN_AT + SCAN_ROOM;
/// Pages of each part beyond this go back to the system after the batch.
const KEEP_BYTES: usize = 8 << 20;

// The prelude computes with int32.
const _: () = assert!(TOTAL < 1 << 31);
const _: () = assert!(VALUE_BYTES_MAX + RESPONSE_FLUSH + (1 << 20) <= RESPONSE_ROOM);
const _: () = assert!(VALUE_BYTES_MAX + WRITES_TABLE + (1 << 20) <= WRITES_ROOM);

/// Owns the reserved memory.
pub(crate) struct Mapped {
    io: Io,
}

/// The reserved memory. A copy is good as long as the [`Mapped`] that it comes from: the isolate
/// and the watchdog each hold that one.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    base: *mut u8,
}

// SAFETY: other threads reach it through `shared` only, which is atomic.
unsafe impl Send for Io {}
// SAFETY: as above.
unsafe impl Sync for Io {}

impl Mapped {
    pub(crate) fn new() -> Result<Mapped, std::io::Error> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches no other
        // memory.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                TOTAL,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Mapped { io: Io { base: base.cast() } })
    }

    pub(crate) fn io(&self) -> Io {
        self.io
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and whoever used it (isolate, watchdog) is gone: they hold an
        // Arc of this.
        let _ = unsafe { rustix::mm::munmap(self.io.base.cast(), TOTAL) };
    }
}

impl Io {
    pub(crate) fn base(self) -> *mut u8 {
        self.base
    }

    pub(crate) const fn total() -> usize {
        TOTAL
    }

    /// One of the words that threads share.
    pub(crate) fn shared(&self, index: usize) -> &AtomicI32 {
        assert!(matches!(index, STATE | KILL | ISSUED | OVERTIME));
        // SAFETY: inside of the mapping, which is page-aligned.
        let word = unsafe { self.base.cast::<i32>().add(index) };
        // SAFETY: aligned, lives as long as self, and every thread uses it as an atomic.
        unsafe { AtomicI32::from_ptr(word) }
    }

    /// The word that says which call runs.
    pub(crate) fn state(&self) -> &AtomicI32 {
        self.shared(STATE)
    }

    /// Reads the word number `index` (4 bytes each).
    pub(crate) fn word(&self, index: usize) -> i32 {
        assert!(index < TOTAL / 4);
        // SAFETY: inside of the mapping, as asserted.
        let word = unsafe { self.base.cast::<i32>().add(index) };
        // SAFETY: aligned and initialised (the system zeroes it); JavaScript doesn't run now.
        unsafe { word.read() }
    }

    /// Writes the word number `index`.
    pub(crate) fn set_word(&self, index: usize, value: i32) {
        assert!(index < TOTAL / 4);
        // SAFETY: inside of the mapping, as asserted.
        let word = unsafe { self.base.cast::<i32>().add(index) };
        // SAFETY: aligned; JavaScript doesn't run now.
        unsafe { word.write(value) }
    }

    /// Writes words from number `index` on.
    pub(crate) fn set_words(&self, index: usize, words: &[i32]) {
        assert!(index <= TOTAL / 4 && words.len() <= TOTAL / 4 - index);
        // SAFETY: inside of the mapping, as asserted.
        let to = unsafe { self.base.cast::<i32>().add(index) };
        // SAFETY: aligned; `words` is not in the mapping; JavaScript doesn't run now.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len()) }
    }

    pub(crate) fn set_now(&self, now_ms: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "split in two words")]
        let low = now_ms as u32;
        let high = (now_ms >> 32) as u32;
        self.set_word(IN_NOW_LOW, low.cast_signed());
        self.set_word(IN_NOW_HIGH, high.cast_signed());
        #[expect(clippy::cast_precision_loss, reason = "Unix ms are far below 2^53")]
        let now = now_ms as f64;
        // SAFETY: inside of the first page.
        let word = unsafe { self.base.cast::<f64>().add(IN_NOW_F64) };
        // SAFETY: aligned; JavaScript doesn't run now.
        unsafe { word.write(now) }
    }

    /// Copies `bytes` in at `at`.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at <= TOTAL && bytes.len() <= TOTAL - at);
        // SAFETY: inside of the mapping, as asserted.
        let to = unsafe { self.base.add(at) };
        // SAFETY: `bytes` is not in the mapping: nothing hands out slices of it across a write.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// The bytes at `at`, until JavaScript runs again.
    pub(crate) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at <= TOTAL && length <= TOTAL - at);
        // SAFETY: inside of the mapping, as asserted.
        let from = unsafe { self.base.add(at) };
        // SAFETY: readable, initialised; the caller doesn't run JavaScript while it uses the slice.
        unsafe { std::slice::from_raw_parts(from, length) }
    }

    /// Gives the pages of large requests, responses, scans and write sets back.
    pub(crate) fn trim(&self, request_end: usize, response_end: usize, scan_end: usize) {
        self.trim_room(REQUEST_AT, request_end);
        self.trim_room(RESPONSE_AT, response_end);
        self.trim_room(SCAN_AT, scan_end);
        let high = usize::try_from(self.word(OUT_WRITE_HIGH)).unwrap_or(0);
        if high != 0 {
            self.trim_room(WRITES_AT, high);
            self.set_word(OUT_WRITE_HIGH, 0);
        }
    }

    fn trim_room(&self, at: usize, end: usize) {
        let from = (at + KEEP_BYTES).next_multiple_of(4096);
        let end = end.next_multiple_of(4096).min(TOTAL);
        if end <= from {
            return;
        }
        // SAFETY: inside of the mapping.
        let start = unsafe { self.base.add(from) };
        // SAFETY: anonymous memory of ours, whose content beyond `from` nobody needs any more.
        let _ = unsafe {
            rustix::mm::madvise(start.cast(), end - from, rustix::mm::Advice::LinuxDontNeed)
        };
    }
}
