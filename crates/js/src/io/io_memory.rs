//! Reserves the io memory, reads and writes it. The runtime's thread, except for the shared words.

use std::sync::atomic::AtomicI32;

use rustix::mm::{MapFlags, ProtFlags};

use super::{
    IN_NOW, IN_NOW_F64, ISSUED, KEEP_BYTES, KILL, OUT_END, OUT_WRITE_HIGH, OVERTIME, REQUEST_AT,
    RESPONSE_AT, SCAN_AT, STATE, TOTAL, WRITES_AT, WRITES_ENTRY, WRITES_TABLE, size_of,
};

/// Owns the reserved memory.
pub(crate) struct Mapped {
    io: Io,
}

/// The reserved memory. A copy is valid as long as its [`Mapped`] lives, which the isolate and the
/// watchdog each hold.
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
        // SAFETY: mapped in `new`. Its users, the isolate and the watchdog, hold an Arc of this, so
        // they are gone.
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

    /// One of the words that are shared with the watchdog.
    pub(crate) fn shared(&self, index: usize) -> &AtomicI32 {
        assert!(matches!(index, STATE | KILL | ISSUED | OVERTIME));
        // SAFETY: inside of the mapping, which is page-aligned.
        let word = unsafe { self.base.cast::<i32>().add(index) };
        // SAFETY: aligned, lives as long as self, and every thread uses it as an atomic.
        unsafe { AtomicI32::from_ptr(word) }
    }

    /// The word with the number of the running call.
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

    /// Reads a number of 64 bits from the words `index`, which is its low half, and `index + 1`.
    pub(crate) fn wide(&self, index: usize) -> u64 {
        let half = |index: usize| u64::from(self.word(index).cast_unsigned());
        half(index + 1) << 32 | half(index)
    }

    /// Writes a number of 64 bits to the same words.
    pub(crate) fn set_wide(&self, index: usize, value: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "split in two words")]
        let low = value as u32;
        let high = (value >> 32) as u32;
        self.set_word(index, low.cast_signed());
        self.set_word(index + 1, high.cast_signed());
    }

    /// Writes the time of a batch, in its two forms.
    pub(crate) fn set_now(&self, now_ms: u64) {
        self.set_wide(IN_NOW, now_ms);
        #[expect(clippy::cast_precision_loss, reason = "Unix ms are far below 2^53")]
        let now = now_ms as f64;
        // SAFETY: inside of the first page.
        let word = unsafe { self.base.cast::<f64>().add(IN_NOW_F64) };
        // SAFETY: aligned; JavaScript doesn't run now.
        unsafe { word.write(now) }
    }

    /// Copies `bytes` to `at`.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at <= TOTAL && bytes.len() <= TOTAL - at);
        // SAFETY: inside of the mapping, as asserted.
        let to = unsafe { self.base.add(at) };
        // SAFETY: `bytes` is not in the mapping: no slice of it is held across a write.
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

    /// Gives the pages of large requests, responses, scans and write sets back to the system.
    pub(crate) fn trim(&self, request_end: usize, scan_end: usize) {
        self.trim_room(REQUEST_AT, request_end);
        self.trim_room(SCAN_AT, scan_end);
        let response_end = size_of(self.word(OUT_END));
        if response_end != 0 {
            self.trim_room(RESPONSE_AT, response_end);
            self.set_word(OUT_END, 0);
        }
        let writes_end = size_of(self.word(OUT_WRITE_HIGH));
        if writes_end != 0 {
            self.trim_writes(writes_end);
            self.set_word(OUT_WRITE_HIGH, 0);
        }
    }

    /// The write set's table and its bytes are two parts. Each entry has its key among the bytes,
    /// which takes 8 of them; only the empty key takes none.
    fn trim_writes(&self, end: usize) {
        let bytes_at = WRITES_AT + WRITES_TABLE;
        let most_entries = end.saturating_sub(bytes_at) / 8 + 1;
        self.trim_room(WRITES_AT, (WRITES_AT + most_entries * WRITES_ENTRY).min(bytes_at));
        self.trim_room(bytes_at, end);
    }

    fn trim_room(&self, at: usize, end: usize) {
        let from = (at + KEEP_BYTES).next_multiple_of(4096);
        let end = end.next_multiple_of(4096).min(TOTAL);
        if end <= from {
            return;
        }
        // SAFETY: inside of the mapping.
        let start = unsafe { self.base.add(from) };
        // SAFETY: anonymous memory of ours, whose content from there on is needed no more.
        let _ = unsafe {
            rustix::mm::madvise(start.cast(), end - from, rustix::mm::Advice::LinuxDontNeed)
        };
    }
}
