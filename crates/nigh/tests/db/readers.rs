//! Others read a database while its owner writes, closes, opens again, or is gone.

use crate::opening::memory_of;
use crate::{kept, shared};
use nigh::{Db, DbReader, ReaderError, TimeToLive, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Longest wait for what comes by itself.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Db {
    Db::open(path, &shared()).expect("it can be opened")
}

fn reader(path: &Path) -> DbReader {
    Db::open_reader(path).expect("its owner has it open")
}

/// All keys of a prefix and their values.
fn walk(reader: &DbReader, prefix: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut met, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let found = |key: &[u8], value: &[u8]| _ = met.insert(key.to_vec(), value.to_vec());
        cursor = reader.scan(prefix, cursor, 50, found).expect("a scan");
        if cursor == 0 {
            return met;
        }
    }
}

#[test]
fn a_reader_sees_what_the_owner_has_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    let reader = reader(&path);
    assert_eq!(reader.get(b"a").expect("get"), None);
    db.put(b"a", b"1").expect("put");
    db.put(b"long", &[7; 3_000_000]).expect("put");
    let brief = WriteOptions::new().expires_in(Duration::from_secs(1000));
    db.put_with(b"brief", b"2", &brief).expect("put");
    assert_eq!(reader.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert!(reader.get(b"long").expect("get") == Some(vec![7; 3_000_000]));
    let mut into = b"before ".to_vec();
    assert!(reader.get_into(b"a", &mut into).expect("get"));
    assert!(!reader.get_into(b"absent", &mut into).expect("get"));
    assert_eq!(into, b"before 1");
    let several = reader.multi_get(&[b"brief", b"absent", b"a"]).expect("get");
    assert_eq!(several, [Some(b"2".to_vec()), None, Some(b"1".to_vec())]);
    assert!(reader.contains(b"a").expect("get") && !reader.contains(b"absent").expect("get"));
    assert_eq!(reader.ttl(b"a").expect("get"), Some(TimeToLive::Forever));
    assert_eq!(reader.ttl(b"absent").expect("get"), None);
    let Some(TimeToLive::Left(left)) = reader.ttl(b"brief").expect("get") else {
        panic!("it has an expiry")
    };
    assert!(left > Duration::from_secs(900) && left <= Duration::from_secs(1000), "{left:?}");
    for n in 0..5000 {
        db.put(format!("n:{n}").as_bytes(), &[1; 300]).expect("put"); // memory and index grow
    }
    assert_eq!(walk(&reader, b"n:").len(), 5000);
    let other = reader.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!(walk(&other, b"").len(), 5003));
    });
    db.delete(b"a").expect("delete");
    assert_eq!(reader.get(b"a").expect("get"), None);
}

