//! Clients that take more than their share.

use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// One connection too many is told so and closed; when another goes, there is room again.
#[test]
fn too_many_clients_are_refused() {
    let server = TestServer::with(&[("maxclients", "2")]);
    let mut first = server.connect();
    first.says("PING", "+PONG\r\n");
    let mut second = server.connect();
    second.says("PING", "+PONG\r\n");
    let mut third = server.connect();
    third.expect("-ERR max number of clients reached\r\n");
    assert!(third.is_closed());
    second.says("QUIT", "+OK\r\n");
    assert!(second.is_closed());
    server.connect().says("PING", "+PONG\r\n");
}

/// The bytes of replies that wait for a client, once some do and they don't become more.
fn waiting(other: &mut Client) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut before = 0;
    loop {
        other.says("PING", "+PONG\r\n");
        let list = other.text("CLIENT LIST");
        let omem = |line: &str| {
            let omem = line.split(' ').find_map(|field| field.strip_prefix("omem="))?;
            omem.parse::<usize>().ok()
        };
        let waiting = list.lines().filter_map(omem).max().expect("clients");
        if waiting > 0 && waiting == before {
            return waiting;
        }
        before = waiting;
        assert!(Instant::now() < deadline, "the sockets take it all");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A client that asks for much and reads nothing is held back: the server's memory stays small,
/// others are served, and it gets everything once it reads.
#[test]
fn client_that_doesnt_read_is_held_back() {
    let server = TestServer::with(&[("output-buffer-pause", "64kb")]);
    let mut slow = server.connect();
    let value = vec![b'x'; 10_000];
    assert_eq!(slow.ask(&[b"SET", b"k", &value]), Frame::Simple(b"OK".to_vec()));
    let mut writer = slow.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || {
        let bytes = request(&[b"GET", b"k"]).repeat(5000);
        writer.write_all(&bytes).expect("the server reads in the end");
    });
    // A buffer has up to twice the room of what it holds.
    assert!(waiting(&mut server.connect()) <= 2 * (64 * 1024 + 2 * value.len()));
    for _ in 0..5000 {
        assert!(slow.reply() == Frame::Bulk(value.clone()));
    }
    sender.join().expect("the sender ends");
}

/// A reply longer than the limit ends the connection of a client that doesn't take it.
#[test]
fn slow_reader_is_cut_off() {
    let server = TestServer::with(&[("output-buffer-limit", "1mb")]);
    let mut slow = server.connect();
    let value = vec![b'x'; 900_000];
    assert_eq!(slow.ask(&[b"SET", b"k", &value]), Frame::Simple(b"OK".to_vec()));
    let many: Vec<&[u8]> = std::iter::once(b"MGET".as_slice())
        .chain(std::iter::repeat_n(b"k".as_slice(), 60))
        .collect();
    slow.send(request(&many));
    assert!(slow.is_closed());
    let info = server.connect().text("INFO stats");
    assert!(info.contains("client_output_buffer_limit_disconnections:1"), "{info}");
}

/// A reply that another shard gives, or that waits for another shard's, is copied. Beyond what a
/// client's output may be it is refused: one value, asked for a million times behind a write, once
/// ended the server.
#[test]
fn reply_by_way_of_another_shard_is_bounded() {
    let settings = [("shards", "2"), ("partitions", "2"), ("output-buffer-limit", "1mb")];
    let server = TestServer::with(&settings);
    let [here, there] = &server.connect().one_of_each();
    let mut client = server.connect_to_owner(here);
    for key in [here, there] {
        let value = vec![b'x'; 100_000];
        assert_eq!(client.ask(&[b"SET", key.as_bytes(), &value]), Frame::Simple(b"OK".to_vec()));
        let words = std::iter::once("MGET").chain(std::iter::repeat_n(key.as_str(), 60));
        let many: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let set = request(&[b"SET", there.as_bytes(), &value]);
        client.send([set, request(&many)].concat());
        assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()));
        let reply = client.reply();
        let text = String::from_utf8_lossy(reply.error().expect("an error")).into_owned();
        assert!(text.starts_with("ERR the reply takes 600"), "{key}: {text}");
        client.says("PING", "+PONG\r\n");
    }
}

