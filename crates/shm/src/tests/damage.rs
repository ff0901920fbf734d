//! Files that somebody has damaged: the writer refuses to adopt them, and `verify` names the same
//! place.

use super::{Arena, directory, spec};
use crate::format::layout::{entry, generation_offset, header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ArenaSpec, Domain, RecordRef, WriteError, Writer, verify};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

/// Closes an arena and stores words in its file.
fn damaged(a: Arena, words: &[(u64, u32)]) -> ArenaSpec {
    let spec = a.spec.clone();
    drop(a);
    let file = std::fs::OpenOptions::new().write(true).open(&spec.path).unwrap();
    for (at, word) in words {
        file.write_all_at(&word.to_le_bytes(), *at).unwrap();
    }
    spec
}

/// Both refuse the file, for the same reason at the same place.
fn assert_refused(spec: &ArenaSpec, at: u64, reason: &str) {
    let report = verify(&spec.path).unwrap();
    let error = Writer::adopt(spec, &Domain::new(1)).err().expect("it was adopted");
    let ArenaError::Damaged { offset, what, expected, found, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((offset, what), (at, reason), "{expected}, {found}");
    let places: Vec<_> = report.findings.iter().map(|finding| finding.offset).collect();
    assert_eq!(places, [at], "{:?}", report.findings);
}

/// Offset of a key's record.
fn record_of(a: &Arena, key: &[u8]) -> u64 {
    let pin = a.me.pin();
    a.reader.get(&pin, a.writer.hash(key), key).unwrap().reference().offset()
}

#[test]
fn an_entry_with_a_tag_and_no_record_is_damage() {
    // EMPTY, DELETED and MOVED have the tag 0. An entry with another was adopted; one part of the
    // writer took it for room, the other didn't.
    for reference in 0..=2 {
        let dir = directory();
        let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
        a.put(b"k", b"v", 0).unwrap();
        let at = a.writer.index.current().offset;
        let at = (at..).step_by(8).find(|&at| a.writer.words.load64(at, Relaxed) == 0).unwrap();
        let spec = damaged(a, &[(at, 7), (at + 4, reference)]);
        assert_refused(&spec, at, "tag of an entry without a record");
    }
}

#[test]
fn an_entry_that_no_search_comes_to_is_damage() {
    // One bit of a deleted entry was flipped, in a full line past which a key had been pushed: the
    // entry was EMPTY then, and the key gone for searches. The file was adopted and passed for
    // whole; the log's compaction dropped the key.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let mut keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_le_bytes).collect();
    let table = a.writer.index.current();
    keys.retain(|key| table.home(a.writer.hash(key)) == 5);
    keys.truncate(9);
    let entries = keys.iter().map(|key| {
        a.put(key, b"v", 0).unwrap();
        a.writer.index.locate(&a.writer.words, a.writer.hash(key), key).found.unwrap().at
    });
    let entries: Vec<u64> = entries.collect();
    assert_eq!(entries[8], table.line_offset(6), "the last finds no room at home");
    assert!(a.delete(&keys[0]));
    let (mut a, _) = a.again();
    assert!(a.get(&keys[8]).is_some());
    a.settle();
    let spec = damaged(a, &[(entries[0] + 4, 0)]);
    assert_refused(&spec, entries[8], "place of an entry");
}

#[test]
fn an_entry_that_is_no_room_is_promised_to_no_commit() {
    // All sixteen lines of a hash are full but for an entry that is neither EMPTY nor DELETED. The
    // commit of one more key with that hash was begun, and died behind its intent: where a place
    // was promised there was none.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    for i in 0..128u32 {
        a.writer.put(&a.me.pin(), 0, &i.to_le_bytes(), &[b"v"], 0).unwrap();
    }
    let words = a.writer.words;
    let place = a.writer.index.locate(&words, 0, &127u32.to_le_bytes()).found.unwrap();
    words.store64(place.at, entry(7, 1), Relaxed);
    let refs: Vec<RecordRef> = [(0, b"new"), (40, b"two")]
        .map(|(hash, key)| a.writer.stage(hash, key, &[b"v"], 0).unwrap())
        .into();
    let refused = a.writer.commit(&a.me.pin(), false, &refs);
    assert_eq!(refused, Err(WriteError::TooManyKeysWithOneHash));
    assert_eq!(words.load32(header::INTENT, Relaxed), 0);
}

#[test]
fn a_record_in_a_slot_that_waits_to_be_reused_is_damage() {
    // An odd generation says that nothing names the slot. The file was adopted, and the first
    // record that was staged there met the assertion that no reference is kept too long.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let slot = a.writer.space.geometry().slot_of(record_of(&a, b"k"));
    let at = generation_offset(slot);
    let odd = a.writer.space.generation(slot) | 1;
    assert_refused(&damaged(a, &[(at, odd)]), at, "generation of a slot in use");
}

