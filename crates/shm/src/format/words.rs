//! The shared words of an arena behind one trait, so that models run the shipped functions.
//!
//! 1. An offset counts bytes from the start; a word lies at a multiple of its size.
//! 2. A word is always accessed with the same width, but for the epoch and the current table, which
//!    are stored together and may be read apart.
//! 3. Only the arena's writer stores, but for the words of the reclaiming domain.
//! 4. `copy_in` is for bytes that no reader can know of yet; nothing else writes record bytes.
//!
//! The trait is private to the crate: with its stores, safe code elsewhere could change bytes that
//! a [`crate::Record`] lends out.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Words that several threads or processes share: mapped memory, heap memory, or loom's.
pub(crate) trait SharedWords: Clone {
    /// The most tries of a reader's loops, which have bounds of their own. A model runs all orders
    /// of each try, so it has few.
    const TRIES_MAX: u32 = u32::MAX;

    /// Bytes that may be accessed.
    fn len(&self) -> u64;
    /// Loads 4 bytes.
    fn load32(&self, offset: u64, order: Ordering) -> u32;
    /// Stores 4 bytes.
    fn store32(&self, offset: u64, value: u32, order: Ordering);
    /// Loads 8 bytes.
    fn load64(&self, offset: u64, order: Ordering) -> u64;
    /// Stores 8 bytes.
    fn store64(&self, offset: u64, value: u64, order: Ordering);
    /// Adds to 8 bytes and returns the sum; goes round where it overflows.
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64;
    /// A fence between accesses to these words.
    fn fence(&self, order: Ordering);
    /// Loads the 8 entries of an index line, relaxed.
    #[inline]
    fn line(&self, offset: u64) -> [u64; 8] {
        std::array::from_fn(|i| self.load64(offset + 8 * i as u64, Ordering::Relaxed))
    }
    /// Loads words of 8 bytes that follow each other, relaxed.
    #[inline]
    fn load_words(&self, offset: u64, to: &mut [[u8; 8]]) {
        for (at, word) in (offset..).step_by(8).zip(to) {
            *word = self.load64(at, Ordering::Relaxed).to_le_bytes();
        }
    }
    /// Stores words of 8 bytes that follow each other, relaxed.
    #[inline]
    fn store_words(&self, offset: u64, from: &[[u8; 8]]) {
        for (at, word) in (offset..).step_by(8).zip(from) {
            self.store64(at, u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }
    /// Writes bytes that no reader knows of yet: by words, where they aren't plain memory.
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let mut done = 0usize;
        while done < bytes.len() {
            let at = offset + done as u64;
            let skip = usize::try_from(at & 7).expect("below 8");
            let take = (8 - skip).min(bytes.len() - done);
            let mut word = self.load64(at & !7, Ordering::Relaxed).to_le_bytes();
            word[skip..skip + take].copy_from_slice(&bytes[done..done + take]);
            self.store64(at & !7, u64::from_le_bytes(word), Ordering::Relaxed);
            done += take;
        }
    }
    /// Copies published, immutable bytes of units of 16 to where no reader knows of them yet.
    fn copy_record(&self, from: u64, to: u64, len: u64) {
        let mut unit = [0; 16];
        for at in (0..len).step_by(unit.len()) {
            self.copy_out(from + at, &mut unit);
            self.copy_in(to + at, &unit);
        }
    }
    /// Copies bytes out; under a concurrent writer they may be torn, so the caller validates.
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            *byte = byte_of(self, at);
        }
    }
    /// Reads bytes of the file that these words are mapped from, by a call to the system; under a
    /// concurrent writer they may be torn.
    fn read_file(&self, file: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        file.read_exact_at(bytes, offset)
    }
    /// Whether published, immutable bytes equal these.
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        (offset..).zip(bytes).all(|(at, byte)| byte_of(self, at) == *byte)
    }
    /// Asks for a cache line.
    fn prefetch(&self, _offset: u64) {}
}

/// Whether `size` bytes at `offset` lie within `len` and at a multiple of `size`.
#[inline]
fn fits(offset: u64, size: u64, len: u64) -> bool {
    offset <= len.wrapping_sub(size) && len >= size && offset.is_multiple_of(size)
}

/// The words of a mapping. It stays mapped as long as its [`crate::Region`] lives.
#[derive(Clone, Copy)]
pub struct MappedWords {
    base: NonNull<u8>,
    len: u64,
}

