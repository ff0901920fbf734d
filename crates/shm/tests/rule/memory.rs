//! The words that the owner stores and readers load, and one store of the owner.
//!
//! A record has a slot of its own here. What a reader can't see (`state`, `prev_generation`) is
//! there to find mistakes.

use std::hash::{Hash, Hasher};

/// Keys, by their numbers.
pub(crate) const KEYS: usize = 2;
/// Addresses of records; 0 is none.
const ADDRESSES: usize = 9;
/// Tables that the index may ever have in a run.
const TABLES: usize = 3;
/// An entry that has gone on to the current table.
pub(crate) const MOVED: u8 = 255;
/// No table.
pub(crate) const NO_TABLE: u8 = 99;

/// What the memory of a record is used for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Use {
    #[default]
    Free,
    Record,
    Retired,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) key: u8,
    pub(crate) value: u8,
    /// The last time at which it is there; 0: always.
    pub(crate) expiry: u8,
    pub(crate) lsn: u8,
    pub(crate) prev: u8,
    pub(crate) prev_generation: u8,
    pub(crate) generation: u8,
    pub(crate) state: Use,
}

impl Hash for Record {
    /// As one word.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Record { key, value, expiry, lsn, prev, prev_generation, generation, state } = *self;
        let flags = key << 4 | state as u8;
        let fields = [flags, value, expiry, lsn, prev, prev_generation, generation, 0];
        hasher.write_u64(u64::from_le_bytes(fields));
    }
}

/// What a commit does with a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Change {
    #[default]
    None,
    /// The record becomes the key's.
    Put(u8),
    /// The key goes, by this number.
    Delete(u8),
}

/// What an intent names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Named {
    pub(crate) changes: [Change; KEYS],
    /// The table that becomes the index, and the number of the clearing.
    pub(crate) clear: Option<(u8, u8)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Memory {
    pub(crate) incarnation: u8,
    pub(crate) reuses: u8,
    pub(crate) begun: u8,
    pub(crate) committed: u8,
    pub(crate) intent: Option<Named>,
    pub(crate) clock: u8,
    pub(crate) stamps: [u8; KEYS],
    pub(crate) clear_stamp: u8,
    /// Epoch and current table: one word.
    pub(crate) index: (u8, u8),
    pub(crate) old: u8,
    pub(crate) tables: [[u8; KEYS]; TABLES],
    pub(crate) tables_used: u8,
    pub(crate) records: [Record; ADDRESSES + 1],
}

/// One store of the owner; with it, what no reader can see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Store {
    Begun(u8),
    Committed(u8),
    Intent(Option<Named>),
    Clock(u8),
    Stamp(u8, u8),
    ClearStamp(u8),
    Index(u8, u8),
    Old(u8),
    Prev(u8, u8),
    /// Table, key, reference.
    Entry(u8, u8, u8),
    Incarnation(u8),
    CountReuse,
    /// The generation becomes odd.
    Retire(u8),
    /// The generation becomes even, and the memory is free.
    GiveBack(u8),
}

impl Memory {
    /// An arena with one table, and records of keys that have these expiries.
    pub(crate) fn new(present: [Option<u8>; KEYS]) -> Memory {
        let mut memory = Memory {
            incarnation: 2,
            reuses: 0,
            begun: 0,
            committed: 0,
            intent: None,
            clock: 1,
            stamps: [0; KEYS],
            clear_stamp: 0,
            index: (0, 0),
            old: NO_TABLE,
            tables: Default::default(),
            tables_used: 1,
            records: Default::default(),
        };
        for (key, expiry) in (0..).zip(present) {
            let Some(expiry) = expiry else { continue };
            let lsn = memory.committed + 1;
            memory.tables[0][usize::from(key)] = memory.append(key, 200 + key, expiry, lsn);
            (memory.begun, memory.committed) = (lsn, lsn);
        }
        memory
    }

    pub(crate) fn record(&self, reference: u8) -> &Record {
        &self.records[usize::from(reference)]
    }

    fn record_mut(&mut self, reference: u8) -> &mut Record {
        &mut self.records[usize::from(reference)]
    }

    /// Writes a record that nobody knows of yet, into the first memory that is free.
    pub(crate) fn append(&mut self, key: u8, value: u8, expiry: u8, lsn: u8) -> u8 {
        let at = (1..self.records.len()).find(|&at| self.records[at].state == Use::Free);
        let at = at.expect("memory for a run's records");
        let generation = self.records[at].generation;
        let record = Record { key, value, expiry, lsn, generation, ..Record::default() };
        self.records[at] = Record { state: Use::Record, ..record };
        u8::try_from(at).expect("few addresses")
    }

    /// The owner's look at a key: its table and its entry's reference, or 0.
    pub(crate) fn entry(&self, key: u8) -> (u8, u8) {
        let (epoch, current) = self.index;
        let of = |table: u8| self.tables[usize::from(table)][usize::from(key)];
        if epoch & 1 == 1 && self.old != NO_TABLE && ![0, MOVED].contains(&of(self.old)) {
            return (self.old, of(self.old));
        }
        (current, of(current))
    }

    pub(crate) fn apply(&mut self, store: Store) {
        match store {
            Store::Begun(lsn) => self.begun = lsn,
            Store::Committed(lsn) => self.committed = lsn,
            Store::Intent(named) => self.intent = named,
            Store::Clock(time) => self.clock = time,
            Store::Stamp(key, lsn) => self.stamps[usize::from(key)] = lsn,
            Store::ClearStamp(lsn) => self.clear_stamp = lsn,
            Store::Index(epoch, current) => self.index = (epoch, current),
            Store::Old(table) => self.old = table,
            Store::Prev(reference, prev) => {
                let generation = self.record(prev).generation;
                let record = self.record_mut(reference);
                (record.prev, record.prev_generation) = (prev, generation);
            }
            Store::Entry(table, key, to) => self.tables[usize::from(table)][usize::from(key)] = to,
            Store::Incarnation(number) => self.incarnation = number,
            Store::CountReuse => self.reuses += 1,
            Store::Retire(reference) => {
                let record = self.record_mut(reference);
                assert!(record.state == Use::Record, "only records are retired");
                record.state = Use::Retired;
                record.generation |= 1;
            }
            Store::GiveBack(reference) => {
                let record = self.record_mut(reference);
                record.generation = (record.generation | 1) + 1;
                record.state = Use::Free;
            }
        }
    }

    /// The number that readers can know by a store.
    pub(crate) fn number_shown(&self, store: Store) -> u8 {
        match store {
            Store::Committed(lsn) | Store::Stamp(_, lsn) | Store::ClearStamp(lsn) => lsn,
            Store::Entry(_, _, reference) if ![0, MOVED].contains(&reference) => {
                self.record(reference).lsn
            }
            _ => 0,
        }
    }

    /// Value and expiry of the keys, as the index says.
    pub(crate) fn values(&self) -> [(u8, u8); KEYS] {
        [0, 1].map(|key| match self.entry(key) {
            (_, 0) => (0, 0),
            (_, reference) => (self.record(reference).value, self.record(reference).expiry),
        })
    }
}
