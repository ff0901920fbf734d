//! Where everything lies in an arena: the constants of `docs/formats/arena.md`.
//!
//! ```text
//! offset 0                                                        address bytes
//! | header 4 KiB | stamps 8 KiB | generations | tails | pad | slot k | slot k+1 | ...        |
//! |<--------------- slots 0..k: never reused ------->|<- segments, runs, free slots ->|
//! ```
//!
//! 1. All numbers are little-endian and naturally aligned; everything is an offset.
//! 2. Nothing but this file knows an offset of the header, of a record or of an index entry.
//! 3. Pure functions and constants: any thread may call them.

/// `NIGHARN1`, stored last when an arena is created.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NIGHARN1");
/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 2;

/// Offsets of the header's words, in bytes.
pub mod header {
    /// u64: the magic.
    pub const MAGIC: u64 = 0;
    /// u32: format version.
    pub const VERSION: u64 = 8;
    /// u32: log2 of the bytes of a slot.
    pub const SLOT_SHIFT: u64 = 12;
    /// u64: bytes of memory that the arena may use.
    pub const CAPACITY: u64 = 16;
    /// u64: length that the file may reach.
    pub const ADDRESS_BYTES: u64 = 24;
    /// u32: number of slots.
    pub const SLOTS: u64 = 32;
    /// u32: offset of the generation table.
    pub const GENERATIONS: u64 = 36;
    /// u32: offset of the tail table.
    pub const TAILS: u64 = 40;
    /// u32: first slot that may be a segment or a run.
    pub const FIRST_SLOT: u64 = 44;
    /// u32: the secret seed of the hash.
    pub const SEED: u64 = 48;
    /// u32: this partition's number.
    pub const PARTITION: u64 = 52;
    /// u32: number of partitions of the tenant.
    pub const PARTITIONS: u64 = 56;
    /// u32: bytes of the tenant's name.
    pub const TENANT_LEN: u64 = 60;
    /// The tenant's name, zero-padded.
    pub const TENANT: u64 = 64;
    /// u64: +2 with each writer, odd while it adopts; [`super::INCARNATION_OVER`].
    pub const INCARNATION: u64 = 192;
    /// 16 bytes: id of the log, or zeros without one.
    pub const LOG_ID: u64 = 208;
    /// 16 bytes: id of the machine's boot.
    pub const BOOT_ID: u64 = 224;
    /// u32: what the log promises: [`super::PROMISE_SYNCED`], or less.
    pub const PROMISE: u64 = 240;
    /// u64, stored at once: index epoch (low 4 bytes), current table (high 4 bytes).
    pub const INDEX_STATE: u64 = 256;
    /// u32: index epoch, odd while the index grows.
    pub const EPOCH: u64 = 256;
    /// u32: table word of the current table.
    pub const CURRENT: u64 = 260;
    /// u32: table word of the old table; counts only while the epoch is odd.
    pub const OLD: u64 = 264;
    /// u32: reference of an intent record, or 0.
    pub const INTENT: u64 = 268;
    /// u64: how often slots that were in use have been given to something else.
    pub const REUSES: u64 = 272;
    /// u64: LSN up to which the writer may be storing.
    pub const BEGUN_LSN: u64 = 320;
    /// u64: LSN up to which all may see.
    pub const COMMITTED_LSN: u64 = 328;
    /// u64: Unix ms, the latest time by which the writer has judged expiry.
    pub const CLOCK: u64 = 336;
    /// u64: LSN of the last change that removed all keys.
    pub const CLEAR_STAMP: u64 = 344;
    /// u64: LSN up to which the log is durable.
    pub const DURABLE_LSN: u64 = 384;
    /// u64: keys.
    pub const KEYS: u64 = 392;
    /// u64: keys with an expiry.
    pub const EXPIRES: u64 = 400;
    /// u64: bytes of live records and of their runs.
    pub const LIVE_BYTES: u64 = 408;
    /// u64: bytes appended since creation.
    pub const APPENDED_BYTES: u64 = 416;
    /// u64: bytes backed by memory.
    pub const BACKED_BYTES: u64 = 424;
    /// u64: bytes that the cleaner has moved since creation.
    pub const RELOCATED_BYTES: u64 = 432;
    /// u64: segments that the cleaner has emptied since creation.
    pub const CLEANED_SEGMENTS: u64 = 440;
    /// Bytes of the whole header.
    pub const BYTES: u64 = 4096;
}

