//! What a start finds in a journal if its writer died before any of its stores: a commit is wholly
//! there from the store of tail on, and not at all before.
//!
//! ```text
//! a commit's stores   s s s tail s begun s s committed       before each, both files are copied
//!                       └─ as before ─┘└─── as behind ──┘
//! ```
//!
//! What adopts dies before some of its stores too; the next one comes to the same end.

use super::telling::{STREAM, State, Telling, journal_spec, state};
use super::{Arena, assert_counted, directory, spec};
use crate::failpoints::before_each_step;
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::{
    Adoption, ArenasByStream, AsideArena, Domain, Effect, JournalError, JournalFile, StreamJournal,
    Writer, journal_path, verify,
};
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use tempfile::TempDir;

const CAPACITY: u64 = 6 << 20;
const LONG: usize = 200_000;
const PAGE: usize = 4096;
/// Of an adoption's stores, one in so many is a death.
const SECOND_EVERY: u64 = 13;

/// Copies a file, holes as holes.
fn copy(from: &Path, to: &Path) {
    let bytes = std::fs::read(from).expect("a file");
    let file = std::fs::File::create(to).expect("a copy");
    file.set_len(bytes.len() as u64).expect("its length");
    for (at, page) in (0u64..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
        if page != &[0; PAGE][..page.len()] {
            file.write_all_at(page, at).expect("room for a copy");
        }
    }
}

fn copy_both(from: &Path, to: &Path) {
    for name in ["a", "journal.0"] {
        let _ = std::fs::remove_file(to.join(name));
        copy(&from.join(name), &to.join(name));
    }
}

/// Adopts the arena of a folder beside its journal.
fn adopt(folder: &Path, file: &JournalFile, logged_lsn: u64) -> (Arena, Adoption) {
    let domain = Domain::new(4);
    let spec = spec(folder.join("a"), CAPACITY);
    let journal = StreamJournal { journals: &[file], stream: STREAM, logged_lsn };
    let adopted = Writer::adopt_beside(&spec, &domain, &journal);
    let (writer, adoption) = adopted.expect("an arena that can be adopted");
    (Arena::of(writer, domain, spec), adoption)
}

fn open(folder: &Path) -> JournalFile {
    JournalFile::open(folder, 0).expect("a whole journal").expect("there")
}

/// The last number of the stream in a journal.
fn last_lsn(file: &JournalFile) -> u64 {
    let lsns = file.contents().expect("whole entries").lsns;
    lsns.get(&STREAM).map_or(0, |&(_, last)| last)
}

/// A history: two long values that were overwritten before the log's thread came, short ones.
fn filled(leaves: bool) -> Telling {
    let mut t = Telling::new(CAPACITY);
    for n in 0..6u8 {
        t.a.put(&[b'k', n], &vec![n; usize::from(n) * 40], u64::from(n % 2) * 1000).unwrap();
    }
    if leaves {
        t.read();
        t.leave();
    }
    t.a.put(b"long", &[1; LONG], 0).unwrap();
    t.a.put(b"long", &[2; LONG], 0).unwrap();
    t.a.put(b"other", &[3; LONG], 0).unwrap();
    t
}

type Commit = fn(&mut Arena);

/// Commits by all ways that there are.
const COMMITS: [(&str, Commit); 10] = [
    ("a short value", |a| a.put(b"k3", b"new", 5).unwrap()),
    ("a new key", |a| a.put(b"new", b"value", 0).unwrap()),
    ("a long value", |a| a.put(b"long", &[4; LONG + 1], 0).unwrap()),
    ("a deletion", |a| assert!(a.delete(&[b'k', 2]))),
    ("another expiry", |a| {
        let hash = a.writer.hash(b"long");
        assert!(a.writer.set_expiry(&a.me.pin(), hash, b"long", 77).unwrap());
    }),
    ("an extension", |a| {
        let (hash, pin) = (a.writer.hash(b"other"), a.me.pin());
        let record = a.reader.get(&pin, hash, b"other").unwrap().reference();
        a.writer.extend(&pin, record, (hash, b"other"), &[&[9; 70_000]], 0).unwrap();
    }),
    ("several", |a| several(a, false)),
    ("several behind a clearing", |a| several(a, true)),
    ("deletions together", |a| {
        let pin = a.me.pin();
        let keys = [&b"long"[..], &[b'k', 1], &[b'k', 4]].map(|key| (a.writer.hash(key), key));
        a.writer.delete_together(&pin, &keys);
    }),
    ("a clearing", |a| a.writer.clear()),
];

