//! Stories of users whose data has a log: it is converted with its log and served, or refused.

use super::{LIBRARY, beside, names, partitions_at};
use crate::support::{Server, assert_one_sentence, folder, nigh, stderr, stdout, wait_for_starts};
use nigh_client::Frame;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The stored data: values, and expiry in Unix ms, -1 if none.
pub(crate) type Content = BTreeMap<String, (Vec<u8>, i64)>;

pub(crate) fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

/// Starts a server with a log, and doesn't wait until it answers. It waits for a slow disk, and
/// stops no function.
pub(crate) fn spawn(folder: &Path, partitions: usize) -> Server {
    let dir = log_of(folder);
    let flags = [
        ["--appendonly", "yes"],
        ["--appendfsync", "always"],
        ["--dir", text(&dir)],
        ["--log-on-tmpfs", "yes"],
        ["--journal-size", "1mb"],
        ["--log-file-size", "1mb"],
        ["--maxmemory", "256mb"],
        ["--shards", "2"],
        ["--journal-wait-ms", "20000"],
        ["--function-time-limit-ms", "10000"],
        ["--partitions", &partitions.to_string()],
    ];
    Server::spawn(folder, &flags.concat())
}

pub(crate) fn start(folder: &Path, partitions: usize) -> Server {
    let mut server = spawn(folder, partitions);
    server.wait();
    server
}

/// The words of a conversion.
pub(crate) fn words(folder: &Path, partitions: usize) -> Vec<String> {
    let (log, arenas) = (log_of(folder), folder.join("arenas"));
    let partitions = partitions.to_string();
    ["convert", "--dir", text(&log), "--shm-dir", text(&arenas), "--partitions", &partitions]
        .map(Into::into)
        .into()
}

fn convert_with(folder: &Path, partitions: usize, more: &[&str]) -> Output {
    let words = words(folder, partitions);
    nigh(&[&words.iter().map(String::as_str).collect::<Vec<_>>(), more].concat())
}

pub(crate) fn assert_converts(folder: &Path, partitions: usize, more: &[&str]) -> String {
    let output = convert_with(folder, partitions, more);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!beside(&folder.join("arenas")).exists());
    stdout(&output)
}

/// Small and large values, of which some have an expiry.
pub(crate) fn content(keys: u64) -> Content {
    let later = super::now_ms() + 3_600_000;
    let value = |n: u64| match n % 100 {
        7 => vec![b'x'; 700_000],
        _ => format!("value {n}").into_bytes(),
    };
    let key = |n: u64| {
        if n.is_multiple_of(3) { format!("{{tag{}}}:{n}", n % 20) } else { format!("key:{n}") }
    };
    let expiry = |n: u64| if n.is_multiple_of(5) { later + n as i64 } else { -1 };
    (0..keys).map(|n| (key(n), (value(n), expiry(n)))).collect()
}

/// Stores all of it; all is acknowledged.
pub(crate) fn store(server: &Server, content: &Content) {
    let mut connection = server.connect();
    for (key, (value, expiry)) in content {
        let at = expiry.to_string();
        let mut command = vec![&b"SET"[..], key.as_bytes(), value];
        if *expiry >= 0 {
            command.extend([&b"PXAT"[..], at.as_bytes()]);
        }
        connection.send(&command).expect("the server is up");
    }
    for _ in content {
        assert_eq!(connection.receive().expect("the server is up").error(), None);
    }
}

/// Compares all keys of a server with what was stored.
pub(crate) fn compare(server: &Server, content: &Content, at: &str) {
    let count = i64::try_from(content.len()).expect("small");
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(count), "{at}");
    let mut connection = server.connect();
    for key in content.keys() {
        connection.send(&["GET", key]).expect("the server is up");
        connection.send(&["PEXPIRETIME", key]).expect("the server is up");
    }
    for (key, (value, expiry)) in content {
        let found = connection.receive().expect("the server is up");
        assert!(found.bytes() == Some(value), "{at}: {key} has another value");
        let found = connection.receive().expect("the server is up");
        assert_eq!(found, Frame::Integer(*expiry), "{at}: expiry of {key}");
    }
}

