//! Several keys at one moment from another process: what a view answers when the writer acts
//! between two of its keys, what ends it, and what it makes of bytes that nobody should trust. The
//! writer acts in the same thread.

use super::stepped::Stepped;
use super::{Arena, directory, spec};
use crate::format::layout::{INCARNATION_OVER, REF_MOVED, header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ForeignReader, TooNew};
use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

fn arena(dir: &tempfile::TempDir) -> (Arena, ForeignReader) {
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"first", b"1", 0).unwrap();
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    (a, foreign)
}

/// Reads `first`, lets the writer act, and reads `key`, in one view: the value, and how many
/// attempts it took.
fn read_around(
    a: &mut Arena,
    foreign: &ForeignReader,
    key: &[u8],
    act: impl FnOnce(&mut Arena),
) -> (Option<Vec<u8>>, u32) {
    let (mut act, mut attempts) = (Some(act), 0);
    let found = foreign.view(|view| {
        attempts += 1;
        let (mut first, mut out) = (Vec::new(), Vec::new());
        view.get(b"first", &mut first)?;
        if let Some(act) = act.take() {
            act(a);
        }
        Ok(view.get(key, &mut out)?.map(|_| out))
    });
    (found.unwrap(), attempts)
}

#[test]
fn a_view_shows_what_was_there_when_it_began() {
    // Between two reads of a view a key is overwritten, again and again, moved by the cleaner, or
    // set for the first time: the view shows what it was before, at the first attempt.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    for bytes in [10, 5000, 300_000] {
        a.put(b"k", &vec![1; bytes], 0).unwrap();
        let overwrites = |times: u8| {
            move |a: &mut Arena| {
                (0..times).for_each(|i| a.put(b"k", &vec![2 + i; bytes + 1], 0).unwrap());
            }
        };
        for times in [0, 1, 2] {
            a.put(b"k", &vec![1; bytes], 0).unwrap();
            let found = read_around(&mut a, &foreign, b"k", overwrites(times));
            assert_eq!(found, (Some(vec![1; bytes]), 1), "{bytes} bytes, {times} overwrites");
        }
        assert_eq!(foreign.multi_get(&[b"k"]).unwrap()[0].as_ref().unwrap().value.len(), bytes + 1);
    }
    let absent = read_around(&mut a, &foreign, b"new", |a| a.put(b"new", b"v", 0).unwrap());
    assert_eq!(absent, (None, 1));
    // 255 versions back is as far as a view goes.
    let times = |n: u32| move |a: &mut Arena| (0..n).for_each(|_| a.put(b"k", b"v", 0).unwrap());
    a.put(b"k", b"old", 0).unwrap();
    assert_eq!(read_around(&mut a, &foreign, b"k", times(255)), (Some(b"old".to_vec()), 1));
    a.put(b"k", b"old", 0).unwrap();
    assert_eq!(read_around(&mut a, &foreign, b"k", times(256)), (Some(b"v".to_vec()), 2));
}

#[test]
fn a_view_begins_again_when_a_key_of_it_went() {
    // What was removed is named by nothing: the view can't tell what it was, and takes another
    // moment. So it is when the key came again, and when everything went. Another key's removal
    // with another stamp ends nothing.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    let mut around = |act: &dyn Fn(&mut Arena)| {
        a.put(b"k", b"old", 0).unwrap();
        a.put(b"other", b"v", 0).unwrap();
        read_around(&mut a, &foreign, b"k", act)
    };
    assert_eq!(around(&|a| assert!(a.delete(b"k"))), (None, 2));
    let again = |a: &mut Arena| {
        assert!(a.delete(b"k"));
        a.put(b"k", b"new", 0).unwrap();
    };
    assert_eq!(around(&again), (Some(b"new".to_vec()), 2));
    assert_eq!(around(&|a| a.writer.clear()), (None, 2));
    assert_eq!(around(&|a| assert!(a.delete(b"other"))), (Some(b"old".to_vec()), 1));
}