/// Replies of functions were bounded one by one: a pipeline of a thousand calls with long results
/// was run as one batch, before anybody looked how long they are together. Through another shard
/// and behind its replies it is the same.
#[test]
fn calls_of_a_client_that_doesnt_read_wait() {
    const CALLS: usize = 100;
    let source = "#!js name=l\nexport const read = (db, [n]) => n + 'x'.repeat(1e6);\n\
        read.flags = ['no-writes'];\n\
        export const put = (db, [n]) => n + 'x'.repeat(1e6);";
    let settings = [("shards", "2"), ("output-buffer-pause", "64kb")];
    let server = TestServer::with(&settings);
    let mut client = server.connect();
    client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    // One at the owner; of the others some are elsewhere.
    let mut slow = vec![server.connect_to_owner("k")];
    slow.extend((0..3).map(|_| server.connect()));
    let kinds = [("read", ""), ("put", ""), ("read", "SET k v\r\n")];
    for (at, (name, behind)) in (0..slow.len()).flat_map(|at| kinds.map(|kind| (at, kind))) {
        let slow = &mut slow[at];
        let calls = (0..CALLS).map(|n| format!("FCALL {name} 0 {n}\r\n"));
        slow.send(behind.to_owned() + &calls.collect::<String>());
        // What may wait and one more, and as much again as a buffer has room.
        let waits = waiting(&mut client);
        assert!(waits < 8 << 20, "{name}: {waits} bytes");
        if !behind.is_empty() {
            slow.expect("+OK\r\n");
        }
        for n in 0..CALLS {
            let reply = slow.reply();
            let number = reply.bytes().and_then(|text| text.strip_suffix(&[b'x'; 1_000_000]));
            assert!(number == Some(n.to_string().as_bytes()), "{name}: {n}");
        }
    }
}

/// Results of a batch came to the buffer together, some 16 MB, before any was written: with a lower
/// limit a client that reads was cut off, though each of its replies is far below the limit.
#[test]
fn calls_of_a_client_that_reads_pass_a_low_limit() {
    let source = "#!js name=l\nexport const read = (db, [n]) => n + 'x'.repeat(1e6);\n\
        read.flags = ['no-writes'];\n\
        export const put = (db, [n]) => n + 'x'.repeat(1e6);";
    let settings =
        [("shards", "2"), ("output-buffer-pause", "16kb"), ("output-buffer-limit", "4mb")];
    let server = TestServer::with(&settings);
    server.connect().ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    let mut clients = vec![server.connect_to_owner("k")];
    clients.extend((0..3).map(|_| server.connect()));
    for client in &mut clients {
        for name in ["read", "put"] {
            let calls = (0..20).map(|n| format!("FCALL {name} 0 {n}\r\n"));
            client.send(calls.collect::<String>());
            for n in 0..20 {
                let reply = client.reply();
                let number = reply.bytes().and_then(|text| text.strip_suffix(&[b'x'; 1_000_000]));
                assert!(number == Some(n.to_string().as_bytes()), "{name}: {n}");
            }
        }
    }
}

/// After many writes, whose replies are short, a pipeline of reads of a large value that the owner
/// has to answer (since it follows a write) went there at once, and the owner copied all of it.
#[test]
fn reads_behind_a_write_of_a_client_that_doesnt_read_wait() {
    const READS: usize = 100;
    let settings = [("shards", "3"), ("partitions", "3"), ("maxmemory", "128mb")];
    let server = TestServer::with(&settings);
    let [here, there, third] = &server.connect().one_of_each();
    let (mut slow, mut other) = (server.connect_to_owner(here), server.connect_to_owner(third));
    let value = vec![b'x'; 1_000_000];
    assert_eq!(slow.ask(&[b"SET", there.as_bytes(), &value]), Frame::Simple(b"OK".to_vec()));
    let small = format!("SET {there}x v\r\n");
    slow.send(small.repeat(2000));
    slow.expect("+OK\r\n".repeat(2000));
    let get = format!("GET {there}\r\n");
    slow.send(request(&[b"SET", there.as_bytes(), &value]));
    slow.send(get.repeat(READS));
    let waits = waiting(&mut server.connect());
    assert!(waits < 40 << 20, "{waits} bytes");
    // Meanwhile the owner serves others.
    other.says(&format!("SET {there}y v"), "+OK\r\n");
    slow.expect("+OK\r\n");
    (0..READS).for_each(|_| assert!(slow.reply() == Frame::Bulk(value.clone())));
}