fn load_library(folder: &Path, server: &Server) {
    assert_eq!(server.call(&["FUNCTION", "LOAD", LIBRARY]).error(), None);
    wait_for_starts(folder);
}

fn assert_library(server: &Server, at: &str) {
    let joined = server.call(&["FCALL", "join", "1", "a", "b"]);
    assert_eq!(joined.bytes(), Some(&b"a+b"[..]), "{at}: {joined:?}");
}

/// Partitions that the log says there are.
pub(crate) fn partitions_of_log(folder: &Path) -> usize {
    let meta = std::fs::read_to_string(log_of(folder).join("meta")).expect("its meta");
    let line = meta.lines().find_map(|line| line.strip_prefix("tenant 1 default "));
    let number = line.and_then(|line| line.split(' ').next());
    number.and_then(|number| number.parse().ok()).expect("the tenant's line")
}

/// All files of the log are of the chains that count.
pub(crate) fn assert_one_generation(folder: &Path, at: &str) {
    let names = names(&log_of(folder));
    let files = names.iter().filter(|name| name.ends_with(".log"));
    let mut generations: Vec<_> = files.filter_map(|name| name.split('-').next()).collect();
    generations.dedup();
    assert_eq!(generations.len(), 1, "{at}: {names:?}");
}

fn remove_arenas(folder: &Path) {
    std::fs::remove_dir_all(folder.join("arenas")).expect("it is there");
}

/// One partition becomes three, then two. The server was killed each time, so that its log lacks
/// the last changes. The next one finds arenas and log that fit each other; and the log alone has
/// all.
#[test]
fn data_with_a_log_is_converted_and_served() {
    let folder = folder();
    let folder = folder.path();
    let mut all = content(600);
    let server = start(folder, 1);
    store(&server, &all);
    load_library(folder, &server);
    server.kill();
    for partitions in [3, 2] {
        let at = format!("{partitions} partitions");
        let said = assert_converts(folder, partitions, &[]);
        assert!(said.contains(&format!("{partitions} now")), "{said}");
        assert_eq!(
            (partitions_at(&folder.join("arenas")), partitions_of_log(folder)),
            (partitions, partitions)
        );
        assert_one_generation(folder, &at);
        let server = start(folder, partitions);
        assert!(
            server.said().contains("rebuilt=0") && server.said().contains("base=None"),
            "{}",
            server.said()
        );
        compare(&server, &all, &at);
        assert_library(&server, &at);
        let more = Content::from([(format!("after:{partitions}"), (vec![b'y'; 300_000], -1))]);
        store(&server, &more);
        all.extend(more);
        server.kill();
    }
    remove_arenas(folder);
    let server = start(folder, 2);
    assert!(server.said().contains("rebuilt=3"), "{}", server.said());
    compare(&server, &all, "by the log");
    assert_library(&server, "by the log");
}

/// After a reboot only the log is there. No arena tells how much memory the data was made for, so
/// the user does.
#[test]
fn the_log_alone_is_enough() {
    let folder = folder();
    let folder = folder.path();
    let all = content(300);
    let server = start(folder, 2);
    store(&server, &all);
    load_library(folder, &server);
    server.kill();
    remove_arenas(folder);
    assert_one_sentence(&convert_with(folder, 5, &[]), &["how much memory", "--maxmemory"]);
    let said = assert_converts(folder, 2, &[]);
    assert!(said.contains("nothing to do"), "{said}");
    assert_converts(folder, 5, &["--maxmemory", "256mb"]);
    let server = start(folder, 5);
    assert!(server.said().contains("rebuilt=0"), "{}", server.said());
    compare(&server, &all, "from the log");
    assert_library(&server, "from the log");
}

/// A store without a key is converted too.
#[test]
fn an_empty_store_is_converted() {
    let folder = folder();
    let folder = folder.path();
    start(folder, 1).kill();
    assert_converts(folder, 4, &[]);
    let server = start(folder, 4);
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(0));
    let all = content(20);
    store(&server, &all);
    server.kill();
    remove_arenas(folder);
    compare(&start(folder, 4), &all, "by the log");
}

