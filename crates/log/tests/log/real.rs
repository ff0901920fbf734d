//! Real files in a real folder: locks, modes, and what a start refuses.

use crate::book::{Book, Halt};
use crate::machine::{Machine, inspect};
use nigh_log::{
    Chain, Chance, Clock, FileSystemKind, LogError, LogFollower, RealChance, RealClock, RealFolder,
    Storage, StoredFile, World, list, read_exact_at, read_meta, write_all_at,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

const FILE_BYTES: u64 = 16 << 10;

fn world(folder: RealFolder) -> World<RealFolder> {
    let (clock, chance) = (Arc::new(RealClock::new()), Arc::new(RealChance));
    World { storage: Arc::new(folder), clock, chance }
}

fn open(path: &Path) -> World<RealFolder> {
    world(RealFolder::open(path, true).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_log_in_a_real_folder_survives_its_processes() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/log");
    let mut book = Book::new();
    let mut compacted = 0;
    for life in 0..8 {
        let mut machine = Machine::start(open(&path), &mut book, FILE_BYTES, life).unwrap();
        for _ in 0..300 {
            machine.step(&mut book).unwrap();
        }
        compacted += machine.shards.iter().map(|shard| shard.compacted).sum::<u64>();
    }
    inspect(&open(&path), &book).unwrap();
    assert!(compacted > 0, "no file was compacted");
    assert_eq!(mode(&path), 0o700);
    for entry in fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    let listing = list(&*open(&path).storage).unwrap();
    assert!(listing.others.is_empty() && !listing.files.is_empty(), "{listing:?}");
}

#[test]
fn a_folder_is_one_process_s() {
    let folder = tempfile::tempdir().unwrap();
    let first = RealFolder::open(folder.path(), false).unwrap();
    let second = RealFolder::open(folder.path(), false);
    let pid = std::process::id().to_string();
    assert!(matches!(second, Err(LogError::InUse { pid: is }) if is == pid));
    RealFolder::open_to_read(folder.path()).expect("reading takes no lock");
    drop(first);
    RealFolder::open(folder.path(), false).expect("the lock went with its holder");
    fs::write(folder.path().join("lock"), "nonsense\u{7}").unwrap();
    let third = RealFolder::open(folder.path(), false).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("lock")).unwrap(), format!("{pid}\n"));
    fs::write(folder.path().join("lock"), "\u{1b}[31m").unwrap();
    let error = RealFolder::open(folder.path(), false).unwrap_err();
    assert!(matches!(&error, LogError::InUse { pid } if pid == "unknown"), "{error}");
    drop(third);
}

#[test]
fn a_folder_that_is_not_there_or_not_writable_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = RealFolder::open(&missing, false).unwrap_err();
    assert!(error.to_string().contains("opening the folder failed: No such file"), "{error}");
    assert!(!missing.exists());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(RealFolder::open(&file, true).is_err() && RealFolder::open(&file, false).is_err());
    // Nobody can make files here, root neither.
    let error = RealFolder::open(Path::new("/proc/self/fdinfo"), false).unwrap_err();
    assert!(matches!(error, LogError::Io { .. }), "{error}");
    let read_only = folder.path().join("read-only");
    fs::create_dir(&read_only).unwrap();
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o500)).unwrap();
    let opened = RealFolder::open(&read_only, false);
    // Root may write everywhere.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        let error = opened.unwrap_err();
        assert!(error.to_string().contains("Permission denied"), "{error}");
        assert_eq!(fs::read_dir(&read_only).unwrap().count(), 0, "nothing was changed");
    }
}

#[test]
fn a_folder_that_is_opened_to_read_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "text").unwrap();
    let reads = RealFolder::open_to_read(folder.path()).unwrap();
    let file = reads.open("f").unwrap().unwrap();
    let mut text = [0; 4];
    read_exact_at(&file, 0, &mut text).unwrap();
    assert_eq!(&text, b"text");
    assert!(file.write_at(0, b"x").is_err() && file.allocate(10).is_err());
    assert!(reads.create("g").is_err() && reads.create("f").is_err());
    assert!(reads.rename("f", "g").is_err() && reads.remove("f").is_err());
    assert_eq!(fs::read_to_string(folder.path().join("f")).unwrap(), "text");
    assert_eq!(reads.names().unwrap(), ["f"], "not even a lock was made");
}

