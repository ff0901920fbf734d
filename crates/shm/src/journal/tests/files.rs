//! The file of a journal: what is made, and what isn't believed.

use super::super::journal_error::JournalError;
use super::super::journal_file::{JournalFile, JournalSpec, journal_path};
use super::super::layout::{JOURNAL_BYTES_MIN, header};
use super::super::ring_writer::JournalWriter;
use super::{Ring, spec};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Stores bytes in a journal's file.
fn patch(folder: &Path, at: u64, bytes: &[u8]) {
    let path = journal_path(folder, 2);
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the journal");
    file.write_all_at(bytes, at).expect("a few bytes");
}

#[test]
fn a_journal_has_its_bytes_where_the_format_says() {
    let dir = crate::tests::directory();
    let file = JournalFile::create(dir.path(), &spec()).expect("a journal");
    file.set_newest_file(12);
    file.set_generation(4);
    file.set_broken(3);
    file.set_broken(2);
    file.set_boot_id(&[9; 16]);
    let info = file.info();
    assert_eq!((info.generation, info.newest_file, info.broken), (4, 12, 3));
    assert_eq!((info.shard, info.boot_id, info.log_id), (2, [9; 16], [1; 16]));
    let bytes = std::fs::read(dir.path().join("journal.2")).expect("the file");
    assert_eq!(bytes.len() as u64, 4096 + JOURNAL_BYTES_MIN);
    let mut wanted = vec![0; bytes.len()];
    wanted[..8].copy_from_slice(b"NIGHJRN1");
    wanted[8] = 1;
    wanted[12] = 2;
    wanted[24..32].copy_from_slice(&JOURNAL_BYTES_MIN.to_le_bytes());
    wanted[32..48].fill(1);
    wanted[48..64].fill(9);
    (wanted[64], wanted[72], wanted[96]) = (4, 12, 3);
    assert!(bytes == wanted, "{:?}", &bytes[..256]);
    assert!(!dir.path().join("journal.2.new").exists());
}

