//! Arenas that are removed under a server, signals, and the last lines of the log.

use crate::support::{Server, folder};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Longest wait for a server to notice: it needs a second, and a slow and busy machine many.
const NOTICED: Duration = Duration::from_secs(30);

fn last_line(log: &str) -> &str {
    log.trim_end().lines().last().unwrap_or_default()
}

/// The arenas' folder was removed under a server. The server once said nothing until memory was
/// short, and claimed at its end that the arenas stay.
#[test]
fn removed_arenas_are_noticed_and_the_last_line_is_true() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    assert!(!server.said().contains("REMOVED"), "{}", server.said());
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("it is there");
    let begin = Instant::now();
    server.wait_for("ARENAS WERE REMOVED");
    let said = server.said();
    assert!(begin.elapsed() < NOTICED, "{said}");
    assert!(said.contains("default.0.arena") && said.contains("copy the data"), "{said}");
    let info = server.call(&["INFO", "nigh"]);
    let info = String::from_utf8_lossy(info.bytes().expect("a text")).into_owned();
    assert!(info.contains("\narenas_gone:2\r\n"), "{info}");
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]), "what is there is served");
    // A write that needs new memory gets the reason, not an error about too much data.
    let value = "x".repeat(100_000);
    let refused = (0..5000).find_map(|n| {
        server
            .call(&["SET", &format!("k{n}"), &value])
            .error()
            .map(|it| String::from_utf8_lossy(it).into_owned())
    });
    assert!(
        refused.as_deref().is_some_and(|it| it.starts_with("IOERR the arena's file was removed")),
        "{refused:?}"
    );
    server.wait_for("No such file or directory (os error 2)");
    server.signal(Signal::TERM);
    let (code, log) = server.ended_with_code();
    assert_eq!(code, Some(0), "{log}");
    let last = last_line(&log);
    assert!(last.contains("2 of 2 arenas are lost") && !log.contains("stay"), "{log}");
}

/// Another folder lies at the path of the server's folder.
#[test]
fn replaced_arenas_are_no_arenas_of_its() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (dir, aside) = (folder.path().join("arenas"), folder.path().join("aside"));
    std::fs::rename(&dir, &aside).expect("it is there");
    let other = Server::start(folder.path());
    server.wait_for("ARENAS WERE REMOVED OR REPLACED");
    drop(other);
    std::fs::remove_dir_all(&dir).expect("it is there");
    std::fs::rename(&aside, &dir).expect("it is there");
    server.wait_for("where they were again");
    server.signal(Signal::TERM);
    assert!(last_line(&server.ended()).contains("the arenas stay in"));
}

/// For every way to end a server, its log names the cause. The last line says what is left of the
/// arenas.
#[test]
fn an_end_is_told_with_its_cause_and_its_outcome() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let ended = |end: &dyn Fn(&Server)| {
        let server = Server::start(folder.path());
        assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
        end(&server);
        let (code, log) = server.ended_with_code();
        assert_eq!(code, Some(0), "{log}");
        log
    };
    for (signal, name) in [(Signal::TERM, "SIGTERM: ending"), (Signal::INT, "SIGINT: ending")] {
        let log = ended(&|server| server.signal(signal));
        assert!(log.contains(name), "{log}");
        assert!(last_line(&log).contains("ended: the arenas stay in"), "{log}");
    }
    let shutdown = |how: &'static [&'static str]| {
        // SHUTDOWN has no reply.
        ended(&|server: &Server| drop(server.connect().call(how)))
    };
    let log = shutdown(&["SHUTDOWN"]);
    assert!(log.contains("SHUTDOWN: ending (the arenas stay) address=127.0.0.1:"), "{log}");
    assert!(last_line(&log).contains("ended: the arenas stay in"), "{log}");
    assert!(dir.join("default.0.arena").exists());
    let log = shutdown(&["SHUTDOWN", "NOSAVE"]);
    assert!(log.contains("SHUTDOWN: ending (NOSAVE"), "{log}");
    assert!(last_line(&log).contains("are removed, as asked"), "{log}");
    let left = std::fs::read_dir(&dir).map(|all| all.flatten().map(|it| it.path()).collect());
    assert!(left.is_err(), "nothing is left but {:?}", left.unwrap_or_else(|_| Vec::new()));
}

/// A hangup, by a closed terminal or a log tool, once ended the server without a word.
#[test]
fn a_hangup_is_ignored_and_told() {
    let folder = folder();
    let server = Server::start(folder.path());
    for _ in 0..3 {
        server.signal(Signal::HUP);
        server.wait_for("SIGHUP: ignored");
        assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    }
    server.signal(Signal::TERM);
    assert!(last_line(&server.ended()).contains("ended: the arenas stay"));
}

/// The disk of the log is full, or the terminal is gone. Once each log line ended the thread that
/// wrote it.
#[test]
fn a_log_that_takes_nothing_ends_no_server() {
    let folder = folder();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it is always full");
    let flags = ["--maxmemory", "64mb"];
    let mut server = Server::spawn_logging(folder.path(), &flags, full, "/dev/null".into());
    server.wait();
    server.signal(Signal::HUP);
    let source = "#!js name=l\nexport function f(db) { console.log('a'); return 1; }";
    assert_eq!(server.call(&["FUNCTION", "LOAD", source]).error(), None);
    assert_eq!(server.call(&["FCALL", "f", "0"]).error(), None);
    server.signal(Signal::TERM);
    assert_eq!(server.ended_with_code().0, Some(0));
}
