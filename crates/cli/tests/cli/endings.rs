//! The last words of a server that a function ends: they name the function and its library.

use crate::log_disk::SmallDisk;
use crate::support::{MAXMEMORY, Server, folder};
use nigh_client::{Connection, Frame};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

const LIBRARY: &str = "#!js name=bad
export const spin = () => { console.log('begun'); for (;;); };
export const fill = () => { const all = []; for (;;) all.push([all.length, {}]); };
";

/// A server of one shard on which functions may run for an hour.
fn server(folder: &tempfile::TempDir, flags: &[&str]) -> Server {
    let patient = ["--maxmemory", MAXMEMORY, "--shards", "1"];
    let server = Server::start_with(folder.path(), &[&patient, flags].concat());
    server.call(&["FUNCTION", "LOAD", LIBRARY]);
    server
}

/// Sends a call without waiting for its reply.
fn begin(server: &Server, function: &str) -> Connection {
    let mut connection = server.connect();
    connection.send([&b"FCALL"[..], function.as_bytes(), b"0"]).expect("the server is up");
    connection.flush().expect("the server is up");
    connection
}

/// A crash of a server with many libraries once didn't tell which library had caused it. Now a line
/// about the signal names the function that ran.
#[test]
fn a_crash_names_the_function() {
    let folder = folder();
    for signal in [Signal::SEGV, Signal::ABORT, Signal::BUS] {
        let server = server(&folder, &["--function-time-limit-ms", "3600000", "--fresh"]);
        let _call = begin(&server, "spin");
        server.wait_for("begun");
        kill_process(server.pid(), signal).expect("it is our child");
        let said = server.ended();
        let line = "nigh: the process ends while function 'spin' of library 'bad' runs";
        assert_eq!(said.matches(line).count(), 1, "{signal:?}: {said}");
    }
}

/// V8 ends the process if the system gives it no memory. V8 tells the reason, and Nigh the
/// function.
#[test]
fn a_fatal_error_of_v8_names_the_function() {
    let folder = folder();
    let flags = ["--function-time-limit-ms", "3600000", "--function-heap-limit-bytes", "4gb"];
    let server = server(&folder, &flags);
    let (pid, limit) = (server.pid(), getrlimit(Resource::Data));
    let limit = Rlimit { current: Some(512 << 20), ..limit };
    prlimit(Some(pid), Resource::Data, limit).expect("it is our child");
    let _call = begin(&server, "fill");
    let said = server.ended();
    assert!(said.contains("nigh: V8 ends the process: "), "{said}");
    assert!(said.contains("while function 'fill' of library 'bad' runs"), "{said}");
}

/// V8 can't be stopped while it compiles. The shard goes on without that call, and names the
/// function.
#[test]
fn what_cannot_be_stopped_is_named_and_ends_nothing() {
    let folder = folder();
    let flags = ["--function-time-limit-ms", "10", "--function-load-limit-ms", "60000"];
    let server = server(&folder, &flags);
    let scopes = 800;
    let mut source = "#!js name=slow\nexport function later() { ".to_owned();
    source += &"{ let v; ".repeat(scopes);
    (0..200_000).for_each(|name| source += &format!("u{name};"));
    source += &"}".repeat(scopes);
    source += "}";
    assert_eq!(server.call(&["FUNCTION", "LOAD", &source]).bytes(), Some(&b"slow"[..]));
    let _call = begin(&server, "later");
    server.wait_for("a function that was stopped doesn't come back");
    server.wait_for("library=\"slow\" function=\"later\"");
    assert_eq!(server.call(&["GET", "nothing"]), Frame::Null);
}

