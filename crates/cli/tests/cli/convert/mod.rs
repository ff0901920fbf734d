//! `nigh convert` on the arenas of real servers, and killed while it works.
//!
//! `NIGH_KILLS` sets the number of kills.

mod kept;
mod kills;
mod logged;
mod logged_kills;
mod stories;

use crate::support::{Server, nigh, stderr, stdout, wait_for_starts};
use nigh_client::Frame;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys of a test's data.
const KEYS: u64 = 20_000;
/// Keys in one request.
const AT_ONCE: usize = 500;

const LIBRARY: &str = "#!js name=pair\nexport function join(db, args, keys) {\n  \
                       return keys.concat(args).join('+');\n}\n";

/// The stored data: each key's value and expiry, Unix ms, -1 if none.
type Oracle = BTreeMap<String, (Vec<u8>, i64)>;

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("before the year 300,000,000")
}

fn oracle() -> Oracle {
    let key = |n: u64| {
        if n.is_multiple_of(3) { format!("{{tag{}}}:{n}", n % 50) } else { format!("key:{n}") }
    };
    let value = |n: u64| match n % 1000 {
        0 => vec![b'x'; 700_000],
        _ => format!("value {n}").into_bytes(),
    };
    let later = now_ms() + 3_600_000;
    let expiry = |n: u64| if n.is_multiple_of(5) { later + n as i64 } else { -1 };
    (0..KEYS).map(|n| (key(n), (value(n), expiry(n)))).collect()
}

/// Stores all data and the library, and stops the server.
fn fill(folder: &Path, partitions: usize, oracle: &Oracle) {
    let server = start(folder, partitions);
    let mut connection = server.connect();
    let all: Vec<_> = oracle.iter().collect();
    for some in all.chunks(AT_ONCE) {
        for (key, (value, expiry)) in some {
            let at = expiry.to_string();
            let mut command = vec![&b"SET"[..], key.as_bytes(), value];
            if *expiry >= 0 {
                command.extend([&b"PXAT"[..], at.as_bytes()]);
            }
            connection.send(&command).expect("the server is up");
        }
        for _ in some {
            assert_eq!(connection.receive().expect("the server is up").error(), None);
        }
    }
    assert_eq!(server.call(&["FUNCTION", "LOAD", LIBRARY]).error(), None);
    wait_for_starts(folder);
    server.kill();
}

/// Compares all keys of a server with the stored data.
fn compare(server: &Server, oracle: &Oracle) {
    let count = i64::try_from(oracle.len()).expect("small");
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(count));
    let mut connection = server.connect();
    let all: Vec<_> = oracle.iter().collect();
    for some in all.chunks(AT_ONCE) {
        for (key, _) in some {
            connection.send(&["GET", key]).expect("the server is up");
            connection.send(&["PEXPIRETIME", key]).expect("the server is up");
        }
        for (key, (value, expiry)) in some {
            let found = connection.receive().expect("the server is up");
            assert!(found.bytes() == Some(value), "{key} has another value");
            let found = connection.receive().expect("the server is up");
            assert_eq!(found, Frame::Integer(*expiry), "expiry of {key}");
        }
    }
    let joined = server.call(&["FCALL", "join", "1", "a", "b"]);
    assert_eq!(joined.bytes(), Some(&b"a+b"[..]), "{joined:?}");
}

fn start(folder: &Path, partitions: usize) -> Server {
    // A slow machine stops no function here.
    let flags = ["--maxmemory", "512mb", "--function-time-limit-ms", "10000", "--partitions"];
    Server::start_with(folder, &[&flags[..], &[&partitions.to_string()]].concat())
}

fn arguments(dir: &Path, partitions: usize) -> Vec<String> {
    let dir = dir.to_str().expect("UTF-8");
    let partitions = partitions.to_string();
    ["convert", "--shm-dir", dir, "--partitions", &partitions].map(Into::into).into()
}

fn convert(dir: &Path, partitions: usize) -> std::process::Output {
    let words = arguments(dir, partitions);
    nigh(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn assert_converts(dir: &Path, partitions: usize) -> String {
    let output = convert(dir, partitions);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// The copy's folder.
fn beside(dir: &Path) -> PathBuf {
    PathBuf::from(format!("{}.convert", dir.display()))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("it is there");
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| entry.expect("it is readable").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn partitions_at(dir: &Path) -> usize {
    let is_data = |name: &&String| name.starts_with("default.") && name.ends_with(".arena");
    names(dir).iter().filter(is_data).count()
}

fn assert_whole(dir: &Path) {
    let checked = nigh(&["check", dir.to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
}