/// Two puts, a deletion, and a long value that gets another name.
fn several(a: &mut Arena, clears: bool) {
    let (pin, hash) = (a.me.pin(), |a: &Arena, key: &[u8]| a.writer.hash(key));
    let record = a.reader.get(&pin, hash(a, b"long"), b"long").unwrap().reference();
    let (h1, h2, h3, h4) = (hash(a, b"k9"), hash(a, b"long"), hash(a, b"moved"), hash(a, b"big"));
    let staged = [
        a.writer.stage(h1, b"k9", &[b"nine"], 0).unwrap(),
        a.writer.stage_delete(h2, b"long").unwrap(),
        a.writer.stage_moved_run(&pin, record, h3, b"moved", 0).unwrap(),
        a.writer.stage(h4, b"big", &[&[8; LONG]], 0).unwrap(),
    ];
    a.writer.commit(&pin, clears, &staged).unwrap();
}

/// What all deaths of one commit have in common.
struct Death {
    before: State,
    behind: State,
    last: u64,
    /// Deaths of which the one or the other came out, and commits that were done again.
    counts: [Cell<u64>; 3],
}

impl Death {
    /// Both files were copied to this folder: adopts them, dying now and then, and compares.
    fn check(self: &Rc<Self>, folder: &TempDir, dies: bool) {
        let file = open(folder.path());
        let is_told = last_lsn(&file) == self.last;
        drop(file);
        let (at, death, second) = (folder.path().to_path_buf(), Rc::clone(self), directory());
        let steps = Cell::new(self.counts[0].get());
        let again = move || {
            steps.set(steps.get() + 1);
            if dies && steps.get().is_multiple_of(SECOND_EVERY) {
                copy_both(&at, second.path());
                death.check(&second, false);
            }
        };
        let (a, adoption) = before_each_step(again, || {
            let file = open(folder.path());
            adopt(folder.path(), &file, 0)
        });
        let wanted = if is_told { &self.behind } else { &self.before };
        assert!(state(&a) == *wanted, "told: {is_told}");
        self.counts[usize::from(is_told)].set(self.counts[usize::from(is_told)].get() + 1);
        self.counts[2].set(self.counts[2].get() + adoption.redone_commits);
        let words = a.writer.words;
        let of = |at| words.load64(at, Acquire);
        let lsn = a.writer.stats().lsn;
        assert_eq!((of(header::BEGUN_LSN), of(header::COMMITTED_LSN)), (lsn, lsn));
        assert_eq!(words.load32(header::INTENT, Acquire), 0);
        assert!(of(header::INCARNATION).is_multiple_of(2));
        self.check_values(folder.path(), &a);
        self.check_rest(a);
    }

    /// The values that entries name are there.
    fn check_values(&self, folder: &Path, a: &Arena) {
        let mut arenas = ArenasByStream::new();
        arenas.insert(STREAM, a.writer.region().clone());
        let mut named = 0;
        let count = &mut |entry: &crate::JournalEntry<'_>| {
            for change in entry.changes() {
                named += u32::from(!change?.rest.is_empty());
            }
            Ok::<(), JournalError>(())
        };
        open(folder).each_commit(&arenas, count).expect("all values");
        assert!(named >= 3, "two versions of `long`, and `other`");
    }

    /// When the entries have left, only what keys name is kept.
    fn check_rest(&self, mut a: Arena) {
        let before = state(&a);
        a.writer.release_claims();
        a.settle();
        let runs = before.values().filter(|(value, ..)| value.len() > LONG / 2).count();
        assert_eq!(a.writer.stats().runs as usize, runs);
        a.put(b"one more", &[5; LONG], 0).unwrap();
        assert!(a.delete(b"one more") && state(&a) == before);
        let path = a.spec.path.clone();
        drop(a);
        let report = verify(&path).unwrap();
        assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
    }
}

