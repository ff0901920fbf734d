//! Another engine beside V8, driven by the same commands.

use super::*;
use crate::engine::rust_words::RustWords;
use nigh_resp::encode;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// V8 and the other one.
fn both(fiber: Fiber, limits: FunctionLimits) -> Result<Vec<Box<dyn Engine>>, ServeError> {
    let mut engines = v8(fiber, limits)?;
    engines.push(Box::new(RustWords::default()));
    Ok(engines)
}

fn settings(dir: &tempfile::TempDir) -> Config {
    let mut config = Config::default();
    let dirs = ["arenas", "log"].map(|name| dir.path().join(name).display().to_string());
    let [arenas, log] = &dirs;
    let folders = [("shm-dir", arenas.as_str()), ("dir", log), ("log-on-tmpfs", "yes")];
    for (name, text) in folders.into_iter().chain([
        ("port", "0"),
        ("maxmemory", "64mb"),
        ("shards", "2"),
        ("appendonly", "no"),
        ("function-time-limit-ms", "10000"), // also on a machine that stands still
    ]) {
        config.set(name, text).expect("a right setting");
    }
    config
}

/// A server in a folder, and a client that has loaded [`W`].
fn start() -> (tempfile::TempDir, Server, Client) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let server = Server::start_watched(settings(&dir), both, |_| ()).expect("it starts");
    let mut client = Client::of(&server);
    client.load(W, "$1\r\nw\r\n");
    (dir, server, client)
}

struct Client(TcpStream);

impl Client {
    fn of(server: &Server) -> Client {
        let stream = TcpStream::connect(server.local_addr().expect("TCP")).expect("it listens");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a timeout");
        Client(stream)
    }

    fn send(&mut self, commands: &[&[&str]]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| encode::request(&mut bytes, *words));
        self.0.write_all(&bytes).expect("the server reads");
    }

    /// Sends commands together, whose replies are these bytes together.
    fn says(&mut self, commands: &[&[&str]], expected: &str) {
        self.send(commands);
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply).expect("a reply as long as that");
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }

    /// Sends a command, whose reply is a text.
    fn text(&mut self, words: &[&str]) -> String {
        self.send(&[words]);
        let mut text = String::new();
        let mut length = None;
        while length.is_none_or(|length| text.len() < length) {
            let mut chunk = [0; 4096];
            let read = self.0.read(&mut chunk).expect("a reply");
            text.push_str(std::str::from_utf8(&chunk[..read]).expect("text"));
            length = text.split_once("\r\n").map(|(head, _)| {
                let bytes: usize = head[1..].parse().expect("the length of a bulk string");
                head.len() + bytes + 4
            });
        }
        text
    }

    /// Sends a command, whose reply is one line.
    fn line(&mut self, words: &[&str]) -> String {
        self.send(&[words]);
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).expect("a reply");
            line.extend(byte);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// INFO has these lines.
    fn informs(&mut self, section: &str, lines: &[&str]) {
        let text = self.text(&["INFO", section]);
        for line in lines {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{line} in {text}");
        }
    }

    fn load(&mut self, source: &str, expected: &str) {
        self.says(&[&["FUNCTION", "LOAD", "REPLACE", source]], expected);
    }
}

const JS: &str = "#!js name=j\nexport function get(db, args, [key]) { return db.get(key)?.text(); }\n\
    get.flags = ['no-writes'];\n";
const W: &str = "#!Words name=w\necho put\n";

#[test]
fn a_library_says_which_engine_runs_its_functions() {
    // Calls of both engines in one pipeline, and in a transaction: each sees what came before it.
    let (_dir, server, mut client) = start();
    client.load(JS, "$1\r\nj\r\n");
    client.load("#!lua name=x\n", "-ERR Engine 'lua' not found\r\n");
    let (get, put) = (["FCALL", "get", "1", "k"], ["FCALL", "put", "1", "k", "v"]);
    let pipeline: [&[&str]; 6] = [
        &["FCALL_RO", "echo", "0", "hi ", "there"],
        &put,
        &get,
        &["FCALL", "put", "1", "k", "2"],
        &["GET", "k"],
        &["FCALL", "count", "0", "k"],
    ];
    let replies = "+hi there\r\n+put\r\n$1\r\nv\r\n+put\r\n$1\r\n2\r\n-ERR Function not found\r\n";
    client.says(&pipeline, replies);
    client.says(
        &[&["MULTI"], &put, &get, &["EXEC"]],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+put\r\n$1\r\nv\r\n",
    );
    client.says(
        &[&["FUNCTION", "STATS"]],
        "*4\r\n$14\r\nrunning_script\r\n$-1\r\n$7\r\nengines\r\n*4\r\n\
         $2\r\nJS\r\n*4\r\n$15\r\nlibraries_count\r\n:1\r\n$15\r\nfunctions_count\r\n:1\r\n\
         $5\r\nWORDS\r\n*4\r\n$15\r\nlibraries_count\r\n:1\r\n$15\r\nfunctions_count\r\n:2\r\n",
    );
    server.stop();
}

