//! Flipped bits: `verify` finds each, and says whose it is.

use super::{Arena, directory, spec};
use crate::format::head::{Head, RunName};
use crate::format::layout::{entry_reference, record as r};
use crate::format::words::SharedWords;
use crate::{Domain, Writer, verify};
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const FLIPS: usize = 1000;

/// An arena of short and long keys and values, some in runs; and the bytes of all that belongs to a
/// key, but for `prev`.
fn filled(a: &mut Arena) -> Vec<(Vec<u8>, u64)> {
    for i in 0..60usize {
        let key = format!("key {i}{}", "k".repeat(i % 9));
        a.put(key.as_bytes(), &vec![i as u8; i * 13], (i % 3) as u64 * 1_000_000_000_000).unwrap();
    }
    for key in ["long", "longer"] {
        a.put(key.as_bytes(), &vec![7; 70_000 + key.len()], 0).unwrap();
    }
    let (words, g) = (a.writer.words, *a.writer.space.geometry());
    let mut bytes = Vec::new();
    a.writer.index.each(&words, &mut |_, e| {
        let at = u64::from(entry_reference(e)) * r::UNIT;
        let head = Head::load(&words, at);
        let mut key = vec![0; head.key_len.into()];
        words.copy_out(at + r::KEY, &mut key);
        let prev = at + r::PREV..at + r::PREV + 4;
        bytes.extend(
            (at..at + head.bytes()).filter(|it| !prev.contains(it)).map(|it| (key.clone(), it)),
        );
        if head.has_run() {
            let value = g.slot_offset(RunName::load(&words, at, &head).slot);
            // As many as of a small value, from all over it.
            let some = (0..u64::from(head.value_len)).step_by(97);
            bytes.extend(some.map(|it| (key.clone(), value + it)));
        }
    });
    bytes
}

#[test]
fn each_flipped_bit_of_a_record_is_found() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let bytes = filled(&mut a);
    let spec = a.spec.clone();
    drop(a);
    let report = verify(&spec.path).unwrap();
    assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&spec.path).unwrap();
    let mut by_sum = 0;
    for n in 0..FLIPS {
        let (key, at) = &bytes[n * bytes.len() / FLIPS];
        let mut byte = [0];
        file.read_exact_at(&mut byte, *at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (n % 8)], *at).unwrap();
        let report = verify(&spec.path).unwrap();
        let named = report.bad_records.iter().map(|bad| &bad.key).collect::<Vec<_>>();
        if report.findings.is_empty() {
            assert_eq!(named, [key], "bit {} at {at:#x}", n % 8);
            by_sum += 1;
        }
        file.write_all_at(&byte, *at).unwrap();
    }
    // The others make a record that contradicts itself, or its entry: lengths, kind, flags, the
    // key.
    assert!(by_sum > FLIPS / 2, "{by_sum}");
    assert!(verify(&spec.path).unwrap().bad_records.is_empty());
}

#[test]
fn a_bad_value_is_told_and_served_with_the_others() {
    // One flipped bit in a value must not keep the other keys from being served.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"good", b"value", 0).unwrap();
    a.put(b"bad", b"value", 0).unwrap();
    let at = {
        let pin = a.me.pin();
        a.reader.get(&pin, a.writer.hash(b"bad"), b"bad").unwrap().value_ref().offset()
    };
    let spec = a.spec.clone();
    drop(a);
    let file = std::fs::OpenOptions::new().write(true).open(&spec.path).unwrap();
    file.write_all_at(b"V", at).unwrap();
    let report = verify(&spec.path).unwrap();
    let [bad] = &report.bad_records[..] else { panic!("{report:?}") };
    assert_eq!((&*bad.key, report.keys), (&b"bad"[..], 2));
    let what = &bad.finding.what;
    assert!(what.starts_with("checksum of a record is ") && what.contains("expected"), "{what}");
    let (_, adoption) = Writer::adopt(&spec, &Domain::new(1)).unwrap();
    assert_eq!(adoption.keys, 2);
}
