//! The owner: what it does, as a queue of stores for each of its works. It may be killed between
//! any two, and then the next owner takes over by what it finds.
//!
//! ```text
//! begun ── (intent) ── stamps, prev before its entry ── committed ── (intent gone) ── retire
//! ✝   survey ── incarnation odd ── give back ── begun ── (the intent's list) ── committed ── incarnation even
//! ```

use crate::Mistake;
use crate::memory::{Change, KEYS, MOVED, Memory, NO_TABLE, Named, Store, Use};
use std::collections::VecDeque;

/// A work of the owner's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Work {
    /// Sets a key.
    Put(u8),
    /// Sets a key that is over at the next time.
    PutShort(u8),
    /// Sets or deletes both keys, or one of them behind a clearing.
    Commit([Wish; KEYS], bool),
    /// Deletes a key.
    Delete(u8),
    Clear,
    /// Time goes on.
    Tick,
    /// The cleaner copies a record.
    Move(u8),
    BeginGrowth,
    /// The index' line of a key moves to the larger table.
    MoveLine(u8),
    EndGrowth,
}

/// What a commit is to do with a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wish {
    Nothing,
    Put,
    Delete,
}

/// What the owner keeps in its own memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owner {
    pub(crate) lsn: u8,
    pub(crate) queue: VecDeque<Store>,
    /// Records that nobody finds any more, and since which of the owner's turns.
    pub(crate) retired: Vec<(u8, u8)>,
    pub(crate) mistake: Mistake,
}

/// The stores of one change, as they are planned.
struct Plan<'a> {
    memory: &'a Memory,
    mistake: Mistake,
    stores: Vec<Store>,
    unpublished: Vec<u8>,
}

impl Plan<'_> {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Two stores in their order, or in the other by a mistake.
    fn pair(&mut self, pair: [Store; 2], swapped: bool) {
        let [first, second] = pair;
        self.stores.extend(if swapped { [second, first] } else { [first, second] });
    }

    fn unpublish(&mut self, reference: u8) {
        if self.is(Mistake::RetiresEarly) {
            self.stores.push(Store::Retire(reference));
        } else {
            self.unpublished.push(reference);
        }
    }

    fn put(&mut self, key: u8, reference: u8) {
        let (table, found) = self.memory.entry(key);
        let entry = Store::Entry(table, key, reference);
        if found == 0 {
            // A new key goes to the current table.
            return self.stores.push(entry);
        }
        let late = self.is(Mistake::PrevLate);
        self.pair([Store::Prev(reference, found), entry], late);
        self.unpublish(found);
    }

    fn delete(&mut self, key: u8, lsn: u8) {
        let (table, found) = self.memory.entry(key);
        let late = self.is(Mistake::StampLate);
        self.pair([Store::Stamp(key, lsn), Store::Entry(table, key, 0)], late);
        self.unpublish(found);
    }

    /// All keys go; `puts` are in the new table before it becomes the index.
    fn clear(&mut self, (table, lsn): (u8, u8), puts: &[Change; KEYS]) {
        let (epoch, _) = self.memory.index;
        if !self.is(Mistake::FillsLate) {
            self.fill(table, puts);
        }
        let index = Store::Index(epoch + 2 - (epoch & 1), table);
        let late = self.is(Mistake::StampLate);
        self.pair([Store::ClearStamp(lsn), index], late);
        self.stores.push(Store::Old(NO_TABLE));
        if self.is(Mistake::FillsLate) {
            self.fill(table, puts);
        }
        for key in 0..2 {
            let (_, found) = self.memory.entry(key);
            if found != 0 {
                self.unpublish(found);
            }
        }
    }

    fn fill(&mut self, table: u8, puts: &[Change; KEYS]) {
        for (key, change) in (0..).zip(puts) {
            if let Change::Put(reference) = *change {
                self.stores.push(Store::Entry(table, key, reference));
            }
        }
    }

    fn all(&mut self, named: &Named) {
        if let Some(clear) = named.clear {
            return self.clear(clear, &named.changes);
        }
        for (key, change) in (0..).zip(named.changes) {
            match change {
                Change::None => {}
                Change::Put(reference) => self.put(key, reference),
                Change::Delete(lsn) => self.delete(key, lsn),
            }
        }
    }

    /// The whole change, of several with their intent.
    fn change(mut self, last: u8, named: &Named, intent: Option<Named>) -> Vec<Store> {
        let several = intent.is_some();
        let intent = intent.map(|named| Store::Intent(Some(named)));
        self.all(named);
        let mut middle = std::mem::take(&mut self.stores);
        let begun = Store::Begun(last);
        let mut stores = vec![];
        if self.is(Mistake::BegunLate) && !several {
            middle.push(begun);
        } else {
            stores.push(begun);
        }
        if self.is(Mistake::IntentLate) {
            middle.splice(1..1, intent);
        } else {
            stores.extend(intent);
        }
        stores.append(&mut middle);
        if self.is(Mistake::CommittedEarly) {
            let at = stores.len() - 1;
            stores.insert(at, Store::Committed(last));
        } else {
            stores.push(Store::Committed(last));
        }
        if several {
            stores.push(Store::Intent(None));
        }
        stores.extend(self.unpublished.iter().map(|&reference| Store::Retire(reference)));
        stores
    }
}