/// The arenas of a log are made larger, with as many partitions.
#[test]
fn arenas_with_a_log_are_made_larger() {
    let folder = folder();
    let folder = folder.path();
    let all = content(50);
    let server = start(folder, 2);
    store(&server, &all);
    server.kill();
    let said = assert_converts(folder, 2, &["--maxmemory", "512mb"]);
    assert!(said.contains("memory"), "{said}");
    let server = start(folder, 2);
    assert!(server.said().contains("rebuilt=0"), "{}", server.said());
    compare(&server, &all, "larger");
}

/// A server that is started with another number of partitions names a command. The command works as
/// it is printed, and then the server starts.
#[test]
fn the_command_that_a_refused_server_with_a_log_names_works() {
    let folder = folder();
    let folder = folder.path();
    let all = content(20);
    let server = start(folder, 1);
    store(&server, &all);
    server.kill();
    let said = spawn(folder, 3).ended();
    assert!(said.contains("start with --partitions 1"), "{said}");
    let command = said.split('`').find(|part| part.starts_with("nigh convert")).expect("a command");
    let output = nigh(&command.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    compare(&start(folder, 3), &all, "converted");
}

/// What a folder has: names, sizes and times of change.
fn look(dir: &Path) -> Vec<(String, u64, i64, i64)> {
    let about = |name: String| {
        let about = dir.join(&name).metadata().expect("it is there");
        (name, about.len(), about.mtime(), about.mtime_nsec())
    };
    names(dir).into_iter().filter(|name| name != "lock").map(about).collect()
}

/// The log of another store, a folder without a log, and one that another process uses are refused
/// in one sentence, and nothing is changed.
#[test]
fn a_log_that_is_not_the_arenas_own_is_refused() {
    let (one, other) = (folder(), folder());
    let (one, other) = (one.path(), other.path());
    for at in [one, other] {
        let server = start(at, 1);
        store(&server, &content(10));
        server.signal(rustix::process::Signal::TERM);
        server.ended();
    }
    let id = |at: &Path| {
        let meta = std::fs::read_to_string(log_of(at).join("meta")).expect("its meta");
        let line = meta.lines().find_map(|line| line.strip_prefix("id ")).expect("its id");
        line.to_owned()
    };
    let arenas = one.join("arenas");
    let convert = |log: &Path| {
        let words =
            ["convert", "--dir", text(log), "--shm-dir", text(&arenas), "--partitions", "2"];
        nigh(&words)
    };
    let before = (look(&arenas), look(&log_of(other)), look(&log_of(one)));
    let parts =
        [&*id(one), &*id(other), text(&arenas), text(&log_of(other)), "--dir"].map(str::to_owned);
    assert_one_sentence(&convert(&log_of(other)), &parts.each_ref().map(String::as_str));
    assert_one_sentence(&convert(&one.join("none")), &[&id(one), "none", "--dir"]);
    // The folder that is taken unasked isn't there.
    let unasked = nigh(&["convert", "--shm-dir", text(&arenas), "--partitions", "2"]);
    assert_one_sentence(&unasked, &[&id(one), "nigh-data", "--dir"]);
    assert_eq!(before, (look(&arenas), look(&log_of(other)), look(&log_of(one))));
    assert!(!one.join("none").exists());
    let server = start(one, 1);
    assert_one_sentence(&convert(&log_of(one)), &["uses the log", "stop it"]);
    compare(&server, &content_of(&server), "still served");
    server.kill();
    // Arenas without a log aren't converted with one that happens to be there.
    let plain = folder_without_log();
    let (arenas, log) = (plain.path().join("arenas"), log_of(other));
    let words = ["convert", "--dir", text(&log), "--shm-dir", text(&arenas), "--partitions", "2"];
    assert_one_sentence(&nigh(&words), &["without the log", text(&arenas)]);
}

/// The ten keys that a server has.
fn content_of(server: &Server) -> Content {
    let mut all = content(10);
    for (key, (_, expiry)) in &mut all {
        let reply = server.call(&["PEXPIRETIME", key]);
        let Frame::Integer(at) = reply else { panic!("{reply:?}") };
        *expiry = at;
    }
    all
}

fn folder_without_log() -> tempfile::TempDir {
    let folder = folder();
    let server = super::start(folder.path(), 1);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    server.kill();
    folder
}
