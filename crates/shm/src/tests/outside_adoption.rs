//! What another process reads when another writer comes in the middle of a read.

use super::stepped::{Stepped, at_every_load};
use super::{Arena, directory, spec};
use crate::format::layout::{header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ForeignReader};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
const OLD: [u8; 8] = [1; 8];

#[test]
fn nothing_is_read_of_what_an_adopting_writer_changes() {
    // It waits for no reader: it says that it adopts, and then other bytes stand where the value
    // stood, while entry and generation stay as they were. This comes between any two loads of a
    // read of one key, of a walk, and of a read in place.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", &OLD, 0).unwrap();
    let pin = a.me.pin();
    let record = a.reader.get(&pin, a.writer.hash(b"k"), b"k").unwrap().reference().offset();
    let shared = a.writer.words;
    let state = move |incarnation, value: [u8; 8]| {
        shared.store64(header::INCARNATION, incarnation, Relaxed);
        shared.store64(record + r::KEY + 8, u64::from_le_bytes(value), Relaxed);
    };
    let foreign = ForeignReader::open(&a.spec.path).unwrap().over(Stepped::over);
    let (words, arena) = (foreign.words().clone(), Rc::new(RefCell::new(a)));
    type Read<'a> = &'a dyn Fn(&mut Vec<Vec<u8>>) -> Result<(), ArenaError>;
    let get: Read<'_> = &|seen| {
        let mut out = Vec::new();
        foreign.get(b"k", &mut out).map(|_| seen.push(out))
    };
    let walk: Read<'_> = &|seen| {
        let mut cursor = 0;
        loop {
            cursor = foreign.scan(cursor, b"", &mut |record| seen.push(record.value.clone()))?;
            if cursor == 0 {
                return Ok(());
            }
        }
    };
    let in_place: Read<'_> = &|seen| {
        let mut out = OLD;
        if let Some(found) = foreign.in_place(b"k")?
            && found.read(0, &mut out).is_ok()
        {
            seen.push(out.to_vec());
        }
        Ok(())
    };
    for read in [get, walk, in_place] {
        at_every_load(
            &words,
            &arena,
            move |_, _| state(3, [2; 8]),
            |load| {
                let mut seen = Vec::new();
                let result = read(&mut seen);
                assert!(matches!(result, Ok(()) | Err(ArenaError::Adopting { .. })), "{result:?}");
                assert!(seen.iter().all(|value| *value == OLD), "it came before load {load}");
                state(2, OLD);
            },
        );
    }
}

#[test]
fn a_writer_that_comes_in_the_last_attempt_is_told() {
    // Each attempt at several keys ends since one of them went. In the last one the writer goes,
    // too: the error says that one is adopting, so that nobody asks it.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let mut attempts = 0;
    let ended = foreign.view(|view| {
        attempts += 1;
        a.put(b"k", b"v", 0).unwrap();
        assert!(a.delete(b"k"));
        if attempts == 16 {
            a.writer.words.store64(header::INCARNATION, 3, Relaxed);
        }
        view.get(b"k", &mut Vec::new())
    });
    assert!(matches!(ended, Err(ArenaError::Adopting { .. })) && attempts == 16, "{ended:?}");
}
