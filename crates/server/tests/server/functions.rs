//! Functions as clients call them: order in pipelines, transactions, restarts.

use crate::common::{Client, TestServer, config};
use nigh_resp::frame::Frame;

const COUNTER: &str = "#!js name=counter
/** Adds to a number. */
export function add(db, [amount], [key]) { return db.incr(key, Number(amount)); }
export function read(db, args, [key]) { const r = db.get(key); return r === undefined ? null : r.text(); }
read.flags = ['no-writes'];
export function put(db, [value], [key]) { db.set(key, value); return 'OK'; }
export function fail(db, args, [key]) { db.set(key, 'lost'); throw new Error('no'); }
";

fn load(client: &mut Client, source: &str) -> Frame {
    client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()])
}

fn counter(server: &TestServer) -> Client {
    let mut client = server.connect();
    assert_eq!(load(&mut client, COUNTER), Frame::Bulk(b"counter".to_vec()));
    client
}

/// In one pipeline functions and commands alternate: each sees what came before it.
#[test]
fn pipeline_of_calls_and_commands_keeps_its_order() {
    let server = TestServer::start();
    let mut client = counter(&server);
    client.send("FCALL add 1 n 1\r\nGET n\r\nFCALL add 1 n 2\r\nFCALL add 1 n 3\r\nGET n\r\nSET n 10\r\nFCALL_RO read 1 n\r\nPING\r\n");
    client.expect(":1\r\n$1\r\n1\r\n:3\r\n:6\r\n$1\r\n6\r\n+OK\r\n$2\r\n10\r\n+PONG\r\n");
}

/// A lower limit of sources is for what is loaded from then on. At all shards but the first, a
/// longer library was gone with the next one that was loaded.
#[test]
fn a_lower_source_limit_keeps_what_is_loaded() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    load(&mut client, &format!("{COUNTER}// {}\n", "long ".repeat(1000)));
    client.says("CONFIG SET function-source-limit-bytes 1kb", "+OK\r\n");
    load(&mut client, "#!js name=short\nexport function one() { return 1; }\n");
    client.says("FCALL one 0", ":1\r\n");
    for _ in 0..8 {
        let mut client = server.connect();
        client.says("FCALL_RO read 1 nothing", "$-1\r\n");
        assert!(client.text("INFO nigh").contains("function_libraries:2"));
    }
    assert!(
        load(&mut client, &format!("{COUNTER}// {}\n", "long ".repeat(1000))).error().is_some()
    );
}

/// Calls of many connections run together, and every one counts.
#[test]
fn calls_of_many_connections_all_count() {
    let server = TestServer::start();
    let mut first = counter(&server);
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let pipeline = "FCALL add 1 n 1\r\n".repeat(50) + "GET n\r\n";
    clients.iter_mut().for_each(|client| client.send(&pipeline));
    for client in &mut clients {
        let mut last = 0;
        for _ in 0..50 {
            let number = client.reply().integer().expect("a number");
            assert!(number > last, "a connection's calls run in order");
            last = number;
        }
        let seen = client.reply();
        let seen: i64 =
            String::from_utf8_lossy(seen.bytes().expect("text")).parse().expect("a number");
        assert!(seen >= last, "a GET sees the writes of the calls before it");
    }
    assert_eq!(first.text("GET n"), "1000");
}

/// A function that throws leaves no trace; errors come in their place.
#[test]
fn errors_keep_their_place() {
    let server = TestServer::start();
    let mut client = counter(&server);
    client.send("FCALL add 1 n 1\r\nFCALL nothing 0\r\nFCALL add x n\r\nFCALL add -1\r\nFCALL add 5 n\r\nFCALL_RO add 1 n 1\r\nFCALL add 1 n 1\r\n");
    client.expect(":1\r\n-ERR Function not found\r\n-ERR Bad number of keys provided\r\n");
    client.expect("-ERR Number of keys can't be negative\r\n");
    client.expect("-ERR Number of keys can't be greater than number of args\r\n");
    client.expect("-ERR Can not execute a script with write flag using *_ro command.\r\n:2\r\n");
    assert!(matches!(client.ask(&[b"FCALL", b"fail", b"1", b"k"]), Frame::Error(_)));
    assert_eq!(client.number("EXISTS k"), 0);
}