#[test]
fn a_commit_is_there_from_the_store_of_tail_on() {
    for (name, commit) in COMMITS {
        for leaves in [false, true] {
            let mut twin = filled(leaves);
            let before = state(&twin.a);
            commit(&mut twin.a);
            let (behind, last) = (state(&twin.a), twin.a.writer.stats().lsn);
            drop(twin);
            let death = Rc::new(Death { before, behind, last, counts: Default::default() });
            let mut t = filled(leaves);
            let (from, look, copies) = (t.dir.path().to_path_buf(), death.clone(), directory());
            let at_each = move || {
                copy_both(&from, copies.path());
                look.check(&copies, true);
            };
            before_each_step(at_each, || commit(&mut t.a));
            let counts = death.counts.each_ref().map(Cell::get);
            assert!(counts.iter().all(|&n| n > 0), "{name}: {counts:?}");
        }
    }
}

#[test]
fn what_the_arena_has_is_not_done_again() {
    let mut t = filled(false);
    let before = state(&t.a);
    let Telling { dir, a, ring, reader } = t_parts(&mut t);
    drop((a, ring, reader));
    let file = open(dir.path());
    let (a, adoption) = adopt(dir.path(), &file, 0);
    assert_eq!((adoption.redone_commits, state(&a)), (0, before));
    assert_counted(&a);
}

/// Takes a journal's story apart.
fn t_parts(t: &mut Telling) -> Telling {
    std::mem::replace(t, Telling::new(CAPACITY))
}

#[test]
fn claims_are_of_values_that_the_log_or_the_arena_lacks() {
    // The log has all: nothing is claimed, and what no key names is given back.
    let mut t = filled(true);
    let last = t.a.writer.stats().lsn;
    let Telling { dir, a, ring, reader } = t_parts(&mut t);
    drop((a, ring, reader));
    let file = open(dir.path());
    let (mut a, _) = adopt(dir.path(), &file, last);
    a.settle();
    assert_eq!(a.writer.stats().runs, 2);
    drop(a);
    // It lacks some of it. But the first `long` was given back.
    let domain = Domain::new(1);
    let journal = StreamJournal { journals: &[&file], stream: STREAM, logged_lsn: 0 };
    let refused = Writer::adopt_beside(&spec(dir.path().join("a"), CAPACITY), &domain, &journal);
    let error = refused.err().expect("its slots were reused").to_string();
    assert!(error.contains("generation"), "{error}");
}

#[test]
fn a_journal_goes_on_behind_an_adoption() {
    let mut t = filled(true);
    several(&mut t.a, false);
    let (wanted, last) = (state(&t.a), t.a.writer.stats().lsn);
    let Telling { dir, a, ring, reader } = t_parts(&mut t);
    drop((a, ring, reader));
    let file = open(dir.path());
    let (a, _) = adopt(dir.path(), &file, 0);
    assert_eq!(state(&a), wanted);
    // The log has it all now.
    file.drop_entries();
    let mut t = Telling::over(dir, a, file);
    t.a.settle();
    assert_eq!(t.a.writer.stats().runs, 3, "`moved`, `big` and `other`");
    t.a.put(b"long", &[7; LONG], 0).unwrap();
    let told = t.read();
    assert_eq!((told.len(), told[0][0].lsn, told[0][0].effect), (1, last + 1, Effect::Put));
}

