//! What the server tells of its inside: shards, run times, hot keys, who sent what was slow.

use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections of a story that is about several shards: all at one of three is less likely than one
/// in 10^10.
const MANY: usize = 24;

fn info(client: &mut Client, section: &str) -> String {
    client.text(&format!("INFO {section}"))
}

/// The fields of a line of INFO that has several.
fn fields(line: &str) -> BTreeMap<String, f64> {
    let (_, values) = line.split_once(':').expect("name:value");
    let pairs = values.split(',').map(|pair| pair.split_once('=').expect("name=value"));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// Lines `shard_N:...` of INFO nigh, in their order.
fn shards(client: &mut Client) -> Vec<BTreeMap<String, f64>> {
    let text = info(client, "nigh");
    let lines = text.lines().filter(|line| line.starts_with("shard_"));
    let shards: Vec<_> = lines
        .enumerate()
        .map(|(number, line)| {
            assert!(line.starts_with(&format!("shard_{number}:")), "{line}");
            fields(line)
        })
        .collect();
    assert!(!shards.is_empty(), "{text}");
    shards
}

fn sum(shards: &[BTreeMap<String, f64>], field: &str) -> f64 {
    shards.iter().map(|shard| shard[field]).sum()
}

/// Each shard has its line, and what the lines count adds up to what the clients did.
#[test]
fn shards_tell_their_parts_of_the_work() {
    let server = TestServer::with(&[("shards", "3")]);
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("SET k v\r\nGET k\r\n".repeat(10));
        client.expect("+OK\r\n$1\r\nv\r\n".repeat(10));
    }
    let all = shards(&mut clients[0]);
    assert_eq!(all.len(), 3);
    assert_eq!(sum(&all, "connections"), MANY as f64);
    assert!(all.iter().filter(|shard| shard["connections"] > 0.0).count() > 1, "{all:?}");
    assert_eq!(sum(&all, "operations"), (20 * MANY) as f64, "this INFO has still to be counted");
    let away = all[1]["hops_out"] + all[2]["hops_out"];
    assert!(away > 0.0 && all[0]["hops_out"] == 0.0, "the first owns the data: {all:?}");
    assert_eq!((all[0]["hops_in"], all[1]["hops_in"]), (away, 0.0));
    assert_eq!(sum(&all, "mailbox_depth"), 0.0, "all is answered");
    assert!(all.iter().all(|shard| shard["utilisation"] <= 1.0), "{all:?}");
    assert!(all[0]["longest_turn_us"] > 0.0 && all[1]["longest_step_us"] == 0.0, "{all:?}");
    clients[0].says("CONFIG RESETSTAT", "+OK\r\n");
    let all = shards(&mut clients[1]);
    assert_eq!(sum(&all, "hops_in") + sum(&all, "hops_out"), 0.0, "{all:?}");
    assert!(sum(&all, "operations") <= 3.0, "{all:?}");
    assert_eq!(sum(&all, "connections"), MANY as f64, "connections aren't statistics");
}

/// What functions did is a statistic too. (CONFIG RESETSTAT once left it.)
#[test]
fn counts_of_functions_end_with_resetstat() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    let source = b"#!js name=n\nexport function f() { return 1; }";
    client.ask(&[b"FUNCTION", b"LOAD", source]);
    (0..5).for_each(|_| client.says("FCALL f 0", ":1\r\n"));
    assert!(client.text("INFO nigh").contains("function_calls:5\r\n"));
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    assert!(client.text("INFO nigh").contains("function_calls:0\r\n"));
}

