//! A reader: one load at a time.
//!
//! ```text
//! moment:  (incarnation, reuses) ── begun ── intent ── committed ── clock ── committed again
//! key:     index ── (old table) ── current table ─┬─ record ── prev ── … the first with number ≤ S
//!                                                 └─ index again ── stamps: absent at S
//! single:  key ── (a time? clock, key again) ── intent: 0, or else by a moment
//! ```
//!
//! A reader of the owner's process is pinned: memory waits for it. One of another process isn't: it
//! compares generation, entry, index, incarnation and reuses.

use crate::Mistake;
use crate::memory::{KEYS, MOVED, Memory, NO_TABLE, Record, Use};

/// What a reader asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Read {
    One(u8),
    Both([u8; KEYS]),
}

/// Whether memory waits for a reader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Pinned,
    Foreign(Retired),
}

/// What the owner does with memory for which no pin stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Retired {
    /// It uses it again as soon as it may.
    Reused,
    /// It has enough of other memory.
    Kept,
}

/// What comes of a step.
pub(crate) enum Step {
    Goes,
    /// It gives up; nothing is told.
    TooNew,
    Told,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Pin,
    PinTold,
    Incarnation,
    Reuses,
    Clock,
    Begun,
    Intent,
    Committed,
    MomentClock,
    CommittedAgain,
    Index,
    Old,
    OldTable,
    Table,
    Generation,
    EntryAgain,
    Copy,
    CopyValue,
    GenerationAgain,
    IndexAgain,
    Stamp,
    ClearStamp,
    IncarnationAgain,
    ReusesAgain,
    SingleIntent,
}

/// A reader within one read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reader {
    kind: Kind,
    at: At,
    keys: [u8; KEYS],
    count: u8,
    /// Reads one key by what the index says now.
    alone: bool,
    incarnation: u8,
    reuses: u8,
    begun: u8,
    in_commit: bool,
    lsn: u8,
    clock: u8,
    has_clock: bool,
    now: u8,
    index: (u8, u8),
    old: u8,
    place: u8,
    reference: u8,
    generation: u8,
    copy: Option<Record>,
    newer: u8,
    pub(crate) values: [u8; KEYS],
    /// Of the pin.
    pub(crate) seen: Option<u8>,
    turn: u8,
}

impl Reader {
    pub(crate) fn new(kind: Kind, read: Read, mistake: Mistake) -> Reader {
        let (keys, count, alone) = match read {
            Read::One(key) => ([key, 0], 1, true),
            Read::Both(keys) => (keys, 2, false),
        };
        let at = match kind {
            Kind::Pinned if mistake == Mistake::PinsBehindMoment && !alone => At::Begun,
            Kind::Pinned => At::Pin,
            Kind::Foreign(_) if mistake == Mistake::ReusesBehindMoment && !alone => At::Begun,
            Kind::Foreign(_) => At::Incarnation,
        };
        Reader {
            kind,
            at,
            keys,
            count,
            alone,
            incarnation: 0,
            reuses: 0,
            begun: 0,
            in_commit: false,
            lsn: 0,
            clock: 0,
            has_clock: false,
            now: 0,
            index: (0, 0),
            old: NO_TABLE,
            place: 0,
            reference: 0,
            generation: 0,
            copy: None,
            newer: 0,
            values: [0; KEYS],
            seen: None,
            turn: 0,
        }
    }

    /// The keys that it has read.
    pub(crate) fn keys(&self) -> &[u8] {
        &self.keys[..usize::from(self.count)]
    }

    fn key(&self) -> u8 {
        self.keys[usize::from(self.now)]
    }

    fn go(&mut self, at: At) -> Result<Step, String> {
        self.at = at;
        Ok(Step::Goes)
    }

    /// Forgets what a look has found, so that equal states are equal.
    fn look_again(&mut self) -> Result<Step, String> {
        (self.index, self.old, self.place) = ((0, 0), NO_TABLE, 0);
        (self.reference, self.generation, self.copy) = (0, 0, None);
        self.go(At::Index)
    }

