//! A value that another process reads in parts: which version its parts are of, what ends it, and
//! what it makes of memory that was reused. The writer acts in the same thread, between two parts.

use super::stepped::{Stepped, at_every_load};
use super::{Arena, directory, spec};
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ForeignReader, TooNew};
use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

fn arena(dir: &tempfile::TempDir) -> (Arena, ForeignReader) {
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    a.put(b"first", b"1", 0).unwrap();
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    (a, foreign)
}

/// A value in which each byte tells where it is and of which value.
fn value(bytes: usize, of: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ of.wrapping_mul(73)) as u8).collect()
}

#[test]
fn any_part_of_a_value_is_read_where_it_lies() {
    // In a record, and in a run of one slot and of several. Words and slots end anywhere in a part.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    for bytes in [0, 1, 7, 8, 9, 100, 5000, 100_000, 300_000, 3_000_000] {
        let whole = value(bytes, 1);
        a.put(b"key", &whole, 0).unwrap();
        let found = foreign.in_place(b"key").unwrap().unwrap();
        assert_eq!((found.len(), found.is_empty()), (bytes, bytes == 0));
        let ends = [0, 1, 8, 13, bytes / 2, 262_144, 1_048_576, bytes.saturating_sub(1), bytes];
        for from in ends.into_iter().filter(|from| *from <= bytes) {
            for to in ends.into_iter().filter(|to| (from..=bytes).contains(to)) {
                let mut part = vec![0; to - from];
                assert_eq!(found.read(from, &mut part), Ok(()));
                assert_eq!(part, whole[from..to], "{from}..{to} of {bytes}");
            }
        }
    }
    assert!(foreign.in_place(b"none").unwrap().is_none());
    assert_eq!(
        foreign.in_place(b"first").unwrap().unwrap().version(),
        foreign.version(b"first").unwrap().unwrap()
    );
}

#[test]
#[should_panic(expected = "3 bytes from 1 on of a value of 3")]
fn a_part_that_the_value_has_not_is_a_mistake() {
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"key", b"abc", 0).unwrap();
    let _ = foreign.in_place(b"key").unwrap().unwrap().read(1, &mut [0; 3]);
}

#[test]
fn parts_are_of_the_version_that_was_found() {
    // Between two parts the key is overwritten, removed, moved by the cleaner: either the second
    // part is of the same version, or it is none.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    for bytes in [100, 5000, 300_000, 3_000_000] {
        let acts: [&dyn Fn(&mut Arena); 4] = [
            &|_| {},
            &|a| a.put(b"key", &value(bytes, 2), 0).unwrap(),
            &|a| assert!(a.delete(b"key")),
            &|a| a.writer.clear(),
        ];
        for act in acts {
            a.put(b"key", &value(bytes, 1), 0).unwrap();
            let found = foreign.in_place(b"key").unwrap().unwrap();
            let (mut first, mut second) = (vec![0; bytes / 2], vec![0; bytes - bytes / 2]);
            found.read(0, &mut first).unwrap();
            act(&mut a);
            if found.read(bytes / 2, &mut second).is_ok() {
                assert_eq!([first, second].concat(), value(bytes, 1));
            }
        }
        a.put(b"key", &value(bytes, 1), 0).unwrap();
        let found = foreign.in_place(b"key").unwrap().unwrap();
        assert_eq!(found.read(0, &mut [0; 10]), Ok(()), "nothing has happened");
    }
}

#[test]
fn memory_that_was_reused_ends_it() {
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    for bytes in [500, 300_000, 3_000_000] {
        a.put(b"key", &value(bytes, 1), 0).unwrap();
        a.settle();
        let found = foreign.in_place(b"key").unwrap().unwrap();
        a.put(b"key", &value(bytes, 2), 0).unwrap();
        let mut out = vec![0; bytes];
        let mut rounds = 0..1000u32;
        while found.read(0, &mut out).is_ok() {
            assert_eq!(out, value(bytes, 1), "bytes of another");
            let round = rounds.next().expect("its memory is needed again");
            for filler in 0..100 {
                let key = format!("filler {}", round % 35 * 100 + filler);
                a.put(key.as_bytes(), &[round as u8; 5000], 0).unwrap();
            }
            a.settle();
        }
        assert_eq!(found.read(bytes - 1, &mut [0]), Err(TooNew), "{bytes} bytes");
    }
}

/// Keys with records as long as that of `key`, so that theirs stand where it stood.
const OTHERS: u32 = 1000;

fn fill(a: &mut Arena, bytes: usize) {
    for other in 0..OTHERS {
        a.soon(|a| a.put(&other.to_le_bytes()[..3], &vec![b'f'; bytes], 0)).unwrap();
    }
}

