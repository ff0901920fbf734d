//! The moment and the time by which a key is judged, whatever the writer does in the middle of a
//! read.

use super::stepped::{Stepped, at_every_load};
use super::{Arena, directory, spec};
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::index::moment;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// The time at which the key would have been over.
const OVER_MS: u64 = 1000;

/// Writes the key so that it will be over. In front of its record lie zeros.
fn write_for_a_while(a: &mut Arena) {
    a.writer.words.store64(header::CLOCK, 1, Relaxed);
    a.put(b"before", &[0; 32], 0).unwrap();
    a.put(b"k", b"for a while", OVER_MS).unwrap();
}

/// Writes it to stay. Then the time comes at which it would have been over.
fn write_to_stay(a: &mut Arena, _load: u64) {
    a.put(b"k", b"to stay", 0).unwrap();
    a.writer.words.store64(header::CLOCK, OVER_MS, Relaxed);
}

/// A read of a key: its record, and the time by which to judge it.
type Read = fn(&Stepped, u32, (u32, &[u8])) -> (Option<u32>, u64);

/// Reads the key with the writer acting before each load of the read.
fn read_beside(read: Read) {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 64 << 20));
    let (words, shift, hash) = (a.reader.words, a.reader.slot_shift, a.reader.hash(b"k"));
    let (stepped, arena) = (Stepped::over(words), Rc::new(RefCell::new(a)));
    write_for_a_while(&mut arena.borrow_mut());
    at_every_load(&stepped, &arena, write_to_stay, |load| {
        let (found, clock_ms) = read(&stepped, shift, (hash, b"k"));
        let record = u64::from(found.expect("the key is there at all times")) * r::UNIT;
        if words.load64(record + r::EXPIRY, Relaxed) != 0 {
            assert!((1..OVER_MS).contains(&clock_ms), "load {load}: judged by {clock_ms} ms");
        }
        write_for_a_while(&mut arena.borrow_mut());
    });
}

#[test]
fn a_key_that_was_written_to_stay_in_time_is_over_for_no_read_of_it_alone() {
    // By a time from after the second write, the record of the first is over. The key was there all
    // the time.
    read_beside(|words, shift, key| moment::find_alone(words, shift, key).expect("one key"));
}

#[test]
fn a_key_that_was_written_to_stay_in_time_is_over_at_no_moment() {
    // The same for a key of a moment: its number and its time are of each other.
    read_beside(|words, shift, key| {
        let now = moment::sample_within(words, 3).expect("no commit of several");
        (moment::find(words, shift, &now, key).expect("one key"), now.clock_ms)
    });
}
