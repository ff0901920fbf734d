//! A server that can't start says why in one sentence, with exit code 1 (2 for wrong usage).

use crate::support::{
    MAXMEMORY, NIGH, Server, assert_one_sentence, folder, free_port, nigh, stderr,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a server without a log, which is to be refused.
fn serve(flags: &[&str]) -> std::process::Output {
    nigh(&[&["serve", "--appendonly", "no"], flags].concat())
}

/// The port is in use. The sentence names the port, the cause once, and the flag that helps.
#[test]
fn a_port_in_use_is_named() {
    let folder = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let arenas = folder.path().join("arenas");
    let path = arenas.to_str().expect("UTF-8");
    let output = serve(&["--port", &port, "--shm-dir", path]);
    assert_one_sentence(&output, &[&port, "--port"]);
    assert_eq!(stderr(&output).matches("Address already in use").count(), 1, "{}", stderr(&output));
}

/// A folder that can't be made is named.
#[test]
fn an_unusable_folder_is_named() {
    let port = free_port().to_string();
    let output = serve(&["--port", &port, "--shm-dir", "/dev/null/arenas"]);
    assert_one_sentence(&output, &["/dev/null/arenas"]);
}

/// Two servers on one folder would both write. The second is refused, and the first goes on.
#[test]
fn a_second_server_on_a_folder_is_refused() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.call(&["SET", "a", "1"]);
    let arenas = folder.path().join("arenas");
    let path = arenas.to_str().expect("UTF-8");
    let output = serve(&["--port", &free_port().to_string(), "--shm-dir", path]);
    assert_one_sentence(&output, &[path]);
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
}

/// More memory than the tmpfs has is refused before anything is written.
#[test]
fn too_little_memory_is_said() {
    let folder = folder();
    let port = free_port().to_string();
    let arenas = folder.path().join("arenas");
    let path = arenas.to_str().expect("UTF-8");
    let output = serve(&["--port", &port, "--shm-dir", path, "--maxmemory", "64gb"]);
    assert_one_sentence(&output, &[path]);
}

/// An unknown flag is wrong usage, and so is a wrong value of a setting.
#[test]
fn unknown_flags_and_values_are_refused() {
    let output = serve(&["--frobnicate", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--frobnicate"), "{}", stderr(&output));
    let output = serve(&["--port", "70000"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("port"), "{}", stderr(&output));
}

/// `--unixsocket` removed whatever file had that path, since nobody answers there. Only a socket
/// that refuses connections is a server's that has gone.
#[test]
fn a_unix_socket_replaces_no_other_file() {
    let folder = folder();
    let name = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (arenas, file, link) = (name("arenas"), name("file"), name("link"));
    std::fs::write(&file, "mine").expect("the folder is ours");
    std::os::unix::fs::symlink(&file, &link).expect("the folder is ours");
    for path in [&file, &link] {
        let output = serve(&["--port", "0", "--shm-dir", &arenas, "--unixsocket", path]);
        assert_one_sentence(&output, &[path, "no socket", "--unixsocket"]);
    }
    assert!(std::path::Path::new(&link).is_symlink());
    assert_eq!(std::fs::read(&file).ok().as_deref(), Some(&b"mine"[..]));
    // What a killed server leaves is replaced.
    let socket = name("socket");
    let flags = ["--maxmemory", MAXMEMORY, "--unixsocket", &socket];
    Server::start_with(folder.path(), &flags).kill();
    assert!(std::path::Path::new(&socket).exists());
    Server::start_with(folder.path(), &flags).kill();
}

/// SIGTERM while the log is read had its usual effect alone, which the first process of a container
/// hasn't: `docker stop` waited in vain, and killed.
#[test]
fn a_signal_ends_a_server_that_reads_its_log() {
    let folder = folder();
    let log = folder.path().join("log");
    let log = log.to_str().expect("UTF-8");
    let flags = ["--maxmemory", MAXMEMORY, "--appendonly", "yes", "--log-on-tmpfs", "yes"];
    let flags = [&flags[..], &["--dir", log]].concat();
    let server = Server::start_with(folder.path(), &flags);
    let sets = (0..200_000).map(|n| ["SET".to_owned(), format!("key:{n}"), "value".to_owned()]);
    server.connect().pipeline(sets).expect("the server is up");
    server.signal(Signal::TERM);
    server.ended();
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("it has ended");
    let server = Server::spawn(folder.path(), &flags);
    // It takes connections before it reads the log.
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it doesn't listen: {}", server.said());
        std::thread::sleep(Duration::from_millis(1));
    }
    server.signal(Signal::TERM);
    let (code, said) = server.ended_with_code();
    assert!(!said.contains(" ready "), "it came too late: {said}");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("SIGTERM: ending before the server is ready"), "{said}");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["DBSIZE"]).integer(), Some(200_000));
}

/// The hints named port 0, also where there is a Unix socket alone, and came before the server
/// could be asked.
#[test]
fn the_hints_name_the_address_that_the_server_has() {
    let folder = folder();
    for with_socket in [false, true] {
        let name = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let mut serve = format!(
            "'{NIGH}' serve --port 0 --appendonly no --maxmemory {MAXMEMORY} --shm-dir '{}'",
            name("arenas")
        );
        let socket = name("socket");
        if with_socket {
            serve += &format!(" --unixsocket '{socket}'");
        }
        // If the hints never come, `timeout` ends the stream.
        let mut child = Command::new("timeout")
            .args(["60", "script", "-q", "-e", "-f", "-c", &serve, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils and util-linux are there");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = String::new();
        while !lines.contains("set greeting hello") {
            assert!(said.read_line(&mut lines).expect("UTF-8") > 0, "no hints: {lines}");
        }
        let hint = lines.lines().find_map(|line| line.trim().strip_prefix("nigh shell --connect "));
        let address = hint.expect("a hint").to_owned();
        let output = nigh(&["call", "--connect", &address, "--", "SHUTDOWN"]);
        let _ = child.wait().expect("it is our child");
        assert_eq!(output.status.code(), Some(0), "{address}: {}", stderr(&output));
        if with_socket {
            assert_eq!(address, format!("unix:{socket}"));
            assert!(lines.contains(&format!("redis-cli -s {socket} set")), "{lines}");
        }
    }
}
