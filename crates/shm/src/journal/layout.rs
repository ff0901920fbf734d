//! Where everything lies in a journal: the constants of `docs/formats/journal.md`, and of a change
//! as `docs/formats/log.md` has it.
//!
//! ```text
//! file    | header 4 KiB | ring: entry | entry | SKIP ...... | (round again)
//! entry   | 32 bytes | needs, 16 bytes each | change | change | zeros to 32
//! change  | 24 bytes | payload | zeros to 8
//! ```
//!
//! 1. All numbers are little-endian and naturally aligned.
//! 2. Nothing but this file knows an offset of the header, of an entry or of a change.
//!
//! Pure functions and constants: any thread may call them.

use crate::format::layout::{
    PAGE_BYTES, VALUE_BYTES_MAX, inline_record_bytes, record as r, round_up, run_record_bytes,
};

/// `NIGHJRN1`, stored last when a journal is created.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"NIGHJRN1");
/// The version of a journal whose entries name values that lie in runs.
pub(crate) const VERSION_NAMES: u32 = 1;
/// The version of one whose entries hold them, since the arenas end with the process.
pub(crate) const VERSION_HOLDS: u32 = 2;
/// Fewest bytes of a ring.
pub const JOURNAL_BYTES_MIN: u64 = 1 << 20;
/// Most bytes of a ring.
pub const JOURNAL_BYTES_MAX: u64 = 4 << 30;
/// Positions stay below.
pub(crate) const POSITION_END: u64 = 1 << 62;
/// An entry takes at most this part of the ring.
pub(crate) const ENTRY_SHARE: u64 = 4;
/// This part of the ring is for commits that do nothing but remove; at least
/// [`RESERVE_BYTES_MIN`].
pub(crate) const RESERVE_SHARE: u64 = 16;
/// Least reserve, bytes: a thousand removals of short keys.
pub(crate) const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// Offsets of the header's words, in bytes.
pub(crate) mod header {
    /// u64: the magic.
    pub(crate) const MAGIC: u64 = 0;
    /// u32: format version.
    pub(crate) const VERSION: u64 = 8;
    /// u32: the shard's number.
    pub(crate) const SHARD: u64 = 12;
    /// u64: bytes of the ring.
    pub(crate) const RING_BYTES: u64 = 24;
    /// 16 bytes: the log's id.
    pub(crate) const LOG_ID: u64 = 32;
    /// 16 bytes: id of the machine's boot.
    pub(crate) const BOOT_ID: u64 = 48;
    /// u64: generation of the chain that counts for the shard. The log's thread.
    pub(crate) const GENERATION: u64 = 64;
    /// u64: number of the newest log file whose BEGIN is on disk. The log's thread.
    pub(crate) const NEWEST_FILE: u64 = 72;
    /// u64: the highest generation that broke, or 0. The log's thread.
    pub(crate) const BROKEN: u64 = 96;
    /// u64: bytes ever published. The shard's thread.
    pub(crate) const TAIL: u64 = 128;
    /// u64: bytes ever given back. The shard's thread.
    pub(crate) const HEAD: u64 = 192;
    /// Bytes of the whole header.
    pub(crate) const BYTES: u64 = 4096;
}

/// Offsets within an entry, in bytes.
pub(crate) mod entry {
    /// u64: position of the entry.
    pub(crate) const POSITION: u64 = 0;
    /// u32: bytes of the whole entry.
    pub(crate) const BYTES: u64 = 8;
    /// u16: kind.
    pub(crate) const KIND: u64 = 16;
    /// u16: number of dependencies.
    pub(crate) const NEEDS: u64 = 18;
    /// u32: number of changes.
    pub(crate) const CHANGES: u64 = 20;
    /// u64: the owner's clock word.
    pub(crate) const CLOCK: u64 = 24;
    /// Bytes of an entry's header.
    pub(crate) const HEADER_BYTES: u64 = 32;
    /// Entries begin at multiples of this.
    pub(crate) const ALIGN: u64 = 32;
    /// Kind: a commit.
    pub(crate) const KIND_COMMIT: u16 = 1;
    /// Kind: nothing, up to the ring's end.
    pub(crate) const KIND_SKIP: u16 = 2;
    /// Bytes of a dependency: u32 stream, u32 zero, u64 LSN.
    pub(crate) const NEED_BYTES: u64 = 16;
    /// Most dependencies.
    pub(crate) const NEEDS_MOST: usize = 64;
}

