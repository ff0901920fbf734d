//! A tiny arena by hand after docs/formats/arena.md. It knows nothing of nigh-shm, so it holds the
//! prelude against the document.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::sync::Arc;

use nigh_js::Mapping;
use xxhash_rust::xxh32::xxh32;

const SLOT_SHIFT: u32 = 16;
const SLOT: usize = 1 << SLOT_SHIFT;
const SLOTS: usize = 1024;
pub(crate) const SEED: u32 = 0x1234_5678;
const LINE: usize = 64;
const MOVED: u32 = 2;

struct Memory {
    base: *mut u8,
}
// SAFETY: tests use it from one thread at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}
impl Memory {
    fn layout() -> Layout {
        Layout::from_size_align(SLOTS * SLOT, 4096).unwrap()
    }
}
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.base, Memory::layout()) };
    }
}

/// The arena: slots are taken one after the other and never freed.
pub(crate) struct Arena {
    memory: Arc<Memory>,
    next_slot: usize,
    end: usize,
    segment_end: usize,
    lsn: u64,
    table: (usize, u32),
    old: Option<(usize, u32)>,
}

impl Arena {
    pub(crate) fn new() -> Arena {
        // SAFETY: the layout has a size.
        let base = unsafe { alloc_zeroed(Memory::layout()) };
        let memory = Arc::new(Memory { base });
        let mut arena = Arena {
            memory,
            next_slot: 1,
            end: 0,
            segment_end: 0,
            lsn: 0,
            table: (0, 0),
            old: None,
        };
        arena.w32(12, SLOT_SHIFT);
        arena.w32(48, SEED);
        arena.w32(32, SLOTS as u32);
        arena.table = arena.new_table(3);
        arena.publish_tables();
        arena
    }

    pub(crate) fn mapping(&self) -> Mapping {
        let keep: Arc<dyn Any + Send + Sync> = self.memory.clone();
        // SAFETY: the memory lives as long as `keep`, and is an arena.
        unsafe { Mapping::new(self.memory.base, SLOTS * SLOT, keep) }
    }

