//! Stories of several shards, which behave like one: whatever shard a connection is at, it means
//! what it means in Redis. They are told with one partition and with several, so keys that belong
//! together have one tag.
//!
//! Connections are spread by the kernel, so each story is told by enough of them that all of one
//! shard's is less likely than one in a million.

mod endings;

use super::SETTINGS;
use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::time::Duration;

/// Connections of a story.
const MANY: usize = 24;

fn server() -> TestServer {
    server_with(&[])
}

fn server_with(more: &[(&str, &str)]) -> TestServer {
    TestServer::with(&[SETTINGS, more].concat())
}

/// Connections of a story. Others had their slots before, and left in the middle of a pipeline of
/// which the owner had a part: nothing of that may be there for those who come next.
fn connect(server: &TestServer) -> Vec<Client> {
    for leaver in &mut (0..MANY).map(|_| server.connect()).collect::<Vec<_>>() {
        leaver.says("CLIENT SETNAME leaver", "+OK\r\n");
        leaver.send("PING\r\nGETDEL no-key\r\nMULTI\r\nDISCARD\r\nDEL no-key\r\n".repeat(20));
    }
    let mut watcher = server.connect();
    while watcher.text("CLIENT LIST").contains(" name=leaver ") {
        std::thread::yield_now();
    }
    drop(watcher);
    (0..MANY).map(|_| server.connect()).collect()
}

/// In one pipeline writes, reads and commands about the connection alternate: each sees what came
/// before.
#[test]
fn a_connection_sees_its_own_writes_in_order() {
    let server = server();
    for (number, client) in connect(&server).iter_mut().enumerate() {
        let mut expected = String::new();
        let mut pipeline = String::new();
        for round in 0..40 {
            pipeline += &format!("SET k{number} {round}\r\nGET k{number}\r\nINCR k{number}\r\n");
            pipeline +=
                &format!("MGET k{number} none\r\nPING\r\nGET k{number}\r\nSTRLEN k{number}\r\n");
            let (old, new) = (round.to_string(), (round + 1).to_string());
            let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            expected += &format!("+OK\r\n{}:{new}\r\n", bulk(&old));
            expected += &format!("*2\r\n{}$-1\r\n+PONG\r\n{}", bulk(&new), bulk(&new));
            expected += &format!(":{}\r\n", new.len());
        }
        client.send(&pipeline);
        client.expect(&expected);
    }
    assert_ne!(server.connect().info("nigh", "commands_sent_to_owner"), "0", "all at one shard");
}

/// A command that is refused is answered in its turn too, after what the owner still has.
#[test]
fn a_refusal_waits_for_its_turn() {
    let server = server();
    for client in &mut connect(&server) {
        client.send("SET k 1\r\nGETEX\r\nINCR k\r\nNOSUCH\r\nGET k\r\n".repeat(20));
        let wrong = "-ERR wrong number of arguments for 'getex' command\r\n";
        let unknown = "-ERR unknown command 'NOSUCH', with args beginning with: \r\n";
        client.expect(format!("+OK\r\n{wrong}:2\r\n{unknown}$1\r\n2\r\n").repeat(20));
    }
}

/// Increments of many connections and shards at once: none is lost, of commands or of functions.
#[test]
fn no_increment_of_any_shard_is_lost() {
    let server = server();
    let mut clients = connect(&server);
    let source = "#!js name=c\nexport function add(db, args, [key]) { return db.incr(key, 1); }";
    let loaded = clients[0].ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"c".to_vec()));
    const EACH: usize = 200;
    for client in &mut clients {
        client.send("INCR n\r\nFCALL add 1 n\r\n".repeat(EACH));
    }
    for client in &mut clients {
        let mut last = 0;
        for _ in 0..2 * EACH {
            let n = client.reply().integer().expect("a number");
            assert!(n > last, "one connection's increments are in order");
            last = n;
        }
    }
    let all = i64::try_from(2 * EACH * MANY).expect("small");
    for client in &mut clients {
        client.says("GET n", &format!("${}\r\n{all}\r\n", all.to_string().len()));
    }
}

