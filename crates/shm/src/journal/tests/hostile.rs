//! Whatever stands in a journal, reading it ends, with a fault or without, and never panics.

use super::super::journal_error::JournalError;
use super::super::journal_file::{JournalFile, journal_path};
use super::super::layout::{Effect, change as c, entry as e, header};
use super::super::payload::{Payload, StreamChange};
use super::super::ring_reader::{JournalReader, PlainEntry};
use super::{Kept, Ring, record_of};
use crate::format::layout::record as r;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;

/// A journal with some commits; the offset of each in the file.
fn journal() -> (TempDir, Vec<u64>) {
    let mut ring = Ring::new();
    let mut at = Vec::new();
    for values in [vec![Some(10)], vec![Some(20), None], vec![None], vec![Some(40), Some(5)]] {
        at.push(header::BYTES + ring.writer.tail());
        ring.put(&values);
    }
    at.push(header::BYTES + ring.writer.tail());
    let Ring { dir, writer, reader, .. } = ring;
    drop((writer, reader));
    (dir, at)
}

fn patch(dir: &TempDir, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(journal_path(dir.path(), 2));
    file.expect("the journal").write_all_at(bytes, at).expect("a few bytes");
}

/// What reading says: as a start, and as the log's thread.
fn read(dir: &TempDir) -> [Result<u64, JournalError>; 2] {
    let start = open(dir).and_then(|file| Ok(file.contents()?.commits));
    let live = changes(dir, false).map(|changes| {
        let commits = changes.chunk_by(|a, b| a.1 == b.1);
        commits.count() as u64
    });
    // However it reads what is plain.
    let plain = changes(dir, true);
    match (&live, &plain) {
        (Ok(_), Ok(plain)) => assert_eq!(plain, &changes(dir, false).expect("as before")),
        (Err(live), Err(plain)) => assert_eq!(live.to_string(), plain.to_string()),
        (live, plain) => panic!("{live:?}, {plain:?} of plain ones"),
    }
    [start, live]
}

fn open(dir: &TempDir) -> Result<JournalFile, JournalError> {
    JournalFile::open(dir.path(), 2).map(|file| file.expect("it is there"))
}

/// Each change that the log's thread reads, with the position behind its entry, its stream and the
/// clock: by the way for plain entries, or by the one for all.
fn changes(dir: &TempDir, plain: bool) -> Result<Vec<(Kept, u64, u32, u64)>, JournalError> {
    let mut reader = JournalReader::new(&Arc::new(open(dir)?));
    let mut changes = Vec::new();
    loop {
        let tail = reader.tail();
        if let Some(it) = plain.then(|| reader.advance_plain(tail)).flatten() {
            let PlainEntry { stream, lsn, effect, clock_ms, payload } = it;
            let kept = Kept { lsn, effect, payload: payload.to_vec() };
            changes.push((kept, reader.position(), stream, clock_ms));
            continue;
        }
        let Some(entry) = reader.advance()? else { return Ok(changes) };
        entry.needs().for_each(drop);
        let facts = (entry.end(), entry.stream(), entry.clock_ms());
        // What is wrong with one of them is said, or nothing.
        let all = entry.changes().filter_map(Result::ok);
        changes.extend(all.map(|it| (Kept::of(&it), facts.0, facts.1, facts.2)));
    }
}

#[test]
fn a_wrong_field_of_an_entry_is_found_and_named() {
    let four = |n: u32| n.to_le_bytes().to_vec();
    let head = [
        (e::POSITION, vec![32], "position of an entry"),
        (e::BYTES, four(0), "bytes of an entry"),
        (e::BYTES, four(96), "a change"),
        (e::BYTES, four(100), "bytes of an entry"),
        (e::BYTES, four(1 << 30), "bytes of an entry"),
        (e::BYTES + 4, vec![1], "bytes of an entry"),
        (e::KIND, vec![3], "kind of an entry"),
        (e::KIND, vec![2], "bytes of an entry"),
        (e::NEEDS, vec![65], "dependencies"),
        (e::NEEDS, vec![1], "change"),
        (e::CHANGES, four(0), "changes of an entry"),
        (e::CHANGES, four(3), "change"),
        (e::CHANGES, four(u32::MAX), "changes of an entry"),
    ];
    let change = [
        (c::PAYLOAD_BYTES, four(u32::MAX), "payload"),
        (c::PAYLOAD_BYTES, four(8), "change"),
        (c::STREAM, vec![9], "LSN of a"),
        (c::LSN, vec![9], "LSN of a"),
        (c::LSN, vec![0], "LSN of a change"),
        (c::LSN + 7, vec![1], "LSN of a change"),
        (c::KIND, vec![0], "header of a change"),
        (c::KIND, vec![5], "header of a change"),
        (c::KIND, vec![4], "clears"),
        (c::FLAGS, vec![2], "header of a change"),
        (c::FLAGS, vec![0], "MORE"),
        (c::FLAGS + 1, vec![1], "header of a change"),
    ];
    let change = change.map(|(at, bytes, what)| (e::HEADER_BYTES + at, bytes, what));
    for (at, bytes, wanted) in head.into_iter().chain(change) {
        let (dir, entries) = journal();
        // The second has two changes.
        patch(&dir, entries[1] + at, &bytes);
        let [start, _] = read(&dir);
        let error = start.expect_err(wanted).to_string();
        assert!(error.contains(wanted) && error.contains("offset"), "{at}: {error}, not {wanted}");
    }
}

