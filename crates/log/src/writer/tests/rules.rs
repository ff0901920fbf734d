//! The rules of order, as a judge of what was done: docs/formats/log.md, Preparing and Writing.

use super::watched::{Event, Named};
use crate::format::layout::BLOCK_BYTES;
use std::collections::BTreeMap;

/// What is known of one file.
#[derive(Debug, Default, Clone, Copy)]
struct KnownFile {
    /// Where the bytes end that were written, and those that were synced.
    written: u64,
    synced: u64,
    /// A write isn't synced.
    dirty: bool,
    /// Its name isn't on disk yet.
    unnamed: bool,
}

/// Judges events from a chain's beginning on.
#[derive(Debug, Default)]
pub(super) struct OrderJudge {
    files: BTreeMap<Named, KnownFile>,
    /// The file with the last BEGIN.
    newest: u64,
    /// The sync that was begun: what it covers of the newest file.
    begun_sync: Option<u64>,
    /// Syncs of begun files.
    pub(super) syncs: usize,
    /// Writes while a sync ran.
    pub(super) beside: usize,
    /// BEGINs.
    pub(super) begun: Vec<u64>,
}

impl OrderJudge {
    /// Takes events.
    ///
    /// # Panics
    /// If one breaks a rule.
    pub(super) fn take(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.one(event));
    }

    /// A sync of the newest file begins now, and isn't run yet.
    pub(super) fn sync_begins(&mut self) {
        assert_eq!(self.begun_sync, None, "one sync at a time");
        let newest = Named { number: self.newest, new: false };
        self.begun_sync = Some(self.files[&newest].written);
    }

    fn one(&mut self, event: &Event) {
        match *event {
            Event::Create(name) => {
                assert!(name.new, "{name:?} isn't made as .new");
                self.files.insert(name, KnownFile::default());
            }
            Event::Write { to, from, end } if to.new => {
                let known = self.files.entry(to).or_default();
                assert!(!known.unnamed, "the old name of {to:?} may come back with another head");
                (known.written, known.dirty) = (known.written.max(end), true);
                assert!(from < end);
            }
            Event::Write { to, from, end } => self.write(to, from, end),
            Event::Sync(name) => self.sync(name),
            Event::Rename(from, to) => {
                let known = self.files.remove(&from).unwrap_or_default();
                assert!(from.new || to.new, "{from:?} becomes {to:?} without being prepared");
                assert!(to.new || !known.dirty, "the head of {to:?} isn't synced");
                let highest = self.files.keys().map(|name| name.number).max().unwrap_or(0);
                assert!(to.new || to.number >= highest, "{to:?} has an old number");
                // What lies behind the head is of no interest any more.
                let known =
                    KnownFile { written: BLOCK_BYTES, synced: BLOCK_BYTES, ..KnownFile::default() };
                self.files.insert(to, KnownFile { unnamed: true, ..known });
            }
            Event::Remove(name) => {
                assert!(name.new || name.number != self.newest, "{name:?} is being written");
                self.files.remove(&name);
            }
            Event::SyncFolder => self.files.values_mut().for_each(|known| known.unnamed = false),
        }
    }

    fn write(&mut self, to: Named, from: u64, end: u64) {
        let newest = Named { number: self.newest, new: false };
        if to != newest {
            assert!(to.number > self.newest, "{to:?} was begun before {newest:?}");
            assert_eq!(from, BLOCK_BYTES, "{to:?} has no BEGIN first");
            let old = self.files.get(&newest).copied().unwrap_or_default();
            assert!(!old.dirty, "{newest:?} isn't synced before {to:?} begins");
            self.begun.push(to.number);
            self.newest = to.number;
        } else if self.begun.last() == Some(&to.number) {
            let known = self.files[&to];
            assert!(known.synced > BLOCK_BYTES, "something follows a BEGIN that isn't synced");
        }
        let known = self.files.get_mut(&to).expect("it was prepared");
        assert!(!known.unnamed, "the name of {to:?} isn't on disk");
        // A sync that was begun may run at any time: what it covers counts as synced.
        self.beside += usize::from(self.begun_sync.is_some());
        let synced = self.begun_sync.unwrap_or(known.synced);
        let blocks = synced.next_multiple_of(BLOCK_BYTES);
        assert!(from >= blocks, "a write at {from} touches blocks synced up to {blocks}");
        (known.written, known.dirty) = (known.written.max(end), true);
    }

    fn sync(&mut self, name: Named) {
        let is_newest = !name.new && name.number == self.newest;
        let known = self.files.entry(name).or_default();
        let end = self.begun_sync.take_if(|_| is_newest).unwrap_or(known.written);
        known.dirty = known.written > end;
        known.synced = end;
        if is_newest {
            assert!(end.is_multiple_of(BLOCK_BYTES), "{name:?} is synced up to {end}: in a block");
            self.syncs += 1;
        }
    }
}
