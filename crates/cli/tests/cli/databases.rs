//! `nigh shell DIR` on databases of the library, run as a user runs it.

use crate::support::{NIGH, assert_one_sentence, nigh, nigh_with, stderr, stdout};
use nigh::{Db, Options};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Small enough that several databases fit any machine.
pub(crate) const CAPACITY: &str = "64mb";

/// A folder on a disk: the logs of a database take some hundred MiB there.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs these lines in the shell of a database.
fn shell(dir: &Path, lines: &str) -> Output {
    nigh_with(&["shell", path(dir), "--capacity", CAPACITY], lines)
}

/// The same; they succeed, and this is what they print.
fn says(dir: &Path, lines: &str, expected: &str) {
    let output = shell(dir, lines);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(stdout(&output), expected, "of {lines}");
}

pub(crate) fn open(dir: &Path) -> Db {
    Db::open(dir, &small()).expect("it can be opened")
}

fn small() -> Options {
    Options::new().capacity_bytes(64 << 20).journal_bytes(1 << 20)
}

/// Lines of stdin write and read a database that has no server, and its folder is made. Another
/// shell finds all of it there: bytes of any kind, and numbers.
#[test]
fn shell_opens_a_database_without_a_server() {
    let folder = folder();
    let dir = folder.path().join("data");
    says(&dir, "put a 1\nget a\n", "OK\n\"1\"\n");
    says(
        &dir,
        "put \"a\\x00b\" \"\\xff\\n\"\nGET \"a\\x00b\"\nget a none\nincr a\nincr a -3\n",
        "OK\n\"\\xff\\n\"\n1) \"1\"\n2) (nil)\n(integer) 2\n(integer) -1\n",
    );
    says(&dir, "cas a -1 x\ncas a y z\nputnew a z\n", "(integer) 1\n(integer) 0\n(integer) 0\n");
    says(&dir, "cas a x\nputnew a 5 1h\nget a\n", "(integer) 1\n(integer) 1\n\"5\"\n");
    says(
        &dir,
        "count\nsnapshot count a\ndelete a none\ncount a\n",
        "\
         (integer) 2\n(integer) 2\n(integer) 1\n(integer) 1\n",
    );
    says(&dir, "scan\nquit\nget a\n", "1# \"a\\x00b\" => \"\\xff\\n\"\n");
    let raw = nigh_with(&["shell", path(&dir), "--raw"], "get \"a\\x00b\"\n");
    assert_eq!(raw.stdout, b"\xff\n\n");
    let db = open(&dir);
    assert_eq!(db.get(b"a\0b").expect("a read").as_deref(), Some(&b"\xff\n"[..]));
}

/// A batch is seen when it is committed. One that no line commits has no effect, and the exit code
/// says so.
#[test]
fn a_batch_counts_when_it_is_committed() {
    let folder = folder();
    let dir = folder.path().join("data");
    says(
        &dir,
        "put a 1\nbatch begin\nput b 2\ndelete a\nget b\nget a\nbatch commit\nget b\nget a\n",
        "OK\nOK\nQUEUED\nQUEUED\n(nil)\n\"1\"\nOK\n\"2\"\n(nil)\n",
    );
    says(&dir, "batch begin\nput c 3\nbatch abort\nget c\n", "OK\nQUEUED\nOK\n(nil)\n");
    says(&dir, "ttl b\nttl a\n", "forever\n(nil)\n");
    let left = shell(&dir, "batch begin\nput c 3\n");
    assert_one_sentence(&left, &["1 writes of a batch are left out"]);
    says(&dir, "get c\n", "(nil)\n");
    let within = shell(&dir, "batch begin\nincr a\nbatch begin\nbatch abort\nbatch commit\n");
    let text = stdout(&within);
    for part in ["takes put and delete alone", "has begun already", "no batch has begun"] {
        assert!(text.contains(part), "{text}");
    }
    assert_one_sentence(&within, &["3 of 5 commands failed"]);
}

/// Times end keys, strong writes and a flush reach the disk, and `stats` counts.
#[test]
fn times_and_durability_are_the_librarys() {
    let folder = folder();
    let dir = folder.path().join("data");
    says(
        &dir,
        "put b 2 1h\nexpire b\nexpire none 5s\nstrong on\nstrong\nput c 3\nflush\n",
        "OK\n(integer) 1\n(integer) 0\nOK\non\nOK\nOK\n",
    );
    says(&dir, "get b\nstrong\n", "\"2\"\noff\n");
    // Elsewhere, since the end of a key is a change for which no write waits.
    let other = folder.path().join("other");
    says(&other, "put a 1 1ms\n", "OK\n");
    says(&other, "get a\n", "(nil)\n");
    let stats = stdout(&shell(&dir, "strong on\nput d 4\nstats\n"));
    assert!(stats.contains("capacity_bytes => (integer) 67108864\n"), "{stats}");
    let number = |name: &str| {
        let line = stats.lines().find(|line| line.contains(&format!(" {name} "))).expect(name);
        line.rsplit(' ').next().and_then(|it| it.parse::<u64>().ok()).expect(name)
    };
    assert_eq!(number("durable_change"), number("last_change"), "{stats}");
}

