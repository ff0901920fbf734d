//! A record: one version of one key, where it lies.
//!
//! 1. A record's bytes are immutable from its staging on, until its segment is retired and reused.
//! 2. A [`Record`] lends its bytes for as long as the pin lasts under which it was found.
//! 3. A [`RecordRef`] or [`ValueRef`] that is kept too long is refused, never followed: its slot's
//!    generation, or the pin's turn, has changed then.
//!
//! Writing: the arena's writer. Reading: any thread with a pin.

use crate::format::head::Head;
use crate::format::layout::{
    KEY_BYTES_MAX, entry, generation_offset, record as r, round_up, slot_of,
};
use crate::format::sum;
use crate::format::words::{MappedWords, SharedWords};
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

/// Whether the published record at a reference has this key. Its hash is known to be equal.
#[inline]
pub(crate) fn key_is<W: SharedWords>(words: &W, reference: u32, key: &[u8]) -> bool {
    let offset = u64::from(reference) * r::UNIT;
    let len = words.load32(offset + r::KEY_LEN, Ordering::Relaxed) & 0xFFFF;
    len as usize == key.len() && words.equals(offset + r::KEY, key)
}

/// Writes a record: header with its checksum, key, parts of its value, and zeros between and
/// behind. One that has no number yet keeps the sum of what stands behind its header, until
/// [`seal`]. Returns the checksum.
#[inline]
pub(crate) fn write<W: SharedWords>(
    words: &W,
    offset: u64,
    head: &Head,
    key: &[u8],
    parts: &[&[u8]],
) -> u32 {
    debug_assert!(key.len() <= KEY_BYTES_MAX && key.len() == usize::from(head.key_len));
    let mut body = RecordBody { words, at: offset + r::KEY, written: 0, sum: 0 };
    body.append(key);
    body.pad(8);
    parts.iter().for_each(|part| body.append(part));
    body.pad(r::UNIT);
    debug_assert_eq!(body.at - offset, head.bytes());
    let checksum = if head.lsn == 0 { body.sum } else { sum::of_record(body.sum, head) };
    words.copy_in(offset, &Head { checksum, ..*head }.to_bytes());
    checksum
}

/// Gives a record that was written without a number its number.
pub(crate) fn seal<W: SharedWords>(words: &W, offset: u64, lsn: u64) {
    let head = Head { lsn, ..Head::load(words, offset) };
    let checksum = sum::of_record(head.checksum, &head);
    words.copy_in(offset, &Head { checksum, ..head }.to_bytes());
}

/// The bytes behind a header, while they are written.
struct RecordBody<'a, W> {
    words: &'a W,
    at: u64,
    /// Bytes of it that are written. A record in a journal lies at a multiple of 8 only.
    written: u64,
    sum: u32,
}

impl<W: SharedWords> RecordBody<'_, W> {
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        // The sum reads where they come from: where they go, the words straddle stores and wait for
        // the cache.
        self.words.copy_in(self.at, bytes);
        self.at += bytes.len() as u64;
        self.written += bytes.len() as u64;
        self.sum = sum::more(self.sum, bytes);
    }

    /// Zeros up to a multiple of `to` (8 or 16).
    #[inline]
    fn pad(&mut self, to: u64) {
        let zeros = round_up(self.written, to) - self.written;
        if zeros != 0 {
            self.append(&[0; 16][..usize::try_from(zeros).expect("below 16")]);
        }
    }
}

/// One version of a key, lent out where it lies.
#[derive(Clone, Copy)]
pub struct Record<'p> {
    words: MappedWords,
    offset: u64,
    turn: u64,
    arena: u32,
    seed: u32,
    slot_shift: u8,
    pin: PhantomData<(&'p [u8], *const u8)>,
}

