//! `nigh check FOLDER --salvage OUT`, run as a user runs it: a server's log is spoilt, a start
//! refuses it, and what was saved of it is served.
//!
//! 1. The damaged folder is never touched.
//! 2. OUT is there when it is whole, and only then.
//! 3. What is served of a shard is what it had at one moment: all that it had before the cut.

use crate::support::{Server, assert_one_sentence, folder, nigh, stderr, stdout};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Keys, and bytes of a value: some files of each shard's log.
const KEYS: usize = 600;
const VALUE_BYTES: usize = 10_000;
/// Where a file's first frame begins, and the one behind it.
const BEGIN: usize = 4096;
const FIRST: usize = 8192;
/// The exit code of a copy that lacks something.
const LOST: Option<i32> = Some(3);

/// All files of a folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(dir: &Path) -> Files {
    let entries =
        std::fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("readable"));
    entries.map(|it| (it.path(), std::fs::read(it.path()).expect("readable"))).collect()
}

/// All files of a log's folder but `lock`, which says who had it last.
fn log_of(dir: &Path) -> Files {
    let mut log = files(dir);
    log.remove(&dir.join("lock"));
    log
}

/// The log files of a shard, the oldest first.
fn log_files(dir: &Path, shard: usize) -> Vec<PathBuf> {
    let of_shard = format!("-s{shard:02}-");
    let is_of = |path: &&PathBuf| path.to_string_lossy().contains(&of_shard);
    files(dir).keys().filter(is_of).cloned().collect()
}

/// Those of a folder that may not be there.
fn log_files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some("log".as_ref()))
        .collect()
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

fn value(number: usize) -> String {
    format!("{number}:").repeat(VALUE_BYTES).chars().take(VALUE_BYTES).collect()
}

fn serve(folder: &Path, dir: &Path) -> Server {
    let dir = dir.to_str().expect("a path of ours");
    std::fs::create_dir_all(folder).expect("the folder is ours");
    let flags = [
        ["--appendonly", "yes"],
        ["--dir", dir],
        ["--log-on-tmpfs", "yes"],
        ["--journal-size", "1mb"],
        ["--log-file-size", "1mb"],
        ["--log-garbage", "1000"],
        ["--maxmemory", "256mb"],
        ["--partitions", "2"],
        ["--shards", "2"],
    ];
    Server::spawn(folder, &flags.concat())
}

/// A log of a server that ended, beside its arenas.
struct Story {
    folder: tempfile::TempDir,
    sound: Files,
}

impl Story {
    fn new() -> Story {
        let folder = folder();
        let mut story = Story { folder, sound: Files::new() };
        let mut server = serve(story.folder.path(), &story.dir());
        server.wait();
        let mut connection = server.connect();
        for number in 0..KEYS {
            let reply = connection.call(["SET", &key(number), &value(number)]).expect("it is up");
            assert_eq!(reply.bytes(), Some(&b"OK"[..]));
        }
        let _ = connection.call(["SHUTDOWN"]);
        server.ended();
        story.sound = files(&story.dir());
        story
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    /// Spoils the log as it was.
    fn spoil(&self, spoil: impl FnOnce(&Path)) {
        let dir = self.dir();
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("the folder is ours");
        for (path, bytes) in &self.sound {
            std::fs::write(path, bytes).expect("the folder is ours");
        }
        spoil(&dir);
    }

    /// A server refuses it, changes nothing in it, and says what to do. `arenas` is where that has
    /// its arenas.
    fn refused(&self, arenas: &str) -> String {
        let before = log_of(&self.dir());
        let server = serve(&self.folder.path().join(arenas), &self.dir());
        let (code, said) = server.ended_with_code();
        assert_eq!(code, Some(1), "{said}");
        let behind = log_of(&self.dir());
        let names = |of: &Files| of.keys().map(|path| shown(path)).collect::<Vec<_>>();
        assert_eq!(names(&behind), names(&before), "a refused start leaves files");
        assert!(behind == before, "a refused start has changed the log");
        let advice = format!("nigh check {} --salvage", self.dir().display());
        let last = said.trim_end().lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(&advice), "{said}");
        last
    }

    fn salvage(&self) -> Output {
        let before = files(&self.dir());
        let output = salvage(&self.dir(), &self.out());
        assert!(files(&self.dir()) == before, "the damaged log was touched");
        output
    }

