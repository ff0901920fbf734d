//! The command as a user calls it: a quick run of everything, its page, and what can go wrong.

use std::path::Path;
use std::process::{Command, Output};

const ENGINES: [&str; 6] = ["Nigh", "LevelDB", "RocksDB", "LMDB", "redb", "fjall"];

fn call(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nigh-bench-embedded")).args(args).output().expect("a program")
}

/// A folder where a sync takes no time.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder")
}

/// What it said on standard error, of a call that has to fail with this code.
fn refusal(args: &[&str], code: i32) -> String {
    let output = call(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}

/// A quick run measures each row with each engine, and leaves nothing but its results. The page
/// has a figure of each, the pictures are there that it names, and no path of the machine is in it.
#[test]
fn a_quick_run_measures_all_and_leaves_a_page() {
    let dir = folder();
    let sub = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    };
    let (data, memory, docs) = (sub("data"), sub("memory"), sub("docs"));
    let results = dir.path().join("results.jsonl");
    let folders =
        ["--dir", path(&data), "--memory-dir", path(&memory), "--results", path(&results)];
    let output = call(&[&["run", "--quick"][..], &folders].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(names_in(&data).is_empty() && names_in(&memory).is_empty());

    let output = call(&["report", "--results", path(&results), "--docs", path(&docs)]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(docs.join("benchmarks-embedded.md")).expect("a page");
    assert!(!page.contains(path(dir.path())), "{page}");
    let figures = |line: &&str| line.split(" | ").skip(1).filter(|cell| cell.contains('(')).count();
    let fullest = |row: &str| {
        let begin = format!("| {row} |");
        page.lines().filter(|line| line.starts_with(&begin)).map(|line| figures(&line)).max()
    };
    for row in ["fillseq", "fillrandom", "overwrite", "readrandom", "readhot", "readwhilewriting"] {
        assert_eq!(fullest(row), Some(ENGINES.len()), "{row} in {page}");
    }
    for row in ["deleterandom", "fillsync", "opencrash", "openclosed"] {
        assert_eq!(fullest(row), Some(ENGINES.len()), "{row} in {page}");
    }
    assert_eq!(fullest("multiget"), Some(4), "{page}");
    assert!(page.contains("| fillsync, 64 threads | ≥ 150,000 per second |"), "{page}");
    assert!(page.contains("| 200, strong | 2 threads |"), "{page}");
    let pictures: Vec<String> =
        names_in(&docs).into_iter().filter(|name| name.ends_with(".svg")).collect();
    assert_eq!(pictures.len(), 3, "{pictures:?}");
    for name in pictures {
        assert!(page.contains(&format!("({name})")), "{name} in {page}");
        let text = std::fs::read_to_string(docs.join(&name)).expect("a picture");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{name}");
    }
}

/// Only what was asked for is measured; a later run adds to the results.
#[test]
fn only_what_is_named_is_measured() {
    let dir = folder();
    let (data, results) = (dir.path().join("data"), dir.path().join("results.jsonl"));
    for engine in ["lmdb", "nigh,redb"] {
        let output = call(&[
            "run",
            "--quick",
            "--only",
            "readhot",
            "--engines",
            engine,
            "--threads",
            "1",
            "--dir",
            path(&data),
            "--results",
            path(&results),
        ]);
        assert!(output.status.success(), "{output:?}");
    }
    let text = std::fs::read_to_string(&results).expect("results");
    let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("{\"Sample\"")).collect();
    // Two pairs of each of three engines.
    assert_eq!(samples.len(), 6, "{text}");
    assert!(samples.iter().all(|line| line.contains("readhot")), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"Run\"")).count(), 2, "{text}");
    // The page says whom the latest run left out.
    let output = call(&["report", "--results", path(&results), "--docs", path(dir.path())]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(dir.path().join("benchmarks-embedded.md")).expect("a page");
    assert!(page.contains("\nLeft out by `--engines`: LevelDB, RocksDB, LMDB, fjall.\n"), "{page}");
}

/// What can't be done is said in one line, which names it.
#[test]
fn wrong_arguments_get_one_line_that_helps() {
    for (args, words) in [
        (&["run", "--engines", "mysql"][..], "nigh, leveldb, rocksdb, lmdb, redb, fjall"),
        (&["run", "--only", "fillslow"], "there is no workload \"fillslow\""),
        (&["run", "--keys", "5"], "--keys is 5; 1000 to"),
        (&["run", "--threads", "0"], "--threads is 0; 1 to"),
        (&["run", "--pairs", "0"], "--pairs is 0; 1 to"),
        (&["run", "--seconds=-1"], "--seconds is -1"),
        (&["run", "--seconds", "nan"], "--seconds is NaN"),
        (&["run", "--keys", "many"], "invalid value 'many'"),
        (&["run", "--fast"], "--fast"),
        (&["run", "--quick", "--keys", "9000"], "'--quick' cannot be used with '--keys"),
        (&["run", "--quick", "--pairs", "3"], "'--quick' cannot be used with '--pairs"),
        (&["run", "--quick", "--seconds", "1"], "'--quick' cannot be used with '--seconds"),
        (&["run", "--dir", "/dev/null/x"], "--dir /dev/null/x can't be used"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let text = refusal(args, 2);
        assert!(text.contains(words) && text.lines().count() == 1, "{args:?}: {text}");
    }
    let text = refusal(&["report", "--results", "/nonexistent"], 1);
    assert!(text.contains("run first") && text.lines().count() == 1, "{text}");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
