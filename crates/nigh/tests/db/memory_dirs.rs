//! A database that is opened with one folder for memory, then with another one, and again with the
//! first, which a killed process left.

use crate::{kept, shared, small};
use nigh::{Db, Options, WriteOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the child's folder.
const FOLDER: &str = "NIGH_MEMORY_DIRS_FOLDER";
/// There if the child's memory is shared.
const SHARED: &str = "NIGH_MEMORY_DIRS_SHARED";
/// There if the child flushes before it ends.
const FLUSHES: &str = "NIGH_MEMORY_DIRS_FLUSHES";

fn options(is_shared: bool, memory: &Path) -> Options {
    if is_shared { shared() } else { small() }.memory_dir(memory)
}

/// The child: its last writes are in the journal, and in the log only if it flushes.
#[test]
fn child_writes_and_ends_at_once() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let options = options(std::env::var_os(SHARED).is_some(), &folder.join("first"));
    let db = Db::open(folder.join("data"), &options).expect("open");
    db.put_with(b"both", b"first", &WriteOptions::strong()).expect("put");
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        db.put(key, b"first").expect("put");
    }
    if std::env::var_os(FLUSHES).is_some() {
        db.flush().expect("flush");
    }
    std::process::abort();
}

fn child(folder: &Path, is_shared: bool, flushes: bool) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "memory_dirs::child_writes_and_ends_at_once", "--nocapture"]);
    for (name, is_there) in [(SHARED, is_shared), (FLUSHES, flushes)] {
        if is_there {
            command.env(name, "1");
        }
    }
    let ended = command.env(FOLDER, folder).output().expect("a child");
    assert!(!ended.status.success(), "it ends by a signal");
}

/// Writes with another folder for memory.
fn write_elsewhere(folder: &Path) {
    let options = small().memory_dir(folder.join("second"));
    let db = Db::open(folder.join("data"), &options).expect("open");
    for key in [b"both", &b"a"[..], b"other"] {
        db.put_with(key, b"second", &WriteOptions::strong()).expect("put");
    }
    db.close().expect("close");
}

fn value(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    db.get(key).expect("get").map(|it| it.to_vec())
}

/// The journal's last entries were put behind what had been answered since, or shared memory was
/// served without that.
#[test]
fn memory_of_before_is_not_merged_with_what_was_written_since() {
    for is_shared in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        child(dir.path(), is_shared, false);
        write_elsewhere(dir.path());
        let (path, first) = (dir.path().join("data"), dir.path().join("first"));
        for _ in 0..2 {
            let error = Db::open(&path, &options(is_shared, &first)).err().expect("it is refused");
            let text = error.to_string();
            assert!(text.contains("the log went on without the memory in"), "{text}");
            assert!(text.contains(&first.display().to_string()), "{text}");
        }
        // As the message says.
        std::fs::rename(&first, dir.path().join("away")).expect("it is moved");
        let db = Db::open(&path, &options(is_shared, &first)).expect("open");
        for (key, found) in [(&b"both"[..], Some(&b"second"[..])), (b"a", Some(b"second"))] {
            assert_eq!(value(&db, key).as_deref(), found);
        }
        assert_eq!(value(&db, b"e"), None);
    }
}

/// Where the log had all that memory had, folders may take turns, also if memory is kept.
#[test]
fn folders_for_memory_may_take_turns() {
    for is_shared in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        child(dir.path(), is_shared, true);
        write_elsewhere(dir.path());
        let (path, first) = (dir.path().join("data"), dir.path().join("first"));
        let db = Db::open(&path, &options(is_shared, &first)).expect("open");
        let found = [&b"a"[..], b"both", b"e", b"other"].map(|key| value(&db, key));
        let wanted = ["second", "second", "first", "second"];
        assert_eq!(found, wanted.map(|it| Some(it.as_bytes().to_vec())));
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    for turn in 0..6_u32 {
        let memory = dir.path().join(["first", "second"][turn as usize % 2]);
        let db = Db::open(&path, &kept().memory_dir(memory)).expect("open");
        assert_eq!(db.incr(b"turn", 1).expect("incr"), i64::from(turn) + 1);
        db.close().expect("close");
    }
}