#[test]
fn files_do_what_the_log_asks() {
    let folder = tempfile::tempdir().unwrap();
    let storage = RealFolder::open(folder.path(), false).unwrap();
    assert!(storage.open("f").unwrap().is_none());
    let file = storage.create("f").unwrap();
    file.allocate(1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    file.allocate(1 << 10).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20, "it doesn't get shorter");
    write_all_at(&file, 4096, b"bytes").unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.links().unwrap(), 1);
    fs::hard_link(folder.path().join("f"), folder.path().join("kept")).unwrap();
    assert_eq!(file.links().unwrap(), 2);
    let other = storage.create("f").unwrap();
    assert_eq!((other.len().unwrap(), file.len().unwrap()), (0, 1 << 20));
    assert_eq!(fs::metadata(folder.path().join("kept")).unwrap().len(), 1 << 20);
    storage.rename("kept", "f").unwrap();
    storage.sync_folder().unwrap();
    let mut bytes = [0; 7];
    let end = storage.open("f").unwrap().unwrap();
    read_exact_at(&end, 4095, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0bytes\0");
    assert_eq!(end.read_at(1 << 20, &mut bytes).unwrap(), 0);
    assert!(read_exact_at(&end, (1 << 20) - 3, &mut bytes).is_err());
    storage.remove("f").unwrap();
    storage.remove("f").expect("none is no error");
    symlink("/etc/hostname", folder.path().join("link")).unwrap();
    assert!(storage.open("link").is_err(), "a link leads out of the folder");
    let mut names = storage.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, ["link", "lock"]);
}

#[test]
fn an_open_folder_stays_the_same_when_it_is_renamed() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("log");
    let storage = RealFolder::open(&path, true).unwrap();
    fs::rename(&path, above.path().join("moved")).unwrap();
    storage.create("f").unwrap();
    assert!(above.path().join("moved/f").exists());
}

#[test]
fn a_newer_version_is_refused_before_anything_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("meta"), "nigh-log 2\nwhatever\n").unwrap();
    let world = open(folder.path());
    let error = read_meta(&*world.storage).unwrap_err();
    assert!(matches!(error, LogError::NewerVersion { found: 2, known: 1, .. }), "{error}");
    let started = Machine::start(world, &mut Book::new(), FILE_BYTES, 1);
    assert!(matches!(started, Err(Halt::Log(LogError::NewerVersion { .. }))));
    let meta = fs::read_to_string(folder.path().join("meta")).unwrap();
    assert_eq!(meta, "nigh-log 2\nwhatever\n");
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = Book::new();
    drop(Machine::start(open(folder.path()), &mut book, FILE_BYTES, 1).unwrap());
    let listing = list(&*open(folder.path()).storage).unwrap();
    let newest = folder.path().join(listing.files.last().unwrap().to_string());
    let mut bytes = fs::read(&newest).unwrap();
    bytes[8] = 2;
    fs::write(&newest, bytes).unwrap();
    let started = Machine::start(open(folder.path()), &mut book, FILE_BYTES, 1);
    let Err(Halt::Log(error)) = started else { panic!("it started") };
    assert!(matches!(&error, LogError::NewerVersion { found: 2, .. }), "{error}");
}

#[test]
fn another_process_follows_without_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = Book::new();
    let mut machine = Machine::start(open(folder.path()), &mut book, FILE_BYTES, 2).unwrap();
    let reads = world(RealFolder::open_to_read(folder.path()).unwrap());
    let meta = read_meta(&*reads.storage).unwrap().unwrap();
    let chain: Chain = meta.chains[0];
    for _ in 0..20 {
        machine.commit(&mut book, 0);
    }
    machine.drain(&book).unwrap();
    machine.shards[0].writer.close().unwrap();
    let mut follower = LogFollower::whole(&reads, &meta, &chain).unwrap();
    let mut changes = 0;
    for _ in 0..1000 {
        let mut each = |commit: &nigh_log::ReplayedCommit<'_>| {
            changes += commit.changes.len();
            Ok(())
        };
        if follower.advance(&mut each).unwrap() == nigh_log::Followed::NotYet {
            break;
        }
    }
    assert!(changes >= 20, "{changes}");
}

