//! `nigh backup` of a server under load, `nigh restore`, and a server on what was restored.
//!
//! Each writer sets the keys of a chain in order, all to one number, and waits for each OK; then
//! two keys in one command. So at any moment the numbers along the chain fall by one at most once,
//! whatever shards the keys are on, and the two are equal: that is what each backup must have.

mod detach;

use crate::log_disk::SmallDisk;
use crate::support::{Server, assert_one_sentence, folder, nigh, stderr, stdout};
use nigh_client::{Connection, ConnectionOptions, Frame};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of a chain: enough for some to be on each shard.
const LINKS: usize = 8;
const WRITERS: usize = 3;
/// Bytes of a value: files change and are compacted while a backup is made.
const PADDING: usize = 3000;
const ROUNDS: usize = 4;
/// Longest time until the log of a load is compacted.
const SOON: Duration = Duration::from_secs(30);
/// Keys that nobody changes: their files are in every backup.
const QUIET_KEYS: usize = 400;
const QUIET_BYTES: usize = 20_000;

fn flags(log: &Path) -> Vec<String> {
    let log = log.to_str().expect("UTF-8");
    let flags = [
        "--maxmemory",
        "128mb",
        "--shards",
        "2",
        "--partitions",
        "2",
        "--appendonly",
        "yes",
        "--dir",
        log,
        "--log-on-tmpfs",
        "yes",
        "--log-file-size",
        "1mb",
        "--journal-size",
        "4mb",
        "--log-garbage",
        "20",
    ];
    flags.map(String::from).into()
}

