//! Three shards over seven partitions: each writes its own.

#[path = "stories/mod.rs"]
mod stories;

const SETTINGS: &[(&str, &str)] = &[("shards", "3"), ("partitions", "7")];

use crate::common::{Client, TestServer};
use nigh_resp::frame::Frame;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";

/// A random number below `end`, the next of a seed's.
fn below(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % end
}

/// What the keyspace must be, and the reply to a random command on it.
fn step(model: &mut BTreeMap<String, String>, seed: &mut u64) -> (String, String) {
    let bulk = |value: Option<&String>| match value {
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
        None => "$-1\r\n".to_owned(),
    };
    let key = |seed: &mut u64| format!("k{}", below(seed, 40));
    let keys: Vec<String> = (0..1 + below(seed, 6)).map(|_| key(seed)).collect();
    let words = keys.join(" ");
    match below(seed, 9) {
        0 | 1 => {
            let value = format!("v{}", below(seed, 1000));
            model.insert(keys[0].clone(), value.clone());
            (format!("SET {} {value}", keys[0]), "+OK\r\n".to_owned())
        }
        2 => (format!("GET {}", keys[0]), bulk(model.get(&keys[0]))),
        3 | 4 => {
            let mut command = "MSET".to_owned();
            for key in &keys {
                let value = format!("m{}", below(seed, 1000));
                write!(command, " {key} {value}").expect("fits");
                model.insert(key.clone(), value);
            }
            (command, "+OK\r\n".to_owned())
        }
        5 => {
            let values: String = keys.iter().map(|key| bulk(model.get(key))).collect();
            (format!("MGET {words}"), format!("*{}\r\n{values}", keys.len()))
        }
        6 => {
            let there = keys.iter().filter(|key| model.contains_key(*key)).count();
            let name = if below(seed, 2) == 0 { "EXISTS" } else { "TOUCH" };
            (format!("{name} {words}"), format!(":{there}\r\n"))
        }
        7 => {
            let there = keys.iter().filter(|key| model.remove(*key).is_some()).count();
            let name = if below(seed, 2) == 0 { "DEL" } else { "UNLINK" };
            (format!("{name} {words}"), format!(":{there}\r\n"))
        }
        _ => ("DBSIZE".to_owned(), format!(":{}\r\n", model.len())),
    }
}

/// Random pipelines of one connection after the other: every reply is a map's, in its place.
#[test]
fn pipelines_over_all_partitions_answer_as_a_map_does() {
    let server = TestServer::with(SETTINGS);
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let (mut model, mut seed) = (BTreeMap::new(), 0x5EED);
    for round in 0..200 {
        let (mut pipeline, mut expected) = (String::new(), String::new());
        for _ in 0..below(&mut seed, 120) {
            let (command, reply) = step(&mut model, &mut seed);
            pipeline += &format!("{command}\r\n");
            expected += &reply;
        }
        let client = &mut clients[round % 8];
        client.send(&pipeline);
        client.expect(&expected);
    }
    let client = &mut clients[0];
    let Frame::Array(keys) = client.ask(&[b"KEYS", b"*"]) else { panic!("an array") };
    assert_eq!(sorted(keys), model.keys().cloned().collect::<Vec<_>>());
    assert_eq!(scanned(client), model.keys().cloned().collect::<Vec<_>>());
    let mut picked = std::collections::BTreeSet::new();
    for _ in 0..40 * model.len() {
        picked.insert(client.text("RANDOMKEY"));
    }
    assert_eq!(picked.len(), model.len(), "each key is found some time");
    client.says("FLUSHALL WRONG", "-ERR syntax error\r\n");
    client.says("FLUSHALL", "+OK\r\n");
    clients.iter_mut().for_each(|client| client.says("DBSIZE", ":0\r\n"));
    clients[1].says("RANDOMKEY", "$-1\r\n");
}

fn text(frame: Frame) -> String {
    let Frame::Bulk(bytes) = frame else { panic!("{frame:?} is no bulk string") };
    String::from_utf8(bytes).expect("text")
}

fn sorted(keys: Vec<Frame>) -> Vec<String> {
    let mut keys: Vec<String> = keys.into_iter().map(text).collect();
    keys.sort_unstable();
    keys
}

