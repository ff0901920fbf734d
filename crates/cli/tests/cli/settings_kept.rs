//! What CONFIG REWRITE writes, and libraries: they survive kills, failing system calls, and the
//! loss of all memory.
//!
//! 1. Wherever a server is killed while it writes its settings, the file has the old text or the
//!    new one, whole, and the next server starts with it. What was answered with OK is the new one.
//! 2. A system call that fails is an error reply; the file then has the old text or the new one,
//!    and the server goes on.
//! 3. A library that was loaded under `always` is in the log alone.
//!
//! Without strace the tests of faults say so and return.

use crate::support::strace::Strace;
use crate::support::{Server, folder};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{OpenOptions, rename};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const OLD: &str = "# kept\nappendonly = false\nmaxclients = 50 # few\n";
const NEW: &str = "# kept\nappendonly = false\nmaxclients = 70 # few\n";

fn start(folder: &Path) -> Server {
    let file = folder.join("nigh.toml");
    let file = file.to_str().expect("a path of ours");
    Server::start_with(folder, &["--maxmemory", "64mb", "--shards", "1", "--config", file])
}

fn rewrite(server: &Server) -> Result<(), String> {
    let mut connection = server.connect();
    let reply = connection.call(["CONFIG", "REWRITE"]).map_err(|error| error.to_string())?;
    reply.error().map_or(Ok(()), |text| Err(String::from_utf8_lossy(text).into_owned()))
}

fn maxclients(server: &Server) -> String {
    let reply = server.call(&["CONFIG", "GET", "maxclients"]);
    let value = &reply.elements().expect("name and value")[1];
    String::from_utf8_lossy(value.bytes().expect("a text")).into_owned()
}

/// strace on all threads of a server.
fn strace(server: &Server, what: &str, said: &Path) -> Option<Strace> {
    let pid = server.pid().as_raw_nonzero().to_string();
    let trace = "trace=fsync,rename,renameat,renameat2,fchmod,unlink,unlinkat";
    let inject = format!("inject={what}");
    let mut args = vec!["-f", "-e", trace, "-e", "signal=none", "-p", &pid];
    if !what.is_empty() {
        args.extend(["-e", &inject]);
    }
    Strace::attach(&args, said)
}

/// A server that was started by a settings file, and has another setting since.
fn changed() -> (tempfile::TempDir, std::path::PathBuf, Server) {
    let folder = folder();
    let path = folder.path().join("nigh.toml");
    std::fs::write(&path, OLD).expect("ours");
    let server = start(folder.path());
    server.call(&["CONFIG", "SET", "maxclients", "70"]);
    (folder, path, server)
}

/// INFO names the settings file that was given. It said that there is none.
#[test]
fn info_names_the_settings_file() {
    let (_folder, path, server) = changed();
    let reply = server.call(&["INFO", "server"]);
    let text = String::from_utf8_lossy(reply.bytes().expect("a text")).into_owned();
    let line = format!("config_file:{}", path.display());
    assert!(text.lines().any(|it| it == line), "{line} isn't in {text}");
}

/// Without a file, the error is Redis's.
#[test]
fn without_a_settings_file_nothing_is_written() {
    let folder = folder();
    let server = Server::start(folder.path());
    let error = rewrite(&server).expect_err("there is none");
    assert_eq!(error, "ERR The server is running without a config file");
}

/// The bytes are on disk before they have the name, and the name before the answer.
#[test]
fn settings_are_written_in_a_durable_order() {
    let (folder, path, server) = changed();
    let said = folder.path().join("strace");
    let Some(strace) = strace(&server, "", &said) else { return };
    assert_eq!(rewrite(&server), Ok(()));
    drop(strace);
    let text = std::fs::read_to_string(&said).expect("strace has said it");
    let is_call = |line: &&str| line.contains("fsync(") || line.contains("rename");
    let calls: Vec<&str> = text.lines().filter(is_call).collect();
    assert_eq!(calls.len(), 3, "{text}");
    assert!(calls[0].contains("fsync(") && calls[2].contains("fsync("), "{text}");
    assert!(calls[1].contains("nigh.toml.new"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), NEW);
    drop(server);
    assert_eq!(maxclients(&start(folder.path())), "70");
}

/// Kills before, between and behind the steps.
#[test]
fn a_kill_leaves_the_old_settings_or_the_new_ones() {
    for what in ["fchmod", "fsync", "rename", "fsync:when=2"] {
        let (folder, path, server) = changed();
        let (call, when) = what.split_once(':').unwrap_or((what, "when=1"));
        let inject = format!("{call}:signal=KILL:{when}");
        let said = folder.path().join("strace");
        let Some(strace) = strace(&server, &inject, &said) else { return };
        assert!(rewrite(&server).is_err(), "{what}: it was killed before it could answer");
        drop(strace);
        drop(server);
        let text = std::fs::read_to_string(&path).expect("it is there");
        let is_early = matches!(what, "fchmod" | "fsync");
        assert!(text == OLD || !is_early && text == NEW, "{what}: {text}");
        if what == "fsync:when=2" {
            assert_eq!(text, NEW, "it had the name by then");
        }
        // What it left is in nobody's way.
        let server = start(folder.path());
        assert_eq!(maxclients(&server), if text == NEW { "70" } else { "50" });
        server.call(&["CONFIG", "SET", "maxclients", "70"]);
        assert_eq!(rewrite(&server), Ok(()), "{what}");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), NEW);
        assert!(!folder.path().join("nigh.toml.new").exists(), "{what}");
    }
}

