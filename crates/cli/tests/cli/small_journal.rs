//! A server with the smallest journal takes values of all lengths: those that are too long for an
//! entry of it lie in memory of their own, and the entry names them.

use crate::support::{Server, folder};
use nigh_client::Connection;

/// A record up to half a segment (512 KiB here) lies in the segment, and an entry has at most 256
/// KiB. Between the two, all were refused.
const LENGTHS: [usize; 7] = [100_000, 255_000, 262_000, 263_000, 300_000, 500_000, 600_000];

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at * 31 % 251).expect("below")).collect()
}

fn has_all(connection: &mut Connection) {
    for bytes in LENGTHS {
        let reply = connection.call(["GET", &format!("k{bytes}")]).expect("it is up");
        assert!(reply.bytes() == Some(&value(bytes)[..]), "{bytes} bytes: another value");
    }
}

#[test]
fn a_small_journal_takes_values_of_each_length() {
    let folder = folder();
    let dir = folder.path().join("log").display().to_string();
    let flags = ["--appendonly", "yes", "--dir", &dir, "--log-on-tmpfs", "yes", "--shards", "1"];
    let small = ["--journal-size", "1mb", "--log-file-size", "1mb", "--maxmemory", "256mb"];
    let flags = [&flags[..], &small].concat();
    let server = Server::start_with(folder.path(), &flags);
    let mut connection = server.connect();
    // Twice: in the place of what is there, too.
    for _ in 0..2 {
        for bytes in LENGTHS {
            let (key, value) = (format!("k{bytes}"), value(bytes));
            let reply = connection.call([&b"SET"[..], key.as_bytes(), &value]).expect("it is up");
            assert_eq!(reply.error(), None, "{bytes} bytes: {reply:?}");
            let reply = connection.call(["EXPIRE", &key, "1000"]).expect("it is up");
            assert_eq!(reply.error(), None, "{bytes} bytes: {reply:?}");
        }
        has_all(&mut connection);
    }
    // Together they are more than the journal has.
    let keys: Vec<String> = (0..6).map(|number| format!("m{number}")).collect();
    let long = value(300_000);
    let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &long]);
    let words: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(pairs).collect();
    let reply = connection.call(words).expect("it is up");
    assert_eq!(reply.error(), None, "{reply:?}");
    server.kill();
    let server = Server::start_with(folder.path(), &flags);
    has_all(&mut server.connect());
    let _ = server.connect().call(["SHUTDOWN"]);
    server.ended();
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("they are there");
    let server = Server::start_with(folder.path(), &flags);
    has_all(&mut server.connect());
    assert!(server.call(&["GET", "m5"]).bytes() == Some(&long[..]));
}
