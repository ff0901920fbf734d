//! The real binary as a server, for tests. It has its own folder in tmpfs and a free port. Dropping
//! it ends it.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod chain;
pub(crate) mod held;
pub(crate) mod load;
pub(crate) mod local;
pub(crate) mod strace;
pub(crate) mod together;

use nigh_client::{Address, Connection, ConnectionOptions, Frame};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// The binary under test.
pub(crate) const NIGH: &str = env!("CARGO_BIN_EXE_nigh");
/// Memory of a test's arena: small, so that many tests fit in tmpfs at once.
pub(crate) const MAXMEMORY: &str = "256mb";
/// Longest wait for a server, and for a reply: a debug build on a busy machine needs less.
const START: Duration = Duration::from_secs(60);

/// The signal of a kill.
pub(crate) const SIGKILL: i32 = 9;

/// glibc aligns a thread's heap by this. V8's mappings, and stacks, are smaller and anywhere.
const THREAD_HEAP_BYTES: u64 = 64 << 20;

/// A folder in tmpfs. Dropping it removes it.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("nigh-test-").tempdir_in("/dev/shm").expect("tmpfs is there")
}

/// First port of the tests' blocks, and ports in each. The kernel gives out none of them.
const FIRST_PORT: u16 = 10_000;
const BLOCK_PORTS: u16 = 256;
const BLOCKS: u16 = 80;

/// A port that is free now. Each process of tests has a block of its own, for as long as it lives:
/// two that asked the kernel at once got the same now and then, and one talked to the other's
/// server.
pub(crate) fn free_port() -> u16 {
    static BLOCK: OnceLock<(u16, UnixListener)> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let claim = |block: u16| {
        let name = SocketAddr::from_abstract_name(format!("nigh-test-ports-{block}"));
        let held = UnixListener::bind_addr(&name.expect("a short name")).ok()?;
        Some((FIRST_PORT + block * BLOCK_PORTS, held))
    };
    let (first, _) = BLOCK.get_or_init(|| (0..BLOCKS).find_map(claim).expect("a block is free"));
    let next = || first + NEXT.fetch_add(1, Ordering::Relaxed) % BLOCK_PORTS;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..BLOCK_PORTS).map(|_| next()).find(is_free).expect("a port of the block is free")
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    log: PathBuf,
}