/// Offsets within a record, in bytes.
pub mod record {
    /// u32: length of the value, bytes.
    pub const VALUE_LEN: u64 = 0;
    /// u32: checksum, see [`crate::format::sum`].
    pub const CHECKSUM: u64 = 4;
    /// u64: LSN.
    pub const LSN: u64 = 8;
    /// u64: expiry in Unix milliseconds, or 0.
    pub const EXPIRY: u64 = 16;
    /// u32: reference of the record that this one replaced when it was published, or 0.
    pub const PREV: u64 = 24;
    /// u16: length of the key, bytes.
    pub const KEY_LEN: u64 = 28;
    /// u8: kind.
    pub const KIND: u64 = 30;
    /// u8: flags.
    pub const FLAGS: u64 = 31;
    /// Where the key begins.
    pub const KEY: u64 = 32;
    /// Bytes of a record's header.
    pub const HEADER_BYTES: u64 = 32;
    /// Bytes that stand in place of a value that lies in a run.
    pub const RUN_BYTES: u64 = 16;
    /// Records begin at multiples of this, and references count in it.
    pub const UNIT: u64 = 16;
    /// Kind: a key and its string.
    pub const KIND_STRING: u8 = 1;
    /// Kind: a list of references to publish together.
    pub const KIND_INTENT: u8 = 2;
    /// Flag: the value lies in a run.
    pub const FLAG_RUN: u8 = 1;
    /// Flag: the key is to be deleted.
    pub const FLAG_TOMBSTONE: u8 = 2;
    /// Flag: its change in a log stands on an earlier version.
    pub const FLAG_BASED: u8 = 4;
}

/// Longest key, bytes: the record's length field is 16 bits.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value, bytes: as Redis's `proto-max-bulk-len`.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// LSNs stay below, so that JavaScript has them exactly; more is damage.
pub const LSN_END: u64 = 1 << 53;
/// The header's counts since creation stay below: nobody counts so far, so more is damage.
pub const COUNT_END: u64 = 1 << 62;
/// The incarnation of a file that isn't its arena any more.
pub const INCARNATION_OVER: u64 = u64::MAX;

/// The promise of a log that is synced before a reply.
pub const PROMISE_SYNCED: u32 = 3;
/// Longest tenant name, bytes: its place in the header.
pub const TENANT_BYTES_MAX: usize = 128;

/// Bytes of an index line: a cache line.
pub const LINE_BYTES: u64 = 64;
/// Entries in an index line.
pub const LINE_ENTRIES: u64 = 8;
/// Lines that a probe visits at most: bounds the cost of a miss.
pub const PROBE_LINES: u64 = 16;
/// Fewest lines of a table.
pub const TABLE_LINES_MIN: u64 = 8;
/// log2 of the most lines of a table: 4 GiB, since no run crosses a line of 4 GiB.
pub const TABLE_SHIFT_MAX: u32 = 26;

/// Reference of a deleted entry. 0 is that of an EMPTY one, which was never used since its line was
/// last not full.
pub const REF_DELETED: u32 = 1;
/// Reference of an entry that now stands in the current table.
pub const REF_MOVED: u32 = 2;

/// Smallest slot, log2 of bytes: the longest key must fit a segment (with the header and a run's
/// name).
pub const SLOT_SHIFT_MIN: u32 = 17;
/// Largest slot, log2 of bytes: a step of reclaiming stays short.
pub const SLOT_SHIFT_MAX: u32 = 20;
/// A capacity is divided into about so many slots.
pub const SLOTS_PER_CAPACITY: u64 = 256;
/// Least capacity, bytes: header, first table, head, two segments in reserve and some room.
pub const CAPACITY_MIN: u64 = 16 << SLOT_SHIFT_MIN;
/// Longest arena, bytes: a 32-bit reference in units of 16 bytes reaches no further.
pub const ADDRESS_BYTES_MAX: u64 = 64 << 30;
/// Most memory of an arena, bytes: what a reference reaches.
pub const CAPACITY_MAX: u64 = ADDRESS_BYTES_MAX;
/// Addresses per byte of capacity: runs whose last slot is not filled cost addresses, not memory.
pub const ADDRESSES_PER_CAPACITY: u64 = 2;
/// No segment, run or record crosses a multiple of this: JavaScript reads through windows of it.
pub const WINDOW_BYTES: u64 = 4 << 30;
/// Granularity of memory, bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Removal stamps, chosen by the low bits of a key's hash.
pub const STAMPS: u64 = 1024;
/// Bytes of the stamps, which follow the header.
pub const STAMPS_BYTES: u64 = STAMPS * 8;
/// Where the generation table begins.
pub const GENERATIONS: u64 = header::BYTES + STAMPS_BYTES;
/// Generation and tail table: bytes per slot.
pub const SLOT_WORD_BYTES: u64 = 4;