impl<'p> Record<'p> {
    /// # Safety
    /// `offset` is a whole record's of our own arena, published or staged, that is not retired
    /// before a moment at which the pin of lifetime `'p` was held; so its bytes (and its run's)
    /// stay unchanged and mapped as long as `'p` lasts.
    #[inline]
    pub(crate) unsafe fn new(
        words: MappedWords,
        (seed, slot_shift): (u32, u32),
        offset: u64,
        turn: u64,
        arena: u32,
    ) -> Record<'p> {
        #[expect(clippy::cast_possible_truncation, reason = "17 to 20")]
        let slot_shift = slot_shift as u8;
        Record { words, offset, turn, arena, seed, slot_shift, pin: PhantomData }
    }

    #[inline]
    fn word32(&self, at: u64) -> u32 {
        self.words.load32(self.offset + at, Ordering::Relaxed)
    }

    #[inline]
    fn word64(&self, at: u64) -> u64 {
        self.words.load64(self.offset + at, Ordering::Relaxed)
    }

    #[inline]
    fn key_len(&self) -> usize {
        (self.word32(r::KEY_LEN) & 0xFFFF) as usize
    }

    #[inline]
    fn flags(&self) -> u32 {
        self.word32(r::KEY_LEN) >> 24
    }

    /// The key.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &'p [u8] {
        // SAFETY: the key lies in the record, unchanged as long as `'p` (Record::new).
        unsafe { self.words.bytes(self.offset + r::KEY, self.key_len()) }
    }

    #[inline]
    fn value_offset(&self) -> u64 {
        let at = self.offset + r::KEY + round_up(self.key_len() as u64, 8);
        if !self.has_run() {
            return at;
        }
        u64::from(self.words.load32(at, Ordering::Relaxed)) << self.slot_shift
    }

    /// The value.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a GET of a short value is then without calls")]
    pub fn value(&self) -> &'p [u8] {
        let (at, len) = (self.value_offset(), self.value_len() as usize);
        // SAFETY: the value lies in the record or in the run that it names, unchanged as long as
        // `'p` (Record::new).
        unsafe { self.words.bytes(at, len) }
    }

    /// Bytes of the value.
    #[must_use]
    #[inline]
    pub fn value_len(&self) -> u32 {
        self.word32(r::VALUE_LEN)
    }

    /// When it expires, Unix milliseconds; 0 if never.
    #[must_use]
    #[inline]
    pub fn expiry_ms(&self) -> u64 {
        self.word64(r::EXPIRY)
    }

    /// The record's log sequence number.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.word64(r::LSN)
    }

    /// Hash of the key.
    #[must_use]
    #[inline]
    pub fn hash(&self) -> u32 {
        crate::format::hash::hash(self.seed, self.key())
    }

    /// Whether its value lies in a run.
    #[inline]
    pub(crate) fn has_run(&self) -> bool {
        self.flags() & u32::from(r::FLAG_RUN) != 0
    }

    /// Whether it is a staged deletion.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.flags() & u32::from(r::FLAG_TOMBSTONE) != 0
    }

    /// Its place, for [`crate::Reader::record`] and [`crate::Writer::stage_moved_run`]. Equal
    /// exactly if it is the same version of the key in the same arena.
    #[must_use]
    #[inline]
    pub fn reference(&self) -> RecordRef {
        // SYNC(generation): the slot is not reused while the pin lasts; odd if it was retired
        // meanwhile, which makes a reference that is never followed.
        let at = generation_offset(slot_of(self.offset, self.slot_shift.into()));
        let generation = self.words.load32(at, Ordering::Acquire);
        let (hash, reference) = (self.hash(), reference_of(self.offset));
        RecordRef { hash, reference, generation, arena: self.arena }
    }

    /// Its value's place, for [`crate::Reader::bytes`] within this turn.
    #[must_use]
    pub fn value_ref(&self) -> ValueRef {
        ValueRef {
            offset: self.value_offset(),
            len: self.value_len(),
            arena: self.arena,
            turn: self.turn,
        }
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("value_len", &self.value_len())
            .field("expiry_ms", &self.expiry_ms())
            .field("lsn", &self.lsn())
            .finish_non_exhaustive()
    }
}

/// The reference of a record at an offset.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an arena has at most 64 GiB: 2^32 units")]
pub(crate) const fn reference_of(offset: u64) -> u32 {
    (offset / r::UNIT) as u32
}

/// The place of a record, published or staged. Kept too long it is refused, never followed: the
/// generation of its slot is even while the slot is in use and odd while it waits to be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordRef {
    pub(crate) hash: u32,
    pub(crate) reference: u32,
    pub(crate) generation: u32,
    pub(crate) arena: u32,
}

impl RecordRef {
    /// The index entry of the record once it is published.
    pub(crate) fn entry(&self) -> u64 {
        entry(self.hash, self.reference)
    }

    /// Offset of the record in the arena, bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        u64::from(self.reference) * r::UNIT
    }
}

/// The place of a value, good for the turn in which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) arena: u32,
    pub(crate) turn: u64,
}

impl ValueRef {
    /// Offset of the value in the arena, bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
