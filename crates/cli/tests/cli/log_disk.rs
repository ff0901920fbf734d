//! Disks that fail under the log of a real server: system calls that return errors, by strace, and
//! a disk that is full.
//!
//! 1. What was answered stays. Writes get `MISCONF`; reads go on; INFO names the state and the
//!    cause.
//! 2. A failed write or sync breaks the log, and a write under `always` whose sync failed isn't
//!    answered. The server writes a new log, which has all; then it takes writes again.
//! 3. A full disk refuses what isn't a removal, until there is room: by what else goes from the
//!    disk, or by removals alone, of whatever size the disk is. It hinders no start.
//!
//! Without strace, or where mounting isn't allowed, a test says so and returns.

use crate::support::strace::Strace;
use crate::support::{Server, folder};
use nigh_client::{Connection, Frame};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for what must come: a second of `everysec`, or a new log, on a slow machine.
const SOON: Duration = Duration::from_secs(180);
/// A full log has looked for room again by then: it does so each second.
const LOOKS_AGAIN: Duration = Duration::from_millis(1200);
/// Bytes of a value on the full disk, and of that disk.
const VALUE_BYTES: usize = 10_000;
const DISK_BYTES: usize = 40 << 20;
/// Bytes of other files on it.
const BALLAST_BYTES: usize = 12 << 20;
/// A disk with room for what the log keeps, and for some files more.
const LEAST_DISK_BYTES: usize = 10 << 20;
/// By how much disks are larger than that: up to a file, and to a block more or less.
const MORE_BYTES: [usize; 6] = [0, 4 << 10, 508 << 10, 516 << 10, 1020 << 10, 1 << 20];

fn flags(dir: &Path, mode: &str) -> Vec<String> {
    let dir = dir.to_str().expect("a path of ours");
    let flags = [
        ["--appendonly", "yes"],
        ["--appendfsync", mode],
        ["--dir", dir],
        ["--log-on-tmpfs", "yes"], // wherever the build is
        ["--journal-size", "1mb"],
        ["--log-file-size", "1mb"],
        ["--log-garbage", "10"],
        ["--maxmemory", "256mb"],
        ["--shards", "1"],
    ];
    flags.concat().into_iter().map(str::to_owned).collect()
}

