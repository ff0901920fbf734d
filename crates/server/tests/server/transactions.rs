//! MULTI, EXEC, DISCARD, WATCH over two connections.

use crate::common::{Client, TestServer, may_come_again, request};
use nigh_resp::frame::Frame;
use std::time::{Duration, Instant};

/// A transaction's commands wait for EXEC, and its replies come together.
#[test]
fn queued_commands_run_at_exec() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.says("MULTI", "+OK\r\n");
    a.says("SET k 1", "+QUEUED\r\n");
    a.says("INCR k", "+QUEUED\r\n");
    a.says("PING", "+QUEUED\r\n");
    b.says("GET k", "$-1\r\n");
    a.says("EXEC", "*3\r\n+OK\r\n:2\r\n+PONG\r\n");
    b.says("GET k", "$1\r\n2\r\n");
}

/// A command that is refused while queueing spoils the transaction; one that fails in EXEC doesn't.
#[test]
fn refused_command_spoils_the_transaction() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("MULTI", "+OK\r\n");
    client.says("SET k", "-ERR wrong number of arguments for 'set' command\r\n");
    client.says("SET k 1", "+QUEUED\r\n");
    client.says("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.says("EXISTS k", ":0\r\n");
    client.says("SET k text", "+OK\r\n");
    client.says("MULTI", "+OK\r\n");
    client.says("INCR k", "+QUEUED\r\n");
    client.says("SET l 1", "+QUEUED\r\n");
    client.says("EXEC", "*2\r\n-ERR value is not an integer or out of range\r\n+OK\r\n");
    client.says("GET l", "$1\r\n1\r\n");
}

/// Misplaced commands are refused with Redis's words.
#[test]
fn misplaced_commands_are_refused() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("EXEC", "-ERR EXEC without MULTI\r\n");
    client.says("DISCARD", "-ERR DISCARD without MULTI\r\n");
    client.says("MULTI", "+OK\r\n");
    client.says("MULTI", "-ERR MULTI calls can not be nested\r\n");
    client.says("WATCH k", "-ERR WATCH inside MULTI is not allowed\r\n");
    client.says("SHUTDOWN", "-ERR Command not allowed inside a transaction\r\n");
    client.says("DISCARD", "+OK\r\n");
    client.says("EXEC x", "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n");
}

/// A watched key that another connection touches makes EXEC answer null and do nothing.
#[test]
fn touched_watch_stops_exec() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.says("SET k 1", "+OK\r\n");
    a.says("WATCH k", "+OK\r\n");
    b.says("SET k 2", "+OK\r\n");
    a.says("MULTI", "+OK\r\n");
    a.says("SET k 3", "+QUEUED\r\n");
    a.says("EXEC", "*-1\r\n");
    b.says("GET k", "$1\r\n2\r\n");
    // EXEC has forgotten the watch.
    b.says("SET k 4", "+OK\r\n");
    a.says("MULTI", "+OK\r\n");
    a.says("SET k 5", "+QUEUED\r\n");
    a.says("EXEC", "*1\r\n+OK\r\n");
    // UNWATCH and DISCARD do too; a key that nobody touched doesn't matter.
    for forget in ["UNWATCH", "MULTI\r\nDISCARD"] {
        a.says("WATCH k", "+OK\r\n");
        b.says("SET k 6", "+OK\r\n");
        a.says(forget, if forget == "UNWATCH" { "+OK\r\n" } else { "+OK\r\n+OK\r\n" });
        a.says("WATCH other", "+OK\r\n");
        a.says("MULTI", "+OK\r\n");
        a.says("PING", "+QUEUED\r\n");
        a.says("EXEC", "*1\r\n+PONG\r\n");
    }
}

/// A client that goes away inside MULTI leaves nothing behind.
#[test]
fn vanished_client_leaves_no_writes() {
    let server = TestServer::start();
    let mut a = server.connect();
    a.says("WATCH k", "+OK\r\n");
    a.says("MULTI", "+OK\r\n");
    a.says("SET k 1", "+QUEUED\r\n");
    drop(a);
    let mut b = server.connect();
    b.says("EXISTS k", ":0\r\n");
    b.says("SET k 2", "+OK\r\n");
}

