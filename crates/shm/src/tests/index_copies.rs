//! A copy of the index, read while its arena goes on.

use super::{Arena, directory, spec};
use std::collections::BTreeMap;

/// The keys and values of a copy.
fn read(a: &Arena, pin: &crate::Pin<'_>, copy: &crate::IndexCopy) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let records = (0..copy.len()).map(|at| a.reader.record_of(pin, copy, at).expect("a record"));
    assert!(a.reader.record_of(pin, copy, copy.len()).is_none());
    let pairs = records.map(|record| (record.key().to_vec(), record.value().to_vec()));
    let map: BTreeMap<_, _> = pairs.collect();
    assert_eq!(map.len(), copy.len(), "each key is there once");
    map
}

#[test]
fn a_copy_has_all_as_it_was_while_the_arena_is_overwritten_and_grows() {
    // Copies are taken again and again while keys come, so some while the index grows. Then
    // everything is overwritten, half is deleted, and all is cleared.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("arena"), 64 << 20));
    let reading = a.domain.join();
    let (mut grown, mut model) = (0, BTreeMap::new());
    for n in 0..20_000_u32 {
        let (key, value) = (n.to_le_bytes(), vec![n as u8; 40 + n as usize % 50]);
        let hash = a.writer.hash(&key);
        a.writer.put(&a.me.pin(), hash, &key, &[&value], 0).expect("room");
        model.insert(key.to_vec(), value);
        if a.writer.stats().growing && n % 17 == 0 {
            grown += 1;
            let pin = reading.pin();
            assert_eq!(a.reader.copy_index(&pin, Vec::new()).len(), model.len());
        }
        a.me.quiescent();
    }
    assert!(grown > 10, "{grown} copies while the index grew");
    let pin = reading.pin();
    let copy = a.reader.copy_index(&pin, vec![7; model.len()]);
    let before = a.writer.given_up_bytes();
    for n in 0..20_000_u32 {
        let key = n.to_le_bytes();
        let hash = a.writer.hash(&key);
        if n % 2 == 0 {
            assert!(a.writer.delete(&a.me.pin(), hash, &key));
        } else {
            a.writer.put(&a.me.pin(), hash, &key, &[&[0xEE; 100]], 0).expect("room");
        }
        a.me.quiescent();
        a.writer.maintain(crate::UpkeepBudget::default());
    }
    a.writer.clear();
    a.me.quiescent();
    for _ in 0..100 {
        a.writer.maintain(crate::UpkeepBudget::default());
    }
    assert!(a.writer.given_up_bytes() > before + (1 << 20), "much was given up");
    assert!(a.writer.stats().retired > 1, "and waits for the copy's pin");
    assert_eq!(read(&a, &pin, &copy), model);
    drop(reading);
    let mut turns = 0;
    while a.writer.stats().retired > 0 {
        a.writer.maintain(crate::UpkeepBudget::default());
        turns += 1;
        assert!(turns < super::TURNS_MAX, "nothing comes back");
    }
}

#[test]
#[should_panic(expected = "a copy of another turn")]
fn a_copy_that_is_kept_too_long_is_refused() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("arena"), 4 << 20));
    let hash = a.writer.hash(b"key");
    a.writer.put(&a.me.pin(), hash, b"key", &[b"value"], 0).expect("room");
    let copy = a.reader.copy_index(&a.me.pin(), Vec::new());
    a.me.quiescent();
    let _ = a.reader.record_of(&a.me.pin(), &copy, 0);
}