#[test]
fn file_systems_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let here = RealFolder::open_to_read(folder.path()).unwrap();
    let inner = RealFolder::open(&folder.path().join("inner"), true).unwrap();
    assert_eq!(here.device().unwrap(), inner.device().unwrap());
    assert_ne!(here.file_system().unwrap(), FileSystemKind::Remote);
    if let Ok(memory) = RealFolder::open_to_read(Path::new("/dev/shm")) {
        assert_eq!(memory.file_system().unwrap(), FileSystemKind::Memory);
    }
    let proc = RealFolder::open_to_read(Path::new("/proc")).unwrap();
    assert_ne!(proc.device().unwrap(), here.device().unwrap());
}

#[test]
fn clocks_and_chance_are_the_machine_s() {
    let clock = RealClock::default();
    let (unix, rising) = (clock.unix_ms(), clock.rising_us());
    assert!(unix > 1_600_000_000_000 && clock.rising_us() >= rising);
    let words: std::collections::BTreeSet<u64> = (0..100).map(|_| RealChance.word()).collect();
    assert_eq!(words.len(), 100);
}

/// What is long and lies on blocks goes and comes past the page cache; all else through it. Whoever
/// reads beside sees the last bytes of both, and so does the file.
#[test]
fn long_and_short_ways_have_the_same_bytes() {
    const BLOCK: usize = 4096;
    let (folder, chance) = (tempfile::tempdir().unwrap(), RealChance);
    let world = open(folder.path());
    let file = world.storage.create("mixed").unwrap();
    file.allocate(4 << 20).unwrap();
    let reader = world.storage.open("mixed").unwrap().unwrap();
    let mut wanted = vec![0; 4 << 20];
    let below = |end: usize| usize::try_from(chance.word() % end as u64).unwrap();
    let memory: Vec<u8> = (0..(2 << 20) + BLOCK).map(|_| chance.word().to_le_bytes()[0]).collect();
    let aligned = memory.as_ptr().align_offset(BLOCK);
    let mut found = vec![0; memory.len() + BLOCK];
    let found_aligned = found.as_ptr().align_offset(BLOCK);
    for round in 0..200 {
        // On a block or not, in memory and in the file; and lengths that end within a block.
        let from = if round % 3 == 0 { below(BLOCK) } else { aligned };
        let into = if round % 4 == 0 { below(BLOCK) } else { found_aligned };
        let position = below(512) * BLOCK + if round % 5 == 0 { below(BLOCK) } else { 0 };
        let longest = if round % 2 == 0 { 1 << 20 } else { 3 * BLOCK };
        let bytes = &memory[from..from + 1 + below(longest)];
        write_all_at(&file, position as u64, bytes).unwrap();
        wanted[position..position + bytes.len()].copy_from_slice(bytes);
        let look = below(3 << 8) * BLOCK + if round % 7 == 0 { below(BLOCK) } else { 0 };
        let found = &mut found[into..into + 1 + below(longest)];
        read_exact_at(&reader, look as u64, found).unwrap();
        assert!(found == &wanted[look..look + found.len()], "round {round}: bytes at {look}");
    }
    let path = folder.path().join("mixed");
    assert!(fs::read(&path).unwrap() == wanted, "the file has other bytes");
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    if fs::OpenOptions::new().write(true).custom_flags(direct).open(&path).is_ok() {
        assert!(is_open_directly(&path), "no write went past the page cache");
    }
}

/// Whether this process has the file open so that it bypasses the page cache.
fn is_open_directly(path: &Path) -> bool {
    let flags = |fd: &str| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
    };
    let direct = rustix::fs::OFlags::DIRECT.bits();
    fs::read_dir("/proc/self/fd").unwrap().flatten().any(|fd| {
        let is_it = fs::read_link(fd.path()).is_ok_and(|to| to == path);
        is_it && flags(&fd.file_name().to_string_lossy()) & direct != 0
    })
}
