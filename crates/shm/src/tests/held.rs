//! A journal that holds values: all that it tells is in it, also when the arena is gone.

use super::telling::{KeptChange, Telling, replayed, state};
use crate::{ArenasByStream, JournalError, JournalFile, WriteError, journal_path};
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const LONG: usize = 200_000;

#[test]
fn long_values_are_read_from_the_journal_alone() {
    // The process was killed, and its arena went with it; the log's thread hadn't come yet.
    let mut t = Telling::holding(16 * MIB);
    t.a.put(b"short", b"value", 0).unwrap();
    t.a.put(b"long", &[7; LONG], 0).unwrap();
    let (hash, pin) = (t.a.writer.hash(b"long"), t.a.me.pin());
    t.a.writer.set_expiry(&pin, hash, b"long", 99).unwrap();
    let record = t.a.reader.get(&pin, hash, b"long").unwrap().reference();
    t.a.writer.extend(&pin, record, (hash, b"long"), &[&[9; 70_000]], 5).unwrap();
    let (before, Telling { a, ring, reader, dir }) = (state(&t.a), t);
    drop((a, ring, reader));
    std::fs::remove_file(dir.path().join("a")).expect("the arena");
    let file = JournalFile::open(dir.path(), 0).expect("a journal").expect("it is there");
    assert!(file.holds_values());
    assert_eq!(file.contents().expect("whole entries").changes, 4);
    let mut commits = Vec::new();
    let mut keep = |entry: &crate::JournalEntry<'_>| {
        let changes = entry.changes().map(|it| it.map(|it| KeptChange::of(&it)));
        commits.push(changes.collect::<Result<Vec<_>, _>>()?);
        Ok::<(), JournalError>(())
    };
    file.each_commit(&ArenasByStream::new(), &mut keep).expect("nothing is named");
    let (_dir, b) = replayed(&commits, 16 * MIB);
    assert_eq!(state(&b), before);
    assert_eq!(before[&b"long"[..]].0.len(), LONG + 70_000);
}

#[test]
fn a_run_is_free_though_its_entry_has_not_left() {
    let mut t = Telling::holding(16 * MIB);
    for n in 0..3 {
        t.a.put(b"k", &[n; LONG / 2], 0).unwrap();
        t.a.settle();
    }
    assert_eq!(t.a.writer.stats().runs, 1, "the journal has the others' bytes");
    let told = t.read();
    assert!((0..3_u8).all(|n| told[usize::from(n)][0].payload.ends_with(&[n; LONG / 2])));
}

#[test]
fn a_value_that_is_too_long_for_an_entry_is_refused() {
    let mut t = Telling::holding(16 * MIB);
    let refused = t.a.put(b"k", &[1; 300_000], 0);
    assert!(matches!(refused, Err(WriteError::JournalTooSmall { .. })), "{refused:?}");
    assert!(t.a.get(b"k").is_none() && t.read().is_empty());
    Telling::new(16 * MIB).a.put(b"k", &[1; 300_000], 0).expect("it is only named");
}

#[test]
fn a_held_value_with_another_sum_is_found() {
    let mut t = Telling::holding(16 * MIB);
    t.a.put(b"k", &[7; LONG], 0).unwrap();
    let Telling { a, ring, reader, dir } = t;
    drop((a, ring, reader));
    let raw = std::fs::File::options().write(true).open(journal_path(dir.path(), 0)).unwrap();
    raw.write_all_at(&[8], 4096 + LONG as u64 / 2).unwrap();
    let file = JournalFile::open(dir.path(), 0).expect("a journal").expect("it is there");
    let mut look = |entry: &crate::JournalEntry<'_>| {
        entry.changes().try_for_each(|it| it.map(drop)).map(|()| panic!("it is right"))
    };
    let found = file.each_commit::<JournalError>(&ArenasByStream::new(), &mut look);
    assert!(matches!(found, Err(JournalError::Value { .. })), "{found:?}");
}
