//! The last words of a server that a function ends: they name the function and its library.

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