/// LATENCY HISTOGRAM answers maps of maps, flat in RESP2; a name that is repeated is answered once,
/// and unknown ones don't matter.
#[test]
fn histograms_have_redis_shape_in_both_protocols() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    client.says("LATENCY HISTOGRAM", "*0\r\n");
    client.says("LATENCY HISTOGRAM nosuch client|list|x", "*0\r\n");
    client.says("LATENCY HISTOGRAM get", "*0\r\n");
    client.send("GET k\r\n".repeat(100));
    client.expect("$-1\r\n".repeat(100));
    let Frame::Array(flat) = client.ask(&[b"LATENCY", b"HISTOGRAM", b"nosuch", b"GET"]) else {
        panic!("RESP2 has no maps");
    };
    assert_eq!(flat.len(), 2);
    assert_eq!(flat[0], Frame::Bulk(b"get".to_vec()));
    let Frame::Array(inner) = &flat[1] else { panic!("{flat:?}") };
    assert_eq!(inner[..2], [Frame::Bulk(b"calls".to_vec()), Frame::Integer(100)]);
    assert_eq!(inner[2], Frame::Bulk(b"histogram_usec".to_vec()));
    let Frame::Array(buckets) = &inner[3] else { panic!("{inner:?}") };
    assert_eq!(buckets.last(), Some(&Frame::Integer(100)), "counts are cumulative");
    client.ask(&[b"HELLO", b"3"]);
    let Frame::Map(pairs) = client.ask(&[b"LATENCY", b"HISTOGRAM", b"get", b"GET", b"latency"])
    else {
        panic!("RESP3 has maps");
    };
    let names: Vec<_> = pairs.iter().map(|pair| pair.0.bytes().expect("a name")).collect();
    assert_eq!(names, [b"get".as_slice(), b"latency|histogram"]);
    let Frame::Map(inner) = &pairs[0].1 else { panic!("{pairs:?}") };
    assert!(matches!(inner[1].1, Frame::Map(_)), "{inner:?}");
}

/// Percentiles of each command that ran; LATENCY RESET leaves them, CONFIG RESETSTAT ends them, as
/// in Redis.
#[test]
fn run_times_last_until_resetstat() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    client.says("SET k v", "+OK\r\n");
    client.says("CLIENT GETNAME", "$-1\r\n");
    client.says("GET", "-ERR wrong number of arguments for 'get' command\r\n");
    let text = info(&mut client, "latencystats");
    assert!(text.starts_with("# Latencystats\r\n"), "{text}");
    assert!(!text.contains("usec_get:"), "what was refused didn't run: {text}");
    for command in ["set", "client|getname"] {
        let name = format!("latency_percentiles_usec_{command}:");
        let line = text.lines().find(|line| line.starts_with(&name)).expect("it ran");
        let fields = fields(line);
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["p50", "p99", "p99.9"]);
        assert!(fields["p50"] > 0.0 && fields["p50"] <= fields["p99.9"], "{line}");
    }
    client.says("LATENCY RESET", ":0\r\n");
    assert!(info(&mut client, "latencystats").contains("usec_set:"));
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    let text = info(&mut client, "latencystats");
    assert!(!text.contains("usec_set:") && text.contains("usec_config|resetstat:"), "{text}");
    assert!(!info(&mut client, "default").contains("Latencystats"));
    assert!(info(&mut client, "all").contains("Latencystats"));
}