/// Inside MULTI a function sees what the transaction has written, and its writes belong to it.
#[test]
fn function_in_a_transaction_is_part_of_it() {
    let server = TestServer::start();
    let mut client = counter(&server);
    let mut other = server.connect();
    client.says("SET n 1", "+OK\r\n");
    for (command, reply) in [
        ("MULTI", "+OK"),
        ("SET n 5", "+QUEUED"),
        ("FCALL add 1 n 1", "+QUEUED"),
        ("GET n", "+QUEUED"),
        ("FCALL_RO read 1 n", "+QUEUED"),
    ] {
        client.says(command, &format!("{reply}\r\n"));
    }
    other.says("GET n", "$1\r\n1\r\n");
    client.says("EXEC", "*4\r\n+OK\r\n:6\r\n$1\r\n6\r\n$1\r\n6\r\n");
    other.says("GET n", "$1\r\n6\r\n");
}

/// Each call of a transaction sees all that was staged before it: by commands, by other calls,
/// before and after one that isn't there, one that throws, one that is stopped, and a FLUSHALL. The
/// next transaction begins anew.
#[test]
fn each_call_of_a_transaction_sees_what_is_staged() {
    let server = TestServer::with(&[("function-time-limit-ms", "500")]);
    let mut client = counter(&server);
    let more = "#!js name=more\nexport function spin() { for (;;); }\n\
        export function three(db, args, keys) { return keys.map((key) => db.text(key)).join(); }";
    assert_eq!(load(&mut client, more), Frame::Bulk(b"more".to_vec()));
    client.says("MSET a old b old c old", "+OK\r\n");
    let mut transaction = |commands: &[(&str, &str)]| {
        client.send(format!(
            "MULTI\r\n{}EXEC\r\n",
            commands.iter().map(|it| format!("{}\r\n", it.0)).collect::<String>()
        ));
        client.expect(format!(
            "+OK\r\n{}*{}\r\n",
            "+QUEUED\r\n".repeat(commands.len()),
            commands.len()
        ));
        for (command, expected) in commands {
            let reply = client.reply();
            let text = match &reply {
                Frame::Integer(number) => number.to_string(),
                other => String::from_utf8_lossy(other.bytes().or(other.error()).expect("text"))
                    .into_owned(),
            };
            assert!(text.starts_with(expected), "{command}: {text}");
        }
    };
    let three = "FCALL three 3 a b c";
    transaction(&[
        (three, "old,old,old"),
        ("SET a 1", "OK"),
        ("DEL b", "1"),
        (three, "1,,old"),
        ("FCALL nothing 0", "ERR Function not found"),
        ("INCR a", "2"),
        ("FCALL put 1 c new", "OK"),
        ("FCALL fail 1 b", "ERR"),
        (three, "2,,new"),
        ("FCALL spin 0", "ERR"),
        (three, "2,,new"),
        ("FCALL_RO put 1 a x", "ERR"),
        ("SET b 3", "OK"),
        (three, "2,3,new"),
        ("FLUSHALL", "OK"),
        (three, ",,"),
        ("SET b 4", "OK"),
        (three, ",4,"),
    ]);
    transaction(&[("SET c 5", "OK"), (three, ",4,5")]);
    transaction(&[(three, ",4,5")]);
    let mut other = server.connect();
    other.says(three, "$4\r\n,4,5\r\n");
}

/// How long a transaction takes that stages so many keys and then makes so many calls.
fn time_of(client: &mut Client, keys: usize, calls: usize) -> std::time::Duration {
    let sets = (0..keys).map(|n| format!("SET k{n} v\r\n")).collect::<String>();
    let call = "FCALL add 1 n 1\r\n";
    client.send(format!("DEL n\r\nMULTI\r\n{sets}{}", call.repeat(calls)));
    (0..2 + keys + calls).for_each(|_| drop(client.reply()));
    let began = std::time::Instant::now();
    let Frame::Array(replies) = client.ask(&[b"EXEC"]) else { panic!("an array") };
    assert_eq!(replies.last().and_then(Frame::integer), i64::try_from(calls).ok());
    began.elapsed()
}