#[test]
fn a_record_with_a_wrong_sum_is_found() {
    let (dir, entries) = journal();
    let value = entries[0] + e::HEADER_BYTES + c::HEADER_BYTES + r::KEY + 8;
    patch(&dir, value, b"x");
    let [start, live] = read(&dir);
    let error = start.expect_err("a wrong sum").to_string();
    assert!(error.contains("checksum of its record is wrong (LSN 1)"), "{error}");
    assert_eq!(live.expect("only a start looks"), 4);
}

#[test]
fn a_gap_between_commits_is_found() {
    let mut ring = Ring::new();
    ring.put(&[Some(1)]);
    ring.lsn += 1;
    ring.put(&[Some(1)]);
    let Ring { dir, writer, reader, .. } = ring;
    drop((writer, reader));
    let error = read(&dir)[0].as_ref().expect_err("a gap").to_string();
    assert!(error.contains("first LSN of an entry is 3, expected 2"), "{error}");
}

#[test]
fn payloads_that_are_cut_off_or_too_long_are_refused() {
    let put = record_of(b"key", b"value", 9, 0);
    let name = [[7u8; 12], [0; 12]].concat();
    let mut run = record_of(b"key", &name[..16], 9, 0);
    (run[31], run[0]) = (r::FLAG_RUN, 100);
    let gone = record_of(b"key", b"", 9, r::FLAG_TOMBSTONE);
    let mut based = [3u64.to_le_bytes(), (60u64 | 4 << 32 | 1 << 48).to_le_bytes()].concat();
    let mut on_run = run.clone();
    on_run[31] = r::FLAG_RUN | r::FLAG_BASED;
    based.extend_from_slice(&on_run);
    based.extend_from_slice(b"from");
    let value = [5; 101];
    let cases: [(Effect, &[u8], usize); 4] = [
        (Effect::Put, &put, 0),
        (Effect::Put, &run, 100),
        (Effect::Gone, &gone, 0),
        (Effect::Based, &based, 40),
    ];
    for (effect, whole, behind) in cases {
        let parse = |payload: &[u8], rest: &[u8], named| {
            let change = StreamChange { lsn: 9, effect, payload, rest };
            change.key().map(drop).and(Payload::parse(&change, named).map(drop))
        };
        let joined = [whole, &value[..behind]].concat();
        assert_eq!(parse(whole, &value[..behind], false), Ok(()), "{effect:?}");
        assert_eq!(parse(&joined, &[], false), Ok(()), "{effect:?}");
        assert_eq!(parse(whole, &[], true), Ok(()), "{effect:?}");
        (0..whole.len()).for_each(|n| assert!(parse(&whole[..n], &[], true).is_err(), "{n}"));
        (0..joined.len()).for_each(|n| assert!(parse(&joined[..n], &[], false).is_err(), "{n}"));
        assert!(parse(&[whole, &[0]].concat(), &[], true).is_err());
        assert!(parse(whole, &value[..behind + 1], false).is_err());
        // No effect has another's record.
        for other in [Effect::Put, Effect::Gone, Effect::Based, Effect::Clear] {
            let change = StreamChange { lsn: 9, effect: other, payload: whole, rest: &[] };
            assert_eq!(Payload::parse(&change, true).is_ok(), other == effect, "{other:?}");
        }
        let other_lsn = StreamChange { lsn: 8, effect, payload: whole, rest: &[] };
        assert!(Payload::parse(&other_lsn, true).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_reader_panic(
        patches in proptest::collection::vec((0..900u64, any::<u8>()), 1..12),
        tail in 0..60u64,
    ) {
        let (dir, _) = journal();
        for (at, byte) in patches {
            patch(&dir, header::BYTES + at, &[byte]);
        }
        if tail < 30 {
            patch(&dir, header::TAIL, &(tail * e::ALIGN).to_le_bytes());
        }
        read(&dir).into_iter().for_each(drop);
    }
}
