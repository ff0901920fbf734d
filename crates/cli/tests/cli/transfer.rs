//! `nigh import` and `nigh export` where Redis isn't needed: sources that end, files of others.
//! What Redis makes is tested in `tests/clients`.

use crate::support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
    // One that fails leaves nothing of its own.
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).expect("the folder is ours");
    std::fs::write(taken.join("x"), "").expect("the folder is ours");
    let before = names(folder.path());
    let output = nigh(&["export", taken.to_str().expect("UTF-8"), "--connect", &port]);
    assert_one_sentence(&output, &["can't write", "taken"]);
    assert_eq!(names(folder.path()), before);
    assert_eq!(std::fs::read(&part).ok().as_deref(), Some(&b"mine"[..]));
}