/// What a call in a transaction costs is no matter of how much was staged before: a thousand calls
/// behind ten thousand writes take about as long as the writes and the calls apart.
#[test]
fn calls_behind_many_writes_take_as_long_as_others() {
    let server = TestServer::start();
    let mut client = counter(&server);
    // Others may use the machine too, more at one moment than at the next: one of several tries
    // tells. A call that cost what was staged before it would take a hundred times as long.
    let tries: Vec<_> = (0..5)
        .map(|_| {
            let apart = time_of(&mut client, 10_000, 1) + time_of(&mut client, 1, 1000);
            (apart, time_of(&mut client, 10_000, 1000))
        })
        .collect();
    let is_alike = tries.iter().any(|(apart, together)| *together < 4 * *apart);
    assert!(is_alike, "apart and together: {tries:?}");
}

/// Libraries are listed, replaced, deleted, dumped and restored as in Redis.
#[test]
fn libraries_are_managed() {
    let server = TestServer::start();
    let mut client = counter(&server);
    let again = client.ask(&[b"FUNCTION", b"LOAD", COUNTER.as_bytes()]);
    assert_eq!(again, Frame::Error(b"ERR Library 'counter' already exists".to_vec()));
    let Frame::Array(list) = client.ask(&[b"FUNCTION", b"LIST", b"WITHCODE"]) else { panic!() };
    let library = list[0].elements().expect("a library");
    assert_eq!(library[1], Frame::Bulk(b"counter".to_vec()));
    assert_eq!(library[7], Frame::Bulk(COUNTER.as_bytes().to_vec()));
    let dump = client.ask(&[b"FUNCTION", b"DUMP"]);
    let dump = dump.bytes().expect("a payload");
    client.says("FUNCTION DELETE counter", "+OK\r\n");
    client.says("FCALL add 1 n 1", "-ERR Function not found\r\n");
    client.says("FUNCTION DELETE counter", "-ERR Library not found\r\n");
    assert_eq!(client.ask(&[b"FUNCTION", b"RESTORE", dump]), Frame::Simple(b"OK".to_vec()));
    client.says("FCALL add 1 n 1", ":1\r\n");
    let twice = client.ask(&[b"FUNCTION", b"RESTORE", dump]);
    assert_eq!(twice, Frame::Error(b"ERR Library 'counter' already exists".to_vec()));
    client.says("FCALL add 1 n 1", ":2\r\n");
    let flushed = client.ask(&[b"FUNCTION", b"RESTORE", dump, b"FLUSH"]);
    assert_eq!(flushed, Frame::Simple(b"OK".to_vec()));
    let broken = client.ask(&[b"FUNCTION", b"RESTORE", &dump[1..]]);
    assert_eq!(broken, Frame::Error(b"ERR DUMP payload version or checksum are wrong".to_vec()));
    client.says("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.\r\n");
    let Frame::Array(help) = client.ask(&[b"FUNCTION", b"HELP"]) else { panic!() };
    let of_kill = help.iter().skip_while(|line| **line != Frame::Simple(b"KILL".as_slice().into()));
    let Some(Frame::Simple(of_kill)) = of_kill.into_iter().nth(1) else { panic!("{help:?}") };
    assert!(
        String::from_utf8_lossy(of_kill).contains("on other shards"),
        "it ends none of its own"
    );
    client.says("FUNCTION FLUSH", "+OK\r\n");
    client.says("FUNCTION LIST", "*0\r\n");
    assert!(matches!(load(&mut client, "#!js name=x\nexport function ("), Frame::Error(_)));
}

/// A library survives a restart like the data that it works on.
#[test]
fn libraries_survive_a_restart() {
    let settings = config(&[]);
    let mut first = TestServer::from(settings.clone());
    counter(&first).says("FCALL add 1 n 41", ":41\r\n");
    first.stop_and_keep();
    let second = TestServer::from(settings);
    second.connect().says("FCALL add 1 n 1", ":42\r\n");
}

/// A function that never ends costs its caller an error; others are served, before and after.
#[test]
fn endless_function_is_stopped() {
    let server = TestServer::with(&[("function-time-limit-ms", "500")]);
    let mut client = counter(&server);
    let endless = "#!js name=endless\nexport function spin() { for (;;); }\n";
    assert_eq!(load(&mut client, endless), Frame::Bulk(b"endless".to_vec()));
    client.send("FCALL add 1 n 1\r\nFCALL spin 0\r\nFCALL add 1 n 1\r\n");
    client.expect(":1\r\n");
    let error = client.reply();
    let text = String::from_utf8_lossy(error.error().expect("an error")).into_owned();
    assert!(text.contains("function-time-limit-ms"), "{text}");
    client.expect(":2\r\n");
}