// SAFETY: shared words are accessed atomically; record bytes are written before they are published
// and never again before the grace period is over.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// # Safety
    /// `base` is the start of `len` bytes that stay mapped readable as long as the result or a copy
    /// of it is used, is aligned to 64, and every page that is stored to is writable.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: u64) -> MappedWords {
        assert!(base.as_ptr().addr().is_multiple_of(64), "a mapping begins at a page");
        MappedWords { base, len }
    }

    /// The words of a part, which begins at a multiple of 64.
    pub(crate) fn part(&self, range: Range<u64>) -> MappedWords {
        let (from, len) = (range.start, range.end - range.start);
        let at = self.range(from, usize::try_from(len).expect("usize has 64 bits"));
        let base = NonNull::new(at).expect("an address within a mapping");
        // SAFETY: the part lies within these words (checked by `range`), which keep what is asked
        // of it; its alignment is checked.
        unsafe { MappedWords::new(base, len) }
    }

    #[inline]
    fn at(&self, offset: u64, size: u64) -> *mut u8 {
        assert!(fits(offset, size, self.len), "word at {offset} of {} bytes", self.len);
        self.pointer(offset)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "usize is 64 bits on the supported targets"
    )]
    fn pointer(&self, offset: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    #[inline]
    fn range(&self, offset: u64, len: usize) -> *mut u8 {
        let len = len as u64;
        assert!(
            len <= self.len && offset <= self.len - len,
            "{len} bytes at {offset} of {}",
            self.len
        );
        self.pointer(offset)
    }

    #[inline]
    fn word32(&self, offset: u64) -> &AtomicU32 {
        let at = self.at(offset, 4);
        // SAFETY: in bounds and aligned (checked above), mapped (MappedWords::new), and accessed by
        // atomic operations only while it is shared.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    #[inline]
    fn word64(&self, offset: u64) -> &AtomicU64 {
        let at = self.at(offset, 8);
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// A whole word; zeros if the mapping ends within it.
    #[inline]
    fn word_or_0(&self, offset: u64) -> [u8; 8] {
        if fits(offset, 8, self.len) {
            self.load64(offset, Ordering::Relaxed).to_le_bytes()
        } else {
            [0; 8]
        }
    }

    /// Words of 8 bytes that follow each other.
    #[inline]
    fn words_of(&self, offset: u64, words: usize) -> &[AtomicU64] {
        let at = self.range(offset, 8 * words);
        assert!(offset.is_multiple_of(8), "words at {offset}");
        // SAFETY: in bounds (checked by `range`), aligned to 8 (the base is, to 64), mapped
        // (MappedWords::new), and accessed by atomic operations only while they are shared.
        unsafe { std::slice::from_raw_parts(at.cast(), words) }
    }

    /// Published bytes, lent out.
    ///
    /// # Safety
    /// The bytes are not written as long as `'p` lasts, and stay mapped as long.
    #[inline]
    pub(crate) unsafe fn bytes<'p>(&self, offset: u64, len: usize) -> &'p [u8] {
        let at = self.range(offset, len);
        // SAFETY: in bounds (checked above), mapped, initialised (files and anonymous memory are),
        // and unchanged as the caller promises.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

impl SharedWords for MappedWords {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }
    #[inline]
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.word32(offset).load(order)
    }
    #[inline]
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        crate::failpoints::step();
        self.word32(offset).store(value, order);
    }
    #[inline]
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.word64(offset).load(order)
    }
    #[inline]
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        crate::failpoints::step();
        self.word64(offset).store(value, order);
    }
    #[inline]
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.word64(offset).fetch_add(n, order).wrapping_add(n)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }
    #[inline]
    fn line(&self, offset: u64) -> [u64; 8] {
        let at = self.at(offset, 64).cast::<[AtomicU64; 8]>();
        // SAFETY: in bounds and aligned to 64 (checked above); the line's words are only accessed
        // atomically.
        let line = unsafe { &*at };
        std::array::from_fn(|i| line[i].load(Ordering::Relaxed))
    }
    #[inline]
    fn load_words(&self, offset: u64, to: &mut [[u8; 8]]) {
        for (word, to) in self.words_of(offset, to.len()).iter().zip(to) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
    #[inline]
    fn store_words(&self, offset: u64, from: &[[u8; 8]]) {
        crate::failpoints::step();
        for (word, from) in self.words_of(offset, from.len()).iter().zip(from) {
            word.store(u64::from_le_bytes(*from), Ordering::Relaxed);
        }
    }
    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        crate::failpoints::step();
        let to = self.range(offset, bytes.len());
        // SAFETY: in bounds; no reader knows of these bytes yet (invariant 4), so `bytes` (which
        // may be published bytes of this arena) doesn't overlap them and nobody reads them
        // meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
    #[inline]
    fn copy_record(&self, from: u64, to: u64, len: u64) {
        crate::failpoints::step();
        assert!(from + len <= to || to + len <= from, "a record is copied elsewhere");
        let len = usize::try_from(len).expect("shorter than a slot");
        let (from, to) = (self.range(from, len), self.range(to, len));
        // SAFETY: both in bounds and apart (checked above); the source is published and not written
        // before its grace period, and no reader knows of the target yet (invariant 4).
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
    /// By atomic words, since another process may be writing: whole aligned words, then the ends.
    #[inline]
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.range(offset, bytes.len());
        let skip = usize::try_from(offset & 7).expect("below 8");
        let (head, rest) =
            bytes.split_at_mut(if skip == 0 { 0 } else { bytes.len().min(8 - skip) });
        if !head.is_empty() {
            let word = self.word_or_0(offset - skip as u64);
            head.copy_from_slice(&word[skip..skip + head.len()]);
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        let at = offset + head.len() as u64;
        if !words.is_empty() {
            self.load_words(at, words);
        }
        if !tail.is_empty() {
            let word = self.word_or_0(at + 8 * words.len() as u64);
            tail.copy_from_slice(&word[..tail.len()]);
        }
    }
    #[inline]
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        // SAFETY: the caller compares published bytes of its own arena under a pin (or is the
        // writer), and the slice doesn't outlive this call.
        let mine = unsafe { self.bytes(offset, bytes.len()) };
        mine == bytes
    }
    #[inline]
    fn prefetch(&self, offset: u64) {
        prefetch_line(self.pointer(offset));
    }
}

