//! The end of a server whose disk is slow, by strace: what was answered is written and synced
//! first, however long that takes.
//!
//! Without strace, the test says so and returns.

use crate::support::strace::Strace;
use crate::support::{Server, folder};
use rustix::process::Signal;

/// A write to the log takes longer than shards have to end.
const DELAY: &str = "inject=pwrite64:delay_enter=4000000";

/// Such a server was ended three seconds behind the signal, as if a shard were busy. So `docker
/// stop` lost what was answered, whatever time it gave.
#[test]
fn a_signal_leaves_the_last_write_its_time() {
    let folder = folder();
    let dir = folder.path().join("log").display().to_string();
    let flags = ["--appendonly", "yes", "--dir", &dir, "--log-on-tmpfs", "yes", "--shards", "1"];
    let small = ["--journal-size", "1mb", "--log-file-size", "1mb", "--maxmemory", "64mb"];
    let flags = [&flags[..], &small].concat();
    let server = Server::start_with(folder.path(), &flags);
    let pid = server.pid().as_raw_nonzero().to_string();
    let args = ["-f", "-p", &pid, "-e", "trace=pwrite64", "-e", "signal=none", "-e", DELAY];
    let Some(strace) = Strace::attach(&args, &folder.path().join("strace")) else { return };
    assert_eq!(server.call(&["SET", "key", "value"]).error(), None);
    server.signal(Signal::TERM);
    let (code, said) = server.ended_with_code();
    drop(strace);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("ended: the arenas stay") && !said.contains("still busy"), "{said}");
    // As behind the end of a container: nothing is left but the log.
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("they are there");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]), "{said}");
}
