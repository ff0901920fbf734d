//! Loads, their reports and the demo, run as a user runs them.
//!
//! Invariants:
//! 1. Servers are of the `nigh` beside the program under test, which must have been built.
//! 2. A test leaves no process and no file behind.

#[expect(dead_code, reason = "the program uses all of it")]
#[path = "../src/child.rs"]
mod child;
#[expect(dead_code, reason = "the program uses all of it")]
#[path = "../src/interrupt.rs"]
mod interrupt;

use child::ServerProcess;
use nigh_client::Frame;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
const BENCH: &str = env!("CARGO_BIN_EXE_nigh-bench");
/// Arena of a test: small, so that many tests fit in tmpfs at once.
const MAXMEMORY: &str = "256mb";
/// Longest wait for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// A server of the `nigh` beside the program under test.
fn server() -> ServerProcess {
    let nigh = Path::new(BENCH).with_file_name("nigh");
    let flags = ["--maxmemory", MAXMEMORY, "--appendonly", "no"].map(Into::into);
    ServerProcess::nigh(&nigh, &[], &flags).expect("`cargo build -p nigh-cli` has built nigh")
}

/// Runs the program to its end.
fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args(arguments).env_remove("NIGH_PASSWORD");
    command.output().expect("the binary was built")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program failed with code 1, and its last line on stderr has each of `parts`.