/// Asks for the cache lines of a value that will be looked at soon.
#[inline]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(64) {
        prefetch_line(start.wrapping_add(at));
    }
}

/// Asks for the cache line of an address, into the second-level cache: a core waits for more lines
/// there at a time than in the first (design 11).
#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch of any address is only a hint and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Words on the heap: of the reclaiming domain, of rings between threads, and of tests.
#[derive(Clone)]
pub struct HeapWords(Arc<[AtomicU64]>);

impl HeapWords {
    /// So many zeroed bytes, rounded up to words.
    pub(crate) fn new(bytes: usize) -> HeapWords {
        HeapWords((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.0[usize::try_from(offset / 8).expect("an offset within memory")]
    }

    /// So many words that follow each other.
    #[inline]
    fn words(&self, offset: u64, words: usize) -> &[AtomicU64] {
        let at = usize::try_from(offset / 8).expect("an offset within memory");
        &self.0[at..at + words]
    }

    fn half(offset: u64) -> u32 {
        assert!(offset.is_multiple_of(4), "a word of 4 bytes at {offset}");
        if offset.is_multiple_of(8) { 0 } else { 32 }
    }
}

impl SharedWords for HeapWords {
    #[inline]
    fn len(&self) -> u64 {
        self.0.len() as u64 * 8
    }
    #[expect(clippy::cast_possible_truncation, reason = "one half is wanted")]
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        (self.word(offset).load(order) >> Self::half(offset)) as u32
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        let (word, half) = (self.word(offset), Self::half(offset));
        let rest = word.load(Ordering::Relaxed) & !(0xFFFF_FFFF << half);
        word.store(rest | u64::from(value) << half, order);
    }
    #[inline]
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.word(offset).load(order)
    }
    #[inline]
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        self.word(offset).store(value, order);
    }
    #[inline]
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.word(offset).fetch_add(n, order).wrapping_add(n)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }
    #[inline]
    fn load_words(&self, offset: u64, to: &mut [[u8; 8]]) {
        for (word, to) in self.words(offset, to.len()).iter().zip(to) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
    #[inline]
    fn store_words(&self, offset: u64, from: &[[u8; 8]]) {
        for (word, from) in self.words(offset, from.len()).iter().zip(from) {
            word.store(u64::from_le_bytes(*from), Ordering::Relaxed);
        }
    }
}

/// One byte, by a relaxed load of its word.
fn byte_of<W: SharedWords>(words: &W, offset: u64) -> u8 {
    let word = words.load64(offset & !7, Ordering::Relaxed);
    word.to_le_bytes()[usize::try_from(offset & 7).expect("below 8")]
}