#[test]
fn a_run_that_waits_to_be_reused_is_damage() {
    // The run's generation is odd, and its name says the same.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"large", &vec![1; 200_000], 0).unwrap();
    let name = record_of(&a, b"large") + r::KEY + 8;
    let slot = a.writer.words.load32(name, Relaxed);
    let at = generation_offset(slot);
    let odd = a.writer.space.generation(slot) | 1;
    assert_refused(&damaged(a, &[(at, odd), (name + 8, odd)]), at, "generation of a slot in use");
}

#[test]
fn a_table_that_waits_to_be_reused_is_damage() {
    // So is the slot of the index.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let slot = a.writer.index.current().slot;
    let at = generation_offset(slot);
    let odd = a.writer.space.generation(slot) | 1;
    assert_refused(&damaged(a, &[(at, odd)]), at, "generation of a slot in use");
}

/// Offset of a word and what is stored there; offset that is named, and why.
type Damage = (u64, u32, u64, &'static str);

/// An arena in which a writer died behind its intent, which sets two keys: offsets of the list's
/// first word and of the two records.
fn with_intent(spec: &ArenaSpec) -> (Arena, u64, [u64; 2]) {
    let mut a = Arena::create(spec);
    let records = [b"one", b"two"].map(|key| {
        let hash = a.writer.hash(key);
        a.writer.stage(hash, key, &[b"v"], 0).unwrap()
    });
    let list = records.map(|record| record.entry());
    let intent = a.writer.append_intent(&list, None, false).unwrap();
    a.writer.number(Some(intent), None, &list);
    a.writer.words.store32(header::INTENT, intent.reference, Relaxed);
    (a, intent.offset() + r::KEY, records.map(|record| record.offset()))
}

#[test]
fn an_intent_is_redone_as_long_as_all_that_it_lists_is_whole() {
    // The check looked at the intent's record only: it passed files whose list the next writer
    // refuses.
    let dir = directory();
    let spec = spec(dir.path().join("a"), 4 * MIB);
    let (a, ..) = with_intent(&spec);
    drop(a);
    let report = verify(&spec.path).unwrap();
    assert!(report.findings.is_empty() && report.unfinished_commit, "{report:?}");
    let (a, adoption) = Arena::adopt(&spec);
    assert!(adoption.redone_intent && a.get(b"one").is_some() && a.get(b"two").is_some());
    drop(a);

    let damages: [fn(u64, [u64; 2]) -> Damage; 3] = [
        // A word of the list names no record, or lies; a record is an intent, or another key's.
        |list, _| (list + 8, 2, list + 8, "reference in an intent"),
        |list, _| (list + 4, 0xFFFF_FFFF, list + 4, "reference"),
        |_, [one, _]| {
            (one + r::KEY_LEN, 3 | u32::from(r::KIND_INTENT) << 16, one, "kind of a record")
        },
    ];
    for damage in damages {
        std::fs::remove_file(&spec.path).unwrap();
        let (a, list, records) = with_intent(&spec);
        let (at, word, found_at, reason) = damage(list, records);
        assert_refused(&damaged(a, &[(at, word)]), found_at, reason);
    }
    // A record says something else than it was summed for; so does the list.
    std::fs::remove_file(&spec.path).unwrap();
    let (a, _, [_, two]) = with_intent(&spec);
    let refused = damaged(a, &[(two + r::EXPIRY, 5)]);
    assert_refused(&refused, two, "checksum of a record");
    std::fs::remove_file(&spec.path).unwrap();
    let (a, list, _) = with_intent(&spec);
    let refused = damaged(a, &[(list - r::KEY + r::EXPIRY, 1)]);
    assert_refused(&refused, list - r::KEY, "checksum of a record");
    std::fs::remove_file(&spec.path).unwrap();
    let (a, list, _) = with_intent(&spec);
    let intent = list - r::KEY;
    // Three words and a half.
    let spec = damaged(a, &[(intent + r::VALUE_LEN, 14)]);
    assert_refused(&spec, intent, "intent");
}

#[test]
fn a_file_that_is_over_or_counts_beyond_all_writers_is_refused() {
    // The mark of a file that is over was adopted as a writer's number, and the numbers before it
    // overflowed.
    let over = u64::MAX;
    for incarnation in [over, over - 1, over - 2, 1 << 62] {
        let dir = directory();
        let a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
        a.writer.words.store64(header::INCARNATION, incarnation, Relaxed);
        let spec = a.spec.clone();
        drop(a);
        if incarnation < over {
            assert_refused(&spec, header::INCARNATION, "incarnation");
            continue;
        }
        let error = Writer::adopt(&spec, &Domain::new(1)).err().expect("it was adopted");
        assert!(matches!(error, ArenaError::Over { .. }), "{error}");
        let [finding] = &verify(&spec.path).unwrap().findings[..] else { panic!("one finding") };
        assert!(finding.what.contains("over"), "{finding:?}");
    }
}
