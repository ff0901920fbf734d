//! A program in C and in C++ that is a client of the real server, which is killed and started anew
//! meanwhile. `make test` builds the server before.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{COMPILERS, Installed, checkout};

/// Longest wait for a server: a debug build on a busy machine needs less.
const START: Duration = Duration::from_secs(60);

/// A server with a Unix socket and a port. Dropping it ends it.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Server {
    fn new() -> Server {
        let tmpfs = tempfile::Builder::new().prefix("nigh-test-").tempdir_in("/dev/shm");
        let folder = tmpfs.expect("tmpfs is there");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        drop(listener);
        let child = Server::spawn(folder.path(), port);
        let mut server = Server { folder, port, child };
        server.wait();
        server
    }

    /// The `nigh` beside this program's folder.
    fn binary() -> PathBuf {
        let own = std::env::current_exe().expect("this program");
        let nigh = own.with_file_name("../nigh");
        assert!(nigh.is_file(), "{} isn't there: cargo build -p nigh-cli", nigh.display());
        nigh
    }

    fn spawn(folder: &Path, port: u16) -> Child {
        let log = std::fs::File::create(folder.join("log")).expect("the folder is ours");
        let mut command = Command::new(Server::binary());
        command.args(["serve", "--appendonly", "no", "--maxmemory", "64mb", "--shards", "1"]);
        command.args(["--function-time-limit-ms", "10000"]); // also on a machine that stands still
        command.args(["--port", &port.to_string(), "--shm-dir"]).arg(folder.join("arenas"));
        command.arg("--unixsocket").arg(folder.join("sock")).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor is left")).stderr(log);
        command.spawn().expect("it is a program")
    }

    /// Waits until it has made its socket.
    fn wait(&mut self) {
        let begin = Instant::now();
        while !self.folder.path().join("sock").exists() {
            let said = || std::fs::read_to_string(self.folder.path().join("log"));
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none() && begin.elapsed() < START, "{:?}", said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Starts the next one, which has the same memory.
    fn start(&mut self) {
        self.child = Server::spawn(self.folder.path(), self.port);
    }

    /// Runs a program, and does with the server what it asks for.
    fn runs(&mut self, mut program: Command) {
        let socket = self.folder.path().join("sock");
        program.arg(socket).arg(self.port.to_string());
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("it was compiled");
        let mut input = child.stdin.take().expect("a pipe");
        let mut last = String::new();
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            last = line.expect("text");
            match &*last {
                "kill" => self.kill(),
                "start" => self.start(),
                _ => continue,
            }
            writeln!(input, "done").expect("it reads");
        }
        let status = child.wait().expect("it is our child");
        assert!(status.success() && last == "all is well", "{status}: {last}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program reads and writes beside the server and over TCP by the same calls, shares a client
/// among threads, meets a fork, other servers and a killed one, and makes all calls that can't be.
/// Another one has no memory for what comes back.
#[test]
fn programs_in_c_and_cpp_are_clients_of_a_server() {
    let installed = Installed::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let libs = installed.pkg_config(&["--libs"]);
    let mut server = Server::new();
    for (compiler, flags) in COMPILERS {
        for name in ["client.c", "client_memory.c"] {
            let program = installed.compile(compiler, flags, &sources.join(name), &libs);
            server.runs(installed.command(&program));
        }
    }
    let example = checkout().join("examples/c/beside.c");
    let program = installed.compile("gcc", &["-std=c99"], &example, &libs);
    let address = format!("unix:{}", server.folder.path().join("sock").display());
    let run = || installed.command(&program).arg(&address).output().expect("it was compiled");
    assert_eq!(String::from_utf8_lossy(&run().stdout), "hello\n");
    server.kill();
    let done = run();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && said.contains("nothing listens"), "{said}");
}

#[test]
fn the_page_shows_the_example() {
    let read = |name: &str| std::fs::read_to_string(checkout().join(name)).expect("a file");
    let example = format!("```c\n{}```\n", read("examples/c/beside.c"));
    assert!(read("docs/local.md").contains(&example), "the page shows another examples/c/beside.c");
}
