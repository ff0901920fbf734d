//! A server was killed while it started a library. The next server doesn't start that library.

use crate::support::{MAXMEMORY, Server, folder, nigh, stdout};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const GOOD: &str = "#!js name=good\nexport const fine = () => 1;";
const MENDED: &str = "#!js name=bad\nexport const late = () => 2;";
/// A library may take an hour to start, so only a kill ends its start.
const FLAGS: [&str; 6] =
    ["--maxmemory", MAXMEMORY, "--shards", "1", "--function-load-limit-ms", "3600000"];

/// Longest time to load a library on a slow machine.
const LOADED_MS: u128 = 5000;

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis()
}

/// Waits for the file that marks the library as being started. It is whole: a kill between its
/// creation and its bytes leaves a torn one, which means nothing.
fn wait_for_mark(folder: &Path) {
    let begin = Instant::now();
    let mark = folder.join("arenas/bad.starting.0");
    while !std::fs::read_to_string(&mark).is_ok_and(|mark| mark.ends_with('\n')) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never started");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a server by SIGKILL while it starts the library `bad`, whose top level waits by the clock.
fn killed_while_starting(folder: &Path) {
    let server = Server::start_with(folder, &FLAGS);
    server.call(&["FUNCTION", "LOAD", GOOD]);
    let from = unix_ms() + LOADED_MS;
    let bad =
        format!("#!js name=bad\nif (Date.now() > {from}) for (;;);\nexport const late = () => 1;");
    assert_eq!(server.call(&["FUNCTION", "LOAD", &bad]).bytes(), Some(&b"bad"[..]));
    server.call(&["SET", "key", "value"]);
    server.kill();
    while unix_ms() <= from {
        std::thread::sleep(Duration::from_millis(10));
    }
    let server = Server::spawn(folder, &FLAGS);
    wait_for_mark(folder);
    server.kill();
}

/// Each start once met the bad library again, until an operator removed the file of all libraries.
/// Now the next server skips that library and says so. Data and other libraries are there. It stays
/// skipped until a client loads or deletes it.
#[test]
fn a_library_that_a_kill_met_while_it_started_is_skipped() {
    let folder = folder();
    killed_while_starting(folder.path());
    for _ in 0..2 {
        let server = Server::start_with(folder.path(), &FLAGS);
        assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
        assert_eq!(server.call(&["FCALL", "fine", "0"]).integer(), Some(1));
        let refused = server.call(&["FCALL", "late", "0"]);
        assert_eq!(refused.error(), Some(&b"ERR Function not found"[..]));
        let again = server.call(&["FUNCTION", "LOAD", MENDED]);
        assert_eq!(again.error(), Some(&b"ERR Library 'bad' already exists"[..]));
        let listed = nigh(&["fn", "list", "--connect", &server.port.to_string()]);
        let expected = "bad (JS)\n  not running: it was being started when the server ended";
        assert!(stdout(&listed).contains(expected), "{}", stdout(&listed));
        assert_eq!(stdout(&listed).matches("not running").count(), 1, "{}", stdout(&listed));
        server.kill();
    }
    let server = Server::start_with(folder.path(), &FLAGS);
    let loaded = server.call(&["FUNCTION", "LOAD", "REPLACE", MENDED]);
    assert_eq!(loaded.bytes(), Some(&b"bad"[..]));
    assert_eq!(server.call(&["FCALL", "late", "0"]).integer(), Some(2));
    server.kill();
    let server = Server::start_with(folder.path(), &FLAGS);
    assert_eq!(server.call(&["FCALL", "late", "0"]).integer(), Some(2));
    let left = std::fs::read_dir(folder.path().join("arenas")).expect("it is ours");
    let left: Vec<_> = left.map(|entry| entry.expect("it is ours").file_name()).collect();
    let is_mark = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("bad.");
    assert!(!left.iter().any(is_mark), "{left:?}");
}

/// The log of the next start names the skipped library. After its deletion the name is free, and
/// the same source may be loaded again.
#[test]
fn a_skipped_library_is_named_and_can_be_deleted() {
    let folder = folder();
    killed_while_starting(folder.path());
    let server = Server::start_with(folder.path(), &FLAGS);
    let said = server.said();
    assert!(said.contains("it was being started when the server ended"), "{said}");
    assert!(said.contains("library=\"bad\""), "{said}");
    server.call(&["FUNCTION", "DELETE", "bad"]);
    assert_eq!(server.call(&["FUNCTION", "LOAD", MENDED]).bytes(), Some(&b"bad"[..]));
    assert_eq!(server.call(&["FCALL", "late", "0"]).integer(), Some(2));
}

/// A mark is about one source, and the library of that name may have been replaced since. A torn
/// mark means that the kill came before the library began.
#[test]
fn a_mark_of_another_source_or_a_torn_one_skips_nothing() {
    let folder = folder();
    let server = Server::start_with(folder.path(), &FLAGS);
    server.call(&["FUNCTION", "LOAD", GOOD]);
    server.kill();
    for mark in ["00000000 5\n", "", "0000"] {
        std::fs::write(folder.path().join("arenas/good.starting.0"), mark).expect("it is ours");
        let server = Server::start_with(folder.path(), &FLAGS);
        assert_eq!(server.call(&["FCALL", "fine", "0"]).integer(), Some(1));
        server.kill();
    }
}