impl Owner {
    pub(crate) fn new(memory: &Memory, mistake: Mistake) -> Owner {
        Owner { lsn: memory.committed, queue: VecDeque::new(), retired: Vec::new(), mistake }
    }

    fn plan<'a>(&self, memory: &'a Memory) -> Plan<'a> {
        Plan { memory, mistake: self.mistake, stores: vec![], unpublished: vec![] }
    }

    /// Stages a work, and queues its stores. `value` is what it sets.
    pub(crate) fn begin(&mut self, memory: &mut Memory, work: Work, value: u8) {
        let stores = match work {
            Work::Put(key) => self.put(memory, key, value, 0),
            Work::PutShort(key) => self.put(memory, key, value, memory.clock),
            Work::Delete(key) => {
                let mut wishes = [Wish::Nothing; KEYS];
                wishes[usize::from(key)] = Wish::Delete;
                self.commit(memory, wishes, false, value)
            }
            Work::Commit(wishes, clears) => self.commit(memory, wishes, clears, value),
            Work::Clear => {
                self.lsn += 1;
                let clear = Some((take_table(memory), self.lsn));
                let named = Named { clear, ..Named::default() };
                self.plan(memory).change(self.lsn, &named, None)
            }
            Work::Tick => vec![Store::Clock(memory.clock + 1)],
            Work::Move(key) => move_record(memory, key),
            Work::BeginGrowth => {
                let (epoch, current) = memory.index;
                vec![Store::Old(current), Store::Index(epoch + 1, take_table(memory))]
            }
            Work::MoveLine(key) => move_line(memory, key),
            Work::EndGrowth if memory.index.0 & 1 == 0 => vec![],
            Work::EndGrowth => {
                let (epoch, current) = memory.index;
                vec![Store::Index(epoch + 1, current), Store::Old(NO_TABLE)]
            }
        };
        self.queue = stores.into();
    }

    fn put(&mut self, memory: &mut Memory, key: u8, value: u8, expiry: u8) -> Vec<Store> {
        self.lsn += 1;
        let mut named = Named::default();
        named.changes[usize::from(key)] = Change::Put(memory.append(key, value, expiry, self.lsn));
        self.plan(memory).change(self.lsn, &named, None)
    }

    fn commit(
        &mut self,
        memory: &mut Memory,
        wishes: [Wish; KEYS],
        clears: bool,
        value: u8,
    ) -> Vec<Store> {
        let mut named = Named::default();
        if clears {
            self.lsn += 1;
            named.clear = Some((take_table(memory), self.lsn));
        }
        for (key, wish) in (0..).zip(wishes) {
            let is_there = !clears && memory.entry(key).1 != 0;
            named.changes[usize::from(key)] = match wish {
                Wish::Put => {
                    self.lsn += 1;
                    Change::Put(memory.append(key, value, 0, self.lsn))
                }
                Wish::Delete if is_there => {
                    self.lsn += 1;
                    Change::Delete(self.lsn)
                }
                _ => Change::None,
            };
        }
        let count = named.changes.iter().filter(|change| **change != Change::None).count();
        if count == 0 && !clears {
            return vec![];
        }
        let intent = (clears || count > 1).then_some(named);
        self.plan(memory).change(self.lsn, &named, intent)
    }

    /// The next owner, behind a kill: its number, and the stores with which it ends what it finds.
    pub(crate) fn adopt(memory: &Memory, mistake: Mistake) -> Owner {
        let mut owner = Owner::new(memory, mistake);
        owner.lsn = survey(memory, mistake);
        let is_unseen = [Mistake::AdoptsUnseen, Mistake::CommitsBeforeRedo].contains(&mistake);
        let mut stores = vec![];
        if !is_unseen {
            stores.push(Store::Incarnation((memory.incarnation + 1) | 1));
        }
        if mistake != Mistake::AdoptsUnseen {
            stores.push(Store::CountReuse);
        }
        stores.extend(unclaimed(memory).map(Store::GiveBack));
        stores.extend(owner.end(memory));
        if !is_unseen {
            stores.push(Store::Incarnation((memory.incarnation + 2) & !1));
        }
        owner.queue = stores.into();
        owner
    }

    /// The stores that end what the last owner had begun.
    fn end(&self, memory: &Memory) -> Vec<Store> {
        let ended = [Store::Begun(self.lsn), Store::Committed(self.lsn)];
        let Some(named) = &memory.intent else {
            let is_left = self.mistake == Mistake::EndsNothing;
            return if is_left { vec![] } else { ended.into() };
        };
        let again = self.plan(memory).change(self.lsn, &undone(memory, named), memory.intent);
        match self.mistake {
            Mistake::EndsNothing => vec![],
            Mistake::DropsIntent => [&ended[..], &[Store::Intent(None)]].concat(),
            Mistake::CommitsBeforeRedo => {
                let is_committed = |store: &Store| matches!(store, Store::Committed(_));
                let (committed, rest): (Vec<_>, Vec<_>) = again.into_iter().partition(is_committed);
                [committed, rest].concat()
            }
            _ => again,
        }
    }
}

