//! What a log's changes make of an arena that is being built, beside its keys: places in a growing
//! index, counts, and values of an arena with other slots.

use super::telling::{KeptChange, STREAM, Telling, replay, replayed, state};
use super::{Arena, assert_counted, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::{Domain, Effect, JournalFile, ReplayError, StreamJournal, Writer};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

/// The commits that make these keys, one for each.
fn puts(keys: std::ops::Range<u32>) -> (Telling, Vec<Vec<KeptChange>>) {
    let mut t = Telling::new(16 * MIB);
    let mut commits = Vec::new();
    for i in keys {
        t.a.put(&i.to_le_bytes(), b"v", u64::from(i % 2)).unwrap();
        if i % 1_000 == 0 {
            commits.extend(t.read());
            t.leave();
        }
    }
    commits.extend(t.read());
    (t, commits)
}

#[test]
fn a_log_of_single_changes_moves_its_index_by_itself() {
    let (t, commits) = puts(0..3_000);
    let dir = directory();
    let writer = Writer::build(&spec(dir.path().join("b"), 16 * MIB), &Domain::new(4));
    let mut writer = writer.expect("an arena");
    let mut growing = 0;
    for commit in &commits {
        let changes: Vec<_> = commit.iter().map(KeptChange::change).collect();
        let replayed = writer.replay(&changes).expect("memory");
        assert!(replayed.dangling.is_empty());
        growing = if writer.index.growing() { growing + 1 } else { 0 };
        // Each moves two of at most 512 lines.
        assert!(growing <= 512, "growth goes on with each change");
    }
    let of = |w: &Writer| (w.keys(), w.expires(), w.appended, w.stats().used_bytes);
    assert_eq!(of(&writer), of(&t.a.writer));
    writer.end_replay(5_000);
    let words = [header::BEGUN_LSN, header::COMMITTED_LSN, header::KEYS];
    let words = words.map(|at| writer.words.load64(at, Relaxed));
    assert_eq!((writer.lsn, words), (5_000, [5_000, 5_000, 3_000]));
    for i in 0..3_000u32 {
        let (key, hash) = (i.to_le_bytes(), writer.hash(&i.to_le_bytes()));
        assert!(writer.index.locate(&writer.words, hash, &key).found.is_some(), "{i}");
    }
}

#[test]
fn a_value_of_a_large_segment_gets_a_run_where_segments_are_small() {
    let mut t = Telling::new(256 * MIB);
    t.a.put(b"k", &[7; 150_000], 9).unwrap();
    assert_eq!(t.a.writer.stats().runs, 0, "its slots are of 1 MiB");
    let (_dir, b) = replayed(&t.read(), 16 * MIB);
    assert_eq!((state(&b), b.writer.stats().runs), (state(&t.a), 1));
}

#[test]
fn versions_that_a_later_one_replaces_are_counted_out() {
    // By a commit of one change and of several, by removals, and by a clearing.
    let mut t = Telling::new(16 * MIB);
    let commit = |t: &mut Telling, clears, keys: &[&[u8]]| {
        let writer = &mut t.a.writer;
        let refs: Vec<_> =
            keys.iter().map(|k| writer.stage(writer.hash(k), k, &[b"v"], 5).unwrap()).collect();
        writer.commit(&t.a.me.pin(), clears, &refs).unwrap();
    };
    let mut commits = Vec::new();
    for clears in [false, true] {
        t.a.put(b"a", b"one", 3).unwrap();
        t.a.put(b"a", b"another", 3).unwrap();
        commit(&mut t, false, &[b"a", b"b", b"c"]);
        assert!(t.a.delete(b"b"));
        let key = (t.a.writer.hash(b"c"), &b"c"[..]);
        t.a.writer.delete_together(&t.a.me.pin(), &[key, (t.a.writer.hash(b"a"), b"a")]);
        commit(&mut t, clears, &[b"d", b"e"]);
        commits.extend(t.read());
        let (_dir, b) = replayed(&commits, 16 * MIB);
        assert_eq!(state(&b), state(&t.a), "{clears}");
        assert_counted(&b);
    }
}

#[test]
fn a_clearing_that_is_done_again_leaves_its_number() {
    for more in [false, true] {
        let mut t = Telling::new(16 * MIB);
        t.a.put(b"a", b"v", 0).unwrap();
        t.read();
        let path = t.dir.path().join("a");
        // The arena as it was before: the journal alone has the clearing.
        let before = std::fs::read(&path).unwrap();
        let refs = match more {
            false => vec![],
            true => vec![t.a.writer.stage(t.a.writer.hash(b"b"), b"b", &[b"v"], 0).unwrap()],
        };
        t.a.writer.commit(&t.a.me.pin(), true, &refs).unwrap();
        let Telling { dir, a, ring, reader } = t;
        let spec = a.spec.clone();
        drop((a, ring, reader));
        std::fs::write(&path, before).unwrap();
        let file = JournalFile::open(dir.path(), 0).unwrap().expect("a journal");
        let journal = StreamJournal { journals: &[&file], stream: STREAM, logged_lsn: 0 };
        let domain = Domain::new(4);
        let (writer, adoption) = Writer::adopt_beside(&spec, &domain, &journal).expect("an arena");
        let (keys, lsn) = (u64::from(more), 2 + u64::from(more));
        assert_eq!((adoption.redone_commits, adoption.keys, writer.lsn), (1, keys, lsn));
        assert_eq!(writer.words.load64(header::CLEAR_STAMP, Relaxed), 2);
    }
}

#[test]
fn changes_that_were_checked_say_their_number_and_key() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"a", b"v", 0).unwrap();
    t.a.writer.clear();
    let told = t.read();
    let check = |n: usize| {
        let change = told[n][0].change();
        let it = t.a.writer.check_change(&change).expect("right bytes");
        (it.lsn(), it.key().map(<[u8]>::to_vec))
    };
    assert_eq!(check(0), (1, Some(b"a".to_vec())));
    assert_eq!((told[1][0].effect, check(1)), (Effect::Clear, (2, None)));
    // One again changes nothing.
    let (_dir, mut b) = replayed(&told[..1], 16 * MIB);
    assert_eq!(replay(&mut b, &[told[0][0].change()]), Ok(vec![]));
    assert_eq!(b.writer.keys(), 1);
}