/// Offsets within a change, in bytes.
pub(crate) mod change {
    /// u32: bytes of the payload.
    pub(crate) const PAYLOAD_BYTES: u64 = 0;
    /// u32: stream.
    pub(crate) const STREAM: u64 = 4;
    /// u64: LSN.
    pub(crate) const LSN: u64 = 8;
    /// u8: kind.
    pub(crate) const KIND: u64 = 16;
    /// u8: flags.
    pub(crate) const FLAGS: u64 = 17;
    /// Bytes of a change's header.
    pub(crate) const HEADER_BYTES: u64 = 24;
    /// Changes begin at multiples of this.
    pub(crate) const ALIGN: u64 = 8;
    /// Flag: the next change is of the same commit.
    pub(crate) const FLAG_MORE: u8 = 1;
    /// Bytes of a BASED payload before the record: u64 base LSN, u32 base length, u16 bytes of the
    /// source's key, u16 whether there is one.
    pub(crate) const BASE_BYTES: u64 = 16;
    /// Most bytes of a payload.
    pub(crate) const PAYLOAD_BYTES_MOST: u64 = 513 << 20;
}

const _: () = {
    use header as h;
    assert!(h::MAGIC == 0 && h::VERSION == 8 && h::SHARD == 12 && h::RING_BYTES == 24);
    assert!(h::LOG_ID == 32 && h::BOOT_ID == 48 && h::GENERATION == 64 && h::NEWEST_FILE == 72);
    assert!(h::BROKEN == 96 && h::TAIL == 128 && h::HEAD == 192 && h::BYTES == PAGE_BYTES);
    // Each side's words lie on lines of their own.
    assert!(h::GENERATION / 64 == h::BROKEN / 64 && h::BROKEN / 64 != h::TAIL / 64);
    assert!(h::TAIL / 64 != h::HEAD / 64 && h::LOG_ID + 16 == h::BOOT_ID);
    use entry as e;
    assert!(e::POSITION == 0 && e::BYTES == 8 && e::KIND == 16 && e::NEEDS == 18);
    assert!(e::CHANGES == 20 && e::CLOCK == 24 && e::CLOCK + 8 == e::HEADER_BYTES);
    assert!(
        e::HEADER_BYTES == e::ALIGN && e::NEED_BYTES == 16 && h::BYTES.is_multiple_of(e::ALIGN)
    );
    use change as c;
    assert!(c::PAYLOAD_BYTES == 0 && c::STREAM == 4 && c::LSN == 8 && c::KIND == 16);
    assert!(c::FLAGS == 17 && c::HEADER_BYTES == 24 && c::HEADER_BYTES.is_multiple_of(c::ALIGN));
    // Changes lie at multiples of 8, whatever is before them; a record's length is one.
    assert!(e::HEADER_BYTES.is_multiple_of(c::ALIGN) && e::NEED_BYTES.is_multiple_of(c::ALIGN));
    assert!(r::UNIT.is_multiple_of(c::ALIGN) && c::BASE_BYTES.is_multiple_of(c::ALIGN));
    // The longest change: key, source's key, and a value.
    let keys = 2 * (u16::MAX as u64 + 1) + c::BASE_BYTES + r::HEADER_BYTES + r::RUN_BYTES;
    assert!(VALUE_BYTES_MAX as u64 + keys <= c::PAYLOAD_BYTES_MOST);
    assert!(JOURNAL_BYTES_MIN.is_power_of_two() && JOURNAL_BYTES_MAX.is_power_of_two());
    // The reserve and twice the largest entry fit.
    assert!(JOURNAL_BYTES_MIN / RESERVE_SHARE >= RESERVE_BYTES_MIN);
    assert!(2 * (JOURNAL_BYTES_MIN / ENTRY_SHARE) + RESERVE_BYTES_MIN <= JOURNAL_BYTES_MIN);
    assert!(JOURNAL_BYTES_MAX / ENTRY_SHARE <= u32::MAX as u64);
};

/// What a change does, as a journal and a log have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A key gets a record, with its whole value.
    Put,
    /// A key gets a record whose value stands on an earlier version of a key.
    Based,
    /// A key goes.
    Gone,
    /// All keys go.
    Clear,
}

impl Effect {
    /// Its byte.
    #[must_use]
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Effect::Put => 1,
            Effect::Based => 2,
            Effect::Gone => 3,
            Effect::Clear => 4,
        }
    }

    /// The effect of a byte.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<Effect> {
        match byte {
            1 => Some(Effect::Put),
            2 => Some(Effect::Based),
            3 => Some(Effect::Gone),
            4 => Some(Effect::Clear),
            _ => None,
        }
    }
}

