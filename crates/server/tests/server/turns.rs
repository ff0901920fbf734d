//! A turn ends when it has done enough, whatever clients ask for: others have their turn then.

use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// A long value: most of it finds no room in the socket of a client that doesn't read.
const LONG: usize = 10_000_000;
/// What a turn may copy: a few MiB and the reply that goes over them, for each of its parts.
const MOST_COPIED: usize = 2 * (4 << 20) + 2 * LONG;

/// A function that takes about so many milliseconds and returns its other argument.
const SPIN: &[u8] = b"#!js name=l\n\
    export function spin(db, [ms, n]) {\n\
      let sum = 0;\n\
      for (let i = 0; i < ms * 4e5; i++) sum = (sum + i) | 0;\n\
      return Number(n) + sum * 0;\n\
    }\n\
    spin.flags = ['no-writes'];";

/// There, too, it is not stopped.
const SLOW_MACHINE: (&str, &str) = ("function-time-limit-ms", "60000");

fn most_copied(server: &TestServer) -> usize {
    let most = server.connect().info("nigh", "replies_longest_turn_copied_bytes");
    most.parse().expect("a number")
}

fn is_long(reply: &Frame) -> bool {
    reply.bytes().is_some_and(|bytes| bytes.len() == LONG && bytes.iter().all(|b| *b == b'x'))
}

/// A thousand clients that asked for 10 MB each and read nothing made a PING wait nine seconds: all
/// their replies were copied in one turn. Now each turn copies a few; all others go on, and
/// everybody gets the whole reply.
#[test]
fn long_replies_that_nobody_reads_are_copied_a_few_in_a_turn() {
    let server = TestServer::with(&[("shards", "1"), ("maxmemory", "128mb")]);
    let mut other = server.connect();
    assert_eq!(other.ask(&[b"SET", b"k", &vec![b'x'; LONG]]), Frame::Simple(b"OK".to_vec()));
    let mut slow: Vec<Client> = (0..24).map(|_| server.connect()).collect();
    // Each has something behind the long reply, and some ask in other ways.
    for (at, client) in slow.iter_mut().enumerate() {
        client.send(match at % 3 {
            0 => "GET k\r\nSTRLEN k\r\n",
            1 => "MGET k\r\nSTRLEN k\r\n",
            _ => "MULTI\r\nGET k\r\nEXEC\r\nSTRLEN k\r\n",
        });
    }
    other.says("GET none\r\nSET k2 v", "$-1\r\n+OK\r\n");
    for (at, client) in slow.iter_mut().enumerate() {
        if at % 3 == 2 {
            client.expect("+OK\r\n+QUEUED\r\n");
        }
        let reply = client.reply();
        assert!(is_long(reply.elements().map_or(&reply, |elements| &elements[0])));
        assert_eq!(client.reply(), Frame::Integer(LONG as i64));
    }
    let most = most_copied(&server);
    assert!(most > 0, "the sockets took all: the story wasn't told");
    assert!(most <= MOST_COPIED, "{most} bytes were copied in one turn");
    assert_eq!(other.info("stats", "keyspace_hits"), "48", "who was put off is counted once");
}

/// A turn had a thousand commands of a client, however long they took: a thousand INCRBYFLOATs of 5
/// KB took a second.
#[test]
fn commands_that_take_long_are_done_in_many_turns() {
    const COMMANDS: usize = 400;
    let server = TestServer::with(&[("shards", "1")]);
    let mut client = server.connect();
    let turns = |client: &mut Client| -> i64 {
        client.info("stats", "eventloop_cycles").parse().expect("a number")
    };
    // The value has 4,900 digits from now on.
    let one = request(&[b"INCRBYFLOAT", b"f", b"1e4900"]);
    client.ask(&[b"INCRBYFLOAT", b"f", b"1e4900"]);
    let before = turns(&mut client);
    client.send(one.repeat(COMMANDS));
    for _ in 0..COMMANDS {
        let reply = client.reply();
        assert!(reply.bytes().is_some_and(|bytes| bytes.len() > 4900), "{reply:?}");
    }
    let took = turns(&mut client) - before;
    assert!(took >= 10, "{took} turns");
}