/// All keys of a whole SCAN, which here shows none twice.
fn scanned(client: &mut Client) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let Frame::Array(mut reply) = client.ask(&[b"SCAN", cursor.as_bytes(), b"COUNT", b"3"])
        else {
            panic!("an array")
        };
        let Some(Frame::Array(found)) = reply.pop() else { panic!("keys") };
        keys.extend(found);
        cursor = text(reply.remove(0));
        if cursor == "0" {
            return sorted(keys);
        }
    }
}

/// Three keys of which no two lie in one partition. (The seed is drawn, so any two may.)
fn apart(client: &mut Client) -> [String; 3] {
    let mut found: Vec<String> = Vec::new();
    for key in (0..).map(|number| format!("a{number}")) {
        let is_apart = |other: &String| {
            let reply = client.ask(&[b"COPY", key.as_bytes(), other.as_bytes()]);
            reply.error().is_some_and(|text| text.starts_with(b"CROSSSLOT"))
        };
        if found.iter().all(is_apart) {
            found.push(key);
        }
        if found.len() == 3 {
            break;
        }
    }
    found.try_into().expect("three")
}

/// What can't be atomic over partitions is refused, and keys with one tag are together.
#[test]
fn what_spans_partitions_is_refused_where_it_is_one() {
    let server = TestServer::with(SETTINGS);
    let [a, b, c] = &apart(&mut server.connect());
    for _ in 0..8 {
        let mut client = server.connect();
        client.says(&format!("MSET {a} 1 {b} 2 {c} 3"), "+OK\r\n");
        for refused in [
            format!("MSETNX {a} 1 {b} 2"),
            format!("RENAME {a} {b}"),
            format!("RENAMENX {b} {c}"),
            format!("COPY {a} {c}"),
            format!("WATCH {a} {b} {c}"),
        ] {
            client.says(&refused, CROSS_SLOT);
        }
        client.send(format!("MULTI\r\nSET {a} 5\r\nINCR {b}\r\nEXEC\r\n"));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
        client.expect(format!("+OK\r\n+QUEUED\r\n{CROSS_SLOT}{aborted}"));
        client.send("MULTI\r\nDBSIZE\r\nEXEC\r\n");
        client.expect(format!("+OK\r\n{CROSS_SLOT}{aborted}"));
        client.says(&format!("WATCH {a}"), "+OK\r\n");
        client.says(&format!("WATCH {b}"), CROSS_SLOT);
        client.says("UNWATCH", "+OK\r\n");
        let values = "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n";
        client.says(&format!("MGET {a} {b} {c}"), values);
        client.says("MSETNX {t}x 1 {t}y 2", ":1\r\n");
        client.says("RENAME {t}x {t}z", "+OK\r\n");
        client.says("COPY {t}z {t}w", ":1\r\n");
        client.send("WATCH {t}y\r\nMULTI\r\nINCR {t}y\r\nPING\r\nMGET {t}y {t}w\r\nEXEC\r\n");
        let replies = "*3\r\n:3\r\n+PONG\r\n*2\r\n$1\r\n3\r\n$1\r\n1\r\n";
        client.expect(format!("+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n{replies}"));
        client.says("DEL {t}y {t}z {t}w", ":3\r\n");
    }
}