/// With a log it ended the server: the journal was still the thread's in which the call is stuck.
#[test]
fn what_cannot_be_stopped_leaves_the_journal_to_the_shards_next_thread() {
    const STUCK: &str = "#!js name=stuck
        let long;
        const keys = () => Object.keys({ ...(long ??= new Uint8Array(3e7)) }).length;
        export const first = (db) => { db.set('k', 'lost'); return keys(); };
        export const second = () => keys();
        export const put = (db, [value], [key]) => db.set(key, value);
    ";
    let folder = folder();
    let log = folder.path().join("log");
    let log =
        ["--appendonly", "yes", "--log-on-tmpfs", "yes", "--dir", log.to_str().expect("UTF-8")];
    let flags =
        ["--function-time-limit-ms", "10", "--journal-size", "8mb", "--log-file-size", "1mb"];
    let flags = [&log[..], &flags].concat();
    let server = server(&folder, &flags);
    assert_eq!(server.call(&["FUNCTION", "LOAD", STUCK]).bytes(), Some(&b"stuck"[..]));
    // Behind it in the same turn, and in a transaction, calls write.
    let replies = server.connect().pipeline([
        vec!["SET", "k", "before"],
        vec!["FCALL", "first", "0"],
        vec!["FCALL", "put", "1", "a", "1"],
        vec!["MULTI"],
        vec!["SET", "b", "1"],
        vec!["FCALL", "second", "0"],
        vec!["FCALL", "put", "1", "c", "1"],
        vec!["EXEC"],
    ]);
    let replies = replies.expect("the server stays");
    server.wait_for("library=\"stuck\" function=\"second\"");
    assert!(replies[1].error().is_some(), "{:?}", replies[1]);
    assert_eq!(replies[7].elements().map(<[Frame]>::len), Some(3), "{:?}", replies[7]);
    server.kill();
    let server = Server::start_with(
        folder.path(),
        &[&["--maxmemory", MAXMEMORY, "--shards", "1"], &flags[..]].concat(),
    );
    let expected = ["before", "1", "1", "1"].map(|value| value.as_bytes());
    let found = server.call(&["MGET", "k", "a", "b", "c"]);
    let found: Vec<_> = found.elements().expect("an array").iter().map(Frame::bytes).collect();
    assert_eq!(found, expected.map(Some));
}

/// SHUTDOWN NOSAVE removed the arenas before the log had all that they had. On a disk without room
/// only the journal stayed, which names a long value's place in an arena: no later start could read
/// it, and the value was lost. Now the arenas stay too, until a later end with a log that has all.
#[test]
fn arenas_stay_that_have_what_the_log_lacks() {
    const DISK_BYTES: usize = 10 << 20;
    let (folder, Some(disk)) = (folder(), SmallDisk::mount(DISK_BYTES)) else { return };
    let dir = disk.path();
    let flags = ["--appendonly", "yes", "--log-on-tmpfs", "yes", "--log-file-size", "1mb"];
    let sizes = ["--journal-size", "1mb", "--maxmemory", "64mb", "--shards", "1"];
    let flags = [&flags[..], &sizes, &["--dir", dir.to_str().expect("UTF-8")]].concat();
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["SET", "short", "1"]).error(), None);
    let synced = server.call(&["WAITAOF", "1", "0", "60000"]);
    assert_eq!(synced.elements().and_then(|all| all.first()?.integer()), Some(1));
    // Larger than what the log has set aside.
    let ballast = disk.fill();
    let value = "v".repeat(12 << 20);
    assert_eq!(server.call(&["SET", "long", &value]).error(), None);
    drop(server.connect().call(["SHUTDOWN", "NOSAVE"]));
    let (code, said) = server.ended_with_code();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("arenas and journals stay for the next start"), "{said}");
    assert!(said.contains("arenas stay in"), "{said}");
    std::fs::remove_file(ballast).expect("it is there");
    disk.grow(64 << 20);
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "long"]).bytes(), Some(value.as_bytes()));
    drop(server.connect().call(["SHUTDOWN", "NOSAVE"]));
    let (code, said) = server.ended_with_code();
    assert_eq!(code, Some(0), "{said}");
    assert!(!folder.path().join("arenas").exists(), "{said}");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "long"]).bytes(), Some(value.as_bytes()));
}