    fn w32(&self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4) && at + 4 <= SLOTS * SLOT);
        // SAFETY: inside, as asserted.
        let word = unsafe { self.memory.base.add(at) }.cast::<u32>();
        // SAFETY: aligned; JavaScript reads whole words only.
        unsafe { word.write_volatile(value) };
    }
    fn r32(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4) && at + 4 <= SLOTS * SLOT);
        // SAFETY: inside, as asserted.
        let word = unsafe { self.memory.base.add(at) }.cast::<u32>();
        // SAFETY: aligned.
        unsafe { word.read_volatile() }
    }
    fn put_bytes(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= SLOTS * SLOT);
        // SAFETY: inside, as asserted.
        let to = unsafe { self.memory.base.add(at) };
        // SAFETY: no reader knows these bytes yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= SLOTS * SLOT);
        // SAFETY: inside, as asserted.
        let from = unsafe { self.memory.base.add(at) };
        // SAFETY: published bytes never change.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    fn take_slots(&mut self, bytes: usize) -> usize {
        let first = self.next_slot;
        self.next_slot += bytes.div_ceil(SLOT).max(1);
        assert!(self.next_slot <= SLOTS, "the test arena is full");
        first
    }

    fn new_table(&mut self, log2: u32) -> (usize, u32) {
        (self.take_slots(LINE << log2), log2)
    }

    fn word((slot, log2): (usize, u32)) -> u32 {
        (slot as u32) << 6 | log2
    }

    fn publish_tables(&mut self) {
        self.w32(260, Arena::word(self.table));
        self.w32(264, self.old.map_or(0, Arena::word));
        // Odd while the index grows: the next number of that kind.
        let growing = u32::from(self.old.is_some());
        let next = self.r32(256) + 1;
        self.w32(256, next + u32::from(next % 2 != growing));
    }

    /// Begins to publish several keys, as a writer does: what is put or deleted until the end is
    /// one commit.
    pub(crate) fn begin_commit(&mut self) {
        self.w32(320, self.lsn as u32 + 1000);
        self.w32(268, 1000); // an intent
    }

    pub(crate) fn end_commit(&mut self) {
        self.w32(328, self.lsn as u32);
        self.w32(320, self.lsn as u32);
        self.w32(268, 0);
    }

    /// Stands still behind the first store of a change of one key, until `end_commit`.
    pub(crate) fn begin_change(&self) {
        self.w32(320, self.lsn as u32 + 1);
    }

    /// The time by which keys are over that the owner has found to be.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.w32(336, now_ms as u32);
        self.w32(340, (now_ms >> 32) as u32);
    }

    fn is_in_commit(&self) -> bool {
        self.r32(268) != 0
    }

    /// Around the stores of a change: what is begun, and what is committed.
    fn change(&mut self, stores: impl FnOnce(&mut Arena)) {
        let is_single = !self.is_in_commit();
        if is_single {
            self.w32(320, self.lsn as u32);
        }
        stores(self);
        if is_single {
            self.w32(328, self.lsn as u32);
        }
    }

    pub(crate) fn set_seed(&self, seed: u32) {
        self.w32(48, seed);
    }

    pub(crate) fn hash(key: &[u8]) -> u32 {
        xxh32(key, SEED)
    }

    /// Appends a record; its reference.
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> u32 {
        let key_room = key.len().next_multiple_of(8);
        let run = value.len() > SLOT / 2;
        let body = if run { 16 } else { value.len() };
        let length = (32 + key_room + body).next_multiple_of(16);
        if self.end + length > self.segment_end {
            let slot = self.take_slots(length);
            self.end = slot * SLOT;
            self.segment_end = self.next_slot * SLOT;
        }
        let at = self.end;
        self.end += length;
        self.lsn += 1;
        self.w32(at, value.len() as u32);
        self.w32(at + 8, self.lsn as u32);
        self.w32(at + 16, expiry_ms as u32);
        self.w32(at + 20, (expiry_ms >> 32) as u32);
        self.w32(at + 28, key.len() as u32 | 1 << 16 | u32::from(run) << 24);
        self.put_bytes(at + 32, key);
        let value_at = at + 32 + key_room;
        if run {
            let slot = self.take_slots(value.len());
            self.w32(value_at, slot as u32);
            self.w32(value_at + 4, value.len().div_ceil(SLOT) as u32);
            self.put_bytes(slot * SLOT, value);
        } else {
            self.put_bytes(value_at, value);
        }
        (at / 16) as u32
    }

    fn key_at(&self, reference: u32) -> &[u8] {
        let at = reference as usize * 16;
        self.bytes(at + 32, (self.r32(at + 28) & 0xffff) as usize)
    }

    /// Value and expiry of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<(Vec<u8>, u64)> {
        let entry = self.find(key)?;
        let at = self.r32(entry + 4) as usize * 16;
        let expiry = u64::from(self.r32(at + 16)) | u64::from(self.r32(at + 20)) << 32;
        let meta = self.r32(at + 28);
        let value = at + 32 + ((meta & 0xffff) as usize).next_multiple_of(8);
        let value = if meta >> 24 & 1 == 1 { self.r32(value) as usize * SLOT } else { value };
        Some((self.bytes(value, self.r32(at) as usize).to_vec(), expiry))
    }

    /// Zeros the bytes of a value in a run where they lie, as giving their memory back does.
    pub(crate) fn zero_run(&self, key: &[u8]) {
        let at = self.r32(self.find(key).unwrap() + 4) as usize * 16;
        let meta = self.r32(at + 28);
        assert_eq!(meta >> 24 & 1, 1, "it lies in a run");
        let value = at + 32 + ((meta & 0xffff) as usize).next_multiple_of(8);
        let zeros = vec![0; self.r32(at) as usize];
        self.put_bytes(self.r32(value) as usize * SLOT, &zeros);
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key.as_bytes()).map(|(value, _)| String::from_utf8(value).unwrap())
    }

    fn entries(&self, (slot, log2): (usize, u32)) -> impl Iterator<Item = usize> + use<> {
        let base = slot * SLOT;
        (0..8usize << log2).map(move |entry| base + entry * 8)
    }

    fn probe(&self, (slot, log2): (usize, u32), key: &[u8]) -> Option<usize> {
        let hash = Arena::hash(key);
        let mask = (1 << log2) - 1;
        let mut line = hash as usize & mask;
        for _ in 0..16 {
            let start = slot * SLOT + line * LINE;
            let mut open = false;
            for entry in (start..start + LINE).step_by(8) {
                let reference = self.r32(entry + 4);
                open |= reference == 0;
                if reference > MOVED && self.r32(entry) == hash && self.key_at(reference) == key {
                    return Some(entry);
                }
            }
            if open {
                return None;
            }
            line = (line + 1) & mask;
        }
        None
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        self.old.and_then(|old| self.probe(old, key)).or_else(|| self.probe(self.table, key))
    }

    fn insert(&mut self, hash: u32, reference: u32) -> bool {
        let (slot, log2) = self.table;
        let mask = (1 << log2) - 1;
        let mut line = hash as usize & mask;
        for _ in 0..16 {
            let start = slot * SLOT + line * LINE;
            for entry in (start..start + LINE).step_by(8) {
                if self.r32(entry + 4) <= 1 {
                    self.w32(entry, hash);
                    self.w32(entry + 4, reference);
                    return true;
                }
            }
            line = (line + 1) & mask;
        }
        false
    }

    pub(crate) fn publish(&mut self, key: &[u8], reference: u32) {
        if let Some(old) = self.old
            && let Some(entry) = self.probe(old, key)
        {
            self.move_entry(entry);
        }
        if let Some(entry) = self.find(key) {
            self.w32(reference as usize * 16 + 24, self.r32(entry + 4));
            self.w32(entry + 4, reference);
            return;
        }
        while !self.insert(Arena::hash(key), reference) {
            self.finish_growth();
            self.grow();
            self.finish_growth();
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) {
        let reference = self.append(key, value, expiry_ms);
        self.change(|arena| arena.publish(key, reference));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.find(key) else { return false };
        let start = entry / LINE * LINE;
        let open = (start..start + LINE).step_by(8).any(|at| self.r32(at + 4) == 0);
        self.lsn += 1;
        self.change(|arena| {
            let stamp = 4096 + (Arena::hash(key) as usize & 1023) * 8;
            arena.w32(stamp, arena.lsn as u32);
            arena.w32(entry, 0);
            arena.w32(entry + 4, u32::from(!open));
        });
        true
    }

    /// Begins growth: a table of twice the size; entries stay in the old one.
    pub(crate) fn grow(&mut self) {
        assert!(self.old.is_none());
        let bigger = self.new_table(self.table.1 + 1);
        self.old = Some(self.table);
        self.table = bigger;
        self.publish_tables();
    }

    fn move_entry(&mut self, entry: usize) {
        let (hash, reference) = (self.r32(entry), self.r32(entry + 4));
        assert!(self.insert(hash, reference));
        self.w32(entry + 4, MOVED);
    }

    /// Moves up to `count` entries; true when none is left.
    pub(crate) fn move_some(&mut self, count: usize) -> bool {
        let Some(old) = self.old else { return true };
        let left: Vec<usize> =
            self.entries(old).filter(|&entry| self.r32(entry + 4) > MOVED).take(count).collect();
        left.iter().for_each(|&entry| self.move_entry(entry));
        left.len() < count
    }

    pub(crate) fn finish_growth(&mut self) {
        if self.old.is_some() {
            while !self.move_some(1000) {}
            self.old = None;
            self.publish_tables();
        }
    }

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let tables = [Some(self.table), self.old];
        let all = tables.into_iter().flatten().flat_map(|table| self.entries(table));
        all.map(|entry| self.r32(entry + 4))
            .filter(|&reference| reference > MOVED)
            .map(|reference| self.key_at(reference).to_vec())
            .collect()
    }
}