/// Bytes of a change with such a payload, as it lies in an entry.
#[inline]
pub(crate) const fn change_bytes(payload: u64) -> u64 {
    change::HEADER_BYTES + round_up(payload, change::ALIGN)
}

/// The reserve of a ring of so many bytes.
pub(crate) const fn reserve_bytes(ring_bytes: u64) -> u64 {
    let share = ring_bytes / RESERVE_SHARE;
    if share > RESERVE_BYTES_MIN { share } else { RESERVE_BYTES_MIN }
}

/// Adds up the bytes that a commit takes in a journal, before it is staged. Where it can't know
/// yet, it says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitSize {
    bytes: u64,
    named_bytes: u64,
    holds_values: bool,
}

impl CommitSize {
    /// A commit with so many dependencies, and no change yet. `holds_values`: the journal has the
    /// bytes of values in runs.
    #[must_use]
    pub const fn new(needs: usize, holds_values: bool) -> CommitSize {
        let bytes = entry::HEADER_BYTES + needs as u64 * entry::NEED_BYTES;
        CommitSize { bytes, named_bytes: 0, holds_values }
    }

    /// A change with such a payload, and a value in a run of which so many bytes are new.
    const fn in_run(&mut self, payload: u64, value_bytes: u64) {
        let (held, named) = if self.holds_values { (value_bytes, 0) } else { (0, value_bytes) };
        self.bytes += change_bytes(payload + held);
        self.named_bytes += named;
    }

    /// A key gets a value, which lies in its record or (`in_run`) in a run of its own:
    /// [`crate::Writer::takes_run`].
    pub const fn put(&mut self, key_len: usize, value_len: usize, in_run: bool) {
        if in_run {
            return self.in_run(run_record_bytes(key_len), value_len as u64);
        }
        self.bytes += change_bytes(inline_record_bytes(key_len, value_len));
    }

    /// A key gets a value in a run that is made from another version's, and so many bytes.
    pub const fn based(&mut self, key_len: usize, source_len: usize, added: usize) {
        let payload = change::BASE_BYTES + run_record_bytes(key_len) + source_len as u64;
        self.in_run(payload, added as u64);
    }

    /// A key goes.
    pub const fn gone(&mut self, key_len: usize) {
        self.bytes += change_bytes(inline_record_bytes(key_len, 0));
    }

    /// All keys go.
    pub const fn clear(&mut self) {
        self.bytes += change_bytes(0);
    }

    /// Bytes of the whole entry.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        round_up(self.bytes, entry::ALIGN)
    }

    /// Bytes of the values that it names: the log will have them, the journal doesn't.
    #[must_use]
    pub const fn named_bytes(&self) -> u64 {
        self.named_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_format() {
        // journal.md: 32 bytes, 16 for each dependency; log.md: 24 bytes before each payload.
        let mut size = CommitSize::new(0, false);
        assert_eq!(size.bytes(), 32);
        size.clear();
        assert_eq!(size.bytes(), 64);
        size.put(3, 100, false);
        assert_eq!(size.bytes(), 224, "32 + 24, and 24 + 144");
        let mut size = CommitSize::new(64, false);
        size.put(3, 1 << 30, true);
        assert_eq!(size.named_bytes(), 1 << 30);
        assert_eq!(size.bytes(), round_up(32 + 1024 + 24 + 64, 32));
        let mut held = CommitSize::new(0, true);
        held.put(3, 1000, true);
        assert_eq!(held.named_bytes(), 0, "a journal that holds values names none");
        assert_eq!(held.bytes(), round_up(32 + 24 + 64 + 1000, 32));
        let mut size = CommitSize::new(1, false);
        size.based(8, 3, 5);
        assert_eq!(size.named_bytes(), 5);
        size.gone(8);
        assert_eq!(size.bytes(), round_up(48 + 24 + 16 + 64 + 8 + 24 + 48, 32));
        assert_eq!(reserve_bytes(64 << 20), 4 << 20);
        assert_eq!(reserve_bytes(1 << 20), 64 << 10);
    }

    #[test]
    fn effects_have_the_bytes_of_the_log() {
        let all = [Effect::Put, Effect::Based, Effect::Gone, Effect::Clear];
        assert_eq!(all.map(Effect::byte), [1, 2, 3, 4]);
        assert!(all.iter().all(|&effect| Effect::of_byte(effect.byte()) == Some(effect)));
        assert_eq!((Effect::of_byte(0), Effect::of_byte(5)), (None, None));
    }
}
