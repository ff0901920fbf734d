//! Record and index alone, over words on the heap: random histories against simple models.

use crate::index::{Index, Table, find};
use crate::layout::{LINE_ENTRIES, PROBE_LINES, record as r, round_up};
use crate::record::{self, Head, RunName};
use crate::words::{HeapWords, Words};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SHIFT: u32 = 17;
/// Records of the index's histories lie from here on.
const RECORDS: u64 = 8 << SHIFT;
/// Bytes of one of them: a header and a key of four bytes.
const RECORD_BYTES: u64 = 48;

#[derive(Debug, Clone)]
enum Step {
    Put(u16),
    Delete(u16),
    Grow { double: bool },
    Migrate(u32),
    Clear,
    Twin,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..400u16).prop_map(Step::Put),
        12 => (0..400u16).prop_map(Step::Delete),
        2 => any::<bool>().prop_map(|double| Step::Grow { double }),
        10 => (1..4u32).prop_map(Step::Migrate),
        1 => Just(Step::Clear),
        1 => Just(Step::Twin),
    ]
}

/// Few hashes, so that chains are long, and some keys with the very same hash.
fn hash_of(key: u16) -> u32 {
    u32::from(key / 3).wrapping_mul(0x9E37_79B1) >> 24
}

struct Model {
    words: HeapWords,
    index: Index,
    keys: BTreeMap<u16, u32>,
    records: u64,
    tables: u32,
}

impl Model {
    fn new() -> Model {
        let words = HeapWords::new(usize::try_from(RECORDS + 700 * RECORD_BYTES).expect("small"));
        let index = Index::new(Table::new(1, 8, SHIFT), SHIFT);
        index.install(&words);
        Model { words, index, keys: BTreeMap::new(), records: 0, tables: 1 }
    }

    /// A zeroed table in the next of six places, none of which is in use.
    fn table(&mut self, lines: u64) -> Table {
        self.tables = self.tables % 6 + 1;
        let table = Table::new(self.tables, lines, SHIFT);
        for at in (0..table.bytes()).step_by(8) {
            self.words.store64(table.offset + at, 0, std::sync::atomic::Ordering::Relaxed);
        }
        table
    }

    fn record(&mut self, key: u16) -> u32 {
        let offset = RECORDS + self.records * RECORD_BYTES;
        self.records += 1;
        let head = Head {
            units: 3,
            value_len: 0,
            lsn: self.records,
            expiry_ms: 0,
            hash: hash_of(key),
            key_len: 4,
            kind: r::KIND_STRING,
            flags: 0,
        };
        record::write(&self.words, offset, &head, &u32::from(key).to_le_bytes(), &[]);
        record::reference_of(offset)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Put(key) => self.put(key),
            Step::Delete(key) => {
                let at =
                    self.index.locate(&self.words, hash_of(key), &u32::from(key).to_le_bytes());
                assert_eq!(at.found.map(|p| p.reference), self.keys.remove(&key));
                if let Some(place) = at.found {
                    self.index.remove(&self.words, &place);
                }
            }
            Step::Grow { double } if !self.index.growing() => {
                let lines = self.index.current().lines;
                let new = self.table(if double && lines < 64 { lines * 2 } else { lines });
                self.index.begin_growth(&self.words, new);
            }
            Step::Migrate(lines) => drop(self.index.migrate(&self.words, lines)),
            Step::Clear => {
                let new = self.table(8);
                self.index.clear(&self.words, new);
                self.keys.clear();
            }
            Step::Grow { .. } | Step::Twin => self.adopt(),
        }
    }

    fn put(&mut self, key: u16) {
        let (hash, bytes) = (hash_of(key), u32::from(key).to_le_bytes());
        self.index.migrate_chain(&self.words, hash);
        let at = self.index.locate(&self.words, hash, &bytes);
        assert_eq!(at.found.map(|p| p.reference), self.keys.get(&key).copied());
        let reference = self.record(key);
        match (at.found, at.room) {
            (Some(place), _) => self.index.replace(&self.words, &place, hash, reference),
            (None, Some(room)) => self.index.insert(&self.words, room, hash, reference),
            (None, None) => {
                // No place: only if all lines of the probe are taken.
                let entries = PROBE_LINES.min(self.index.current().lines) * LINE_ENTRIES;
                assert!(self.index.load() >= entries);
                return;
            }
        }
        self.keys.insert(key, reference);
    }

    /// What another writer would find: the same counts.
    fn adopt(&mut self) {
        let (mut live, mut load) = (0, 0);
        self.index.each(&self.words, &mut |_, _| live += 1);
        let current = self.index.current();
        for line in 0..current.lines {
            let entries = self.words.line(current.line_offset(line));
            load += entries.iter().filter(|&&e| e != 0).count() as u64;
        }
        assert_eq!((self.index.live(), self.index.load()), (live, load));
        let old = self.index.old();
        self.index = Index::adopted(SHIFT, current, old, load, live);
        assert!(self.index.mark_moved_twins(&self.words).is_empty());
    }

    fn check(&self) {
        for key in 0..400 {
            let found = find(&self.words, SHIFT, hash_of(key), &u32::from(key).to_le_bytes());
            assert_eq!(found, self.keys.get(&key).copied(), "key {key}");
        }
        assert_eq!(self.index.live(), self.keys.len() as u64);
    }
}

