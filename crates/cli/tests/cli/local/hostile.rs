//! Local clients that keep no rule of their rings, read nothing, or do nothing.

use super::many::allow_files;
use super::{Host, SOON, ok};
use crate::support::local::LocalClient;
use nigh_client::{Connection, ConnectionOptions, Frame};
use nigh_resp::encode;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Clients that leave their attachment unread: what they would be given is more than [`FILES`].
const GREEDY: usize = 64;
/// What a server may open in their test, as the shell's limit.
const FILES: &str = "-n 256";

#[test]
fn a_client_that_keeps_no_rule_hurts_only_itself() {
    // Garbage in positions, headers and bells: the server says so once, ends that client, and
    // serves another one meanwhile.
    let host = Host::start(&["--shards", "1"]);
    let before = host.holds_at_rest();
    let mut witness = host.attach();
    let (requests, tail, data) = (4096u64, 128, 384);
    let forgeries: [&[(u64, u64)]; 6] = [
        &[(requests + tail, 7)],
        &[(requests + tail, u64::MAX)],
        &[(requests + data, 1 << 32), (requests + tail, 16)],
        &[(requests + data, 1 << 32 | 0xFFFF), (requests + tail, 1024)],
        &[(requests + data, 5 << 32 | 8), (requests + tail, 16)],
        &[(requests + data, 9 << 48 | 1 << 32 | 8), (requests + tail, 16)],
    ];
    for (n, words) in forgeries.iter().enumerate() {
        let mut client = host.attach();
        let memory = File::from(client.memory.try_clone().expect("a descriptor"));
        for (at, word) in *words {
            memory.write_all_at(&word.to_le_bytes(), *at).expect("it is writable");
        }
        // It may be parked.
        let _ = Write::write(&mut &client.socket, b"w");
        assert!(client.is_ended(), "forgery {n}");
        assert_eq!(host.figures("broken"), n as i64 + 1);
        assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    }
    // A head of replies that it never had, which the server looks at when their ring is full.
    assert_eq!(witness.call(&["SET", "v", &"x".repeat(40_000)]), ok());
    let mut client = host.attach();
    let memory = File::from(client.memory.try_clone().expect("a descriptor"));
    let replies = (requests + data + 65536).next_multiple_of(4096);
    memory.write_all_at(&u64::MAX.to_le_bytes(), replies + 256).expect("it is writable");
    let mut gets = Vec::new();
    (0..3).for_each(|_| encode::request(&mut gets, ["GET", "v"]));
    assert_eq!(client.end.write(&gets), Ok(gets.len()));
    let _ = Write::write(&mut &client.socket, b"w");
    assert!(client.is_ended());
    let said = host.server.said();
    assert_eq!(said.matches("local client disconnected: ").count(), forgeries.len() + 1, "{said}");
    // Bells of any value: the server may be woken for nothing, and no more.
    let client = host.attach();
    let memory = File::from(client.memory.try_clone().expect("a descriptor"));
    for word in [0, 1, u64::MAX, 1 << 16, 0xFFFF, 1 << 40] {
        for bell in [64, 128] {
            memory.write_all_at(&u64::to_le_bytes(word), bell).expect("it is writable");
            let _ = Write::write(&mut &client.socket, b"anything");
            assert_eq!(witness.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
        }
    }
    drop((client, witness));
    host.wait_for_holds(before);
}

#[test]
fn clients_that_rest_or_read_nothing_cost_no_time() {
    // Fifty clients rest; one has asked for far more than its ring takes and reads nothing; one
    // waits for a long time by WAITAOF with requests behind it. The shards sleep. The one that
    // reads nothing is disconnected after output-buffer-timeout, as one with a socket is.
    let host = Host::start(&["--shards", "2"]);
    let rest = Duration::from_millis(700);
    let without = host.least_spent(rest); // much where a machine is slow
    let resting: Vec<LocalClient> = (0..50).map(|_| host.attach()).collect();
    let mut greedy = host.attach();
    assert_eq!(greedy.call(&["SET", "v", &"x".repeat(100_000)]), ok());
    let mut gets = Vec::new();
    (0..100).for_each(|_| encode::request(&mut gets, ["GET", "v"]));
    assert_eq!(greedy.end.write(&gets), Ok(gets.len()));
    greedy.end.flush(|| ());
    let _ = Write::write(&mut &greedy.socket, b"w");
    let mut waiting = host.attach();
    let mut requests = Vec::new();
    encode::request(&mut requests, ["WAITAOF", "0", "1", "60000"]);
    (0..300).for_each(|_| encode::request(&mut requests, ["SET", "w", &"y".repeat(150)]));
    assert!(waiting.end.write(&requests).is_ok_and(|written| written > 40_000));
    waiting.end.flush(|| ());
    let _ = Write::write(&mut &waiting.socket, b"w");
    host.wait_for_listed(52);
    std::thread::sleep(Duration::from_millis(300));
    let spent = host.least_spent(rest);
    assert!(spent <= 150 + 2 * without, "{spent} ms of CPU time for nothing, {without} before");
    assert_eq!(host.server.call(&["CONFIG", "SET", "output-buffer-pause", "16kb"]), ok());
    assert_eq!(host.server.call(&["CONFIG", "SET", "output-buffer-timeout", "1"]), ok());
    assert!(greedy.is_ended());
    host.server.wait_for("it reads nothing of its waiting replies");
    drop((resting, waiting));
    host.server.wait_for_info("local_clients:0\r\n");
}

#[test]
fn memory_of_rings_doesnt_outlive_its_client() {
    // A thousand times a client attaches, and lets go of all but the memory of its rings. Two take
    // leave by QUIT: one finds the reply behind the end of its socket, the other doesn't look. The
    // server gives the memory of all back to the system.
    allow_files(2000);
    let host = Host::start(&["--shards", "1"]);
    let quit = || {
        let mut client = host.attach();
        let mut request = Vec::new();
        encode::request(&mut request, ["QUIT"]);
        assert_eq!(client.end.write(&request), Ok(request.len()));
        let _ = Write::write(&mut &client.socket, b"w");
        assert!(client.is_ended());
        client
    };
    let (mut late, mut reply) = (quit(), Vec::new());
    assert_eq!(late.end.read(&mut reply, 100), Ok(5));
    assert_eq!(reply, b"+OK\r\n");
    let mut kept: Vec<OwnedFd> = (0..1000).map(|_| host.attach().memory).collect();
    kept.extend([late.memory, quit().memory]);
    let began = Instant::now();
    let is_wiped = |memory: &OwnedFd| rustix::fs::fstat(memory).expect("it is open").st_blocks == 0;
    while !kept.iter().all(is_wiped) {
        assert!(began.elapsed() < SOON, "memory is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    host.server.wait_for_info("local_clients:0\r\n");
}

#[test]
fn clients_that_leave_their_attachment_unread_leave_descriptors_for_others() {
    // A server may open 256 files. Many clients ask for a value that their sockets can't take, and
    // attach behind it; they read nothing. What they would be given stays at the server, which
    // counts it: there are descriptors for the log's next files all the time. A second later they
    // are disconnected, and there is room for new connections.
    let dir = tempfile::tempdir().expect("a disk");
    let text = dir.path().display().to_string();
    let log = ["--appendonly", "yes", "--dir", &text, "--log-on-tmpfs", "yes"];
    let sizes = ["--shards", "1", "--journal-size", "4mb", "--log-file-size", "1mb"];
    let flags = [&log[..], &sizes].concat();
    let host = Host::start_under(&[FILES], crate::support::folder(), &flags);
    let host = host.unwrap_or_else(|said| panic!("it ended: {said}"));
    let mut witness = host.server.connect();
    let long = "x".repeat(300_000);
    assert_eq!(witness.call(["SET", "v", &long]).expect("served"), ok());
    let mut requests = Vec::new();
    encode::request(&mut requests, ["GET", "v"]);
    encode::request(&mut requests, ["LOCAL", "ATTACH", "1"]);
    let greedy: Vec<UnixStream> = (0..GREEDY)
        .map(|_| {
            let mut socket = UnixStream::connect(&host.path).expect("it listens");
            // One that is refused is closed at once.
            let _ = socket.write_all(&requests);
            socket
        })
        .collect();
    let value = "y".repeat(50_000);
    for n in 0..60 {
        let set = witness.call(["SET", &format!("k{n}"), &value]);
        assert_eq!(set.expect("served"), ok());
    }
    host.server.wait_for("it reads no reply to LOCAL ATTACH");
    let options = ConnectionOptions { timeout: Some(SOON), ..ConnectionOptions::default() };
    let began = Instant::now();
    let is_served = || {
        let pong = Connection::connect(&host.server.address(), &options)
            .and_then(|mut connection| connection.call(["PING"]));
        pong.is_ok_and(|pong| pong == Frame::Simple(b"PONG".to_vec()))
    };
    while !is_served() {
        assert!(began.elapsed() < SOON, "there is room for new connections");
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = host.server.said();
    assert!(!said.contains("Too many open files"), "{said}");
    host.server.wait_for_info("local_clients:0\r\n");
    drop(greedy);
}
