//! `verify` and adoption agree on every file: what the one calls whole the other takes, and the
//! first thing that the one finds is what the other refuses.
//!
//! ```text
//! sound arena ─► some words changed ─► verify: whole or damaged
//!                                  └─► adopt:  taken or refused, for the same reason at the same place
//! ```
//!
//! What adoption ends or gives back by itself is no finding: an unfinished commit or growth, an
//! entry in both tables, a commit sequence or a generation that a kill left odd. The crash tests
//! verify before they adopt, after a kill at any store; here such a file is whole as long as
//! nothing else is changed.

use super::{Arena, directory, spec};
use crate::format::head::Head;
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ArenaReport, ArenaSpec, Domain, RecordRef, WriteError, Writer, verify};
use std::sync::atomic::Ordering::Relaxed;

const CAPACITY_BYTES: u64 = 2 << 20;
/// Damages of each arena.
const CASES: u64 = 500;
/// Words that are changed at once, at most.
const CHANGES_MAX: u64 = 3;
/// One change of so many goes anywhere; the others go to words that say something.
const ANYWHERE: u64 = 8;

/// Numbers from a seed (Knuth's MMIX generator, upper bits).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of(&mut self, words: &[u64]) -> u64 {
        words[self.below(words.len() as u64) as usize]
    }
}

/// A sound file.
struct Sound {
    bytes: Vec<u8>,
    /// Offsets of the words that say something: of the header, of slots, of entries, of records.
    kinds: Vec<Vec<u64>>,
    /// Offsets of entries, and of the names of runs.
    entries: Vec<u64>,
    names: Vec<u64>,
}

impl Sound {
    fn of(a: &Arena) -> Sound {
        let words = a.writer.words;
        let (mut entries, mut names) = (Vec::new(), Vec::new());
        let (mut records, mut slots) = (Vec::new(), Vec::new());
        a.writer.index.each(&words, &mut |at, e| {
            let (offset, head) = ((e >> 32) * r::UNIT, Head::load(&words, (e >> 32) * r::UNIT));
            entries.push(at);
            names.extend(head.has_run().then(|| offset + head.value_at()));
            records.extend(words_of(&words, offset));
        });
        let intent = u64::from(words.load32(header::INTENT, Relaxed)) * r::UNIT;
        if intent != 0 {
            records.extend(words_of(&words, intent));
        }
        let bytes = std::fs::read(&a.spec.path).unwrap();
        let g = a.writer.space.geometry();
        for slot in 0..g.slot_of(bytes.len() as u64) {
            slots.extend([g.generation_offset(slot), g.tail_offset(slot)]);
        }
        let fixed = (0..header::TENANT).step_by(4).collect();
        let shared = (header::INCARNATION..header::CLEANED_SEGMENTS + 8).step_by(4).collect();
        let halves = entries.iter().flat_map(|&at| [at, at + 4]).collect();
        let kinds = vec![fixed, shared, slots, halves, records];
        Sound { bytes, kinds, entries, names }
    }