#[test]
fn a_view_begins_again_when_memory_was_reused() {
    // Retired memory keeps its bytes; from the first that is given back or holds something else on,
    // a view knows no more what it reads.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    for (bytes, last) in [(300_000, 2), (500, 7)] {
        a.put(b"k", &vec![1; bytes], 0).unwrap();
        a.settle();
        let reuses = |a: &Arena| a.writer.words.load64(header::REUSES, Relaxed);
        let before = reuses(&a);
        let act = |a: &mut Arena| {
            a.put(b"k", &vec![last; bytes], 0).unwrap();
            (0..1000u32).for_each(|i| a.put(b"filler", &[i as u8; 1000], 0).unwrap());
            assert_eq!(reuses(a), before, "nothing is reused within a turn");
            a.settle();
            assert!(reuses(a) > before);
        };
        let (found, attempts) = read_around(&mut a, &foreign, b"k", act);
        assert_eq!((found.unwrap(), attempts), (vec![last; bytes], 2));
    }
}

#[test]
fn a_view_knows_no_bytes_that_were_reused_before_it_came_to_them() {
    // Before one load the version that a view is to show is replaced, and its slot becomes another
    // segment: its bytes still stand there, and its generation changes no more. Before a later load
    // others' bytes come. A reader that has its header by then would take them for its value. (What
    // the writer does with the slot is done here by hand, word by word.)
    const VALUE: usize = 400;
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let foreign = ForeignReader::open(&a.spec.path).unwrap().over(Stepped::over);
    let (words, shared) = (foreign.words().clone(), a.writer.words);
    a.put(b"k", &[0; VALUE], 0).unwrap();
    let arena = Rc::new(RefCell::new(a));
    let (mut round, mut acted) = (0, 0);
    for first_load in 0..100 {
        let mut later_loads = 0;
        while later_loads < 100 {
            round += 1;
            let (outer, inner) = (words.clone(), Rc::clone(&arena));
            words.plan(first_load, move || {
                let mut a = inner.borrow_mut();
                let old = offset_of(&a, b"k");
                a.put(b"k", &[round as u8; VALUE], 0).unwrap();
                let at = a.writer.space.geometry().generation_offset((old >> 17) as u32);
                shared.store32(at, shared.load32(at, Relaxed) + 2, Relaxed);
                let reuses = shared.load64(header::REUSES, Relaxed);
                shared.store64(header::REUSES, reuses + 1, Relaxed);
                let value = old + r::KEY + 8;
                outer.plan(later_loads, move || shared.store64(value, 0x6666, Relaxed));
            });
            let found = foreign.multi_get(&[b"k"]).unwrap().swap_remove(0).unwrap().value;
            assert!(found.iter().all(|byte| *byte == found[0]), "{first_load}, {later_loads}");
            // The view was over before the second act, or the first.
            if words.was_short() {
                break;
            }
            (acted, later_loads) = (acted + 1, later_loads + 1);
        }
        if later_loads == 0 {
            assert!(first_load > 10 && acted > 200, "{first_load}, {acted}");
            return;
        }
    }
    panic!("a view of more than 100 loads");
}

#[test]
fn an_overwrite_costs_a_view_no_second_attempt() {
    // It comes between any two loads: the entry names another record by then, and is read again.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    let foreign = foreign.over(Stepped::over);
    let words = foreign.words().clone();
    a.put(b"k", b"old", 0).unwrap();
    let arena = Rc::new(RefCell::new(a));
    for load in 0..1000 {
        let inner = Rc::clone(&arena);
        words.plan(load, move || inner.borrow_mut().put(b"k", b"new", 0).unwrap());
        let mut attempts = 0;
        let read = foreign.view(|view| {
            attempts += 1;
            view.get(b"k", &mut Vec::new())
        });
        assert_eq!((read.unwrap(), attempts), (Some(0), 1), "it came before load {load}");
        if words.was_short() {
            assert!(load > 10, "a view of {load} loads");
            return;
        }
    }
    panic!("a view of more than 1000 loads");
}

#[test]
fn time_is_the_arenas_and_the_moments() {
    // A key is over by the arena's clock, which a view samples once: a key that was there at its
    // moment is, though the clock went on.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.writer.note_time(1000);
    a.put(b"k", b"v", 1000).unwrap();
    let mut out = vec![9];
    assert_eq!(foreign.get(b"k", &mut out).unwrap(), Some(1000));
    let later = |a: &mut Arena| {
        a.writer.note_time(1001);
        assert_eq!(a.writer.expire_step(&a.me.pin(), 1001, 0), (0, 0));
    };
    assert_eq!(read_around(&mut a, &foreign, b"k", later), (Some(b"v".to_vec()), 1));
    assert_eq!((foreign.get(b"k", &mut out).unwrap(), out.len()), (None, 0));
    assert_eq!(foreign.multi_get(&[b"k", b"first"]).unwrap()[0], None);
    let clock = foreign.view(|view| Ok((view.clock_ms(), view.lsn()))).unwrap();
    assert_eq!(clock, (1001, a.writer.stats().lsn));
}