    /// What was saved is served; returns the numbers of the keys that it has.
    fn served(&self) -> Vec<usize> {
        let arenas = self.folder.path().join("fresh");
        let _ = std::fs::remove_dir_all(&arenas);
        let mut server = serve(&arenas, &self.out());
        server.wait();
        let mut connection = server.connect();
        let mut there = Vec::new();
        for number in 0..KEYS {
            let reply = connection.call(["GET", &key(number)]).expect("it is up");
            if let Some(bytes) = reply.bytes() {
                assert!(bytes == value(number).as_bytes(), "{} has another value", key(number));
                there.push(number);
            }
        }
        let reply = connection.call(["SET", "new", "1"]).expect("it is up");
        assert_eq!(reply.bytes(), Some(&b"OK"[..]));
        let _ = connection.call(["SHUTDOWN"]);
        server.ended();
        std::fs::remove_dir_all(&arenas).expect("the folder is ours");
        std::fs::remove_dir_all(self.out()).expect("it is there");
        there
    }
}

fn salvage(dir: &Path, out: &Path) -> Output {
    let [dir, out] = [dir, out].map(|path| path.to_str().expect("a path of ours"));
    nigh(&["check", dir, "--salvage", out])
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("readable");
    bytes[at] ^= 16;
    std::fs::write(path, bytes).expect("writable");
}

fn shown(path: &Path) -> String {
    path.file_name().expect("a file").to_string_lossy().into_owned()
}

/// Each kind of damage, in an old file of shard 0: a start without arenas refuses, and what was
/// saved has all of shard 1 and the older part of shard 0.
#[test]
fn what_is_saved_of_each_kind_of_damage_is_served() {
    let story = Story::new();
    let files = log_files(&story.dir(), 0);
    assert!(files.len() >= 4, "{files:?}");
    let (first, second) = (&files[0], &files[1]);
    let middle = |path: &Path| std::fs::read(path).expect("readable").len() / 2;
    let used = middle(second);
    type Damage<'a> = (&'a str, &'a Path, &'a dyn Fn(), &'a str);
    let damages: [Damage<'_>; 8] = [
        ("head", second, &|| flip(second, 100), "lost"),
        ("version", second, &|| flip(second, 9), "lost"),
        ("begin", second, &|| flip(second, BEGIN + 20), "offset 4096"),
        ("frame", second, &|| flip(second, FIRST + 40), "cut at"),
        ("payload", second, &|| flip(second, used), "cut at"),
        (
            "zeros",
            second,
            &|| {
                let mut bytes = std::fs::read(second).expect("readable");
                bytes[used..].fill(0);
                std::fs::write(second, bytes).expect("writable");
            },
            "cut at",
        ),
        (
            "cut off",
            second,
            &|| {
                let file = std::fs::File::options().write(true).open(second).expect("writable");
                file.set_len(used as u64).expect("writable");
            },
            "cut at",
        ),
        ("missing", second, &|| std::fs::remove_file(second).expect("it is there"), "all of it"),
    ];
    let mut counts = Vec::new();
    for (kind, path, damage, told) in damages {
        story.spoil(|_| damage());
        // A wrong version may be a newer one's, as far as a start knows.
        let refusal = match kind {
            "version" => serve(&story.folder.path().join("none"), &story.dir()).ended(),
            _ => story.refused("none"),
        };
        assert!(refusal.contains(&shown(path)), "{kind}: {refusal}");
        let output = story.salvage();
        let (said, error) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), LOST, "{kind}: {said}{error}");
        assert!(said.contains(&shown(path)) && said.contains(told), "{kind}: {said}");
        assert!(said.contains("lost: default, partition 0: LSNs "), "{kind}: {said}");
        assert!(said.contains("shard 1: ") && said.contains("all that a start would have"));
        let there = story.served();
        // Each shard has what it had at one moment, and shard 1 all.
        let lost: Vec<usize> = (0..KEYS).filter(|number| !there.contains(number)).collect();
        let cut = *lost.first().unwrap_or_else(|| panic!("{kind}: nothing is lost"));
        assert!(cut > 0 && lost.len() < KEYS, "{kind}: {} keys are lost", lost.len());
        let of_last: Vec<usize> = (cut..KEYS).filter(|number| !lost.contains(number)).collect();
        assert!(!of_last.is_empty(), "{kind}: shard 1 was cut too");
        counts.push((kind, there.len()));
    }
    // What can be read of the file is saved.
    let of = |kind: &str| counts.iter().find(|it| it.0 == kind).expect("it is one").1;
    assert!(of("cut off") > of("head") && of("payload") > of("frame"), "{counts:?}");
    assert!(of("head") == of("missing") && of("head") == of("version"), "{counts:?}");
    // The oldest file: nothing of shard 0 is saved.
    story.spoil(|_| std::fs::remove_file(first).expect("it is there"));
    let output = story.salvage();
    assert_eq!(output.status.code(), LOST, "{}", stderr(&output));
    assert!(story.served().len() > KEYS / 4);
}