const _: () = {
    use header as h;
    assert!(h::MAGIC == 0 && h::VERSION == 8 && h::SLOT_SHIFT == 12 && h::CAPACITY == 16);
    assert!(h::ADDRESS_BYTES == 24 && h::SLOTS == 32 && h::GENERATIONS == 36 && h::TAILS == 40);
    assert!(h::FIRST_SLOT == 44 && h::SEED == 48 && h::PARTITION == 52 && h::PARTITIONS == 56);
    assert!(h::TENANT_LEN == 60 && h::TENANT == 64 && h::INCARNATION == 192);
    assert!(h::TENANT + TENANT_BYTES_MAX as u64 == h::INCARNATION);
    assert!(h::EPOCH == 256 && h::CURRENT == 260 && h::OLD == 264 && h::INTENT == 268);
    assert!(h::PROMISE == 240 && h::REUSES == 272);
    assert!(h::INDEX_STATE == h::EPOCH && h::INDEX_STATE + 4 == h::CURRENT);
    assert!(h::BEGUN_LSN == 320 && h::COMMITTED_LSN == 328 && h::CLOCK == 336);
    assert!(h::CLEAR_STAMP == 344 && h::DURABLE_LSN == 384);
    assert!(h::KEYS == 392 && h::EXPIRES == 400 && h::LIVE_BYTES == 408);
    assert!(h::APPENDED_BYTES == 416 && h::BACKED_BYTES == 424);
    assert!(h::RELOCATED_BYTES == 432 && h::CLEANED_SEGMENTS == 440 && h::BYTES == 4096);
    assert!(GENERATIONS == 12_288 && GENERATIONS == h::BYTES + STAMPS_BYTES);
    // Records: no padding between the fields, 32 bytes in all.
    use record as r;
    assert!(r::VALUE_LEN == 0 && r::CHECKSUM == 4 && r::LSN == 8 && r::EXPIRY == 16);
    assert!(r::PREV == 24 && r::KEY_LEN == 28 && r::KIND == 30 && r::FLAGS == 31);
    assert!(r::KEY == 32 && r::HEADER_BYTES == r::KEY && r::RUN_BYTES == 16 && r::UNIT == 16);
    // Index.
    assert!(LINE_BYTES == LINE_ENTRIES * 8 && TABLE_LINES_MIN == 8 && PROBE_LINES == 16);
    assert!((LINE_BYTES << TABLE_SHIFT_MAX) == WINDOW_BYTES && TABLE_SHIFT_MAX < 64);
    assert!(ADDRESS_BYTES_MAX / r::UNIT == 1 << 32);
    // The longest key with a run's name, and with the longest inline value, fits a segment.
    let longest = r::HEADER_BYTES + KEY_BYTES_MAX as u64 + 1 + PAGE_BYTES;
    assert!(longest <= 1 << SLOT_SHIFT_MIN);
    // A slot number fits above the six bits of a table word.
    assert!((ADDRESS_BYTES_MAX >> SLOT_SHIFT_MIN) <= 1 << 26);
};

/// Rounds up to a multiple of a power of two.
#[must_use]
pub const fn round_up(n: u64, to: u64) -> u64 {
    (n + (to - 1)) & !(to - 1)
}

/// An index entry as it lies in memory: tag below, reference above.
#[must_use]
#[inline]
pub const fn entry(tag: u32, reference: u32) -> u64 {
    (reference as u64) << 32 | tag as u64
}

/// The tag of an entry: the whole hash.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
pub const fn entry_tag(entry: u64) -> u32 {
    entry as u32
}

/// The reference of an entry.
#[must_use]
#[inline]
pub const fn entry_reference(entry: u64) -> u32 {
    (entry >> 32) as u32
}

/// Whether a record's time is over: once the time has passed its expiry, not at it. 0 is no expiry.
#[must_use]
#[inline]
pub const fn is_over(expiry_ms: u64, now_ms: u64) -> bool {
    expiry_ms != 0 && expiry_ms < now_ms
}

/// The slot in which an offset lies.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most 2^19 slots")]
pub const fn slot_of(offset: u64, slot_shift: u32) -> u32 {
    (offset >> slot_shift) as u32
}

/// Where the generation of a slot lies: the table follows the stamps in every arena.
#[must_use]
#[inline]
pub const fn generation_offset(slot: u32) -> u64 {
    GENERATIONS + slot as u64 * SLOT_WORD_BYTES
}

/// Where the stamp of a key's removal lies.
#[must_use]
#[inline]
pub const fn stamp_offset(hash: u32) -> u64 {
    header::BYTES + (hash as u64 & (STAMPS - 1)) * 8
}