#[test]
fn a_single_key_is_not_read_from_within_a_commit_of_several() {
    // The intent is there and the commit hasn't ended: what it has published already isn't shown.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"k", b"old", 0).unwrap();
    let before = a.writer.stats().lsn;
    a.put(b"k", b"new", 0).unwrap();
    a.writer.words.store64(header::COMMITTED_LSN, before, Relaxed);
    let mut out = Vec::new();
    let mut read = || foreign.get(b"k", &mut out).map(|found| found.map(|_| out.clone())).unwrap();
    assert_eq!(read(), Some(b"new".to_vec()), "one change is to be seen from its entry on");
    a.writer.words.store32(header::INTENT, 1 << 20, Relaxed);
    assert_eq!(read(), Some(b"old".to_vec()));
}

#[test]
fn an_attempt_that_is_over_stays_over() {
    // Its caller takes no notice of the error and makes a result of what it had: it isn't given
    // out.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"k", b"old", 0).unwrap();
    let mut attempts = 0;
    let found = foreign.view(|view| {
        attempts += 1;
        let (mut k, mut first) = (Vec::new(), Vec::new());
        if attempts == 1 {
            assert!(a.delete(b"k"));
            assert_eq!(view.get(b"k", &mut k), Err(TooNew));
            assert_eq!(view.get(b"first", &mut first), Err(TooNew));
        } else {
            view.get(b"first", &mut first)?;
        }
        Ok(first)
    });
    assert_eq!((found.unwrap(), attempts), (b"1".to_vec(), 2));
}

#[test]
fn a_reader_of_several_keys_gives_up_and_says_so() {
    // A writer removes the key in each attempt. They have an end, and the error says what to do.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    let mut attempts = 0;
    let error = foreign.view(|view| {
        attempts += 1;
        a.put(b"k", b"v", 0).unwrap();
        assert!(a.delete(b"k"));
        view.get(b"k", &mut Vec::new())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, ArenaError::TooNew { attempts: 16, .. }), "{error}");
    assert!(attempts == 16 && error.to_string().contains("ask the owner"), "{error}");
    // So it does if the writer died between a commit's first store and its last.
    a.writer.words.store64(header::BEGUN_LSN, 1 << 40, Relaxed);
    let error = foreign.multi_get(&[b"first"]).unwrap_err();
    assert!(matches!(error, ArenaError::TooNew { .. }), "{error}");
    assert_eq!(foreign.get(b"first", &mut Vec::new()).unwrap(), Some(0), "one key has no moment");
}

#[test]
fn nothing_is_read_while_a_writer_adopts_or_when_the_file_is_over() {
    // The incarnation says so, for one key and for several.
    let dir = directory();
    let (a, foreign) = arena(&dir);
    let say = |incarnation| a.writer.words.store64(header::INCARNATION, incarnation, Relaxed);
    let mut out = vec![1];
    say(3);
    assert!(matches!(foreign.get(b"first", &mut out), Err(ArenaError::Adopting { .. })));
    assert!(out.is_empty());
    assert!(matches!(foreign.multi_get(&[b"first"]), Err(ArenaError::Adopting { .. })));
    say(INCARNATION_OVER);
    assert!(matches!(foreign.get(b"first", &mut out), Err(ArenaError::Over { .. })));
    assert!(matches!(foreign.multi_get(&[]), Err(ArenaError::Over { .. })));
    say(4);
    // In the middle of a view: the attempt is over, and the next one knows why.
    let ended = foreign.view(|view| {
        say(5);
        view.get(b"first", &mut Vec::new())
    });
    assert!(matches!(ended, Err(ArenaError::Adopting { .. })), "{ended:?}");
    // Another writer has come, and all is as it was: it counts at the next attempt.
    say(6);
    let attempts = Cell::new(0);
    let found = foreign.view(|view| {
        attempts.set(attempts.get() + 1);
        say(8);
        view.get(b"first", &mut Vec::new())
    });
    assert_eq!((found.unwrap(), attempts.get()), (Some(0), 2));
}