fn assert_one_sentence(output: &Output, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    for part in parts {
        assert!(last.contains(part), "{last:?} doesn't name {part:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// The demo starts a server, finds equal counts and prints its table.
#[test]
fn demo_counts_compares_and_cleans_up() {
    let output = bench(&["demo", "--seconds", "0"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in ["3,663 lists, 88,234 edges", "All counts agree", "FCALL countFriends"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.matches("MGET per level").count(), 3, "{text}");
}

/// If the server's program isn't there, the error names its path and the command that builds it.
#[test]
fn a_missing_server_is_named() {
    let parts = ["/nowhere/nigh", "cargo build", "-p nigh-cli", "--nigh"];
    for command in ["demo", "peers"] {
        assert_one_sentence(&bench(&[command, "--nigh", "/nowhere/nigh"]), &parts);
    }
}

/// Rows with a log start servers of their own, measure, write their section and charts, and leave
/// no file on the disk.
#[test]
fn rows_with_a_log_have_a_section_and_clean_up() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let page = folder.path().join("page.md");
    let (disk_name, page_name) = (disk.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    // None of these rows starts Redis.
    for (only, unit) in [
        ("Log everysec, GET c50 P16", "per second"),
        ("Log, restart after SIGKILL, memory there", "ms"),
        ("Log, recovery of values of 100 B", "MB per second"),
    ] {
        let numbers = ["--pairs", "1", "--seconds", "0.1", "--keys", "500", "--arena", "536870912"];
        let mut arguments = vec!["peers", "--only", only, "--disk", disk_name, "--out", page_name];
        arguments.extend(numbers);
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = std::fs::read_to_string(&page).expect("a page");
        let section = text.split("## With a log").nth(1).expect("the section");
        for part in [&format!("| {only} | Nigh |"), unit, "### Targets", "(page-log.svg)"] {
            assert!(section.contains(part), "{part:?} isn't in {section}");
        }
        assert!(folder.path().join("page-log.svg").is_file());
        assert_eq!(std::fs::read_dir(&disk).expect("a folder").count(), 0, "files are left");
    }
}

/// A row that failed took those before it along. They are written, and its error is told.
#[test]
fn rows_before_one_that_fails_are_written() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let page = folder.path().join("page.md");
    let (disk, page_name) = (folder.path().to_str(), page.to_str().expect("UTF-8"));
    let few = ["--pairs", "1", "--keys", "500", "--arena", "536870912", "--out", page_name];
    // Its second row starts Redis.
    let arguments = ["peers", "--only", "Log, restart", "--redis", "/nowhere/redis", "--disk"];
    let output = bench(&[&arguments[..], &[disk.expect("UTF-8")], &few].concat());
    assert_one_sentence(&output, &["Redis doesn't start"]);
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains("| Log, restart after SIGKILL, memory there | Nigh |"), "{text}");
}

/// A server that stands still answers when it goes on. A killed one starts again with its data.
#[test]
fn a_server_stands_still_and_starts_again() {
    let mut server = server();
    let mut connection = server.connect().expect("a connection");
    connection.call(["SET", "k", "v"]).expect("a reply");
    connection.set_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    server.pause().expect("a signal");
    connection.call(["GET", "k"]).expect_err("the server stands still");
    server.resume().expect("a signal");
    let mut connection = server.connect().expect("a connection");
    connection.call(["GET", "k"]).expect("the server goes on");
    server.kill().expect("a signal");
    let (_, reply) = server.restart(&["GET", "k"]).expect("a start");
    assert_eq!(reply, Frame::Bulk(b"v".to_vec()));
}

/// A server that has ended was "Connection refused", and nobody learned why it had: making it stand
/// still passed. Its end and its last words are told.
#[test]
fn a_server_that_has_ended_is_told() {
    let server = server();
    let port = server.address().to_string();
    server.connect().expect("a connection").call(["SHUTDOWN", "NOSAVE"]).expect_err("it ends");
    let pause = || server.pause().and_then(|()| server.resume());
    let connect = || server.connect().map(drop);
    for act in [&connect as &dyn Fn() -> anyhow::Result<()>, &pause] {
        let begin = Instant::now();
        loop {
            let error = act().err().map(|error| format!("{error:#}")).unwrap_or_default();
            if error.contains(&port) && error.contains("ended: ") {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "its end isn't told: {error:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A server that was killed, or stands still, leaves no files.
#[test]
fn dropped_servers_leave_no_files() {
    let (mut killed, still) = (server(), server());
    let paths = [&killed, &still].map(|server| server.directory().to_owned());
    killed.kill().expect("a signal");
    drop(killed);
    still.pause().expect("a signal");
    drop(still);
    assert!(paths.iter().all(|path| !path.exists()), "{paths:?}");
}

/// The process of the program's server, and its folder in tmpfs.
fn server_of(bench: &Child) -> Option<(PathBuf, PathBuf)> {
    let id = bench.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let process = Path::new("/proc").join(child);
        let words = std::fs::read_to_string(process.join("cmdline")).ok()?;
        let arenas = words.split('\0').skip_while(|word| *word != "--shm-dir").nth(1)?;
        Some((process, Path::new(arenas).parent()?.to_owned()))
    })
}

/// SIGTERM as soon as a server is begun, and in the midst of a measurement, ends the program with
/// one sentence. Its servers and their folders go. SIGHUP, of a terminal that is closed, left them.
#[test]
fn a_signal_leaves_no_server_and_no_files() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let (disk, page) = (folder.path().join("disk"), folder.path().join("page.md"));
    std::fs::create_dir(&disk).expect("a folder");
    let (disk_name, page) = (disk.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    let only = ["peers", "--only", "Log everysec, GET c50 P16", "--pairs", "100000"];
    let small = ["--keys", "500", "--arena", "536870912", "--disk", disk_name, "--out", page];
    let peers = [&only[..], &small].concat();
    let local = ["local", "--keys", "500", "--rounds", "100000", "--seconds", "0.1"];
    for (arguments, wait_ms, signal) in [
        (&peers[..], 0, Signal::TERM),
        (&peers, 2000, Signal::TERM),
        (&local, 0, Signal::TERM),
        (&local, 2000, Signal::TERM),
        (&peers, 2000, Signal::HUP),
    ] {
        // Under nohup it would ignore SIGHUP, as it should.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", BENCH]).args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = command.spawn().expect("the binary was built");
        let begin = Instant::now();
        let (server, files) = loop {
            if let Some(server) = server_of(&bench) {
                break server;
            }
            assert!(bench.try_wait().expect("it is our child").is_none(), "no server was begun");
            assert!(begin.elapsed() < LIMIT, "no server is begun");
            std::thread::sleep(Duration::from_millis(1));
        };
        std::thread::sleep(Duration::from_millis(wait_ms));
        kill_process(Pid::from_child(&bench), signal).expect("it is our child");
        let begin = Instant::now();
        while bench.try_wait().expect("it is our child").is_none() {
            assert!(begin.elapsed() < LIMIT, "it doesn't end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = bench.wait_with_output().expect("it is our child");
        let left = [&server, &files].map(|path| path.exists());
        assert_eq!(left, [false, false], "{arguments:?}: {server:?}, {files:?}");
        assert_one_sentence(&output, &["interrupted"]);
        assert_eq!(std::fs::read_dir(&disk).expect("a folder").count(), 0, "{arguments:?}");
    }
}

/// Ctrl-C ends the servers too. If that was seen first, it was told as a connection that the server
/// had closed.
#[test]
fn a_signal_that_ends_the_servers_first_is_told() {
    let mut command = Command::new(BENCH);
    command.args(["local", "--keys", "500", "--rounds", "100000", "--seconds", "0.1"]);
    let mut bench = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("built");
    let begin = Instant::now();
    let (process, _) = loop {
        match server_of(&bench) {
            Some(server) if begin.elapsed() > Duration::from_secs(2) => break server,
            _ => assert!(begin.elapsed() < LIMIT, "no server is begun"),
        }
        assert!(bench.try_wait().expect("it is our child").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    let server = process.file_name().and_then(|id| id.to_str()?.parse().ok());
    let [bench_id, server] = [Pid::from_child(&bench), Pid::from_raw(server.unwrap()).unwrap()];
    for (id, signal) in [
        (bench_id, Signal::STOP),
        (server, Signal::KILL),
        (bench_id, Signal::INT),
        (bench_id, Signal::CONT),
    ] {
        kill_process(id, signal).expect("they run");
    }
    let begin = Instant::now();
    while bench.try_wait().expect("it is our child").is_none() {
        assert!(begin.elapsed() < LIMIT, "it doesn't end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_one_sentence(&bench.wait_with_output().expect("it is our child"), &["interrupted"]);
}

/// The JSON of a load has the fields that scripts read, and its numbers agree.
#[test]
fn loads_report_json() {
    let server = server();
    let address = server.address().to_string();
    let output = bench(&[
        "--json",
        "--connect",
        &address,
        "--connect",
        &address,
        "--keys",
        "500",
        "--preload",
        "--check",
        "--command",
        "mixed",
        "--requests",
        "2000",
        "--pairs",
        "2",
        "-c",
        "4",
        "-P",
        "8",
        "--warm-up",
        "0",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for field in ["tool", "version", "command", "connections", "pipeline", "keys", "key_bytes"] {
        assert!(!json[field].is_null(), "{field} is missing");
    }
    assert_eq!(json["tool"], "nigh-bench");
    assert_eq!(json["distribution"], "uniform");
    let endpoints = json["endpoints"].as_array().expect("a list");
    assert_eq!(endpoints.len(), 2);
    for endpoint in endpoints {
        assert_eq!(endpoint["requests"], 4000);
        assert_eq!(endpoint["errors"], 0);
        assert_eq!(endpoint["nulls"], 0, "all keys were loaded");
        assert!(endpoint["sets"].as_u64().expect("a count") > 0);
        assert_eq!(endpoint["runs"].as_array().expect("a list").len(), 2);
        let latency = &endpoint["latency_us"];
        let at = |name: &str| latency[name].as_f64().expect("a number");
        assert!(at("p50") > 0.0 && at("p50") <= at("p9999") && at("p9999") <= at("max"));
    }
    assert!(endpoints[0]["ratio_of_first"].is_null());
    assert!(endpoints[1]["ratio_of_first"]["median"].as_f64().expect("a ratio") > 0.0);
}

/// A load counts error replies, shows the first, and ends with code 1.
#[test]
fn a_load_fails_if_replies_are_errors() {
    let server = server();
    let address = server.address().to_string();
    let output = bench(&[
        "--connect",
        &address,
        "--requests",
        "100",
        "--warm-up",
        "0",
        "--command",
        "FCALL missing 0",
    ]);
    assert_one_sentence(&output, &["100 replies were errors", "ERR Function not found"]);
    assert!(stdout(&output).contains("100 errors"), "{}", stdout(&output));
}

/// An unknown option is named and gives code 2. A wrong value gives one sentence and code 1.
#[test]
fn a_load_refuses_what_it_cannot_do() {
    let output = bench(&["--frobnicate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--frobnicate"));
    let refused = |arguments: &[&str], part: &str| {
        assert_one_sentence(&bench(arguments), &[part]);
    };
    refused(&["--check", "--command", "PING"], "--check");
    refused(&["--keys", "1001", "--key-size", "3"], "--key-size");
    refused(&["--distribution", "zipfian", "--theta", "1"], "--theta");
    refused(&["--command", "ECHO __line__"], "--lines");
    refused(&["--connect", "127.0.0.1:1"], "127.0.0.1:1");
    // `make bench-local` gives options of its own before those of ARGS, which was wrong usage.
    refused(&["local", "--value-size", "64", "--value-size", "3"], "--value-size");
}

/// A local client's figures are taken beside a server of its own, and printed beside DAL's; those
/// who aren't measured are named. With `--out` a page and a picture are written.
#[test]
fn local_measures_and_cleans_up() {
    let few = ["--keys", "500", "--rounds", "1", "--seconds", "0.02"];
    let anywhere = ["--server-core", "-1", "--client-core", "-1"];
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("local.md");
    // A helper says what it has measured, by the names of rows.
    let script = folder.path().join("helper.sh");
    let lines = "echo '{\"ready\": \"some language\"}'; read order; echo '{\"read_p50_us\": 77.5}'
        read order; echo '{\"write_p50_us\": 88}'; read order\n";
    std::fs::write(&script, lines).expect("room");
    let python = format!("sh {}", script.display());
    let more = ["--python", &python, "--out", page.to_str().expect("UTF-8")];
    let output = bench(&[&["local"], &few[..], &anywhere[..], &more[..]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let parts = [
        "500 keys of 16 B",
        "| read, p50 |",
        " 1.10 us |",
        "| pipelined writes/s |",
        "77.5 us (77.5–77.5)",
        "Redis, TCP: **not measured**, as --redis names no program.",
        "LMDB: **not measured**",
        "memcached, Unix socket: **not measured**",
    ];
    let written = std::fs::read_to_string(&page).expect("a page");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
        assert!(written.contains(part), "no {part:?} in {written}");
    }
    assert!(written.contains("(local.svg)") && written.contains("Python: some language."));
    let picture = std::fs::read_to_string(page.with_extension("svg")).expect("a picture");
    assert!(
        picture.contains("read, p50: DAL (paper)") && picture.contains("write, p50: Nigh, local")
    );
    assert_one_sentence(&bench(&["local", "--value-size", "3"]), &["--value-size", "16"]);
    let nowhere =
        bench(&[&["local"], &few[..], &anywhere[..], &["--lmdb", "/no/program"]].concat());
    assert_one_sentence(&nowhere, &["can't start /no/program"]);
}
