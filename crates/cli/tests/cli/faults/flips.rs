//! `nigh check` and `nigh serve` give the same verdict on flipped bits. A test of the store flips
//! every bit of a header; here the two programs run.

use crate::support::{NIGH, Server, folder, free_port, nigh};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a verdict: a debug build on a busy machine needs less.
const DECIDED: Duration = Duration::from_secs(60);

/// Whether a server accepts the folder: it serves, or it ends with code 1.
fn serves(dir: &Path) -> bool {
    let port = free_port();
    let mut child = Command::new(NIGH)
        .args(["serve", "--maxmemory", "64mb", "--shards", "1", "--port", &port.to_string()])
        .args(["--appendonly", "no"])
        .arg("--shm-dir")
        .arg(dir)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    let begin = Instant::now();
    let outcome = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            assert_eq!(status.code(), Some(1));
            break false;
        }
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() && is_ready(&mut child, port) {
            break true;
        }
        assert!(begin.elapsed() < DECIDED, "it doesn't decide");
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

/// Whether the server answers. It listens before it looks at the arenas, so a listener says
/// nothing.
fn is_ready(child: &mut Child, port: u16) -> bool {
    let address = nigh_client::Address::tcp("127.0.0.1", port);
    let options = nigh_client::ConnectionOptions { timeout: Some(DECIDED), ..Default::default() };
    let connected = nigh_client::Connection::connect(&address, &options);
    let answered = connected.is_ok_and(|mut connection| connection.call(["PING"]).is_ok());
    answered && child.try_wait().is_ok_and(|status| status.is_none())
}

/// One bit is flipped: of the tenant's name, of the number of partitions, or of bytes that no
/// server reads. `nigh check` once called whole what `nigh serve` refused.
#[test]
fn check_and_serve_give_the_same_verdict() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    server.kill();
    let mut refused = 0;
    for name in ["default.0.arena", "_system.0.arena"] {
        let path = dir.join(name);
        let sound = std::fs::read(&path).expect("it is there");
        // Magic, version, seed, partition, partitions, the name's length and bytes, the bytes
        // after it, incarnation, index, counters, zeros.
        for at in [0, 8, 48, 52, 56, 60, 64, 67, 80, 192, 256, 260, 320, 336, 1000] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).expect("it is ours");
            let checked = nigh(&["check", dir.to_str().expect("UTF-8")]);
            let serves = serves(&dir);
            assert_eq!(checked.status.success(), serves, "{name} at {at}: {checked:?}");
            refused += u32::from(!serves);
            std::fs::write(&path, &sound).expect("it is ours");
        }
    }
    assert!((10..28).contains(&refused), "{refused} of 30");
}

/// One bit of a value is flipped. Its key is named, and all other keys are served.
#[test]
fn a_flipped_bit_in_a_value_is_named_by_its_key() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    assert_eq!(server.call(&["SET", "bad", "a value that is nowhere else"]).error(), None);
    assert_eq!(server.call(&["SET", "good", "1"]).error(), None);
    server.kill();
    let path = dir.join("default.0.arena");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let value = b"a value that is nowhere else";
    let at = bytes.windows(value.len()).position(|it| it == value).expect("it was set");
    bytes[at] ^= 0x20;
    std::fs::write(&path, &bytes).expect("it is ours");
    let checked = nigh(&["check", dir.to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success() && said.contains("key \"bad\" at 0x"), "{checked:?}");
    // The sum that it has, and the one that it should have.
    let sums = |said: &str| {
        let (_, text) = said.split_once("checksum of a record is ")?;
        let (has, text) = text.split_once(", expected ")?;
        let wanted = text.split(|c: char| !c.is_ascii_hexdigit() && c != 'x').next()?;
        (has != wanted).then(|| (has.to_owned(), wanted.to_owned()))
    };
    let named = sums(&said);
    assert!(named.is_some() && !said.contains("good"), "{said}");
    for verify in ["yes", "no"] {
        let server =
            Server::start_with(folder.path(), &["--maxmemory", "64mb", "--verify", verify]);
        assert_eq!(server.call(&["GET", "good"]).bytes(), Some(&b"1"[..]));
        let said = server.said();
        let line = said.lines().find(|line| line.contains("key \"bad\" in ")).unwrap_or_default();
        assert_eq!(line.contains("default.0.arena at 0x"), verify == "yes", "{said}");
        assert_eq!(sums(line), named.clone().filter(|_| verify == "yes"), "{said}");
        server.kill();
    }
}

/// Each bad record is named, however many there are: each key is to be written anew. Only the first
/// 20 were.
#[test]
fn the_check_names_each_bad_record() {
    const KEYS: usize = 25;
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    for n in 0..KEYS {
        let set = ["SET", &format!("bad {n}"), "a value that is nowhere else"];
        assert_eq!(server.call(&set).error(), None);
    }
    server.kill();
    let path = dir.join("default.0.arena");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let value = b"a value that is nowhere else";
    let all = bytes.windows(value.len()).enumerate().filter(|(_, it)| *it == value);
    let all: Vec<usize> = all.map(|(at, _)| at).collect();
    assert_eq!(all.len(), KEYS);
    all.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&path, &bytes).expect("it is ours");
    let checked = nigh(&["check", dir.to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    for n in 0..KEYS {
        assert!(said.contains(&format!("key \"bad {n}\" at 0x")), "{said}");
    }
}

/// A bit flips under a running server, and then most records around it are deleted. The cleaner
/// meets the record, leaves it where it is, and logs it once.
#[test]
fn a_bit_that_flips_while_it_is_served_is_told_by_the_cleaner() {
    const KEYS: usize = 4000;
    let folder = folder();
    let server = Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    let mut connection = server.connect();
    let filler = "f".repeat(1000);
    let mut set = |key: &str, value: &str| {
        assert_eq!(connection.call(["SET", key, value]).expect("it is up").error(), None);
    };
    for i in 0..KEYS {
        set(&format!("key {i}"), &filler);
        if i == KEYS / 2 {
            set("bad", "a value that is nowhere else");
        }
    }
    let path = folder.path().join("arenas/default.0.arena");
    let (bytes, value) = (std::fs::read(&path).expect("it is there"), b"a value that is nowhere");
    let at = bytes.windows(value.len()).position(|it| it == value).expect("it was set");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is ours");
    file.write_all_at(b"A", at as u64).expect("it is ours");
    for i in (0..KEYS).filter(|i| i % 8 != 0) {
        let deleted = connection.call(["DEL", &format!("key {i}")]).expect("it is up");
        assert_eq!(deleted.integer(), Some(1));
    }
    server.wait_for("the record stays where it is");
    assert_eq!(server.said().matches("key \"bad\" in ").count(), 1, "{}", server.said());
    assert_eq!(server.call(&["GET", "bad"]).bytes(), Some(&b"A value that is nowhere else"[..]));
    let info = server.call(&["INFO", "nigh"]);
    let info = String::from_utf8_lossy(info.bytes().expect("a text")).into_owned();
    assert!(info.contains("cleaner_bad_records:1\r\n"), "{info}");
    let deleted = server.call(&["DEL", "bad"]).integer();
    assert_eq!((deleted, server.call(&["DBSIZE"]).integer()), (Some(1), Some(KEYS as i64 / 8)));
}
