//! EXEC when memory is full: all of a transaction, or nothing of it.

use crate::common::{Client, TestServer, may_come_again, request};
use nigh_resp::frame::Frame;

/// The least memory.
const SMALL: (&str, &str) = ("maxmemory", "8mb");
/// A value for which a full server has no room.
const LARGE_BYTES: usize = 1_000_000;
/// Keys that `fill` deletes: some segments of them.
const DELETED: u32 = 200;
const REFUSED: &str = "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.";

/// Writes `{name}0`, `{name}1` … of 1,000 bytes until one is refused, and deletes the first of
/// them: small values find room, a large one doesn't.
fn fill(client: &mut Client, name: &str) {
    let value = [b'v'; 1000];
    let is_taken =
        |n: &u32| client.ask(&[b"SET", format!("{name}{n}").as_bytes(), &value]).error().is_none();
    let taken = (0..20_000).take_while(is_taken).count();
    assert!((1000..20_000).contains(&taken), "{taken}");
    (0..DELETED).for_each(|n| client.says(&format!("DEL {name}{n}"), ":1\r\n"));
}

/// Sends MULTI, commands and EXEC, and wants all but EXEC's answers.
#[track_caller]
fn exec(client: &mut Client, commands: &[&[&[u8]]]) {
    let queued: Vec<u8> = commands.iter().flat_map(|args| request(args)).collect();
    client.send([b"MULTI\r\n", queued.as_slice(), b"EXEC\r\n"].concat());
    client.expect(format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len())));
}

/// EXEC says that there was no room.
#[track_caller]
fn refused(client: &mut Client) {
    let reply = client.reply();
    let text = reply.error().map(String::from_utf8_lossy);
    assert_eq!(text.as_deref(), Some(REFUSED), "{reply:?}");
}

/// One command of a transaction finds no room: none of the others is applied, for good and for
/// everybody. What only reads or deletes works, and what was deleted makes room for the
/// transaction.
#[test]
fn a_transaction_without_room_leaves_nothing() {
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let server = TestServer::with(&[SMALL, ("maxmemory-policy", policy)]);
        let (mut client, mut other) = (server.connect(), server.connect());
        client.says("MSET counter 5 text abc", "+OK\r\n");
        fill(&mut client, "k");
        let keys = client.number("DBSIZE");
        let large = vec![b'v'; LARGE_BYTES];
        let commands: [&[&[u8]]; 6] = [
            &[b"INCR", b"counter"],
            &[b"SET", b"text", b"new"],
            &[b"DEL", b"k320", b"k321"],
            &[b"SET", b"large", &large],
            &[b"APPEND", b"text", b"er"],
            &[b"GET", b"text"],
        ];
        other.says("WATCH counter text k320 large", "+OK\r\n");
        for _ in 0..3 {
            exec(&mut client, &commands);
            refused(&mut client);
            client.says("MGET counter text", "*2\r\n$1\r\n5\r\n$3\r\nabc\r\n");
            client.says("EXISTS k320 k321 large", ":2\r\n");
            assert_eq!(client.number("DBSIZE"), keys);
        }
        other.says("MULTI", "+OK\r\n");
        other.says("GET counter", "+QUEUED\r\n");
        other.says("EXEC", "*1\r\n$1\r\n5\r\n");
        // The server is as full as it was.
        exec(&mut client, &[&[b"GET", b"text"], &[b"EXISTS", b"k320"]]);
        client.expect("*2\r\n$3\r\nabc\r\n:1\r\n");
        exec(&mut client, &[&[b"DEL", b"k320"], &[b"GETDEL", b"text"], &[b"EXISTS", b"k320"]]);
        client.expect("*3\r\n:1\r\n$3\r\nabc\r\n:0\r\n");
        exec(&mut client, &[&[b"EXPIRE", b"k322", b"1000"], &[b"PERSIST", b"k322"]]);
        client.expect("*2\r\n:1\r\n:1\r\n");
        (1000..3000).for_each(|n| assert_eq!(client.number(&format!("DEL k{n}")), 1));
        client.says("SET text abc", "+OK\r\n");
        exec(&mut client, &commands);
        client.expect("*6\r\n:6\r\n+OK\r\n:1\r\n+OK\r\n:5\r\n$5\r\nnewer\r\n");
    }
}

/// What a transaction deletes is there until all of it has happened, so it makes no room for the
/// rest of it: with a SET that finds none, DEL and FLUSHALL haven't happened either.
#[test]
fn what_a_transaction_deletes_is_no_room_for_it() {
    let server = TestServer::with(&[SMALL]);
    let mut client = server.connect();
    let large = vec![b'v'; LARGE_BYTES];
    client.says("SET small 1", "+OK\r\n");
    let is_taken =
        |n: &u32| client.ask(&[b"SET", format!("l{n}").as_bytes(), &large]).error().is_none();
    let taken = (0..20).take_while(is_taken).count();
    assert!(taken > 3, "{taken}");
    let keys = client.number("DBSIZE");
    for deletion in [&[b"DEL".as_slice(), b"l0", b"small"][..], &[b"FLUSHALL"]] {
        exec(&mut client, &[deletion, &[b"SET", b"new", &large]]);
        refused(&mut client);
        client.says("EXISTS l0 small new", ":2\r\n");
        assert_eq!(client.number("DBSIZE"), keys);
    }
    client.says("DEL l0", ":1\r\n");
    exec(&mut client, &[&[b"DEL", b"small"], &[b"SET", b"new", &large]]);
    client.expect("*2\r\n:1\r\n+OK\r\n");
}

