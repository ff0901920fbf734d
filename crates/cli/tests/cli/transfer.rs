//! `nigh import` and `nigh export` where Redis isn't needed: sources that end, files of others.
//! What Redis makes is tested in `tests/clients`.

use crate::support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Longest wait for what must end by itself.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs nigh at this server.
fn start(server: &Server, arguments: &[&str]) -> Child {
    Command::new(NIGH)
        .args(arguments)
        .args(["--connect", &server.port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built")
}

/// Ctrl-C amid an AOF ended the import in silence, and left each key that has an expiry with one in
/// the year 37,000.
#[test]
fn an_interrupted_import_of_an_aof_says_how_to_mend_the_expiries() {
    const EXPIRY_MS: &str = "4102444800000";
    let folder = folder();
    let server = Server::start(folder.path());
    let mut commands = Vec::new();
    for n in 0..100_000 {
        let key = format!("key:{n}");
        nigh_resp::encode::request(&mut commands, ["SET", &key, "v", "PXAT", EXPIRY_MS]);
    }
    // It depends on what was there before, so expiries are put off.
    nigh_resp::encode::request(&mut commands, ["INCR", "n"]);
    let path = folder.path().join("aof");
    std::fs::write(&path, commands).expect("the folder is ours");
    let file = path.to_str().expect("UTF-8");
    let mut import = start(&server, &["import", file]);
    let begin = Instant::now();
    while server.call(&["DBSIZE"]).integer() == Some(0) {
        assert!(import.try_wait().expect("it is our child").is_none(), "it has ended");
        assert!(begin.elapsed() < LIMIT, "the import begins nothing");
    }
    // It can't end before the signal has come.
    server.signal(Signal::STOP);
    kill_process(Pid::from_child(&import), Signal::INT).expect("it is our child");
    server.signal(Signal::CONT);
    let output = import.wait_with_output().expect("it is our child");
    assert_one_sentence(&output, &["import ended after", "interrupted", "again with --replace"]);
    let expiry = || server.call(&["PEXPIRETIME", "key:0"]).integer();
    assert!(expiry() > Some(1 << 50), "{:?}", expiry());
    let again = start(&server, &["import", "--replace", file]);
    let output = again.wait_with_output().expect("it is our child");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(expiry(), EXPIRY_MS.parse().ok());
}

/// A dump that is cut off within a short value ends the import at once, without a timeout too. Half
/// a command was sent, and its reply awaited for ever.
#[test]
fn a_dump_that_ends_within_a_short_value_ends_the_import() {
    let folder = folder();
    let server = Server::start(folder.path());
    let cut = b"REDIS0009\0\x01a\x011\0\x01b\x0a12345";
    for timeout in ["0", "30"] {
        let mut import = start(&server, &["import", "-", "--timeout", timeout]);
        let mut stdin = import.stdin.take().expect("it is piped");
        stdin.write_all(cut).expect("it reads");
        drop(stdin);
        let begin = Instant::now();
        while import.try_wait().expect("it is our child").is_none() {
            if begin.elapsed() > LIMIT {
                import.kill().expect("it is our child");
                panic!("the import waits for ever");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = import.wait_with_output().expect("it is our child");
        assert_one_sentence(&output, &["import ended after 1 writes: stdin: ", "offset 23"]);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
    assert!(server.call(&["GET", "b"]).is_null());
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is ours");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The keys of an exported file whose commands are all whole SETs.
fn keys(file: &Path) -> usize {
    let text = std::fs::read(file).expect("it is there");
    let mut rest = text.as_slice();
    let mut line = || {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let line = &rest[..end];
        rest = &rest[end + 2..];
        Some(line)
    };
    let mut keys = 0;
    while let Some(count) = line() {
        assert_eq!(count, b"*3");
        assert_eq!((line(), line()), (Some(&b"$3"[..]), Some(&b"SET"[..])));
        (0..4).for_each(|_| assert!(line().is_some(), "the last command isn't whole"));
        keys += 1;
    }
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
    keys
}

/// Two exports to one name wrote into one file, since the part of each had the same name: the first
/// that ended gave it its name, and the other wrote on.
#[test]
fn exports_to_one_name_at_once_leave_one_whole_file() {
    let folder = folder();
    let server = Server::start(folder.path());
    let value = "v".repeat(1000);
    let sets = (0..20_000).map(|n| ["SET".to_owned(), format!("key:{n}"), value.clone()]);
    server.connect().pipeline(sets).expect("the server is up");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let path = dir.path().join("all");
    let file = path.to_str().expect("UTF-8");
    let first = start(&server, &["export", file]);
    // The second is in its midst when the first ends.
    let begin = Instant::now();
    while names(dir.path()).is_empty() {
        assert!(begin.elapsed() < LIMIT, "no export begins");
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    let second = start(&server, &["export", file]);
    while !path.exists() {
        assert!(begin.elapsed() < LIMIT, "no export ends");
        std::thread::yield_now();
    }
    let kept = dir.path().join("kept");
    std::fs::hard_link(&path, &kept).expect("the folder is ours");
    for export in [first, second] {
        let output = export.wait_with_output().expect("it is our child");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert_eq!((keys(&kept), keys(&path)), (20_000, 20_000));
    assert_eq!(names(dir.path()), ["all", "kept"]);
}

/// A file of the user's that has the name of a part was emptied, and removed if the export failed.
#[test]
fn an_export_leaves_other_files_alone() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.call(&["SET", "a", "1"]);
    let path = folder.path().join("all");
    let file = path.to_str().expect("UTF-8");
    let part = folder.path().join("all.part");
    std::fs::write(&part, "mine").expect("the folder is ours");
    let port = server.port.to_string();
    let output = nigh(&["export", file, "--connect", &port]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!((keys(&path), std::fs::read(&part).ok().as_deref()), (1, Some(&b"mine"[..])));
    // A folder is refused, and an export that fails leaves nothing of its own: here no file may
    // have more than some hundred bytes.
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).expect("the folder is ours");
    let before = names(folder.path());
    let output = nigh(&["export", taken.to_str().expect("UTF-8"), "--connect", &port]);
    assert_one_sentence(&output, &["can't write", "taken", "is a folder"]);
    server.call(&["SET", "b", &"v".repeat(10_000)]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"", NIGH]);
    let output = shell.args(["export", file, "--connect", &port]).output().expect("a shell");
    assert_one_sentence(&output, &["can't write", "all.part-"]);
    assert_eq!((names(folder.path()), keys(&path)), (before, 1));
    assert_eq!(std::fs::read(&part).ok().as_deref(), Some(&b"mine"[..]));
}

/// An export replaced a FIFO, whose reader waited for ever, and a device. The bytes go into it.
#[test]
fn an_export_into_a_fifo_reaches_its_reader() {
    let folder = folder();
    let server = Server::start(folder.path());
    let sets = (0..1000).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".repeat(500)]);
    server.connect().pipeline(sets).expect("the server is up");
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the folder is ours");
    let (sender, received) = channel();
    let from = fifo.clone();
    std::thread::spawn(move || sender.send(std::fs::read(from).expect("it is there")));
    let port = server.port.to_string();
    let output = nigh(&["export", fifo.to_str().expect("UTF-8"), "--connect", &port]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let copy = folder.path().join("copy");
    let bytes = received.recv_timeout(LIMIT).expect("the reader gets all, and an end");
    std::fs::write(&copy, bytes).expect("the folder is ours");
    assert_eq!(keys(&copy), 1000);
    assert!(fifo.symlink_metadata().expect("it is there").file_type().is_fifo());
}

/// What has no room names what was to be written. It said `can't write: no space left`.
#[test]
fn an_export_without_room_names_the_file() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.call(&["SET", "a", &"v".repeat(1 << 20)]);
    let port = server.port.to_string();
    let output = nigh(&["export", "/dev/full", "--connect", &port]);
    assert_one_sentence(&output, &["can't write /dev/full", "No space left"]);
}

/// An import waited for ever for somebody to write into a FIFO: one that it was given, one that is
/// a manifest, and one that a manifest names.
#[test]
fn an_import_waits_for_no_fifo() {
    let folder = folder();
    let server = Server::start(folder.path());
    let [fifo, manifest, naming] =
        ["fifo", "a.manifest", "b.manifest"].map(|name| folder.path().join(name));
    for fifo in [&fifo, &manifest] {
        mknodat(CWD, fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is ours");
    }
    std::fs::write(&naming, "file fifo seq 1 type i\n").expect("the folder is ours");
    for path in [&fifo, &manifest, &naming] {
        let mut import = start(&server, &["import", path.to_str().expect("UTF-8")]);
        let begin = Instant::now();
        while import.try_wait().expect("it is our child").is_none() {
            if begin.elapsed() > LIMIT {
                import.kill().expect("it is our child");
                panic!("it waits for {}", path.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = import.wait_with_output().expect("it is our child");
        assert_one_sentence(&output, &["can't read", "no regular file"]);
    }
}

/// An export replaced a link by a file. The file that it names is written; a link to nothing is
/// refused.
#[test]
fn an_export_through_a_link_leaves_the_link() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.call(&["SET", "a", "1"]);
    let port = server.port.to_string();
    let [far, link, lost] = ["far", "link", "lost"].map(|name| folder.path().join(name));
    std::fs::create_dir(&far).expect("the folder is ours");
    let real = far.join("real");
    std::fs::write(&real, "before").expect("the folder is ours");
    symlink("far/real", &link).expect("the folder is ours");
    let output = nigh(&["export", link.to_str().expect("UTF-8"), "--connect", &port]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read_link(&link).expect("it is a link"), Path::new("far/real"));
    assert_eq!((keys(&real), names(&far)), (1, vec!["real".to_owned()]));
    symlink("nowhere", &lost).expect("the folder is ours");
    let output = nigh(&["export", lost.to_str().expect("UTF-8"), "--connect", &port]);
    assert_one_sentence(&output, &["can't write", "lost", "link"]);
    assert!(lost.is_symlink() && !folder.path().join("nowhere").exists());
}

/// An export replaced a file that only its owner could read by one that all could.
#[test]
fn an_export_has_the_permissions_of_the_file_that_it_replaces() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let file = folder.path().join("dump");
    let mode = || file.metadata().expect("it is there").permissions().mode() & 0o777;
    let export = || {
        let output = nigh(&["export", file.to_str().expect("UTF-8"), "--connect", &port]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    };
    export();
    assert_eq!(mode(), 0o600, "a new one is its owner's");
    for kept in [0o600, 0o640] {
        std::fs::set_permissions(&file, Permissions::from_mode(kept)).expect("it is ours");
        export();
        assert_eq!(mode(), kept);
    }
}

/// A source whose address names a database was refused by "Nigh has database 0 alone". It names the
/// one to import, as `--db` does.
#[test]
fn a_sources_address_names_its_database() {
    let folder = folder();
    let server = Server::start(folder.path());
    let source = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = source.local_addr().expect("it is bound").port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = source.accept().expect("it connects");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).expect("REPLCONF");
        stream.write_all(b"+OK\r\n").expect("it reads");
        let _ = stream.read(&mut request).expect("PSYNC");
        // Key a in database 0, b in database 3.
        let dump = b"REDIS0009\xfe\0\0\x01a\x01x\xfe\x03\0\x01b\x01y\xff\0\0\0\0\0\0\0\0";
        let head = format!("+FULLRESYNC 0 0\r\n${}\r\n", dump.len());
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.write_all(dump).expect("it reads");
    });
    let address = format!("redis://127.0.0.1:{port}/3");
    let to = server.port.to_string();
    let output = nigh(&["import", &address, "--skip-others", "--connect", &to]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serving.join().expect("it was asked");
    assert!(server.call(&["GET", "a"]).is_null());
    assert_eq!(server.call(&["GET", "b"]).bytes(), Some(&b"y"[..]));
}

/// Flags of `nigh import` that had no effect on their source are refused.
#[test]
fn no_flag_of_an_import_is_passed_over() {
    let folder = folder();
    let server = Server::start(folder.path());
    let dump = folder.path().join("dump.rdb");
    std::fs::write(&dump, b"REDIS0009\xff\0\0\0\0\0\0\0\0").expect("the folder is ours");
    let file = dump.to_str().expect("UTF-8");
    let server_url = "redis://127.0.0.1:1/3";
    for (words, parts) in [
        (&[file, "--source-password", "x"][..], ["--source-password", "running source"]),
        (&["-", "--source-password", "x"], ["--source-password", "running source"]),
        (&[server_url, "--allow-truncated"], ["--allow-truncated", "AOF"]),
        (&["-", "--allow-truncated"], ["--allow-truncated", "AOF"]),
        (&[server_url, "--db", "2"], ["--db", "database 3"]),
        (&["redis://127.0.0.1:1/x"], ["redis://127.0.0.1:1/x", "'x' is no database"]),
    ] {
        let output = nigh(&[&["import"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
    }
    let output =
        nigh(&["import", file, "--allow-truncated", "--connect", &server.port.to_string()]);
    assert_one_sentence(&output, &["is an RDB file", "leave --allow-truncated out"]);
}
