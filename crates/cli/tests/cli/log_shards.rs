//! A log that is started with another number of shards: it just works, with the arenas and without,
//! and also if a start that writes the new log is killed at some moment.

use crate::support::{Server, folder};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

const KEYS: usize = 400;

fn serve(folder: &Path, shards: usize) -> Server {
    let dir = folder.join("log");
    let flags = [
        ["--appendonly", "yes"],
        ["--appendfsync", "always"],
        ["--dir", dir.to_str().expect("a path of ours")],
        ["--log-on-tmpfs", "yes"],
        ["--journal-size", "1mb"],
        ["--log-file-size", "1mb"],
        ["--maxmemory", "256mb"],
        ["--partitions", "3"],
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
        server.signal(Signal::KILL);
        server.ended();
    }
    remove_arenas(folder);
    let mut server = serve(folder, 4);
    server.wait();
    assert_all(&server, 0, "behind the killed starts");
}