/// So are those that come from other shards: the owner of the data has turns of its own between
/// them.
#[test]
fn commands_of_other_shards_that_take_long_are_done_in_many_turns() {
    const EACH: usize = 60;
    let server = TestServer::with(&[("shards", "2")]);
    let mut owners = server.connect_to_owner("n");
    let mut away: Vec<Client> = Vec::new();
    while away.len() < 4 {
        let mut client = server.connect();
        let before = client.info("nigh", "commands_sent_to_owner");
        client.says("SET n 0", "+OK\r\n");
        if client.info("nigh", "commands_sent_to_owner") != before {
            away.push(client);
        }
    }
    for (at, client) in away.iter_mut().enumerate() {
        // Many may be under way at a time from now on. The value has 4,900 digits.
        client.send("SETNX none 0\r\n".repeat(1000));
        client.expect(":1\r\n".repeat(usize::from(at == 0)));
        client.expect(":0\r\n".repeat(1000 - usize::from(at == 0)));
        client.ask(&[b"INCRBYFLOAT", format!("f{at}").as_bytes(), b"1e4900"]);
    }
    for (at, client) in away.iter_mut().enumerate() {
        let key = format!("f{at}");
        let one = [request(&[b"INCRBYFLOAT", key.as_bytes(), b"1"]), request(&[b"INCR", b"n"])];
        client.send(one.concat().repeat(EACH));
    }
    // What a client of the owner sees meanwhile: a number for each turn that did something.
    let (all, mut seen) = ((EACH * away.len()).to_string(), BTreeSet::new());
    while seen.insert(owners.text("GET n")) || !seen.contains(&all) {}
    assert!(seen.len() >= 10, "{} turns", seen.len());
    for client in &mut away {
        for _ in 0..EACH {
            assert!(client.reply().bytes().is_some_and(|bytes| bytes.len() > 4900));
            assert!(client.reply().integer().is_some());
        }
    }
}

/// Functions are commands, too: what is left of them when a turn's time is over is the next turn's,
/// and each client has its replies in the order of its commands.
#[test]
fn calls_that_take_long_are_done_in_many_turns() {
    let server = TestServer::with(&[("shards", "1"), SLOW_MACHINE]);
    let mut other = server.connect();
    assert_eq!(other.ask(&[b"FUNCTION", b"LOAD", SPIN]), Frame::Bulk(b"l".to_vec()));
    let before: i64 = other.info("stats", "eventloop_cycles").parse().expect("a number");
    let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
    for client in &mut clients {
        let calls =
            (0..4).map(|n| format!("FCALL spin 0 5 {n}\r\nECHO e{n}\r\nFCALL spin 0 5 {n}\r\n"));
        client.send(calls.collect::<String>());
    }
    for client in &mut clients {
        for n in 0..4 {
            client.expect(format!(":{n}\r\n$2\r\ne{n}\r\n:{n}\r\n"));
        }
    }
    let after: i64 = other.info("stats", "eventloop_cycles").parse().expect("a number");
    assert!(after - before >= 12, "128 calls of some milliseconds took {} turns", after - before);
}

/// As long as calls are quick, hundreds are run at once. When those of one batch suddenly took 40
/// ms each, all others waited 20 seconds for them: a batch ends with its turn's time, wherever it
/// is.
#[test]
fn calls_that_are_suddenly_slow_leave_others_their_turns() {
    const CALLS: usize = 100;
    let server = TestServer::with(&[("shards", "1"), SLOW_MACHINE]);
    let (mut slow, mut other) = (server.connect(), server.connect());
    assert_eq!(other.ask(&[b"FUNCTION", b"LOAD", SPIN]), Frame::Bulk(b"l".to_vec()));
    for _ in 0..20 {
        slow.send("FCALL spin 0 0 1\r\n".repeat(1000));
        slow.expect(":1\r\n".repeat(1000));
    }
    slow.send("FCALL spin 0 10 2\r\n".repeat(CALLS));
    let is_done = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut answered = 0;
            while !is_done.load(Ordering::Relaxed) {
                other.says("PING", "+PONG\r\n");
                answered += 1;
            }
            answered
        });
        slow.expect(":2\r\n".repeat(CALLS));
        is_done.store(true, Ordering::Relaxed);
        pings.join().expect("it is answered")
    });
    assert!(answered >= CALLS / 10, "{answered} PINGs were answered between {CALLS} slow calls");
}
