//! Connections and servers that end, and the socket of the host: nobody else is taken along, and
//! nothing is left.

use super::{connect, server, server_with};

/// A client that leaves while its commands are at the owner takes nobody along, and they still
/// happen.
#[test]
fn a_client_that_leaves_loses_only_its_replies() {
    let server = server();
    for round in 0..20 {
        let mut leaver = server.connect();
        leaver.send(format!("INCR n{round}\r\n").repeat(50));
        drop(leaver);
        let mut stayer = server.connect();
        stayer.says("SET s 1", "+OK\r\n");
        stayer.says("GET s", "$1\r\n1\r\n");
    }
}

/// A client that says that it will send no more gets all its replies first.
#[test]
fn a_half_closed_connection_gets_its_replies() {
    let server = server();
    for client in &mut connect(&server) {
        client.send("SET k 1\r\n".repeat(100));
        client.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        client.expect("+OK\r\n".repeat(100));
        assert!(client.is_closed());
    }
}

/// SHUTDOWN at any shard ends them all, and with NOSAVE nothing is left.
#[test]
fn shutdown_ends_every_shard() {
    for _ in 0..6 {
        let mut server = server();
        let mut client = server.connect();
        client.says("SET k 1", "+OK\r\n");
        client.send("SHUTDOWN NOSAVE\r\n");
        server.wait();
        assert!(!server.dir.exists(), "the arenas are removed");
    }
}

/// Connections of a Unix socket are spread over the shards too, by the one that accepts.
#[test]
fn a_unix_socket_serves_from_all_shards() {
    use std::io::{Read, Write};
    let path = std::env::temp_dir().join(format!("nigh-shards-{}.sock", std::process::id()));
    let text = path.to_str().expect("plain");
    let server = server_with(&[("unixsocket", text)]);
    let ask = |text: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        stream.write_all(text.as_bytes()).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("an answer, and the end");
        reply
    };
    for number in 0..9 {
        let reply = ask(&format!("SET u{number} 1\r\nGET u{number}\r\n"));
        assert_eq!(reply, "+OK\r\n$1\r\n1\r\n");
    }
    assert_eq!(ask("DBSIZE\r\n"), ":9\r\n");
    let info = ask("INFO nigh\r\n");
    let hops = info.lines().find_map(|line| line.strip_prefix("commands_sent_to_owner:"));
    // Two of three connections, or two of three keys, are at other shards.
    assert!(hops.and_then(|hops| hops.parse::<u64>().ok()) > Some(0), "{info}");
    drop(server);
}