fn cases(n: u32) -> ProptestConfig {
    // Miri is slow, and can't store what failed.
    let cases = if cfg!(miri) { 3 } else { n };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn an_index_behaves_like_a_map(steps in prop::collection::vec(step(), 1..500)) {
        // Crowded small tables, equal hashes, growth at any moment and to any size.
        let mut model = Model::new();
        for (n, step) in steps.iter().enumerate() {
            model.apply(step);
            if n % 8 == 0 {
                model.check();
            }
        }
        model.check();
    }

    #[test]
    fn a_record_reads_as_it_was_written(
        key in prop::collection::vec(any::<u8>(), 0..70),
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
        (lsn, expiry_ms, hash) in any::<(u64, u64, u32)>(),
        dirt in any::<u64>(),
    ) {
        // Any key and value, over memory that was used before: the bytes come back, the padding is zero.
        let words = HeapWords::new(512);
        for at in (0..512).step_by(8) {
            words.store64(at, dirt, std::sync::atomic::Ordering::Relaxed);
        }
        let value = parts.concat();
        let bytes = crate::layout::inline_record_bytes(key.len(), value.len());
        let head = Head {
            units: record::units(bytes),
            value_len: u32::try_from(value.len()).expect("short"),
            lsn,
            expiry_ms,
            hash,
            key_len: u16::try_from(key.len()).expect("short"),
            kind: r::KIND_STRING,
            flags: 0,
        };
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        record::write(&words, 16, &head, &key, &slices);
        prop_assert_eq!(Head::load(&words, 16), head);
        prop_assert_eq!(head.bytes(), bytes);
        let mut all = vec![0; usize::try_from(bytes).expect("short")];
        words.copy_out(16, &mut all);
        let value_at = usize::try_from(head.value_at()).expect("short");
        prop_assert_eq!(&all[32..32 + key.len()], &key[..]);
        prop_assert_eq!(&all[value_at..value_at + value.len()], &value[..]);
        prop_assert!(all[32 + key.len()..value_at].iter().all(|&b| b == 0));
        prop_assert!(all[value_at + value.len()..].iter().all(|&b| b == 0));
        prop_assert!(record::key_is(&words, 1, &key));
        prop_assert_eq!(value_at as u64, 32 + round_up(key.len() as u64, 8));
    }

    #[test]
    fn arbitrary_headers_are_whole_or_refused(bytes in any::<[u8; 32]>(), unit in 0u64..1 << 20) {
        // A header of any bytes anywhere: if no fault is found, the record lies in one slot.
        let g = crate::layout::Geometry::new(64 << 20).expect("a capacity");
        let (head, offset) = (Head::from_bytes(&bytes), unit * r::UNIT);
        prop_assert_eq!(head.to_bytes(), bytes);
        if head.fault(&g, offset).is_none() {
            prop_assert_eq!(g.slot_of(offset), g.slot_of(offset + head.bytes() - 1));
            prop_assert!(head.value_at() <= head.bytes());
        }
        let name = RunName { slot: head.units, slots: head.value_len, generation: 0 };
        if name.place_fault(&g).is_none() {
            prop_assert!(u64::from(name.slot) + u64::from(name.slots) <= u64::from(g.slots));
        }
    }
}
