//! Clients of this machine that attach to the real binary and ask by rings: all that a connection
//! does, how they are refused, how they end, and clients that keep no rule.
//!
//! `NIGH_LOCAL_KILLS` makes the story of killed clients longer.
#![forbid(unsafe_code)]

mod support;

use nigh_client::Frame;
use nigh_resp::encode;
use rustix::process::Signal;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::local::{LocalClient, ask_to_attach, figure};
use support::{MAXMEMORY, Server};

/// Longest wait for what happens soon.
const SOON: Duration = Duration::from_secs(30);

/// A server with a Unix socket.
struct Host {
    server: Server,
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Host {
    fn start(flags: &[&str]) -> Host {
        Host::start_in(support::folder(), flags)
    }

    fn start_in(folder: tempfile::TempDir, flags: &[&str]) -> Host {
        let path = folder.path().join("socket");
        let text = path.display().to_string();
        let flags = [&["--maxmemory", MAXMEMORY, "--unixsocket", &text], flags].concat();
        // The folder of the arenas is the server's alone; the socket's may be passed by others.
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).expect("it is ours");
        let server = Server::start_with(folder.path(), &flags);
        Host { server, path, folder }
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
    let folder = support::folder();
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
    let output = support::nigh(&arguments);
    support::assert_one_sentence(&output, &["local-ring-bytes", "a power of two from 4096"]);
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
        return; // only root can be another user
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

/// Files of the real binary: a client in a process of its own, for those that are killed.
#[test]
fn a_client_in_another_process() {
    let Ok(path) = std::env::var(JOB) else { return };
    let mut client = LocalClient::attach(Path::new(&path), &[]).expect("attached");
    let pid = std::process::id();
    let mut big = vec![b'x'; 200_000];
    big[..4].copy_from_slice(&pid.to_le_bytes());
    for n in 0u64.. {
        client.spin = Duration::from_micros(n % 3 * 20);
        let mut requests = Vec::new();
        for i in 0..1 + n % 50 {
            encode::request(&mut requests, ["SET", &format!("{pid}:{i}"), &n.to_string()]);
        }
        encode::request(&mut requests, [b"SET".as_slice(), pid.to_string().as_bytes(), &big]);
        encode::request(&mut requests, ["GET", &pid.to_string()]);
        let count = usize::try_from(3 + n % 50).expect("few");
        if client.exchange(&requests, count).is_err() {
            return;
        }
    }
}

/// Tells the child where to attach.
const JOB: &str = "NIGH_LOCAL_JOB";

fn spawn_client(host: &Host) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["a_client_in_another_process", "--exact"])
        .env(JOB, &host.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

#[test]
fn nothing_is_left_of_clients_that_are_killed() {
    // Clients in processes of their own write and read as fast as they can, and are killed at any
    // moment. The server lets go of each: descriptors, mappings and counts are as before, and a
    // client that was there all the time is served.
    let host = Host::start(&["--shards", "2"]);
    let mut witness = host.attach();
    assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    let before = host.holds_at_rest();
    let kills =
        std::env::var("NIGH_LOCAL_KILLS").map_or(200, |text| text.parse().expect("a number"));
    let mut attached = 0;
    for round in 0..kills / 10 {
        let mut children: Vec<_> = (0..10).map(|_| spawn_client(&host)).collect();
        attached += 10;
        let began = Instant::now();
        while host.figures("attached") < attached + 1 {
            assert!(began.elapsed() < SOON, "they attach");
        }
        for (n, child) in children.iter_mut().enumerate() {
            std::thread::sleep(Duration::from_micros((round * 37 + n as u64 * 101) % 1500));
            child.kill().expect("our child");
        }
        assert_eq!(witness.call(&["SET", "witness", "x"]), ok());
        for mut child in children {
            child.wait().expect("our child");
        }
    }
    host.wait_for_holds(before);
    assert_eq!((host.figures("clients"), host.figures("broken")), (1, 0));
    let bytes = host.figures("ring-bytes");
    drop(witness);
    host.server.wait_for_info("local_clients:0\r\n");
    assert!(bytes > 0 && host.figures("ring-bytes") == 0);
}

#[test]
fn a_dead_client_isnt_kept_by_a_child_that_has_its_socket() {
    // The client's process gives its socket to a child and is killed; the child lives on. The
    // server sees the process end. Another one's child is the client's own business: as long as
    // the process lives, the client does.
    let host = Host::start(&["--shards", "1"]);
    let before = host.holds_at_rest();
    // The child inherits its standard input, which is the socket; the shell connects by no means,
    // so the test binary does.
    let mut parent = spawn_holder(&host);
    let began = Instant::now();
    while host.figures("clients") < 1 {
        assert!(began.elapsed() < SOON, "it attaches");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(host.figures("clients"), 1);
    parent.kill().expect("our child");
    parent.wait().expect("our child");
    host.server.wait_for_info("local_clients:0\r\n");
    host.wait_for_holds(before);
}

/// Tells the child to attach, to give its socket away, and to wait.
const HOLDER: &str = "NIGH_LOCAL_HOLDER";

fn spawn_holder(host: &Host) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["a_client_whose_child_has_its_socket", "--exact"])
        .env(HOLDER, &host.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

/// The child of the test above.
#[test]
fn a_client_whose_child_has_its_socket() {
    let Ok(path) = std::env::var(HOLDER) else { return };
    let client = LocalClient::attach(Path::new(&path), &[]).expect("attached");
    let socket = client.socket.as_fd().try_clone_to_owned().expect("a descriptor");
    // It ends by itself, if nobody is there any more.
    let mut child = Command::new("sleep").arg("20").stdin(Stdio::from(socket)).spawn().unwrap();
    let _ = child.wait();
}

#[test]
fn a_client_is_ended_by_others_and_comes_again() {
    // CLIENT KILL, LOCAL KILL and SHUTDOWN end a client, which sees the end of its socket. It
    // attaches again, to the next server on the same arenas too, also after a SIGKILL.
    let mut host = Host::start(&["--shards", "2"]);
    let mut client = host.attach();
    let before = host.holds_at_rest();
    for command in ["CLIENT", "LOCAL"] {
        let id = client.call(&["CLIENT", "ID"]).integer().expect("a number").to_string();
        let killed = host.server.call(&[command, "KILL", "ID", &id]);
        assert!(killed == ok() || killed == Frame::Integer(1), "{killed:?}");
        assert!(client.is_ended());
        let said = host.server.call(&["LOCAL", "KILL", "ID", &id]);
        assert_eq!(said.error(), Some(b"ERR No such local client".as_slice()));
        client = host.attach();
    }
    let id = client.call(&["CLIENT", "ID"]).integer().expect("a number").to_string();
    assert_eq!(client.call(&["LOCAL", "KILL", "ID", &id]), ok(), "it may end itself");
    assert!(client.is_ended());
    client = host.attach();
    host.wait_for_holds(before);
    assert_eq!(client.call(&["SET", "kept", "1"]), ok());
    for signal in [Signal::KILL, Signal::TERM] {
        host.server.signal(signal);
        assert!(client.is_ended());
        host.server.ended_with_code();
        host = Host::start_in(host.folder, &["--shards", "2"]);
        client = host.attach();
        assert_eq!(client.call(&["GET", "kept"]), bulk("1"));
    }
    assert!(client.call_bytes(&[b"SHUTDOWN"]).is_err());
    let (code, said) = host.server.ended_with_code();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_client_that_keeps_no_rule_hurts_only_itself() {
    // Garbage in positions, headers and bells: the server says so once, ends that client, and
    // serves another one meanwhile.
    let host = Host::start(&["--shards", "1"]);
    let before = host.holds_at_rest();
    let mut witness = host.attach();
    let (requests, tail, data) = (4096u64, 128, 384);
    let forgeries: [&[(u64, u64)]; 6] = [
        &[(requests + tail, 7)],
        &[(requests + tail, u64::MAX)],
        &[(requests + data, 1 << 32), (requests + tail, 16)],
        &[(requests + data, 1 << 32 | 0xFFFF), (requests + tail, 1024)],
        &[(requests + data, 5 << 32 | 8), (requests + tail, 16)],
        &[(requests + data, 9 << 48 | 1 << 32 | 8), (requests + tail, 16)],
    ];
    for (n, words) in forgeries.iter().enumerate() {
        let mut client = host.attach();
        let memory = File::from(client.memory.try_clone().expect("a descriptor"));
        for (at, word) in *words {
            memory.write_all_at(&word.to_le_bytes(), *at).expect("it is writable");
        }
        // It may be parked.
        let _ = std::io::Write::write(&mut &client.socket, b"w");
        assert!(client.is_ended(), "forgery {n}");
        assert_eq!(host.figures("broken"), n as i64 + 1);
        assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    }
    // A head of replies that it never had, which the server looks at when their ring is full.
    assert_eq!(witness.call(&["SET", "v", &"x".repeat(40_000)]), ok());
    let mut client = host.attach();
    let memory = File::from(client.memory.try_clone().expect("a descriptor"));
    let replies = (requests + data + 65536).next_multiple_of(4096);
    memory.write_all_at(&u64::MAX.to_le_bytes(), replies + 256).expect("it is writable");
    let mut gets = Vec::new();
    (0..3).for_each(|_| encode::request(&mut gets, ["GET", "v"]));
    assert_eq!(client.end.write(&gets), Ok(gets.len()));
    let _ = std::io::Write::write(&mut &client.socket, b"w");
    assert!(client.is_ended());
    let said = host.server.said();
    assert_eq!(said.matches("local client disconnected: ").count(), forgeries.len() + 1, "{said}");
    // Bells of any value: the server may be woken for nothing, and no more.
    let client = host.attach();
    let memory = File::from(client.memory.try_clone().expect("a descriptor"));
    for word in [0, 1, u64::MAX, 1 << 16, 0xFFFF, 1 << 40] {
        for bell in [64, 128] {
            memory.write_all_at(&u64::to_le_bytes(word), bell).expect("it is writable");
            let _ = std::io::Write::write(&mut &client.socket, b"anything");
            assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
        }
    }
    drop((client, witness));
    host.wait_for_holds(before);
}

#[test]
fn clients_that_rest_or_read_nothing_cost_no_time() {
    // Fifty clients rest; one has asked for far more than its ring takes and reads nothing; one
    // waits for a long time by WAITAOF with requests behind it. The shards sleep. The one that
    // reads nothing is disconnected after output-buffer-timeout, as one with a socket is.
    let host = Host::start(&["--shards", "2"]);
    let resting: Vec<LocalClient> = (0..50).map(|_| host.attach()).collect();
    let mut greedy = host.attach();
    assert_eq!(greedy.call(&["SET", "v", &"x".repeat(100_000)]), ok());
    let mut gets = Vec::new();
    (0..100).for_each(|_| encode::request(&mut gets, ["GET", "v"]));
    assert_eq!(greedy.end.write(&gets), Ok(gets.len()));
    greedy.end.flush(|| ());
    let _ = std::io::Write::write(&mut &greedy.socket, b"w");
    let mut waiting = host.attach();
    let mut requests = Vec::new();
    encode::request(&mut requests, ["WAITAOF", "0", "1", "60000"]);
    (0..300).for_each(|_| encode::request(&mut requests, ["SET", "w", &"y".repeat(150)]));
    assert!(waiting.end.write(&requests).is_ok_and(|written| written > 40_000));
    waiting.end.flush(|| ());
    let _ = std::io::Write::write(&mut &waiting.socket, b"w");
    let listed = host.server.call(&["LOCAL", "LIST"]);
    assert_eq!(String::from_utf8_lossy(listed.bytes().expect("text")).lines().count(), 52);
    std::thread::sleep(Duration::from_millis(300));
    let before = host.cpu_ms();
    std::thread::sleep(Duration::from_millis(700));
    let spent = host.cpu_ms() - before;
    assert!(spent <= 150, "{spent} ms of CPU time for nothing");
    assert_eq!(host.server.call(&["CONFIG", "SET", "output-buffer-pause", "16kb"]), ok());
    assert_eq!(host.server.call(&["CONFIG", "SET", "output-buffer-timeout", "1"]), ok());
    assert!(greedy.is_ended());
    host.server.wait_for("it reads nothing of its waiting replies");
    drop((resting, waiting));
    host.server.wait_for_info("local_clients:0\r\n");
}

/// Prints how long a SET and a GET by the rings take, and how many pipelined SETs a second has;
/// only with `NIGH_LOCAL_FIGURES`, which names how many to make.
#[test]
fn figures_of_the_rings() {
    let Ok(count) = std::env::var("NIGH_LOCAL_FIGURES") else { return };
    let count: usize = count.parse().expect("a number");
    let host = Host::start(&["--shards", "1", "--pin-core", "0", "--spin-us", "10000"]);
    let mut client = host.attach();
    client.spin = Duration::from_secs(1);
    let value = "v".repeat(100);
    let percentile = |times: &mut Vec<u64>, permille: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * permille / 1000]
    };
    for _ in 0..3 {
        for command in ["SET", "GET", "PING"] {
            let mut times = Vec::with_capacity(count);
            for n in 0..count {
                let key = format!("key:{}", n % 10_000);
                let words: &[&str] = match command {
                    "SET" => &["SET", &key, &value],
                    "GET" => &["GET", &key],
                    _ => &["PING"],
                };
                let mut request = Vec::new();
                encode::request(&mut request, words);
                let began = Instant::now();
                client.exchange_raw(&request, 1);
                times.push(began.elapsed().as_nanos() as u64);
            }
            let [p50, p99, p999] = [500, 990, 999].map(|at| percentile(&mut times, at));
            println!("{command}: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns");
        }
        let mut requests = Vec::new();
        for n in 0..64 {
            encode::request(&mut requests, ["SET", &format!("key:{n}"), &value]);
        }
        let many: Vec<u8> = requests.repeat(32);
        let (began, rounds) = (Instant::now(), count.div_ceil(64 * 32));
        for _ in 0..rounds {
            client.exchange_raw(&many, 64 * 32);
        }
        let rate = (rounds * 64 * 32) as f64 / began.elapsed().as_secs_f64();
        println!("pipelined SETs: {rate:.0} a second");
    }
}
