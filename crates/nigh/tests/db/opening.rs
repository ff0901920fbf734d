//! Opening and closing.

use crate::{all, kept, made_with, open, small};
use nigh::{Db, DbError, Durability, OpenError, Options, WriteBatch};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder in /dev/shm that is named after a database's folder; `None`: there is none.
pub(crate) fn memory_of(path: &Path) -> Option<PathBuf> {
    let it = path.metadata().expect("it is there");
    let name = format!("-{:x}-{:x}", it.dev(), it.ino());
    let there = Path::new("/dev/shm").read_dir().expect("a tmpfs").flatten();
    let mut named = there.filter(|entry| entry.file_name().to_string_lossy().ends_with(&name));
    named.next().map(|entry| entry.path())
}

#[test]
fn what_was_written_is_there_after_closing_and_opening() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("some/data");
    {
        let db = open(&path);
        for n in 0..2000 {
            db.put(format!("{n}").as_bytes(), format!("value {n}").as_bytes()).expect("put");
        }
        db.delete(b"7").expect("delete");
        assert!(memory_of(&path).is_some());
        db.close().expect("close");
    }
    assert!(memory_of(&path).is_none(), "memory goes back");
    let db = open(&path);
    assert_eq!(all(&db).len(), 1999);
    assert_eq!(db.get(b"42").expect("get").as_deref(), Some(&b"value 42"[..]));
    drop(db); // closes it
    assert!(memory_of(&path).is_none());
    // Where nothing was written, nothing is lost.
    open(&path).close().expect("close");
    assert_eq!(all(&open(&path)).len(), 1999);
}

#[test]
fn memory_that_is_kept_is_gone_on_with() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, memory) = (dir.path().join("data"), dir.path().join("memory"));
    let options = kept().memory_dir(&memory);
    let db = Db::open(&path, &options).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    assert!(memory.join("default.0.arena").is_file());
    let db = Db::open(&path, &options.keep_memory(false)).expect("open");
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    db.close().expect("close");
    assert!(!memory.exists());
}

#[test]
fn a_folder_that_was_moved_has_its_data() {
    let dir = tempfile::tempdir().expect("a folder");
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    let db = Db::open(&here, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    std::fs::rename(&here, &there).expect("it is moved");
    let db = open(&there);
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_second_opener_is_refused_until_the_first_has_closed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let first = open(&path);
    let error = Db::open(&path, &small()).err().expect("it is in use").to_string();
    let text = format!("the database {} is open in this process", path.display());
    assert!(error.starts_with(&text), "{error}");
    assert!(!error.contains('\n'));
    // Another database may not have its memory either.
    let memory = memory_of(&path).expect("it is open");
    let options = small().memory_dir(memory);
    let error = Db::open(dir.path().join("other"), &options).err();
    assert!(matches!(error, Some(OpenError::MemoryInUse { .. })), "{error:?}");
    first.put(b"key", b"value").expect("the first goes on");
    first.close().expect("close");
    assert_eq!(all(&open(&path)).len(), 1);
}

#[test]
fn what_cannot_be_opened_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, b"text").expect("a file");
    let told = |path: &Path, options: &Options| {
        Db::open(path, options).err().expect("it is refused").to_string()
    };
    let error = told(&file, &small());
    assert_eq!(
        error,
        format!("{} is a file, and a database is a folder: name another path", file.display())
    );
    let error = told(&file.join("below"), &small());
    assert!(error.starts_with("the folder ") && error.contains("can't be used"), "{error}");
    let error = told(&dir.path().join("data"), &small().capacity_bytes(1000));
    assert_eq!(error, "the option capacity_bytes is 1000, and may be 8388608 to 68719476736");
    let error = told(&dir.path().join("data"), &small().memory_dir(&file));
    assert!(error.contains("is a file"), "{error}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"text");
}