fn start(folder: &Path, flags: &[String]) -> Server {
    Server::start_with(folder, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn error_of(reply: &Frame) -> Option<String> {
    reply.error().map(|text| String::from_utf8_lossy(text).into_owned())
}

fn info(server: &Server, field: &str) -> String {
    let info = server.call(&["INFO", "persistence"]);
    let info = String::from_utf8_lossy(info.bytes().expect("a text")).into_owned();
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {info}")).to_owned()
}

/// What came of a write.
enum Wrote {
    Done,
    Refused(String),
    /// The connection was closed: nobody knows.
    Unanswered,
}

fn write(connection: &mut Connection, words: &[&str]) -> Wrote {
    match connection.call(words.iter().copied()) {
        Ok(reply) => error_of(&reply).map_or(Wrote::Done, Wrote::Refused),
        Err(_) => Wrote::Unanswered,
    }
}

/// strace on the threads of a server's log: their system calls of one kind fail.
fn inject(server: &Server, what: &str, said: &Path) -> Option<Strace> {
    let (trace, inject) = (format!("trace={}", what.split(':').next()?), format!("inject={what}"));
    let [log, sync] = ["nigh-log-0", "nigh-sync-0"].map(|name| server.thread(name));
    let args = ["-e", &trace, "-e", "signal=none", "-e", &inject, "-p", &log, "-p", &sync];
    Strace::attach(&args, said)
}

/// A sync or write fails, once or for ever: writes are refused until a new log counts, which the
/// server makes by itself.
#[test]
fn a_log_that_fails_refuses_writes_until_it_heals() {
    let all = [
        ("fdatasync:error=EIO:when=1", "Input/output error"),
        ("fdatasync:error=EIO:when=3+2", "Input/output error"),
        ("pwrite64:error=EIO:when=2", "Input/output error"),
        ("pwrite64:error=ENOSPC:when=1", "No space left on device"),
        ("pwrite64:error=ENOSPC", "No space left on device"),
    ];
    for (number, (what, cause)) in all.into_iter().enumerate() {
        for mode in ["always", "everysec"] {
            let ends = [end_by_kill, end_by_term][number % 2];
            if !fails(what, cause, mode, ends) {
                return;
            }
        }
    }
}

fn end_by_kill(server: Server) {
    server.kill();
}

fn end_by_term(server: Server) {
    server.signal(rustix::process::Signal::TERM);
    server.ended();
}

fn fails(what: &str, cause: &str, mode: &str, end: fn(Server)) -> bool {
    let (folder, disk) = (folder(), disk_folder());
    let flags = flags(&disk.path().join("log"), mode);
    let server = start(folder.path(), &flags);
    assert_eq!(error_of(&server.call(&["SET", "before", "1"])), None);
    let said = folder.path().join("strace");
    let Some(strace) = inject(&server, what, &said) else { return false };
    let (mut answered, begin) = (0, Instant::now());
    let mut connection = server.connect();
    let refusal = loop {
        let key = format!("k{answered}");
        match write(&mut connection, &["SET", &key, "v"]) {
            Wrote::Done => answered += 1,
            Wrote::Refused(text) => break Some(text),
            Wrote::Unanswered => {
                assert_eq!(mode, "always", "{what}: {}", server.said());
                break None;
            }
        }
        assert!(begin.elapsed() < SOON, "{what}, {mode}: {answered} writes, and none refused");
        if mode == "everysec" {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    if let Some(text) = refusal {
        assert!(text.starts_with("MISCONF Nigh can't write its log: "), "{text}");
        assert!(text.contains(cause), "{what}, {mode}: {text}");
    }
    all_there(&server, answered);
    // The threads of the new log aren't traced.
    let begin = Instant::now();
    while let Some(text) = error_of(&server.call(&["SET", "healed", "1"])) {
        assert!(text.starts_with("MISCONF"), "{what}: {text}");
        assert!(begin.elapsed() < SOON, "{what}: it stays broken: {}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(strace);
    all_there(&server, answered);
    assert_eq!(info(&server, "aof_last_write_status"), "ok");
    end(server);
    let server = start(folder.path(), &flags);
    all_there(&server, answered);
    assert_eq!((&*info(&server, "log_state"), &*info(&server, "log_cause")), ("well", ""));
    assert_eq!(error_of(&server.call(&["SET", "after", "1"])), None, "{}", server.said());
    synced(&server);
    server.kill();
    // The log alone has all, too.
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("they are there");
    let server = start(folder.path(), &flags);
    all_there(&server, answered);
    assert_eq!(server.call(&["GET", "after"]).bytes(), Some(&b"1"[..]));
    eprintln!("{mode}, {what}: {answered} answered writes, all there");
    true
}

fn all_there(server: &Server, answered: usize) {
    let mut connection = server.connect();
    assert_eq!(connection.call(["GET", "before"]).expect("reads go on").bytes(), Some(&b"1"[..]));
    for number in 0..answered {
        let reply = connection.call(["GET", &format!("k{number}")]).expect("reads go on");
        assert_eq!(reply.bytes(), Some(&b"v"[..]), "k{number} of {answered}");
    }
}

fn synced(server: &Server) {
    let reply = server.call(&["WAITAOF", "1", "0", "120000"]);
    let local = reply.elements().and_then(|all| all.first()?.integer());
    assert_eq!(local, Some(1), "{reply:?}");
}

fn disk_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk")
}

/// The next file can't be made: the disk is full, until it isn't. No start is needed.
#[test]
fn a_file_that_cannot_be_made_is_tried_again() {
    let (folder, disk) = (folder(), disk_folder());
    let flags = flags(&disk.path().join("log"), "everysec");
    let server = start(folder.path(), &flags);
    assert_eq!(error_of(&server.call(&["SET", "before", "1"])), None);
    let said = folder.path().join("strace");
    let what = "fallocate:error=ENOSPC";
    let Some(strace) = inject(&server, what, &said) else { return };
    let written = fill(&server, 0);
    assert_eq!(info(&server, "log_state"), "full");
    assert_eq!(server.call(&["DEL", "before"]).integer(), Some(1), "a removal is taken");
    drop(strace);
    takes_writes(&server);
    assert_eq!(info(&server, "log_state"), "well");
    has(&server, 0..written);
}

/// A tmpfs of some MB.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// None if mounting isn't allowed.
    pub(crate) fn mount(bytes: usize) -> Option<SmallDisk> {
        let folder = disk_folder();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(folder));
        }
        eprintln!("mounting isn't allowed: nothing is tested");
        None
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }

    /// It gets larger.
    pub(crate) fn grow(&self, bytes: usize) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={bytes}")]).arg(self.0.path());
        assert!(mount.status().is_ok_and(|status| status.success()), "it can be enlarged");
    }

    /// Another file on it, which takes all that is left.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut file = std::fs::File::create(&path).expect("the disk takes a name");
        let block = [b'x'; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        path
    }

    /// Another file on it.
    fn ballast(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, vec![b'x'; bytes]).expect("there is room");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn value(number: usize) -> String {
    format!("{number}:").repeat(VALUE_BYTES).chars().take(VALUE_BYTES).collect()
}

/// Writes keys from a number on until one is refused, since the disk is full and stays so. The
/// number of the first that isn't there.
fn fill(server: &Server, from: usize) -> usize {
    let mut connection = server.connect();
    let mut number = from;
    while number < from + 10_000 {
        match write(&mut connection, &["SET", &format!("f{number}"), &value(number)]) {
            Wrote::Done => number += 1,
            Wrote::Refused(text) => {
                let is_full = text.contains("No space left on device");
                assert!(text.starts_with("MISCONF") && is_full, "{text}");
                if stays_full(server) {
                    return number;
                }
            }
            Wrote::Unanswered => panic!("a full disk ends no connection: {}", server.said()),
        }
    }
    panic!("the disk takes all: {}", server.said());
}

/// Whether the log is still full when it has looked for room again. If it found some, it was well
/// again before one could ask.
fn stays_full(server: &Server) -> bool {
    let begin = Instant::now();
    while info(server, "log_state") == "full" {
        if begin.elapsed() > LOOKS_AGAIN {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

fn has(server: &Server, numbers: std::ops::Range<usize>) {
    let mut connection = server.connect();
    for number in numbers {
        let reply = connection.call(["GET", &format!("f{number}")]).expect("reads go on");
        assert!(reply.bytes() == Some(value(number).as_bytes()), "f{number}: {reply:?}");
    }
}

/// Writes are taken again soon.
fn takes_writes(server: &Server) {
    let begin = Instant::now();
    while let Some(text) = error_of(&server.call(&["SET", "again", "1"])) {
        assert!(text.starts_with("MISCONF"), "{text}");
        assert!(begin.elapsed() < SOON, "it stays full: {}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What else was on the disk goes: writes go on.
#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    for mode in ["everysec", "always"] {
        let (folder, Some(disk)) = (folder(), SmallDisk::mount(DISK_BYTES)) else { return };
        let flags = flags(&disk.path(), mode);
        let ballast = disk.ballast("ballast", BALLAST_BYTES);
        let server = start(folder.path(), &flags);
        let written = fill(&server, 0);
        assert!(written > 500, "{written} keys of {VALUE_BYTES} bytes fill no {DISK_BYTES} bytes");
        assert_eq!(info(&server, "log_state"), "full");
        has(&server, 0..written);
        std::fs::remove_file(ballast).expect("it is there");
        takes_writes(&server);
        assert_eq!(info(&server, "log_state"), "well");
        let more = fill(&server, written);
        assert!(more > written + 300, "{written}, then {more}");
        server.kill();
        let server = start(folder.path(), &flags);
        has(&server, 0..more);
        eprintln!("{mode}: full behind {written} and {more} keys");
    }
}

/// Nothing else goes: removals make room by themselves, be they one or many, and whatever the disk
/// has left. Until they are enough, the server may be killed, or power cut.
#[test]
fn removals_heal_a_disk_that_is_full_to_its_last_block() {
    for (number, more_bytes) in MORE_BYTES.into_iter().enumerate() {
        for mode in ["everysec", "always"] {
            let disk = SmallDisk::mount(LEAST_DISK_BYTES + more_bytes);
            let (folder, Some(disk)) = (folder(), disk) else { return };
            let flags = flags(&disk.path(), mode);
            let mut server = start(folder.path(), &flags);
            let written = fill(&server, 0);
            assert!(written > 100, "{written} keys of {VALUE_BYTES} bytes fill it");
            assert_eq!(server.call(&["DEL", "f0"]).integer(), Some(1));
            synced(&server);
            for with_arenas in [true, false] {
                server.kill();
                if !with_arenas {
                    std::fs::remove_dir_all(folder.path().join("arenas")).expect("they are there");
                }
                server = start(folder.path(), &flags);
                has(&server, 1..written);
                assert_eq!(server.call(&["EXISTS", "f0"]).integer(), Some(0));
            }
            let left = if number % 2 == 0 { flush(&server) } else { remove(&server, 1..written) };
            synced(&server);
            server.kill();
            std::fs::remove_dir_all(folder.path().join("arenas")).expect("they are there");
            let server = start(folder.path(), &flags);
            assert_eq!(server.call(&["GET", "again"]).bytes(), Some(&b"1"[..]));
            has(&server, left..written);
            let keys = written.saturating_sub(left) + 1;
            assert_eq!(server.call(&["DBSIZE"]).integer(), i64::try_from(keys).ok());
            eprintln!("{mode}, {more_bytes} bytes more: {written} keys, room with {keys} of them");
        }
    }
}

/// A removal that is taken, if not at once then when compaction has made room for it.
fn removes(server: &Server, words: &[&str]) {
    let begin = Instant::now();
    while let Some(text) = error_of(&server.call(words)) {
        assert!(text.starts_with("MISCONF") && begin.elapsed() < SOON, "{words:?}: {text}");
    }
}

/// All keys go; the first that is there then.
fn flush(server: &Server) -> usize {
    removes(server, &["FLUSHALL"]);
    takes_writes(server);
    usize::MAX
}

/// Keys go one by one until a write is taken; the first that is there then. The disk may be full
/// again at once: compaction takes room, too, before it gives some back.
fn remove(server: &Server, keys: std::ops::Range<usize>) -> usize {
    let end = keys.end;
    for key in keys {
        removes(server, &["DEL", &format!("f{key}")]);
        if error_of(&server.call(&["SET", "again", "1"])).is_none() {
            return key + 1;
        }
    }
    takes_writes(server);
    end
}