/// The newest file, with the arenas there: the refusal names both ways out, and both work.
#[test]
fn arenas_that_are_whole_go_on_without_the_damaged_log() {
    let story = Story::new();
    let newest = |dir: &Path| {
        let is_begun =
            |path: &&PathBuf| std::fs::read(path).expect("readable")[BEGIN..].starts_with(b"NFR1");
        log_files(dir, 0).iter().rfind(is_begun).expect("one was begun").clone()
    };
    story.spoil(|dir| flip(&newest(dir), FIRST + 40));
    let refusal = story.refused(".");
    assert!(refusal.contains("--appendonly no goes on with them"), "{refusal}");
    let checked = nigh(&["check", story.dir().to_str().expect("ours")]);
    assert!(stdout(&checked).contains("--salvage NEW"), "{}", stdout(&checked));
    let output = story.salvage();
    assert_eq!(output.status.code(), LOST, "{}{}", stdout(&output), stderr(&output));
    // The arenas are of the damaged log.
    let said = serve(story.folder.path(), &story.out()).ended();
    assert!(said.contains("belongs to the log"), "{said}");
    assert!(story.served().len() < KEYS);
    // Memory has all.
    let dir = story.dir();
    let flags =
        ["--dir", dir.to_str().expect("ours"), "--log-on-tmpfs", "yes", "--maxmemory", "256mb"];
    let flags = [&flags[..], &["--partitions", "2", "--shards", "2"]].concat();
    let server = Server::start_with(story.folder.path(), &flags);
    let _ = server.connect().call(["SHUTDOWN"]);
    server.ended();
    let mut server = serve(story.folder.path(), &dir);
    server.wait();
    assert_eq!(server.call(&["DBSIZE"]).integer(), Some(KEYS as i64));
}

/// A log without damage is copied without loss, exit code 0. Without meta nothing is.
#[test]
fn a_sound_log_loses_nothing_and_one_without_meta_all() {
    let story = Story::new();
    let output = story.salvage();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(!stdout(&output).contains("lost"), "{}", stdout(&output));
    assert_eq!(story.served().len(), KEYS);
    story.spoil(|dir| std::fs::remove_file(dir.join("meta")).expect("it is there"));
    assert_one_sentence(&story.salvage(), &["no meta", "nothing can be saved", "secret"]);
    story.spoil(|dir| flip(&dir.join("meta"), 30));
    assert_one_sentence(&story.salvage(), &["meta, line", "nothing can be saved"]);
    assert!(!story.out().exists() && !story.folder.path().join("saved.new").exists());
}

/// OUT that is a link to an empty folder was taken; the copy was made beside the link, couldn't get
/// its name in the end, and stayed in the way of the next one.
#[test]
fn a_salvage_into_a_link_is_where_the_link_leads() {
    let story = Story::new();
    story.spoil(|_| ());
    let far = story.folder.path().join("far");
    std::fs::create_dir_all(far.join("empty")).expect("the folder is ours");
    let link = story.folder.path().join("link");
    std::os::unix::fs::symlink("far/empty", &link).expect("the folder is ours");
    let output = salvage(&story.dir(), &link);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(link.is_symlink() && far.join("empty/meta").exists() && link.join("meta").exists());
    assert!(!story.folder.path().join("link.new").exists());
    std::os::unix::fs::symlink("nowhere", story.folder.path().join("lost")).expect("it is ours");
    let lost = salvage(&story.dir(), &story.folder.path().join("lost"));
    assert_one_sentence(&lost, &["can't look at", "lost"]);
}