/// The reply of a call waits for what the call has left for other shards to do, so it is kept:
/// beyond the limit it is refused, as any reply that is copied.
#[test]
fn the_reply_of_a_call_that_writes_elsewhere_is_bounded() {
    let settings = [("shards", "2"), ("partitions", "2"), ("output-buffer-limit", "1mb")];
    let server = TestServer::with(&settings);
    let mut client = server.connect();
    let [here, there] = &client.one_of_each();
    let source = "#!js name=l\nexport function put(db, args, keys) {\n\
        for (const key of keys) db.set(key, 'new'); return 'x'.repeat(2e6); }\n\
        put.flags = ['allow-cross-slot-keys'];";
    client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    let error = client.text(&format!("FCALL put 2 {here} {there}"));
    assert!(error.starts_with("ERR the reply takes 20000"), "{error}");
    client.says(&format!("GET {here}"), "$3\r\nnew\r\n");
    client.says(&format!("GET {there}"), "$3\r\nnew\r\n");
}

/// Replies that were under way when they got long may be more than a client's output: it is cut off
/// before all have come.
#[test]
fn who_is_flooded_by_another_shard_is_cut_off() {
    let settings = [("shards", "2"), ("partitions", "2"), ("output-buffer-limit", "1mb")];
    let server = TestServer::with(&settings);
    let [here, there] = &server.connect().one_of_each();
    let mut client = server.connect_to_owner(here);
    let set = |value: &[u8]| request(&[b"SET", there.as_bytes(), value]);
    let get = format!("GET {there}\r\n");
    // Each behind a write, so that the owner answers; many have short replies, and then all are
    // long.
    for _ in 0..20 {
        client.send([set(b"v"), get.repeat(20).into_bytes()].concat());
        client.expect(format!("+OK\r\n{}", "$1\r\nv\r\n".repeat(20)));
    }
    client.send([set(&vec![b'x'; 900_000]), get.repeat(32).into_bytes()].concat());
    assert!(client.is_closed());
    server.connect().says("PING", "+PONG\r\n");
}

/// A request that grows beyond the limit ends the connection, before it is complete.
#[test]
fn endless_request_is_cut_off() {
    let server = TestServer::with(&[("client-query-buffer-limit", "1mb")]);
    let mut client = server.connect();
    client.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n");
    let chunk = vec![b'x'; 100_000];
    let ended = (0..1000).any(|_| client.stream.write_all(&chunk).is_err());
    assert!(ended && client.is_closed());
    let info = server.connect().text("INFO stats");
    assert!(info.contains("client_query_buffer_limit_disconnections:1"), "{info}");
}

/// A client that is silent for longer than `timeout` is disconnected.
#[test]
fn idle_client_is_disconnected() {
    let server = TestServer::with(&[("timeout", "1")]);
    let mut client = server.connect();
    client.says("PING", "+PONG\r\n");
    assert!(client.is_closed());
}