    /// The next load. `turn` is the owner's, for pins.
    pub(crate) fn step(
        &mut self,
        memory: &Memory,
        turn: u8,
        mistake: Mistake,
    ) -> Result<Step, String> {
        match self.at {
            At::Pin | At::PinTold | At::Incarnation | At::Reuses => self.enter(memory, turn),
            At::Begun | At::Intent | At::Committed | At::MomentClock | At::CommittedAgain => {
                self.sample(memory, mistake)
            }
            At::Index | At::Old | At::OldTable | At::Table => self.probe(memory),
            At::Generation | At::EntryAgain | At::Copy | At::CopyValue | At::GenerationAgain => {
                self.take(memory, mistake)
            }
            At::IndexAgain => self.look_at_index_again(memory, mistake),
            At::Stamp | At::ClearStamp => self.miss(memory, mistake),
            At::Clock | At::SingleIntent => self.end_single(memory, mistake),
            At::IncarnationAgain | At::ReusesAgain => self.leave(memory, mistake),
        }
    }

    /// What memory waits for, or a foreign reader compares behind it.
    fn enter(&mut self, memory: &Memory, turn: u8) -> Result<Step, String> {
        match self.at {
            At::Pin => {
                self.turn = turn;
                return self.go(At::PinTold);
            }
            At::PinTold => (self.seen, self.turn) = (Some(self.turn), 0),
            At::Incarnation => {
                self.incarnation = memory.incarnation;
                let is_adopting = self.incarnation & 1 == 1;
                return if is_adopting { Ok(Step::TooNew) } else { self.go(At::Reuses) };
            }
            _ => self.reuses = memory.reuses,
        }
        // By a mistake the moment was first.
        self.go(if self.alone || self.has_clock { At::Index } else { At::Begun })
    }

    /// Whether an absence is one at the moment too.
    fn miss(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        let is_key = self.at == At::Stamp;
        let stamp =
            if is_key { memory.stamps[usize::from(self.key())] } else { memory.clear_stamp };
        if stamp > self.lsn && mistake != Mistake::NoStamp {
            return Ok(Step::TooNew);
        }
        if is_key {
            return self.go(At::ClearStamp);
        }
        self.copy = None;
        self.found()
    }

    /// The time for a key that has one, and the look at the intent.
    fn end_single(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        if self.at == At::Clock {
            (self.clock, self.has_clock) = (memory.clock, true);
            if mistake == Mistake::NoSecondLook {
                return self.go(At::SingleIntent);
            }
            return self.look_again();
        }
        if memory.intent.is_some() && mistake != Mistake::NoIntent {
            // By a moment, from the beginning; a pin stays.
            let read = Reader::new(self.kind, Read::One(self.keys[0]), Mistake::None);
            *self = Reader { alone: false, seen: self.seen, ..read };
            let is_foreign = self.kind != Kind::Pinned && mistake != Mistake::ReusesBehindMoment;
            return self.go(if is_foreign { At::Incarnation } else { At::Begun });
        }
        match self.kind {
            Kind::Pinned => self.judge(),
            Kind::Foreign(_) => self.go(At::IncarnationAgain),
        }
    }

    /// Whether a foreign reader's copies are right.
    fn leave(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        if self.at == At::IncarnationAgain {
            if memory.incarnation != self.incarnation {
                return Ok(Step::TooNew);
            }
            return if self.alone { self.judge() } else { self.go(At::ReusesAgain) };
        }
        if memory.reuses != self.reuses && mistake != Mistake::NoReuses {
            return Ok(Step::TooNew);
        }
        self.judge()
    }

    /// Takes the moment.
    fn sample(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        match self.at {
            At::Begun => {
                self.begun = memory.begun;
                self.go(At::Intent)
            }
            At::Intent => {
                self.in_commit = memory.intent.is_some();
                self.go(At::Committed)
            }
            At::Committed => {
                let waits = !self.in_commit && memory.committed < self.begun;
                (self.begun, self.in_commit) = (0, false);
                if waits && mistake != Mistake::NoWait {
                    // All three again.
                    return self.go(At::Begun);
                }
                self.lsn = memory.committed;
                self.go(At::MomentClock)
            }
            At::MomentClock => {
                (self.clock, self.has_clock) = (memory.clock, true);
                self.go(At::CommittedAgain)
            }
            _ => {
                if memory.committed != self.lsn && mistake != Mistake::ClockBehindMoment {
                    (self.lsn, self.clock) = (0, 0);
                    return self.go(At::Begun);
                }
                match (self.kind, mistake) {
                    (Kind::Pinned, Mistake::PinsBehindMoment) if self.seen.is_none() => {
                        self.go(At::Pin)
                    }
                    (Kind::Foreign(_), Mistake::ReusesBehindMoment) => self.go(At::Incarnation),
                    _ => self.look_again(),
                }
            }
        }
    }

