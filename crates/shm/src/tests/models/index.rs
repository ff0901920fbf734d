//! The index under a reader: publishing, growth, clearing.

use super::{
    LARGE, LoomWords, SHIFT, SMALL, Setting, check, head, home, offset, reference, value_at,
    write_record,
};
use crate::format::layout::entry;
use crate::format::words::SharedWords;
use crate::index::{Index, Table, find};
use std::sync::atomic::Ordering;

#[test]
fn model_a_published_record_is_whole() {
    // One thread appends and publishes; the other finds nothing, or the whole record.
    check(3, || {
        let (words, writer) = Setting::new(&[home(SMALL, 5, 0)]).hot_record(0).words();
        let thread = loom::thread::spawn(move || {
            let mut index = Index::new(SMALL);
            write_record(&writer, offset(0), &head(b"k", 1), (b"k", 77));
            let room = index.locate(&writer, 5, b"k").room.expect("an empty table");
            index.insert(&writer, room, 5, reference(0));
        });
        if let Some(found) = find(&words, SHIFT, 5, b"k") {
            assert_eq!((found, value_at(&words, found)), (reference(0), 77));
        }
        thread.join().unwrap();
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
    });
}

/// A small table with the keys `k` (hash 5) and `m` (hash 13, same home line in the small table
/// only).
fn two_keys() -> (LoomWords, LoomWords, Index) {
    let entries = [home(SMALL, 5, 0), home(SMALL, 5, 1), home(LARGE, 5, 0), home(LARGE, 13, 0)];
    let setting = Setting::new(&entries).record(0, b"k", 1).record(1, b"m", 2);
    let (words, writer) = setting.record(2, b"m", 3).words();
    let mut index = Index::new(SMALL);
    index.insert(&writer, (home(SMALL, 5, 0), true), 5, reference(0));
    index.insert(&writer, (home(SMALL, 5, 1), true), 13, reference(1));
    (words, writer, index)
}

#[test]
fn model_growth_hides_no_key_and_invents_none() {
    // The table is emptied into a larger one under a reader: it finds what is there, misses what
    // isn't.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            assert_eq!(index.migrate(&writer, 8).emptied, Some(SMALL));
        });
        assert_eq!(find(&words, SHIFT, 5, b"k"), Some(reference(0)));
        assert_eq!(find(&words, SHIFT, 13, b"absent"), None);
        assert_eq!(find(&words, SHIFT, 13, b"m"), Some(reference(1)));
        thread.join().unwrap();
    });
}

#[test]
fn model_an_overwrite_in_growth_is_seen_in_order() {
    // A key is overwritten where it stands while its table is emptied: once the new version was
    // seen, the old one is never seen again.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        let thread = loom::thread::spawn(move || {
            index.begin_growth(&writer, LARGE);
            let place = index.locate(&writer, 13, b"m").found.expect("a key");
            index.replace(&writer, &place, 13, reference(2));
            index.migrate(&writer, 8);
        });
        let first = find(&words, SHIFT, 13, b"m").expect("a key");
        let second = find(&words, SHIFT, 13, b"m").expect("a key");
        assert!(first == reference(1) || second == reference(2), "{first} then {second}");
        thread.join().unwrap();
    });
}

#[test]
fn model_clearing_in_growth_is_one_moment() {
    // Everything is deleted while the index grows: a reader that has missed one key finds
    // no other.
    check(3, || {
        let (words, writer, mut index) = two_keys();
        index.begin_growth(&writer, LARGE);
        // `m` has moved, `k` has not.
        writer.store64(home(LARGE, 13, 0), entry(13, reference(1)), Ordering::Release);
        writer.store64(home(SMALL, 5, 1), entry(0, 2), Ordering::Release);
        let thread = loom::thread::spawn(move || {
            let empty = Index::new(Table { slot: 5, offset: 5 << SHIFT, lines: 8 });
            index.switch(&writer, empty);
        });
        let (first, second) = (find(&words, SHIFT, 5, b"k"), find(&words, SHIFT, 13, b"m"));
        assert!(first.is_some() || second.is_none());
        let (third, fourth) = (find(&words, SHIFT, 13, b"m"), find(&words, SHIFT, 5, b"k"));
        assert!(third.is_some() || fourth.is_none());
        thread.join().unwrap();
    });
}
