//! Memory that is reused, under readers that are waited for and under one that isn't.

use super::{LARGE, LoomWords, SHIFT, SMALL, Setting, check, home, offset, reference, value_at};
use crate::format::generation::next_generation;
use crate::format::head::Head;
use crate::format::layout::{entry, entry_reference, generation_offset, record as r};
use crate::format::words::SharedWords;
use crate::index::{Index, find};
use crate::qsbr::Qsbr;
use crate::read::foreign::guarded;
use crate::write::cleaner::move_record;
use std::sync::atomic::Ordering;

/// One reader, one writer that replaces a record and reuses its memory as soon as it may.
fn reuse_under_a_reader(sleeps: bool) {
    let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1).record(1, b"k", 2);
    let (words, writer) = setting.hot_record(0).hot_word(0).hot_word(64).words();
    let qsbr = Qsbr::new(words.clone(), 1);
    let mut index = Index::new(SMALL);
    index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
    if !sleeps {
        qsbr.online(0);
    }
    let reclaim = qsbr.clone();
    let thread = loom::thread::spawn(move || {
        let place = index.locate(&writer, 5, b"k").found.expect("a key");
        index.replace(&writer, &place, 5, reference(1));
        let stamp = reclaim.stamp();
        if reclaim.passed(stamp) {
            writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
        }
    });
    for _ in 0..2 {
        if sleeps {
            qsbr.online(0);
        }
        let found = find(&words, SHIFT, 5, b"k").expect("a key");
        let value = value_at(&words, found);
        assert_eq!(value, if found == reference(0) { 1 } else { 2 });
        if sleeps {
            qsbr.offline(0);
        } else {
            qsbr.announce(0);
        }
    }
    thread.join().unwrap();
}

#[test]
fn model_nothing_is_reused_under_a_reader_that_announces() {
    // The reader stays online and announces between two finds.
    check(3, || reuse_under_a_reader(false));
}

#[test]
fn model_nothing_is_reused_under_a_reader_that_wakes_up() {
    // The reader is offline, comes back to read, and leaves again.
    check(3, || reuse_under_a_reader(true));
}

/// Moves the record 0 of key `k` to place 1, as the cleaner does.
fn move_k(writer: &LoomWords, index: &mut Index) {
    let place = index.locate(writer, 5, b"k").found.expect("a key");
    let head = Head::load(writer, offset(0));
    move_record(writer, index, (&place, 5), &head, offset(1), || {});
}

#[test]
fn model_a_record_moved_by_the_cleaner_is_found_whole() {
    // A record moves to another segment, its old one is retired and reused as soon as it may be,
    // all under a reader that announces between two finds: it finds the value each time, wherever
    // it lies.
    check(3, || {
        let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1);
        let setting = setting.hot_record(0).hot_record(1).hot_word(0).hot_word(64);
        let (words, writer) = setting.words();
        let qsbr = Qsbr::new(words.clone(), 1);
        qsbr.online(0);
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let reclaim = qsbr.clone();
        let thread = loom::thread::spawn(move || {
            move_k(&writer, &mut index);
            let stamp = reclaim.stamp();
            if reclaim.passed(stamp) {
                writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
            }
        });
        for _ in 0..2 {
            let found = find(&words, SHIFT, 5, b"k").expect("a key that is never deleted");
            assert_eq!(value_at(&words, found), 1);
            qsbr.announce(0);
        }
        thread.join().unwrap();
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(1)));
    });
}

#[test]
fn model_a_reader_that_nobody_waits_for_copies_a_moved_record_or_tries_again() {
    // The same, but the old segment is reused at once: the reader, in another process, has only the
    // generation to tell.
    check(3, || {
        let generation = generation_offset(3);
        let setting = Setting::new(&[home(SMALL, 5, 0)]).record(0, b"k", 1);
        let setting = setting.hot_record(0).hot_record(1).hot_pair(generation);
        let (words, writer) = setting.words();
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let thread = loom::thread::spawn(move || {
            move_k(&writer, &mut index);
            next_generation(&writer, generation, 1);
            next_generation(&writer, generation, 0);
            writer.fence(Ordering::Release);
            writer.store64(offset(0) + r::KEY + 8, 666, Ordering::Relaxed);
        });
        let at = home(SMALL, 5, 0);
        let entry = words.load64(at, Ordering::Acquire);
        let copied =
            guarded(&words, generation, (at, entry), |_| value_at(&words, entry_reference(entry)));
        assert!(copied.is_none_or(|value| value == 1), "{copied:?}");
        thread.join().unwrap();
    });
}

#[test]
fn model_a_retired_table_is_not_reused_under_a_reader() {
    // The index moves to another table; the old one is retired, and filled with what would be a
    // wrong entry as soon as it may be. A reader that announces between two finds never meets that.
    check(3, || {
        let entries = [home(SMALL, 5, 0), home(LARGE, 5, 0)];
        let setting = Setting::new(&entries).record(0, b"k", 1).record(1, b"k", 666);
        let (words, writer) = setting.hot_word(0).hot_word(64).words();
        let qsbr = Qsbr::new(words.clone(), 1);
        qsbr.online(0);
        let mut index = Index::new(SMALL);
        index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
        let reclaim = qsbr.clone();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            assert_eq!(index.migrate(&writer, 8).emptied, Some(SMALL));
            let stamp = reclaim.stamp();
            if reclaim.passed(stamp) {
                let wrong = entry(5, reference(1));
                writer.store64(home(SMALL, 5, 0), wrong, Ordering::Relaxed);
            }
        });
        for _ in 0..2 {
            assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
            qsbr.announce(0);
        }
        thread.join().unwrap();
    });
}