#[test]
fn an_entry_has_its_bytes_where_the_format_says() {
    let mut ring = Ring::new();
    let changes = ring.changes(&[Some(3), None]);
    ring.publish(&changes, &[(0x0A0B, 5)], 0x0102_0304);
    let bytes = std::fs::read(journal_path(ring.dir.path(), 2)).expect("the file");
    let entry = &bytes[4096..];
    let record = &changes[0].payload;
    let len = 32 + 16 + 24 + record.len() + 24 + changes[1].payload.len();
    let len = len.next_multiple_of(32);
    assert_eq!(entry[..8], [0; 8]);
    assert_eq!(entry[8..16], (len as u64).to_le_bytes());
    assert_eq!(entry[16..24], [1, 0, 1, 0, 2, 0, 0, 0]);
    assert_eq!(entry[24..32], 0x0102_0304u64.to_le_bytes());
    assert_eq!(entry[32..48], [0x0B, 0x0A, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    // The first change: PUT, LSN 1, and MORE.
    let change = &entry[48..];
    assert_eq!(change[..4], (record.len() as u32).to_le_bytes());
    assert_eq!(change[4..8], super::STREAM.to_le_bytes());
    assert_eq!(change[8..24], [1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(change[24..24 + record.len()], **record);
    let change = &change[24 + record.len()..];
    assert_eq!(change[8..24], [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[128..136], (len as u64).to_le_bytes(), "tail");
    assert_eq!(bytes[192..200], [0; 8], "head");
}

#[test]
fn a_header_that_makes_no_sense_is_refused_and_named() {
    let ring_bytes = JOURNAL_BYTES_MIN;
    let damages: [(u64, &[u8], &str); 11] = [
        (0, b"NIGHARN1", "is no journal: it begins with NIGHARN1"),
        (8, &[3], "format version 3"),
        (8, &[0], "format version is 0"),
        (12, &[3], "number of the shard is 3, expected 2"),
        (24, &[1], "bytes of the ring"),
        (24, &(2 * ring_bytes).to_le_bytes(), "length of the file"),
        (header::TAIL, &[1], "tail"),
        (header::TAIL, &(ring_bytes + 32).to_le_bytes(), "tail"),
        (header::TAIL, &(1u64 << 62).to_le_bytes(), "tail"),
        (header::HEAD, &[32], "tail is 0"),
        (header::HEAD, &[33], "head"),
    ];
    for (at, bytes, wanted) in damages {
        let dir = crate::tests::directory();
        drop(JournalFile::create(dir.path(), &spec()).expect("a journal"));
        patch(dir.path(), at, bytes);
        for open in [JournalFile::open, JournalFile::look] {
            let error = open(dir.path(), 2).err().expect("a refusal").to_string();
            assert!(error.contains(wanted) && error.contains("journal.2"), "{error}: {wanted}");
        }
    }
    for len in [0, 100, 4096, 4096 + ring_bytes - 1, 4096 + ring_bytes + 1] {
        let dir = crate::tests::directory();
        drop(JournalFile::create(dir.path(), &spec()).expect("a journal"));
        let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("journal.2"));
        file.and_then(|file| file.set_len(len)).expect("another length");
        let error = JournalFile::open(dir.path(), 2).err().expect("a refusal").to_string();
        assert!(error.contains("length of the file"), "{error}");
    }
}

#[test]
fn a_journal_that_is_not_there_is_none() {
    let dir = crate::tests::directory();
    assert!(JournalFile::open(dir.path(), 2).expect("no error").is_none());
    assert!(JournalFile::look(dir.path(), 2).expect("no error").is_none());
}

#[test]
fn a_size_that_is_none_is_refused() {
    let dir = crate::tests::directory();
    for ring_bytes in [0, JOURNAL_BYTES_MIN / 2, JOURNAL_BYTES_MIN + 1, 8 << 30] {
        let refused = JournalFile::create(dir.path(), &JournalSpec { ring_bytes, ..spec() });
        assert!(matches!(refused, Err(JournalError::Size { bytes, .. }) if bytes == ring_bytes));
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0);
}

#[test]
fn one_process_maps_a_journal_once_and_looks_as_often_as_it_likes() {
    let dir = crate::tests::directory();
    let file = JournalFile::create(dir.path(), &spec()).expect("a journal");
    assert!(matches!(JournalFile::open(dir.path(), 2), Err(JournalError::InUse { .. })));
    let look = JournalFile::look(dir.path(), 2).expect("whole").expect("there");
    file.set_generation(5);
    assert_eq!(look.info().generation, 5);
    drop(file);
    assert!(JournalFile::open(dir.path(), 2).expect("whole").is_some());
    // A new one takes its place.
    let file = JournalFile::create(dir.path(), &spec()).expect("another journal");
    assert_eq!(file.info().generation, 0);
}

#[test]
#[should_panic(expected = "only looked at")]
fn what_is_looked_at_is_not_written() {
    let dir = crate::tests::directory();
    drop(JournalFile::create(dir.path(), &spec()).expect("a journal"));
    let look = JournalFile::look(dir.path(), 2).expect("whole").expect("there");
    let _ = JournalWriter::new(&Arc::new(look));
}

#[test]
fn entries_are_dropped_by_a_start() {
    let mut ring = Ring::new();
    ring.put(&[Some(1)]);
    let Ring { dir, writer, reader, .. } = ring;
    drop((writer, reader));
    let file = JournalFile::open(dir.path(), 2).expect("whole").expect("there");
    file.drop_entries();
    assert_eq!(file.contents().expect("none").commits, 0);
    let mut ring = Ring { lsn: 1, ..Ring::over(dir, file) };
    let told = ring.put(&[Some(2)]);
    assert_eq!(ring.next(), Some(told));
}