/// The advice was to delete keys, which nobody can of a database that doesn't open.
#[test]
fn data_that_finds_no_room_names_the_option() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &small()).expect("it can be made");
    for n in 0..300u32 {
        db.put(&n.to_le_bytes(), &[b'v'; 100_000]).expect("room");
    }
    db.close().expect("close");
    let error = Db::open(&path, &small().capacity_bytes(8 << 20)).err().expect("it is refused");
    assert!(matches!(error, OpenError::Capacity { .. }), "{error}");
    let text = error.to_string();
    let begin =
        format!("the data of {} finds no room: raise the option capacity_bytes", path.display());
    assert!(text.starts_with(&begin), "{text}");
    let db = Db::open(&path, &small()).expect("with as much as before");
    assert_eq!(db.get(&299u32.to_le_bytes()).expect("get").map(|it| it.len()), Some(100_000));
}

/// A batch, and a comparison, of a value that is too long were told to raise `journal_bytes`.
#[test]
fn a_value_that_is_too_long_is_refused_as_such() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small()).expect("it can be made");
    let value = vec![0; (512 << 20) + 1];
    let mut batch = WriteBatch::new();
    batch.put(b"key", &value);
    for refused in [
        db.put(b"key", &value),
        db.compare_and_set(b"key", None, Some(&value)).map(|_| ()),
        db.write(&batch).map(drop),
    ] {
        assert!(matches!(refused, Err(DbError::ValueTooLong { .. })), "{refused:?}");
    }
    assert!(db.get(b"key").expect("get").is_none());
}

/// Somebody names `/tmp` as the memory folder, as root. It was closed to all other users, whose
/// programs then failed; and files of its own that had a lock's name went with the database.
#[test]
fn a_folder_with_other_files_is_no_memory_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, theirs) = (dir.path().join("data"), dir.path().join("theirs"));
    std::fs::create_dir(&theirs).expect("a folder");
    std::fs::set_permissions(&theirs, Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::write(theirs.join("database"), b"text").expect("a file");
    let mode = || theirs.metadata().expect("it is there").permissions().mode() & 0o777;
    let options = small().memory_dir(&theirs);
    let error = Db::open(&path, &options).err().expect("it is refused");
    assert!(matches!(error, OpenError::OtherFiles { .. }), "{error}");
    assert!(error.to_string().contains(&*theirs.display().to_string()), "{error}");
    assert_eq!(mode(), 0o755);
    assert_eq!(std::fs::read(theirs.join("database")).expect("it is there"), b"text");
    std::fs::remove_file(theirs.join("database")).expect("it is ours");
    let db = Db::open(&path, &options).expect("an empty one will do");
    assert_eq!(mode(), 0o700);
    db.close().expect("close");
}

#[test]
pub(crate) fn memory_of_a_database_that_was_removed_is_refused_by_name() {
    // The folder on disk was removed by hand, and a new database is to have its memory.
    let dir = tempfile::tempdir().expect("a folder");
    let (path, memory) = (dir.path().join("data"), dir.path().join("memory"));
    let options = kept().memory_dir(&memory);
    let db = Db::open(&path, &options).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    std::fs::remove_dir_all(&path).expect("it is removed");
    let error = Db::open(&path, &options).err().expect("it is refused");
    assert!(matches!(error, OpenError::OtherMemory { .. }), "{error}");
    assert!(error.to_string().contains(&*memory.display().to_string()), "{error}");
    std::fs::remove_dir_all(&memory).expect("as the message says");
    assert!(all(&Db::open(&path, &small().memory_dir(&memory)).expect("open")).is_empty());
}

#[test]
fn a_new_database_in_the_place_of_one_that_was_killed_begins_empty() {
    // What was in memory is left as by a kill; the folder is removed and made again, with the same
    // number maybe.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    let left = memory_of(&path).expect("it was kept");
    std::fs::remove_dir_all(&path).expect("it is removed");
    let db = open(&path);
    assert!(all(&db).is_empty());
    drop(db);
    assert!(!left.exists(), "it was nobody's");
}

/// The names in a folder.
fn names_in(folder: &Path) -> Vec<String> {
    let there = folder.read_dir().expect("it is there").map(|it| it.expect("an entry"));
    there.map(|it| it.file_name().into_string().expect("UTF-8")).collect()
}

