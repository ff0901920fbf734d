//! The log's folder at a start: the one that is taken unasked, and those that are refused.
//!
//! 1. A start without flags keeps a log in `nigh-data`, beside where it was started.
//! 2. A refused start has exit code 1 and says one sentence, which names the folder and `--dir`.
//!    Not a byte of the folder, nor of the arenas, is changed, but for the text of the file `lock`.
//! 3. `--appendonly no` is advised only where there is no log to lose.
//!
//! What needs the superuser is said and left out without.

use crate::support::{NIGH, Server, assert_one_sentence, folder, free_port, stderr};
use nigh_client::{Address, Connection, ConnectionOptions, Frame};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// A server that isn't refused ends after so many seconds.
const WAIT_S: &str = "8";

/// A folder on a disk.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk")
}

fn logged<'a>(dir: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let flags = ["--appendonly", "yes", "--dir", dir, "--maxmemory", "64mb"];
    let sizes = ["--shards", "1", "--journal-size", "1mb", "--log-file-size", "1mb"];
    // Wherever the build is.
    [&flags[..], &sizes, &["--log-on-tmpfs", "yes"], more].concat()
}

/// A log with a key, whose server has ended; arenas and journals are in `folder`.
fn make_log(folder: &Path, dir: &Path) {
    let server = Server::start_with(folder, &logged(text(dir), &[]));
    server.call(&["SET", "key", "value"]);
    server.signal(rustix::process::Signal::TERM);
    server.ended();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

/// Runs a server that is to be refused; `timeout` ends one that isn't.
fn refused(folder: &Path, flags: &[&str]) -> Output {
    refused_by(Command::new("timeout"), folder, flags)
}

fn refused_by(mut command: Command, folder: &Path, flags: &[&str]) -> Output {
    command.args([WAIT_S, NIGH, "serve", "--port", &free_port().to_string(), "--shm-dir"]);
    command.arg(folder.join("arenas")).args(flags);
    command.output().expect("coreutils are there")
}

/// Name, owner, mode and bytes of all that is in a folder.
type Content = BTreeMap<PathBuf, (u32, u32, Vec<u8>)>;

/// Nothing, if the folder isn't there.
fn content(dir: &Path) -> Content {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let files = entries.map(|entry| {
        let path = entry.expect("readable").path();
        let about = path.symlink_metadata().expect("it is there");
        let is_lock = path.ends_with("lock");
        let bytes = if is_lock { Vec::new() } else { std::fs::read(&path).expect("readable") };
        (path, (about.uid(), about.mode(), bytes))
    });
    files.collect()
}

/// The start is refused by one sentence with these parts, and changes nothing.
fn assert_untouched(folder: &Path, dir: &Path, flags: &[&str], parts: &[&str]) -> String {
    let (arenas, was_there) = (folder.join("arenas"), dir.exists());
    let before = (content(dir), content(&arenas));
    let output = refused(folder, flags);
    assert_one_sentence(&output, parts);
    let after = (content(dir), content(&arenas));
    assert_eq!(before.0.keys().collect::<Vec<_>>(), after.0.keys().collect::<Vec<_>>());
    assert!(before.0 == after.0, "the log's folder is as it was: {}", stderr(&output));
    // A start makes the arenas' folder and its lock.
    let mut arenas_after = after.1;
    arenas_after.remove(&arenas.join("lock"));
    let mut arenas_before = before.1;
    arenas_before.remove(&arenas.join("lock"));
    assert!(arenas_before == arenas_after, "the arenas are as they were: {}", stderr(&output));
    assert_eq!(dir.exists(), was_there, "it isn't made");
    stderr(&output)
}

/// A server that was started in a folder, with few flags. Dropping it ends it.
struct Plain {
    child: Child,
    address: Address,
}

impl Plain {
    fn start(folder: &Path, place: &Path) -> Self {
        let port = free_port();
        let said = folder.join("said");
        let file = std::fs::File::create(&said).expect("ours");
        let child = Command::new(NIGH)
            .args(["serve", "--port", &port.to_string(), "--maxmemory", "64mb", "--shm-dir"])
            .arg(folder.join("arenas"))
            .args(["--log-on-tmpfs", "yes"]) // wherever the build is
            .current_dir(place)
            .stderr(file)
            .spawn()
            .expect("the binary was built");
        let mut server = Self { child, address: Address::tcp("127.0.0.1", port) };
        let begin = Instant::now();
        while server.ask(&["PING"]).is_none() {
            let said = || std::fs::read_to_string(&said).unwrap_or_default();
            assert!(server.child.try_wait().expect("our child").is_none(), "{}", said());
            assert!(begin.elapsed() < Duration::from_secs(60), "no answer: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn ask(&self, words: &[&str]) -> Option<Frame> {
        let mut connection =
            Connection::connect(&self.address, &ConnectionOptions::default()).ok()?;
        connection.call(words).ok().filter(|reply| reply.error().is_none())
    }

    fn key(&self) -> Option<String> {
        let reply = self.ask(&["GET", "key"])?;
        reply.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
        assert!(self.child.wait().expect("our child").success());
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that is started without a word about that keeps a log: after the loss of all memory the
/// keys are there.
#[test]
fn a_server_keeps_a_log_unasked() {
    let (folder, place, elsewhere) = (folder(), disk(), disk());
    let server = Plain::start(folder.path(), place.path());
    // The folder was told as it is written, "nigh-data"; a client is in another one.
    let dir = place.path().canonicalize().expect("ours").join("nigh-data");
    for (name, value) in [("appendonly", "yes"), ("appendfsync", "everysec"), ("dir", text(&dir))] {
        let reply = server.ask(&["CONFIG", "GET", name]).expect("a reply");
        let items = reply.elements().expect("name and value");
        assert_eq!(items[1].bytes(), Some(value.as_bytes()), "{name}");
    }
    server.ask(&["SET", "key", "kept"]).expect("it is taken");
    drop(server);
    assert!(place.path().join("nigh-data/meta").is_file(), "beside where it was started");

    // A start from elsewhere doesn't begin another log.
    let mut command = Command::new("timeout");
    command.current_dir(elsewhere.path());
    let output = refused_by(command, folder.path(), &["--maxmemory", "64mb", "--log-on-tmpfs"]);
    assert_one_sentence(&output, &["--dir", text(elsewhere.path())]);
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("readable").count(), 0, "nothing made");

    // A killed server has left it in memory, and one that ended in the log.
    let server = Plain::start(folder.path(), place.path());
    assert_eq!(server.key().as_deref(), Some("kept"));
    server.end();
    std::fs::remove_dir_all(folder.path().join("arenas")).expect("ours");
    let server = Plain::start(folder.path(), place.path());
    assert_eq!(server.key().as_deref(), Some("kept"), "the log alone has it");
    // It said that it had created new arenas, as if they were empty.
    let said = std::fs::read_to_string(folder.path().join("said")).expect("ours");
    assert!(said.contains("built the arenas from the log") && !said.contains("created"), "{said}");
}

/// A log in the folder of the arenas, whose lock the server has already, is refused for what it is.
/// The sentence told to stop another server.
#[test]
fn a_log_among_the_arenas_is_refused() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let output = refused(folder.path(), &logged(text(&dir), &[]));
    let path = text(&dir);
    assert_one_sentence(
        &output,
        &["the log and the arenas can't share", path, "--dir", "--shm-dir"],
    );
}

/// Places where no log can be: the sentence names both ways out, and nothing is left there.
#[test]
fn a_place_that_cannot_have_a_log_is_refused() {
    let (folder, place) = (folder(), disk());
    let blocked = place.path().join("file");
    std::fs::write(&blocked, b"in the way").expect("a file");
    let below = blocked.join("log");
    let in_tmpfs = folder.path().join("log");
    for (dir, part) in [
        (blocked.as_path(), "folder failed"),
        (&below, "folder failed"),
        (Path::new("/proc/nigh-log"), "folder failed"),
        (&in_tmpfs, "tmpfs"),
    ] {
        let flags = ["--maxmemory", "64mb", "--appendonly", "yes", "--dir", text(dir)];
        assert_untouched(
            folder.path(),
            dir,
            &flags,
            &[text(dir), "--dir", "--appendonly no", part],
        );
    }
    assert_eq!(std::fs::read(&blocked).expect("it is there"), b"in the way");
}

/// Folders of logs that this server may not have.
#[test]
fn a_log_that_is_not_this_servers_is_left_alone() {
    let (folder, place) = (folder(), disk());
    let dir = place.path().join("log");
    let flags = logged(text(&dir), &[]);
    make_log(folder.path(), &dir);
    let meta = dir.join("meta");
    let good = std::fs::read(&meta).expect("a log");
    let other = crate::support::folder();

    // Of a later program.
    let newer = String::from_utf8_lossy(&good).replace("nigh-log 1\n", "nigh-log 9\n");
    std::fs::write(&meta, newer).expect("ours");
    assert_untouched(folder.path(), &dir, &flags, &["version 9", text(&dir)]);
    // Damaged, and missing beside files of a log.
    std::fs::write(&meta, &good[..good.len() / 2]).expect("ours");
    assert_untouched(folder.path(), &dir, &flags, &["meta, line", text(&dir)]);
    std::fs::remove_file(&meta).expect("ours");
    assert_untouched(folder.path(), &dir, &flags, &["no meta", text(&dir)]);
    std::fs::write(&meta, &good).expect("ours");

    // Another log than that of the arenas, and none.
    let foreign = place.path().join("foreign");
    make_log(other.path(), &foreign);
    let flags_of = logged(text(&foreign), &[]);
    let place_told = format!("; a server had it in {}", text(&dir));
    let parts = ["belongs to the log", "`dir`", &place_told];
    assert_untouched(folder.path(), &foreign, &flags_of, &parts);
    let none = place.path().join("none");
    let said = assert_untouched(
        folder.path(),
        &none,
        &logged(text(&none), &[]),
        &["belongs to the log", text(&none), &place_told],
    );
    assert!(!said.contains("appendonly no"), "that would give up a log: {said}");
    let retire = ["--appendonly", "no", "--maxmemory", "64mb", "--dir", text(&none)];
    assert_untouched(folder.path(), &none, &retire, &["belongs to the log", text(&none)]);

    // A file of another user.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&meta, Some(12_345), None).expect("root may");
        let parts = [text(&meta), "user 12345", "user 0", "chown", "--dir"];
        assert_untouched(folder.path(), &dir, &flags, &parts);
        std::os::unix::fs::chown(&meta, Some(0), None).expect("root may");
        let arena = folder.path().join("arenas/default.0.arena");
        let arena = if arena.exists() { arena } else { first_arena(folder.path()) };
        std::os::unix::fs::chown(&arena, Some(12_345), None).expect("root may");
        let parts = [text(&arena), "user 12345", "--shm-dir"];
        assert_untouched(folder.path(), &dir, &flags, &parts);
        std::os::unix::fs::chown(&arena, Some(0), None).expect("root may");
    } else {
        eprintln!("chown isn't allowed: files of another user aren't tested");
    }

    // In use; and all of this has done no harm.
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
    let third = crate::support::folder();
    let output = refused(third.path(), &flags);
    let pid = server.pid().as_raw_nonzero().to_string();
    assert_one_sentence(&output, &["another server", &pid, text(&dir), "--dir"]);
    assert_eq!(server.call(&["SET", "key", "still"]).error(), None);
}

/// A copy of the log's folder is put back that is some files older than what memory has. With the
/// arenas, and with the journals alone, the start is refused: the copy, continued, would lack all
/// between.
#[test]
fn a_log_that_is_an_older_copy_than_memory_is_refused() {
    let (folder, place) = (folder(), disk());
    let (dir, newer) = (place.path().join("log"), place.path().join("newer"));
    let flags = logged(text(&dir), &[]);
    make_log(folder.path(), &dir);
    let copy = content(&dir);
    let server = Server::start_with(folder.path(), &flags);
    let value = "v".repeat(10_000);
    for n in 0..500 {
        server.call(&["SET", &format!("key{n}"), &value]);
    }
    server.call(&["WAITAOF", "1", "0", "0"]);
    server.signal(rustix::process::Signal::KILL);
    server.ended();
    std::fs::rename(&dir, &newer).expect("it is ours");
    std::fs::create_dir(&dir).expect("it is ours");
    copy.iter().for_each(|(path, (_, _, bytes))| std::fs::write(path, bytes).expect("ours"));
    let told = ["older copy than the memory", "put the newer log back"];
    assert_untouched(folder.path(), &dir, &flags, &told);
    let arenas = folder.path().join("arenas");
    let is_arena = |path: &PathBuf| path.extension().is_some_and(|it| it == "arena");
    let kept: Vec<PathBuf> = content(&arenas).into_keys().filter(is_arena).collect();
    let aside = place.path().join("aside");
    std::fs::create_dir(&aside).expect("it is ours");
    let beside = |path: &Path| aside.join(path.file_name().expect("a file"));
    for path in &kept {
        std::fs::copy(path, beside(path)).expect("there is room");
        std::fs::remove_file(path).expect("it is ours");
    }
    assert_untouched(folder.path(), &dir, &flags, &told);
    // With the newer log all is there.
    kept.iter().for_each(|path| _ = std::fs::copy(beside(path), path).expect("there is room"));
    std::fs::remove_dir_all(&dir).expect("it is ours");
    std::fs::rename(&newer, &dir).expect("it is ours");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "key499"]).bytes(), Some(value.as_bytes()));
    assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
}

