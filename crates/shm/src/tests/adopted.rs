//! What an adoption stores, and in which order, beside what the stories of deaths look at.

use super::{Arena, assert_counted, directory, spec};
use crate::failpoints::before_each_step;
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ArenaSpec, Domain, DurableWord, Writer};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

/// An arena of two keys, one of which expires, whose writer has gone.
fn left() -> (tempfile::TempDir, ArenaSpec) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"a", b"v", 0).unwrap();
    a.put(b"b", b"v", 7).unwrap();
    let spec = a.spec.clone();
    drop(a);
    (dir, spec)
}

fn word(path: &Path, at: u64) -> u64 {
    let mut bytes = [0; 8];
    File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    u64::from_le_bytes(bytes)
}

fn store(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn the_incarnation_is_odd_from_the_first_store_to_the_last() {
    // As an end left it, and as a death within an adoption did.
    for (before, meanwhile) in [(2u64, 3), (3, 5), (5, 7)] {
        let (_dir, spec) = left();
        store(&spec.path, header::INCARNATION, &before.to_le_bytes());
        let (path, seen) = (spec.path.clone(), Rc::new(RefCell::new(Vec::new())));
        let noted = Rc::clone(&seen);
        let look = move || noted.borrow_mut().push(word(&path, header::INCARNATION));
        let domain = Domain::new(4);
        let adopt = || Writer::adopt(&spec, &domain);
        let (_writer, adoption) = before_each_step(look, adopt).expect("an arena");
        assert_eq!(adoption.incarnation, meanwhile + 1);
        assert_eq!(word(&spec.path, header::INCARNATION), meanwhile + 1);
        let seen = seen.borrow();
        assert!(seen.len() > 3 && seen[0] == before, "{seen:?}");
        assert!(seen[1..].iter().all(|&it| it == meanwhile), "{seen:?}");
    }
}

/// The word that says what is on disk was kept as it was found. A bit that had flipped in it made
/// each start with a log panic, since the log's word was less; one without a log left it, and a log
/// that began later passed for synced.
#[test]
fn nothing_is_durable_until_the_log_says_so() {
    let (_dir, spec) = left();
    for found in [2u64, 1 << 63 | 2] {
        store(&spec.path, header::DURABLE_LSN, &found.to_le_bytes());
        let (a, _) = Arena::adopt(&spec);
        assert_eq!(a.reader.durable_lsn(), 0);
        DurableWord::of(a.writer.region()).store(2);
        assert_eq!(a.reader.durable_lsn(), 2);
    }
}

#[test]
fn the_capacity_is_as_asked_but_no_more_than_the_addresses_that_there_are() {
    let (_dir, made) = left();
    let addresses = crate::format::header_info::header_of(&made.path).unwrap().g.address_bytes;
    for (asked, given) in [(6 * MIB, 6 * MIB), (9 * MIB, 9 * MIB), (1 << 50, addresses)] {
        let asked = ArenaSpec { capacity_bytes: asked, ..made.clone() };
        let (a, adoption) = Arena::adopt(&asked);
        assert_eq!((adoption.capacity_bytes, a.writer.stats().capacity_bytes), (given, given));
        assert_eq!(word(&made.path, header::CAPACITY), given);
    }
}

#[test]
fn what_nothing_uses_has_no_tail_and_reads_as_zeros() {
    // Behind the pages of a run, and in a slot that nothing claims.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let long = vec![1; 200_000];
    a.put(b"long", &long, 0).unwrap();
    a.put(b"gone", &long, 0).unwrap();
    assert!(a.delete(b"gone"));
    let value = {
        let pin = a.me.pin();
        let found = a.reader.get(&pin, a.reader.hash(b"long"), b"long").expect("a key");
        found.value_ref().offset()
    };
    let (g, path) = (*a.writer.space.geometry(), a.spec.path.clone());
    let slot = g.slot_of(path.metadata().unwrap().len()) - 1;
    drop(a);
    let behind = value + 49 * 4096;
    for at in [behind, g.slot_offset(slot), g.tail_offset(slot)] {
        store(&path, at, &7u32.to_le_bytes());
    }
    let (a, _) = Arena::adopt(&spec(path.clone(), 8 * MIB));
    for at in [behind, g.slot_offset(slot), g.tail_offset(slot)] {
        assert_eq!(word(&path, at) & 0xFFFF_FFFF, 0, "{at}");
    }
    assert_eq!(a.get(b"long"), Some(long));
}

#[test]
fn a_name_that_no_arena_can_have_is_refused_as_such() {
    let (_dir, spec) = left();
    let wrong = ArenaSpec { tenant: String::new(), ..spec };
    let error = Writer::adopt(&wrong, &Domain::new(4)).err().expect("nobody's name");
    assert!(matches!(error, ArenaError::TenantName { len: 0, .. }), "{error}");
}

#[test]
fn a_table_that_growth_has_left_behind_is_forgotten() {
    // A death between the last two stores of growth leaves the old table's word.
    let (_dir, spec) = left();
    let mut current = [0; 4];
    File::open(&spec.path).unwrap().read_exact_at(&mut current, header::CURRENT).unwrap();
    store(&spec.path, header::OLD, &current);
    let (a, adoption) = Arena::adopt(&spec);
    assert!(!adoption.continued_growth);
    assert_eq!(word(&spec.path, header::OLD) & 0xFFFF_FFFF, 0);
    drop(a);
    // While it grows, the word stays.
    let dir = directory();
    let mut a = Arena::create(&super::spec(dir.path().join("a"), 8 * MIB));
    let mut n = 0u32;
    while !a.writer.index.growing() {
        a.put(&n.to_le_bytes(), b"v", 0).unwrap();
        n += 1;
    }
    let old = word(&a.spec.path, header::OLD) & 0xFFFF_FFFF;
    let (a, adoption) = a.again();
    assert!(old != 0 && adoption.continued_growth && a.writer.index.growing());
    assert_eq!(word(&a.spec.path, header::OLD) & 0xFFFF_FFFF, old);
}

#[test]
fn what_was_begun_when_a_writer_died_is_committed_behind_its_adoption() {
    let (_dir, spec) = left();
    // It had numbered a change, and stored nothing of it.
    store(&spec.path, header::BEGUN_LSN, &9u64.to_le_bytes());
    let (a, adoption) = Arena::adopt(&spec);
    assert_eq!((adoption.keys, adoption.expires, adoption.redone_intent), (2, 1, false));
    let lsn = a.writer.lsn;
    for at in [header::BEGUN_LSN, header::COMMITTED_LSN] {
        assert_eq!(word(&spec.path, at), lsn);
    }
}

#[test]
fn a_record_that_was_published_before_a_death_is_not_its_own_predecessor() {
    let (_dir, spec) = left();
    let (mut a, _) = Arena::adopt(&spec);
    let keys = [b"a", b"b"];
    let refs = keys.map(|key| a.writer.stage(a.writer.hash(key), key, &[b"new"], 0).unwrap());
    let copy = ArenaSpec { path: spec.path.with_extension("copy"), ..spec.clone() };
    let (words, from, to) = (a.writer.words, spec.path.clone(), copy.path.clone());
    // The last copy has both entries, and still the intent.
    let look = move || {
        if words.load32(header::INTENT, Relaxed) != 0 {
            std::fs::copy(&from, &to).unwrap();
        }
    };
    before_each_step(look, || a.writer.commit(&a.me.pin(), false, &refs)).unwrap();
    let (b, adoption) = Arena::adopt(&copy);
    assert!(adoption.redone_intent);
    for key in keys {
        let pin = b.me.pin();
        let record = b.reader.get(&pin, b.reader.hash(key), key).expect("its new version");
        let prev = |reference: u32| {
            b.writer.words.load32(u64::from(reference) * r::UNIT + r::PREV, Relaxed)
        };
        assert_eq!(record.value(), b"new");
        let before = prev(record.reference().reference);
        assert_ne!(before, record.reference().reference);
        assert_eq!(prev(before), 0, "the first version");
    }
}

#[test]
fn a_key_that_stands_in_both_tables_is_counted_once() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 2 * MIB));
    let mut n = 0u32;
    while !a.writer.index.growing() {
        a.put(&n.to_le_bytes(), b"v", 7).unwrap();
        n += 1;
    }
    // Lines move: before each store a copy is taken.
    let copies = Rc::new(RefCell::new(Vec::new()));
    let (noted, path, folder) = (Rc::clone(&copies), a.spec.path.clone(), dir.path().to_owned());
    let look = move || {
        let copy = folder.join(format!("{}", noted.borrow().len()));
        std::fs::copy(&path, &copy).unwrap();
        noted.borrow_mut().push(copy);
    };
    before_each_step(look, || a.writer.delete(&a.me.pin(), 1, b"nobody"));
    assert!(copies.borrow().len() > 9, "{copies:?}");
    for copy in copies.borrow().iter() {
        let (b, adoption) = Arena::adopt(&ArenaSpec { path: copy.clone(), ..a.spec.clone() });
        assert_eq!((adoption.keys, adoption.expires), (n.into(), n.into()));
        assert_counted(&b);
    }
}
