//! Local clients of the real server: the tools that read its memory, a model beside a writer, and
//! readers in other processes while the server is killed and started again.

mod model;
mod soak;
mod soak_reader;

use crate::support::{MAXMEMORY, Server, assert_one_sentence, folder, nigh, stdout};
use nigh_client::{Address, CallError, Client, ClientOptions, LocalUse};
use std::path::Path;
use std::time::Duration;

/// Much longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// A server with a Unix socket in its folder.
fn serve(folder: &Path, more: &[&str]) -> Server {
    let socket = socket(folder);
    let socket = socket.to_str().expect("a plain path");
    let memory: &[&str] =
        if more.contains(&"--maxmemory") { &[] } else { &["--maxmemory", MAXMEMORY] };
    Server::start_with(folder, &[memory, &["--unixsocket", socket], more].concat())
}

fn socket(folder: &Path) -> std::path::PathBuf {
    folder.join("sock")
}

/// A client that must be local, and waits so long for the server.
fn local(folder: &Path, wait: Duration) -> Client {
    let local = LocalUse::Required;
    let options = ClientOptions { local, wait, ..ClientOptions::default() };
    Client::connect_with(&Address::unix(socket(folder)), options).expect("a local client")
}

/// The tools read a server's memory beside it, and when it is down, without its help. What is over
/// isn't shown.
#[test]
fn tools_read_keys_without_the_server() {
    let folder = folder();
    let server = serve(folder.path(), &["--partitions", "3", "--shards", "1"]);
    server.call(&["SET", "user:1", "ann"]);
    server.call(&["SET", "user:2", "two words"]);
    server.call(&["SET", "other", "x"]);
    server.call(&["SET", "short", "x", "PX", "1"]);
    let arenas = folder.path().join("arenas");
    let dir = arenas.to_str().expect("a plain path");
    let address = socket(folder.path());
    let look = |from: &[&str]| {
        let run = |words: &[&str]| {
            let output = nigh(&[words, from].concat());
            assert_eq!(output.status.code(), Some(0), "{}", crate::support::stderr(&output));
            stdout(&output)
        };
        assert_eq!(run(&["get", "user:1"]), "ann\n");
        assert_eq!(run(&["get", "nobody"]), "\n");
        assert_eq!(run(&["get", "short"]), "\n");
        assert_eq!(run(&["mget", "user:2", "nobody", "user:1"]), "two words\n\nann\n");
        let mut lines: Vec<String> =
            run(&["scan", "user:", "--values"]).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["user:1\tann", "user:2\ttwo words"]);
        assert_eq!(run(&["scan"]).lines().count(), 3);
    };
    std::thread::sleep(Duration::from_millis(5));
    look(&["--local", dir]);
    look(&["--connect", address.to_str().expect("a plain path")]);
    server.kill();
    look(&["--local", dir]);
    let top = nigh(&["top", "--local", dir, "--interval", "0.1"]);
    assert!(stdout(&top).contains("3 partition(s)"), "{}", stdout(&top));
    let nowhere = folder.path().to_str().expect("a plain path");
    assert_one_sentence(&nigh(&["get", "a", "--local", nowhere]), &["no arena", "--shm-dir"]);
    assert_one_sentence(&nigh(&["get", "a", "--local", "/nowhere"]), &["/nowhere", "no arena"]);
}

/// With `appendfsync always` a local client's answers are on disk, as the server's are. When the
/// mode changes, clients that are attached follow.
#[test]
fn a_local_read_is_on_disk_where_replies_are() {
    let folder = folder();
    let log = folder.path().join("log");
    let log = log.to_str().expect("a plain path");
    let server = serve(
        folder.path(),
        &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--dir",
            log,
            "--shards",
            "1",
            "--log-on-tmpfs",
            "yes",
        ],
    );
    let mut client = local(folder.path(), Duration::ZERO);
    let arena = || {
        let path = folder.path().join("arenas/default.0.arena");
        nigh_shm::ForeignReader::open(&path).expect("an arena")
    };
    client.set(b"a", b"1").expect("room");
    assert!(!arena().replies_wait());
    server.call(&["CONFIG", "SET", "appendfsync", "always"]);
    assert!(arena().replies_wait());
    for round in 0..100 {
        client.set(b"a", round.to_string().as_bytes()).expect("room");
        assert_eq!(client.get(b"a").expect("a value"), Some(round.to_string().into_bytes()));
        assert_eq!(client.get(b"none").expect("an answer"), None);
        let seen = client.view(|view| view.get(b"a")).expect("a moment");
        assert_eq!(seen, Some(round.to_string().into_bytes()));
        assert!(arena().durable_lsn() >= arena().begun_lsn());
    }
    server.call(&["CONFIG", "SET", "appendfsync", "no"]);
    assert!(!arena().replies_wait());
}

/// A server that has as many clients as it may refuses each further connection. A client took
/// itself for attached then: its calls failed at once, also if it was to wait for the server.
#[test]
fn a_full_server_is_waited_for() {
    let folder = folder();
    let server = serve(folder.path(), &["--maxclients", "1"]);
    let connect = |address: &Address, wait| {
        let options = ClientOptions { wait, ..ClientOptions::default() };
        Client::connect_with(address, options)
    };
    for address in [server.address(), Address::unix(socket(folder.path()))] {
        // The one place may still be that of a client before.
        let first = connect(&server.address(), SOON).expect("the only client");
        let Err(error) = connect(&address, Duration::ZERO) else { panic!("there is no place") };
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        // A Unix socket may be closed before the first request: then that is all that is told.
        let is_told = error.to_string().contains("ERR max number of clients reached");
        assert!(is_told || address == Address::unix(socket(folder.path())), "{error}");
        let second = std::thread::spawn(move || connect(&address, SOON)?.set(b"a", b"1"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished(), "it waits for a place");
        drop(first);
        second.join().expect("no panic").expect("a place");
    }
}