/// A refused start that has made the folder of the arenas removes it. It stayed, with a lock file.
#[test]
fn a_refused_start_leaves_no_folder_that_was_not_there() {
    let (folder, place) = (folder(), disk());
    let file = place.path().join("file");
    std::fs::write(&file, "in the way").expect("ours");
    let output = refused(folder.path(), &logged(text(&file), &[]));
    assert_one_sentence(&output, &[text(&file)]);
    assert!(!folder.path().join("arenas").exists());
    // One that was there stays.
    std::fs::create_dir(folder.path().join("arenas")).expect("ours");
    refused(folder.path(), &logged(text(&file), &[]));
    assert!(folder.path().join("arenas").is_dir());
}

fn first_arena(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder.join("arenas")).expect("it is there");
    let mut paths = entries.map(|entry| entry.expect("readable").path());
    paths.find(|path| path.extension().is_some_and(|it| it == "arena")).expect("arenas")
}

/// A folder into which only another user may look: its owner is named, and nothing is advised that
/// would give up the log in it. Run by the superuser, who drops all rights for it.
#[test]
fn a_folder_of_another_user_is_named_with_its_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("becoming another user isn't allowed: nothing is tested");
        return;
    }
    let (own, place) = (folder(), disk());
    let dir = place.path().join("log");
    make_log(own.path(), &dir);
    let before = content(&dir);
    let other = crate::support::folder();
    std::os::unix::fs::chown(other.path(), Some(12_345), Some(12_345)).expect("root may");
    // Others may go through it, and not look into it.
    let passed = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(place.path(), passed).expect("ours");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "12345", "--regid", "12345", "--clear-groups", "timeout"]);
    let output = refused_by(command, other.path(), &logged(text(&dir), &[]));
    if output.status.code() != Some(1) || stderr(&output).contains("failed to run") {
        eprintln!("another user can't run this: nothing is tested: {}", stderr(&output));
        return;
    }
    assert_one_sentence(&output, &[text(&dir), "user 0", "user 12345", "chown", "--dir"]);
    assert!(!stderr(&output).contains("appendonly no"), "that would give up a log");
    assert!(content(&dir) == before, "nothing is changed");
}

