//! The logs of several shards.
//!
//! 1. A log that is started with another number of shards just works, with the arenas and without,
//!    and also if a start that writes the new log is killed at some moment.
//! 2. What a function writes isn't in one shard's log without what it had read of another's. At the
//!    end of a server, that log waits for the other one.

use crate::support::strace::Strace;
use crate::support::{Server, folder};
use nigh_client::{Connection, Frame};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 400;
/// Kills behind a function that has read another shard's key.
const ROUNDS: u64 = 10;
/// How long that key is written before the call.
const BEFORE: Duration = Duration::from_millis(50);
/// What is written beside the call's keys behind it. It fills frames, which are in their file then;
/// those of the other shard aren't full, and wait for a sync.
const BULK: usize = 60;
const BULK_BYTES: usize = 10_000;
/// Most of it is in the file by then.
const BEHIND: Duration = Duration::from_millis(150);
/// Copies a key of another shard to two of this one.
const COPY: &str = "#!js name=copy\nexport function copy(db, [far], [a, b]) {\n  \
                    const n = db.text(far) ?? '0';\n  db.set(a, n);\n  db.set(b, n);\n}\n";

fn serve(folder: &Path, shards: usize) -> Server {
    serve_with(folder, shards, 3, "always")
}

fn serve_with(folder: &Path, shards: usize, partitions: usize, mode: &str) -> Server {
    let dir = folder.join("log");
    let flags = [
        ["--appendonly", "yes"],
        ["--appendfsync", mode],
        ["--dir", dir.to_str().expect("a path of ours")],
        ["--log-on-tmpfs", "yes"],
        ["--journal-size", "1mb"],
        ["--log-file-size", "1mb"],
        ["--maxmemory", "256mb"],
        ["--partitions", &partitions.to_string()],
        ["--shards", &shards.to_string()],
    ];
    Server::spawn(folder, &flags.concat())
}

fn value(number: usize, round: usize) -> String {
    format!("{number}.{round}:").repeat(400)
}

/// All keys have what they were given last.
fn assert_all(server: &Server, round: usize, what: &str) {
    let mut connection = server.connect();
    for number in 0..KEYS {
        let reply = connection.call(["GET", &format!("key:{number}")]).expect("it is up");
        let wanted = value(number, round);
        assert!(reply.bytes() == Some(wanted.as_bytes()), "{what}: key {number} isn't as it was");
    }
}

/// Gives all keys another value.
fn write_all(server: &Server, round: usize) {
    let mut connection = server.connect();
    for number in 0..KEYS {
        let words = ["SET", &format!("key:{number}"), &value(number, round)];
        assert_eq!(connection.call(words).expect("it is up").bytes(), Some(&b"OK"[..]));
    }
}

#[test]
fn another_number_of_shards_just_works() {
    let folder = folder();
    let folder = folder.path();
    let mut server = serve(folder, 2);
    server.wait();
    write_all(&server, 0);
    for (round, (shards, with_arenas)) in
        [(3, true), (1, true), (2, false), (3, false), (1, false)].into_iter().enumerate()
    {
        // Killed: nothing is told to the log at an end.
        server.kill();
        if !with_arenas {
            std::fs::remove_dir_all(folder.join("arenas")).expect("it is there");
        }
        server = serve(folder, shards);
        server.wait();
        let what = format!("{shards} shards, arenas: {with_arenas}");
        assert!(server.said().contains("base=Some(Shards)"), "{what}: {}", server.said());
        assert_all(&server, round, &what);
        write_all(&server, round + 1);
    }
}

/// A start that was killed may not have made the folder.
fn remove_arenas(folder: &Path) {
    match std::fs::remove_dir_all(folder.join("arenas")) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
        _ => {}
    }
}

/// The old log counts until the new one is complete.
#[test]
fn a_start_that_is_killed_while_it_writes_the_new_log_loses_nothing() {
    let folder = folder();
    let folder = folder.path();
    let mut server = serve(folder, 2);
    server.wait();
    write_all(&server, 0);
    server.kill();
    // How long such a start takes on this machine, now.
    let begin = Instant::now();
    let mut server = serve(folder, 1);
    server.wait();
    let whole = begin.elapsed();
    server.kill();
    for trial in 0..16_u32 {
        let shards = [3, 1, 2][usize::try_from(trial % 3).expect("small")];
        if trial % 4 == 3 {
            remove_arenas(folder);
        }
        let server = serve(folder, shards);
        std::thread::sleep(whole * trial / 14);
        server.kill();
    }
    remove_arenas(folder);
    let mut server = serve(folder, 4);
    server.wait();
    assert_all(&server, 0, "behind the killed starts");
}