#[test]
fn engines_share_the_names_of_libraries_and_functions() {
    let (_dir, server, mut client) = start();
    let taken = "#!js name=j\nexport function put() {}\n";
    client.load(taken, "-ERR Function put already exists\r\n");
    // A library of the same name takes the place of the other engine's.
    client.load("#!js name=w\nexport function put() { return 7; }\n", "$1\r\nw\r\n");
    client.says(
        &[&["FCALL", "put", "1", "k", "v"], &["FCALL", "echo", "0"]],
        ":7\r\n-ERR Function not found\r\n",
    );
    client.load("#!words name=w\nput count\n", "$1\r\nw\r\n");
    client
        .says(&[&["FCALL", "put", "1", "k", "v"], &["FCALL", "count", "0", ""]], "+put\r\n+1\r\n");
    client.says(
        &[&["FUNCTION", "DELETE", "w"], &["FCALL", "count", "0", ""]],
        "+OK\r\n-ERR Function not found\r\n",
    );
    server.stop();
}

#[test]
fn the_next_server_gives_each_library_to_its_engine() {
    let (dir, server, mut client) = start();
    client.load(JS, "$1\r\nj\r\n");
    client.says(&[&["FCALL", "put", "1", "k", "v"]], "+put\r\n");
    server.stop();
    let server = Server::start_watched(settings(&dir), both, |_| ()).expect("it starts");
    // At both shards.
    for _ in 0..8 {
        let mut client = Client::of(&server);
        let calls: [&[&str]; 2] = [&["FCALL", "echo", "0", "x"], &["FCALL", "get", "1", "k"]];
        client.says(&calls, "+x\r\n$1\r\nv\r\n");
    }
    server.stop();
}

#[test]
fn shards_that_sleep_wake_when_the_log_has_synced() {
    // The shards sleep at once when they have nothing to do, and tick ten times a second: without
    // a wake-up each write would take a tenth of a second.
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let mut config = settings(&dir);
    for (name, text) in [("appendonly", "yes"), ("appendfsync", "always"), ("spin-us", "0")] {
        config.set(name, text).expect("a right setting");
    }
    let server = Server::start_watched(config, both, |_| ()).expect("it starts");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::of(&server)).collect();
    let mut took = Vec::new();
    for _ in 0..50 {
        for client in &mut clients {
            let began = Instant::now();
            client.says(&[&["SET", "k", "v"], &["GET", "k"]], "+OK\r\n$1\r\nv\r\n");
            client.says(&[&["WAITAOF", "1", "0", "0"]], "*2\r\n:1\r\n:0\r\n");
            took.push(began.elapsed());
        }
    }
    took.sort_unstable();
    let quick = took[took.len() / 4];
    let mut blocked = Client::of(&server);
    blocked.0.write_all(b"PING\r\nWAIT 1 0\r\n").expect("the server reads");
    blocked.says(&[], "+PONG\r\n");
    clients[0].informs("clients", &["blocked_clients:1"]);
    let well = ["aof_enabled:1", "aof_last_write_status:ok", "log_state:well"];
    clients[0].informs("persistence", &well);
    // A machine that is busy is late at times; most ticks would be.
    assert!(quick < Duration::from_millis(10), "the first quarter took {quick:?} each");
    server.stop();
}

fn crowded(fiber: Fiber, limits: FunctionLimits) -> Result<Vec<Box<dyn Engine>>, ServeError> {
    let mut engines = v8(fiber, limits)?;
    let mut words = RustWords::default();
    words.put_off = 3;
    engines.push(Box::new(words));
    Ok(engines)
}

/// Libraries that are kept.
const MANY: usize = 40;
/// Tries in vain, of each shard, behind those of the start.
const TRIES: usize = 10;

fn stuck(fiber: Fiber, limits: FunctionLimits) -> Result<Vec<Box<dyn Engine>>, ServeError> {
    let mut engines = v8(fiber, limits)?;
    let mut words = RustWords::default();
    words.put_off = MANY + TRIES;
    engines.push(Box::new(words));
    Ok(engines)
}

#[test]
fn libraries_that_cant_be_loaded_now_are_tried_one_at_a_time() {
    // While calls were stuck in V8, each shard read the sources of all libraries ten times a
    // second. A try in vain is now the last one for a tenth of a second.
    let (dir, server, mut client) = start();
    for number in 1..MANY {
        let source = format!("#!Words name=l{number:02}\nword{number}\n");
        client.load(&source, &format!("$3\r\nl{number:02}\r\n"));
    }
    server.stop();
    let began = Instant::now();
    let server = Server::start_watched(settings(&dir), stuck, |_| ()).expect("it starts");
    let mut client = Client::of(&server);
    // 60 s at most.
    let is_loaded = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        client.line(&["FCALL_RO", "echo", "0", "x"]) == "+x"
    });
    assert!(is_loaded, "it is never loaded");
    let least = Duration::from_millis(100) * u32::try_from(TRIES).expect("few");
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    server.stop();
}

#[test]
fn a_library_that_cant_be_loaded_now_is_loaded_later() {
    // As in a V8 in which eight calls are stuck: nothing can be loaded until one has come back.
    // Once, what a shard renewed meanwhile was gone there for good.
    let (dir, server, _) = start();
    server.stop();
    let server = Server::start_watched(settings(&dir), crowded, |_| ()).expect("it starts");
    // At both shards. 60 s at most.
    for _ in 0..8 {
        let mut client = Client::of(&server);
        let is_loaded = (0..600).any(|_| {
            let reply = client.line(&["FCALL_RO", "echo", "0", "x"]);
            let is_loaded = reply == "+x";
            if !is_loaded {
                assert_eq!(reply, "-ERR Function not found");
                std::thread::sleep(Duration::from_millis(100));
            }
            is_loaded
        });
        assert!(is_loaded, "it is never loaded");
    }
    server.stop();
}