#[test]
fn an_older_commit_of_several_changes_nothing() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"first", b"v", 0).unwrap();
    let writer = &mut t.a.writer;
    let refs = [b"a", b"b"].map(|k| writer.stage(writer.hash(k), k, &[b"old"], 0).unwrap());
    writer.commit(&t.a.me.pin(), false, &refs).unwrap();
    t.a.put(b"a", b"new", 0).unwrap();
    assert!(t.a.delete(b"b"));
    t.a.put(b"b", b"new", 0).unwrap();
    let told = t.read();
    let again = [&told[..], &told[1..2]].concat();
    let (_dir, b) = replayed(&again, 16 * MIB);
    assert_eq!((state(&b), b.writer.keys()), (state(&t.a), 3));
    assert_counted(&b);
}

#[test]
fn all_records_together_make_the_same_arena_and_a_bad_one_is_named() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.put(b"a", b"old", 0).unwrap();
    a.put(b"a", b"a short value", 9).unwrap();
    a.put(b"long", &[7; 200_000], 0).unwrap();
    let give = |a: &Arena| {
        let mut commits = Vec::new();
        let mut take = |lsn, pieces: &[&[u8]]| {
            commits.push(vec![KeptChange { lsn, effect: Effect::Put, payload: pieces.concat() }]);
            Ok::<(), ReplayError>(())
        };
        a.writer.each_record(&mut take).map(|()| commits)
    };
    let (_dir, b) = replayed(&give(&a).unwrap(), 16 * MIB);
    assert_eq!((state(&b), b.writer.keys()), (state(&a), 2));
    let file = File::options().write(true).read(true).open(&a.spec.path).unwrap();
    for (key, lsn, what) in [(&b"a"[..], 2, "its record"), (b"long", 3, "its value")] {
        let pin = a.me.pin();
        let at = a.reader.get(&pin, a.reader.hash(key), key).unwrap().value_ref().offset() + 3;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(b"X", at).unwrap();
        let ReplayError::Record { lsn: bad, what: why } = give(&a).unwrap_err() else { panic!() };
        assert!(bad == lsn && why.contains(what), "{bad}: {why}");
        file.write_all_at(&byte, at).unwrap();
    }
}