/// Functions read all partitions, and write where their first key lies, or everywhere if they say
/// so.
#[test]
fn functions_read_everywhere_and_write_at_home() {
    let server = TestServer::with(SETTINGS);
    let mut client = server.connect();
    let source = "#!js name=f\n\
        export function sum(db, args, keys) {\n\
          return keys.reduce((all, key) => all + Number(db.text(key) ?? 0), 0);\n\
        }\n\
        sum.flags = ['no-writes'];\n\
        export function put(db, [value], keys) { for (const key of keys) db.set(key, value); }\n\
        export function spread(db, [value], keys) {\n\
          for (const key of keys) db.set(key, value);\n\
          return keys.length;\n\
        }\n\
        spread.flags = ['allow-cross-slot-keys'];\n\
        export function stray(db, [key]) { db.set(key, '1'); }\n\
        export function count(db) { let n = 0, at = 0;\n\
          do { const step = db.scan('', at); n += step.keys.length; at = step.cursor; } while (at !== 0);\n\
          return n; }\n\
        count.flags = ['no-writes'];";
    assert_eq!(client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]), Frame::Bulk(b"f".to_vec()));
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let words = keys.join(" ");
    for (value, client) in (1..).zip(&mut clients) {
        client.says(&format!("FCALL spread 20 {words} {value}"), ":20\r\n");
        for key in &keys {
            client.says(&format!("GET {key}"), &format!("$1\r\n{value}\r\n"));
        }
        client.says(&format!("FCALL sum 20 {words}"), &format!(":{}\r\n", 20 * value));
        client.says("FCALL count 0", ":20\r\n");
        client.says(&format!("FCALL put 20 {words} 9"), CROSS_SLOT);
        client.says("FCALL put 2 {k0}a {k0}b 9", "$-1\r\n");
        client.says("DEL {k0}a {k0}b", ":2\r\n");
        // In one pipeline each call sees what came before, whichever shard writes it.
        client.send(format!(
            "SET k3 100\r\nFCALL sum 20 {words}\r\nFCALL spread 2 k3 k4 7\r\nMGET k3 k4\r\n"
        ));
        client.expect(format!(":{}\r\n", 19 * value + 100).replacen(':', "+OK\r\n:", 1));
        client.expect(":2\r\n*2\r\n$1\r\n7\r\n$1\r\n7\r\n");
        let is_refused = |n: &i32| {
            let reply = client.ask(&[b"FCALL", b"stray", b"0", format!("k{n}").as_bytes()]);
            reply.error().is_some_and(|text| text.starts_with(b"CROSSSLOT"))
        };
        let strays = (0..20).filter(is_refused);
        assert!(strays.count() > 5, "most keys lie elsewhere than a function without keys");
    }
}

/// What functions do to keys of several partitions.
const CROSSING: &str = "#!js name=f\n\
    export function all(db, args, keys) { return keys.map((key) => db.incr(key, 1)); }\n\
    all.flags = ['allow-cross-slot-keys'];\n\
    export function big(db, [bytes], keys) {\n\
      for (const key of keys) db.set(key, 'x'.repeat(Number(bytes)));\n\
      return keys.length;\n\
    }\n\
    big.flags = ['allow-cross-slot-keys'];\n\
    export function stray(db, [key]) { db.set(key, '1'); }\n\
    stray.flags = ['allow-cross-slot-keys'];\n\
    export function inc(db, args, [key]) { return db.incr(key, 1); }\n\
    export function sum(db, [rounds], keys) {\n\
      let all = 0;\n\
      for (let n = 0; n < Number(rounds); n++) {\n\
        all = keys.reduce((all, key) => all + Number(db.text(key) ?? 0), 0);\n\
      }\n\
      return all;\n\
    }\n\
    sum.flags = ['no-writes'];";

/// A server whose functions write to several partitions, and keys with [`apart`]'s places.
fn crossing(settings: &[(&str, &str)]) -> (TestServer, [String; 3]) {
    // A busy machine may take longer than the usual limit for what these write.
    let patient: &[(&str, &str)] = &[("function-time-limit-ms", "10000")];
    let server = TestServer::with(&[SETTINGS, patient, settings].concat());
    let mut client = server.connect();
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", CROSSING.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    let keys = apart(&mut client);
    (server, keys)
}

/// Calls in one pipeline: each sees what the one before wrote to other partitions, so no increment
/// is lost.
#[test]
fn a_call_sees_what_the_one_before_wrote_elsewhere() {
    let (server, [a, b, c]) = crossing(&[]);
    let mut last = 0;
    for _ in 0..8 {
        let mut client = server.connect();
        let calls = format!("FCALL all 3 {a} {b} {c}\r\nFCALL sum 3 {a} {b} {c} 1\r\n");
        client.send(calls.repeat(20));
        for _ in 0..20 {
            last += 1;
            client.expect(format!("*3\r\n:{last}\r\n:{last}\r\n:{last}\r\n:{}\r\n", 3 * last));
        }
    }
}