/// Calls of one turn that aren't of one batch once drew the same random numbers, and a function
/// that makes ids from them made one id twice.
#[test]
fn no_two_calls_draw_the_same_numbers() {
    let server = TestServer::start();
    let mut client = server.connect();
    let source =
        "#!js name=l\nexport const id = () => String(Math.random());\nid.flags = ['no-writes'];";
    load(&mut client, source);
    client.send(
        "FCALL id 0\r\nSET k v\r\nFCALL id 0\r\nMULTI\r\nFCALL id 0\r\nFCALL id 0\r\nEXEC\r\n",
    );
    let mut ids = vec![client.reply()];
    client.expect("+OK\r\n");
    ids.push(client.reply());
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    ids.extend(client.reply().elements().expect("two replies").iter().cloned());
    let mut ids: Vec<&[u8]> = ids.iter().map(|id| id.bytes().expect("an id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

/// All shards but the first loaded all libraries anew whenever any was loaded: with many of them,
/// or slow ones, their clients waited for all. And all module variables were gone.
#[test]
fn a_library_that_comes_or_goes_leaves_others_as_they_are() {
    let server = TestServer::with(&[("shards", "2")]);
    let mut client = server.connect();
    let counts = |first: u32| {
        format!(
            "#!js name=kept\nlet n = {first};\nexport function count() {{ return ++n; }}\n\
             count.flags = ['no-writes'];\n"
        )
    };
    load(&mut client, &counts(0));
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let mut count =
        || -> Vec<i64> { clients.iter_mut().map(|it| it.number("FCALL_RO count 0")).collect() };
    let mut before = count();
    assert!(before.iter().filter(|n| **n == 1).count() == 2, "each shard has its own: {before:?}");
    for change in ["FUNCTION LOAD", "FUNCTION DELETE other"] {
        match change {
            "FUNCTION LOAD" => _ = load(&mut client, "#!js name=other\nexport const f = () => 1;"),
            change => client.says(change, "+OK\r\n"),
        }
        let after = count();
        let goes_on = before.iter().zip(&after).all(|(before, after)| before < after);
        assert!(goes_on, "{change}: {before:?} {after:?}");
        before = after;
    }
    // It alone is loaded anew.
    load(&mut client, &counts(1_000));
    let after = count();
    assert!(after.iter().all(|n| *n > 1_000), "{after:?}");
}

/// FUNCTION RESTORE holds its shard until all libraries have started, and there may be thousands.
#[test]
fn libraries_that_take_long_together_are_not_restored() {
    let server = TestServer::with(&[("shards", "1"), ("function-load-limit-ms", "60000")]);
    let mut client = server.connect();
    for name in ["a", "b", "c"] {
        let spins = "for (let i = 0; i < 1e6; i++) Math.sin(i);";
        load(&mut client, &format!("#!js name={name}\n{spins}\nexport const f{name} = () => 1;\n"));
    }
    let dump = client.ask(&[b"FUNCTION", b"DUMP"]);
    let dump = dump.bytes().expect("libraries");
    client.says("FUNCTION DELETE c", "+OK\r\n");
    client.says("CONFIG SET command-time-limit-ms 1", "+OK\r\n");
    let refused = client.ask(&[b"FUNCTION", b"RESTORE", dump, b"FLUSH"]);
    let refused = refused.error().map(String::from_utf8_lossy);
    let text = "ERR the libraries took longer than 1 ms to load (setting: command-time-limit-ms)";
    assert_eq!(refused.as_deref(), Some(text));
    client.says("FCALL fb 0", ":1\r\n");
    client.says("FCALL fc 0", "-ERR Function not found\r\n");
    client.says("CONFIG SET command-time-limit-ms 60000", "+OK\r\n");
    let restored = client.ask(&[b"FUNCTION", b"RESTORE", dump, b"FLUSH"]);
    assert_eq!(restored, Frame::Simple(b"OK".to_vec()));
    client.says("FCALL fc 0", ":1\r\n");
}