/// Places where no copy may be made are refused before anything is done.
#[test]
fn a_folder_that_has_something_or_cant_be_made_is_refused() {
    let story = Story::new();
    let refused = |out: &Path, part: &str| {
        assert_one_sentence(&salvage(&story.dir(), out), &[part]);
    };
    let full = story.folder.path().join("full");
    std::fs::create_dir(&full).expect("the folder is ours");
    std::fs::write(full.join("file"), "kept").expect("the folder is ours");
    refused(&full, "isn't empty");
    assert_eq!(std::fs::read(full.join("file")).expect("it is there"), b"kept");
    refused(&full.join("file"), "can't use");
    refused(&full.join("none").join("out"), "can't look at");
    refused(&story.dir(), "own folder");
    refused(&story.dir().join("out"), "own folder");
    refused(Path::new("/proc/out"), "can't make /proc/out.new");
    // What another program put in the way stays.
    std::fs::create_dir(story.folder.path().join("saved.new")).expect("the folder is ours");
    std::fs::write(story.folder.path().join("saved.new/mine"), "kept").expect("the folder is ours");
    refused(&story.out(), "in the way");
    // And so does another log, or a whole copy: it was removed.
    let other = story.folder.path().join("saved.new");
    std::fs::remove_file(other.join("mine")).expect("it is there");
    for (path, bytes) in &story.sound {
        std::fs::write(other.join(path.file_name().expect("a file")), bytes).expect("it is ours");
    }
    refused(&story.out(), "in the way");
    assert_eq!(files(&other).len(), story.sound.len());
    assert!(files(&story.dir()) == story.sound);
    // A running server's log isn't touched.
    let mut server = serve(story.folder.path(), &story.dir());
    server.wait();
    refused(&full.join("out"), "in use");
}

/// A disk that has no room for the copy: one sentence, and nothing is left of it.
#[test]
fn a_full_disk_leaves_no_copy() {
    let story = Story::new();
    let disk = folder();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(disk.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("mounting isn't allowed: nothing is tested");
        return;
    }
    let output = salvage(&story.dir(), &disk.path().join("out"));
    let left = std::fs::read_dir(disk.path()).map(Iterator::count);
    let unmounted = Command::new("umount").arg(disk.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_one_sentence(&output, &["can't be written", "No space left"]);
    assert_eq!(left.expect("it was there"), 0);
}

/// A salvage that is killed at some moment leaves no OUT, or a whole one. What it leaves beside
/// is served by nobody, and the next salvage goes through.
#[test]
fn a_killed_salvage_is_no_log() {
    let story = Story::new();
    story.spoil(|dir| flip(&log_files(dir, 0)[1], FIRST + 40));
    let new = story.folder.path().join("saved.new");
    let mut unfinished = 0;
    for trial in 0..24 {
        let _ = std::fs::remove_dir_all(&new);
        let mut child = Command::new(crate::support::NIGH)
            .arg("check")
            .arg(story.dir())
            .arg("--salvage")
            .arg(story.out())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary was built");
        let begin = Instant::now();
        while log_files_of(&new).is_empty() && !story.out().exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the salvage begins nothing");
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_millis(trial));
        let _ = child.kill();
        child.wait().expect("it is our child");
        if story.out().exists() {
            let checked = nigh(&["check", story.out().to_str().expect("ours")]);
            assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
            std::fs::remove_dir_all(story.out()).expect("it is there");
            continue;
        }
        if new.join("meta").exists() {
            continue;
        }
        if log_files_of(&new).is_empty() {
            continue;
        }
        unfinished += 1;
        let arenas = story.folder.path().join("none");
        let (code, said) = serve(&arenas, &new).ended_with_code();
        assert!(code == Some(1) && said.contains("no meta"), "{said}");
    }
    assert!(unfinished > 0, "no salvage was cut off in the middle");
    // A rest is in the way of nobody.
    let _ = std::fs::remove_dir_all(&new);
    std::fs::create_dir(&new).expect("the folder is ours");
    std::fs::write(new.join("g1-s00-0000000001.log"), "a rest").expect("the folder is ours");
    let output = story.salvage();
    assert_eq!(output.status.code(), LOST, "{}", stderr(&output));
    assert!(!new.exists());
    assert!(!story.served().is_empty());
}
