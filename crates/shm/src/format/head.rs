//! The header of a record, and the name that a record has for a value that lies in a run.
//!
//! Copied out word by word; what they say is compared with the arena's bounds by `fault`.
//! Pure functions over shared words: any thread.

use crate::format::layout::{
    Geometry, LSN_END, VALUE_BYTES_MAX, inline_record_bytes, record as r, round_up,
    run_record_bytes,
};
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering;

/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = 32;

/// The fields of a record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) value_len: u32,
    pub(crate) checksum: u32,
    pub(crate) lsn: u64,
    pub(crate) expiry_ms: u64,
    /// Reference of the record that this one replaced when it was published, or 0.
    pub(crate) prev: u32,
    pub(crate) key_len: u16,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
}

/// Where the value of a record lies if not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunName {
    pub(crate) slot: u32,
    pub(crate) slots: u32,
    pub(crate) generation: u32,
    /// Sum of the value.
    pub(crate) checksum: u32,
}

impl Head {
    /// Of no record.
    pub(crate) const EMPTY: Head = Head {
        value_len: 0,
        checksum: 0,
        lsn: 0,
        expiry_ms: 0,
        prev: 0,
        key_len: 0,
        kind: 0,
        flags: 0,
    };

    #[inline]
    pub(crate) fn to_words(self) -> [u64; 4] {
        [
            u64::from(self.value_len) | u64::from(self.checksum) << 32,
            self.lsn,
            self.expiry_ms,
            u64::from(self.prev)
                | u64::from(self.key_len) << 32
                | u64::from(self.kind) << 48
                | u64::from(self.flags) << 56,
        ]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "parts of words")]
    pub(crate) fn from_words(words: [u64; 4]) -> Head {
        let [lengths, lsn, expiry_ms, rest] = words;
        Head {
            value_len: lengths as u32,
            checksum: (lengths >> 32) as u32,
            lsn,
            expiry_ms,
            prev: rest as u32,
            key_len: (rest >> 32) as u16,
            kind: (rest >> 48) as u8,
            flags: (rest >> 56) as u8,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.to_words()) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Head {
        let word = |i: usize| u64::from_le_bytes(bytes.as_chunks().0[i]);
        Head::from_words(std::array::from_fn(word))
    }

    /// Copies a header out.
    #[inline]
    pub(crate) fn load<W: SharedWords>(words: &W, offset: u64) -> Head {
        let word = |at| words.load64(offset + at, Ordering::Relaxed);
        Head::from_words([word(0), word(8), word(16), word(24)])
    }

    /// Bytes of the whole record.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        if self.has_run() {
            run_record_bytes(self.key_len.into())
        } else {
            inline_record_bytes(self.key_len.into(), self.value_len as usize)
        }
    }

    /// Whether its value lies in a run.
    pub(crate) fn has_run(&self) -> bool {
        self.flags & r::FLAG_RUN != 0
    }

    /// Whether it says that its key is to be deleted.
    pub(crate) fn is_tombstone(&self) -> bool {
        self.flags & r::FLAG_TOMBSTONE != 0
    }

    /// Offset of the value, or of the run's name, from the record's start.
    pub(crate) fn value_at(&self) -> u64 {
        r::KEY + round_up(u64::from(self.key_len), 8)
    }

    /// The contradiction in it, if it is to lie at `offset`; `None` if there is none.
    pub(crate) fn fault(&self, g: &Geometry, offset: u64) -> Option<&'static str> {
        let bytes = self.bytes();
        if self.kind != r::KIND_STRING && self.kind != r::KIND_INTENT {
            Some("kind of a record")
        } else if self.flags & !(r::FLAG_RUN | r::FLAG_TOMBSTONE | r::FLAG_BASED) != 0 {
            Some("flags of a record")
        } else if self.is_tombstone() && (self.has_run() || self.value_len != 0) {
            Some("value of a tombstone")
        } else if self.value_len as usize > VALUE_BYTES_MAX {
            Some("value length of a record")
        } else if self.lsn >= LSN_END {
            Some("LSN of a record")
        } else if g.slot_of(offset) != g.slot_of(offset + bytes - 1) {
            Some("end of a record (it crosses its segment's)")
        } else if offset + bytes > g.address_bytes {
            Some("end of a record (it lies behind the arena's)")
        } else {
            None
        }
    }
}

impl RunName {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[0..4].copy_from_slice(&self.slot.to_le_bytes());
        b[4..8].copy_from_slice(&self.slots.to_le_bytes());
        b[8..12].copy_from_slice(&self.generation.to_le_bytes());
        b[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        b
    }

    pub(crate) fn from_bytes(b: &[u8; 16]) -> RunName {
        let four = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
        RunName { slot: four(0), slots: four(4), generation: four(8), checksum: four(12) }
    }

    /// Copies out the name that stands in place of the value.
    pub(crate) fn load<W: SharedWords>(words: &W, offset: u64, head: &Head) -> RunName {
        let at = offset + head.value_at();
        let word = |i: u64| words.load32(at + i, Ordering::Relaxed);
        RunName { slot: word(0), slots: word(4), generation: word(8), checksum: word(12) }
    }

    /// The contradiction in it for a value of so many bytes, if there is one.
    pub(crate) fn fault(&self, g: &Geometry, value_len: u32) -> Option<&'static str> {
        if self.slots == 0 || self.slots < g.slots_for(u64::from(value_len)) {
            return Some("slots of a run");
        }
        self.place_fault(g)
    }

    /// The contradiction in the place of so many slots, if there is one.
    pub(crate) fn place_fault(&self, g: &Geometry) -> Option<&'static str> {
        let end = u64::from(self.slot) + u64::from(self.slots);
        let window = u64::from(g.slots_per_window());
        if self.slot < g.first_slot || end > u64::from(g.slots) {
            Some("place of a run")
        } else if u64::from(self.slot) / window != end.saturating_sub(1) / window {
            Some("place of a run (it crosses a line of 4 GiB)")
        } else {
            None
        }
    }
}