/// A folder that a first open has refused before it made anything but the meta.
fn barely_begun(path: &Path) {
    let refused = Db::open(path, &small().capacity_bytes(1)).map(drop);
    assert!(matches!(refused, Err(OpenError::Option { .. })));
    assert!(memory_of(path).is_none());
}

#[test]
fn a_first_open_that_failed_leaves_no_memory_and_another_number_of_partitions_is_taken() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    barely_begun(&path);
    let obstacle = path.join("g1-s00-0000000001.log.new");
    std::fs::create_dir(&obstacle).expect("a folder in place of a file");
    let error = Db::open(&path, &small().partitions(3)).map(drop).expect_err("it can't be removed");
    assert!(error.to_string().contains("log.new, offset 0: removing failed"), "{error}");
    assert!(memory_of(&path).is_none());
    std::fs::remove_dir(obstacle).expect("it is empty");
    assert_eq!(made_with(&path, 2).stats().expect("stats").partitions.len(), 2);
}

#[test]
fn another_number_of_partitions_is_taken_when_the_first_open_was_killed() {
    // Arenas are there, and no log counts yet: nobody has written anything.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    barely_begun(&path);
    let meta = std::fs::read(path.join("meta")).expect("it has an id");
    let options = kept().partitions(3);
    Db::open(&path, &options).expect("open").close().expect("close");
    let memory = memory_of(&path).expect("it is kept");
    for name in names_in(&path).iter().filter(|it| it.contains(".log")) {
        std::fs::remove_file(path.join(name)).expect("a file of the log");
    }
    std::fs::write(path.join("meta"), meta).expect("meta as it was");
    for name in names_in(&memory).iter().filter(|it| !it.ends_with(".arena")) {
        std::fs::remove_file(memory.join(name)).expect("a file that was made later");
    }
    let db = open(&path);
    assert_eq!(db.stats().expect("stats").partitions.len(), 1);
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    assert!(!memory.exists());
    assert_eq!(all(&open(&path)).len(), 1);
}

#[test]
fn a_copy_of_a_folder_has_memory_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let db = Db::open(&path, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    std::fs::create_dir(&copy).expect("a folder");
    for entry in path.read_dir().expect("a folder").flatten() {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("a copy");
    }
    let db = open(&path);
    let other = open(&copy);
    other.put(b"key", b"other").expect("put");
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    assert_eq!(other.get(b"key").expect("get").as_deref(), Some(&b"other"[..]));
}

#[test]
fn an_empty_path_is_refused() {
    let error = Db::open("", &small()).err().expect("it is refused");
    assert_eq!(error.to_string(), "the path is empty: name a folder");
}

#[test]
fn log_files_without_meta_are_refused_and_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    let meta = std::fs::read(path.join("meta")).expect("it is there");
    std::fs::remove_file(path.join("meta")).expect("it is removed");
    let error = Db::open(&path, &small()).err().expect("it is refused").to_string();
    assert!(error.contains("no meta"), "{error}");
    std::fs::write(path.join("meta"), meta).expect("it is put back");
    assert_eq!(all(&open(&path)).len(), 1);
}

#[test]
fn a_damaged_log_is_refused_and_its_file_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &small().durability(Durability::Strong)).expect("open");
    for n in 0..200 {
        db.put(format!("{n}").as_bytes(), &[9; 1000]).expect("put");
    }
    db.close().expect("close");
    let entries = path.read_dir().expect("a folder").flatten().map(|entry| entry.path());
    let mut logs: Vec<_> = entries.filter(|it| it.extension().is_some()).collect();
    logs.sort();
    let log = logs.first().expect("it has a file");
    let mut bytes = std::fs::read(log).expect("a file");
    bytes[60_000..60_100].fill(0xAA);
    std::fs::write(log, bytes).expect("a file");
    let error = Db::open(&path, &small()).err().expect("it is refused");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("salvage"), "{error}");
}
