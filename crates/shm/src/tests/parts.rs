//! Record and index alone, over words on the heap: random histories against simple models.

use crate::format::head::{Head, RunName};
use crate::format::layout::{
    LINE_ENTRIES, PROBE_LINES, REF_DELETED, REF_MOVED, entry, header, record as r, round_up,
};
use crate::format::record::{self};
use crate::format::sum;
use crate::format::words::{HeapWords, SharedWords};
use crate::index::{self, Index, Table, find, split_state};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

const SHIFT: u32 = 17;
/// Records of the index's histories lie from here on.
const RECORDS: u64 = 8 << SHIFT;
/// Bytes of one of them: a header and a key of four bytes.
const RECORD_BYTES: u64 = 48;

#[derive(Debug, Clone)]
enum GrowthStep {
    Put(u16),
    Delete(u16),
    Grow { double: bool },
    Migrate(u32),
    Clear,
    Twin,
}

fn step() -> impl Strategy<Value = GrowthStep> {
    prop_oneof![
        30 => (0..400u16).prop_map(GrowthStep::Put),
        12 => (0..400u16).prop_map(GrowthStep::Delete),
        2 => any::<bool>().prop_map(|double| GrowthStep::Grow { double }),
        10 => (1..4u32).prop_map(GrowthStep::Migrate),
        1 => Just(GrowthStep::Clear),
        1 => Just(GrowthStep::Twin),
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
        let index = Index::new(Table::new(1, 8, SHIFT));
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
        let head = Head { lsn: self.records, key_len: 4, kind: r::KIND_STRING, ..Head::EMPTY };
        record::write(&self.words, offset, &head, &u32::from(key).to_le_bytes(), &[]);
        record::reference_of(offset)
    }

    fn apply(&mut self, step: &GrowthStep) {
        match *step {
            GrowthStep::Put(key) => self.put(key),
            GrowthStep::Delete(key) => {
                let at =
                    self.index.locate(&self.words, hash_of(key), &u32::from(key).to_le_bytes());
                assert_eq!(at.found.map(|p| p.reference), self.keys.remove(&key));
                if let Some(place) = at.found {
                    self.index.remove(&self.words, &place);
                }
            }
            GrowthStep::Grow { double } if !self.index.growing() => {
                let lines = self.index.current().lines;
                let new = self.table(if double && lines < 64 { lines * 2 } else { lines });
                self.index.begin_growth(&self.words, new);
            }
            GrowthStep::Migrate(lines) => drop(self.index.migrate(&self.words, lines)),
            GrowthStep::Clear => {
                let new = self.table(8);
                self.index.switch(&self.words, Index::new(new));
                self.keys.clear();
            }
            GrowthStep::Grow { .. } | GrowthStep::Twin => self.adopt(),
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
        self.index = Index::adopted(current, old, load, live);
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

/// Keys of one table, all with their home in its first lines.
fn keys_of(words: &HeapWords, index: &mut Index, keys: std::ops::Range<u32>) {
    for key in keys {
        let (hash, bytes) = (key % 3, key.to_le_bytes());
        let offset = RECORDS + u64::from(key) * RECORD_BYTES;
        record::write(words, offset, &head_of(&bytes), &bytes, &[]);
        let room = index.locate(words, hash, &bytes).room.expect("room");
        index.insert(words, room, hash, record::reference_of(offset));
    }
}

fn head_of(key: &[u8]) -> Head {
    let key_len = u16::try_from(key.len()).expect("short");
    let kind = r::KIND_STRING;
    Head { lsn: 1, key_len, kind, ..Head::EMPTY }
}

fn state_of(words: &HeapWords) -> (u32, u32, u32) {
    let (epoch, current) = split_state(words.load64(header::INDEX_STATE, Relaxed));
    (epoch, current, words.load32(header::OLD, Relaxed))
}

#[test]
fn an_entry_that_was_deleted_or_has_moved_names_no_record() {
    // Both have hash 0. Where their references would point, a record of a key with that hash
    // stands.
    let table = Table::new(1, 8, SHIFT);
    for gone in [REF_DELETED, REF_MOVED] {
        let words = HeapWords::new(2 << SHIFT);
        let at = u64::from(gone) * r::UNIT;
        record::write(&words, at, &head_of(b"k"), b"k", &[]);
        let mut index = Index::new(table);
        index.install(&words);
        words.store64(table.offset, entry(0, gone), Relaxed);
        assert_eq!(find(&words, SHIFT, 0, b"k"), None);
        assert_eq!(index.locate(&words, 0, b"k").found, None);
        index.each(&words, &mut |at, _| panic!("an entry at {at}"));
        // What names no record isn't moved, and takes no place of the new table.
        index.begin_growth(&words, Table::new(1, 4, SHIFT - 1));
        assert_eq!(index.locate(&words, 0, b"k").found, None);
        index.migrate(&words, 8);
        assert_eq!((index.growing(), index.load()), (false, 0));
    }
}

#[test]
fn a_line_says_which_entries_a_hash_may_mean_and_whether_a_search_ends() {
    // A search that doesn't end at an EMPTY entry finds the same, at ten times the cost.
    let (mine, other) = (entry(7, 100), entry(8, 100));
    let full = [mine, other, other, mine, other, other, other, mine];
    assert_eq!(index::match_line(&full, 7), (0b1000_1001, false));
    for empty in 1..3 {
        let mut line = full;
        line[4..4 + empty].fill(0);
        assert_eq!(index::match_line(&line, 7), (0b1000_1001, true));
        assert_eq!(index::match_line(&line, 9), (0, true));
    }
}

#[test]
fn growth_moves_as_many_lines_as_it_is_told() {
    let words = HeapWords::new(9 << SHIFT);
    let (old, new) = (Table::new(1, 8, SHIFT), Table::new(2, 16, SHIFT));
    let mut index = Index::new(old);
    index.install(&words);
    keys_of(&words, &mut index, 0..10);
    assert_eq!(state_of(&words), (0, old.word(), 0));
    index.begin_growth(&words, new);
    assert_eq!(state_of(&words), (1, new.word(), old.word()));
    assert_eq!((index.old(), index.current(), index.load()), (Some(old), new, 0));
    assert_eq!(index.migrate(&words, 0), index::GrowthStep { lines: 0, emptied: None });
    assert_eq!(index.migrate(&words, 3), index::GrowthStep { lines: 3, emptied: None });
    assert_eq!((index.load(), index.live()), (10, 10));
    assert!(index.growing() && !index.stuck());
    assert_eq!(index.migrate(&words, 9), index::GrowthStep { lines: 5, emptied: Some(old) });
    assert_eq!(state_of(&words), (2, new.word(), 0));
    assert_eq!(index.migrate(&words, 9), index::GrowthStep { lines: 0, emptied: None });
    // Everything is deleted: in a growth both tables are to be retired, and the epoch is even
    // again.
    index.begin_growth(&words, old);
    assert_eq!(index.switch(&words, Index::new(new)), [Some(old), Some(new)]);
    assert_eq!(state_of(&words), (4, new.word(), 0));
    assert_eq!(index.switch(&words, Index::new(old)), [Some(new), None]);
    assert_eq!(state_of(&words), (6, old.word(), 0));
    assert_eq!((index.load(), index.live()), (0, 0));
}

#[test]
fn growth_that_finds_no_place_goes_round_again_when_there_is_one() {
    // Twenty keys move to a table of sixteen entries. Once four are deleted, the rest fits.
    let words = HeapWords::new(9 << SHIFT);
    let (old, new) = (Table::new(1, 8, SHIFT), Table::new(2, 2, SHIFT));
    let mut index = Index::new(old);
    index.install(&words);
    keys_of(&words, &mut index, 0..20);
    index.begin_growth(&words, new);
    assert_eq!(index.migrate(&words, 7).emptied, None);
    assert!(!index.stuck());
    assert_eq!(index.migrate(&words, 9).emptied, None);
    assert!(index.stuck() && index.growing());
    assert_eq!((index.load(), index.live()), (16, 20));
    for key in 0..4u32 {
        assert_eq!(index.migrate(&words, 8).emptied, None);
        let place = index.locate(&words, key % 3, &key.to_le_bytes()).found.expect("a key");
        index.remove(&words, &place);
    }
    assert_eq!(index.migrate(&words, 16).emptied, Some(old));
    assert_eq!((index.growing(), index.stuck(), index.live()), (false, false, 16));
    for key in 4..20u32 {
        assert!(find(&words, SHIFT, key % 3, &key.to_le_bytes()).is_some(), "key {key}");
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
        (lsn, expiry_ms, prev) in any::<(u64, u64, u32)>(),
        dirt in any::<u64>(),
    ) {
        // Any key and value, over memory that was used before: the bytes come back, the padding is
        // zero.
        let words = HeapWords::new(512);
        for at in (0..512).step_by(8) {
            words.store64(at, dirt, std::sync::atomic::Ordering::Relaxed);
        }
        let value = parts.concat();
        let bytes = crate::format::layout::inline_record_bytes(key.len(), value.len());
        let head = Head {
            value_len: u32::try_from(value.len()).expect("short"),
            checksum: 0,
            lsn,
            expiry_ms,
            prev,
            key_len: u16::try_from(key.len()).expect("short"),
            kind: r::KIND_STRING,
            flags: 0,
        };
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        record::write(&words, 16, &head, &key, &slices);
        let checksum = sum::expected(&words, 16, &head);
        prop_assert_eq!(Head::load(&words, 16), Head { checksum, ..head });
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
        let g = crate::format::layout::Geometry::new(64 << 20).expect("a capacity");
        let (head, offset) = (Head::from_bytes(&bytes), unit * r::UNIT);
        prop_assert_eq!(head.to_bytes(), bytes);
        if head.fault(&g, offset).is_none() {
            prop_assert_eq!(g.slot_of(offset), g.slot_of(offset + head.bytes() - 1));
            prop_assert!(head.value_at() <= head.bytes());
        }
        let name = RunName { slot: head.prev, slots: head.value_len, generation: 0, checksum: 0 };
        if name.place_fault(&g).is_none() {
            prop_assert!(u64::from(name.slot) + u64::from(name.slots) <= u64::from(g.slots));
        }
    }
}