/// CLIENT REPLY in a transaction holds from its place on: what EXEC wrote before stays, its head
/// too, and SKIP skips what follows EXEC. (As Redis 7.0.15 answers.)
#[test]
fn client_reply_in_a_transaction_holds_from_its_place_on() {
    let server = TestServer::start();
    let queued = |n: usize| "+QUEUED\r\n".repeat(n);
    for (commands, expected) in [
        (
            "MULTI SET|a|1 CLIENT|REPLY|OFF GET|a EXEC PING",
            format!("+OK\r\n{}*3\r\n+OK\r\n", queued(3)),
        ),
        (
            "MULTI SET|a|1 CLIENT|REPLY|SKIP GET|a EXEC PING PING",
            format!("+OK\r\n{}*3\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n", queued(3)),
        ),
        (
            "CLIENT|REPLY|OFF MULTI SET|a|1 CLIENT|REPLY|ON GET|a EXEC PING",
            "+OK\r\n$1\r\n1\r\n+PONG\r\n".to_owned(),
        ),
        (
            "MULTI CLIENT|REPLY|OFF GET|a CLIENT|REPLY|ON GET|a EXEC PING",
            format!("+OK\r\n{}*4\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n", queued(4)),
        ),
        (
            "MULTI CLIENT|REPLY|SKIP CLIENT|REPLY|ON EXEC PING PING",
            format!("+OK\r\n{}*2\r\n+OK\r\n+PONG\r\n", queued(2)),
        ),
        (
            "MULTI CLIENT|REPLY|OFF CLIENT|REPLY|SKIP EXEC PING",
            format!("+OK\r\n{}*2\r\n", queued(2)),
        ),
        ("CLIENT|REPLY|SKIP CLIENT|REPLY|SKIP PING PING", "+PONG\r\n".to_owned()),
        ("CLIENT|REPLY|OFF MULTI NOSUCH EXEC CLIENT|REPLY|ON PING", "+OK\r\n+PONG\r\n".to_owned()),
    ] {
        let mut client = server.connect();
        client.send(commands.replace(' ', "\r\n").replace('|', " ") + "\r\n");
        client.expect(&expected);
        client.send("CLIENT REPLY ON\r\nECHO end\r\n");
        client.expect("+OK\r\n$3\r\nend\r\n");
    }
}

/// What goes to make room for a transaction may be what it watches: it was looked at before, and
/// INCR counted from nothing.
#[test]
fn what_exec_evicts_stops_it() {
    let settings = [("maxmemory", "8mb"), ("shards", "1")];
    let server = TestServer::with(&settings);
    let mut client = server.connect();
    client.says("SET counter 5 EX 1000", "+OK\r\n");
    let value = vec![b'v'; 10_000];
    let is_full =
        |n: u32| client.ask(&[b"SET", format!("k{n}").as_bytes(), &value]).error().is_some();
    assert!((0..2000).any(is_full));
    // In one turn, so that its upkeep comes afterwards.
    client.send(
        "CONFIG SET maxmemory-policy volatile-ttl\r\nWATCH counter\r\nGET counter\r\n\
         MULTI\r\nINCR counter\r\nEXEC\r\nGET counter\r\n",
    );
    client.expect("+OK\r\n+OK\r\n$1\r\n5\r\n+OK\r\n+QUEUED\r\n*-1\r\n$-1\r\n");
}

/// A transaction that was taken back for want of memory found what it had taken back itself on its
/// way the next time, and was to be tried again for ever.
#[test]
fn a_transaction_that_is_too_large_is_told_so() {
    let server = TestServer::with(&[("shards", "1")]);
    let mut client = server.connect();
    let value = vec![b'v'; 100_000];
    let sets = |count: u32| {
        let set = |n: u32| request(&[b"SET", format!("k{n}").as_bytes(), &value]);
        (0..count).map(set).collect::<Vec<_>>().concat()
    };
    for _ in 0..2 {
        client.send(sets(500));
        client.expect("+OK\r\n".repeat(500));
        client.says("FLUSHALL", "+OK\r\n");
        let mut transaction = || {
            client.says("MULTI", "+OK\r\n");
            client.send(sets(700));
            client.expect("+QUEUED\r\n".repeat(700));
            client.ask(&[b"EXEC"])
        };
        // On a slow machine memory may be late to come back.
        let reply = (0..20).map(|_| transaction()).find(|reply| !may_come_again(reply));
        let text = reply.as_ref().and_then(Frame::error).map(String::from_utf8_lossy);
        let refused = "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(text.as_deref(), Some(refused));
        client.says("DBSIZE", ":0\r\n");
    }
}

