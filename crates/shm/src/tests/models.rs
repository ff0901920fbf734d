//! Models: loom runs the shipped functions over its own words, in every order that the memory model
//! allows (up to a number of preemptions).
//!
//! Only the words that threads share in a story are loom's ("hot"); all others are constants of it,
//! which keeps the number of orders small. Words that the arena accesses with 4 bytes are 4 bytes
//! here too.
//!
//! The writer's view answers its loads of words that only it stores from a copy of its own: loom
//! takes a thread's load for the last access of a word, and would not try a later store of that
//! thread before another thread's load. A writer's view may die: then it stores nothing more.

mod adoption;
mod foreign;
mod index;
mod lapse;
mod moments;
mod reclaim;

use crate::format::head::Head;
use crate::format::layout::{header, record as r};
use crate::format::record::{self};
use crate::format::words::SharedWords;
use crate::index::Table;
use lapse::Lapse;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Mutex;

const SHIFT: u32 = 17;
/// Table words: slot 1 with 8 lines, slot 2 with 16.
const SMALL: Table = Table { slot: 1, offset: 1 << SHIFT, lines: 8 };
const LARGE: Table = Table { slot: 2, offset: 2 << SHIFT, lines: 16 };
/// Records lie in slot 3, this far apart.
const RECORD_BYTES: u64 = 64;

enum Cell {
    Wide(AtomicU64),
    Narrow(AtomicU32, AtomicU32),
}

/// Hot words are loom's, the others are constants.
#[derive(Clone)]
struct LoomWords {
    hot: Arc<BTreeMap<u64, Cell>>,
    cold: Arc<BTreeMap<u64, u64>>,
    own: Option<std::sync::Arc<Own>>,
    lapse: Lapse,
}

/// A writer's own part of its view.
struct Own {
    /// Its copy of what only it stores.
    words: Mutex<BTreeMap<u64, u64>>,
    /// Stores until it dies.
    stores_left: Mutex<u64>,
}

impl LoomWords {
    fn own(&self, offset: u64) -> Option<u64> {
        self.own.as_ref()?.words.lock().unwrap().get(&(offset & !7)).copied()
    }

    /// Keeps a copy of what is stored; false if the writer is dead.
    fn keep(&self, offset: u64, mask: u64, value: u64) -> bool {
        let Some(own) = &self.own else { return true };
        let mut left = own.stores_left.lock().unwrap();
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if let Some(word) = own.words.lock().unwrap().get_mut(&(offset & !7)) {
            *word = *word & !mask | value & mask;
        }
        true
    }

    /// A writer's view that dies behind so many stores from now.
    fn dying_after(self, stores: u64) -> LoomWords {
        *self.own.as_ref().expect("a writer's view").stores_left.lock().unwrap() = stores;
        self
    }

    /// A view that leaves something out.
    fn with(self, lapse: Lapse) -> LoomWords {
        LoomWords { lapse, ..self }
    }

    /// The view of the writer that comes next.
    fn successor(&self) -> LoomWords {
        self.clone().dying_after(u64::MAX)
    }

    fn cell(&self, offset: u64) -> Option<&Cell> {
        self.hot.get(&(offset & !7))
    }

    fn cold(&self, offset: u64) -> u64 {
        self.cold.get(&(offset & !7)).copied().unwrap_or(0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "one half is wanted")]
    fn plain_load32(&self, offset: u64, order: Ordering) -> u32 {
        let high = offset & 4 != 0;
        if let Some(own) = self.own(offset) {
            return (own >> (8 * (offset & 4))) as u32;
        }
        match self.cell(offset) {
            Some(Cell::Narrow(low, _)) if !high => low.load(order),
            Some(Cell::Narrow(_, high)) => high.load(order),
            Some(Cell::Wide(wide)) => (wide.load(order) >> (8 * (offset & 4))) as u32,
            None => (self.cold(offset) >> (8 * (offset & 4))) as u32,
        }
    }
    fn plain_load64(&self, offset: u64, order: Ordering) -> u64 {
        if let Some(own) = self.own(offset) {
            return own;
        }
        match self.cell(offset) {
            Some(Cell::Wide(wide)) => wide.load(order),
            Some(Cell::Narrow(..)) => panic!("8 bytes of two words at {offset}"),
            None => self.cold(offset),
        }
    }
}

impl SharedWords for LoomWords {
    const TRIES_MAX: u32 = 3;

    fn len(&self) -> u64 {
        1 << 30
    }
    #[expect(clippy::cast_possible_truncation, reason = "4 bytes, made longer before")]
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.lapse.load(offset, |at| self.plain_load32(at, order).into()) as u32
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        let shift = 8 * (offset & 4);
        if !self.keep(offset, 0xFFFF_FFFF << shift, u64::from(value) << shift) {
            return;
        }
        match self.cell(offset).expect("a hot word") {
            Cell::Narrow(low, _) if offset & 4 == 0 => low.store(value, order),
            Cell::Narrow(_, high) => high.store(value, order),
            // The writer knows the other half.
            Cell::Wide(wide) => wide.store(self.own(offset).expect("a word of its own"), order),
        }
    }
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.lapse.load(offset, |at| self.plain_load64(at, order))
    }
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        if !self.keep(offset, u64::MAX, value) {
            return;
        }
        match self.cell(offset).expect("a hot word") {
            Cell::Wide(wide) => wide.store(value, order),
            Cell::Narrow(..) => panic!("8 bytes of two words at {offset}"),
        }
    }
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        match self.cell(offset).expect("a hot word") {
            Cell::Wide(wide) => wide.fetch_add(n, order).wrapping_add(n),
            Cell::Narrow(..) => panic!("8 bytes of two words at {offset}"),
        }
    }
    fn fence(&self, order: Ordering) {
        if !self.lapse.has_no_fences() {
            fence(order);
        }
    }
    /// By whole words, as from mapped memory.
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        let mut loaded: Option<(u64, [u8; 8])> = None;
        for (at, byte) in (offset..).zip(bytes) {
            let word = match loaded {
                Some((from, word)) if from == at & !7 => word,
                _ => self.load64(at & !7, Ordering::Relaxed).to_le_bytes(),
            };
            loaded = Some((at & !7, word));
            *byte = word[(at & 7) as usize];
        }
    }
    /// The file has what these words say; loads that another's store may overtake stand for what
    /// the system copies.
    fn read_file(&self, _: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.copy_out(offset, bytes);
        Ok(())
    }
}