/// A value that one connection was told is written is what every other connection reads.
#[test]
fn what_is_acknowledged_is_seen_by_all() {
    let server = server();
    let mut clients = connect(&server);
    for round in 0..MANY {
        clients[round].says(&format!("SET k {round}"), "+OK\r\n");
        for client in &mut clients {
            assert_eq!(client.text("GET k"), round.to_string());
        }
        clients[round].says("DEL k", ":1\r\n");
        clients.iter_mut().for_each(|client| client.says("GET k", "$-1\r\n"));
    }
}

/// A client that reads a key whose time is over has it deleted, on any shard: a GET once found it
/// missing where only the owner could delete it, and the DBSIZE behind it still counted it.
#[test]
fn a_key_that_was_read_as_missing_is_not_counted() {
    let server = server();
    for client in &mut connect(&server) {
        for (read, nothing) in [("GET k", "$-1\r\n"), ("EXISTS k k", ":0\r\n")] {
            client.says("SET k v PX 1", "+OK\r\n");
            std::thread::sleep(Duration::from_millis(3));
            client.send(format!("{read}\r\nDBSIZE\r\n"));
            client.expect(format!("{nothing}:0\r\n"));
        }
    }
}

/// MSET writes pairs while others read them: nobody sees half of one.
#[test]
fn keys_that_are_written_together_are_read_together() {
    let server = server();
    let (mut writers, mut readers) = (connect(&server), connect(&server));
    writers[0].says("MSET {p}a 0 {p}b 0", "+OK\r\n");
    for round in 0..30 {
        for (number, writer) in writers.iter_mut().enumerate() {
            let value = round * MANY + number;
            writer.send(format!("MSET {{p}}a {value} {{p}}b {value}\r\n").repeat(5));
        }
        readers.iter_mut().for_each(|reader| reader.send("MGET {p}a {p}b\r\n".repeat(20)));
        for reader in &mut readers {
            for _ in 0..20 {
                let Frame::Array(pair) = reader.reply() else { panic!("an array") };
                assert_eq!(pair[0], pair[1]);
            }
        }
        writers.iter_mut().for_each(|writer| writer.expect("+OK\r\n".repeat(5)));
    }
}

/// So do functions that run on other shards than the owner's.
#[test]
fn a_function_reads_together_what_was_written_together() {
    let server = server();
    let (mut writers, mut readers) = (connect(&server), connect(&server));
    let source = "#!js name=p\nexport function pair(db, args, keys) { return keys.map((k) => \
                  db.get(k).text()); }\npair.flags = ['no-writes'];";
    assert_eq!(
        writers[0].ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]),
        Frame::Bulk(b"p".to_vec())
    );
    writers[0].says("MSET {p}a 0 {p}b 0", "+OK\r\n");
    for round in 0..20 {
        for (number, writer) in writers.iter_mut().enumerate() {
            let value = round * MANY + number;
            writer.send(format!("MSET {{p}}a {value} {{p}}b {value}\r\n").repeat(5));
        }
        readers.iter_mut().for_each(|reader| reader.send("FCALL pair 2 {p}a {p}b\r\n".repeat(20)));
        for reader in &mut readers {
            for _ in 0..20 {
                let reply = reader.reply();
                let Frame::Array(pair) = &reply else { panic!("no array: {reply:?}") };
                assert_eq!(pair[0], pair[1]);
            }
        }
        writers.iter_mut().for_each(|writer| writer.expect("+OK\r\n".repeat(5)));
    }
}