#[test]
fn journals_of_two_makings_have_different_parts_of_a_stream() {
    // The number of shards was changed, and the start was cut off before the old journals went.
    let mut t = filled(true);
    let early = directory();
    copy_both(t.dir.path(), early.path());
    t.a.put(b"late", b"r", 0).unwrap();
    let (late, last) = (state(&t.a), t.a.writer.stats().lsn);
    t.read();
    t.leave();
    // The second journal has what comes behind, and the arena doesn't.
    let second = crate::JournalSpec { shard: 1, ..journal_spec() };
    let second = Arc::new(JournalFile::create(early.path(), &second).expect("a journal"));
    let first = open(early.path());
    let (mut a, _) = adopt(early.path(), &first, 0);
    let ring = crate::JournalWriter::new(&second);
    a.writer.set_journal(&ring, STREAM);
    let arena = directory();
    copy_both(early.path(), arena.path());
    a.put(b"late", b"r", 0).unwrap();
    copy(&early.path().join("journal.1"), &arena.path().join("journal.1"));
    let [first, second] =
        [0, 1].map(|shard| JournalFile::open(arena.path(), shard).unwrap().unwrap());
    let journal = StreamJournal { journals: &[&second, &first], stream: STREAM, logged_lsn: 9 };
    let domain = Domain::new(4);
    let spec = spec(arena.path().join("a"), CAPACITY);
    let (writer, adoption) = Writer::adopt_beside(&spec, &domain, &journal).expect("an arena");
    assert_eq!((adoption.redone_commits, writer.stats().lsn), (1, last));
    assert_eq!(state(&Arena::of(writer, domain, spec)), late);
}

#[test]
fn values_come_from_an_arena_that_was_set_aside() {
    let mut t = filled(true);
    let hash = t.a.writer.hash(b"other");
    assert!(t.a.writer.set_expiry(&t.a.me.pin(), hash, b"other", 9).unwrap());
    let Telling { dir, a, ring, reader } = t_parts(&mut t);
    drop((a, ring, reader));
    let (file, path) = (open(dir.path()), dir.path().join("a.aside"));
    std::fs::rename(dir.path().join("a"), &path).unwrap();
    let read = || {
        let mut arenas = ArenasByStream::new();
        arenas.insert(STREAM, Arc::new(AsideArena::open(&path).unwrap()));
        let mut lengths = Vec::new();
        file.each_commit(&arenas, &mut |entry| {
            for change in entry.changes() {
                lengths.push(change?.rest.len());
            }
            Ok::<(), JournalError>(())
        })
        .map(|()| lengths)
    };
    assert_eq!(read().unwrap(), [LONG, LONG, LONG, 0]);
    // A bit of it is flipped: even what only stands on it is compared.
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(1000).position(|it| it == [3; 1000]).unwrap() as u64;
    let aside = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    aside.write_all_at(&[0], at + 5).unwrap();
    let error = read().unwrap_err().to_string();
    assert!(error.contains("another sum") && error.contains("change 9 of stream"), "{error}");
    assert!(journal_path(dir.path(), 0).exists());
}

#[test]
fn a_value_that_the_log_or_its_own_entry_has_is_not_claimed() {
    // The log has the value, and not yet that it went.
    let mut t = Telling::new(CAPACITY);
    t.a.put(b"long", &[1; LONG], 0).unwrap();
    assert!(t.a.delete(b"long"));
    let Telling { dir, a, ring, reader } = t;
    drop((a, ring, reader));
    for (logged_lsn, runs) in [(0, 1), (1, 0)] {
        let (a, _) = adopt(dir.path(), &open(dir.path()), logged_lsn);
        assert_eq!((a.writer.keys(), a.writer.stats().runs), (0, runs), "{logged_lsn}");
    }
    // A journal that holds values names none.
    let mut t = Telling::holding(CAPACITY);
    for n in 0..2 {
        t.a.put(b"long", &[n; LONG], 0).unwrap();
        t.a.settle();
    }
    let Telling { dir, a, ring, reader } = t;
    drop((a, ring, reader));
    let (a, _) = adopt(dir.path(), &open(dir.path()), 0);
    assert_eq!((a.get(b"long"), a.writer.stats().runs), (Some(vec![1; LONG]), 1));
}
