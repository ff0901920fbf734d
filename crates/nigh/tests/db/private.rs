//! Memory is its process's alone unless it is shared: nobody else opens it, and a kill takes it.

use crate::opening::memory_of;
use crate::{all, open, shared, small};
use nigh::{Db, DbError, OpenError, Options, ReaderError};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names the child's folder.
const FOLDER: &str = "NIGH_PRIVATE_FOLDER";
/// There if the child's memory is shared.
const SHARED: &str = "NIGH_PRIVATE_SHARED";
/// Keys that the child writes, and their bytes: some lie outside of the segments.
const KEYS: usize = 1000;

fn value_of(n: usize) -> Vec<u8> {
    vec![n.to_le_bytes()[0]; if n.is_multiple_of(100) { 200_000 } else { n }]
}

fn options(is_shared: bool) -> Options {
    if is_shared { shared() } else { small() }
}

#[test]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn child_writes_and_waits() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let db = Db::open(folder, &options(std::env::var_os(SHARED).is_some())).expect("open");
    (0..KEYS).for_each(|n| db.put(&n.to_le_bytes(), &value_of(n)).expect("put"));
    println!("\nwritten");
    std::thread::sleep(Duration::from_secs(60)); // it is killed
}

/// A child writes all keys, and is killed.
fn killed(folder: &Path, is_shared: bool) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "private::child_writes_and_waits", "--nocapture"]);
    if is_shared {
        command.env(SHARED, "1");
    }
    let mut child = command.env(FOLDER, folder).stdout(Stdio::piped()).spawn().expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "written"));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// The names of arenas in a memory folder.
fn arenas(folder: &Path) -> usize {
    let there = folder.read_dir().expect("it is there").flatten();
    there.filter(|it| it.file_name().to_string_lossy().contains(".arena")).count()
}

#[test]
fn all_is_there_when_a_kill_took_the_memory_whoever_opens_next() {
    for (was_shared, is_shared) in [(false, false), (false, true), (true, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        killed(&path, was_shared);
        let memory = memory_of(&path).expect("its journal is there");
        assert_eq!(arenas(&memory) > 0, was_shared);
        let db = Db::open(&path, &options(is_shared)).expect("open");
        assert_eq!(arenas(&memory) > 0, is_shared);
        for n in 0..KEYS {
            let found = db.get(&n.to_le_bytes()).expect("get");
            assert!(found.as_deref() == Some(&value_of(n)[..]), "{n} of {was_shared} {is_shared}");
        }
        assert_eq!(all(&db).len(), KEYS);
        db.put(b"more", b"value").expect("put");
        db.close().expect("close");
        assert!(!memory.exists());
        assert_eq!(all(&open(&path)).len(), KEYS + 1);
    }
}

#[test]
fn nobody_else_reads_private_memory_and_the_error_names_the_option() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put(b"key", b"value").expect("put");
    let refused = Db::open_reader(&path).err().expect("it is refused");
    assert!(matches!(refused, ReaderError::Private { .. }), "{refused}");
    assert!(refused.to_string().contains("with the option shared"), "{refused}");
    assert!(!refused.is_passing());
    db.close().expect("close");
    let refused = Db::open_reader(&path).err().expect("nobody has it open");
    assert!(matches!(refused, ReaderError::NotOpen { .. }), "{refused}");
    assert!(refused.to_string().contains("with the option shared"), "{refused}");
    // A reader of a time when it was shared reads no more when it is private, and later again.
    let db = Db::open(&path, &shared()).expect("open");
    let reader = Db::open_reader(&path).expect("it is shared");
    assert!(reader.contains(b"key").expect("get"));
    db.close().expect("close");
    let db = open(&path);
    let refused = reader.get(b"key").expect_err("it is private");
    assert!(matches!(refused, ReaderError::Private { .. }), "{refused}");
    db.close().expect("close");
    let _db = Db::open(&path, &shared()).expect("open");
    reader.wait(Duration::from_secs(9)).expect("it is shared");
    assert!(reader.contains(b"key").expect("get"));
}

#[test]
fn memory_that_was_left_shared_is_taken_over_and_loses_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &shared().keep_memory(true)).expect("open");
    db.put(b"key", &[7; 200_000]).expect("put");
    db.close().expect("close");
    let reader = Db::open_reader(&path).expect("it was kept");
    let db = open(&path);
    let refused = reader.get(b"key").expect_err("it is private");
    assert!(matches!(refused, ReaderError::Private { .. }), "{refused}");
    assert_eq!(arenas(&memory_of(&path).expect("it is open")), 0);
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&[7; 200_000][..]));
    // It grows, though its file has no name.
    (0..2000_u32).for_each(|n| db.put(&n.to_le_bytes(), &[1; 3000]).expect("put"));
    assert_eq!(all(&db).len(), 2001);
    db.close().expect("close");
}

#[test]
fn what_private_memory_cannot_do_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let refused = Db::open(&path, &small().keep_memory(true)).map(drop).expect_err("it ends");
    assert!(matches!(refused, OpenError::KeepsPrivate), "{refused}");
    assert!(refused.to_string().contains("option shared"), "{refused}");
    // A value is in the journal as a whole, which has 1 MiB here.
    let db = open(&path);
    let refused = db.put(b"key", &[1; 300_000]).expect_err("it is too long");
    assert!(matches!(refused, DbError::BatchTooLarge { .. }), "{refused}");
    assert!(refused.to_string().contains("option shared"), "{refused}");
    assert!(db.get(b"key").expect("get").is_none());
    db.close().expect("close");
    let db = Db::open(&path, &shared()).expect("open");
    db.put(b"key", &[1; 300_000]).expect("put");
}
