//! nigh top, run as a user runs it: in a pipe and in a terminal.

mod support;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr, stdout};

/// One report of a server at work, without a terminal: each shard, what it was asked for, and what
/// for most.
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

/// What top can't do it says in one sentence: no server, a server of another kind, a wrong
/// interval.
#[test]
fn top_refuses_kindly() {
    let nobody = support::free_port().to_string();
    assert_one_sentence(&nigh(&["top", "--connect", &nobody]), &["nothing listens"]);
    assert_one_sentence(&nigh(&["top", "--interval", "0"]), &["--interval", "0.1"]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = other.local_addr().expect("it is bound").port().to_string();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("top connects");
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).expect("it asks");
        stream.write_all(b"$22\r\nredis_version:7.0.15\r\n\r\n").expect("it reads");
        // Until it hangs up.
        let _ = stream.read(&mut request);
    });
    let output = nigh(&["top", "--resp2", "--connect", &port]);
    assert_one_sentence(&output, &["is no Nigh server but a Redis 7.0.15"]);
    serving.join().expect("it was asked");
}

/// `nigh top` in a terminal, which script(1) of util-linux makes.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn open(port: u16) -> Self {
        let top = format!("'{NIGH}' top --connect {port} --interval 0.1");
        // A screen that never comes is an end of the stream, not a test that hangs.
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

    /// Reads until the screen shows this, and forgets what came before.
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

    /// Presses a key, and wants the terminal back and a good end.
    fn leave(mut self, key: &[u8]) {
        self.keys.write_all(key).expect("it reads keys");
        self.wait_for("\x1b[?25h");
        self.wait_for("\x1b[?1049l");
        drop(self.keys);
        assert_eq!(self.child.wait().expect("it is our child").code(), Some(0));
    }
}

/// In a terminal it takes another screen, q and Ctrl-C give the old one back, and it outlives the
/// server.
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
