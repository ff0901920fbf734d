//! Commits of several keys, and what writes count and refuse.

use super::{Arena, directory, spec};
use crate::failpoints::before_each_step;
use crate::format::layout::{VALUE_BYTES_MAX, header};
use crate::format::words::SharedWords;
use crate::write::commit::all_fit;
use crate::{ArenaStats, CleanerStats, Rebuilds, WriteError};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

/// Commits these keys; whether an intent was there meanwhile.
fn has_intent(a: &mut Arena, clear_first: bool, keys: &[&[u8]]) -> bool {
    let stage = |key: &&[u8]| a.writer.stage(a.writer.hash(key), key, &[b"v"], 0).unwrap();
    let refs: Vec<_> = keys.iter().map(stage).collect();
    let (words, seen) = (a.writer.words, Rc::new(Cell::new(false)));
    let (noted, intent) = (Rc::clone(&seen), move || words.load32(header::INTENT, Relaxed) != 0);
    let look = move || noted.set(noted.get() || intent());
    before_each_step(look, || a.writer.commit(&a.me.pin(), clear_first, &refs).unwrap());
    assert!(!intent(), "the commit has ended");
    seen.get()
}

#[test]
fn a_commit_has_an_intent_unless_it_is_one_store() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    assert!(!has_intent(&mut a, false, &[b"a"]));
    assert!(!has_intent(&mut a, false, &[b"a", b"a"]), "of several for one key the last counts");
    assert!(has_intent(&mut a, false, &[b"a", b"b"]));
    assert!(has_intent(&mut a, true, &[b"c"]), "all goes, and one comes");
    assert!(!has_intent(&mut a, true, &[]), "all goes by one store");
}

#[test]
fn a_commit_takes_of_the_reserve_only_if_all_of_it_are_deletions() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let keys = [b"a", b"b", b"c"];
    keys.iter().for_each(|key| a.put(*key, b"v", 0).unwrap());
    let new = a.writer.stage(a.writer.hash(b"new"), b"new", &[b"v"], 0).unwrap();
    let gone = keys.map(|key| a.writer.stage_delete(a.writer.hash(key), key).unwrap());
    // Not even the shortest record finds room any more.
    let mut n = 0u32;
    for bytes in [10_000, 0] {
        while a.soon(|a| a.put(&n.to_le_bytes(), &vec![1; bytes], 0)).is_ok() {
            n += 1;
        }
    }
    let refused = a.soon(|a| a.writer.commit(&a.me.pin(), false, &[new, gone[0]]));
    assert_eq!(refused, Err(WriteError::Oom));
    a.writer.commit(&a.me.pin(), false, &gone).unwrap();
    assert!(keys.iter().all(|key| a.get(*key).is_none()) && a.get(b"new").is_none());
}

#[test]
#[should_panic(expected = "a record kept too long")]
fn a_record_whose_segment_has_gone_is_not_staged_again() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let (first, second) = (a.writer.hash(b"first"), a.writer.hash(b"second"));
    a.put(b"first", b"v", 0).unwrap();
    let kept = a.reader.get(&a.me.pin(), first, b"first").unwrap().reference();
    let staged = a.writer.stage_moved_run(&a.me.pin(), kept, second, b"second", 0).unwrap();
    a.writer.abandon(&[staged]);
    for _ in 0..20 {
        a.put(b"first", &[0; 60_000], 0).unwrap();
        a.turn();
    }
    let _ = a.writer.stage_moved_run(&a.me.pin(), kept, second, b"second", 0);
}

#[test]
fn keys_fit_a_table_as_long_as_one_of_sixteen_lines_has_room() {
    let mut taken = HashMap::new();
    // Of one hash: eight in each of sixteen lines, behind the table's end in its first ones.
    for (hash, lines, most) in [(0, 64, 128), (63, 64, 128), (5, 8, 64)] {
        assert!(all_fit(&vec![hash; most], lines, &mut taken), "{hash} {lines}");
        assert!(!all_fit(&vec![hash; most + 1], lines, &mut taken), "{hash} {lines}");
    }
    // Those of another line push none of them out.
    let mixed: Vec<u32> = (0..512).map(|n| n % 64).collect();
    assert!(all_fit(&mixed, 64, &mut taken));
}

#[test]
fn a_value_of_512_mib_is_not_too_long_but_for_the_arena() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let (part, hash) = (vec![0; VALUE_BYTES_MAX / 512], a.writer.hash(b"k"));
    let mut parts = vec![&part[..]; 512];
    assert_eq!(a.writer.put(&a.me.pin(), hash, b"k", &parts, 0), Err(WriteError::Oom));
    parts.push(b"1");
    let too_long = WriteError::ValueTooLong { len: VALUE_BYTES_MAX + 1 };
    assert_eq!(a.writer.put(&a.me.pin(), hash, b"k", &parts, 0), Err(too_long));
}

#[test]
fn counts_of_arenas_are_added_but_for_the_latest_the_longest_and_the_mean() {
    let cleaner = CleanerStats {
        segments: 20,
        relocated_bytes: 21,
        relocated_records: 22,
        expired_keys: 23,
        bad_records: 24,
        steps: 25,
        longest_step_bytes: 26,
        longest_step_ns: 27,
    };
    let one = ArenaStats {
        capacity_bytes: 3,
        used_bytes: 4,
        backed_bytes: 5,
        dead_bytes: 6,
        appended_bytes: 7,
        segments: 8,
        runs: 9,
        retired: 10,
        keys: 11,
        expires: 12,
        mean_left_ms: 100,
        index_lines: 13,
        growing: false,
        lsn: 14,
        incarnation: 15,
        available_bytes: 16,
        rebuilds: Rebuilds { larger: 17, same: 18, smaller: 19 },
        cleaner,
    };
    let mut sum = one;
    sum.add(&ArenaStats { growing: true, lsn: 13, incarnation: 14, mean_left_ms: 400, ..one });
    let longer = CleanerStats { longest_step_bytes: 28, longest_step_ns: 29, ..cleaner };
    sum.add(&ArenaStats { cleaner: CleanerStats { longest_step_bytes: 1, ..longer }, ..one });
    sum.cleaner.add(&CleanerStats { longest_step_bytes: 28, ..CleanerStats::default() });
    let wanted = ArenaStats {
        capacity_bytes: 9,
        used_bytes: 12,
        backed_bytes: 15,
        dead_bytes: 18,
        appended_bytes: 21,
        segments: 24,
        runs: 27,
        retired: 30,
        keys: 33,
        expires: 36,
        mean_left_ms: 200,
        index_lines: 39,
        growing: true,
        lsn: 14,
        incarnation: 15,
        available_bytes: 48,
        rebuilds: Rebuilds { larger: 51, same: 54, smaller: 57 },
        cleaner: CleanerStats {
            segments: 60,
            relocated_bytes: 63,
            relocated_records: 66,
            expired_keys: 69,
            bad_records: 72,
            steps: 75,
            longest_step_bytes: 28,
            longest_step_ns: 29,
        },
    };
    assert_eq!(sum, wanted);
}
