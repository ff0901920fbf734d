//! An owner, its readers, and what there has been: all orders of their steps.
//!
//! The history has the state behind each work. A read must show one of those that there were
//! between its beginning and its end, and none from before what an earlier read has shown: strict
//! serialisability. A work that a kill cuts off has happened or not, as the next owner says; if a
//! read has shown it, it has happened.

use crate::Mistake;
use crate::memory::{KEYS, Memory, Store};
use crate::owner::{Owner, Work};
use crate::reader::{Kind, Read, Reader, Retired, Step};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// What is tried in all orders.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) present: [Option<u8>; KEYS],
    pub(crate) works: Vec<Work>,
    pub(crate) kind: Kind,
    pub(crate) reads: Vec<Vec<Read>>,
    /// Kills of the owner, in the midst of a work or of taking over.
    pub(crate) kills: u8,
    pub(crate) mistake: Mistake,
}

/// The keys and the time behind a work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Moment {
    keys: [(u8, u8); KEYS],
    clock: u8,
}

impl Moment {
    fn of(memory: &Memory) -> Moment {
        Moment { keys: memory.values(), clock: memory.clock }
    }

    fn shows(&self, key: u8, value: u8) -> bool {
        let (is, expiry) = self.keys[usize::from(key)];
        value == if expiry != 0 && expiry < self.clock { 0 } else { is }
    }
}

/// A reader between its reads, and the least state that its read may show.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Seat {
    reads_done: u8,
    reader: Option<Reader>,
    least: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    memory: Memory,
    owner: Owner,
    is_dead: bool,
    kills_left: u8,
    works_done: u8,
    /// A work, or an adoption, is under way.
    is_under_way: bool,
    turn: u8,
    /// The largest number that a store has shown.
    shown: u8,
    history: Vec<Moment>,
    /// The first state that a new read may show.
    least: u8,
    seats: Vec<Seat>,
}

impl World {
    fn new(case: &Case) -> World {
        let memory = Memory::new(case.present);
        let seat = Seat { reads_done: 0, reader: None, least: 0 };
        World {
            owner: Owner::new(&memory, case.mistake),
            history: vec![Moment::of(&memory)],
            memory,
            is_dead: false,
            kills_left: case.kills,
            works_done: 0,
            is_under_way: false,
            turn: 0,
            shown: 0,
            least: 0,
            seats: vec![seat; case.reads.len()],
        }
    }

    fn last(&self) -> u8 {
        u8::try_from(self.history.len() - 1).expect("few works")
    }

    /// The owner's next store, or what it stages; false if it has nothing to do.
    fn own(&mut self, case: &Case) -> Result<bool, String> {
        if self.is_dead {
            self.adopt(case)?;
            return Ok(true);
        }
        if let Some(store) = self.owner.queue.pop_front() {
            self.memory.apply(store);
            self.shown = self.shown.max(self.memory.number_shown(store));
            if let Store::Retire(reference) = store {
                self.turn += 1;
                self.owner.retired.push((reference, self.turn));
            }
            return Ok(true);
        }
        if self.is_under_way {
            // Its reply goes out.
            (self.is_under_way, self.least) = (false, self.last());
            if case.kind != Kind::Foreign(Retired::Kept) {
                self.collect();
            }
            return Ok(true);
        }
        let Some(work) = case.works.get(usize::from(self.works_done)) else { return Ok(false) };
        self.works_done += 1;
        let before = self.owner.lsn;
        self.owner.begin(&mut self.memory, *work, self.works_done);
        if self.owner.lsn > before && before < self.shown {
            return Err(format!("number {} is given again", before + 1));
        }
        self.is_under_way = true;
        let mut behind = self.memory.clone();
        self.owner.queue.iter().for_each(|store| behind.apply(*store));
        self.history.push(Moment::of(&behind));
        Ok(true)
    }