    fn probe(&mut self, memory: &Memory) -> Result<Step, String> {
        let entry = |table: u8| memory.tables[usize::from(table)][usize::from(self.key())];
        let table = match self.at {
            At::Index => {
                self.index = memory.index;
                return self.go(if self.index.0 & 1 == 1 { At::Old } else { At::Table });
            }
            At::Old => {
                self.old = memory.old;
                return self.go(if self.old == NO_TABLE { At::Table } else { At::OldTable });
            }
            At::OldTable => self.old,
            _ => self.index.1,
        };
        match entry(table) {
            0 | MOVED if self.at == At::OldTable => self.go(At::Table),
            0 | MOVED => self.go(At::IndexAgain),
            found => {
                (self.place, self.reference) = (table, found);
                self.generation = memory.record(found).generation;
                self.go(if self.kind == Kind::Pinned { At::Copy } else { At::Generation })
            }
        }
    }

    /// Takes the record at `reference`.
    fn take(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        let record = *memory.record(self.reference);
        match self.at {
            At::Generation => {
                self.generation = record.generation;
                self.go(if self.newer == 0 { At::EntryAgain } else { At::Copy })
            }
            At::EntryAgain => {
                let entry = memory.tables[usize::from(self.place)][usize::from(self.key())];
                if entry != self.reference && mistake != Mistake::EntryOnce {
                    return self.look_again();
                }
                self.go(At::Copy)
            }
            At::Copy if self.kind == Kind::Pinned => {
                let is_same = record.generation & !1 == self.generation & !1;
                if record.state == Use::Free || !is_same {
                    return Err(format!("reused under a pin: {self:?}"));
                }
                self.copy = Some(record);
                self.version()
            }
            // In two parts, as it may be torn.
            At::Copy => {
                self.copy = Some(Record { value: 0, ..record });
                self.go(At::CopyValue)
            }
            At::CopyValue => {
                self.copy = self.copy.map(|copy| Record { value: record.value, ..copy });
                self.go(At::GenerationAgain)
            }
            _ => {
                let copy = self.copy.expect("a copy");
                if record.generation != self.generation && mistake != Mistake::GenerationOnce {
                    return if self.newer == 0 { self.look_again() } else { Ok(Step::TooNew) };
                }
                let falls = self.newer == 0 || copy.lsn < self.newer;
                if copy.key != self.key() || !falls {
                    return if self.newer == 0 { self.look_again() } else { Ok(Step::TooNew) };
                }
                if self.newer == 0 { self.go(At::IndexAgain) } else { self.version() }
            }
        }
    }

    /// Behind a miss, or a foreign hit.
    fn look_at_index_again(&mut self, memory: &Memory, mistake: Mistake) -> Result<Step, String> {
        if memory.index != self.index && mistake != Mistake::IndexOnce {
            return self.look_again();
        }
        if self.copy.is_some() {
            return self.version();
        }
        if self.alone { self.found() } else { self.go(At::Stamp) }
    }

    /// What the copy says at the moment, or now.
    fn version(&mut self) -> Result<Step, String> {
        let copy = self.copy.expect("a copy");
        if self.alone || copy.lsn <= self.lsn {
            return self.found();
        }
        if copy.prev == 0 {
            return self.go(At::Stamp);
        }
        (self.newer, self.reference) = (copy.lsn, copy.prev);
        (self.generation, self.copy) = (copy.prev_generation, None);
        self.go(if self.kind == Kind::Pinned { At::Copy } else { At::Generation })
    }

    /// The key's version is known.
    fn found(&mut self) -> Result<Step, String> {
        let has_time = self.copy.is_some_and(|copy| copy.expiry != 0);
        if self.alone && has_time && !self.has_clock {
            return self.go(At::Clock);
        }
        match self.kind {
            _ if self.alone => self.go(At::SingleIntent),
            Kind::Pinned => self.judge(),
            Kind::Foreign(_) => self.go(At::IncarnationAgain),
        }
    }

    /// Whether the version is over; then the next key.
    fn judge(&mut self) -> Result<Step, String> {
        let is_over = |copy: &Record| copy.expiry != 0 && copy.expiry < self.clock;
        let value = self.copy.filter(|copy| !is_over(copy)).map_or(0, |copy| copy.value);
        self.values[usize::from(self.now)] = value;
        self.now += 1;
        self.newer = 0;
        if self.now == self.count {
            return Ok(Step::Told);
        }
        self.look_again()
    }
}