/// A call leaves more for other shards than their mailboxes take at once: what follows in the
/// pipeline doesn't overtake it, so each command has its own reply.
#[test]
fn nothing_overtakes_what_a_call_has_left() {
    let (server, _) = crossing(&[("maxmemory", "512mb")]);
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for round in 1..=8 {
        let mut client = server.connect();
        client.send(format!("FCALL big 20 {} 1500000\r\n", keys.join(" ")));
        client.send((0..20).map(|n| format!("INCR n{n}\r\nPING\r\n")).collect::<String>());
        client.expect(format!(":20\r\n{}", format!(":{round}\r\n+PONG\r\n").repeat(20)));
    }
}

/// A client is ended while parts of what its call wrote wait for room in the mailboxes: all are
/// written.
#[test]
fn a_call_whose_client_is_ended_is_done_everywhere() {
    let (server, _) = crossing(&[("maxmemory", "1gb")]);
    let mut other = server.connect();
    for round in 0..16 {
        let mut client = server.connect();
        let id = client.number("CLIENT ID");
        let keys: Vec<String> = (0..20).map(|number| format!("k{round}:{number}")).collect();
        let keys = keys.join(" ");
        client.send(format!("FCALL big 20 {keys} 1500000\r\n"));
        std::thread::sleep(Duration::from_millis(10 + 3 * round));
        other.number(&format!("CLIENT KILL ID {id}"));
        let began = Instant::now();
        // None, if it was ended before its call ran.
        while !matches!(other.number(&format!("EXISTS {keys}")), 0 | 20) {
            assert!(began.elapsed() < Duration::from_secs(60), "some keys aren't written");
            std::thread::sleep(Duration::from_millis(5));
        }
        other.number(&format!("DEL {keys}"));
    }
}