/// A line that is too long isn't cut: it does nothing, its end is no command, and the lines behind
/// it run.
#[test]
fn a_line_that_is_too_long_does_nothing() {
    let folder = folder();
    let value = "delete b ".repeat(8 << 20);
    let lines = format!("put b 1\nput a \"{value}\"\nget a b\n");
    let output = shell(&folder.path().join("data"), &lines);
    let expected =
        "OK\n(error) a line has 64 MiB or more: write less at once\n1) (nil)\n2) \"1\"\n";
    assert_eq!(stdout(&output), expected);
    assert_one_sentence(&output, &["1 of 3 commands failed"]);
}

/// A wrong line is one line of output that says what to do; the lines behind it run, and the exit
/// code is 1.
#[test]
fn a_wrong_line_says_what_to_do() {
    let folder = folder();
    let dir = folder.path().join("data");
    let long = "k".repeat(65_536);
    let lines = format!(
        "frob\nput a\nput a b c d\nput a b 5w\nput a x\nincr a\nscan a 0\nevents\nstrong ON\n\
         snapshot keys\nbatch go\nget \"a\nput {long} v\nget a\n"
    );
    let output = shell(&dir, &lines);
    let text = stdout(&output);
    let expected = [
        "`frob` is no command: help lists them",
        "`put` has other arguments: put KEY VALUE [TTL]",
        "`put` has other arguments: put KEY VALUE [TTL]",
        "`5w` is no time: write 10 for seconds",
        "OK",
        "isn't a decimal integer of 64 bits: write the key anew",
        "`0` is no count",
        "nothing is watched: write watch PREFIX first",
        "`ON` is no switch: write on or off",
        "write snapshot count",
        "write batch begin, commit or abort",
        "",
        "a key of 65536 bytes is longer than 65535: shorten it",
        "\"x\"",
    ];
    assert_eq!(text.lines().count(), expected.len(), "{text}");
    for (line, part) in text.lines().zip(expected) {
        assert!(line.contains(part), "{line:?} doesn't say {part:?}");
        assert!(line.starts_with("(error) ") || matches!(line, "OK" | "\"x\""), "{line}");
    }
    assert_one_sentence(&output, &["12 of 14 commands failed"]);
    let help = stdout(&shell(&dir, "help\nhelp CAS\n"));
    assert!(help.contains("putnew KEY VALUE [TTL]"), "{help}");
    assert!(
        help.ends_with("cas KEY EXPECTED [NEW]           if it is EXPECTED: put NEW, or delete\n")
    );
}

/// With `--read-only` the shell reads beside the process that has the database open, and writes
/// nothing; without it, it is refused, and the refusal names the flag.
#[test]
fn a_shell_reads_beside_the_owner() {
    let folder = folder();
    let dir = folder.path().join("data");
    let nobody = nigh_with(&["shell", path(&dir), "--read-only"], "get a\n");
    assert_one_sentence(&nobody, &["there is no database in"]);
    let alone = open(&dir);
    let private = nigh_with(&["shell", path(&dir), "--read-only"], "get a\n");
    assert_one_sentence(&private, &["is private: open it with", "shared"]);
    alone.close().expect("it closes");
    let closed = nigh_with(&["shell", path(&dir), "--read-only"], "get a\n");
    assert_one_sentence(&closed, &["isn't open", "without --read-only this shell opens it"]);
    let db = Db::open(&dir, &small().shared(true)).expect("it opens");
    db.put(b"a", b"1").expect("there is room");
    let refused = shell(&dir, "get a\n");
    assert_one_sentence(&refused, &["is open in process", "--read-only reads beside it"]);
    let lines = "get a none\nttl a\nscan\ncount\nput a 2\nstats\nbatch begin\nwatch\nget a\n";
    let output = nigh_with(&["shell", path(&dir), "--read-only"], lines);
    let text = stdout(&output);
    let begin =
        "1) \"1\"\n2) (nil)\nforever\n1# \"a\" => \"1\"\n(integer) 1\n(error) this shell only";
    assert!(text.starts_with(begin) && text.ends_with("\n\"1\"\n"), "{text}");
    assert_one_sentence(&output, &["4 of 9 commands failed"]);
    assert_eq!(db.get(b"a").expect("a read").as_deref(), Some(&b"1"[..]));
}