impl Server {
    /// Starts a server with its arenas in `folder`/arenas, and waits until it answers. It has no
    /// log unless the flags say otherwise; that is so of all these.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &["--maxmemory", MAXMEMORY])
    }

    pub(crate) fn start_with(folder: &Path, flags: &[&str]) -> Self {
        let mut server = Self::spawn(folder, flags);
        server.wait();
        server
    }

    /// Starts a server, and doesn't wait until it answers.
    pub(crate) fn spawn(folder: &Path, flags: &[&str]) -> Self {
        let log = folder.join(format!("log-{}", free_port()));
        let file = std::fs::File::create(&log).expect("the folder is ours");
        Self::spawn_logging(folder, flags, file, log)
    }

    /// The same, with the server's log in a file at this path.
    pub(crate) fn spawn_logging(
        folder: &Path,
        flags: &[&str],
        file: std::fs::File,
        log: PathBuf,
    ) -> Self {
        Self::spawn_by(Command::new(NIGH), folder, flags, file, log)
    }

    /// Starts a server under limits of the shell, such as `-n 20000` and `-v 25165824` (KiB), and
    /// waits until it answers, or has ended: then what it said.
    pub(crate) fn start_under(
        limits: &[&str],
        folder: &Path,
        flags: &[&str],
    ) -> Result<Self, String> {
        let set: String = limits.iter().flat_map(|limit| ["ulimit ", limit, " && "]).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{set}exec \"$0\" \"$@\"")]);
        Self::start_by(shell, folder, flags)
    }

    /// The same by a program whose further arguments are a command to run.
    pub(crate) fn start_by(
        mut program: Command,
        folder: &Path,
        flags: &[&str],
    ) -> Result<Self, String> {
        let log = folder.join(format!("log-{}", free_port()));
        let file = std::fs::File::create(&log).expect("the folder is ours");
        program.arg(NIGH);
        let mut server = Self::spawn_by(program, folder, flags, file, log);
        server.wait_or_end().map_or(Ok(server), Err)
    }

    fn spawn_by(
        mut program: Command,
        folder: &Path,
        flags: &[&str],
        file: std::fs::File,
        log: PathBuf,
    ) -> Self {
        let port = free_port();
        let names_mode = flags.iter().any(|flag| flag.starts_with("--appendonly"));
        let without_log: &[&str] = if names_mode { &[] } else { &["--appendonly", "no"] };
        let child = program
            .args(["serve", "--port", &port.to_string(), "--shm-dir"])
            .arg(folder.join("arenas"))
            .args(without_log)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a descriptor is left"))
            .stderr(file)
            .spawn()
            .expect("the binary was built");
        Self { child, port, log }
    }

    /// Waits until it answers.
    pub(crate) fn wait(&mut self) {
        if let Some(said) = self.wait_or_end() {
            panic!("the server ended: {said}");
        }
    }

    /// Waits until it answers, or has ended: then what it said.
    pub(crate) fn wait_or_end(&mut self) -> Option<String> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return Some(format!("({status}) {}", self.said()));
            }
            let options =
                ConnectionOptions { timeout: Some(START), ..ConnectionOptions::default() };
            if let Ok(mut connection) = Connection::connect(&self.address(), &options)
                // While it reads a log, it says so.
                && connection.call(["PING"]).is_ok_and(|reply| reply.error().is_none())
            {
                return None;
            }
            assert!(begin.elapsed() < START, "no answer: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has these words.
    pub(crate) fn wait_for(&self, words: &str) {
        let begin = Instant::now();
        while !self.said().contains(words) {
            assert!(begin.elapsed() < START, "not said: {words}: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until INFO has these words.
    pub(crate) fn wait_for_info(&self, words: &str) {
        let begin = Instant::now();
        let info = || self.call(&["INFO", "all"]).bytes().unwrap_or_default().to_vec();
        while !String::from_utf8_lossy(&info()).contains(words) {
            assert!(begin.elapsed() < START, "INFO never has {words}: {}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn address(&self) -> Address {
        Address::tcp("127.0.0.1", self.port)
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(&self.address(), &ConnectionOptions::default())
            .expect("the server is up")
    }

    pub(crate) fn call(&self, words: &[&str]) -> Frame {
        let options = ConnectionOptions { timeout: Some(START), ..ConnectionOptions::default() };
        Connection::connect(&self.address(), &options)
            .and_then(|mut connection| connection.call(words))
            .unwrap_or_else(|error| panic!("{error}: {}", self.said()))
    }

    /// The number of the server's process.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("it is our child");
    }

    /// Waits for the server's end; returns exit code and log. No thread panicked.
    pub(crate) fn ended_with_code(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                let said = self.said();
                assert!(!said.contains("panicked"), "({status}) {said}");
                return (status.code(), said);
            }
            assert!(begin.elapsed() < START, "it doesn't end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A thread of the server, by its name.
    pub(crate) fn thread(&self, name: &str) -> String {
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let tasks = std::fs::read_dir(tasks).expect("it runs").map(|task| task.expect("readable"));
        let named = |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let is_it = |task: &std::fs::DirEntry| named(task).is_ok_and(|it| it.trim_end() == name);
        let thread = tasks.into_iter().find(is_it).expect("there is such a thread");
        thread.file_name().to_string_lossy().into_owned()
    }

    /// Waits until the server has ended by itself; returns its log.
    pub(crate) fn ended(self) -> String {
        self.ended_with_code().1
    }

    /// The server's private memory, in MiB, without the arenas.
    pub(crate) fn private_mib(&self) -> u64 {
        self.memory_kib("RssAnon:") / 1024
    }

    /// A line of /proc/PID/status, in KiB.
    pub(crate) fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("the kernel says it")
    }

    /// The server's private memory by kinds of mappings, the largest mappings, and what INFO tells
    /// of functions, for the message of a failed test.
    pub(crate) fn private_kinds(&self) -> String {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id()));
        let maps = maps.expect("it runs");
        let (mut kinds, mut all) = (BTreeMap::<String, u64>::new(), Vec::new());
        let mut mapping = (String::new(), String::new());
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                // Its permissions, offset, device and inode are between.
                let name = words.nth(4).map(str::to_owned);
                let [start, end] = [start, end].map(|it| u64::from_str_radix(it, 16));
                let (start, end) = (start.expect("an address"), end.expect("an address"));
                let is_heap = end / THREAD_HEAP_BYTES > start.saturating_sub(1) / THREAD_HEAP_BYTES;
                let other =
                    if is_heap { "malloc's heaps and what adjoins" } else { "V8 and others" };
                mapping = (first.to_owned(), name.unwrap_or_else(|| other.to_owned()));
            } else if first == "Anonymous:" {
                let kib = words.next().and_then(|word| word.parse().ok()).unwrap_or(0u64);
                *kinds.entry(mapping.1.clone()).or_default() += kib;
                all.push((kib, mapping.clone()));
            }
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut text = String::new();
        for (kind, kib) in kinds.iter().filter(|(_, kib)| **kib >= 1024) {
            let _ = writeln!(text, "{:>6} MiB {kind}", kib / 1024);
        }
        for (kib, (range, kind)) in all.iter().take(8) {
            let _ = writeln!(text, "{kib:>8} KiB of {range} {kind}");
        }
        let info = self.call(&["INFO", "nigh"]);
        let info = info.bytes().map(String::from_utf8_lossy).unwrap_or_default();
        let functions = info.lines().filter(|line| line.starts_with("function_"));
        functions.for_each(|line| text.extend([line, "\n"]));
        text
    }

    /// Ends the server by SIGKILL. It ran until then, and none of its threads had panicked.
    pub(crate) fn kill(mut self) {
        let status = self.kill_and_wait();
        let was_killed = status.signal() == Some(SIGKILL);
        assert!(was_killed, "it ended before it was killed: ({status}) {}", self.said());
    }

    /// The same for one that may have refused to start: what it said then.
    pub(crate) fn kill_start(mut self) -> Option<String> {
        let status = self.kill_and_wait();
        let has_refused = status.code() == Some(1);
        let was_killed = status.signal() == Some(SIGKILL);
        assert!(has_refused || was_killed, "it ended in the midst: ({status}) {}", self.said());
        has_refused.then(|| self.said())
    }

    fn kill_and_wait(&mut self) -> ExitStatus {
        // Of one that has ended by itself, the system keeps how until it is waited for.
        self.child.kill().expect("it is our child");
        let status = self.child.wait().expect("it is our child");
        assert!(!self.said().contains("panicked"), "({status}) {}", self.said());
        status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until no shard of a server on `folder`/arenas starts a library. The next server skips a
/// library that was being started when this one was killed.
pub(crate) fn wait_for_starts(folder: &Path) {
    let begin = Instant::now();
    let starts = || {
        let entries = std::fs::read_dir(folder.join("arenas")).expect("it is there");
        let mut names = entries.map(|entry| entry.expect("readable").file_name());
        names.any(|name| name.to_string_lossy().contains(".starting."))
    };
    // A shard learns of a new library in its next turn.
    while begin.elapsed() < Duration::from_millis(200) || starts() {
        assert!(begin.elapsed() < START, "a library is still being started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the binary to its end.
pub(crate) fn nigh(arguments: &[&str]) -> Output {
    nigh_with(arguments, "")
}

/// The same, with something on stdin.
pub(crate) fn nigh_with(arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(NIGH)
        .args(arguments)
        .env_remove("NIGH_CONNECT")
        .env_remove("NIGH_PASSWORD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that reads no input may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it is our child")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that `nigh check` finds nothing wrong in a folder.
pub(crate) fn assert_whole(folder: &Path) {
    let check = nigh(&["check", folder.to_str().expect("a path of ours")]);
    let said = || format!("{}: {}{}", check.status, stdout(&check), stderr(&check));
    assert!(check.status.success(), "{}", said());
}

/// Asserts that the program failed with code 1 and one line on stderr that has each of `parts`.
pub(crate) fn assert_one_sentence(output: &Output, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    for part in parts {
        assert!(last.contains(part), "{last:?} doesn't name {part:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
}