/// A long reply goes out slowly, to a client that reads all the time and sends nothing: it isn't
/// silent, however long that takes. It was hung up on in the midst of its reply.
#[test]
fn client_that_reads_slowly_is_not_idle() {
    const VALUE_BYTES: usize = 3_000_000;
    let path = format!("/tmp/nigh-test-{}-slow.sock", std::process::id());
    let _server = TestServer::with(&[("timeout", "2"), ("unixsocket", &path)]);
    // Of a Unix socket, little is under way.
    let mut slow = UnixStream::connect(&path).expect("it listens");
    slow.write_all(&request(&[b"SET", b"k", &vec![b'x'; VALUE_BYTES]])).expect("it reads");
    let mut set = [0; 5];
    slow.read_exact(&mut set).expect("it answers");
    assert_eq!(&set, b"+OK\r\n");
    slow.write_all(b"GET k\r\n").expect("it reads");
    let mut piece = vec![0; VALUE_BYTES / 60];
    for _ in 0..60 {
        slow.read_exact(&mut piece).expect("all of it comes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A call takes longer than `timeout`. Its client, at another shard, waits for its reply, and isn't
/// idle.
#[test]
fn client_that_waits_for_another_shard_is_not_idle() {
    let source = "#!js name=f\n\
        const there = (db, key) => { let at = 0; do { const page = db.scan(key, at); \
        if (page.keys.length) return true; at = page.cursor; } while (at !== 0); return false; };\n\
        export function wait(db, [key]) { while (!there(db, key)); return 'came'; }";
    let settings = [("shards", "2"), ("partitions", "2"), ("timeout", "1")];
    let server = TestServer::with(&settings);
    let [here, there] = &server.connect().one_of_each();
    let mut client = server.connect_to_owner(here);
    client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    let mut other = server.connect_to_owner(here);
    client.send(format!("FCALL wait 1 {there} {{{here}}}key\r\n"));
    for _ in 0..25 {
        std::thread::sleep(Duration::from_millis(100));
        other.says("PING", "+PONG\r\n");
    }
    assert!(client.is_silent());
    other.says(&format!("SET {{{here}}}key v"), "+OK\r\n");
    client.expect("$4\r\ncame\r\n");
}

/// Of a transaction only the bytes of its words were counted: a million empty ones cost nothing,
/// and took 8 MiB. Of watched keys only their number was.
#[test]
fn what_a_client_leaves_at_the_server_is_bounded_in_bytes() {
    let server = TestServer::with(&[("client-query-buffer-limit", "1mb")]);
    let mut client = server.connect();
    client.says("MULTI", "+OK\r\n");
    let empty = std::iter::repeat_n(b"".as_slice(), 150_000);
    let reply = client.ask(&std::iter::once(b"DEL".as_slice()).chain(empty).collect::<Vec<_>>());
    let text = reply.error().map(String::from_utf8_lossy).expect("it is refused");
    assert!(text.starts_with("ERR the transaction is too long"), "{text}");
    client.says("DISCARD", "+OK\r\n");
    let long = vec![b'k'; 600_000];
    assert_eq!(client.ask(&[b"WATCH", &long]), Frame::Simple(b"OK".to_vec()));
    let reply = client.ask(&[b"WATCH", &long]);
    let text = reply.error().map(String::from_utf8_lossy).expect("it is refused");
    let expected = "ERR the watched keys would take 1200000 bytes, and client-query-buffer-limit \
                    is 1048576: watch fewer or shorter ones, or UNWATCH first";
    assert_eq!(text, expected);
    client.says("UNWATCH", "+OK\r\n");
    assert_eq!(client.ask(&[b"WATCH", &long]), Frame::Simple(b"OK".to_vec()));
}

/// A name that is given ten thousand times had ten thousand answers, in one step. Where a map
/// answers, it has one; a list ends where the client's output does.
#[test]
fn a_name_that_is_repeated_is_answered_within_the_limit() {
    let server = TestServer::with(&[("output-buffer-limit", "1mb")]);
    let mut client = server.connect();
    client.says("CLIENT GETNAME", "$-1\r\n");
    let mut ask = |command: &str| {
        let words = command.split(' ').chain(std::iter::repeat_n("client", 10_000));
        client.ask(&words.map(str::as_bytes).collect::<Vec<_>>())
    };
    let docs = ask("COMMAND DOCS");
    assert_eq!(docs.elements().map(<[Frame]>::len), Some(2), "a name and its documentation");
    let reply = ask("COMMAND INFO");
    let text = reply.error().map(String::from_utf8_lossy).expect("it is refused");
    assert!(text.starts_with("ERR the reply takes 10"), "{text}");
    // A container means its subcommands, of which one has run.
    let times = ask("LATENCY HISTOGRAM client|getname");
    assert_eq!(times.elements().map(<[Frame]>::len), Some(2), "a name and its times");
}

/// When memory is full, writes are refused in Redis's words, and what is there stays readable and
/// deletable.
#[test]
fn full_memory_refuses_writes_and_loses_nothing() {
    let server = TestServer::with(&[("maxmemory", "8mb")]);
    let mut client = server.connect();
    let value = vec![b'v'; 20_000];
    let mut stored = 0;
    let error = loop {
        let key = format!("k{stored}");
        match client.ask(&[b"SET", key.as_bytes(), &value]) {
            Frame::Simple(_) => stored += 1,
            Frame::Error(text) => break String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        }
        assert!(stored < 1000, "8 MiB don't hold 20 MB");
    };
    assert_eq!(error, "OOM command not allowed when used memory > 'maxmemory'.");
    assert!(stored > 200, "{stored} values of 20 kB in 8 MiB");
    for number in 0..stored {
        let key = format!("k{number}");
        assert!(client.ask(&[b"GET", key.as_bytes()]) == Frame::Bulk(value.clone()));
    }
    client.says("DEL k0", ":1\r\n");
    client.says("FLUSHALL", "+OK\r\n");
    client.says("SET k v", "+OK\r\n");
}
