//! `nigh top`, run as a user runs it: in a pipe and in a terminal.

use crate::support::{MAXMEMORY, NIGH, Server, assert_one_sentence, folder, nigh, stderr, stdout};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Without a terminal it prints one report of a server at work: each shard, the commands, and the
/// hottest key.
#[test]
fn top_reports_once_without_a_terminal() {
    let folder = folder();
    let server = Server::start_with(folder.path(), &["--maxmemory", "256mb", "--shards", "2"]);
    let port = server.port.to_string();
    let mut connection = server.connect();
    let gets = (0..3000).map(|_| ["GET", "hot:key"]);
    connection.pipeline(gets).expect("the server is up");
    for flags in [["--once", "--resp2"].as_slice(), &["--interval", "0.2"]] {
        let output = nigh(&[&["top", "--address", &port], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.starts_with(&format!("nigh {}", env!("CARGO_PKG_VERSION"))), "{text}");
        for part in [" 2 shards ", "utilisation", "\n    1 ", "memory ", "cleaner ", "\"hot:key\""]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.contains('\x1b'), "a pipe gets plain text: {text:?}");
    }
}

/// Without a server, with a server of another kind, or with a wrong interval, one sentence says so.
#[test]
fn top_refuses_kindly() {
    let nobody = crate::support::free_port().to_string();
    assert_one_sentence(&nigh(&["top", "--connect", &nobody]), &["nothing listens"]);
    assert_one_sentence(&nigh(&["top", "--interval", "0"]), &["--interval", "0.1"]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = other.local_addr().expect("it is bound").port().to_string();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("top connects");
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).expect("it asks");
        stream.write_all(b"$22\r\nredis_version:7.0.15\r\n\r\n").expect("it reads");
        // Until the program disconnects.
        let _ = stream.read(&mut request);
    });
    let output = nigh(&["top", "--resp2", "--connect", &port]);
    assert_one_sentence(&output, &["is no Nigh server but a Redis 7.0.15"]);
    serving.join().expect("it was asked");
}

/// A server that doesn't answer is waited for as long as `--timeout` says. It was two seconds.
#[test]
fn top_waits_as_long_as_it_is_told() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = silent.local_addr().expect("it is bound").port().to_string();
    let output = nigh(&["top", "--once", "--resp2", "--timeout", "1", "--connect", &port]);
    assert_one_sentence(&output, &["didn't answer within 1s"]);
}

/// What a Nigh answers to `nigh top` while it reads its log.
const LOADING: &str = "# Server\r\nredis_version:7.2.4\r\nnigh_version:0.1.0\r\nrun_id:aa\r\n\
                       loading:1\r\nloading_loaded_perc:25.00\r\n";

/// Answers each request on a connection as a Nigh that reads its log.
fn tell_loading(stream: &mut (impl Read + Write)) {
    let mut request = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut request) {
        let _ = write!(stream, "${}\r\n{LOADING}\r\n", LOADING.len());
        if String::from_utf8_lossy(&request[..read]).contains("LATENCY") {
            let _ = stream.write_all(b"-LOADING Nigh is reading its log: see INFO persistence\r\n");
        }
    }
}

/// A Nigh that reads its log was told to be "no Nigh server but a Redis".
#[test]
fn top_says_that_a_server_reads_its_log() {
    let loading = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = loading.local_addr().expect("it is bound").port().to_string();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = loading.accept().expect("top connects");
        tell_loading(&mut stream);
    });
    let output = nigh(&["top", "--once", "--resp2", "--connect", &port]);
    assert_one_sentence(&output, &["it reads its log (25.00 %)"]);
    serving.join().expect("it was asked");
}

/// `nigh top` in a terminal that script(1) of util-linux makes.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn open(address: &str) -> Self {
        let top = format!("'{NIGH}' top --resp2 --connect '{address}' --interval 0.1");
        // If a screen never comes, `timeout` ends the stream, so the test doesn't hang.
        let mut child = Command::new("timeout")
            .args(["60", "script", "-q", "-e", "-f", "-c", &top, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils and util-linux are there");
        let keys = child.stdin.take().expect("it is piped");
        let screen = child.stdout.take().expect("it is piped");
        Self { child, keys, screen, shown: String::new() }
    }

    /// Reads until the screen shows `part`, and forgets the earlier output.
    fn wait_for(&mut self, part: &str) {
        let mut chunk = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(part) {
                self.shown.drain(..at + part.len());
                return;
            }
            let read = self.screen.read(&mut chunk).expect("it is a pipe");
            assert!(read > 0, "it ended without {part:?}: {:?}", self.shown);
            self.shown += &String::from_utf8_lossy(&chunk[..read]);
        }
    }

    /// Presses a key. Asserts that the program gives the terminal back and succeeds.
    fn leave(mut self, key: &[u8]) {
        self.keys.write_all(key).expect("it reads keys");
        self.wait_for("\x1b[?25h");
        self.wait_for("\x1b[?1049l");
        drop(self.keys);
        assert_eq!(self.child.wait().expect("it is our child").code(), Some(0));
    }
}

/// In a terminal it uses the alternate screen. `q` and Ctrl-C give the old screen back. It outlives
/// the server.
#[test]
fn top_gives_the_terminal_back_and_outlives_the_server() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut terminal = Terminal::open(&server.port.to_string());
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("utilisation");
    terminal.leave(b"q");
    let mut terminal = Terminal::open(&server.port.to_string());
    terminal.wait_for("utilisation");
    server.kill();
    terminal.wait_for("Not connected, the numbers are old");
    terminal.leave(b"\x03");
}

/// The view ended at its second look for a server that had gone. It waits until the server, or
/// another, is there and has read its log.
#[test]
fn top_waits_until_the_server_is_back() {
    let folder = folder();
    let path = folder.path().join("socket");
    let socket = path.to_str().expect("UTF-8");
    let flags = ["--maxmemory", MAXMEMORY, "--unixsocket", socket];
    let server = Server::start_with(folder.path(), &flags);
    let mut terminal = Terminal::open(&format!("unix:{socket}"));
    terminal.wait_for("utilisation");
    server.signal(Signal::STOP);
    for _ in 0..2 {
        terminal.wait_for("Not connected, the numbers are old");
    }
    server.signal(Signal::CONT);
    terminal.wait_for("The server answers again.");
    server.kill();
    for _ in 0..4 {
        terminal.wait_for("nothing listens");
    }
    std::fs::remove_file(&path).expect("a killed server leaves it");
    let loading = UnixListener::bind(&path).expect("the folder is ours");
    let is_over = Arc::new(AtomicBool::new(false));
    let is_told = Arc::clone(&is_over);
    let serving = std::thread::spawn(move || {
        while !is_told.load(Ordering::Relaxed) {
            let (mut stream, _) = loading.accept().expect("top connects");
            tell_loading(&mut stream);
        }
    });
    for _ in 0..4 {
        terminal.wait_for("it reads its log (25.00 %)");
    }
    is_over.store(true, Ordering::Relaxed);
    serving.join().expect("top looks again");
    std::fs::remove_file(&path).expect("the folder is ours");
    let _server = Server::start_with(folder.path(), &flags);
    terminal.wait_for("The server was started anew");
    terminal.leave(b"q");
}
