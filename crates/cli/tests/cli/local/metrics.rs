//! What Prometheus is told of local clients.

use super::{Host, SOON, ok};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The page of metrics.
fn page(port: u16) -> String {
    let mut text = String::new();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: nigh\r\n\r\n").expect("it reads");
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Waits until the page has each of these lines: numbers are a tick old at most.
fn wait_for(port: u16, lines: &[(&str, u64)]) {
    let began = Instant::now();
    loop {
        let page = page(port);
        let has =
            |(name, value): &(&str, u64)| page.contains(&format!("\nnigh_local_{name} {value}\n"));
        if lines.iter().all(has) {
            return;
        }
        assert!(began.elapsed() < SOON, "{lines:?} aren't all in {page}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn metrics_count_local_clients() {
    // Two clients attach, a third one is refused. One sends ten requests by its ring, which the
    // server counts apart from those that came by the socket. When both have left, their memory is
    // gone, and what was counted stays.
    let port =
        TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound").port();
    let host = Host::start(&[
        "--shards",
        "2",
        "--local-max-clients",
        "2",
        "--metrics-port",
        &port.to_string(),
    ]);
    wait_for(port, &[("clients", 0), ("ring_bytes", 0), ("requests_total", 0)]);
    let (mut first, second) = (host.attach(), host.attach());
    assert!(super::LocalClient::attach(&host.path, &[]).is_err(), "two are the most");
    for n in 0..10 {
        assert_eq!(first.call(&["SET", &format!("k{n}"), "v"]), ok());
    }
    assert_eq!(host.server.call(&["SET", "k", "by a socket"]), ok());
    let bytes = u64::try_from(host.figures("ring-bytes")).expect("some");
    assert!(bytes > 0);
    let counted = [("attached_total", 2), ("refused_total", 1), ("requests_total", 10)];
    let now = [("clients", 2), ("ring_bytes", bytes), ("broken_total", 0)];
    wait_for(port, &[&counted[..], &now[..]].concat());
    drop((first, second));
    wait_for(port, &[&counted[..], &[("clients", 0), ("ring_bytes", 0)]].concat());
}
