//! How local clients end: killed, ended by others, with a child that has their socket.

use super::{Host, PATIENCE, SOON, SaysOver, bulk, ok};
use crate::support::load::number;
use crate::support::local::LocalClient;
use nigh_client::Frame;
use nigh_resp::encode;
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Tells the child where to attach.
const JOB: &str = "NIGH_LOCAL_JOB";

/// Tells the child to attach, to give its socket away, and to wait.
const HOLDER: &str = "NIGH_LOCAL_HOLDER";

/// Files of the real binary: a client in a process of its own, for those that are killed.
#[test]
fn a_client_in_another_process() {
    let Ok(path) = std::env::var(JOB) else { return };
    let mut client = LocalClient::attach(Path::new(&path), &[]).expect("attached");
    let pid = std::process::id();
    let mut big = vec![b'x'; 200_000];
    big[..4].copy_from_slice(&pid.to_le_bytes());
    for n in 0u64.. {
        client.spin = Duration::from_micros(n % 3 * 20);
        let mut requests = Vec::new();
        for i in 0..1 + n % 50 {
            encode::request(&mut requests, ["SET", &format!("{pid}:{i}"), &n.to_string()]);
        }
        encode::request(&mut requests, [b"SET".as_slice(), pid.to_string().as_bytes(), &big]);
        encode::request(&mut requests, ["GET", &pid.to_string()]);
        let count = usize::try_from(3 + n % 50).expect("few");
        if client.exchange(&requests, count).is_err() {
            return;
        }
    }
}

fn spawn_client(host: &Host) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["local::ends::a_client_in_another_process", "--exact"])
        .env(JOB, &host.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

#[test]
fn nothing_is_left_of_clients_that_are_killed() {
    // Clients in processes of their own write and read as fast as they can, and are killed at any
    // moment. The server lets go of each: descriptors, mappings and counts are as before. A client
    // that is there all the time is served meanwhile, and waits for none of them.
    let host = Host::start(&["--shards", "2"]);
    let mut witness = host.attach();
    assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    let before = host.holds_at_rest();
    let (kills, at_once) = (number("NIGH_LOCAL_KILLS", 200), number("NIGH_LOCAL_AT_ONCE", 10));
    let stop = AtomicBool::new(false);
    let (calls, slow, longest) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| host.watch(&stop));
        let over = SaysOver(&stop);
        let mut attached = 2;
        for round in 0..kills / at_once {
            let mut children: Vec<_> = (0..at_once).map(|_| spawn_client(&host)).collect();
            attached += i64::try_from(at_once).expect("few");
            let began = Instant::now();
            while host.figures("attached") < attached {
                assert!(began.elapsed() < SOON, "they attach");
                std::thread::sleep(Duration::from_micros(500));
            }
            for (n, child) in children.iter_mut().enumerate() {
                std::thread::sleep(Duration::from_micros((round * 37 + n as u64 * 101) % 1500));
                child.kill().expect("our child");
            }
            for mut child in children {
                child.wait().expect("our child");
            }
        }
        drop(over);
        watching.join().expect("it is served")
    });
    eprintln!("{kills} kills, {calls} calls beside them, {slow} over 10 ms, longest {longest:?}");
    assert!(calls > 0 && longest < PATIENCE, "a call took {longest:?}");
    host.wait_for_holds(before);
    host.wait_for_listed(1);
    assert_eq!((host.figures("clients"), host.figures("broken")), (1, 0));
    let bytes = host.figures("ring-bytes");
    drop(witness);
    host.server.wait_for_info("local_clients:0\r\n");
    assert!(bytes > 0 && host.figures("ring-bytes") == 0);
}

#[test]
fn a_dead_client_isnt_kept_by_a_child_that_has_its_socket() {
    // The client's process gives its socket to a child and is killed; the child lives on. The
    // server sees the process end. Another one's child is the client's own business: as long as
    // the process lives, the client does.
    let host = Host::start(&["--shards", "1"]);
    let before = host.holds_at_rest();
    // The child inherits its standard input, which is the socket; the shell connects by no means,
    // so the test binary does.
    let mut parent = spawn_holder(&host);
    let began = Instant::now();
    while host.figures("clients") < 1 {
        assert!(began.elapsed() < SOON, "it attaches");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(host.figures("clients"), 1);
    parent.kill().expect("our child");
    parent.wait().expect("our child");
    host.server.wait_for_info("local_clients:0\r\n");
    host.wait_for_holds(before);
}

fn spawn_holder(host: &Host) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["local::ends::a_client_whose_child_has_its_socket", "--exact"])
        .env(HOLDER, &host.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

/// The child of the test above.
#[test]
fn a_client_whose_child_has_its_socket() {
    let Ok(path) = std::env::var(HOLDER) else { return };
    let client = LocalClient::attach(Path::new(&path), &[]).expect("attached");
    let socket = client.socket.as_fd().try_clone_to_owned().expect("a descriptor");
    // It ends by itself, if nobody is there any more.
    let mut child = Command::new("sleep").arg("20").stdin(Stdio::from(socket)).spawn().unwrap();
    let _ = child.wait();
}

#[test]
fn a_client_is_ended_by_others_and_comes_again() {
    // CLIENT KILL, LOCAL KILL and SHUTDOWN end a client, which sees the end of its socket. It
    // attaches again, to the next server on the same arenas too, also after a SIGKILL.
    let mut host = Host::start(&["--shards", "2"]);
    let mut client = host.attach();
    let before = host.holds_at_rest();
    for command in ["CLIENT", "LOCAL"] {
        let id = client.call(&["CLIENT", "ID"]).integer().expect("a number").to_string();
        let killed = host.server.call(&[command, "KILL", "ID", &id]);
        assert!(killed == ok() || killed == Frame::Integer(1), "{killed:?}");
        assert!(client.is_ended());
        let said = host.server.call(&["LOCAL", "KILL", "ID", &id]);
        assert_eq!(said.error(), Some(b"ERR No such local client".as_slice()));
        client = host.attach();
    }
    let id = client.call(&["CLIENT", "ID"]).integer().expect("a number").to_string();
    assert_eq!(client.call(&["LOCAL", "KILL", "ID", &id]), ok(), "it may end itself");
    assert!(client.is_ended());
    client = host.attach();
    host.wait_for_holds(before);
    assert_eq!(client.call(&["SET", "kept", "1"]), ok());
    for signal in [Signal::KILL, Signal::TERM] {
        host.server.signal(signal);
        assert!(client.is_ended());
        host.server.ended_with_code();
        host = Host::start_in(host.folder, &["--shards", "2"]);
        client = host.attach();
        assert_eq!(client.call(&["GET", "kept"]), bulk("1"));
    }
    assert!(client.call_bytes(&[b"SHUTDOWN"]).is_err());
    let (code, said) = host.server.ended_with_code();
    assert_eq!(code, Some(0), "{said}");
}