#[test]
fn an_adopted_arena_is_read_on() {
    // A writer goes and another one adopts, in the middle of a view, and the memory of what was
    // unpublished is given back: the view shows the new writer's arena, and nothing of both.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"k", &vec![1; 300_000], 0).unwrap();
    let (mut a, mut attempts) = (Some(a), 0);
    let (first, k) = foreign
        .view(|view| {
            attempts += 1;
            let (mut first, mut k) = (Vec::new(), Vec::new());
            view.get(b"first", &mut first)?;
            if attempts == 1 {
                let mut old = a.take().unwrap();
                old.put(b"k", &vec![2; 300_000], 0).unwrap();
                let reuses = old.writer.words.load64(header::REUSES, Relaxed);
                let (mut new, adoption) = old.again();
                assert_eq!(adoption.incarnation, 4);
                assert!(new.writer.words.load64(header::REUSES, Relaxed) > reuses);
                new.put(b"first", b"2", 0).unwrap();
                a = Some(new);
            }
            view.get(b"k", &mut k)?;
            Ok((first, k))
        })
        .unwrap();
    assert!(attempts == 2 && first == b"2" && k == vec![2; 300_000]);
}

/// Where the index says that a key's record lies.
fn offset_of(a: &Arena, key: &[u8]) -> u64 {
    let pin = a.me.pin();
    a.reader.get(&pin, a.writer.hash(key), key).unwrap().reference().offset()
}

/// A key whose newest version is newer than any moment; its offset and that of the version before
/// it.
fn newer_than_any(a: &mut Arena, key: &[u8]) -> (u64, u64) {
    a.put(key, b"old", 0).unwrap();
    let old = offset_of(a, key);
    a.put(key, b"new", 0).unwrap();
    let new = offset_of(a, key);
    a.writer.words.store64(new + r::LSN, 1 << 40, Relaxed);
    (new, old)
}

#[test]
fn a_forged_way_back_ends() {
    // `prev` leads to itself, in a circle, up again, to another key, to an intent, to a tombstone,
    // to memory that is no record, or out of the file: each read ends, with an error, and none has
    // a value that isn't the key's.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    let (new, old) = newer_than_any(&mut a, b"k");
    let words = a.writer.words;
    let reference = |at: u64| u32::try_from(at / r::UNIT).unwrap();
    let way = |to: u32| words.store32(new + r::PREV, to, Relaxed);
    let read =
        || foreign.multi_get(&[b"k"]).map(|found| found[0].as_ref().map(|f| f.value.clone()));
    let refused = |case: &str| match read() {
        Err(ArenaError::TooNew { .. }) => {}
        other => panic!("{case}: {other:?}"),
    };
    assert_eq!(read().unwrap(), Some(b"old".to_vec()), "the way as it was");
    way(reference(new));
    refused("itself");
    way(reference(offset_of(&a, b"first")));
    refused("another key");
    for to in [1, REF_MOVED, 3, 1000, reference(old) + 1, u32::MAX, u32::MAX / 2, 1 << 19] {
        way(to);
        refused("no record");
    }
    way(reference(old));
    let changed = |at: u64, byte: u8, case: &str| {
        let word = words.load64(at & !7, Relaxed);
        let mut bytes = word.to_le_bytes();
        bytes[usize::try_from(at & 7).unwrap()] = byte;
        words.store64(at & !7, u64::from_le_bytes(bytes), Relaxed);
        refused(case);
        words.store64(at & !7, word, Relaxed);
    };
    changed(old + r::KIND, r::KIND_INTENT, "an intent");
    changed(old + r::KIND, 0, "no kind");
    changed(old + r::FLAGS, r::FLAG_TOMBSTONE, "a tombstone");
    changed(old + r::FLAGS, 0x80, "no flags");
    changed(old + r::FLAGS, r::FLAG_RUN, "a run whose name is a value");
    changed(old + r::KEY_LEN, 2, "a longer key");
    changed(old + r::KEY, b'l', "another key's bytes");
    changed(old + r::VALUE_LEN + 3, 0xFF, "an endless value");
    changed(old + r::LSN, 0, "no LSN");
    words.store64(old + r::LSN, 1 << 40, Relaxed);
    refused("an LSN that stays the same");
    words.store64(old + r::LSN, (1 << 40) - 1, Relaxed);
    words.store32(old + r::PREV, reference(new), Relaxed);
    refused("a circle");
    // The end of the way: the key has come since, and was removed by nobody.
    words.store32(old + r::PREV, 0, Relaxed);
    assert_eq!(read().unwrap(), None);
}

