//! The system refuses memory: no descriptors or addresses are left, or the tmpfs is full.

use crate::support::{Server, folder};
use nigh_client::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 100_000;

/// Writes values until one is refused. Returns how many were taken, and the error.
fn write_until_refused(connection: &mut Connection, prefix: &str, most: u32) -> (u32, String) {
    let value = "x".repeat(VALUE_BYTES);
    for n in 0..most {
        let reply = connection.call(["SET", &format!("{prefix}{n}"), &value]).expect("it is up");
        if let Some(error) = reply.error() {
            return (n, String::from_utf8_lossy(error).into_owned());
        }
    }
    panic!("{most} values were taken");
}

/// The process has no descriptor left. The error once spoke of too much data: it misled operators
/// to `maxmemory`, and made a policy evict keys.
#[test]
fn a_lack_of_descriptors_is_said_and_costs_no_key() {
    let folder = folder();
    let flags = ["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start_with(folder.path(), &flags);
    let mut connection = server.connect();
    assert_eq!(connection.call(["SET", "a", "1"]).expect("it is up").error(), None);
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(3), maximum: limit.maximum };
    prlimit(Some(server.pid()), Resource::Nofile, none).expect("it is our child");
    let begin = Instant::now();
    let (taken, error) = write_until_refused(&mut connection, "k", 2000);
    assert!(error.starts_with("IOERR no file descriptor is left"), "{error}");
    while begin.elapsed() < Duration::from_millis(2500) {
        let again = connection.call(["SET", "more", &"x".repeat(VALUE_BYTES)]).expect("it is up");
        assert!(again.error().is_some_and(|it| it.starts_with(b"IOERR")), "{again:?}");
    }
    server.wait_for("Too many open files (os error 24)");
    let said = server.said();
    assert!(said.contains("default.0.arena") && said.contains("ulimit -n"), "{said}");
    let lines = said.matches("taking memory failed").count();
    let seconds = usize::try_from(begin.elapsed().as_secs()).expect("a few");
    assert!((1..=seconds + 1).contains(&lines), "{lines} lines in {seconds} s: {said}");
    let keys = i64::from(taken) + 1;
    let count = connection.call(["DBSIZE"]).expect("it is up");
    assert_eq!(count, nigh_client::Frame::Integer(keys), "no key went for it");
    prlimit(Some(server.pid()), Resource::Nofile, limit).expect("it is our child");
    let again = connection.call(["SET", "more", &"x".repeat(VALUE_BYTES)]).expect("it is up");
    assert_eq!(again.error(), None, "there are some again");
}

/// The variable that names the child's folder, on which a tmpfs is mounted.
const FOLDER: &str = "NIGH_TEST_MOUNTED";