    fn word(&self, at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    /// Some words, and what is to stand there.
    fn damage(&self, random: &mut Random) -> Vec<(u64, u32)> {
        match random.below(8) {
            0 => self.many_entries_of_one(random),
            1 if !self.names.is_empty() => self.run_elsewhere(random),
            2 => vec![(header::OLD, self.word(header::CURRENT))],
            _ => {
                let changes = 1 + random.below(CHANGES_MAX);
                (0..changes).map(|_| self.change(random)).collect()
            }
        }
    }

    /// Up to as many entries as fill a segment name one record.
    fn many_entries_of_one(&self, random: &mut Random) -> Vec<(u64, u32)> {
        let from = random.one_of(&self.entries);
        let entry = [self.word(from), self.word(from + 4)];
        let to = self.entries.iter().take(random.below(self.entries.len() as u64) as usize);
        to.flat_map(|&at| [(at, entry[0]), (at + 4, entry[1])]).collect()
    }

    /// A run is said to lie in some slot, and its name has that slot's generation.
    fn run_elsewhere(&self, random: &mut Random) -> Vec<(u64, u32)> {
        let name = random.one_of(&self.names);
        let slot = random.below(self.kinds[2].len() as u64 / 2) as usize;
        vec![(name, slot as u32), (name + 8, self.word(self.kinds[2][2 * slot]))]
    }

    fn change(&self, random: &mut Random) -> (u64, u32) {
        if random.below(ANYWHERE) == 0 {
            let at = random.below(self.bytes.len() as u64 / 4) * 4;
            return (at, random.0 as u32);
        }
        let kind = &self.kinds[random.below(self.kinds.len() as u64) as usize];
        let at = random.one_of(kind);
        let now = self.word(at);
        let word = match random.below(8) {
            0 => now ^ 1,
            1 => now ^ (1 << random.below(32)),
            2 => now.wrapping_add(1),
            3 => now.wrapping_sub(1),
            4 => random.below(64) as u32,
            5 => random.0 as u32,
            // What stands elsewhere in words of its kind: two entries of one record, two uses of
            // one slot.
            _ => self.word(random.one_of(kind)),
        };
        (at, word)
    }
}

/// The words of a record that say something, its value's first ones among them: the name of a run,
/// a list.
fn words_of<W: SharedWords>(words: &W, offset: u64) -> impl Iterator<Item = u64> {
    let key_len = u64::from(words.load32(offset + r::KEY_LEN, Relaxed) & 0xFFFF);
    let value = offset + r::KEY + key_len.next_multiple_of(8);
    (offset..offset + r::KEY).chain(value..value + 16).step_by(4)
}

/// Small and large values, a run with two names, in an index that grows.
fn growing(spec: &ArenaSpec) -> Arena {
    let mut a = Arena::create(spec);
    let value = vec![7; 5000];
    for i in 0..60u32 {
        a.put(&i.to_be_bytes(), &value, u64::from(i % 3)).unwrap();
    }
    for i in (0..60u32).filter(|i| i % 4 != 0) {
        assert!(a.delete(&i.to_be_bytes()));
    }
    a.put(b"large", &vec![1; 200_000], 0).unwrap();
    a.put(b"other", &vec![2; 70_000], 9).unwrap();
    let record = a.reader.get(&a.me.pin(), a.writer.hash(b"large"), b"large").unwrap().reference();
    let hash = a.writer.hash(b"twin");
    let twin = a.writer.stage_moved_run(&a.me.pin(), record, hash, b"twin", 0).unwrap();
    a.writer.commit(&a.me.pin(), false, &[twin]).unwrap();
    for i in 1000u32.. {
        if a.writer.stats().growing {
            break;
        }
        a.put(&i.to_be_bytes(), b"small", 0).unwrap();
    }
    a
}

/// The same, whose writer died when it had published all of a commit and not yet said so.
fn in_commit(spec: &ArenaSpec) -> Arena {
    let mut a = growing(spec);
    let mut staged = Vec::new();
    for (key, value) in [(&b"new"[..], vec![1; 100]), (b"large", vec![2; 90_000])] {
        staged.push(a.writer.stage(a.writer.hash(key), key, &[&value], 0).unwrap());
    }
    let gone = 1000u32.to_be_bytes();
    staged.push(a.writer.stage_delete(a.writer.hash(&gone), &gone).unwrap());
    let list: Vec<u64> = staged.iter().map(RecordRef::entry).collect();
    let intent = a.writer.append_intent(&list, None, false).unwrap();
    let words = a.writer.words;
    a.writer.number(Some(intent), None, &list);
    a.writer.publish_all(intent.reference, None, &list);
    words.store32(header::INTENT, intent.reference, Relaxed);
    a
}

/// Memory full to the last segment, after much cleaning.
fn full(spec: &ArenaSpec) -> Arena {
    let mut a = Arena::create(spec);
    let mut random = Random(3);
    for i in 0..2000u32 {
        let (key, len) = (random.below(700) as u32, 500 + random.below(4000) as usize);
        let _ = a.put_soon(&key.to_be_bytes(), &vec![i as u8; len]);
        if i % 8 == 0 {
            a.turn();
        }
    }
    assert!(a.writer.stats().cleaner.segments > 0);
    a
}

/// What both say; whether they say that the file is whole.
fn judged(spec: &ArenaSpec, case: &str) -> Option<bool> {
    let report = verify(&spec.path);
    let adopted = Writer::adopt(spec, &Domain::new(1));
    let ArenaError::Damaged { offset, what, .. } = (match adopted {
        Ok((writer, adoption)) => {
            let report = report.unwrap_or_else(|e| panic!("{case}: adopted, but {e}"));
            assert!(report.findings.is_empty(), "{case}: adopted, but {:?}", report.findings);
            if !report.growing && !report.unfinished_commit {
                assert_eq!((report.keys, report.expires), (adoption.keys, adoption.expires));
                assert_eq!(report.live_bytes, writer.space.live_bytes(), "{case}");
            }
            drop(writer);
            assert_whole(&verify(&spec.path).unwrap(), case);
            return Some(true);
        }
        // Somebody else's name is no damage, nor is another version.
        Err(ArenaError::WrongTenant { .. }) => return None,
        Err(ArenaError::OtherVersion { found, .. }) => {
            let said = report.expect_err(case);
            let is_same = matches!(said, ArenaError::OtherVersion { found: it, .. } if it == found);
            assert!(is_same, "{case}: {said}");
            return None;
        }
        Err(error) => error,
    }) else {
        panic!("{case}: neither adopted nor damaged")
    };
    let first = match report {
        Ok(report) => report.findings.first().map(|f| (f.offset, f.what.clone())),
        Err(ArenaError::Damaged { offset, what, .. }) => Some((offset, what.to_string())),
        Err(error) => panic!("{case}: {error}"),
    };
    let (at, why) =
        first.unwrap_or_else(|| panic!("{case}: whole, but {what} at {offset} refused"));
    assert!(at == offset && why.starts_with(what), "{case}: {why} at {at}, {what} at {offset}");
    Some(false)
}

fn assert_whole(report: &ArenaReport, case: &str) {
    assert!(report.findings.is_empty(), "{case}: {:?}", report.findings);
}

/// Damages a sound file again and again.
fn agree_on(make: fn(&ArenaSpec) -> Arena, seed: u64) {
    let dir = directory();
    let spec = spec(dir.path().join("a"), CAPACITY_BYTES);
    let a = make(&spec);
    let sound = Sound::of(&a);
    drop(a);
    std::fs::write(&spec.path, &sound.bytes).unwrap();
    assert_eq!(judged(&spec, "sound"), Some(true));
    let (mut whole, mut damaged) = (0, 0);
    let mut random = Random(seed);
    for case in 0..CASES {
        let changes = sound.damage(&mut random);
        let mut bytes = sound.bytes.clone();
        for &(at, word) in &changes {
            bytes[at as usize..at as usize + 4].copy_from_slice(&word.to_le_bytes());
        }
        if random.below(50) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        // Another file each time: the one before is mapped until its writer's readers are gone.
        std::fs::remove_file(&spec.path).unwrap();
        std::fs::write(&spec.path, &bytes).unwrap();
        match judged(&spec, &format!("case {case}, words {changes:x?}")) {
            Some(true) => whole += 1,
            Some(false) => damaged += 1,
            None => {}
        }
    }
    assert!(whole > CASES / 20 && damaged > CASES / 5, "{whole} whole, {damaged} damaged");
}

#[test]
fn verify_and_adoption_agree_on_a_damaged_growing_index() {
    // Entries stand in two tables; values lie in runs, one of which has two names.
    agree_on(growing, 1);
}

#[test]
fn verify_and_adoption_agree_on_a_damaged_unfinished_commit() {
    // Each record of the commit is named by the index and by the list.
    agree_on(in_commit, 2);
}

#[test]
fn verify_and_adoption_agree_on_a_damaged_full_arena() {
    // No slot is free for a damaged name to lead to.
    agree_on(full, 3);
}

#[test]
fn an_unfinished_commit_in_a_full_arena_is_no_damage_and_is_ended() {
    // The writer died behind its intent, when live and staged records took all memory. What the
    // commit needs beyond its records is there again: the empty table of one that clears first,
    // places for keys that are new.
    const KEYS: u32 = 100;
    for clear_first in [false, true] {
        let dir = directory();
        let spec = spec(dir.path().join("a"), CAPACITY_BYTES);
        let mut a = full(&spec);
        (0..200u32).for_each(|i| _ = a.delete(&i.to_be_bytes()));
        a.settle();
        let (gone, mut list) = (300u32.to_be_bytes(), Vec::new());
        for i in 0..KEYS {
            let key = (1000 + i).to_be_bytes();
            let hash = a.writer.hash(&key);
            let staged = a.soon(|a| a.writer.stage(hash, &key, &[&[9; 300]], 0)).unwrap();
            list.push(staged.entry());
        }
        list.push(a.writer.stage_delete(a.writer.hash(&gone), &gone).unwrap().entry());
        let table = a.writer.prepare_commit(clear_first, &list, true).unwrap();
        let intent = a.soon(|a| a.writer.append_intent(&list, table, false)).unwrap();
        a.writer.number(Some(intent), table, &list);
        let filler = (2000u32..).map(u32::to_be_bytes);
        let refused = filler.map(|key| a.put_soon(&key, &[1; 3000])).find_map(Result::err);
        assert_eq!(refused, Some(WriteError::Oom));
        a.writer.words.store32(header::INTENT, intent.reference, Relaxed);
        drop(a);
        let report = verify(&spec.path).unwrap();
        assert!(report.findings.is_empty() && report.unfinished_commit, "{report:?}");
        let (a, adoption) = Arena::adopt(&spec);
        assert!(adoption.redone_intent && a.get(&gone).is_none());
        assert!((0..KEYS).all(|i| a.get(&(1000 + i).to_be_bytes()).is_some()));
        assert!(!clear_first || adoption.keys == u64::from(KEYS));
    }
}
