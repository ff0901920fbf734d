//! `nigh top`, run as a user runs it: in a pipe and in a terminal.

use crate::support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr, stdout};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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

/// `nigh top` in a terminal that script(1) of util-linux makes.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn open(port: u16) -> Self {
        let top = format!("'{NIGH}' top --connect {port} --interval 0.1");
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
    let mut terminal = Terminal::open(server.port);
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("utilisation");
    terminal.leave(b"q");
    let mut terminal = Terminal::open(server.port);
    terminal.wait_for("utilisation");
    server.kill();
    terminal.wait_for("Not connected, the numbers are old");
    terminal.leave(b"\x03");
}
