//! `nigh serve --fresh` begins with nothing, and stays so: with a log, where none was, and without,
//! where it ends the one that was. Beside a log that goes on, it is refused; what the refusal
//! advises works.

use crate::support::{Server, folder};
use std::path::Path;

fn flags(folder: &Path, more: &[&str]) -> Vec<String> {
    let dir = folder.join("log").display().to_string();
    let own = ["--dir", &dir, "--log-on-tmpfs", "yes", "--maxmemory", "64mb", "--shards", "1"];
    let small = ["--journal-size", "1mb", "--log-file-size", "1mb"];
    let all = own.iter().chain(&small).chain(more);
    all.map(|flag| (*flag).to_owned()).collect()
}

fn spawn(folder: &Path, more: &[&str]) -> Server {
    let flags = flags(folder, more);
    Server::spawn(folder, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Starts a server that has so many keys; sets one, and ends it. Returns what it said.
fn serve(folder: &Path, more: &[&str], keys: i64) -> String {
    let mut server = spawn(folder, more);
    server.wait();
    assert_eq!(server.call(&["DBSIZE"]).integer(), Some(keys), "{more:?}: {}", server.said());
    assert_eq!(server.call(&["SET", "key", "value"]).error(), None, "{more:?}");
    let _ = server.connect().call(["SHUTDOWN"]);
    server.ended()
}

/// A start that is refused; returns the sentence.
fn refused(folder: &Path, more: &[&str]) -> String {
    let (code, said) = spawn(folder, more).ended_with_code();
    assert_eq!(code, Some(1), "{more:?}: {said}");
    said.trim_end().lines().last().unwrap_or_default().to_owned()
}

const LOG: [&str; 2] = ["--appendonly", "yes"];
const FRESH_LOG: [&str; 3] = ["--appendonly", "yes", "--fresh"];
const FRESH: [&str; 3] = ["--appendonly", "no", "--fresh"];

/// No log was ever there: it was refused all the same, with the default settings.
#[test]
fn a_fresh_start_with_a_log_begins_one() {
    let folder = folder();
    serve(folder.path(), &FRESH_LOG, 0);
    serve(folder.path(), &LOG, 1);
    let said = refused(folder.path(), &FRESH_LOG);
    assert!(said.contains("end it by --appendonly no --fresh"), "{said}");
    serve(folder.path(), &LOG, 1);
    // Without the arenas it is the same log.
    remove(folder.path(), "arenas");
    refused(folder.path(), &FRESH_LOG);
    serve(folder.path(), &LOG, 1);
    serve(folder.path(), &FRESH, 0);
    serve(folder.path(), &FRESH_LOG, 0);
}

fn remove(folder: &Path, name: &str) {
    std::fs::remove_dir_all(folder.join(name)).expect("it is there");
}

/// Behind a reboot, no arena names the log: it may be another server's, and stays. The refusal
/// advised to end it by a start without a log, which left it where it was without a word.
#[test]
fn a_fresh_start_beside_a_log_without_arenas_says_how_to_be_rid_of_it() {
    let folder = folder();
    serve(folder.path(), &LOG, 0);
    remove(folder.path(), "arenas");
    let said = refused(folder.path(), &FRESH_LOG);
    assert!(said.contains("remove that folder") && !said.contains("appendonly"), "{said}");
    let said = serve(folder.path(), &FRESH, 0);
    assert!(said.contains("a log that isn't of the arenas stays"), "{said}");
    remove(folder.path(), "arenas");
    serve(folder.path(), &LOG, 1);
    remove(folder.path(), "arenas");
    remove(folder.path(), "log");
    serve(folder.path(), &FRESH_LOG, 0);
}

/// A start without a log needs nothing of `dir`: what stands there was a reason to refuse it.
#[test]
fn a_fresh_start_without_a_log_leaves_what_it_cant_read() {
    let folder = folder();
    let log = folder.path().join("log");
    std::fs::create_dir(&log).expect("it isn't there");
    std::fs::write(log.join("meta"), b"???").expect("there is room");
    let said = serve(folder.path(), &FRESH, 0);
    assert!(said.contains("isn't read, and stays"), "{said}");
}

/// The log of arenas is lost, with its folder or without: they go all the same. That was refused,
/// though nothing was left to be ended.
#[test]
fn a_fresh_start_needs_no_log_of_the_arenas() {
    for is_there in [false, true] {
        let folder = folder();
        serve(folder.path(), &LOG, 0);
        let mut server = spawn(folder.path(), &LOG);
        server.wait();
        server.kill();
        remove(folder.path(), "log");
        if is_there {
            std::fs::create_dir(folder.path().join("log")).expect("it isn't there");
        }
        let said = refused(folder.path(), &FRESH_LOG);
        let is_missing = said.contains("isn't there");
        assert!(is_missing != is_there && is_there == said.contains("--fresh"), "{said}");
        let said = serve(folder.path(), &FRESH, 0);
        assert!(said.contains("the log of the arenas isn't here"), "{said}");
        serve(folder.path(), &FRESH_LOG, 0);
        serve(folder.path(), &LOG, 1);
    }
}

/// Files of a log whose `meta` is gone refuse a start with a log, before the arenas have gone.
#[test]
fn a_fresh_start_that_is_refused_keeps_the_arenas() {
    let folder = folder();
    serve(folder.path(), &["--appendonly", "no"], 0);
    let log = folder.path().join("log");
    std::fs::create_dir(&log).expect("it isn't there");
    std::fs::write(log.join("g1-s00-0000000001.log"), "").expect("the folder is ours");
    let said = refused(folder.path(), &FRESH_LOG);
    assert!(said.contains("meta"), "{said}");
    serve(folder.path(), &["--appendonly", "no"], 1);
}

/// Arenas of a time without a log go, and a log begins with nothing.
#[test]
fn a_fresh_start_with_a_log_removes_arenas_that_have_none() {
    let folder = folder();
    serve(folder.path(), &["--appendonly", "no"], 0);
    serve(folder.path(), &FRESH_LOG, 0);
    serve(folder.path(), &LOG, 1);
}

/// The arenas went, their log and journal stayed: the next start was refused, or all came back.
#[test]
fn a_fresh_start_without_a_log_ends_the_one_that_was() {
    for kills in [false, true] {
        let folder = folder();
        serve(folder.path(), &LOG, 0);
        if kills {
            let mut server = spawn(folder.path(), &LOG);
            server.wait();
            assert_eq!(server.call(&["SET", "other", "value"]).error(), None);
            server.kill();
        }
        let mut server = spawn(folder.path(), &FRESH);
        server.wait();
        assert_eq!(server.call(&["DBSIZE"]).integer(), Some(0));
        let _ = server.connect().call(["SHUTDOWN"]);
        server.ended();
        serve(folder.path(), &LOG, 0);
        remove(folder.path(), "arenas");
        serve(folder.path(), &LOG, 1);
    }
}

/// Arenas that aren't whole without their log are no hindrance: they go too.
#[test]
fn a_fresh_start_needs_no_whole_arenas() {
    let folder = folder();
    serve(folder.path(), &LOG, 0);
    std::fs::remove_file(folder.path().join("arenas/default.0.arena")).expect("it is there");
    let (code, said) = spawn(folder.path(), &["--appendonly", "no"]).ended_with_code();
    assert!(code == Some(1) && said.contains("the log stays"), "{said}");
    serve(folder.path(), &FRESH, 0);
    serve(folder.path(), &LOG, 1);
}