fn empty(a: &mut Arena) {
    for other in 0..OTHERS {
        a.delete(&other.to_le_bytes()[..3]);
    }
    a.settle();
}

#[test]
fn memory_that_is_ready_for_others_when_it_is_found_ends_it() {
    // Between any two loads of the search, the key is overwritten and its segment given back: the
    // next segment may lie there, and its generation is in use again, but nothing is written yet.
    // Others' records come when the search is over.
    const BYTES: usize = 500;
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"key", &value(BYTES, 0), 0).unwrap();
    let foreign = foreign.over(Stepped::over);
    let (words, arena) = (foreign.words().clone(), Rc::new(RefCell::new(a)));
    let act = |a: &mut Arena, load: u64| {
        a.soon(|a| a.put(b"key", &value(BYTES, load as usize + 1), 0)).unwrap();
        fill(a, BYTES);
        empty(a);
    };
    at_every_load(&words, &arena, act, |load| {
        let found = foreign.in_place(b"key").unwrap().unwrap();
        fill(&mut arena.borrow_mut(), BYTES);
        let mut out = vec![0; BYTES];
        if found.read(0, &mut out).is_ok() {
            // The act of this read wrote `load + 1`, the one before it `load`.
            let is_one = [0, 1].map(|n| value(BYTES, load as usize + n)).contains(&out);
            assert!(is_one, "bytes of another: the writer acted before load {load}");
        }
        empty(&mut arena.borrow_mut());
    });
}

#[test]
fn a_key_that_is_over_is_not_found_in_place() {
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.writer.note_time(1000);
    a.put(b"key", b"v", 1000).unwrap();
    assert!(foreign.in_place(b"key").unwrap().is_some());
    a.writer.note_time(1001);
    assert!(foreign.in_place(b"key").unwrap().is_none());
}

#[test]
fn nothing_is_found_in_place_within_a_commit_of_several() {
    // The entry may be of the commit, which hasn't ended.
    let dir = directory();
    let (a, foreign) = arena(&dir);
    let intent = |reference| a.writer.words.store32(header::INTENT, reference, Relaxed);
    intent(1 << 20);
    assert!(matches!(foreign.in_place(b"first"), Err(ArenaError::Busy { tries: 64, .. })));
    intent(0);
    assert_eq!(foreign.in_place(b"first").unwrap().unwrap().len(), 1);
}

#[test]
fn no_value_is_found_in_place_by_a_wrong_name_of_its_run() {
    // The name has another generation, or names slots that are none, or the file ends within the
    // value: each look ends, and says that it found nothing that stays.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"key", &value(300_000, 1), 0).unwrap();
    let pin = a.me.pin();
    let record = a.reader.get(&pin, a.writer.hash(b"key"), b"key").unwrap().reference().offset();
    let (words, name) = (a.writer.words, record + r::KEY + 8);
    for (at, by) in [(0, 100), (0, u32::MAX / 2), (4, 1 << 30), (8, 2), (8, u32::MAX)] {
        let word = words.load32(name + at, Relaxed);
        words.store32(name + at, word.wrapping_add(by), Relaxed);
        let found = foreign.in_place(b"key");
        assert!(matches!(found, Err(ArenaError::Busy { .. })), "{word} + {by} at {at}");
        words.store32(name + at, word, Relaxed);
    }
    assert!(foreign.in_place(b"key").unwrap().is_some());
    let run = u64::from(words.load32(name, Relaxed)) * a.writer.space.geometry().slot_bytes();
    let cut = dir.path().join("cut");
    std::fs::copy(&a.spec.path, &cut).unwrap();
    let file = std::fs::File::options().write(true).open(&cut).unwrap();
    for (bytes, is_whole) in [(300_000, true), (299_999, false)] {
        file.set_len(run + bytes).unwrap();
        let foreign = ForeignReader::open(&cut).unwrap();
        let found = foreign.in_place(b"key");
        let is_refused = matches!(found, Err(ArenaError::Busy { .. }));
        assert_eq!((is_refused, matches!(found, Ok(Some(_)))), (!is_whole, is_whole), "{bytes}");
    }
}

#[test]
fn a_run_that_was_given_back_is_read_without_taking_memory() {
    // There is a hole, which would be filled with zeros by a look through the mapping.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"key", &value(3_000_000, 1), 0).unwrap();
    let found = foreign.in_place(b"key").unwrap().unwrap();
    assert!(a.delete(b"key"));
    a.settle();
    let blocks = || a.spec.path.metadata().unwrap().blocks();
    let before = blocks();
    assert_eq!(found.read(0, &mut vec![0; 3_000_000]), Err(TooNew));
    assert_eq!(blocks(), before);
}