/// What a story's memory is like when it begins.
#[derive(Default)]
struct Setting {
    hot: BTreeMap<u64, Cell>,
    cold: BTreeMap<u64, u64>,
    /// Hot words that only the writer stores, and their first values.
    own: BTreeMap<u64, u64>,
}

impl Setting {
    /// The index's own words: hot; and the entries that the story changes.
    fn new(entries: &[u64]) -> Setting {
        let mut setting = Setting::default();
        let state = u64::from(SMALL.word()) << 32;
        setting.hot.insert(header::INDEX_STATE, Cell::Wide(AtomicU64::new(state)));
        setting.hot.insert(header::OLD, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        setting.hot.insert(header::INTENT, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        for &at in entries {
            setting.hot.insert(at, Cell::Wide(AtomicU64::new(0)));
        }
        setting.own = setting.hot.keys().map(|&at| (at, 0)).collect();
        setting.own.insert(header::INDEX_STATE, state);
        setting
    }

    /// A record that is there from the beginning: constant words.
    fn record(self, n: u64, key: &[u8], value: u64) -> Setting {
        self.numbered(n, key, value, 1)
    }

    /// The same with the number of its change: as if that were being published.
    fn numbered(mut self, n: u64, key: &[u8], value: u64, lsn: u64) -> Setting {
        let words = crate::format::words::HeapWords::new(64);
        write_record(&words, 0, &head(key, lsn), (key, value));
        for at in (0..RECORD_BYTES).step_by(8) {
            self.cold.insert(offset(n) + at, words.load64(at, Ordering::Relaxed));
        }
        self
    }

    /// The words of the moment, hot; what is there from the beginning is committed up to `lsn`.
    fn moments(mut self, lsn: u64) -> Setting {
        for at in [header::BEGUN_LSN, header::COMMITTED_LSN] {
            self.cold.insert(at, lsn);
            self = self.hot(at);
        }
        self
    }

    /// A word that the writer stores later.
    fn hot(mut self, at: u64) -> Setting {
        let value = self.cold.remove(&at).unwrap_or(0);
        self.hot.insert(at, Cell::Wide(AtomicU64::new(value)));
        self.own.insert(at, value);
        self
    }

    /// A record whose `prev` is stored when it is published.
    fn hot_prev(self, n: u64) -> Setting {
        self.hot(offset(n) + r::PREV)
    }

    /// Room for a record that a thread writes or reuses.
    fn hot_record(self, n: u64) -> Setting {
        (0..RECORD_BYTES).step_by(8).fold(self, |setting, at| setting.hot(offset(n) + at))
    }

    fn hot_word(mut self, at: u64) -> Setting {
        self.hot.insert(at, Cell::Wide(AtomicU64::new(0)));
        self
    }

    /// A pair of words of 4 bytes that only the writer stores.
    fn hot_pair(mut self, at: u64) -> Setting {
        self.hot.insert(at & !7, Cell::Narrow(AtomicU32::new(0), AtomicU32::new(0)));
        self.own.insert(at & !7, 0);
        self
    }

    /// The reader's view and the writer's.
    fn words(self) -> (LoomWords, LoomWords) {
        let (hot, cold) = (Arc::new(self.hot), Arc::new(self.cold));
        let reader = LoomWords { hot, cold, own: None, lapse: Lapse::none() };
        let own = Own { words: Mutex::new(self.own), stores_left: Mutex::new(u64::MAX) };
        let own = Some(std::sync::Arc::new(own));
        (reader.clone(), LoomWords { own, ..reader })
    }
}

fn offset(n: u64) -> u64 {
    (3 << SHIFT) + n * RECORD_BYTES
}

fn reference(n: u64) -> u32 {
    record::reference_of(offset(n))
}

/// Of a record of 48 bytes: a key of at most 8, a value of 8.
fn head(key: &[u8], lsn: u64) -> Head {
    let key_len = u16::try_from(key.len()).expect("short");
    Head { value_len: 8, lsn, key_len, kind: r::KIND_STRING, ..Head::EMPTY }
}

fn write_record<W: SharedWords>(words: &W, at: u64, head: &Head, (key, value): (&[u8], u64)) {
    record::write(words, at, head, key, &[&value.to_le_bytes()]);
}

fn value_at(words: &LoomWords, reference: u32) -> u64 {
    words.load64(u64::from(reference) * r::UNIT + r::KEY + 8, Ordering::Relaxed)
}

/// Where entry `i` of a hash's home line lies.
fn home(table: Table, hash: u32, i: u64) -> u64 {
    table.line_offset(table.home(hash)) + 8 * i
}

fn check(preemptions: usize, story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = orders.clone();
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        story();
    });
    assert!(orders.load(Ordering::Relaxed) > 1, "loom tried one order only");
}