/// A disk that is mounted to be read only, and a folder that may not be written.
#[test]
fn a_folder_that_is_read_only_is_refused() {
    let (folder, place) = (folder(), disk());
    let dir = place.path().join("log");
    make_log(folder.path(), &dir);
    let flags = logged(text(&dir), &[]);
    let before = content(&dir);
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o500)).expect("ours");
        let said = assert_untouched(folder.path(), &dir, &flags, &["Permission denied", "--dir"]);
        assert!(!said.contains("appendonly no"), "that would give up a log: {said}");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).expect("ours");
        return;
    }
    // In a mount namespace of its own: what is mounted there goes with it.
    let script =
        "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec timeout \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, text(&dir)]);
    let output = refused_by(command, folder.path(), &flags);
    if ["unshare:", "mount:"].iter().any(|it| stderr(&output).contains(it)) {
        eprintln!("mounting isn't allowed: nothing is tested");
        return;
    }
    assert_one_sentence(&output, &["Read-only file system", text(&dir), "--dir"]);
    assert!(!stderr(&output).contains("appendonly no"), "that would give up a log");
    assert!(content(&dir) == before, "nothing is changed");
    let server = Server::start_with(folder.path(), &flags);
    assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
}

/// Docker's /dev/shm has 64 MiB unless told otherwise. A server that can't have its arenas and
/// journals there says so, and names Docker's flag; one that fits there serves.
#[test]
fn a_small_tmpfs_is_refused_with_dockers_flag() {
    let (folder, place) = (folder(), disk());
    let inner = folder.path().join("small");
    std::fs::create_dir(&inner).expect("ours");
    let script = "mount -t tmpfs -o size=64m tmpfs \"$0\" && exec timeout \"$@\"";
    let run = |flags: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, text(&inner)]);
        refused_by(command, &inner, flags)
    };
    let dir = place.path().join("log");
    let base = ["--dir", text(&dir), "--log-on-tmpfs", "yes", "--shards", "1"];
    let output = run(&base);
    if ["unshare:", "mount:"].iter().any(|it| stderr(&output).contains(it)) {
        eprintln!("mounting isn't allowed: nothing is tested");
        return;
    }
    // The journal alone has 64 MiB.
    let parts = ["journals (65 MiB)", "64 MiB", "--shm-size", "--maxmemory", "--journal-size"];
    assert_one_sentence(&output, &parts);
    assert!(!dir.exists(), "no log is begun");
    let output = run(&[&base[..], &["--journal-size", "8mb", "--maxmemory", "60mb"]].concat());
    assert_one_sentence(&output, &["--shm-size", "--maxmemory", "arenas (60 MiB)"]);
    // Smaller ones serve, until `timeout` ends them by SIGTERM.
    for flags in [&["--journal-size", "8mb"][..], &["--appendonly", "no"]] {
        let output = run(&[&base[..], flags].concat());
        assert!(stderr(&output).contains("ready"), "{}", stderr(&output));
    }
}
