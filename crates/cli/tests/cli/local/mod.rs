//! Clients of this machine that attach to the real binary and ask by rings: all that a connection
//! does, how they are refused, how they end, and clients that keep no rule.
//!
//! `NIGH_LOCAL_KILLS` makes the story of killed clients longer, and `NIGH_LOCAL_AT_ONCE` says how
//! many there are at once; `NIGH_LOCAL_STOPS` that of clients that are stopped;
//! `NIGH_LOCAL_ROUNDS` that of a thousand clients.
#![forbid(unsafe_code)]

mod apart;
mod ends;
mod figures;
mod hostile;
mod many;
mod metrics;
mod stops;

use crate::support::local::{LocalClient, ask_to_attach, figure};
use crate::support::{MAXMEMORY, Server};
use nigh_client::Frame;
use nigh_resp::encode;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for what happens soon.
const SOON: Duration = Duration::from_secs(30);

/// Longest call of a client beside others that die or stand still: far more than on a machine that
/// has nothing else to do, where 10 ms are.
const PATIENCE: Duration = Duration::from_secs(10);

/// Says so to others when it is dropped, also by a failed assertion.
struct SaysOver<'a>(&'a AtomicBool);

impl Drop for SaysOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server with a Unix socket.
struct Host {
    server: Server,
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Host {
    fn start(flags: &[&str]) -> Host {
        Host::start_in(crate::support::folder(), flags)
    }

    fn start_in(folder: tempfile::TempDir, flags: &[&str]) -> Host {
        Host::start_under(&[], folder, flags).unwrap_or_else(|said| panic!("it ended: {said}"))
    }

    /// Under limits of the shell; else what the server said before it ended.
    fn start_under(
        limits: &[&str],
        folder: tempfile::TempDir,
        flags: &[&str],
    ) -> Result<Host, String> {
        let start = |folder: &Path, flags: &[&str]| Server::start_under(limits, folder, flags);
        Host::start_as(start, folder, flags)
    }

    /// By a program whose further arguments are a command to run; else what was said before it
    /// ended.
    fn start_by(program: Command, flags: &[&str]) -> Result<Host, String> {
        let start = |folder: &Path, flags: &[&str]| Server::start_by(program, folder, flags);
        Host::start_as(start, crate::support::folder(), flags)
    }

    fn start_as(
        start: impl FnOnce(&Path, &[&str]) -> Result<Server, String>,
        folder: tempfile::TempDir,
        flags: &[&str],
    ) -> Result<Host, String> {
        let path = folder.path().join("socket");
        let text = path.display().to_string();
        let flags = [&["--maxmemory", MAXMEMORY, "--unixsocket", &text], flags].concat();
        // The folder of the arenas is the server's alone; the socket's may be passed by others.
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).expect("it is ours");
        let server = start(folder.path(), &flags)?;
        Ok(Host { server, path, folder })
    }

    fn attach(&self) -> LocalClient {
        LocalClient::attach(&self.path, &[]).expect("attached")
    }

    /// Open descriptors, and mappings of rings, of the server.
    fn holds(&self) -> (usize, usize) {
        let proc = PathBuf::from(format!("/proc/{}", self.server.pid().as_raw_nonzero()));
        let maps = std::fs::read_to_string(proc.join("maps")).expect("it runs");
        let rings = maps.lines().filter(|line| line.contains("memfd:nigh-local")).count();
        (std::fs::read_dir(proc.join("fd")).expect("it runs").count(), rings)
    }

