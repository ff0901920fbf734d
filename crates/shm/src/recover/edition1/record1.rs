//! A record of edition 1: its header, its key, and the name of its run.
//!
//! 1. Whatever the bytes say, nothing outside of the file is touched, and each check ends.
//! 2. A record that comes out of here lies whole in a segment, and its value in it or in a run.
//!
//! Any thread.

use super::arena1::Edition1;
use super::file1::Division;
use super::layout1::{
    COUNT_END, REF_MOVED, VALUE_BYTES_MAX, WINDOW_BYTES, eight, four, header as h, in_memory,
    record as r,
};
use crate::error::ArenaError;
use crate::format::hash::hash;

/// Bytes that are read of a record at first: header and key of most.
const PIECE_BYTES: usize = 256;

/// The fields of a record's header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head1 {
    units: u32,
    pub(super) value_len: u32,
    lsn: u64,
    pub(super) expiry_ms: u64,
    pub(super) hash: u32,
    pub(super) key_len: u16,
    pub(super) kind: u8,
    flags: u8,
}

/// Where a value lies if not in its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run1 {
    pub(super) slot: u64,
    pub(super) slots: u64,
    generation: u32,
}

/// A record that was found to be whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole1 {
    pub(super) offset: u64,
    pub(super) head: Head1,
    pub(super) run: Option<Run1>,
}

impl Head1 {
    fn from_bytes(bytes: &[u8]) -> Head1 {
        Head1 {
            units: four(bytes, r::UNITS),
            value_len: four(bytes, r::VALUE_LEN),
            lsn: eight(bytes, r::LSN),
            expiry_ms: eight(bytes, r::EXPIRY),
            hash: four(bytes, r::HASH),
            key_len: u16::from_le_bytes([bytes[r::KEY_LEN], bytes[r::KEY_LEN + 1]]),
            kind: bytes[r::KIND],
            flags: bytes[r::FLAGS],
        }
    }

    /// Bytes of the whole record, as it says.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.units) * r::UNIT
    }

    fn has_run(&self) -> bool {
        self.flags & r::FLAG_RUN != 0
    }

    /// Whether it says that its key is to be deleted.
    pub(super) fn is_tombstone(&self) -> bool {
        self.flags & r::FLAG_TOMBSTONE != 0
    }

    /// Offset of the value, or of the run's name, from the record's start.
    pub(super) fn value_at(&self) -> u64 {
        (r::KEY as u64 + u64::from(self.key_len)).next_multiple_of(8)
    }

    /// The contradiction in it, if it is to lie at `offset`.
    fn fault(&self, g: &Division, offset: u64) -> Option<&'static str> {
        let value = if self.has_run() { r::RUN_BYTES as u64 } else { self.value_len.into() };
        let expected = (self.value_at() + value).next_multiple_of(r::UNIT);
        if self.kind != r::KIND_STRING && self.kind != r::KIND_INTENT {
            Some("kind of a record")
        } else if self.flags & !(r::FLAG_RUN | r::FLAG_TOMBSTONE) != 0 {
            Some("flags of a record")
        } else if self.is_tombstone() && (self.has_run() || self.value_len != 0) {
            Some("value of a tombstone")
        } else if self.value_len > VALUE_BYTES_MAX {
            Some("value length of a record")
        } else if self.lsn >= COUNT_END {
            Some("LSN of a record")
        } else if self.bytes() != expected {
            Some("length of a record")
        } else if g.slot_of(offset) != g.slot_of(offset + expected - 1) {
            Some("end of a record (it crosses its segment's)")
        } else {
            None
        }
    }
}

/// The contradiction in the place of so many slots, if there is one.
pub(super) fn place_fault(g: &Division, slot: u64, slots: u64) -> Option<&'static str> {
    let (end, window) = (slot + slots, WINDOW_BYTES >> g.slot_shift);
    if slot < g.first_slot || end > g.slots {
        Some("place of a run")
    } else if slot / window != end.saturating_sub(1) / window {
        Some("place of a run (it crosses a line of 4 GiB)")
    } else {
        None
    }
}

impl Edition1 {
    /// The record at a reference that stands at `from`; its key goes to `key`. With a tag it must
    /// be a published one's.
    pub(super) fn record(
        &self,
        from: u64,
        reference: u32,
        tag: Option<u32>,
        key: &mut Vec<u8>,
    ) -> Result<Whole1, ArenaError> {
        let (g, file) = (&self.header.division, &self.file);
        let offset = u64::from(reference) * r::UNIT;
        let first = g.offset_of(g.first_slot);
        if offset < first || offset + r::KEY as u64 > self.end {
            let expected = format!("{first} to {}", self.end);
            return Err(file.damaged(from, "reference", expected, offset));
        }
        let mut piece = [0; PIECE_BYTES];
        let piece = &mut piece[..PIECE_BYTES.min(in_memory(self.end - offset))];
        file.read(offset, piece)?;
        let head = Head1::from_bytes(piece);
        if let Some(what) = head.fault(g, offset) {
            let found = format!("{head:?}");
            return Err(file.damaged(offset, what, "what edition 1 says", found));
        }
        let slot = g.slot_of(offset);
        let used = offset + head.bytes() - g.offset_of(slot);
        let tail = self.tail(slot);
        if used > tail || tail > g.slot_bytes() {
            let expected = format!("{used} to {}", g.slot_bytes());
            return Err(file.damaged(g.tail_at(slot), "tail of a segment", expected, tail));
        }
        self.in_use(slot)?;
        key.resize(head.key_len.into(), 0);
        match piece.get(r::KEY..r::KEY + key.len()) {
            Some(there) => key.copy_from_slice(there),
            None => file.read(offset + r::KEY as u64, key)?,
        }
        if let Some(tag) = tag {
            if head.kind != r::KIND_STRING || head.is_tombstone() {
                let (what, found) = ("kind of a published record", format!("{head:?}"));
                return Err(file.damaged(offset, what, "a string", found));
            }
            if head.hash != tag {
                return Err(file.damaged(offset, "hash of a record", tag, head.hash));
            }
            self.check_hash(offset, &head, key)?;
        }
        Ok(Whole1 { offset, head, run: self.run(offset, &head)? })
    }