#[test]
fn a_key_is_over_for_a_reader_also_if_nobody_has_the_database_open() {
    // The owner's clock judges. It stands still in memory that was kept: there a second is added.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &kept()).expect("open");
    let reader = reader(&path);
    let until = SystemTime::now() + Duration::from_millis(400);
    let brief = WriteOptions::new().expires_at(until);
    let mut batch = WriteBatch::new();
    batch.put_with(b"one", b"1", &brief).put_with(b"two", b"2", &brief).put(b"stays", b"3");
    db.write(&batch).expect("write");
    db.close().expect("close");
    let keys: [&[u8]; 3] = [b"one", b"two", b"stays"];
    let gone_at = loop {
        let now = SystemTime::now();
        let found = reader.multi_get(&keys).expect("its memory is there");
        assert!(found[2].is_some() && found[0].is_some() == found[1].is_some());
        match found[0] {
            None => break now,
            Some(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(now < until + PATIENCE, "it is never over");
    };
    assert!(gone_at >= until, "it was over too soon");
    assert_eq!(reader.ttl(b"one").expect("get"), None);
    assert_eq!(reader.get(b"two").expect("get"), None);
    assert_eq!(walk(&reader, b"").len(), 1);
    open(&path).close().expect("close");
}

#[test]
fn a_reader_goes_on_when_its_owner_closes_and_opens() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put(b"key", b"0").expect("put");
    let reader = reader(&path);
    let mut db = Some(db);
    for round in 1..=10_u32 {
        db.take().expect("it is open").close().expect("close");
        let error = reader.get(b"key").expect_err("nobody has it open");
        assert!(matches!(error, ReaderError::NotOpen { .. }) && error.is_passing(), "{error}");
        assert!(error.to_string().contains("open it in a process that writes"), "{error}");
        assert!(reader.multi_get(&[b"key"]).is_err() && reader.contains(b"key").is_err());
        assert!(reader.scan(b"", 0, 10, |_, _| panic!("nothing is read")).is_err());
        // From the log, or from memory that was kept.
        let again = Db::open(&path, &shared().keep_memory(round % 3 == 0)).expect("open");
        again.put(b"key", round.to_string().as_bytes()).expect("put");
        reader.wait(PATIENCE).expect("it is open");
        assert_eq!(reader.get(b"key").expect("get"), Some(round.to_string().into_bytes()));
        if round % 3 == 0 {
            again.close().expect("close");
            assert_eq!(reader.get(b"key").expect("it is kept"), Some(round.to_string().into()));
            db = Some(open(&path));
            db.as_ref().expect("it is open").put(b"key", b"adopted").expect("put");
            assert_eq!(reader.get(b"key").expect("get").as_deref(), Some(&b"adopted"[..]));
        } else {
            db = Some(again);
        }
    }
}

#[test]
fn a_reader_that_does_nothing_keeps_no_memory() {
    // It has the file mapped, and doesn't know yet that its owner has closed the database.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    db.put(b"key", &[1; 3_000_000]).expect("put");
    let reader = reader(&path);
    assert!(reader.contains(b"key").expect("get"));
    let arena = memory_of(&path).expect("it is open").join("default.0.arena");
    let arena = File::open(arena).expect("it is there");
    let blocks = || arena.metadata().expect("it is open").blocks();
    assert!(blocks() * 512 > 3_000_000);
    db.close().expect("close");
    assert!(blocks() * 512 <= 4096, "{} blocks are left", blocks());
    assert!(reader.contains(b"key").is_err());
}

#[test]
fn memory_that_is_set_aside_or_removed_is_read_no_more() {
    // Memory was kept; then the log went on without it, elsewhere. The next owner finds that it is
    // older than the log. Another time somebody removes it by hand.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &kept()).expect("open");
    db.put(b"key", b"old").expect("put");
    db.close().expect("close");
    let reader = reader(&path);
    let elsewhere = shared().memory_dir(dir.path().join("memory"));
    let db = Db::open(&path, &elsewhere).expect("open");
    db.put(b"key", b"new").expect("put");
    let in_there = Db::open_reader_in(&path, dir.path().join("memory")).expect("it is open");
    assert_eq!(in_there.get(b"key").expect("get").as_deref(), Some(&b"new"[..]));
    db.close().expect("close");
    assert_eq!(reader.get(b"key").expect("get").as_deref(), Some(&b"old"[..]));
    let db = Db::open(&path, &kept()).expect("open");
    reader.wait(PATIENCE).expect("it is open");
    assert_eq!(reader.get(b"key").expect("get").as_deref(), Some(&b"new"[..]));
    db.close().expect("close");
    std::fs::remove_dir_all(memory_of(&path).expect("it is kept")).expect("by hand");
    let db = open(&path);
    db.put(b"key", b"newer").expect("put");
    std::thread::sleep(Duration::from_millis(200)); // names are looked at ten times a second
    reader.wait(PATIENCE).expect("it is open");
    assert_eq!(reader.get(b"key").expect("get").as_deref(), Some(&b"newer"[..]));
}

#[test]
fn what_cannot_be_read_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, file) = (dir.path().join("data"), dir.path().join("file"));
    let told = |path: &Path| Db::open_reader(path).err().expect("it is refused");
    std::fs::write(&file, b"text").expect("a file");
    assert!(matches!(told(&file), ReaderError::NotAFolder { .. }));
    assert!(matches!(told(&path), ReaderError::NoDatabase { .. }));
    assert!(matches!(told(dir.path()), ReaderError::NoDatabase { .. }));
    assert!(matches!(told(&file.join("below")), ReaderError::Folder { .. }));
    open(&path).close().expect("close");
    let error = told(&path);
    assert!(matches!(error, ReaderError::NotOpen { .. }), "{error}");
    assert!(!error.to_string().contains('\n') && error.to_string().contains("open"), "{error}");
    // A meta of a later version; one that is none.
    let meta = std::fs::read_to_string(path.join("meta")).expect("it is there");
    let (first, rest) = meta.split_once('\n').expect("lines");
    let (name, version) = first.rsplit_once(' ').expect("a version");
    let later = version.parse::<u32>().expect("a number") + 1;
    std::fs::write(path.join("meta"), format!("{name} {later}\n{rest}")).expect("a file");
    assert!(matches!(told(&path), ReaderError::OtherVersion { .. }), "{}", told(&path));
    std::fs::write(path.join("meta"), b"\xFFnonsense").expect("a file");
    assert!(matches!(told(&path), ReaderError::Damaged { .. }), "{}", told(&path));
    std::fs::write(path.join("meta"), meta).expect("a file");
    // An arena of another version, of another database, and one that is none.
    let db = Db::open(&path, &kept()).expect("open");
    db.close().expect("close");
    let arena = memory_of(&path).expect("it is kept").join("default.0.arena");
    let bytes = std::fs::read(&arena).expect("it is there");
    let open_file = || File::options().write(true).open(&arena).expect("it is there");
    open_file().write_all_at(&99_u32.to_le_bytes(), 8).expect("its version");
    assert!(matches!(told(&path), ReaderError::OtherVersion { .. }), "{}", told(&path));
    open_file().write_all_at(&bytes[..4096], 0).expect("as it was");
    Db::open_reader(&path).expect("as it was");
    std::fs::write(&arena, b"text").expect("a file");
    assert!(matches!(told(&path), ReaderError::Damaged { .. }), "{}", told(&path));
    let other = open(&dir.path().join("other"));
    let memory = memory_of(&dir.path().join("other")).expect("it is open");
    let error = Db::open_reader_in(&path, memory).err().expect("it is refused");
    assert!(matches!(error, ReaderError::OtherMemory { .. }), "{error}");
    drop(other);
    // No permission, but for root.
    let shut = Permissions::from_mode(0o000);
    std::fs::set_permissions(&path, shut).expect("it is ours");
    if !rustix::process::geteuid().is_root() {
        assert!(matches!(told(&path), ReaderError::Folder { .. }), "{}", told(&path));
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
    open(&path).close().expect("close"); // from the log
}