/// Calls that fail: the client learns it, and the file is whole.
#[test]
fn a_failed_call_is_an_error_and_leaves_the_old_settings() {
    for (what, cause) in [
        ("fsync:error=EIO:when=1", "Input/output error"),
        ("rename:error=EROFS:when=1", "Read-only file system"),
        ("fsync:error=EIO:when=2", "Input/output error"),
    ] {
        let (folder, path, server) = changed();
        let said = folder.path().join("strace");
        let Some(strace) = strace(&server, what, &said) else { return };
        let error = rewrite(&server).expect_err("a call fails");
        assert!(error.starts_with("ERR Rewriting config file: "), "{error}");
        assert!(error.contains(cause) && error.contains("nigh.toml"), "{what}: {error}");
        drop(strace);
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, if what.ends_with("when=2") { NEW } else { OLD }, "{what}");
        assert!(!folder.path().join("nigh.toml.new").exists(), "{what}");
        assert_eq!(rewrite(&server), Ok(()), "it goes on");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), NEW);
    }
}

/// Libraries are in the log as keys are: loaded, replaced and removed ones.
#[test]
fn libraries_are_in_the_log_alone() {
    let folder = folder();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let dir = disk.path().join("log");
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--log-on-tmpfs", "yes", "--dir"];
    let dir = [dir.to_str().expect("a path of ours"), "--maxmemory", "64mb"];
    let flags = [&log[..], &dir].concat();
    let server = Server::start_with(folder.path(), &flags);
    let load = |name: &str, value: u32| {
        let source = format!("#!js name={name}\nexport const {name} = () => {value};\n");
        let reply = server.call(&["FUNCTION", "LOAD", "REPLACE", &source]);
        assert_eq!(reply.error(), None, "{}", server.said());
    };
    load("kept", 1);
    load("gone", 1);
    load("kept", 2);
    assert_eq!(server.call(&["FUNCTION", "DELETE", "gone"]).error(), None);
    crate::support::wait_for_starts(folder.path());
    server.kill();
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("ours");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["FCALL", "kept", "0"]).integer(), Some(2));
    assert!(server.call(&["FCALL", "gone", "0"]).error().is_some());
}

/// A disk that takes its time for the settings holds one shard. All stood, as each looked for a new
/// connection at the settings, which the writer kept to itself.
#[test]
fn other_shards_are_served_while_settings_are_written() {
    let folder = folder();
    let [path, kept] = ["nigh.toml", "kept"].map(|name| folder.path().join(name));
    std::fs::write(&path, OLD).expect("ours");
    let file = path.to_str().expect("a path of ours");
    let flags = ["--maxmemory", "64mb", "--shards", "2", "--config", file];
    let server = Server::start_with(folder.path(), &flags);
    let connect = || TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    let mut old: Vec<TcpStream> = (0..16).map(|_| connect()).collect();
    let ask = |client: &mut TcpStream| {
        let mut reply = [0; 7];
        client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut reply)).is_ok()
    };
    assert!(old.iter_mut().all(ask), "clients of both shards");
    server.call(&["CONFIG", "SET", "maxclients", "49"]);
    // A file that isn't read to its end before somebody writes into it.
    rename(&path, &kept).expect("ours");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("ours");
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| rewrite(&server));
        let mut pipe = OpenOptions::new().write(true).open(&path).expect("the server reads it");
        rename(&kept, &path).expect("ours");
        let _new: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
        let (wait, began) = (Duration::from_millis(100), Instant::now());
        std::thread::sleep(wait); // the new ones are accepted
        old.iter().for_each(|it| it.set_read_timeout(Some(wait)).expect("a time"));
        let mut is_served = false;
        while !is_served && began.elapsed() < Duration::from_secs(20) {
            is_served = old.iter_mut().any(ask);
        }
        pipe.write_all(OLD.as_bytes()).expect("the server reads it");
        drop(pipe);
        assert!(is_served, "all clients wait");
        writer.join().expect("it doesn't panic")
    });
    assert_eq!(written, Ok(()));
    assert!(std::fs::read_to_string(&path).expect("it is there").contains("maxclients = 49"));
}

/// Memory that was made smaller doesn't reach what a start asks for: `CONFIG SET maxmemory` of
/// that said OK.
#[test]
fn a_size_that_memory_cant_reach_is_refused() {
    let folder = folder();
    let started = |size| {
        let flags = ["--maxmemory", size, "--shards", "1", "--partitions", "3"];
        Server::start_with(folder.path(), &flags)
    };
    let set = |server: &Server, size| server.call(&["CONFIG", "SET", "maxmemory", size]);
    let server = started("64mb");
    assert_eq!(set(&server, "64mb").error(), None, "it is rounded to three parts");
    drop(server);
    let server = started("1gb");
    let reply = set(&server, "1gb");
    let error = String::from_utf8_lossy(reply.error().expect("it doesn't hold")).into_owned();
    assert!(error.ends_with("can't set immutable config: give --maxmemory at a start"), "{error}");
    let holds = server.call(&["CONFIG", "GET", "maxmemory"]);
    let holds = holds.elements().expect("name and value")[1].bytes().expect("a text");
    assert_eq!(set(&server, std::str::from_utf8(holds).expect("a number")).error(), None);
}