/// Nothing that INFO and SLOWLOG tell speaks of the commands of a transaction that was refused.
#[test]
fn a_refused_transaction_is_counted_as_one_error() {
    let server = TestServer::with(&[SMALL, ("slowlog-log-slower-than", "0")]);
    let mut client = server.connect_to_owner("counter");
    client.says("SET counter 5", "+OK\r\n");
    fill(&mut client, "k");
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    client.says("SLOWLOG RESET", "+OK\r\n");
    let large = vec![b'v'; LARGE_BYTES];
    let commands: [&[&[u8]]; 4] =
        [&[b"INCR", b"counter"], &[b"GET", b"k350"], &[b"GET", b"none"], &[b"SET", b"l", &large]];
    exec(&mut client, &commands);
    refused(&mut client);
    let slow = client.ask(&[b"SLOWLOG", b"GET", b"-1"]);
    let commands_of = |frame: &Frame| -> Vec<String> {
        let name = |entry: &Frame| {
            let args = entry.elements().and_then(|fields| fields[3].elements()).expect("words");
            String::from_utf8_lossy(args[0].bytes().expect("a word")).into_owned()
        };
        frame.elements().expect("entries").iter().map(name).collect()
    };
    assert_eq!(commands_of(&slow), ["MULTI", "SLOWLOG"], "{slow:?}");
    let commands = client.text("INFO commandstats");
    for name in ["incr", "get", "set"] {
        assert!(!commands.contains(&format!("cmdstat_{name}:")), "{commands}");
    }
    assert!(commands.contains("cmdstat_exec:calls=1,"), "{commands}");
    assert_eq!(client.text("INFO errorstats").lines().nth(1), Some("errorstat_EXECABORT:count=1"));
    for field in ["keyspace_hits", "keyspace_misses"] {
        assert_eq!(client.info("stats", field), "0", "{field}");
    }
    // Those that have run are.
    exec(&mut client, &[&[b"GET", b"counter"], &[b"INCR", b"counter"], &[b"INCR", b"k350"]]);
    client.expect("*3\r\n$1\r\n5\r\n:6\r\n-ERR value is not an integer or out of range\r\n");
    let commands = client.text("INFO commandstats");
    for (name, failed) in [("get:calls=1,", 0), ("incr:calls=2,", 1)] {
        let line = commands.lines().find(|line| line.starts_with(&format!("cmdstat_{name}")));
        let line = line.unwrap_or_else(|| panic!("{name} in {commands}"));
        assert!(line.ends_with(&format!("failed_calls={failed}")), "{line}");
    }
    assert_eq!(client.info("stats", "keyspace_hits"), "1");
    let slow = commands_of(&client.ask(&[b"SLOWLOG", b"GET", b"-1"]));
    let expected = ["INFO", "INCR", "INCR", "GET", "MULTI"];
    assert!(slow.windows(expected.len()).any(|some| some == expected), "{slow:?}");
}

/// Each partition has its memory: a transaction in the one that is full leaves nothing, one in the
/// other is taken, by whatever shard the client came.
#[test]
fn a_full_partition_refuses_its_own_transactions_only() {
    let settings = [("maxmemory", "16mb"), ("partitions", "2"), ("shards", "2")];
    let server = TestServer::with(&settings);
    let mut client = server.connect();
    let [full, free] = client.one_of_each::<2>();
    fill(&mut client, &format!("{{{full}}}"));
    let large = vec![b'v'; LARGE_BYTES];
    for _ in 0..4 {
        let mut client = server.connect();
        for (tag, is_full) in [(&full, true), (&free, false)] {
            let [a, large_key, gone] = ["a", "large", "350"].map(|name| format!("{{{tag}}}{name}"));
            client.says(&format!("SET {a} 1"), "+OK\r\n");
            exec(
                &mut client,
                &[
                    &[b"INCR", a.as_bytes()],
                    &[b"DEL", gone.as_bytes()],
                    &[b"SET", large_key.as_bytes(), &large],
                ],
            );
            if is_full {
                refused(&mut client);
                client.says(&format!("MGET {a} {large_key}"), "*2\r\n$1\r\n1\r\n$-1\r\n");
                client.says(&format!("EXISTS {gone}"), ":1\r\n");
            } else {
                client.expect("*3\r\n:2\r\n:0\r\n+OK\r\n");
                client.says(&format!("STRLEN {large_key}"), &format!(":{LARGE_BYTES}\r\n"));
            }
        }
    }
}

const LIBRARY: &str = "#!js name=f\n\
    export function large(db, [bytes], keys) {\n\
      db.set('of-function', 1);\n\
      for (const key of keys) db.set(key, 'v'.repeat(Number(bytes)));\n\
    }";