/// How an arena is divided, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of memory that the arena may use.
    pub capacity_bytes: u64,
    /// Length that the file may reach.
    pub address_bytes: u64,
    /// log2 of the bytes of a slot.
    pub slot_shift: u32,
    /// Number of slots.
    pub slots: u32,
    /// Offset of the generation table.
    pub generations: u64,
    /// Offset of the tail table.
    pub tails: u64,
    /// First slot that may be a segment or a run.
    pub first_slot: u32,
}

impl Geometry {
    /// The division of a new arena. `None` if the capacity is out of bounds.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Option<Geometry> {
        if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity_bytes) {
            return None;
        }
        let share = (capacity_bytes / SLOTS_PER_CAPACITY).max(1).ilog2();
        let slot_shift = share.clamp(SLOT_SHIFT_MIN, SLOT_SHIFT_MAX);
        let wanted = (capacity_bytes * ADDRESSES_PER_CAPACITY).min(ADDRESS_BYTES_MAX);
        let slots = u32::try_from(wanted >> slot_shift).ok()?;
        let table = round_up(u64::from(slots) * SLOT_WORD_BYTES, LINE_BYTES);
        let (generations, tails) = (GENERATIONS, GENERATIONS + table);
        let first_slot = u32::try_from((tails + table).div_ceil(1 << slot_shift)).ok()?;
        Some(Geometry {
            capacity_bytes,
            address_bytes: u64::from(slots) << slot_shift,
            slot_shift,
            slots,
            generations,
            tails,
            first_slot,
        })
    }

    /// Bytes of a slot.
    #[must_use]
    #[inline]
    pub const fn slot_bytes(&self) -> u64 {
        1 << self.slot_shift
    }

    /// Where a slot begins.
    #[must_use]
    #[inline]
    pub const fn slot_offset(&self, slot: u32) -> u64 {
        (slot as u64) << self.slot_shift
    }

    /// The slot in which an offset lies.
    #[must_use]
    #[inline]
    pub const fn slot_of(&self, offset: u64) -> u32 {
        slot_of(offset, self.slot_shift)
    }

    /// Slots that so many bytes take.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "callers bound bytes by the address space")]
    pub const fn slots_for(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.slot_bytes()) as u32
    }

    /// Slots between two lines of 4 GiB.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "2^15 at most")]
    pub const fn slots_per_window(&self) -> u32 {
        (WINDOW_BYTES >> self.slot_shift) as u32
    }

    /// Whether a value lies in a run: its record would be longer than half a slot, and it is more
    /// than a page itself (so that a long key alone makes no run).
    #[must_use]
    #[inline]
    pub const fn wants_run(&self, record_bytes: u64, value_bytes: u64) -> bool {
        record_bytes > self.slot_bytes() / 2 && value_bytes > PAGE_BYTES
    }

    /// Where the generation of a slot lies.
    #[must_use]
    #[inline]
    pub const fn generation_offset(&self, slot: u32) -> u64 {
        generation_offset(slot)
    }

    /// Where the tail of a slot lies.
    #[must_use]
    #[inline]
    pub const fn tail_offset(&self, slot: u32) -> u64 {
        self.tails + slot as u64 * SLOT_WORD_BYTES
    }
}

/// Bytes of a record, value inline.
#[must_use]
#[inline]
pub const fn inline_record_bytes(key_len: usize, value_len: usize) -> u64 {
    round_up(record::HEADER_BYTES + round_up(key_len as u64, 8) + value_len as u64, record::UNIT)
}

/// Bytes of a record whose value lies in a run.
#[must_use]
#[inline]
pub const fn run_record_bytes(key_len: usize) -> u64 {
    round_up(record::KEY + round_up(key_len as u64, 8) + record::RUN_BYTES, record::UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_keeps_its_promises_for_every_capacity() {
        // A capacity becomes slots: they cover the addresses, the tables lie before the first one.
        let mut capacity = CAPACITY_MIN;
        while capacity <= CAPACITY_MAX {
            let g = Geometry::new(capacity).expect("in bounds");
            assert_eq!(g.address_bytes, u64::from(g.slots) << g.slot_shift);
            assert!(g.tails + u64::from(g.slots) * 4 <= g.slot_offset(g.first_slot));
            assert!(g.first_slot < 16 && g.slots >= 32);
            assert!(u32::try_from(g.tails).is_ok());
            capacity = capacity * 5 / 3;
        }
        assert_eq!(Geometry::new(CAPACITY_MIN - 1), None);
        assert_eq!(Geometry::new(CAPACITY_MAX + 1), None);
    }

    #[test]
    fn entries_put_the_tag_where_a_32_bit_reader_looks() {
        // JavaScript reads the tag at +0 and the reference at +4 of an entry.
        let bytes = entry(0x0403_0201, 0x0807_0605).to_le_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