#[test]
fn a_way_back_through_runs_is_read_as_long_as_they_are_there() {
    // What the newest version replaced lies in a run that waits to be reused: its name has the
    // generation of before. A name with another generation, or of slots that are none, is no
    // value's.
    let dir = directory();
    let (mut a, foreign) = arena(&dir);
    a.put(b"k", &vec![1; 300_000], 0).unwrap();
    let name = offset_of(&a, b"k") + r::KEY + 8;
    a.put(b"k", b"new", 0).unwrap();
    let words = a.writer.words;
    let new = offset_of(&a, b"k");
    words.store64(new + r::LSN, 1 << 40, Relaxed);
    let read = || foreign.multi_get(&[b"k"]).map(|found| found[0].as_ref().unwrap().value.clone());
    assert_eq!(read().unwrap(), vec![1; 300_000]);
    for (at, by) in [(0, 100), (8, 2), (8, u32::MAX), (0, u32::MAX / 2), (4, 1 << 30)] {
        let word = words.load32(name + at, Relaxed);
        words.store32(name + at, word.wrapping_add(by), Relaxed);
        assert!(matches!(read(), Err(ArenaError::TooNew { .. })), "{word} + {by} at {at}");
        words.store32(name + at, word, Relaxed);
    }
    a.settle();
    assert!(matches!(read(), Err(ArenaError::TooNew { .. })), "given back");
}

#[test]
fn reads_of_a_damaged_file_end() {
    // Words of a copy are changed, of its header, tables, entries, records and names of runs, while
    // the committed LSN is so low that ways back are walked. A read has a value or an error, and an
    // end.
    const CASES: u64 = 3000;
    let dir = directory();
    let (mut a, _) = arena(&dir);
    let keys: Vec<Vec<u8>> = (0..8u8).map(|i| vec![b'k', i]).collect();
    let mut reads_at = Vec::from_iter((header::INCARNATION..header::CLEAR_STAMP + 8).step_by(4));
    for round in 0..6u8 {
        for (key, bytes) in keys.iter().zip([0, 1, 40, 500, 5000, 70_000, 200_000, 300_000]) {
            a.put(key, &vec![round; bytes], 0).unwrap();
            let at = offset_of(&a, key);
            reads_at.extend((at..at + r::KEY + 24).step_by(4));
        }
    }
    let lsn = a.writer.stats().lsn;
    let hashes = keys.iter().map(|key| a.writer.hash(key));
    let current = a.writer.index.current();
    reads_at.extend(hashes.map(|hash| current.line_offset(current.home(hash))));
    let path = dir.path().join("copy");
    std::fs::copy(&a.spec.path, &path).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let foreign = ForeignReader::open(&path).unwrap();
    let (mut random, mut whole, mut refused) = (1u64, 0, 0);
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..CASES {
        let moment = lsn - next(keys.len() as u64 * 5);
        for at in [header::BEGUN_LSN, header::COMMITTED_LSN] {
            file.write_all_at(&moment.to_le_bytes(), at).unwrap();
        }
        let at = reads_at[usize::try_from(next(reads_at.len() as u64)).unwrap()];
        let mut was = [0; 4];
        file.read_exact_at(&mut was, at).unwrap();
        let word = u32::from_le_bytes(was);
        let other = reads_at[usize::try_from(next(reads_at.len() as u64)).unwrap()];
        let wrong = match next(4) {
            0 => word ^ 1 << next(32),
            1 => u32::try_from(next(1 << 31)).unwrap() << 1,
            2 => u32::try_from(other / r::UNIT).unwrap(),
            _ => word.wrapping_add(u32::try_from(next(5)).unwrap()).wrapping_sub(2),
        };
        file.write_all_at(&wrong.to_le_bytes(), at).unwrap();
        for key in &keys {
            let found = foreign.multi_get(&[key]);
            *(if found.is_ok() { &mut whole } else { &mut refused }) += 1;
            let _ = foreign.get(key, &mut Vec::new());
            let _ = foreign.expiry(key);
        }
        let mut cursor = next(2) << next(40);
        for _ in 0..32 {
            cursor = foreign.scan(cursor, b"", &mut |_| ()).unwrap_or(0);
        }
        file.write_all_at(&was, at).unwrap();
    }
    assert!(whole > CASES && refused > CASES / 20, "{whole} read, {refused} refused");
}