    /// The numbers of its descriptors.
    fn descriptors(&self) -> Vec<u64> {
        let folder = format!("/proc/{}/fd", self.server.pid().as_raw_nonzero());
        let names = std::fs::read_dir(folder).expect("it runs");
        names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// What it holds when the connections are closed that asked it before.
    fn holds_at_rest(&self) -> (usize, usize) {
        let began = Instant::now();
        let mut least = self.holds();
        while began.elapsed() < Duration::from_millis(100) {
            std::thread::sleep(Duration::from_millis(10));
            least = least.min(self.holds());
        }
        least
    }

    /// Waits until the server holds no more than `before`.
    fn wait_for_holds(&self, before: (usize, usize)) {
        let began = Instant::now();
        while self.holds() > before {
            assert!(began.elapsed() < SOON, "{:?} held, {before:?} before", self.holds());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// CPU time of the server, ms.
    fn cpu_ms(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.server.pid().as_raw_nonzero());
        let stat = std::fs::read_to_string(path).expect("it runs");
        let fields = stat.rsplit_once(") ").expect("a name").1.split(' ');
        let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        ticks * 10
    }

    /// CPU time of the server in so long a rest, ms: the least of three. What other programs do to
    /// the machine makes some of these dearer, and not all.
    fn least_spent(&self, rest: Duration) -> u64 {
        let spent = (0..3).map(|_| {
            let before = self.cpu_ms();
            std::thread::sleep(rest);
            self.cpu_ms() - before
        });
        spent.min().expect("some")
    }

    /// Waits until LOCAL LIST names so many: for a moment it shows what a busy shard has told
    /// before.
    fn wait_for_listed(&self, clients: usize) {
        let begin = Instant::now();
        loop {
            let listed = self.server.call(&["LOCAL", "LIST"]);
            let listed = String::from_utf8_lossy(listed.bytes().expect("text")).lines().count();
            if listed == clients {
                return;
            }
            assert!(begin.elapsed() < SOON, "{listed} clients are listed, of {clients}");
        }
    }

    /// Calls of an attached client, one after the other, until `stop`: how many, how many of them
    /// took more than 10 ms, and the longest.
    fn watch(&self, stop: &AtomicBool) -> (u64, u64, Duration) {
        let mut witness = self.attach();
        let (mut calls, mut slow, mut longest) = (0, 0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            assert_eq!(witness.call(&["SET", "witness", "x"]), ok());
            let took = began.elapsed();
            (calls, longest) = (calls + 1, longest.max(took));
            slow += u64::from(took > Duration::from_millis(10));
            // It is alone with the server for most of the time.
            std::thread::sleep(Duration::from_micros(200));
        }
        (calls, slow, longest)
    }

    fn figures(&self, name: &str) -> i64 {
        figure(&self.server.call(&["LOCAL", "STATS"]), name).expect("a figure")
    }
}

const LIBRARY: &str = "#!js name=lib
export function twice(db, args, [key]) {
  const n = 2 * Number(db.get(key).text());
  db.set(key, String(n));
  return n;
}
";

fn ok() -> Frame {
    Frame::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Frame {
    Frame::Bulk(text.as_bytes().to_vec())
}

#[test]
fn all_that_a_connection_does_goes_by_the_rings() {
    // One shard; then several, whose client's shard isn't always the owner. Reads, writes, errors,
    // transactions, watches and functions are answered as by a socket, and the client is the same.
    for (shards, partitions) in [("1", "1"), ("2", "1"), ("2", "4")] {
        let host = Host::start(&["--shards", shards, "--partitions", partitions]);
        for seat in 0..2 {
            let id: &[&str] = &["CLIENT", "ID"];
            let mut client = LocalClient::attach(&host.path, &[id]).expect("attached");
            assert_eq!(client.call(id), client.before[0], "it is the same client");
            assert_eq!(client.arenas.len(), partitions.parse::<usize>().unwrap());
            assert_eq!(client.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
            for n in 0..20 {
                let (key, value) = (format!("key:{n}"), format!("value {n} {seat}"));
                assert_eq!(client.call(&["SET", &key, &value]), ok());
                assert_eq!(client.call(&["GET", &key]), bulk(&value));
            }
            assert_eq!(client.call(&["DBSIZE"]), Frame::Integer(20 + seat));
            assert!(
                client.call(&["GET"]).error().is_some_and(|text| text.starts_with(b"ERR wrong"))
            );
            assert_eq!(client.call(&["SET", "n", "4"]), ok());
            transactions(&mut client, &host.server);
            let loaded = client.call(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
            assert_eq!(loaded, bulk("lib"));
            assert_eq!(client.call(&["SET", "n", "21"]), ok());
            assert_eq!(client.call(&["FCALL", "twice", "1", "n"]), Frame::Integer(42));
            assert_eq!(client.call(&["GET", "n"]), bulk("42"));
            assert!(matches!(client.call(&["HELLO", "3"]), Frame::Map(_)), "it speaks RESP3 too");
            let listed = client.text(&["CLIENT", "LIST"]);
            assert!(listed.contains(" flags=UL "), "{listed}");
            let listed = client.text(&["LOCAL", "LIST"]);
            let pid = format!(" pid={} ", std::process::id());
            assert!(listed.lines().count() == 1 && listed.contains(&pid), "{listed}");
            assert!(client.text(&["INFO", "clients"]).contains("local_clients:1\r\n"));
            assert_eq!(figure(&client.call(&["LOCAL", "STATS"]), "clients"), Some(1));
            assert_eq!(client.call(&["QUIT"]), ok(), "its reply is in the ring at the end");
            assert!(client.is_ended());
            host.server.wait_for_info("local_clients:0\r\n");
        }
    }
}

/// MULTI, EXEC and WATCH, with and without a write of somebody else.
fn transactions(client: &mut LocalClient, server: &Server) {
    for is_disturbed in [false, true] {
        assert_eq!(client.call(&["WATCH", "n"]), ok());
        if is_disturbed {
            assert_eq!(server.call(&["SET", "n", "5"]), ok());
        }
        assert_eq!(client.call(&["MULTI"]), ok());
        assert_eq!(client.call(&["INCR", "n"]), Frame::Simple(b"QUEUED".to_vec()));
        let refused = client.call(&["LOCAL", "ATTACH", "1"]);
        assert!(refused.error().is_some(), "not in a transaction");
        assert_eq!(client.call(&["DISCARD"]), ok());
        assert_eq!(client.call(&["WATCH", "n"]), ok());
        if is_disturbed {
            assert_eq!(server.call(&["SET", "n", "6"]), ok());
        }
        assert_eq!(client.call(&["MULTI"]), ok());
        assert_eq!(client.call(&["INCR", "n"]), Frame::Simple(b"QUEUED".to_vec()));
        let ran = client.call(&["EXEC"]);
        match is_disturbed {
            true => assert!(ran.is_null(), "{ran:?}"),
            false => assert_eq!(ran, Frame::Array(vec![Frame::Integer(5)])),
        }
    }
}

#[test]
fn pipelines_and_values_are_longer_than_the_rings() {
    // Rings of a page carry a pipeline of a megabyte; rings of 64 KiB a value of 20 MB, both ways,
    // while another client is served. The client spins, or sleeps at once.
    let host = Host::start(&["--shards", "2", "--local-ring-bytes", "4kb"]);
    let mut small = host.attach();
    assert_eq!(figure(&small.reply, "request-bytes"), Some(4096));
    for spin in [Duration::from_micros(50), Duration::ZERO] {
        small.spin = spin;
        let mut requests = Vec::new();
        for n in 0..8_000 {
            encode::request(&mut requests, ["SET", &format!("k{n}"), &format!("{n:0100}")]);
            encode::request(&mut requests, ["GET", &format!("k{n}")]);
        }
        let frames = small.exchange(&requests, 16_000).expect("served");
        for (n, pair) in frames.chunks_exact(2).enumerate() {
            assert_eq!(pair, [ok(), bulk(&format!("{n:0100}"))]);
        }
    }
    assert_eq!(host.server.call(&["CONFIG", "SET", "local-ring-bytes", "65536"]), ok());
    let mut client = host.attach();
    let value: Vec<u8> =
        (0..20_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..2 {
        let set = client.call_bytes(&[b"SET", b"big", &value]).expect("served");
        assert_eq!(set, ok());
        let got = client.call_bytes(&[b"GET", b"big"]).expect("served");
        assert!(got == Frame::Bulk(value.clone()), "another value came back");
        assert_eq!(small.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn replies_wait_for_the_disk_as_on_a_socket() {
    // With appendfsync always a reply leaves when its change is on disk. A pipeline of writes and
    // reads keeps its order; so does what follows a WAITAOF.
    let folder = crate::support::folder();
    let dir = tempfile::tempdir().expect("a disk");
    let text = dir.path().display().to_string();
    let flags =
        ["--appendonly", "yes", "--appendfsync", "always", "--dir", &text, "--log-on-tmpfs", "yes"];
    let host = Host::start_in(folder, &flags);
    let mut client = host.attach();
    let mut requests = Vec::new();
    for n in 0..500 {
        encode::request(&mut requests, ["SET", "k", &n.to_string()]);
        encode::request(&mut requests, ["GET", "k"]);
    }
    encode::request(&mut requests, ["WAITAOF", "1", "0", "1000"]);
    encode::request(&mut requests, ["PING"]);
    let frames = client.exchange(&requests, 1002).expect("served");
    assert!((0..500).all(|n| frames[2 * n + 1] == bulk(&n.to_string())));
    assert_eq!(frames[1000], Frame::Array(vec![Frame::Integer(1), Frame::Integer(0)]));
}

#[test]
fn each_refusal_is_one_clear_error() {
    // Another kind of socket, another version, no password, twice, in the middle of a pipeline,
    // without replies, too many clients, sizes that no ring has: one error each, and the
    // connection goes on as before.
    let host = Host::start(&["--local-max-clients", "2"]);
    assert_eq!(host.server.call(&["CONFIG", "SET", "requirepass", "secret"]), ok());
    let auth: &[&str] = &["AUTH", "secret"];
    let refused = |commands: &[&[&str]]| {
        let mut socket = UnixStream::connect(&host.path).expect("it listens");
        let (reply, given, _) = ask_to_attach(&mut socket, commands);
        assert!(given.is_empty(), "nothing is given with an error");
        let (pong, ..) = ask_to_attach(&mut socket, &[auth, &["DISCARD"], &["PING"]]);
        assert_eq!(pong, Frame::Simple(b"PONG".to_vec()), "it goes on");
        String::from_utf8_lossy(reply.error().expect("an error")).into_owned()
    };
    assert_eq!(refused(&[&["LOCAL", "ATTACH", "1"]]), "NOAUTH Authentication required.");
    let said = refused(&[auth, &["LOCAL", "ATTACH", "2"]]);
    assert!(said.contains("version 1 ") && said.contains("version 2:"), "{said}");
    assert!(refused(&[auth, &["LOCAL", "ATTACH", "x"]]).contains("not an integer"));
    assert!(refused(&[auth, &["LOCAL", "ATTACH"]]).contains("wrong number of arguments"));
    assert!(refused(&[auth, &["LOCAL", "DETACH"]]).contains("Try LOCAL HELP"));
    assert!(refused(&[auth, &["MULTI"], &["LOCAL", "ATTACH", "1"]]).contains("transaction"));
    let mut tcp = host.server.connect();
    assert_eq!(tcp.call(auth).expect("served"), ok());
    let said = tcp.call(["LOCAL", "ATTACH", "1"]).expect("served");
    let said = String::from_utf8_lossy(said.error().expect("an error")).into_owned();
    assert!(said.contains("Unix socket only"), "{said}");

    let mut socket = UnixStream::connect(&host.path).expect("it listens");
    let commands: &[&[&str]] = &[auth, &["LOCAL", "ATTACH", "1"], &["PING"]];
    let (pong, given, before) = ask_to_attach(&mut socket, commands);
    assert_eq!((pong, given.len()), (Frame::Simple(b"PONG".to_vec()), 0));
    let said = String::from_utf8_lossy(before[1].error().expect("an error")).into_owned();
    assert!(said.contains("the last command"), "{said}");

    let mut clients: Vec<LocalClient> =
        (0..2).map(|_| LocalClient::attach(&host.path, &[auth]).expect("attached")).collect();
    let said = clients[0].call(&["LOCAL", "ATTACH", "1"]);
    assert!(said.error().is_some_and(|text| text.ends_with(b"attached already")), "{said:?}");
    let said = LocalClient::attach(&host.path, &[auth]).err().expect("the third");
    assert!(said.contains("local-max-clients is 2"), "{said}");
    drop(clients.pop());
    let began = Instant::now();
    while LocalClient::attach(&host.path, &[auth]).is_err() {
        assert!(began.elapsed() < SOON, "there is room for another");
    }
    for bytes in ["5000", "2048", "2gb", "0", "x"] {
        let said = tcp.call(["CONFIG", "SET", "local-ring-bytes", bytes]).expect("served");
        assert!(said.error().is_some(), "{bytes}");
    }
    let arguments = ["serve", "--port", "0", "--local-ring-bytes", "5000"];
    let output = crate::support::nigh(&arguments);
    crate::support::assert_one_sentence(&output, &["local-ring-bytes", "a power of two from 4096"]);
}

#[test]
fn a_server_without_descriptors_says_so() {
    // The limit of open files leaves room for few connections: a client is refused by an error
    // that names the limit, and others are served.
    let host = Host::start(&["--shards", "1"]);
    let limit = |files: u64| {
        let limit = rustix::process::Rlimit { current: Some(files), maximum: Some(files) };
        rustix::process::prlimit(Some(host.server.pid()), rustix::process::Resource::Nofile, limit)
            .expect("it is our child");
    };
    let mut first = host.attach();
    host.holds_at_rest();
    let numbers = host.descriptors();
    // The connection's own, and the arena's.
    let free = (0..).filter(|number| !numbers.contains(number)).nth(2).expect("no end");
    limit(free);
    let said = LocalClient::attach(&host.path, &[]).err().expect("no descriptor is left");
    assert!(said.contains("Too many open files"), "{said}");
    assert_eq!(first.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
}

#[test]
fn what_a_client_is_given_can_be_read_only() {
    // The arenas' descriptors are open for reading. Neither the client nor, by way of it, another
    // user can open the files for writing; and the rings' memory keeps its size.
    let host = Host::start(&["--partitions", "2"]);
    let client = host.attach();
    assert_eq!(client.arenas.len(), 2);
    for arena in &client.arenas {
        let flags = rustix::fs::fcntl_getfl(arena).expect("open");
        assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
        let file = File::from(arena.try_clone().expect("a descriptor"));
        assert_eq!(file.metadata().expect("open").mode() & 0o777, 0o600);
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).expect("it can be read");
        assert_ne!(magic, [0; 8]);
    }
    let memory = File::from(client.memory.try_clone().expect("a descriptor"));
    let bytes = memory.metadata().expect("open").len();
    assert!(memory.set_len(0).is_err() && memory.set_len(2 * bytes).is_err());
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user: rights of others aren't tested");
        return;
    }
    const NOBODY: u32 = 65_534;
    let open_by = |user: u32, arena: &OwnedFd, how: &str| {
        let status = Command::new("sh")
            .args(["-c", &format!("exec 3{how}/proc/self/fd/0")])
            .stdin(Stdio::from(arena.try_clone().expect("a descriptor")))
            .stderr(Stdio::null())
            .uid(user)
            .status();
        status.expect("a shell").success()
    };
    for arena in &client.arenas {
        assert!(open_by(0, arena, "<>"), "the server's own user may");
        assert!(!open_by(NOBODY, arena, "<>") && !open_by(NOBODY, arena, ">>"));
    }
}