/// Transactions and watches, wherever the connection was accepted.
#[test]
fn transactions_work_at_every_shard() {
    let server = server();
    let mut other = server.connect();
    for client in &mut connect(&server) {
        client.says("SET k 1", "+OK\r\n");
        client.says("WATCH k", "+OK\r\n");
        client.send("MULTI\r\nINCR k\r\nGET k\r\nEXEC\r\nGET k\r\n");
        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n$1\r\n2\r\n$1\r\n2\r\n");
        client.says("WATCH k", "+OK\r\n");
        other.says("SET k other", "+OK\r\n");
        client.send("MULTI\r\nSET k mine\r\nEXEC\r\n");
        client.expect("+OK\r\n+QUEUED\r\n*-1\r\n");
    }
    // Without WATCH, and with writes that are still under way.
    for client in &mut connect(&server) {
        client.send("SET k 5\r\nMULTI\r\nINCR k\r\nEXEC\r\n");
        client.expect("+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:6\r\n");
    }
}

/// A library that was loaded anywhere is known everywhere, and so is its end.
#[test]
fn libraries_are_known_at_every_shard() {
    let server = server();
    let mut clients = connect(&server);
    for round in 0..6 {
        let source = format!(
            "#!js name=l\nexport function f(db, args, [key]) {{ const r = db.get(key); return [{round}, \
             r === undefined ? null : r.text()]; }}\nf.flags = ['no-writes'];"
        );
        let loaded = clients[round].ask(&[b"FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()]);
        assert_eq!(loaded, Frame::Bulk(b"l".to_vec()));
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!(
                "SET k{number} v\r\nFCALL f 1 k{number}\r\nFCALL_RO f 1 k{number}\r\n"
            ));
            let reply = format!("*2\r\n:{round}\r\n$1\r\nv\r\n");
            client.expect(format!("+OK\r\n{reply}{reply}"));
            client.says(&format!("FCALL f 1 k{number}"), &reply);
        }
    }
    clients[7].says("FUNCTION DELETE l", "+OK\r\n");
    clients.iter_mut().for_each(|client| client.says("FCALL f 1 k", "-ERR Function not found\r\n"));
}

/// In one pipeline a call that writes follows one that only reads: the one goes to the owner, the
/// other doesn't, and both are answered.
#[test]
fn a_call_that_writes_follows_one_that_reads() {
    let server = server();
    let mut clients = connect(&server);
    let source = "#!js name=rw\nexport function w(db, args, [key]) { return db.incr(key, 1); }\n\
                  export function r(db, args, [key]) { return db.get(key) === undefined ? 0 : 1; }\n\
                  r.flags = ['no-writes'];";
    clients[0].ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("FCALL r 1 n{number}\r\nFCALL w 1 n{number}\r\n").repeat(20));
        let mut expected = ":0\r\n:1\r\n".to_owned();
        (2..=20).for_each(|n| expected += &format!(":1\r\n:{n}\r\n"));
        client.expect(&expected);
    }
}

/// A client that reads nothing can't make the owner copy its replies without end.
#[test]
fn what_waits_for_a_client_that_does_not_read_is_bounded() {
    let server = server_with(&[("maxmemory", "256mb")]);
    let mut clients = connect(&server);
    clients[0].send(request(&[b"SET", b"big", &vec![b'x'; 1 << 20]]));
    clients[0].expect("+OK\r\n");
    let mut greedy = connect(&server);
    for client in &mut greedy {
        client.send("INCR n\r\n".to_owned() + &"GET big\r\n".repeat(300));
    }
    for client in &mut clients {
        client.says("SET k 1", "+OK\r\n");
        let list = client.text("CLIENT LIST");
        let waiting = |line: &str| {
            let field = line.split(' ').find_map(|field| field.strip_prefix("omem="));
            field.and_then(|bytes| bytes.parse::<u64>().ok()).expect("a size")
        };
        let most = list.lines().map(waiting).max().expect("clients");
        assert!(most < 64 << 20, "{most} bytes wait for one client");
    }
    for client in &mut greedy {
        assert!(client.reply().integer().is_some());
        (0..3).for_each(|_| assert_eq!(client.reply().bytes().map(<[u8]>::len), Some(1 << 20)));
    }
}