/// A key that gets a third of all commands, of any shard's clients, stands first; INFO shows keys
/// only when it is asked for them by name, and no byte of them breaks its lines.
#[test]
fn hot_keys_are_found_over_all_shards() {
    let server = TestServer::with(&[("shards", "3")]);
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    let hot = b"hot,\"key\"\r\n\xff";
    for (number, client) in clients.iter_mut().enumerate() {
        let mut pipeline = Vec::new();
        for round in 0..400 {
            let cold = format!("cold:{number}:{round}");
            pipeline.extend(request(&[b"GET", hot]));
            pipeline.extend(request(&[b"GET", cold.as_bytes()]));
            pipeline.extend(request(&[b"MGET", cold.as_bytes(), b"warm", cold.as_bytes()]));
        }
        client.send(&pipeline);
        (0..1200).for_each(|_| drop(client.reply()));
    }
    let text = info(&mut clients[0], "hotkeys");
    let first = text.lines().find(|line| line.starts_with("hotkey_1:")).expect("some are hot");
    assert!(first.ends_with(r#",bytes=12,key="hot,\"key\"\x0d\x0a\xff""#), "{text}");
    assert!(text.contains("\r\nhotkeys_one_sample_in:128\r\n"), "{text}");
    let second = text.lines().find(|line| line.starts_with("hotkey_2:")).expect("some are warm");
    assert!(second.ends_with("key=\"warm\""), "{text}");
    assert!(text.lines().count() <= 3 + 64, "{text}");
    for section in ["default", "all", "everything"] {
        assert!(!info(&mut clients[0], section).contains("key=\""), "{section}");
    }
}

/// The slow log's entries of keys `xN`, each of which must name the client `meN`: how many.
fn named_in_slowlog(clients: &mut [Client]) -> usize {
    let Frame::Array(entries) = clients[0].ask(&[b"SLOWLOG", b"GET", b"-1"]) else {
        panic!("entries");
    };
    let mut found = 0;
    for entry in &entries {
        let Frame::Array(entry) = entry else { panic!("{entry:?}") };
        let (Frame::Array(args), address, name) = (&entry[3], &entry[4], &entry[5]) else {
            panic!("{entry:?}");
        };
        let word =
            |at: usize| String::from_utf8_lossy(args[at].bytes().expect("text")).into_owned();
        let key = match word(0).as_str() {
            "SET" | "UNLINK" => word(1),
            "FCALL" => word(3),
            _ => continue,
        };
        let number: usize = key[1..].parse().expect("a number");
        let client = clients[number].stream.local_addr().expect("connected").to_string();
        assert_eq!(address.bytes(), Some(client.as_bytes()));
        assert_eq!(name.bytes(), Some(format!("me{number}").as_bytes()));
        found += 1;
    }
    found
}

/// A slow command is logged with the address and the name of its client, also if another shard ran
/// it.
#[test]
fn slow_commands_name_their_client_whichever_shard_ran_them() {
    let settings = [("shards", "3"), ("slowlog-log-slower-than", "0"), ("slowlog-max-len", "1000")];
    let server = TestServer::with(&settings);
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    let source = b"#!js name=l\nexport function f(db, args, [key]) { return db.incr(key, 1); }";
    clients[0].ask(&[b"FUNCTION", b"LOAD", source]);
    for (number, client) in clients.iter_mut().enumerate() {
        client.says(&format!("CLIENT SETNAME me{number}"), "+OK\r\n");
        client.says(&format!("SET k{number} v"), "+OK\r\n");
        client.says(&format!("FCALL f 1 n{number}"), ":1\r\n");
    }
    assert_eq!(named_in_slowlog(&mut clients), 2 * MANY);
    assert!(shards(&mut clients[0])[0]["hops_in"] > 0.0, "all at one shard");
}

#[test]
fn a_slow_command_of_many_keys_names_its_client_too() {
    // It runs among quick ones where its keys are, and was told as another shard's.
    let settings = [("shards", "3"), ("slowlog-log-slower-than", "1000")];
    let server = TestServer::with(&settings);
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.says(&format!("CLIENT SETNAME me{number}"), "+OK\r\n");
        let key = format!("k{number}");
        let mut unlink = vec![key.as_bytes(); 5_001];
        unlink[0] = b"UNLINK";
        assert_eq!(client.ask(&unlink), Frame::Integer(0));
    }
    assert_eq!(named_in_slowlog(&mut clients), MANY);
    assert!(shards(&mut clients[0])[0]["hops_in"] > 0.0, "all at one shard");
}

/// A server of two shards with metrics, and their port.
fn measured() -> (TestServer, u16) {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    (TestServer::with(&[("shards", "2"), ("metrics-port", &port.to_string())]), port)
}

/// The page of metrics, once it is as it should be: the numbers are a tick old at most.
fn metrics(port: u16, is_right: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let mut page = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let request = b"GET /metrics HTTP/1.1\r\nHost: nigh\r\n\r\n";
        stream.write_all(request).expect("it reads");
        stream.read_to_string(&mut page).expect("it answers");
        if is_right(&page) {
            return page;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prometheus finds what each shard did under its label.
#[test]
fn metrics_are_labelled_by_shard() {
    let (server, port) = measured();
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.says("SET k v", "+OK\r\n"));
    let expected = [
        format!("nigh_shard_operations_total{{shard=\"0\"}} {MANY}\n"),
        "nigh_shard_operations_total{shard=\"1\"} 0\n".to_owned(),
        "nigh_shard_utilisation_ratio{shard=\"1\"} ".to_owned(),
        "nigh_shard_mailbox_depth{shard=\"1\"} 0\n".to_owned(),
    ];
    metrics(port, |page| expected.iter().all(|line| page.contains(line)));
}

/// A shard without work told nothing any more after three seconds, so keys that expired later were
/// counted for good.
#[test]
fn metrics_tell_of_a_shard_that_rests() {
    let (server, port) = measured();
    let mut client = server.connect();
    for number in 0..50 {
        client.says(&format!("SET k{number} v PX 5000"), "+OK\r\n");
    }
    metrics(port, |page| page.contains("\nnigh_keys 50\n"));
    metrics(port, |page| page.contains("\nnigh_keys 0\n"));
}

/// Dashboards know metrics by name, kind and label: metrics.txt is what they have found since there
/// are metrics, with N for each number.
#[test]
fn metrics_have_the_names_and_kinds_that_dashboards_know() {
    let (server, port) = measured();
    let mut client = server.connect();
    client.says("SET k v", "+OK\r\n");
    client.says("GET k", "$1\r\nv\r\n");
    let expected = ["nigh_commands_total{command=\"get\"} 1\n", "{shard=\"1\"} "];
    let page = metrics(port, |page| expected.iter().all(|part| page.contains(part)));
    let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain"), "{head}");
    assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
    let mut families: Vec<String> = Vec::new();
    for family in body.strip_suffix("\n\n").expect("each family ends so").split("\n\n") {
        let (kind, samples) = family.split_once('\n').expect("its kind, then numbers");
        let mut lines = Vec::new();
        for sample in samples.lines() {
            let (name, number) = sample.rsplit_once(' ').expect("a name and a number");
            number.parse::<f64>().unwrap_or_else(|_| panic!("{sample}"));
            lines.push(format!("{name} N"));
        }
        lines.sort();
        families.push(format!("{kind}\n{}\n", lines.join("\n")));
    }
    families.sort();
    assert_eq!(families.join("\n"), include_str!("metrics.txt"));
}

/// MSET, DEL, DBSIZE and FLUSHALL over seven partitions were counted once by each shard that did a
/// part of them, so three shards told of three commands where a client had sent one.
#[test]
fn a_command_by_parts_is_counted_once() {
    let server = TestServer::with(&[("shards", "3"), ("partitions", "7")]);
    let mut client = server.connect();
    let keys: [String; 7] = client.one_of_each();
    client.says("FLUSHALL", "+OK\r\n");
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    let pairs = keys.clone().map(|key| format!("{key} value"));
    client.says(&format!("MSET {}", pairs.join(" ")), "+OK\r\n");
    assert_eq!(client.number("DBSIZE"), 7);
    assert_eq!(client.number(&format!("DEL {}", keys.join(" "))), 7);
    client.says("FLUSHALL", "+OK\r\n");
    let told = info(&mut client, "commandstats");
    for name in ["mset", "dbsize", "del", "flushall"] {
        let start = format!("cmdstat_{name}:calls=1,");
        assert!(told.lines().any(|line| line.starts_with(&start)), "{start} is not in\n{told}");
    }
}

/// Reads and writes of sockets, turns of the loop and their times are counted, as Redis 7.2 tells
/// them.
#[test]
fn reads_writes_and_turns_are_counted() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    const FIELDS: [&str; 5] = [
        "total_reads_processed",
        "total_writes_processed",
        "eventloop_cycles",
        "eventloop_duration_sum",
        "eventloop_duration_cmd_sum",
    ];
    let read = |client: &mut Client| {
        let text = info(client, "stats");
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        FIELDS.map(|name| field(name).expect(name).parse::<u64>().expect("a number"))
    };
    let before = read(&mut client);
    (0..500).for_each(|_| client.says("SET k v", "+OK\r\n"));
    let after = read(&mut client);
    for (at, least) in [500, 500, 500, 500, 1].into_iter().enumerate() {
        assert!(after[at] >= before[at] + least, "{}: {before:?} {after:?}", FIELDS[at]);
    }
    assert!(after[4] <= after[3], "commands take a part of the loop's time: {after:?}");
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    assert!(read(&mut client)[..3].iter().zip(after).all(|(now, before)| *now < before));
    // Rates are of the last second or so.
    let deadline = Instant::now() + Duration::from_secs(20);
    for field in ["instantaneous_eventloop_cycles_per_sec", "instantaneous_eventloop_duration_usec"]
    {
        while client.info("stats", field) == "0" {
            assert!(Instant::now() < deadline, "{field} stays 0");
            client.says("SET k v", "+OK\r\n");
        }
    }
}

/// INFO memory says what an empty store takes, and how many libraries and functions there are.
#[test]
fn memory_tells_of_the_start_and_of_functions() {
    let server = TestServer::start();
    let mut client = server.connect();
    let empty = client.info("memory", "used_memory_startup");
    assert_eq!(empty, client.info("memory", "used_memory"));
    let source = b"#!js name=l\nexport const f = () => 1;\nexport const g = () => 2;";
    assert_eq!(client.ask(&[b"FUNCTION", b"LOAD", source]), Frame::Bulk(b"l".to_vec()));
    client.says("SET k v", "+OK\r\n");
    for (field, wanted) in [
        ("number_of_libraries", "1"),
        ("number_of_functions", "2"),
        ("used_memory_startup", &empty),
    ] {
        assert_eq!(client.info("memory", field), wanted, "{field}");
    }
    assert_ne!(client.info("memory", "used_memory"), empty);
    client.says("FLUSHALL", "+OK\r\n");
    client.says("FUNCTION FLUSH", "+OK\r\n");
    assert_eq!(client.info("memory", "used_memory"), empty);
    assert_eq!(client.info("memory", "number_of_functions"), "0");
}

/// Keys whose time is over stay in DBSIZE and in INFO keyspace until they are met or swept, which
/// takes a small store no longer than Redis: some ticks. Both count alike, with several partitions
/// too.
#[test]
fn keys_whose_time_is_over_are_counted_alike() {
    for partitions in ["1", "3"] {
        let server = TestServer::with(&[("shards", "3"), ("partitions", partitions)]);
        let mut client = server.connect();
        for key in 0..20 {
            client.says(&format!("SET short{key} v PX 1"), "+OK\r\n");
            client.says(&format!("SET long{key} v PX 1000000"), "+OK\r\n");
        }
        client.says("SET plain v", "+OK\r\n");
        let deadline = Instant::now() + Duration::from_secs(20);
        while client.number("DBSIZE") > 21 {
            assert!(Instant::now() < deadline, "nobody sweeps");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(client.number("DBSIZE"), 21);
        // How long the others last is known when the sweep has met them.
        loop {
            let line = client.info("keyspace", "db0");
            assert!(line.starts_with("keys=21,expires=20,"), "{partitions} partitions: {line}");
            let (_, avg_ttl) = line.split_once("avg_ttl=").expect("a field");
            let left_ms: u64 = avg_ttl.parse().expect("a number");
            if (900_000..1_000_000).contains(&left_ms) {
                break;
            }
            assert!(Instant::now() < deadline, "{partitions} partitions: {line}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(client.info("stats", "expired_keys"), "20");
    }
}

/// A client's line says what runs, and that nothing waits for it; what it has not read is told as
/// waiting.
#[test]
fn a_clients_line_says_what_runs_and_what_waits() {
    let server = TestServer::with(&[("shards", "1")]);
    let mut client = server.connect();
    assert_eq!(client.ask(&[b"SET", b"k", &vec![b'x'; 20_000_000]]), Frame::Simple(b"OK".to_vec()));
    let mut slow = server.connect();
    for (command, shown) in [("CLIENT INFO", "client|info"), ("client LIST", "client|list")] {
        let text = client.text(command);
        let line = text.lines().next().expect("a client");
        assert!(line.contains(&format!(" cmd={shown} ")), "{line}");
        assert!(line.contains(" omem=0 ") && line.contains(" events=r "), "{line}");
    }
    slow.send("GET k\r\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = client.text("CLIENT LIST");
        let line = text.lines().nth(1).expect("two clients");
        if line.contains(" events=rw ") {
            assert!(line.contains(" cmd=get ") && !line.contains(" omem=0 "), "{line}");
            break;
        }
        assert!(Instant::now() < deadline, "the socket takes 20 MB: {line}");
    }
    assert!(slow.reply().bytes().is_some_and(|bytes| bytes.len() == 20_000_000));
    let text = client.text("CLIENT LIST");
    assert!(text.lines().all(|line| line.contains(" omem=0 ")), "{text}");
}