/// Runs a test of this file as a child, with a tmpfs of its own on its folder.
fn run_mounted(test: &str, size: &str) {
    let folder = folder();
    let root = rustix::process::geteuid().is_root();
    let way: &[&str] = if root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    let script = "mount -t tmpfs -o \"size=$1\" none \"$2\" || exit 77; shift 2; exec \"$@\"";
    let child = std::env::current_exe().expect("it runs");
    let output = Command::new("unshare")
        .args(way)
        .args(["sh", "-c", script, "sh", size])
        .arg(folder.path())
        .arg(child)
        .args(["--exact", &format!("faults::memory::{test}"), "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .expect("util-linux is there");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("unshare:") || output.status.code() == Some(77) {
        eprintln!("nothing can be mounted here: this story is left out");
        return;
    }
    assert!(output.status.success() && said.contains("the story was told"), "{said}");
}

/// Takes all memory that a file system has left.
fn fill(path: &Path) -> std::fs::File {
    let mut filler = std::fs::File::create(path).expect("there is an inode");
    while std::io::Write::write(&mut filler, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
    filler
}

/// A server was killed, and other processes filled the tmpfs before the next server started. With
/// the same `--maxmemory` it was once refused, although all data was there.
#[test]
fn a_killed_server_comes_again_where_others_have_filled_the_tmpfs() {
    run_mounted("child_that_comes_again", "96m");
}

#[test]
fn child_that_comes_again() {
    // The test above runs this.
    let Some(mounted) = std::env::var_os(FOLDER) else { return };
    let (folder, logs) = (Path::new(&mounted), folder());
    let flags = ["--maxmemory", "64mb"];
    for keys in [1, 200] {
        let server = Server::start_with(folder, &flags);
        let mut connection = server.connect();
        for n in 0..keys {
            let set = connection.call(["SET", &format!("old{n}"), &"x".repeat(VALUE_BYTES)]);
            assert_eq!(set.expect("it is up").error(), None);
        }
        server.kill();
        let filler = fill(&folder.join("filler"));
        // The log, which lies beside the arenas, has no room either.
        let log = logs.path().join("log");
        let file = std::fs::File::create(&log).expect("the folder is ours");
        let mut server = Server::spawn_logging(folder, &flags, file, log);
        server.wait();
        let said = server.said();
        assert!(said.contains("has less free than the arenas may still take"), "{said}");
        let mut connection = server.connect();
        for n in 0..keys {
            let get = connection.call(["GET", &format!("old{n}")]).expect("it is up");
            assert_eq!(get.bytes().map(<[u8]>::len), Some(VALUE_BYTES));
        }
        let (_, error) = write_until_refused(&mut connection, "new", 700);
        assert!(error.starts_with("OOM the tmpfs of the arenas is full"), "{error}");
        server.wait_for("No space left on device (os error 28)");
        filler.set_len(0).expect("it gets shorter");
        let set = connection.call(["SET", "after", &"x".repeat(VALUE_BYTES)]).expect("it is up");
        assert_eq!(set.error(), None, "there is some again");
        assert_eq!(connection.call(["FLUSHALL"]).expect("it is up").error(), None);
    }
    eprintln!("the story was told");
}

/// Settings of a server whose log is in a folder.
fn logged<'a>(log: &'a Path, maxmemory: &'a str) -> Vec<&'a str> {
    let log = log.to_str().expect("a path of ours");
    let flags = ["--appendonly", "yes", "--log-on-tmpfs", "yes", "--dir", log, "--shards", "1"];
    let sizes = ["--journal-size", "1mb", "--log-file-size", "1mb", "--maxmemory", maxmemory];
    [&flags[..], &sizes].concat()
}

/// A start had too few addresses for the arenas, for once. It took that for a fault of theirs, and
/// set them aside for good, so the next one had to build all from the log.
#[test]
fn a_lack_that_passes_ends_no_arena() {
    let (folder, disk) = (folder(), tempfile::tempdir().expect("a folder"));
    let log = disk.path().join("log");
    let flags = logged(&log, "2gb");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    server.kill();
    let refused = Server::start_under(&["-v 1500000"], folder.path(), &flags);
    let said = refused.map(drop).expect_err("an arena has more addresses");
    assert!(said.contains("default.0.arena: ") && said.contains("os error 12"), "{said}");
    let server = Server::start_with(folder.path(), &flags);
    let said = server.said();
    assert!(said.contains("adopted=2 rebuilt=0"), "{said}");
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
}

/// An arena that was damaged left no room beside it for the one that is built from the log: each
/// start failed, and none said why there was so little.
#[test]
fn what_was_set_aside_is_named_if_there_is_no_room_beside_it() {
    run_mounted("child_without_room_beside_it", "64m");
}

#[test]
fn child_without_room_beside_it() {
    // The test above runs this.
    let Some(mounted) = std::env::var_os(FOLDER) else { return };
    let (folder, disk) = (Path::new(&mounted), tempfile::tempdir().expect("a folder"));
    let log = disk.path().join("log");
    let flags = logged(&log, "48mb");
    let server = Server::start_with(folder, &flags);
    let mut connection = server.connect();
    for n in 0..350 {
        let set = connection.call(["SET", &format!("k{n}"), &"x".repeat(VALUE_BYTES)]);
        assert_eq!(set.expect("it is up").error(), None);
    }
    let synced = server.call(&["WAITAOF", "1", "0", "60000"]);
    assert_eq!(synced.elements().and_then(|all| all.first()?.integer()), Some(1));
    server.kill();
    let arena = folder.join("arenas/default.0.arena");
    let file = std::fs::File::options().write(true).open(&arena).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8], 0).expect("a word");
    drop(file); // or it holds the memory
    // The server's log, which lies beside the arenas, would have no room either.
    let spawn = || {
        let log = disk.path().join("said");
        let file = std::fs::File::create(&log).expect("the folder is ours");
        Server::spawn_logging(folder, &flags, file, log)
    };
    for _ in 0..2 {
        let mut server = spawn();
        let said = server.wait_or_end().expect("there is no room");
        let parts = ["building the arena", "default.0.arena.aside", "give the tmpfs"];
        assert!(parts.iter().all(|it| said.contains(it)), "{said}");
        assert!(said.contains("if `nigh check` finds the log whole, remove that"), "{said}");
    }
    let check = crate::support::nigh(&["check", log.to_str().expect("a path of ours")]);
    assert!(check.status.success(), "{check:?}");
    std::fs::remove_file(folder.join("arenas/default.0.arena.aside")).expect("it is there");
    let mut server = spawn();
    server.wait();
    let get = server.call(&["GET", "k349"]);
    assert_eq!(get.bytes().map(<[u8]>::len), Some(VALUE_BYTES));
    eprintln!("the story was told");
}
