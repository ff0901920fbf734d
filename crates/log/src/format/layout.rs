//! Sizes and offsets of docs/formats/log.md.

/// Version of `meta` and heads.
pub(crate) const VERSION: u32 = 1;
/// Synced groups of frames, and heads, end on such blocks: bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Frames begin and end on such sectors: bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Least size of a file: bytes.
pub(crate) const FILE_BYTES_LEAST: u64 = 4 * BLOCK_BYTES;
/// Largest size of a file: bytes. A head that says more is damaged.
pub(crate) const FILE_BYTES_MOST: u64 = 1 << 37;
/// A frame is closed when its body reaches this: bytes.
pub(crate) const FRAME_BYTES: usize = 1 << 20;
/// Most bytes of a change's payload: a value of 512 MiB, its key and header.
pub(crate) const PAYLOAD_BYTES_MOST: u32 = 513 << 20;
/// LSNs are below this.
pub(crate) const LSN_END: u64 = 1 << 53;
/// Tenants' numbers are below this.
pub(crate) const TENANT_END: u32 = 1 << 24;
/// Most bytes of a tenant's name.
pub(crate) const TENANT_NAME_BYTES_MOST: usize = 128;

/// The head of a file.
pub(crate) mod head {
    /// Its magic.
    pub(crate) const MAGIC: &[u8; 8] = b"NIGHLOG1";
    /// Offset of the version.
    pub(crate) const VERSION: usize = 8;
    /// Offset of the sum.
    pub(crate) const SUM: usize = 12;
    /// Offset of the log id; the sum covers from here on.
    pub(crate) const LOG_ID: usize = 16;
    /// Offset of the generation.
    pub(crate) const GENERATION: usize = 32;
    /// Offset of the shard.
    pub(crate) const SHARD: usize = 40;
    /// Offset of the number of shards.
    pub(crate) const SHARDS: usize = 44;
    /// Offset of the file's number.
    pub(crate) const FILE: usize = 48;
    /// Offset of the file's bytes.
    pub(crate) const FILE_BYTES: usize = 56;
    /// Offset of the salt.
    pub(crate) const SALT: usize = 64;
    /// Bytes: one block.
    pub(crate) const BYTES: usize = 4096;
}

/// The header of a frame.
pub(crate) mod frame {
    /// Its magic.
    pub(crate) const MAGIC: &[u8; 4] = b"NFR1";
    /// Offset of its own sum.
    pub(crate) const HEADER_SUM: usize = 4;
    /// Offset of the body's sum; the header's covers from here on.
    pub(crate) const BODY_SUM: usize = 8;
    /// Offset of the header sum of the frame before.
    pub(crate) const BEFORE_SUM: usize = 12;
    /// Offset of the file's number.
    pub(crate) const FILE: usize = 16;
    /// Offset of the frame's position.
    pub(crate) const POSITION: usize = 24;
    /// Offset of the frame's length.
    pub(crate) const LENGTH: usize = 32;
    /// Offset of the body's bytes.
    pub(crate) const BODY_BYTES: usize = 40;
    /// Offset of the watermark's file.
    pub(crate) const MARK_FILE: usize = 48;
    /// Offset of the watermark's position.
    pub(crate) const MARK_POSITION: usize = 56;
    /// Offset of the oldest file that counts.
    pub(crate) const OLDEST: usize = 64;
    /// Offset of the Unix time, ms.
    pub(crate) const UNIX_MS: usize = 72;
    /// Offset of the latest clock word, ms.
    pub(crate) const CLOCK_MS: usize = 80;
    /// Offset of the kind.
    pub(crate) const KIND: usize = 88;
    /// Offset of the number of rows of the stream table.
    pub(crate) const ROWS: usize = 92;
    /// Offset of the number of changes.
    pub(crate) const CHANGES: usize = 96;
    /// Offset of what must be zero.
    pub(crate) const REST: usize = 100;
    /// Bytes of the header.
    pub(crate) const BYTES: usize = 128;
    /// Bytes of a row of the stream table.
    pub(crate) const ROW_BYTES: usize = 24;
}

/// The header of a change.
pub(crate) mod change {
    /// Offset of the payload's bytes.
    pub(crate) const PAYLOAD_BYTES: usize = 0;
    /// Offset of the stream.
    pub(crate) const STREAM: usize = 4;
    /// Offset of the LSN.
    pub(crate) const LSN: usize = 8;
    /// Offset of the kind.
    pub(crate) const KIND: usize = 16;
    /// Offset of the flags.
    pub(crate) const FLAGS: usize = 17;
    /// The next change is of the same commit.
    pub(crate) const FLAG_MORE: u8 = 1;
    /// Appended again, not fresh.
    pub(crate) const FLAG_AGAIN: u8 = 2;
    /// Bytes of the header.
    pub(crate) const BYTES: usize = 24;
    /// Changes begin at multiples of this.
    pub(crate) const ALIGN: usize = 8;
}

const _: () = {
    assert!(head::SALT + 8 == 72 && head::SALT + 8 <= head::BYTES);
    assert!(head::BYTES as u64 == BLOCK_BYTES && BLOCK_BYTES.is_multiple_of(SECTOR_BYTES));
    assert!(frame::CHANGES + 4 == frame::REST && frame::REST + 28 == frame::BYTES);
    assert!(frame::KIND + 4 == frame::ROWS && frame::BYTES.is_multiple_of(change::ALIGN));
    assert!(frame::ROW_BYTES.is_multiple_of(change::ALIGN));
    assert!(change::FLAGS + 7 == change::BYTES && change::BYTES.is_multiple_of(change::ALIGN));
};

/// A little-endian word at an offset; 0 behind the end.
#[must_use]
pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// A little-endian word at an offset; 0 behind the end.
#[must_use]
pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Stores bytes at an offset that is within.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let into = bytes.get_mut(at..at + value.len()).expect("an offset of the format");
    into.copy_from_slice(value);
}