/// A key of each of two partitions.
fn one_of_each(connection: &mut Connection) -> [String; 2] {
    for number in 0..64 {
        connection.call(["SET", &format!("probe{number}"), "v"]).expect("it is up");
    }
    ["0", "1"].map(|partition| {
        let reply = connection.call(["SCAN", partition, "COUNT", "1000"]).expect("it is up");
        let found = reply.elements().and_then(|parts| parts[1].elements()).expect("keys");
        String::from_utf8(found[0].bytes().expect("a key").to_vec()).expect("text")
    })
}

fn number(connection: &mut Connection, key: &str) -> u64 {
    let reply = connection.call(["GET", key]).expect("it is up");
    let text = reply.bytes().map(|text| String::from_utf8_lossy(text).into_owned());
    text.map_or(0, |text| text.parse().expect("a number"))
}

/// Writes rising numbers until the server is killed.
fn write_far(connection: &mut Connection, far: &str, last: &AtomicU64) {
    loop {
        let n = (last.fetch_add(1, Ordering::SeqCst) + 1).to_string();
        let Ok(reply) = connection.call(["SET", far, &n]) else { return };
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(folder: &Path) -> Server {
    let mut server = serve_with(folder, 2, 2, "everysec");
    server.wait();
    server
}

/// A function copies a number that another shard's key is given all the time. Then the server is
/// killed, and memory goes with it: the logs never have the copy without the number, or half of it.
#[test]
fn what_a_function_writes_is_not_there_without_what_it_read() {
    let folder = folder();
    let folder = folder.path();
    let server = start(folder);
    let [near, other] = one_of_each(&mut server.connect());
    let [a, b] = ["a", "b"].map(|name| format!("{{{near}}}{name}"));
    let far = format!("{{{other}}}far");
    assert_eq!(server.call(&["FUNCTION", "LOAD", COPY]).error(), None);
    server.call(&["WAITAOF", "1", "0", "0"]);
    server.kill();
    let (last, mut before, mut kept) = (AtomicU64::new(0), 0, 0);
    for round in 0..=ROUNDS {
        remove_arenas(folder);
        let server = start(folder);
        let mut connection = server.connect();
        let [a_has, b_has, far_has] = [&a, &b, &far].map(|key| number(&mut connection, key));
        assert_eq!(a_has, b_has, "round {round}: half of a call");
        assert!(a_has <= far_has, "round {round}: {a_has} was copied, {far_has} is there");
        kept += u64::from(a_has > before);
        before = last.load(Ordering::SeqCst);
        if round == ROUNDS {
            break;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| write_far(&mut connection, &far, &last));
            std::thread::sleep(BEFORE);
            let called = server.call(&["FCALL", "copy", "2", &a, &b, &far]);
            assert_eq!(called.error(), None);
            for n in 0..BULK {
                let words = ["SET", &format!("{{{near}}}{n}"), &"x".repeat(BULK_BYTES)];
                assert_eq!(server.call(&words), Frame::Simple(b"OK".to_vec()));
            }
            std::thread::sleep(BEHIND);
            server.kill();
        });
    }
    assert!(kept > ROUNDS / 2, "of {ROUNDS} calls {kept} were in the log");
}

/// A shard's log ended without a function's write, and without all behind it, when the other log
/// that it needs took more than five seconds for its last write. The server ended as if all were
/// well, and a container's end took the rest.
#[test]
fn an_end_waits_for_the_log_that_another_one_needs() {
    const DELAY: &str = "inject=pwrite64:delay_enter=9000000:when=1";
    let folder = folder();
    let folder = folder.path();
    let server = start(folder);
    let mut connection = server.connect();
    let [near, far] = one_of_each(&mut connection);
    let [a, b] = ["a", "b"].map(|name| format!("{{{near}}}{name}"));
    connection.call(["FUNCTION", "LOAD", COPY]).expect("it is up");
    connection.call(["WAITAOF", "1", "0", "0"]).expect("it is up");
    let thread = server.thread("nigh-log-1");
    let args = ["-p", &thread, "-e", "trace=pwrite64", "-e", "signal=none", "-e", DELAY];
    let Some(strace) = Strace::attach(&args, &folder.join("strace")) else { return };
    for words in [&["SET", &far, "7"][..], &["FCALL", "copy", "2", &a, &b, &far]] {
        let reply = connection.call(words.iter().copied()).expect("it is up");
        assert_eq!(reply.error(), None, "{words:?}");
    }
    server.signal(Signal::TERM);
    let (code, said) = server.ended_with_code();
    drop(strace);
    assert_eq!(code, Some(0), "{said}");
    remove_arenas(folder);
    let server = start(folder);
    let mut connection = server.connect();
    assert_eq!([&far, &a, &b].map(|key| number(&mut connection, key)), [7; 3], "{said}");
}
