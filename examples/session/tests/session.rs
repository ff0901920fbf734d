//! The example does what it says, against the real server: `nigh` beside it (`cargo build -p
//! nigh-cli`).

#[path = "../src/session.rs"]
#[allow(dead_code, reason = "a test uses a part of it")]
mod session;
#[path = "../src/wire.rs"]
#[allow(dead_code, reason = "a test uses a part of it")]
mod wire;

use nigh_client::{Client, Connection, ConnectionOptions};
use session::{Event, Session, Step, key};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use wire::{Answer, FRAME_BYTES};

const SESSION: &str = env!("CARGO_BIN_EXE_session");
const START: Duration = Duration::from_secs(60);

fn nigh() -> PathBuf {
    let path = Path::new(SESSION).with_file_name("nigh");
    assert!(path.is_file(), "{} isn't there: cargo build -p nigh-cli", path.display());
    path
}

fn run(arguments: &[&str]) -> (Output, String) {
    let nigh = nigh();
    let output = Command::new(SESSION).arg("--nigh").arg(nigh).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

/// The first cell of a row.
fn figure(table: &str, row: &str) -> u64 {
    let line = table.lines().find(|line| line.contains(&format!("| {row} |"))).expect(table);
    line.split(" | ").nth(1).expect("a cell").trim_end_matches(" |").parse().expect("a number")
}

/// Two workers serve 200 sessions; one is killed in the midst, twice. The other one goes on with
/// its sessions; no acknowledged update is lost, none is there twice, and the figures are drawn.
#[test]
fn killed_workers_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let chart = folder.path().join("chart.svg");
    let few = ["--sessions", "200", "--workers", "2", "--kills", "2", "--seconds", "1"];
    let (output, said) = run(&[&few[..], &["--chart", chart.to_str().unwrap()]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    assert_eq!(figure(&said, "**lost updates**"), 0, "{said}");
    assert_eq!(figure(&said, "**doubled updates**"), 0, "{said}");
    assert_eq!(figure(&said, "workers killed"), 2, "{said}");
    assert!(figure(&said, "sessions handed over") > 50, "{said}");
    assert!(figure(&said, "acknowledged updates") > 100, "{said}");
    assert!(std::fs::read_to_string(chart).unwrap().contains("<polyline"));
}

/// A run in which nothing was updated has shown nothing, and isn't told as one that went well.
#[test]
fn a_run_without_updates_is_an_error() {
    let none = ["--sessions", "10", "--workers", "2", "--kills", "0", "--seconds", "0"];
    let (output, said) = run(&none);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}{complaint}");
    assert!(complaint.contains("give more --seconds"), "{complaint}");
}

/// Of a server that is there nobody knows whether it has a log; the result said that it had none. A
/// password for it was lost on the way to the workers.
#[test]
fn a_server_that_is_there_is_taken_as_it_is() {
    let scene = Scene::start();
    let few = ["--sessions", "10", "--workers", "2", "--kills", "0", "--seconds", "0.2"];
    let run = |address: &str| {
        Command::new(SESSION).args(["--connect", address]).args(few).output().unwrap()
    };
    let output = run(&scene.address());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("no log"), "{said}");
    let refused = run("redis://:secret@127.0.0.1:1");
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains("no password") && !complaint.contains("secret"), "{complaint}");
}

/// A server, and workers by hand. Dropping it ends them.
struct Scene {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Scene {
    fn start() -> Scene {
        let folder = tempfile::Builder::new().prefix("session-test-").tempdir_in("/dev/shm");
        let folder = folder.expect("a folder");
        let server = Command::new(nigh())
            .args(["serve", "--port", "0", "--appendonly", "no", "--maxmemory", "64mb"])
            .arg("--shm-dir")
            .arg(folder.path().join("arenas"))
            .arg("--unixsocket")
            .arg(folder.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let scene = Scene { folder, children: vec![server.expect("it starts")] };
        let begin = Instant::now();
        let address = scene.address().parse().unwrap();
        let is_up = || {
            let connection = Connection::connect(&address, &ConnectionOptions::default());
            connection.is_ok_and(|mut it| it.call(["PING"]).is_ok_and(|it| it.error().is_none()))
        };
        while !is_up() {
            assert!(begin.elapsed() < START, "no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        scene
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }

    fn worker(&mut self) -> UnixStream {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(SESSION);
        command.args(["worker", "--local", "--connect", &self.address()]);
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::null()).spawn();
        self.children.push(child.expect("it starts"));
        ours.set_read_timeout(Some(START)).unwrap();
        assert_eq!(answer(&mut ours), Some(Answer::Ready));
        ours
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn answer(socket: &mut UnixStream) -> Option<Answer> {
    let mut frame = [0; FRAME_BYTES];
    socket.read_exact(&mut frame).ok()?;
    Some(Answer::of_frame(&frame).expect("an answer"))
}

fn step(socket: &mut UnixStream) -> Step {
    match answer(socket) {
        Some(Answer::Of { step, .. }) => step,
        other => panic!("{other:?}"),
    }
}

/// A worker that was taken for dead lives on, and gets the same events as the one in its place, at
/// the same time. Each event is applied once: one of them says that it was done before.
#[test]
fn two_workers_of_one_session_apply_an_event_once() {
    let mut scene = Scene::start();
    let mut workers = [scene.worker(), scene.worker()];
    let mut known = Session::default();
    let mut firsts = [0; 2];
    for seq in 1..=300 {
        let event = Event::number(7, seq);
        known.apply(&event);
        let order = if seq % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            workers[at].write_all(&event.to_frame()).unwrap();
        }
        let steps = workers.each_mut().map(step);
        match steps {
            [Step::Done, Step::Before] => firsts[0] += 1,
            [Step::Before, Step::Done] => firsts[1] += 1,
            other => panic!("event {seq}: {other:?}"),
        }
    }
    let mut client = Client::connect(&scene.address()).unwrap();
    let found = client.get(key(7).as_bytes()).unwrap().expect("a session");
    assert_eq!(Session::read(&found).unwrap(), known);
    assert!(firsts[0] > 0 && firsts[1] > 0, "both were first at times: {firsts:?}");
}

/// An event without the one before it is refused, and changes nothing. When the server ends, the
/// worker ends too, without an answer.
#[test]
fn a_worker_answers_nothing_that_it_doesnt_know() {
    let mut scene = Scene::start();
    let mut worker = scene.worker();
    worker.write_all(&Event::number(3, 2).to_frame()).unwrap();
    assert_eq!(step(&mut worker), Step::Impossible);
    worker.write_all(&Event::number(3, 1).to_frame()).unwrap();
    assert_eq!(step(&mut worker), Step::Done);
    scene.children[0].kill().unwrap();
    scene.children[0].wait().unwrap();
    worker.write_all(&Event::number(3, 2).to_frame()).unwrap();
    assert_eq!(answer(&mut worker), None);
    let status = scene.children[1].wait().unwrap();
    assert_eq!(status.code(), Some(1));
}