/// A function that finds no room for what it writes has written nothing; a transaction that calls
/// it hasn't either.
#[test]
fn a_function_without_room_spoils_its_transaction() {
    let server = TestServer::with(&[SMALL]);
    let mut client = server.connect();
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    fill(&mut client, "k");
    let alone = client.text(&format!("FCALL large 1 a {LARGE_BYTES}"));
    assert_eq!(alone, "OOM command not allowed when used memory > 'maxmemory'.");
    client.says("EXISTS of-function a", ":0\r\n");
    let bytes = LARGE_BYTES.to_string();
    let call: [&[u8]; 5] = [b"FCALL", b"large", b"1", b"a", bytes.as_bytes()];
    exec(&mut client, &[&[b"SET", b"x", b"1"], &call, &[b"DEL", b"k350"]]);
    refused(&mut client);
    client.says("EXISTS of-function a x k350", ":1\r\n");
    exec(&mut client, &[&[b"SET", b"x", b"1"], &[b"FCALL", b"large", b"1", b"a", b"10"]]);
    client.expect("*2\r\n+OK\r\n$-1\r\n");
    client.says("EXISTS of-function a x", ":3\r\n");
}

/// Where keys may go, those do that a transaction turns out to want room of, though its words
/// didn't tell: for a copy, and for what a function writes. For one that could never fit, none
/// goes.
#[test]
fn room_is_made_for_what_only_running_tells() {
    let server = TestServer::with(&[SMALL, ("maxmemory-policy", "allkeys-lru")]);
    let mut client = server.connect_to_owner("k");
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    let value = [b'v'; 1000];
    let write = |client: &mut Client, name: &str, count: usize| {
        let set = |n| request(&[b"SET", format!("{name}{n}").as_bytes(), &value]);
        client.send((0..count).flat_map(set).collect::<Vec<u8>>());
        client.expect("+OK\r\n".repeat(count));
    };
    write(&mut client, "k", 10_000);
    let call: [&[u8]; 8] = [b"FCALL", b"large", b"4", b"a", b"b", b"c", b"d", b"500000"];
    for _ in 0..5 {
        let mut transaction = || {
            exec(&mut client, &[&[b"INCR", b"counter"], &call, &[b"COPY", b"a", b"e"]]);
            client.reply()
        };
        let reply = (0..20).map(|_| transaction()).find(|reply| !may_come_again(reply));
        let done = vec![Frame::Integer(1), Frame::Null, Frame::Integer(1)];
        assert_eq!(reply, Some(Frame::Array(done)));
        client.says("EXISTS a b c d e", ":5\r\n");
        client.says("DEL counter a b c d e", ":6\r\n");
        write(&mut client, "n", 5000);
    }
    let keys = client.number("DBSIZE");
    let large = vec![b'v'; LARGE_BYTES];
    exec(&mut client, &[[b"SET".as_slice(), b"l", &large].as_slice(); 10]);
    refused(&mut client);
    assert!(client.number("DBSIZE") > keys - 300, "hardly more went than upkeep takes");
}

/// A transaction, or a function, deletes so many keys that a full store can't even note them all:
/// none goes, and the error says what to do. DEL deletes them at once.
#[test]
fn what_deletes_more_than_can_be_noted_says_what_to_do() {
    const TOO_MANY: &str = "OOM memory is too full to delete so many keys as one: \
        delete them in smaller parts, or by DEL outside of MULTI";
    let server = TestServer::with(&[SMALL, ("function-time-limit-ms", "20000")]);
    let mut client = server.connect();
    let library =
        "#!js name=t\nexport const del = (db, keys) => keys.forEach((key) => db.delete(key));";
    client.send(request(&[b"FUNCTION", b"LOAD", library.as_bytes()]));
    client.expect("$1\r\nt\r\n");
    let value = [b'v'; 100];
    let name = |n: &u32| format!("{n}{}", "k".repeat(200)).into_bytes();
    let is_taken = |n: &u32| client.ask(&[b"SET", &name(n), &value]).error().is_none();
    let names: Vec<Vec<u8>> = (0..100_000).take_while(is_taken).map(|n| name(&n)).collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let keys = client.number("DBSIZE");
    assert_eq!(keys, i64::try_from(names.len()).unwrap());
    for _ in 0..2 {
        exec(&mut client, &[&[&[b"DEL".as_slice()], &names[..]].concat()]);
        let reply = client.reply();
        let text = reply.error().map(String::from_utf8_lossy).expect("it is refused");
        assert_eq!(text, format!("EXECABORT Transaction discarded because of: {TOO_MANY}"));
        let reply = client.ask(&[&[b"FCALL".as_slice(), b"del", b"0"], &names[..]].concat());
        assert_eq!(reply.error().map(String::from_utf8_lossy).as_deref(), Some(TOO_MANY));
        assert_eq!(client.number("DBSIZE"), keys);
    }
    let deleted = client.ask(&[&[b"DEL".as_slice()], &names[..]].concat());
    assert_eq!((deleted.integer(), client.number("DBSIZE")), (Some(keys), 0));
}
