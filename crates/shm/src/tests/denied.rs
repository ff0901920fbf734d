//! What the system refuses is said as such, not as a lack of room in the arena.

use super::{Arena, directory, spec};
use crate::failpoints::before_each_step;
use crate::{Denial, Effect, ReplayError, StreamChange, WriteError};

use std::cell::Cell;
use std::rc::Rc;

const MIB: u64 = 1 << 20;

#[test]
fn a_removed_file_is_no_lack_of_room() {
    // Somebody removed the file. As long as there was memory at hand writes went well; then they
    // were refused as if live data filled the arena, and keys would have been evicted for it.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    a.put(b"first", b"v", 0).unwrap();
    std::fs::remove_file(&a.spec.path).unwrap();
    let room = a.writer.fill().room_bytes;
    let refused =
        (0..).map(|n: u32| a.put_soon(&n.to_le_bytes(), &[1; 1000])).find_map(Result::err);
    assert_eq!(refused, Some(WriteError::Denied(Denial::Gone)));
    let denied = a.writer.region().take_denied();
    assert_eq!(denied[0].errno, rustix::io::Errno::NOENT.raw_os_error(), "{denied:?}");
    assert_eq!((denied.len(), denied[0].denial), (1, Denial::Gone), "{denied:?}");
    assert!(a.writer.fill().room_bytes >= room, "no key has to go for it");
    assert_eq!(a.get(b"first").as_deref(), Some(&b"v"[..]), "what is there is served");
}

#[test]
fn memory_is_taken_again_when_the_fault_is_over() {
    // After a refusal nothing was made ready ahead until something was given back: an arena that
    // only grew had each of its segments backed in front of a request.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let (path, aside) = (a.spec.path.clone(), dir.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    let mut n = 0u32;
    while a.put_soon(&n.to_le_bytes(), &[1; 1000]).is_ok() {
        n += 1;
    }
    std::fs::rename(&aside, &path).unwrap();
    let asked = a.writer.space.asked_slots;
    (n..n + 5000).for_each(|n| a.put_soon(&n.to_le_bytes(), &[1; 1000]).unwrap());
    assert!(a.writer.space.asked_slots > asked, "the provisioner works again");
}

#[test]
fn readers_see_all_of_a_clearing_or_nothing_also_where_no_page_can_be_had() {
    // Keys were removed one after the other, and nothing said so: a reader that had found one of
    // them gone found the next one there.
    const KEYS: u8 = 20;
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    (0..KEYS).for_each(|n| a.put(&[n], b"v", 0).unwrap());
    std::fs::remove_file(&a.spec.path).unwrap();
    let (reader, other, looks) = (a.reader.clone(), a.domain.join(), Rc::new(Cell::new((0, 0))));
    let noted = Rc::clone(&looks);
    let look = move || {
        let pin = other.pin();
        let alone =
            |n| reader.get_alone(&pin, reader.hash(&[n]), &[n]).ok().map(|(found, _)| found);
        // The others are too new to be told.
        let told: Vec<bool> = (0..KEYS).filter_map(alone).map(|found| found.is_some()).collect();
        let there = told.iter().filter(|is_there| **is_there).count();
        assert!([0, told.len()].contains(&there), "all or nothing: {told:?}");
        let (some, none) = noted.get();
        noted.set(if there > 0 { (some + 1, none) } else { (some, none + 1) });
    };
    before_each_step(look, || a.writer.clear());
    let (some, none) = looks.get();
    assert!(some > usize::from(KEYS) / 2 && none > 0, "{some} and {none} looks");
    assert_eq!(a.writer.keys(), 0);
}

#[test]
fn a_clearing_takes_one_number_also_where_no_page_can_be_had() {
    // Keys were cleared one by one then, and each took a number. A replay that did so had other
    // numbers than its journal behind it.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    (0..3u8).for_each(|n| a.put(&[n], b"v", 0).unwrap());
    let aside = dir.path().join("aside");
    std::fs::rename(&a.spec.path, &aside).unwrap();
    let clearing = |lsn| [StreamChange { lsn, effect: Effect::Clear, payload: &[], rest: &[] }];
    let refused = a.writer.replay(&clearing(4));
    assert_eq!(refused, Err(ReplayError::Write(WriteError::Denied(Denial::Gone))));
    assert_eq!((a.writer.stats().lsn, a.writer.keys()), (3, 3));
    a.writer.clear();
    assert_eq!((a.writer.stats().lsn, a.writer.keys()), (4, 0));
    assert_eq!((0..3u8).find_map(|n| a.get(&[n])), None);
    std::fs::rename(&aside, &a.spec.path).unwrap();
    a.put(b"k", b"v", 0).unwrap();
    assert!(a.writer.replay(&clearing(6)).unwrap().dangling.is_empty());
    assert_eq!((a.writer.stats().lsn, a.writer.keys()), (6, 0));
}
