//! The layout of edition 1, for its reader: constants that don't change any more.
//!
//! See `docs/formats/arena-1.md`. Nothing here is shared
//! with the layout of today's arenas, so that a change of those can't change what is read from old
//! ones.
//!
//! Pure constants and functions: any thread.

/// The first bytes of an arena.
pub(super) const MAGIC: [u8; 8] = *b"NIGHARN1";
/// Its format version.
pub(super) const VERSION: u32 = 1;

/// Offsets of the header's words, in bytes.
pub(super) mod header {
    pub(in super::super) const VERSION: usize = 8;
    pub(in super::super) const SLOT_SHIFT: usize = 12;
    pub(in super::super) const CAPACITY: usize = 16;
    pub(in super::super) const ADDRESS_BYTES: usize = 24;
    pub(in super::super) const SLOTS: usize = 32;
    pub(in super::super) const GENERATIONS: usize = 36;
    pub(in super::super) const TAILS: usize = 40;
    pub(in super::super) const FIRST_SLOT: usize = 44;
    pub(in super::super) const SEED: usize = 48;
    pub(in super::super) const PARTITION: usize = 52;
    pub(in super::super) const PARTITIONS: usize = 56;
    pub(in super::super) const TENANT_LEN: usize = 60;
    pub(in super::super) const TENANT: usize = 64;
    /// Odd while the index grows.
    pub(in super::super) const EPOCH: usize = 256;
    pub(in super::super) const CURRENT: usize = 260;
    /// The table that is being emptied; counts only while the epoch is odd.
    pub(in super::super) const OLD: usize = 264;
    pub(in super::super) const INTENT: usize = 272;
    pub(in super::super) const COMMITTED_LSN: usize = 320;
    pub(in super::super) const APPENDED_BYTES: usize = 360;
    pub(in super::super) const RELOCATED_BYTES: usize = 376;
    pub(in super::super) const CLEANED_SEGMENTS: usize = 384;
    /// Bytes of the whole header. The generation table follows it.
    pub(in super::super) const BYTES: usize = 4096;
}

/// Offsets within a record, in bytes.
pub(super) mod record {
    pub(in super::super) const UNITS: usize = 0;
    pub(in super::super) const VALUE_LEN: usize = 4;
    pub(in super::super) const LSN: usize = 8;
    pub(in super::super) const EXPIRY: usize = 16;
    pub(in super::super) const HASH: usize = 24;
    pub(in super::super) const KEY_LEN: usize = 28;
    pub(in super::super) const KIND: usize = 30;
    pub(in super::super) const FLAGS: usize = 31;
    /// Where the key begins: behind the header.
    pub(in super::super) const KEY: usize = 32;
    /// Bytes of the name of a run, which stands in place of a value that lies there.
    pub(in super::super) const RUN_BYTES: usize = 16;
    /// Records begin at multiples of this, and references count in it.
    pub(in super::super) const UNIT: u64 = 16;
    pub(in super::super) const KIND_STRING: u8 = 1;
    pub(in super::super) const KIND_INTENT: u8 = 2;
    pub(in super::super) const FLAG_RUN: u8 = 1;
    pub(in super::super) const FLAG_TOMBSTONE: u8 = 2;
}

/// log2 of a slot's bytes.
pub(super) const SLOT_SHIFTS: std::ops::RangeInclusive<u32> = 17..=20;
/// Length that a file may reach, bytes.
pub(super) const ADDRESS_BYTES: std::ops::RangeInclusive<u64> = CAPACITY_MIN..=64 << 30;
/// Least memory of an arena, bytes.
pub(super) const CAPACITY_MIN: u64 = 2 << 20;
/// Length of a tenant's name, bytes.
pub(super) const TENANT_BYTES: std::ops::RangeInclusive<usize> = 1..=128;
/// Longest value, bytes.
pub(super) const VALUE_BYTES_MAX: u32 = 512 << 20;
/// LSNs and counts are below.
pub(super) const COUNT_END: u64 = 1 << 62;
/// No run crosses a multiple of this.
pub(super) const WINDOW_BYTES: u64 = 4 << 30;
/// Granularity of memory, bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Bytes of an index line.
pub(super) const LINE_BYTES: u64 = 64;
/// Entries of an index line.
pub(super) const LINE_ENTRIES: usize = 8;
/// Lines that a search visits, at most.
pub(super) const PROBE_LINES: u64 = 16;
/// log2 of a table's lines.
pub(super) const TABLE_SHIFTS: std::ops::RangeInclusive<u32> = 3..=26;
/// Greater references name records. 0, 1 and 2 are EMPTY, DELETED and MOVED.
pub(super) const REF_MOVED: u32 = 2;

/// The 4 bytes at an offset.
pub(super) fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// The 8 bytes at an offset.
pub(super) fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// A length as memory has it.
#[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits on the supported targets")]
pub(super) const fn in_memory(bytes: u64) -> usize {
    bytes as usize
}
