//! Local clients that stand still: SIGSTOP at any point of a ring operation.

use super::{Host, PATIENCE, SOON, SaysOver, ok};
use crate::support::load::{Random, number, seed};
use crate::support::local::LocalClient;
use nigh_client::Frame;
use nigh_resp::encode;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Tells the child where to attach.
const JOB: &str = "NIGH_LOCAL_STOP_JOB";
const CLIENTS: usize = 3;
/// Most times that all are stopped until the server has let go of all.
const ATTEMPTS: usize = 10;
/// Bytes of the value that goes both ways, longer than the rings.
const BIG: usize = 150_000;
/// What the server may keep for a client that reads nothing: replies up to output-buffer-pause, and
/// the requests of a turn; and what the allocator keeps.
const KEPT_MIB: u64 = 16;

/// A client in a process of its own. It compares all replies, and ends well if the server ends it.
#[test]
fn a_client_that_is_stopped() {
    let Ok(path) = std::env::var(JOB) else { return };
    let mut client = LocalClient::attach(Path::new(&path), &[]).expect("attached");
    let pid = std::process::id().to_string();
    let mut big = vec![b'x'; BIG];
    for n in 0u64.. {
        client.spin = Duration::from_micros(n % 3 * 20);
        big[..8].copy_from_slice(&n.to_le_bytes());
        let mut requests = Vec::new();
        let key = format!("big:{pid}");
        encode::request(&mut requests, [b"SET".as_slice(), key.as_bytes(), &big]);
        for _ in 0..8 {
            encode::request(&mut requests, ["GET", &key]);
        }
        encode::request(&mut requests, ["SET", &pid, &n.to_string()]);
        let Ok(replies) = client.exchange(&requests, 10) else { return };
        assert_eq!((&replies[0], &replies[9]), (&ok(), &ok()));
        assert!(replies[1..9].iter().all(|it| it.bytes() == Some(&big)), "round {n}");
    }
}

fn spawn(host: &Host) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["local::stops::a_client_that_is_stopped", "--exact"])
        .env(JOB, &host.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

/// The clients. They are killed when a test fails: one that stands still never ends by itself.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops a child; it stands still then.
fn stop(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).expect("our child");
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).expect("our child");
}

fn go_on(child: &Child) {
    kill_process(Pid::from_child(child), Signal::CONT).expect("our child");
}

/// Rounds that a client has done.
fn progress(host: &Host, child: &Child) -> Option<u64> {
    let reply = host.server.call(&["GET", &child.id().to_string()]);
    std::str::from_utf8(reply.bytes()?).ok()?.parse().ok()
}

/// Waits until a client has done more rounds than `before`.
fn wait_for_progress(host: &Host, child: &Child, before: Option<u64>) {
    let began = Instant::now();
    while progress(host, child) <= before {
        assert!(began.elapsed() < SOON, "it goes on from {before:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_that_is_stopped_hurts_only_itself() {
    // Clients move values that are longer than their rings. Each is stopped at any moment, again
    // and again; meanwhile the other clients go on, the server keeps little for the one that stands
    // still, and a client that is there all the time is served. Then it goes on and gets its
    // replies, all of them right. At last all stand still for longer than output-buffer-timeout:
    // the server lets go of them, which is what they see when they go on.
    let host = Host::start(&["--shards", "2"]);
    let before = host.holds_at_rest();
    let mut children = Children((0..CLIENTS).map(|_| spawn(&host)).collect());
    let children = &mut children.0;
    children.iter().for_each(|child| wait_for_progress(&host, child, None));
    let (memory_mib, is_over) = (host.server.private_mib(), AtomicBool::new(false));
    let (stops, mut random) = (number("NIGH_LOCAL_STOPS", 30), Random(seed(8)));
    let (calls, slow, longest) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| host.watch(&is_over));
        let over = SaysOver(&is_over);
        for round in 0..stops {
            let one = usize::try_from(round).expect("few") % CLIENTS;
            std::thread::sleep(Duration::from_micros(random.draw(1500)));
            stop(&children[one]);
            let other = &children[(one + 1) % CLIENTS];
            let stood = progress(&host, &children[one]);
            wait_for_progress(&host, other, progress(&host, other));
            let grown = host.server.private_mib().saturating_sub(memory_mib);
            assert!(grown <= KEPT_MIB * CLIENTS as u64, "{grown} MiB more of private memory");
            go_on(&children[one]);
            wait_for_progress(&host, &children[one], stood);
        }
        drop(over);
        watching.join().expect("it is served")
    });
    eprintln!("{stops} stops, {calls} calls beside them, {slow} over 10 ms, longest {longest:?}");
    assert!(calls > 0 && longest < PATIENCE, "a call took {longest:?}");
    assert_eq!(host.figures("broken"), 0);
    // What is below output-buffer-pause is kept for as long as it takes.
    for (setting, value) in [("output-buffer-pause", "16kb"), ("output-buffer-timeout", "1")] {
        assert_eq!(host.server.call(&["CONFIG", "SET", setting, value]), ok());
    }
    for _ in 0..ATTEMPTS {
        // One that stands where nothing waits for it stays: it is stopped again.
        children.iter().for_each(stop);
        let began = Instant::now();
        while host.figures("clients") > 0 && began.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(20));
        }
        children.iter().for_each(go_on);
        if host.figures("clients") == 0 {
            break;
        }
    }
    assert_eq!(host.figures("clients"), 0, "the server has let go of all");
    for child in children {
        assert!(child.wait().expect("our child").success(), "it was let go of, and no more");
    }
    host.wait_for_holds(before);
    assert_eq!((host.figures("clients"), host.figures("broken")), (0, 0));
    host.wait_for_listed(0);
    assert_eq!(host.server.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
}