#[test]
fn a_reader_changes_nothing() {
    // Neither a byte nor a time of any file, nor a lock.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &kept()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    let memory = memory_of(&path).expect("it is kept");
    let state = || {
        let mut all = Vec::new();
        for folder in [&path, &memory] {
            for entry in folder.read_dir().expect("a folder").flatten() {
                let it = entry.metadata().expect("it is there");
                let modified = it.modified().expect("a time");
                let bytes = std::fs::read(entry.path()).expect("it is there");
                all.push((entry.path(), modified, it.len(), bytes));
            }
        }
        all.sort();
        all
    };
    let before = state();
    let reader = reader(&path);
    assert_eq!(walk(&reader, b"").len(), 1);
    assert!(reader.contains(b"key").expect("get"));
    reader.multi_get(&[b"key", b"absent"]).expect("get");
    assert!(before == state());
    let db = open(&path); // the reader holds no lock
    assert_eq!(reader.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    db.close().expect("close");
}

#[test]
fn any_bytes_in_memory_give_errors_or_values_and_an_end() {
    // Somebody writes nonsense into the arena, shortens it, and punches it out, under a reader.
    const CASES: u64 = 80;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &kept()).expect("open");
    for n in 0..400 {
        db.put(format!("{n}").as_bytes(), &vec![3; n * 7]).expect("put");
    }
    db.put(b"long", &[4; 200_000]).expect("put");
    db.close().expect("close");
    let arena = memory_of(&path).expect("it is kept").join("default.0.arena");
    let whole = std::fs::read(&arena).expect("it is there");
    let mut random = 5_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut refused = 0;
    for case in 0..CASES {
        let file = File::options().read(true).write(true).open(&arena).expect("it is there");
        let Ok(reader) = Db::open_reader(&path) else { panic!("case {case}: it was whole") };
        let len = whole.len() as u64;
        if case % 10 == 9 {
            file.set_len(next(len)).expect("it is ours");
        }
        for _ in 0..1 + next(40) {
            // Most of it hits header and tables.
            let below = [4096, 200_000, 600_000, len][usize::try_from(next(4)).expect("few")];
            let at = next(below);
            let bytes: Vec<u8> = (0..8).map(|_| u8::try_from(next(256)).expect("a byte")).collect();
            if at + 8 <= file.metadata().expect("it is open").len() {
                file.write_all_at(&bytes, at & !7).expect("it is ours");
            }
        }
        for key in ["1", "399", "long", "absent"] {
            refused += u64::from(reader.get(key.as_bytes()).is_err());
            let _ = reader.ttl(key.as_bytes());
            let _ = reader.multi_get(&[key.as_bytes(), b"7"]);
        }
        let mut cursor = 0;
        for _ in 0..20 {
            cursor = reader.scan(b"", cursor, 10, |_, _| ()).unwrap_or(0);
        }
        let _ = Db::open_reader(&path).map(|reader| reader.get(b"1"));
        file.set_len(len).expect("it is ours");
        file.write_all_at(&whole, 0).expect("as it was");
    }
    assert!(refused > CASES / 10, "{refused}");
    assert_eq!(walk(&reader(&path), b"").len(), 401, "as it was");
    open(&path).close().expect("close");
}