fn start(folder: &Path, log: &Path) -> Server {
    let flags = flags(log);
    Server::start_with(folder, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(frame.bytes().unwrap_or_default()).into_owned()
}

/// The number in a value; 0: there is none.
fn number(frame: &Frame) -> u64 {
    text(frame).split(':').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn link(writer: usize, at: usize) -> String {
    format!("w{writer}:{at}")
}

/// One writer's keys on a server: the chain, then the two.
fn numbers(server: &Server, writer: usize) -> Vec<u64> {
    let mut connection = server.connect();
    let mut keys: Vec<String> = (0..LINKS).map(|at| link(writer, at)).collect();
    keys.extend([format!("{{pair{writer}}}a"), format!("{{pair{writer}}}b")]);
    keys.iter().map(|key| number(&connection.call(["GET", key]).expect("up"))).collect()
}

/// What a writer has begun, and what it was told of.
#[derive(Default)]
struct Told {
    begun: AtomicU64,
    done: AtomicU64,
}

fn write(server: &Server, writer: usize, told: &Told, ends: &AtomicBool) {
    let mut connection = server.connect();
    let padding = "x".repeat(PADDING);
    while !ends.load(Ordering::Relaxed) {
        let number = told.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let value = format!("{number}:{padding}");
        for at in 0..LINKS {
            let reply = connection.call(["SET", &link(writer, at), &value]).expect("up");
            assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        }
        let (a, b) = (format!("{{pair{writer}}}a"), format!("{{pair{writer}}}b"));
        let reply = connection.call(["MSET", &a, &value, &b, &value]).expect("up");
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        told.done.store(number, Ordering::SeqCst);
    }
}

fn back_up(server: &Server, dir: &Path) -> String {
    let output =
        nigh(&["backup", "--connect", &server.port.to_string(), dir.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(&output), server.said());
    stdout(&output)
}

fn restore(backup: &Path, into: &Path) {
    let [backup, into] = [backup, into].map(|path| path.to_str().expect("UTF-8"));
    let output = nigh(&["restore", backup, into]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

fn assert_whole(backup: &Path) {
    let output = nigh(&["check", backup.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("a backup, with the mark"));
}

/// A field of the last backup's status.
fn status(server: &Server, field: &str) -> Frame {
    let status = server.call(&["BACKUP", "STATUS"]);
    let words = status.elements().expect("RESP2 has maps as arrays").as_chunks::<2>().0;
    let found = words.iter().find(|[name, _]| text(name) == field);
    found.unwrap_or_else(|| panic!("no {field} in {status:?}"))[1].clone()
}

fn info(server: &Server, field: &str) -> String {
    let all = text(&server.call(&["INFO", "persistence"]));
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field} in {all}")).to_owned()
}

#[test]
fn a_backup_beside_a_load_is_one_moment() {
    let (folder, other) = (folder(), crate::support::folder());
    let log = folder.path().join("data");
    let server = start(folder.path(), &log);
    let mut connection = server.connect();
    for key in 0..QUIET_KEYS {
        let value = format!("{key}:{}", "q".repeat(QUIET_BYTES));
        connection.call(["SET", &format!("quiet{key}"), &value]).expect("up");
    }
    connection.call(["SET", "over", "1", "PX", "1"]).expect("up");
    connection.call(["SET", "lasts", "1", "EX", "5000"]).expect("up");
    std::thread::sleep(Duration::from_millis(20));
    let started_s: u64 = info(&server, "rdb_last_save_time").parse().expect("a number");
    assert_eq!(
        server.call(&["LASTSAVE"]),
        Frame::Integer(i64::try_from(started_s).expect("a time"))
    );
    let told: Vec<Told> = (0..WRITERS).map(|_| Told::default()).collect();
    let ends = AtomicBool::new(false);
    let backup = folder.path().join("backup");
    std::thread::scope(|scope| {
        for (writer, told) in told.iter().enumerate() {
            let (server, ends) = (&server, &ends);
            scope.spawn(move || write(server, writer, told, ends));
        }
        let ended = EndOnDrop(&ends);
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(300));
            let before: Vec<u64> = told.iter().map(|it| it.done.load(Ordering::SeqCst)).collect();
            back_up(&server, &backup);
            let after: Vec<u64> = told.iter().map(|it| it.begun.load(Ordering::SeqCst)).collect();
            assert_whole(&backup);
            let place = other.path().join(round.to_string());
            std::fs::create_dir(&place).expect("ours");
            restore(&backup, &place.join("data"));
            let restored = start(&place, &place.join("data"));
            for writer in 0..WRITERS {
                let found = numbers(&restored, writer);
                let (first, last) = (found[0], found[found.len() - 1]);
                assert!(found.is_sorted_by(|a, b| a >= b), "round {round}: {found:?}");
                assert!(first - last <= 1, "round {round}: {found:?}");
                assert_eq!(found[LINKS], found[LINKS + 1], "one command is cut");
                assert!(before[writer] <= last, "{} was told before: {found:?}", before[writer]);
                assert!(first <= after[writer], "{found:?} is later than the backup");
            }
            for key in 0..QUIET_KEYS {
                let found = restored.call(&["GET", &format!("quiet{key}")]);
                assert_eq!(text(&found), format!("{key}:{}", "q".repeat(QUIET_BYTES)));
            }
            assert!(restored.call(&["GET", "over"]).is_null());
            assert!(restored.call(&["TTL", "lasts"]).integer().expect("a number") > 4000);
            // It goes on, and its log too.
            restored.call(&["SET", "more", "1"]);
            restored.kill();
            let again = start(&place, &place.join("data"));
            assert_eq!(text(&again.call(&["GET", "more"])), "1");
        }
        drop(ended);
    });
    // Most files are as they were, once the log of the load is compacted.
    let mut saves = ROUNDS + 1;
    back_up(&server, &backup);
    let begin = Instant::now();
    loop {
        server.call(&["SET", "one", "more"]);
        back_up(&server, &backup);
        saves += 1;
        let count = |field: &str| status(&server, field).integer().expect("a number");
        let (files, reused) = (count("files"), count("reused-files"));
        if files > 4 && reused * 2 > files {
            break;
        }
        assert!(begin.elapsed() < SOON, "{reused} of {files} files were there");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_whole(&backup);
    assert!(info(&server, "rdb_last_save_time").parse::<u64>().expect("a number") > started_s);
    assert_eq!(info(&server, "rdb_saves"), saves.to_string());
    let said = server.said();
    assert!(!said.contains("ERROR") && !said.contains("panicked"), "{said}");
    // The memory of the log that was backed up refuses the one that was restored.
    server.kill();
    let flags = flags(&other.path().join("0").join("data"));
    let refused =
        Server::spawn(folder.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, said) = refused.ended_with_code();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("belongs to the log"), "{said}");
}

/// Ends the writers, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server with some data, whose backups take seconds.
fn slow(folder: &Path) -> Server {
    let server = start(folder, &folder.join("data"));
    let mut connection = server.connect();
    for key in 0..QUIET_KEYS {
        let value = "q".repeat(QUIET_BYTES);
        connection.call(["SET", &format!("quiet{key}"), &value]).expect("up");
    }
    connection.call(["CONFIG", "SET", "backup-rate", "1mb"]).expect("up");
    server
}

/// The answer, if the connection's shard has time for it. (Of a busy one it would be done later.)
fn quickly(server: &Server, words: &[&str]) -> Option<Frame> {
    let options = ConnectionOptions {
        timeout: Some(Duration::from_millis(500)),
        ..ConnectionOptions::default()
    };
    let mut connection = Connection::connect(&server.address(), &options).ok()?;
    connection.call(["PING"]).ok()?;
    connection.call(words).ok()
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_backup_is_told_of_stopped_and_refused() {
    let folder = folder();
    let server = slow(folder.path());
    let path = |name: &str| folder.path().join(name);
    let name = |name: &str| path(name).to_str().expect("UTF-8").to_owned();
    let port = server.port.to_string();
    let refused = |dir: &str, parts: &[&str]| {
        assert_one_sentence(&nigh(&["backup", "--connect", &port, dir]), parts);
    };
    std::fs::write(path("file"), "x").expect("ours");
    std::fs::create_dir(path("full")).expect("ours");
    std::fs::write(path("full").join("mine"), "x").expect("ours");
    std::fs::create_dir(path("b.new")).expect("ours");
    std::fs::write(path("b.new").join("mine"), "x").expect("ours");
    refused(&name("file"), &["is a file"]);
    refused(&name("file/b"), &["file/b"]);
    refused(&name("none/b"), &["none/b", "make it first"]);
    refused(&name("data"), &["the log's folder"]);
    refused(&name("data/b"), &["the log's folder"]);
    refused(&name("full"), &["full has mine", "name another"]);
    refused(&name("b"), &["b.new has mine", "name another"]);
    let relative = server.call(&["BACKUP", "b"]);
    assert!(String::from_utf8_lossy(relative.error().expect("refused")).contains("absolute"));
    for words in [&["SAVE"][..], &["BGSAVE"], &["BGSAVE", "SCHEDULE"]] {
        let text = server.call(words);
        assert!(String::from_utf8_lossy(text.error().expect("refused")).contains("nigh backup"));
    }
    let reload = server.call(&["DEBUG", "RELOAD"]);
    assert!(String::from_utf8_lossy(reload.error().expect("refused")).contains("restore"));
    let nothing = server.call(&["BACKUP", "CANCEL"]);
    assert!(String::from_utf8_lossy(nothing.error().expect("refused")).contains("no backup"));
    assert_eq!(info(&server, "rdb_last_bgsave_status"), "err");
    // One is under way, and is stopped.
    let begun = server.call(&["BACKUP", &name("a")]);
    assert!(begun.integer().is_some(), "{begun:?}");
    wait_until("it copies", || text(&status(&server, "state")) == "copying");
    assert_eq!(info(&server, "rdb_bgsave_in_progress"), "1");
    assert_ne!(info(&server, "rdb_current_bgsave_time_sec"), "-1");
    refused(&name("c"), &["is under way"]);
    assert_eq!(server.call(&["BACKUP", "CANCEL"]), Frame::Simple(b"OK".to_vec()));
    wait_until("it is stopped", || text(&status(&server, "state")) == "failed");
    assert!(text(&status(&server, "error")).contains("stopped"));
    assert!(!path("a").exists() && !path("a.new").exists() && !path("c").exists());
    // A server that ends doesn't wait for it.
    assert!(server.call(&["BACKUP", &name("a")]).integer().is_some());
    wait_until("it copies", || text(&status(&server, "state")) == "copying");
    let begin = Instant::now();
    server.signal(rustix::process::Signal::TERM);
    let said = server.ended();
    assert!(begin.elapsed() < Duration::from_secs(3), "{said}");
    assert!(!path("a").exists() && !path("a.new").exists(), "{said}");
    assert_eq!(std::fs::read_dir(path("full")).expect("ours").count(), 1);
    assert_eq!(std::fs::read_dir(path("b.new")).expect("ours").count(), 1);
}

#[test]
fn a_killed_server_leaves_the_backup_before() {
    let folder = folder();
    let server = slow(folder.path());
    let backup = folder.path().join("backup");
    server.call(&["CONFIG", "SET", "backup-rate", "0"]);
    back_up(&server, &backup);
    let meta = std::fs::read(backup.join("meta")).expect("a backup");
    server.call(&["SET", "later", "1"]);
    server.call(&["CONFIG", "SET", "backup-rate", "1mb"]);
    let begun = server.call(&["BACKUP", backup.to_str().expect("UTF-8")]);
    assert!(begun.integer().is_some(), "{begun:?}");
    let made = folder.path().join("backup.new");
    wait_until("it has begun", || made.join("meta").exists() || made.exists());
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    assert!(made.exists(), "it was cut off");
    assert_whole(&backup);
    assert_eq!(std::fs::read(backup.join("meta")).expect("a backup"), meta);
    // The next one takes its place, and removes what is left.
    let server = start(folder.path(), &folder.path().join("data"));
    back_up(&server, &backup);
    assert!(!made.exists());
    assert_whole(&backup);
    // A restore that was killed as it began leaves its lock, which was in the way of the next.
    std::fs::create_dir(folder.path().join("restored")).expect("ours");
    std::fs::write(folder.path().join("restored/lock"), "").expect("ours");
    restore(&backup, &folder.path().join("restored"));
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("ours");
    let restored = start(&place, &folder.path().join("restored"));
    assert_eq!(text(&restored.call(&["GET", "later"])), "1");
    // What was restored stays as it is when something is to be restored over it.
    let output = nigh(&[
        "restore",
        backup.to_str().expect("UTF-8"),
        folder.path().join("restored").to_str().expect("UTF-8"),
    ]);
    assert_one_sentence(&output, &["isn't empty"]);
    // A backup isn't served.
    drop(restored);
    let flags = flags(&backup);
    let served = Server::spawn(&place, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, said) = served.ended_with_code();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nigh restore"), "{said}");
}

#[test]
fn without_a_log_there_is_nothing_to_back_up() {
    let folder = folder();
    let server = Server::start(folder.path());
    let dir = folder.path().join("backup");
    let port = server.port.to_string();
    let output = nigh(&["backup", "--connect", &port, dir.to_str().expect("UTF-8")]);
    assert_one_sentence(&output, &["appendonly"]);
    assert!(!dir.exists());
    assert!(server.call(&["BACKUP", "STATUS"]).is_null());
}

/// A disk without room for a backup is named, with what helps; nothing is left there.
#[test]
fn a_disk_without_room_for_a_backup_is_named() {
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let folder = folder();
    let server = start(folder.path(), &folder.path().join("data"));
    let dir = disk.path();
    let shown = dir.to_str().expect("UTF-8");
    let output = nigh(&["backup", "--connect", &server.port.to_string(), shown]);
    let named = format!("nigh: no backup: {shown}: the disk has no room for it: ");
    assert_one_sentence(&output, &[&named, ": free some, or name a folder on another disk"]);
    assert!(!dir.exists() && !dir.with_extension("new").exists());
}

/// A shard that doesn't come to the end of its turn lets no backup be made: it is given up with a
/// sentence, the others go on, and the next one is made when the call has ended.
#[test]
fn a_call_that_runs_for_long_lets_a_backup_be_given_up() {
    let folder = folder();
    let server = start(folder.path(), &folder.path().join("data"));
    let source = "#!js name=busy\nexport function busy(db, args, keys) { while (true) {} }\n";
    let mut connection = server.connect();
    for words in
        [&["CONFIG", "SET", "function-time-limit-ms", "3600000"][..], &["FUNCTION", "LOAD", source]]
    {
        let reply = connection.call(words).expect("up");
        assert!(reply.error().is_none(), "{reply:?}");
    }
    let backup = folder.path().join("backup");
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| server.call(&["FCALL", "busy", "1", "key"]));
        std::thread::sleep(Duration::from_millis(300));
        // A new connection may belong to the shard that is busy.
        let begun = || quickly(&server, &["BACKUP", backup.to_str().expect("UTF-8")]);
        wait_until("it begins", || begun().is_some_and(|reply| reply.error().is_none()));
        wait_until("it is given up", || {
            let Some(Frame::Array(status)) = quickly(&server, &["BACKUP", "STATUS"]) else {
                return false;
            };
            let texts = status.iter().filter_map(Frame::bytes).map(String::from_utf8_lossy);
            let parts = ["a function runs for long", "try again"];
            texts.into_iter().any(|text| parts.iter().all(|part| text.contains(part)))
        });
        assert!(!backup.exists());
        wait_until("it is killed", || {
            let reply = quickly(&server, &["FUNCTION", "KILL"]);
            reply.is_some_and(|reply| reply.error().is_none()) || calls.is_finished()
        });
        assert!(calls.join().expect("it ended").error().is_some());
        assert!(server.call(&["PING"]).error().is_none());
    });
    back_up(&server, &backup);
    assert_whole(&backup);
}

/// While a backup is copied, all that it has yet to copy goes out of date. The log keeps so many
/// bytes for it as `log-hold-size` says: with enough the backup is complete, and with none it ends,
/// and names the setting.
#[test]
fn a_log_keeps_for_a_backup_what_the_setting_says() {
    let folder = folder();
    let server = slow(folder.path());
    for (hold, rate, ends) in [("1gb", "2mb", "complete"), ("0", "1mb", "failed")] {
        let dir = folder.path().join(ends);
        for (name, value) in [("log-hold-size", hold), ("backup-rate", rate)] {
            let set = server.call(&["CONFIG", "SET", name, value]);
            assert_eq!(set, Frame::Simple(b"OK".to_vec()));
        }
        assert!(server.call(&["BACKUP", dir.to_str().expect("UTF-8")]).integer().is_some());
        wait_until("it copies", || text(&status(&server, "state")) == "copying");
        let mut connection = server.connect();
        for round in 0..2 {
            for key in 0..QUIET_KEYS {
                let value = format!("{round}").repeat(QUIET_BYTES);
                let set = connection.call(["SET", &format!("quiet{key}"), &value]).expect("up");
                assert_eq!(set, Frame::Simple(b"OK".to_vec()));
            }
        }
        wait_until("it ends", || {
            ["complete", "failed"].contains(&&*text(&status(&server, "state")))
        });
        let cause = text(&status(&server, "error"));
        assert_eq!(text(&status(&server, "state")), ends, "{cause}");
        assert_eq!(cause.contains("raise log-hold-size"), ends == "failed", "{cause}");
    }
    assert_whole(&folder.path().join("complete"));
}