/// Records that neither the index nor an intent names.
fn unclaimed(memory: &Memory) -> impl Iterator<Item = u8> {
    let named = memory.intent.unwrap_or_default();
    (1..).zip(&memory.records[1..]).filter_map(move |(at, record)| {
        let is_named = named.changes.contains(&Change::Put(at));
        let is_claimed = is_named || (0..2).any(|key| memory.entry(key).1 == at);
        (record.state != Use::Free && !is_claimed).then_some(at)
    })
}

/// What of an intent isn't done yet.
fn undone(memory: &Memory, named: &Named) -> Named {
    // A table that isn't the index yet is filled again, whatever the index has.
    let clear = named.clear.filter(|&(table, _)| table != memory.index.1);
    let mut changes = named.changes;
    for (key, change) in (0..).zip(&mut changes) {
        let (_, found) = memory.entry(key);
        let is_newer = |lsn| found != 0 && memory.record(found).lsn > lsn;
        let is_done = match *change {
            Change::None => true,
            Change::Put(at) => found == at || is_newer(memory.record(at).lsn),
            Change::Delete(lsn) => found == 0 || is_newer(lsn),
        };
        if is_done && clear.is_none() {
            *change = Change::None;
        }
    }
    Named { changes, clear }
}

/// The largest number that a reader may have seen, or may yet see.
fn survey(memory: &Memory, mistake: Mistake) -> u8 {
    let of_entry = |key| memory.record(memory.entry(key).1).lsn;
    let found = [0, 1].map(of_entry).into_iter().max().unwrap_or(0);
    let named = memory.intent.unwrap_or_default();
    let of_change = |change: &Change| match *change {
        Change::None => 0,
        Change::Put(reference) => memory.record(reference).lsn,
        Change::Delete(lsn) => lsn,
    };
    let listed = named.changes.iter().map(of_change).chain(named.clear.map(|(_, lsn)| lsn));
    let listed = listed.max().unwrap_or(0);
    let stamps = memory.stamps.iter().fold(memory.clear_stamp, |most, lsn| most.max(*lsn));
    match mistake {
        Mistake::NumbersFromCommitted => memory.committed,
        Mistake::ForgetsStamps => memory.committed.max(found).max(listed),
        _ => memory.committed.max(found).max(listed).max(stamps),
    }
}

fn take_table(memory: &mut Memory) -> u8 {
    let table = memory.tables_used;
    assert!(usize::from(table) < memory.tables.len(), "tables for a run");
    memory.tables_used += 1;
    table
}

fn move_record(memory: &mut Memory, key: u8) -> Vec<Store> {
    let (table, found) = memory.entry(key);
    if found == 0 {
        return vec![];
    }
    let record = *memory.record(found);
    let to = memory.append(key, record.value, record.expiry, record.lsn);
    let copy = &mut memory.records[usize::from(to)];
    (copy.prev, copy.prev_generation) = (record.prev, record.prev_generation);
    vec![Store::Entry(table, key, to), Store::Retire(found)]
}

fn move_line(memory: &Memory, key: u8) -> Vec<Store> {
    let (epoch, current) = memory.index;
    if epoch & 1 == 0 {
        return vec![];
    }
    match memory.tables[usize::from(memory.old)][usize::from(key)] {
        0 | MOVED => vec![],
        found => vec![Store::Entry(current, key, found), Store::Entry(memory.old, key, MOVED)],
    }
}
