//! One arena is missing, and others are there.

use crate::support::{
    NIGH, Server, assert_one_sentence, folder, free_port, nigh, stdout, wait_for_starts,
};
use std::path::{Path, PathBuf};

fn refused(dir: &Path, parts: &[&str]) {
    let (dir, port) = (dir.to_str().expect("UTF-8"), free_port().to_string());
    let before = names(dir.as_ref());
    // If the server serves instead of refusing, `timeout` ends it.
    let mut command = std::process::Command::new("timeout");
    command.args(["20", NIGH, "serve", "--port", &port, "--shm-dir", dir, "--maxmemory", "64mb"]);
    command.args(["--appendonly", "no"]);
    assert_one_sentence(&command.output().expect("coreutils are there"), parts);
    let checked = nigh(&["check", dir]);
    assert_eq!(checked.status.code(), Some(1), "{}", stdout(&checked));
    assert!(parts.iter().all(|part| stdout(&checked).contains(part)), "{}", stdout(&checked));
    assert_eq!(names(dir.as_ref()), before, "nothing is put in its place");
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("it is there");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    names.sort();
    names
}

/// The arena of the data or of the libraries was removed, or lost in a copy. The server once
/// started with an empty arena in its place, without a message.
#[test]
fn a_missing_arena_is_named_and_nothing_takes_its_place() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let serve = || Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    let server = serve();
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    let source = "#!js name=l\nexport function f(db) { return 7; }";
    assert_eq!(server.call(&["FUNCTION", "LOAD", source]).error(), None);
    wait_for_starts(folder.path());
    server.kill();
    // A shard was starting the library. A refused server once made the next one skip it.
    std::fs::write(dir.join("l.starting.7"), "00000000 9\n").expect("a mark");
    let aside = folder.path().join("aside");
    for name in ["default.0.arena", "_system.0.arena"] {
        let path = dir.join(name);
        std::fs::rename(&path, &aside).expect("it is there");
        let text = path.to_str().expect("UTF-8");
        refused(
            &dir,
            &[text, "is missing", "manifest", "put it back", "--fresh", "deleting the line"],
        );
        std::fs::rename(&aside, &path).expect("it is there");
    }
    // An older server left no manifest.
    std::fs::remove_file(dir.join("manifest")).expect("it is there");
    for name in ["default.0.arena", "_system.0.arena"] {
        std::fs::rename(dir.join(name), &aside).expect("it is there");
        refused(&dir, &[name, "is missing", "have been written to", "put it back", "--fresh"]);
        std::fs::rename(&aside, dir.join(name)).expect("it is there");
    }
    serve().kill();
    assert_eq!(
        std::fs::read_to_string(dir.join("manifest")).expect("it is there again"),
        "nigh-manifest 1\n_system 1\ndefault 1\n"
    );
    // An operator may go on without the libraries.
    std::fs::remove_file(dir.join("_system.0.arena")).expect("it is there");
    std::fs::write(dir.join("manifest"), "nigh-manifest 1\ndefault 1\n").expect("ours");
    let server = serve();
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
    assert!(server.call(&["FCALL", "f", "0"]).error().is_some());
    drop(server);
    std::fs::write(dir.join("manifest"), "nigh-manifest 1\ndefault one\n").expect("ours");
    refused(&dir, &["manifest", "is no manifest"]);
}

/// A first start that is interrupted leaves some arenas and no manifest. The next server makes the
/// missing ones, as long as nothing was written to the others.
#[test]
fn a_first_start_that_was_cut_off_is_gone_on_with() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let flags = ["--maxmemory", "64mb", "--partitions", "4"];
    Server::start_with(folder.path(), &flags).kill();
    let made = [
        "default.0.arena",
        "default.1.arena",
        "default.2.arena",
        "default.3.arena",
        "_system.0.arena",
    ];
    for count in 0..made.len() {
        std::fs::remove_file(dir.join("manifest")).expect("it is there");
        for name in &made[count..] {
            std::fs::remove_file(dir.join(name)).expect("it is there");
        }
        Server::start_with(folder.path(), &flags).kill();
        assert!(made.iter().all(|name| dir.join(name).exists()));
        assert_eq!(nigh(&["check", dir.to_str().expect("UTF-8")]).status.code(), Some(0));
    }
}