    /// Takes memory back for which no reader stands.
    fn collect(&mut self) {
        let seen = self.seats.iter().filter_map(|seat| seat.reader.as_ref()?.seen).min();
        let passed = |(_, turn): &(u8, u8)| seen.is_none_or(|seen| *turn <= seen);
        let (free, kept) = self.owner.retired.iter().partition(|retired| passed(retired));
        self.owner.retired = kept;
        let free: Vec<(u8, u8)> = free;
        for (reference, _) in free {
            self.owner.queue.extend([Store::GiveBack(reference), Store::CountReuse]);
        }
    }

    /// The next owner looks at what there is.
    fn adopt(&mut self, case: &Case) -> Result<(), String> {
        self.owner = Owner::adopt(&self.memory, case.mistake);
        self.is_dead = false;
        let mut behind = self.memory.clone();
        self.owner.queue.iter().for_each(|store| behind.apply(*store));
        let ends = Moment::of(&behind);
        if ends == self.history[self.history.len() - 1] {
            return Ok(());
        }
        if self.history.len() < 2 || ends != self.history[self.history.len() - 2] {
            return Err(format!("half of a work is left: {ends:?} of {:?}", self.history));
        }
        if self.least == self.last() {
            return Err("taken back though it was read".to_owned());
        }
        self.history.pop();
        Ok(())
    }

    /// A reader's next load; false if it has nothing to do.
    fn read(&mut self, case: &Case, n: usize) -> Result<bool, String> {
        let seat = &mut self.seats[n];
        let Some(read) = case.reads[n].get(usize::from(seat.reads_done)) else { return Ok(false) };
        if seat.reader.is_none() {
            seat.reader = Some(Reader::new(case.kind, *read, case.mistake));
            seat.least = self.least;
        }
        let reader = seat.reader.as_mut().expect("made above");
        let step = reader.step(&self.memory, self.turn, case.mistake)?;
        match step {
            Step::Goes => return Ok(true),
            Step::TooNew => {}
            Step::Told => {
                let told: Vec<_> = reader.keys().iter().copied().zip(reader.values).collect();
                let from = seat.least;
                let shows = |at: &u8| {
                    let moment = &self.history[usize::from(*at)];
                    told.iter().all(|&(key, value)| moment.shows(key, value))
                };
                let Some(at) = (from..=self.last()).find(shows) else {
                    return Err(format!("{told:?} is no state from {from} on: {:?}", self.history));
                };
                self.least = self.least.max(at);
            }
        }
        let seat = &mut self.seats[n];
        (seat.reader, seat.least) = (None, 0);
        seat.reads_done += 1;
        Ok(true)
    }
}

/// Of worlds, which have many small fields: SipHash takes most of the time.
#[derive(Default)]
struct FieldHasher(u64);

impl Hasher for FieldHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }
    fn write_u64(&mut self, word: u64) {
        // An odd number with many bits, by which products spread.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

/// Tries all orders of a case: how many states there are, or what is wrong.
pub(crate) fn explore(case: &Case) -> Result<usize, String> {
    let hasher = BuildHasherDefault::<FieldHasher>::default();
    let mut known = HashSet::with_hasher(hasher.clone());
    let mut open = vec![World::new(case)];
    known.insert(hasher.hash_one(&open[0]));
    while let Some(world) = open.pop() {
        let mut add = |next: World| {
            if known.insert(hasher.hash_one(&next)) {
                open.push(next);
            }
        };
        let mut next = world.clone();
        if next.own(case)? {
            add(next);
        }
        for n in 0..case.reads.len() {
            let mut next = world.clone();
            if next.read(case, n)? {
                add(next);
            }
        }
        if world.kills_left > 0 && world.is_under_way && !world.is_dead {
            let mut next = world.clone();
            (next.is_dead, next.kills_left) = (true, world.kills_left - 1);
            next.owner.queue.clear();
            next.owner.retired.clear();
            add(next);
        }
    }
    Ok(known.len())
}