/// What can't be a database is named, with what to do, and nothing is said twice.
#[test]
fn what_is_no_database_is_named() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "get a\n").expect("the folder is ours");
    assert_one_sentence(
        &shell(&file, ""),
        &["is a file, and a database is a folder: name another"],
    );
    let none = shell(Path::new("/proc/none"), "");
    assert_one_sentence(&none, &["/proc/none can't be used", "make it writable, or name another"]);
    assert_eq!(stderr(&none).matches("No such file").count(), 1, "{}", stderr(&none));
}

/// A watch tells the shell's own changes; Ctrl-C ends the wait for more, and not the shell.
#[test]
fn events_wait_until_ctrl_c() {
    let folder = folder();
    let dir = folder.path().join("data");
    says(
        &dir,
        "watch u\nput u1 \"a b\"\nput x 1\ndelete u1\nevents\nevents\n",
        "OK\nOK\nOK\n(integer) 1\nchange 1: put \"u1\" \"a b\"\nchange 3: removed \"u1\"\n\
         2 events\n0 events\n",
    );
    let mut child = Command::new(NIGH)
        .args(["shell", path(&dir), "--capacity", CAPACITY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"watch\nput a 1\nevents 5\nget a\n").expect("it reads");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("UTF-8");
    assert_eq!([next(), next()], ["OK", "OK"]);
    assert!(next().ends_with(": put \"a\" \"1\""));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is our child");
    assert_eq!([next(), next()], ["1 events", "\"1\""]);
    drop(stdin);
    assert!(child.wait().expect("it is our child").success());
}

/// Flags of a server beside DIR, and flags of a folder without it, are wrong usage: none is passed
/// over. An environment that names a server doesn't hinder.
#[test]
fn no_flag_of_the_shell_is_passed_over() {
    let folder = folder();
    let dir = folder.path().join("data");
    for flags in [&["--connect", "1"][..], &["--resp2"], &["--timeout", "3"], &["--password", "x"]]
    {
        let output = nigh(&[&["shell", path(&dir)], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let said = stderr(&output);
        assert!(said.contains(flags[0]) && said.contains("about a server"), "{said}");
    }
    for flags in [&["--read-only"][..], &["--partitions", "2"], &["--capacity", "64mb"]] {
        let output = nigh(&[&["shell"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let said = stderr(&output);
        assert!(said.contains(flags[0]) && said.contains("about a folder"), "{said}");
    }
    assert!(!dir.exists(), "nothing was opened");
    let no_size = nigh(&["shell", path(&dir), "--capacity", "x"]);
    assert!(stderr(&no_size).contains("a size is written as 512mb or 4gb"));
    let output = Command::new(NIGH)
        .args(["shell", path(&dir)])
        .env("NIGH_CONNECT", "127.0.0.1:1")
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// What is printed has no reader any more, as behind `| head`: the command ends without a word, and
/// a database is closed.
#[test]
fn a_reader_that_goes_ends_a_command_quietly() {
    let folder = folder();
    let dir = folder.path().join("data");
    let db = open(&dir);
    (0..3000_u32).for_each(|n| db.put(&n.to_be_bytes(), &[b'v'; 100]).expect("there is room"));
    db.close().expect("it closes");
    let file = folder.path().join("commands");
    let gets = "open data\n".to_owned() + &"get none\n".repeat(20_000);
    std::fs::write(&file, gets).expect("the folder is ours");
    let (file, folder) = (path(&file), path(folder.path()));
    for (words, lines) in [
        (&["shell", path(&dir)][..], "scan \"\" 3000\n".repeat(9) + "put last line\n"),
        (&["run", "--print", "--dir", folder, file], String::new()),
        (&["check", path(&dir)], String::new()),
    ] {
        let pipe = Stdio::piped;
        let child =
            Command::new(NIGH).args(words).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn();
        let mut child = child.expect("the binary runs");
        drop(child.stdout.take());
        // A command that has ended takes no lines.
        let _ = child.stdin.take().expect("it is piped").write_all(lines.as_bytes());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(141)), "{words:?}");
    }
    let db = open(&dir);
    assert_eq!(db.get(b"last").expect("a read").as_deref(), None, "lines behind it aren't run");
    assert_eq!(db.stats().expect("stats").keys, 3000);
}
