//! Requests as they come: whole, in pieces, many at once, and broken.

use crate::common::{TestServer, request};
use nigh_resp::frame::Frame;
use std::time::Duration;

/// A client sends ten thousand commands before it reads: the replies come complete and in order.
#[test]
fn long_pipeline_is_answered_in_order() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        let mut bytes = Vec::new();
        for number in 0..10_000 {
            let (key, value) = (format!("key:{number}"), format!("value:{number}"));
            bytes.extend(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
            bytes.extend(request(&[b"GET", key.as_bytes()]));
        }
        writer.write_all(&bytes).expect("the server reads");
    });
    for number in 0..10_000 {
        assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()), "{number}");
        assert_eq!(client.reply(), Frame::Bulk(format!("value:{number}").into_bytes()));
    }
    sender.join().expect("the sender ends");
    assert_eq!(client.number("DBSIZE"), 10_000);
}

/// Wherever a request is cut into packets, it is executed once and answered once.
#[test]
fn request_cut_at_every_byte_is_answered_once() {
    let server = TestServer::start();
    let mut client = server.connect();
    let bytes = [request(&[b"SET", b"k", b"v"]), request(&[b"APPEND", b"k", b"w"])].concat();
    for cut in 1..bytes.len() {
        client.send(&bytes[..cut]);
        std::thread::sleep(Duration::from_micros(300));
        client.send(&bytes[cut..]);
        client.expect("+OK\r\n:2\r\n");
    }
}

/// Several connections' commands share a window; each still gets its own replies.
#[test]
fn connections_dont_mix() {
    let server = TestServer::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = format!("{number}:{round}");
            let key = format!("k{number}");
            client.send(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
            client.send(request(&[b"GET", key.as_bytes()]));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            client.expect("+OK\r\n");
            let value = format!("{number}:{round}");
            client.expect(format!("${}\r\n{value}\r\n", value.len()));
        }
    }
}

/// What isn't RESP is answered with Redis's words, after what came before it, and the connection
/// ends.
#[test]
fn protocol_errors_are_answered_and_end_the_connection() {
    let server = TestServer::start();
    for (bytes, error) in [
        ("*1\r\n:4\r\n", "expected '$', got ':'"),
        ("*x\r\n", "invalid multibulk length"),
        ("*2000000000\r\n", "invalid multibulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n$999999999999\r\n", "invalid bulk length"),
        ("PING \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.connect();
        client.send(format!("PING\r\n{bytes}PING\r\n"));
        client.expect(format!("+PONG\r\n-ERR Protocol error: {error}\r\n"));
        assert!(client.is_closed(), "{bytes:?}");
    }
}

/// A web page can make a browser send commands hidden in a POST: the connection ends before them.
#[test]
fn http_requests_are_dropped() {
    let server = TestServer::start();
    for first in ["POST / HTTP/1.1\r\n", "Host: localhost:6379\r\n"] {
        let mut client = server.connect();
        client.send(format!("{first}SET attacked yes\r\n"));
        assert!(client.is_closed());
    }
    assert_eq!(server.connect().number("EXISTS attacked"), 0);
}

/// The client has sent all and closed its half: everything is still answered.
#[test]
fn half_closed_connection_gets_its_replies() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut bytes = Vec::new();
    (0..3000).for_each(|_| bytes.extend(request(&[b"INCR", b"n"])));
    client.send(bytes);
    client.stream.shutdown(std::net::Shutdown::Write).expect("half of it closes");
    for number in 1..=3000 {
        assert_eq!(client.reply(), Frame::Integer(number));
    }
    assert!(client.is_closed());
}

/// Large values travel without a copy into the output, and arrive whole between small replies.
#[test]
fn large_values_arrive_whole() {
    let server = TestServer::start();
    let mut client = server.connect();
    let value: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(client.ask(&[b"SET", b"big", &value]), Frame::Simple(b"OK".to_vec()));
    for _ in 0..3 {
        client
            .send([request(&[b"PING"]), request(&[b"GET", b"big"]), request(&[b"PING"])].concat());
        // The value is overwritten while the socket still holds some of it back.
        client.send(request(&[b"SET", b"big", &value]));
        client.send(request(&[b"MGET", b"big", b"none", b"big"]));
        assert_eq!(client.reply(), Frame::Simple(b"PONG".to_vec()));
        assert!(client.reply() == Frame::Bulk(value.clone()));
        assert_eq!(client.reply(), Frame::Simple(b"PONG".to_vec()));
        assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()));
        let big = Frame::Bulk(value.clone());
        assert!(client.reply() == Frame::Array(vec![big.clone(), Frame::Null, big]));
    }
}

/// A client writes for longer than `output-buffer-timeout`, and reads when it has written all. It
/// was cut off in the midst: what it sent didn't count.
#[test]
fn a_client_that_still_sends_is_not_cut_off() {
    const ASKED: usize = 24;
    let server = TestServer::with(&[
        ("shards", "1"),
        ("output-buffer-pause", "16kb"),
        ("output-buffer-timeout", "1"),
    ]);
    let (mut client, value) = (server.connect(), vec![b'x'; 1 << 20]);
    assert_eq!(client.ask(&[b"SET", b"k", &value]), Frame::Simple(b"OK".to_vec()));
    client.send("GET k\r\n".repeat(ASKED));
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        client.send("PING\r\n");
    }
    (0..ASKED).for_each(|_| assert!(client.reply() == Frame::Bulk(value.clone())));
    (0..30).for_each(|_| assert_eq!(client.reply(), Frame::Simple(b"PONG".to_vec())));
    // With all sent, it is.
    let disconnected = "client_output_buffer_limit_disconnections";
    assert_eq!(server.connect().info("stats", disconnected), "0");
    client.send("GET k\r\n".repeat(ASKED));
    let mut other = server.connect();
    while other.info("stats", disconnected) == "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Random bytes, whatever they are, leave the server able to answer the next client.
#[test]
fn random_bytes_dont_hurt() {
    let server = TestServer::start();
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    for _ in 0..200 {
        let mut client = server.connect();
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                b"*$0123456789\r\nGETSEXFLUSHMULTI \"\x00\xff"[(state % 34) as usize]
            })
            .collect();
        use std::io::Write;
        let _ = client.stream.write_all(&bytes);
    }
    assert_eq!(server.connect().text("PING"), "PONG");
}