    /// Whether the hash in a record is its key's.
    fn check_hash(&self, offset: u64, head: &Head1, key: &[u8]) -> Result<(), ArenaError> {
        let hash = hash(self.header.seed, key);
        if hash == head.hash {
            return Ok(());
        }
        Err(self.file.damaged(offset, "hash of a key", hash, head.hash))
    }

    fn run(&self, offset: u64, head: &Head1) -> Result<Option<Run1>, ArenaError> {
        if !head.has_run() {
            return Ok(None);
        }
        let (g, at) = (&self.header.division, offset + head.value_at());
        let mut name = [0; r::RUN_BYTES];
        self.file.read(at, &mut name)?;
        let run = Run1 {
            slot: four(&name, 0).into(),
            slots: four(&name, 4).into(),
            generation: four(&name, 8),
        };
        let is_long_enough = run.slots > 0 && run.slots == g.slots_for(head.value_len.into());
        let what = match is_long_enough {
            true => place_fault(g, run.slot, run.slots),
            false => Some("slots of a run"),
        };
        if let Some(what) = what {
            return Err(self.file.damaged(at, what, "what edition 1 says", format!("{run:?}")));
        }
        let end = g.offset_of(run.slot) + u64::from(head.value_len);
        if end > self.end {
            let expected = format!("at most {}", self.end);
            return Err(self.file.damaged(at, "end of a run", expected, end));
        }
        let generation = self.in_use(run.slot)?;
        if generation != run.generation {
            return Err(self.file.damaged(at, "generation of a run", generation, run.generation));
        }
        Ok(Some(run))
    }

    /// The record that a word of an intent's list names.
    pub(super) fn listed(
        &self,
        from: u64,
        reference: u32,
        key: &mut Vec<u8>,
    ) -> Result<Whole1, ArenaError> {
        if reference <= REF_MOVED {
            let what = "reference in an intent";
            return Err(self.file.damaged(from, what, "a record's", reference));
        }
        let whole = self.record(from, reference, None, key)?;
        if whole.head.kind != r::KIND_STRING {
            let (at, kind) = (whole.offset, whole.head.kind);
            return Err(self.file.damaged(at, "kind of a record", "a string", kind));
        }
        self.check_hash(whole.offset, &whole.head, key)?;
        Ok(whole)
    }

    /// The intent record that the header names.
    pub(super) fn intent(&self, reference: u32) -> Result<Whole1, ArenaError> {
        let record = self.record(h::INTENT as u64, reference, None, &mut Vec::new())?;
        let Head1 { kind, key_len, value_len, .. } = record.head;
        let is_list = kind == r::KIND_INTENT && key_len == 0;
        if is_list && value_len.is_multiple_of(4) && value_len > 0 {
            return Ok(record);
        }
        let found = format!("{:?}", record.head);
        Err(self.file.damaged(record.offset, "intent", "a list of references", found))
    }

    /// Where the value of a record lies.
    pub(super) fn value_at(&self, whole: &Whole1) -> u64 {
        match whole.run {
            Some(run) => self.header.division.offset_of(run.slot),
            None => whole.offset + whole.head.value_at(),
        }
    }

    /// Whether the record at a reference has this key.
    pub(super) fn key_is(&self, reference: u32, key: &[u8]) -> Result<bool, ArenaError> {
        let offset = u64::from(reference) * r::UNIT;
        let len = (r::KEY + key.len()) as u64;
        if offset + len > self.end {
            return Ok(false);
        }
        let mut start = [0; r::KEY];
        self.file.read(offset, &mut start)?;
        if usize::from(Head1::from_bytes(&start).key_len) != key.len() {
            return Ok(false);
        }
        let mut there = vec![0; key.len()];
        self.file.read(offset + r::KEY as u64, &mut there)?;
        Ok(there == key)
    }

    /// The generation of a slot in use, which doesn't wait to be reused.
    pub(super) fn in_use(&self, slot: u64) -> Result<u32, ArenaError> {
        // A slot behind the file has none, and isn't in use.
        let generation = self.generations.get(in_memory(slot)).copied().unwrap_or(u32::MAX);
        if generation.is_multiple_of(2) {
            return Ok(generation);
        }
        let (at, what) = (Division::generation_at(slot), "generation of a slot in use");
        Err(self.file.damaged(at, what, "an even number", generation))
    }

    /// Where the used part of a segment ends, bytes from its start.
    pub(super) fn tail(&self, slot: u64) -> u64 {
        self.tails.get(in_memory(slot)).map_or(0, |&units| u64::from(units) * r::UNIT)
    }
}