/// What reads and deletes evicts nothing, however long it is; nor does what will not run.
#[test]
fn a_transaction_that_takes_no_memory_evicts_nothing() {
    let settings = [("maxmemory", "8mb"), ("shards", "1"), ("maxmemory-policy", "allkeys-lru")];
    let server = TestServer::with(&settings);
    let (mut client, mut other) = (server.connect(), server.connect());
    let value = vec![b'v'; 1000];
    let set = |n: u32| request(&[b"SET", format!("k{n}").as_bytes(), &value]);
    client.send((0..10_000).map(set).collect::<Vec<_>>().concat());
    client.expect("+OK\r\n".repeat(10_000));
    let evicted =
        |client: &mut Client| client.info("stats", "evicted_keys").parse().expect("a number");
    let before: u64 = evicted(&mut client);
    assert!(before > 0);
    client.says("MULTI", "+OK\r\n");
    client.send("EXISTS some-key-that-is-not-there\r\n".repeat(20_000));
    client.expect("+QUEUED\r\n".repeat(20_000));
    client.says("EXEC", &format!("*20000\r\n{}", ":0\r\n".repeat(20_000)));
    client.says("WATCH w", "+OK\r\n");
    other.says("SET w 1", "+OK\r\n");
    client.says("MULTI", "+OK\r\n");
    let large = vec![b'v'; 2_000_000];
    assert_eq!(client.ask(&[b"SET", b"large", &large]), Frame::Simple(b"QUEUED".to_vec()));
    client.says("EXEC", "*-1\r\n");
    let more = evicted(&mut client) - before;
    assert!(more < 300, "{more} keys went");
}

/// EXEC holds its shard, and a client may queue a million calls that last as long as calls may: the
/// shard's other clients waited for all of them, and so for each FUNCTION LOAD.
#[test]
fn a_transaction_that_runs_too_long_is_stopped_and_does_nothing() {
    let server = TestServer::with(&[
        ("shards", "1"),
        ("function-time-limit-ms", "1000"),
        ("function-load-limit-ms", "1000"),
        ("command-time-limit-ms", "900"),
    ]);
    let mut client = server.connect();
    let source = b"#!js name=l\nexport function spins() { for (;;); }";
    assert_eq!(client.ask(&[b"FUNCTION", b"LOAD", source]), Frame::Bulk(b"l".to_vec()));
    let refused = "-EXECABORT Transaction discarded because of: ERR it ran longer than 900 ms and \
                   was stopped (setting: command-time-limit-ms)\r\n";
    let call = request(&[b"FCALL", b"spins", b"0"]);
    let load = request(&[b"FUNCTION", b"LOAD", b"#!js name=m\nfor (;;);"]);
    let tail = request(&[b"SET", b"k", b"2"]);
    for long in [call.clone(), load] {
        client.says("MULTI", "+OK\r\n");
        client.says("SET k 1", "+QUEUED\r\n");
        client.send(long.repeat(1000));
        client.send(&tail);
        client.expect("+QUEUED\r\n".repeat(1001));
        let began = Instant::now();
        client.says("EXEC", refused);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        client.says("EXISTS k", ":0\r\n");
    }
    // The last command may take as long as it does by itself.
    client.says("MULTI", "+OK\r\n");
    client.says("SET k 1", "+QUEUED\r\n");
    client.send(&call);
    client.expect("+QUEUED\r\n");
    client.send(request(&[b"EXEC"]));
    let Frame::Array(replies) = client.reply() else { panic!("it is done") };
    assert!(
        replies[1].error().is_some_and(|it| it.starts_with(b"ERR function 'spins' ran longer"))
    );
    client.says("GET k", "$1\r\n1\r\n");
}
