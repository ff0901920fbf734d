//! A server in this process with a folder of its own, and a client that sends bytes as they are.
//!
//! A server's thread that panics fails the test, whatever clients saw of it: at its server's end.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use nigh_resp::decode::Replies;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;
use nigh_server::{Config, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// What threads of servers said when they panicked.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has panics of servers' threads noted, and told as before.
fn note_panics() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            if let Some(name) = thread.name().filter(|name| name.starts_with("nigh-")) {
                let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
                panics.push(format!("{name}: {panic}"));
            }
            tell(panic);
        }));
    });
}

/// No thread of a server has panicked.
fn assert_no_panics() {
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty() || std::thread::panicking(), "a server's thread: {panics:?}");
}

/// A server that is stopped, and whose folder is removed, when the test is over.
pub struct TestServer {
    server: Option<Server>,
    pub dir: PathBuf,
}

/// The settings of a test's server: a free port, a new folder, little memory, no log. Functions may
/// take so long that a busy machine stops none; a test about their time says its own.
pub fn config(settings: &[(&str, &str)]) -> Config {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = format!("/dev/shm/nigh-test-server-{}-{number}", std::process::id());
    // A process of the same number may have been killed here before.
    let _ = std::fs::remove_dir_all(&dir);
    let mut config = Config::default();
    let own = [
        ("port", "0"),
        ("shm-dir", &dir),
        ("maxmemory", "64mb"),
        ("appendonly", "no"),
        ("function-time-limit-ms", "10000"),
    ];
    for (name, text) in own {
        config.set(name, text).expect("a right setting");
    }
    for (name, text) in settings {
        config.set(name, text).expect("a right setting");
    }
    config
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[(&str, &str)]) -> Self {
        Self::from(config(settings))
    }

    pub fn from(config: Config) -> Self {
        note_panics();
        let dir = config.shm_dir(0);
        let server = Server::start(config).expect("the server starts");
        Self { server: Some(server), dir }
    }

    pub fn port(&self) -> u16 {
        let server = self.server.as_ref().expect("it runs");
        server.local_addr().expect("it listens on TCP").port()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port())
    }

    /// A connection at the shard that owns this key: WATCH takes it there.
    pub fn connect_to_owner(&self, key: &str) -> Client {
        let mut client = self.connect();
        client.says(&format!("WATCH {key}"), "+OK\r\n");
        client.says("UNWATCH", "+OK\r\n");
        client
    }

    /// Stops it and leaves its folder, for a next one.
    pub fn stop_and_keep(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            assert_no_panics();
        }
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) {
        self.server.take().expect("it runs").wait().expect("it ends well");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let server = self.server.take().map(Server::stop);
        let _ = std::fs::remove_dir_all(&self.dir);
        if server.is_some() {
            assert_no_panics();
        }
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    buf: Vec<u8>,
    replies: Replies,
}

/// How long a test waits for bytes before it fails: a slow machine that does other things too has
/// them by then.
const PATIENCE: Duration = Duration::from_secs(180);

/// Whether a write waited for memory longer than a server lets it, as on a slow machine: it may
/// come again.
pub fn may_come_again(reply: &Frame) -> bool {
    let text = reply.error().map(String::from_utf8_lossy);
    text.is_some_and(|text| text.contains("TRYAGAIN memory is being reclaimed"))
}

impl Client {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("a socket takes it");
        Self { stream, buf: Vec::new(), replies: Replies::new(Limits::replies()) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// The next reply.
    pub fn reply(&mut self) -> Frame {
        loop {
            let reply = self.replies.decode(&self.buf).expect("well-formed RESP");
            let consumed = self.replies.consume();
            self.buf.drain(..consumed);
            match reply {
                Some(frame) => return frame,
                None => {
                    let mut chunk = [0; 65536];
                    let read = self.stream.read(&mut chunk).expect("the server answers");
                    assert!(read > 0, "the server closed the connection");
                    self.buf.extend_from_slice(&chunk[..read]);
                }
            }
        }
    }

    /// Exactly these bytes come next.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        while self.buf.len() < expected.len() {
            let mut chunk = [0; 65536];
            let read = self.stream.read(&mut chunk).expect("the server answers");
            if read == 0 {
                break;
            }
            self.buf.extend_from_slice(&chunk[..read]);
        }
        let got: Vec<u8> = self.buf.drain(..self.buf.len().min(expected.len())).collect();
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
    }

    /// Sends an inline command and wants exactly these bytes.
    #[track_caller]
    pub fn says(&mut self, command: &str, expected: &str) {
        self.send(format!("{command}\r\n"));
        self.expect(expected);
    }

    /// Sends a command and gives its reply.
    pub fn ask(&mut self, args: &[&[u8]]) -> Frame {
        self.send(request(args));
        self.reply()
    }

    /// Sends a command of words and gives its reply's text (a bulk, simple string or error).
    pub fn text(&mut self, command: &str) -> String {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let frame = self.ask(&args);
        let bytes = frame.bytes().or(frame.error()).unwrap_or_else(|| panic!("no text: {frame:?}"));
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Sends a command of words and gives its reply's number.
    pub fn number(&mut self, command: &str) -> i64 {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let frame = self.ask(&args);
        frame.integer().unwrap_or_else(|| panic!("no number: {frame:?}"))
    }

    /// A key in each partition, by number: a scan tells. (The seed is drawn, so only the server
    /// knows.)
    pub fn one_of_each<const PARTITIONS: usize>(&mut self) -> [String; PARTITIONS] {
        (0..64).for_each(|number| self.says(&format!("SET k{number} v"), "+OK\r\n"));
        std::array::from_fn(|partition| {
            let cursor = partition.to_string();
            let reply = self.ask(&[b"SCAN", cursor.as_bytes(), b"COUNT", b"1000"]);
            let found = reply.elements().and_then(|parts| parts[1].elements()).expect("keys");
            String::from_utf8_lossy(found[0].bytes().expect("a key")).into_owned()
        })
    }

    /// A field of INFO.
    pub fn info(&mut self, section: &str, field: &str) -> String {
        let text = self.text(&format!("INFO {section}"));
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }

    /// Whether the server has said nothing that wasn't read.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let seen = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        self.buf.is_empty() && seen.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Whether the server closes the connection, after whatever it still says.
    pub fn is_closed(&mut self) -> bool {
        let mut chunk = [0; 65536];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// A command as RESP.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    nigh_resp::encode::request(&mut bytes, args);
    bytes
}