/// Clients write a whole pipeline before they read the first reply, however long both are.
#[test]
fn a_pipeline_may_be_written_before_its_replies_are_read() {
    let server = server_with(&[("maxmemory", "256mb")]);
    let value = vec![b'v'; 100_000];
    let pair = [request(&[b"SET", b"big", &value]), request(&[b"GET", b"big"])].concat();
    for client in connect(&server).iter_mut().take(6) {
        client.send(pair.repeat(200));
        for _ in 0..200 {
            assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()));
            assert_eq!(client.reply(), Frame::Bulk(value.clone()));
        }
    }
}

/// A client that writes far more than it reads, and then only says that it is done, gets all its
/// replies.
#[test]
fn a_half_closed_pipeline_is_executed_to_its_end() {
    let server = server_with(&[("maxmemory", "256mb")]);
    let value = vec![b'v'; 100_000];
    let pair = [request(&[b"SET", b"big", &value]), request(&[b"GET", b"big"])].concat();
    for client in connect(&server).iter_mut().take(4) {
        client.send([pair.repeat(100), b"INCR last\r\n".to_vec()].concat());
        client.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        for _ in 0..100 {
            assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()));
            assert_eq!(client.reply(), Frame::Bulk(value.clone()));
        }
        assert!(client.reply().integer().is_some());
        assert!(client.is_closed());
    }
}

/// In a transaction too, all clients are listed and can be killed.
#[test]
fn a_transaction_sees_the_clients_of_all_shards() {
    let server = server();
    let mut clients = connect(&server);
    let ids: Vec<i64> = clients.iter_mut().map(|client| client.number("CLIENT ID")).collect();
    let (killer, victims) = clients.split_first_mut().expect("many");
    killer.says("MULTI", "+OK\r\n");
    killer.says("CLIENT LIST", "+QUEUED\r\n");
    for id in &ids[1..] {
        killer.says(&format!("CLIENT KILL ID {id}"), "+QUEUED\r\n");
    }
    let Frame::Array(replies) = killer.ask(&[b"EXEC"]) else { panic!("an array") };
    let list = String::from_utf8_lossy(replies[0].bytes().expect("text")).into_owned();
    assert_eq!(list.lines().count(), MANY, "{list}");
    assert!(replies[1..].iter().all(|reply| *reply == Frame::Integer(1)), "{replies:?}");
    assert!(victims.iter_mut().all(Client::is_closed));
}

/// A function that doesn't end is seen and killed from another shard, and leaves no trace.
#[test]
fn a_running_function_is_killed_from_another_shard() {
    let server = server_with(&[("function-time-limit-ms", "3600000")]);
    let mut clients = connect(&server);
    let source =
        "#!js name=e\nexport function spin(db, args, [key]) { db.set(key, 'x'); for (;;); }";
    clients[0].ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    clients[0].says("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.\r\n");
    // A connection whose writes are sent is at another shard than the owner's.
    let mut killer = None;
    for mut client in clients.drain(1..) {
        let before = client.info("nigh", "commands_sent_to_owner");
        client.says("SET k 1", "+OK\r\n");
        if client.info("nigh", "commands_sent_to_owner") != before {
            killer = Some(client);
            break;
        }
    }
    let (mut killer, mut victim) = (killer.expect("one of many"), server.connect());
    for _ in 0..3 {
        victim.send("FCALL spin 1 k\r\n");
        loop {
            let Frame::Array(stats) = killer.ask(&[b"FUNCTION", b"STATS"]) else { panic!("a map") };
            if let Frame::Array(running) = &stats[1] {
                assert_eq!(running[1], Frame::Bulk(b"spin".to_vec()));
                break;
            }
        }
        killer.says("GET k", "$1\r\n1\r\n");
        killer.says("FUNCTION KILL", "+OK\r\n");
        let reply = victim.reply();
        let text = String::from_utf8_lossy(reply.error().expect("an error")).into_owned();
        assert!(text.starts_with("ERR Script killed by user with FUNCTION KILL."), "{text}");
    }
}

