//! Memory that is full: policies at run time, what is evicted over several shards, and the MEMORY
//! commands.

use crate::common::{Client, TestServer, may_come_again};
use nigh_resp::frame::Frame;
use std::collections::VecDeque;

/// The least memory.
const SMALL: (&str, &str) = ("maxmemory", "8mb");
/// Writes of one pipeline.
const AT_ONCE: usize = 500;

/// Writes keys of 1,000 bytes; returns how many were taken.
fn write(client: &mut Client, name: &str, keys: std::ops::Range<usize>) -> usize {
    let value = "v".repeat(1000);
    let mut taken = 0;
    let mut keys: VecDeque<usize> = keys.collect();
    while !keys.is_empty() {
        let part: Vec<usize> = keys.drain(..AT_ONCE.min(keys.len())).collect();
        let commands = part.iter().map(|n| format!("SET {name}{n} {value}\r\n"));
        client.send(commands.collect::<String>());
        for key in part {
            match client.reply() {
                Frame::Simple(text) if text == b"OK" => taken += 1,
                late if may_come_again(&late) => keys.push_back(key),
                Frame::Error(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    assert!(text.starts_with("OOM command not allowed"), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    taken
}

/// The operator changes the policy of a full server: writes go on at once, by whatever shard they
/// come.
#[test]
fn a_policy_is_set_while_the_server_is_full() {
    let server = TestServer::with(&[SMALL, ("shards", "3")]);
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    assert!(write(&mut clients[0], "a", 0..10_000) < 10_000);
    clients[1].says("CONFIG SET maxmemory-policy allkeys-lru maxmemory-samples 10", "+OK\r\n");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(write(client, &format!("b{number}-"), 0..5000), 5000);
    }
    let client = &mut clients[2];
    assert_eq!(client.info("memory", "maxmemory_policy"), "allkeys-lru");
    assert!(client.info("stats", "evicted_keys").parse::<u64>().expect("a number") > 30_000);
    client.says("CONFIG SET maxmemory-policy volatile-ttl", "+OK\r\n");
    assert!(write(client, "c", 0..10_000) < 10_000, "no key has an expiry");
    client.says(
        "CONFIG SET maxmemory-policy allkeys-lfu",
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must \
         be one of the following: noeviction, allkeys-lru, volatile-lru, volatile-ttl\r\n",
    );
}

/// Memory is full of large records, so what is free lies in pieces: a transaction of large writes
/// that fits is done, by keys that go for it, as it would be if its commands came alone.
#[test]
fn a_transaction_of_large_writes_evicts_until_it_fits() {
    let server = TestServer::with(&[SMALL, ("shards", "1"), ("maxmemory-policy", "allkeys-lru")]);
    let mut client = server.connect();
    for n in 0..600 {
        let value = vec![b'v'; 20_000 + n * 7919 % 40_000];
        let set = |client: &mut Client, part| {
            client.ask(&[b"SET", format!("{part}{}", n % 150).as_bytes(), &value])
        };
        assert_eq!(set(&mut client, "alone"), Frame::Simple(b"OK".to_vec()), "write {n}");
        let mut transaction = || {
            client.says("MULTI", "+OK\r\n");
            assert_eq!(set(&mut client, "a"), Frame::Simple(b"QUEUED".to_vec()));
            assert_eq!(set(&mut client, "b"), Frame::Simple(b"QUEUED".to_vec()));
            client.ask(&[b"EXEC"])
        };
        let done = Frame::Array(vec![Frame::Simple(b"OK".to_vec()); 2]);
        let reply = (0..20).map(|_| transaction()).find(|reply| !may_come_again(reply));
        assert_eq!(reply, Some(done), "transaction {n}");
    }
}

/// Keys that are only read, at all shards, stay while others are written; those that nobody reads
/// go.
#[test]
fn reads_at_any_shard_keep_keys_alive() {
    const HOT: usize = 100;
    let server = TestServer::with(&[SMALL, ("shards", "3"), ("maxmemory-policy", "allkeys-lru")]);
    let mut writer = server.connect();
    let mut readers: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    assert_eq!(write(&mut writer, "hot", 0..HOT), HOT);
    assert_eq!(write(&mut writer, "cold", 0..HOT), HOT);
    for round in 0..60 {
        assert_eq!(write(&mut writer, "key", round * AT_ONCE..(round + 1) * AT_ONCE), AT_ONCE);
        for reader in &mut readers {
            let commands = (0..HOT).map(|n| format!("GET hot{n}\r\n"));
            reader.send(commands.collect::<String>());
            (0..HOT).for_each(|_| drop(reader.reply()));
        }
    }
    let mut left = |name: &str| {
        (0..HOT)
            .filter(|n| {
                writer.ask(&[b"EXISTS", format!("{name}{n}").as_bytes()]) == Frame::Integer(1)
            })
            .count()
    };
    let (hot, cold) = (left("hot"), left("cold"));
    assert!(hot >= HOT - 5 && cold == 0, "{hot} hot, {cold} cold");
}

/// A key that only functions read stays if they declare it.
#[test]
fn declared_keys_of_functions_count_as_used() {
    let server = TestServer::with(&[SMALL, ("shards", "1"), ("maxmemory-policy", "allkeys-lru")]);
    let mut client = server.connect();
    let source = "#!js name=r\nexport function size(db, args, [key]) { return db.get(key)?.byteLength ?? 0; }\n\
                  size.flags = ['no-writes'];";
    client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    write(&mut client, "hot", 0..1);
    write(&mut client, "cold", 0..1);
    for round in 0..60 {
        assert_eq!(write(&mut client, "key", round * AT_ONCE..(round + 1) * AT_ONCE), AT_ONCE);
        client.says("FCALL size 1 hot0", ":1000\r\n");
    }
    client.says("EXISTS cold0", ":0\r\n");
}

/// Calls a function that declares nine keys, `within` other commands: all of them become young,
/// and none by a client that says that it leaves ages as they are.
fn nine_declared_keys_count_as_used(within: impl Fn(&str) -> [String; 2]) {
    let server = TestServer::with(&[("shards", "1"), ("maxmemory-policy", "allkeys-lru")]);
    let mut client = server.connect();
    let source = "#!js name=f\nexport function first(db, args, [key]) { return db.text(key); }";
    client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    let keys = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|n| format!("k{n}"));
    keys.iter().for_each(|key| client.says(&format!("SET {key} v"), "+OK\r\n"));
    let [request, reply] = within(&format!("FCALL first {} {}\r\n", keys.len(), keys.join(" ")));
    let mut ages = |switch: &str| {
        client.says(&format!("CLIENT NO-TOUCH {switch}"), "+OK\r\n");
        client.send(&request);
        client.expect(&reply);
        keys.each_ref().map(|key| client.number(&format!("OBJECT IDLETIME {key}")))
    };
    std::thread::sleep(std::time::Duration::from_millis(2200));
    let kept = ages("ON");
    assert!(kept.iter().all(|age| *age >= 1), "{kept:?}");
    // The clock may move in between: then they are used once more.
    let young = (0..20).map(|_| ages("OFF")).any(|ages| ages == [0; 9]);
    assert!(young, "{:?}", ages("OFF"));
}

/// All keys count that a call declares. Once, only the first four did: hot keys were evicted.
#[test]
fn each_declared_key_counts_as_used() {
    nine_declared_keys_count_as_used(|call| [call.to_owned(), "$1\r\nv\r\n".to_owned()]);
}

/// A call in a transaction uses its keys too. Once, it used none: hot keys were evicted.
#[test]
fn declared_keys_of_a_call_in_a_transaction_count_as_used() {
    nine_declared_keys_count_as_used(|call| {
        let reply = "+OK\r\n+QUEUED\r\n*1\r\n$1\r\nv\r\n";
        [format!("MULTI\r\n{call}EXEC\r\n"), reply.to_owned()]
    });
}

/// MEMORY answers like Redis, with what is true of an arena.
#[test]
fn memory_tells_what_is_used() {
    let server = TestServer::with(&[("shards", "3"), ("maxmemory-policy", "allkeys-lru")]);
    for client in &mut [server.connect(), server.connect(), server.connect(), server.connect()] {
        client.says("MEMORY USAGE none", "$-1\r\n");
        client.says("SET small x", "+OK\r\n");
        let Frame::Integer(small) = client.ask(&[b"MEMORY", b"USAGE", b"small"]) else { panic!() };
        assert!(small >= 48, "a header, a key and a value: {small}");
        client.ask(&[b"SET", b"large", &vec![b'v'; 300_000]]);
        let Frame::Integer(large) = client.ask(&[b"MEMORY", b"USAGE", b"large", b"SAMPLES", b"5"])
        else {
            panic!()
        };
        assert!((300_000..310_000).contains(&large), "{large}");
        client.says("MEMORY USAGE large SAMPLES -1", "-ERR syntax error\r\n");
        client.says(
            "MEMORY USAGE large SAMPLES x",
            "-ERR value is not an integer or out of range\r\n",
        );
        client.says("MEMORY USAGE large FOO 1", "-ERR syntax error\r\n");
        client.says("MEMORY PURGE", "+OK\r\n");
        assert_eq!(
            client.text("MEMORY MALLOC-STATS"),
            "Stats not supported for the current allocator"
        );
        assert!(client.text("MEMORY DOCTOR").contains("empty or nearly so"));
        let Frame::Array(stats) = client.ask(&[b"MEMORY", b"STATS"]) else { panic!("a map") };
        let field = |name: &str| {
            let at = stats.iter().position(|field| *field == Frame::Bulk(name.into()));
            stats[at.unwrap_or_else(|| panic!("no {name}")) + 1].clone()
        };
        assert_eq!(field("keys.count"), Frame::Integer(2));
        assert_eq!(field("arena.capacity"), Frame::Integer(64 << 20));
        let Frame::Integer(dataset) = field("dataset.bytes") else { panic!("a number") };
        assert!(dataset > 300_000);
        let Frame::Array(database) = field("db.0") else { panic!("a map") };
        assert!(matches!(database[3], Frame::Integer(clocks) if clocks > 0), "{database:?}");
        assert!(
            client.info("memory", "used_memory_overhead").parse::<u64>().expect("a number") > 0
        );
        let Frame::Array(help) = client.ask(&[b"MEMORY", b"HELP"]) else { panic!("lines") };
        assert!(help.len() > 10);
        client.says("OBJECT IDLETIME large", ":0\r\n");
    }
}

/// How long ago keys were used, seconds, when `wanted` of all of them or after some time.
fn idle(client: &mut Client, keys: &[String; 2], wanted: impl Fn(i64) -> bool) -> [i64; 2] {
    let began = std::time::Instant::now();
    loop {
        let idle = [0, 1].map(|at| client.number(&format!("OBJECT IDLETIME {}", keys[at])));
        if idle.into_iter().all(&wanted) || began.elapsed().as_millis() > 500 {
            return idle;
        }
    }
}

/// A client that says so reads keys at its shard, at another one's, behind its own writes there, in
/// a transaction and in functions, and they stay as old as they are. Its writes make them young,
/// and so does TOUCH; when it takes that back, its reads do again.
#[test]
fn reads_of_a_client_that_says_so_keep_the_age_of_keys() {
    let settings = [("maxmemory-policy", "allkeys-lru"), ("shards", "2"), ("partitions", "2")];
    let server = TestServer::with(&settings);
    let mut other = server.connect();
    let keys: [String; 2] = other.one_of_each();
    let [a, b] = &keys;
    let source = "#!js name=f\n\
        export function read(db, args, keys) { return keys.map((key) => db.text(key)); }\n\
        read.flags = ['no-writes'];\n\
        export function write(db, args, [key]) { db.set('{' + key + '}f', db.text(key)); }";
    assert_eq!(other.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]), Frame::Bulk(b"f".to_vec()));
    let mut client = server.connect_to_owner(a);
    client.says("CLIENT NO-TOUCH ON", "+OK\r\n");
    let old = || std::thread::sleep(std::time::Duration::from_millis(2200));
    old();
    for _ in 0..40 {
        for key in [a, b] {
            client.send(format!("GET {key}\r\nSTRLEN {key}\r\nGETRANGE {key} 0 -1\r\n"));
            client.expect("$1\r\nv\r\n:1\r\n$1\r\nv\r\n");
            client.send(format!("SET {{{key}}}w 1\r\nGET {key}\r\nFCALL read 1 {key}\r\n"));
            client.expect("+OK\r\n$1\r\nv\r\n*1\r\n$1\r\nv\r\n");
            client.says(&format!("FCALL write 1 {key}"), "$-1\r\n");
        }
        client.says(&format!("MGET {a} {b}"), "*2\r\n$1\r\nv\r\n$1\r\nv\r\n");
    }
    let mut late = server.connect();
    for key in [a, b] {
        late.send(format!("MULTI\r\nCLIENT NO-TOUCH ON\r\nGET {key}\r\nEXEC\r\n"));
        late.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\nv\r\n");
    }
    let seen = idle(&mut other, &keys, |idle| idle == 0);
    assert!(seen.into_iter().all(|idle| idle >= 1), "{seen:?}");

    // Only some of what other shards read is told to the owner, and that a moment later.
    let mut makes_young = |client: &mut Client, command: &str, reply: &str| {
        let began = std::time::Instant::now();
        while began.elapsed().as_secs() < 60 {
            (0..40).for_each(|_| client.says(command, reply));
            if idle(&mut other, &keys, |idle| idle == 0) == [0, 0] {
                return;
            }
        }
        panic!("{command} leaves keys old");
    };
    makes_young(&mut client, &format!("TOUCH {a} {b}"), ":2\r\n");
    old();
    makes_young(&mut client, &format!("MSET {a} v {b} v"), "+OK\r\n");
    old();
    client.says("CLIENT NO-TOUCH OFF", "+OK\r\n");
    makes_young(&mut client, &format!("MGET {a} {b}"), "*2\r\n$1\r\nv\r\n$1\r\nv\r\n");
}