/// While keys are read together and change all the time, a call that reads is asked to try again;
/// the one behind it, which writes, runs once all the same.
#[test]
fn a_call_behind_one_that_is_repeated_runs_once() {
    let (server, _) = crossing(&[]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for tag in 0..12 {
            let (mut client, is_over) = (server.connect(), &is_over);
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    client.send(format!("MSET {{t{tag}}}a 1 {{t{tag}}}b 1\r\n").repeat(50));
                    client.expect("+OK\r\n".repeat(50));
                }
            });
        }
        let keys: Vec<String> = (0..12).map(|tag| format!("{{t{tag}}}a")).collect();
        let sum = format!("FCALL sum 12 {} 300\r\n", keys.join(" "));
        for number in 0..60 {
            let mut client = server.connect();
            client.send(format!("{sum}FCALL inc 1 n{number}\r\n").repeat(10));
            for round in 1..=10 {
                client.reply();
                assert_eq!(client.reply().integer(), Some(round), "of n{number}");
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A client that watches a key is with its owner. A call that would take the connection elsewhere
/// is refused, as a second watch is; so the watch holds, and ends with the client.
#[test]
fn a_call_does_not_take_a_client_from_what_it_watches() {
    let (server, [a, b, c]) = crossing(&[]);
    for _ in 0..8 {
        let mut client = server.connect();
        client.says(&format!("WATCH {a}"), "+OK\r\n");
        client.says(&format!("FCALL all 2 {b} {c}"), CROSS_SLOT);
        client.says(
            "FCALL inc 1 {t}n",
            &format!(":{}\r\n", server.connect().number("INCR {t}n") + 1),
        );
        server.connect().says(&format!("SET {a} 1"), "+OK\r\n");
        client.says(&format!("FCALL stray 1 {a} {b}"), "$-1\r\n");
        client.send(format!("MULTI\r\nSET {a} 2\r\nEXEC\r\n"));
        client.expect("+OK\r\n+QUEUED\r\n*-1\r\n");
        client.says(&format!("WATCH {a}"), "+OK\r\n");
        client.says(&format!("FCALL all 2 {b} {c}"), CROSS_SLOT);
        client.says("UNWATCH", "+OK\r\n");
        client.says(&format!("WATCH {c}"), "+OK\r\n");
        client.says(&format!("FCALL all 1 {b}"), CROSS_SLOT);
    }
    server.connect().says("PING", "+PONG\r\n");
}

/// In a transaction a call with that flag writes in the transaction's partition, or is refused.
#[test]
fn a_call_in_a_transaction_stays_in_its_partition() {
    let (server, [a, b, _]) = crossing(&[]);
    for _ in 0..8 {
        let mut client = server.connect();
        client.send(format!(
            "MULTI\r\nSET {a} 5\r\nFCALL stray 0 {b}\r\nFCALL all 1 {a}\r\nEXEC\r\n"
        ));
        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n-CROSSSLOT");
        client.expect(" Keys in request don't hash to the same slot: a transaction is within one partition\r\n");
        client.expect("*1\r\n:6\r\n");
        client.says(&format!("EXISTS {b}"), ":0\r\n");
    }
}

/// In one pipeline a library is replaced and called: the call goes where the new function has to
/// run.
#[test]
fn a_call_goes_where_the_new_function_runs() {
    let server = TestServer::with(SETTINGS);
    let mut client = server.connect();
    let [a, b, c] = apart(&mut client);
    for round in 0..48 {
        let (mut client, key) = (server.connect(), [&a, &b, &c][round % 3]);
        for writes in ["db.incr(key, 1)", "['A', 'B', 'C'].map((k) => db.incr(k, 1))"] {
            let writes = writes.replace('A', &a).replace('B', &b).replace('C', &c);
            let flags =
                if writes.contains("map") { "f.flags = ['allow-cross-slot-keys'];" } else { "" };
            let source = format!(
                "#!js name=f\nexport function f(db, args, [key]) {{ {writes}; return {round}; }}\n{flags}"
            );
            client.send(crate::common::request(&[
                b"FUNCTION",
                b"LOAD",
                b"REPLACE",
                source.as_bytes(),
            ]));
            client.send(format!("FCALL f 1 {key}\r\nPING\r\n"));
            client.expect(format!("$1\r\nf\r\n:{round}\r\n+PONG\r\n"));
        }
    }
    client.says(&format!("GET {a}"), "$2\r\n64\r\n");
}

/// A server with another number of partitions refuses the arenas, and says what to do; with the
/// same number it adopts all of them.
#[test]
fn another_number_of_partitions_is_refused() {
    let mut server = TestServer::with(SETTINGS);
    let dir = server.dir.clone();
    let mut client = server.connect();
    (0..100).for_each(|number| client.says(&format!("SET k{number} v"), "+OK\r\n"));
    server.stop_and_keep();
    let text = dir.to_str().expect("text").to_owned();
    for wanted in ["1", "3", "8"] {
        let config = crate::common::config(&[("shm-dir", &text), ("partitions", wanted)]);
        let Err(error) = nigh_server::Server::start(config) else {
            panic!("it has other partitions")
        };
        let error = error.to_string();
        assert!(error.contains("7 partition") && error.contains("nigh convert"), "{error}");
    }
    let again = TestServer::with(&[("shm-dir", &text), ("shards", "2"), ("partitions", "7")]);
    let mut client = again.connect();
    client.says("DBSIZE", ":100\r\n");
    assert_eq!(scanned(&mut client).len(), 100);
}

/// Only what a server would name so is a partition: another file neither takes its place nor counts
/// as one more.
#[test]
fn a_file_of_another_name_is_no_partition() {
    let mut server = TestServer::with(SETTINGS);
    let dir = server.dir.clone();
    let mut client = server.connect();
    (0..100).for_each(|number| client.says(&format!("SET k{number} v"), "+OK\r\n"));
    server.stop_and_keep();
    let text = dir.to_str().expect("text").to_owned();
    let path = |number: &str| dir.join(format!("default.{number}.arena"));
    for odd in ["99", "18446744073709551615", "", "x", "-1"] {
        std::fs::write(path(odd), "junk").expect("a file");
    }
    for odd in ["03", "+3"] {
        std::fs::rename(path("3"), path(odd)).expect("it is there");
        let config = crate::common::config(&[("shm-dir", &text), ("partitions", "7")]);
        let Err(error) = nigh_server::Server::start(config) else {
            panic!("of {odd}: one is missing")
        };
        assert!(error.to_string().contains("default.3.arena is missing"), "{error}");
        assert!(!path("3").exists(), "nothing is put in its place");
        std::fs::rename(path(odd), path("3")).expect("it is there");
    }
    let again = TestServer::with(&[("shm-dir", &text), ("shards", "3"), ("partitions", "7")]);
    again.connect().says("DBSIZE", ":100\r\n");
}