/// Settings, clients and counters are the server's, not a shard's.
#[test]
fn the_server_looks_like_one() {
    let server = server();
    let mut clients = connect(&server);
    for number in 0..MANY {
        clients[number].says(&format!("CONFIG SET slowlog-max-len {number}"), "+OK\r\n");
        let reader = &mut clients[(number * 7 + 3) % MANY];
        let text = number.to_string();
        let value = format!("${}\r\n{text}\r\n", text.len());
        reader.says(
            "CONFIG GET slowlog-max-len",
            &format!("*2\r\n$15\r\nslowlog-max-len\r\n{value}"),
        );
        clients[number].says(&format!("CLIENT SETNAME c{number}"), "+OK\r\n");
    }
    for client in &mut clients {
        let list = client.text("CLIENT LIST");
        assert_eq!(list.lines().count(), MANY, "{list}");
        (0..MANY).for_each(|number| assert!(list.contains(&format!(" name=c{number} ")), "{list}"));
        assert_eq!(client.info("clients", "connected_clients"), MANY.to_string());
        assert_eq!(client.info("server", "tcp_port"), server.port().to_string());
    }
    let ids: Vec<i64> = clients.iter_mut().map(|client| client.number("CLIENT ID")).collect();
    let (killer, victims) = clients.split_first_mut().expect("many");
    for (victim, id) in victims.iter_mut().zip(&ids[1..]) {
        killer.says(&format!("CLIENT KILL ID {id}"), ":1\r\n");
        assert!(victim.is_closed());
    }
}

/// CLIENT REPLY holds for what the owner answers too.
#[test]
fn unwanted_replies_of_the_owner_are_dropped() {
    let server = server();
    for client in &mut connect(&server) {
        client.send("CLIENT REPLY OFF\r\nSET k 1\r\nINCR k\r\nCLIENT REPLY ON\r\nGET k\r\n");
        client.expect("+OK\r\n$1\r\n2\r\n");
        client.send("CLIENT REPLY SKIP\r\nSET k 7\r\nSET k 8\r\nGET k\r\n");
        client.expect("+OK\r\n$1\r\n8\r\n");
    }
}

/// Values far larger than a mailbox go through it in both directions, in both protocols.
#[test]
fn large_values_pass_between_shards() {
    let server = server_with(&[("maxmemory", "256mb")]);
    let value = vec![b'x'; 5 << 20];
    for client in connect(&server).iter_mut().take(8) {
        client.send(request(&[b"SET", b"big", &value]));
        client.send(request(&[b"GETSET", b"big", b"small"]));
        client.send(request(&[b"HELLO", b"3"]));
        assert_eq!(client.reply(), Frame::Simple(b"OK".to_vec()));
        assert_eq!(client.reply(), Frame::Bulk(value.clone()));
        assert!(matches!(client.reply(), Frame::Map(_)));
        client.says("GETDEL none", "_\r\n");
        client.says("GETDEL big", "$5\r\nsmall\r\n");
    }
}

/// Pipelines far longer than the mailboxes have room for are all answered, in order.
#[test]
fn long_pipelines_of_many_connections_end() {
    let server = server();
    let mut clients = connect(&server);
    const EACH: usize = 5000;
    std::thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                let pipeline: String =
                    (0..EACH).map(|i| format!("SET k{number}:{i} {i}\r\n")).collect();
                let mut sending = client.stream.try_clone().expect("a second handle");
                scope.spawn(move || {
                    use std::io::Write;
                    sending.write_all(pipeline.as_bytes()).expect("the server reads");
                });
                client.expect("+OK\r\n".repeat(EACH));
            });
        }
    });
    assert_eq!(clients[0].number("DBSIZE"), i64::try_from(EACH * MANY).expect("small"));
}
