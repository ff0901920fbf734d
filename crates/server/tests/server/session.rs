//! AUTH, HELLO, CLIENT, RESET, and what a client is told about the server.

use crate::common::{TestServer, config, request};
use nigh_resp::frame::Frame;

/// Without the password nothing is answered but AUTH, HELLO, QUIT and RESET, whatever the pipeline.
#[test]
fn password_guards_every_command() {
    let server = TestServer::with(&[("requirepass", "secret")]);
    let mut client = server.connect();
    client
        .says("GET k\r\nSET k v\r\nCLIENT LIST", &"-NOAUTH Authentication required.\r\n".repeat(3));
    client.says("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n");
    client.says("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.says(
        "AUTH nobody secret",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    );
    client.says("AUTH secret\r\nGET k", "+OK\r\n$-1\r\n");
    client.says("RESET", "+RESET\r\n");
    client.says("GET k", "-NOAUTH Authentication required.\r\n");
    client.send("HELLO 3 AUTH default secret\r\n");
    assert!(matches!(client.reply(), Frame::Map(_)));
    client.says("GET k", "_\r\n");
    // Before AUTH, requests are kept small.
    let mut stranger = server.connect();
    stranger.send("*11\r\n");
    stranger.expect("-ERR Protocol error: unauthenticated multibulk length\r\n");
}

/// Redis logs in when it has read all options of HELLO: with one that it doesn't know, nobody is.
#[test]
fn hello_that_is_refused_logs_nobody_in() {
    let server = TestServer::with(&[("requirepass", "secret")]);
    let mut client = server.connect();
    let refused = "-ERR Syntax error in HELLO option 'BOGUS'\r\n";
    client.says("HELLO 3 AUTH default secret BOGUS", refused);
    client.says("GET k", "-NOAUTH Authentication required.\r\n");
    client.send("HELLO 2 AUTH default secret SETNAME me\r\n");
    assert!(matches!(client.reply(), Frame::Array(_)));
    client.says("CLIENT GETNAME", "$2\r\nme\r\n");
}

/// A shard runs a function while another one is told of a password. Clients that the Unix socket
/// gave the busy shard meanwhile were never asked for it: it took them before it looked at the
/// settings.
#[test]
fn clients_behind_a_new_password_are_asked_for_it() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let path = std::env::temp_dir().join(format!("nigh-password-{}.sock", std::process::id()));
    let text = path.to_str().expect("plain");
    let limit = ("function-time-limit-ms", "60000");
    let _server = TestServer::with(&[("unixsocket", text), ("shards", "2"), limit]);
    let source = b"#!js name=l\nexport function spin() { for (;;); }\nspin.flags = ['no-writes'];";
    // The shards take turns, and the first one accepts.
    let connect = || UnixStream::connect(&path).expect("it listens");
    let ask = |mut stream: &UnixStream, words: &[&[u8]]| {
        let mut reply = [0; 1024];
        stream.write_all(&request(words)).expect("it reads");
        let read = stream.read(&mut reply).expect("it answers");
        String::from_utf8_lossy(&reply[..read]).into_owned()
    };
    let (first, mut busy) = (connect(), connect());
    assert_eq!(ask(&first, &[b"FUNCTION", b"LOAD", source]), "$1\r\nl\r\n");
    busy.write_all(b"FCALL spin 0\r\n").expect("it reads");
    while !ask(&first, &[b"FUNCTION", b"STATS"]).contains("duration_ms") {
        std::thread::yield_now();
    }
    assert_eq!(ask(&first, &[b"CONFIG", b"SET", b"requirepass", b"secret"]), "+OK\r\n");
    let [at_first, at_busy, behind] = std::array::from_fn(|_| connect());
    let no_auth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(ask(&at_first, &[b"GET", b"k"]), no_auth);
    assert_eq!(ask(&behind, &[b"GET", b"k"]), no_auth); // so all have been accepted
    assert_eq!(ask(&first, &[b"FUNCTION", b"KILL"]), "+OK\r\n");
    assert_eq!(ask(&at_busy, &[b"GET", b"k"]), no_auth);
}

/// The password is taken away: clients that haven't said it are served as those that come now, with
/// requests of any size. A new one holds for them too.
#[test]
fn without_its_password_a_server_serves_all() {
    let server = TestServer::with(&[("requirepass", "secret"), ("shards", "2")]);
    let mut strangers = [server.connect(), server.connect(), server.connect()];
    let mut admin = server.connect();
    admin.says("AUTH secret", "+OK\r\n");
    let no_auth = "-NOAUTH Authentication required.\r\n";
    strangers.iter_mut().for_each(|client| client.says("GET k", no_auth));
    admin.send(crate::common::request(&[b"CONFIG", b"SET", b"requirepass", b""]));
    admin.expect("+OK\r\n");
    for client in &mut strangers {
        client.says("GET k", "$-1\r\n");
        assert_eq!(client.number("EXISTS a b c d e f g h i j k l"), 0);
        client.send(crate::common::request(&[b"SET", b"k", &[b'x'; 20_000]]));
        client.expect("+OK\r\n");
        client.send("HELLO 2\r\n");
        assert!(matches!(client.reply(), Frame::Array(_)));
        client.says("MULTI\r\nDEL k\r\nEXEC", "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
    }
    admin.says("CONFIG SET requirepass other", "+OK\r\n");
    strangers.iter_mut().for_each(|client| client.says("GET k", no_auth));
    admin.says("GET k", "$-1\r\n");
}

/// Without a password AUTH says so, in Redis's words.
#[test]
fn auth_without_password() {
    let server = TestServer::start();
    let mut client = server.connect();
    let text = client.text("AUTH x");
    assert!(text.starts_with("ERR AUTH <password> called without any password configured"));
    client.says("AUTH default x", "+OK\r\n");
}

/// HELLO changes the protocol of the next reply, and says who is there.
#[test]
fn hello_negotiates_the_protocol() {
    let server = TestServer::start();
    let mut client = server.connect();
    let Frame::Array(fields) = client.ask(&[b"HELLO"]) else { panic!("RESP2 has no maps") };
    assert_eq!(fields.len(), 14);
    assert_eq!(fields[1], Frame::Bulk(b"redis".to_vec()));
    let Frame::Map(fields) = client.ask(&[b"HELLO", b"3", b"SETNAME", b"me"]) else {
        panic!("RESP3 has maps")
    };
    assert_eq!(fields[2], (Frame::Bulk(b"proto".to_vec()), Frame::Integer(3)));
    client.says("CLIENT GETNAME", "$2\r\nme\r\n");
    client.says("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    client.says("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n");
    client.says("HELLO 2 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n");
    client.says("GET none", "_\r\n");
}

/// Errors quote what was sent as Redis does, cut and without line breaks.
#[test]
fn unknown_commands_are_quoted() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n");
    client.says("CLIENT foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP.\r\n");
    client.says("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n");
    client.says("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command\r\n");
    client.send(crate::common::request(&[b"a\r\nb", &[b'x'; 200], b"y"]));
    let error = format!(
        "-ERR unknown command 'a  b', with args beginning with: '{}' \r\n",
        "x".repeat(128)
    );
    client.expect(error);
}

/// CLIENT LIST has each connection; CLIENT KILL ends those that match.
#[test]
fn clients_are_listed_and_killed() {
    let server = TestServer::start();
    let (mut a, mut b, mut c) = (server.connect(), server.connect(), server.connect());
    let ids: Vec<i64> = [&mut a, &mut b, &mut c].map(|client| client.number("CLIENT ID")).to_vec();
    b.says("CLIENT SETNAME worker", "+OK\r\n");
    b.says("CLIENT SETINFO LIB-NAME raw", "+OK\r\n");
    b.says(
        "CLIENT SETNAME \"a b\"",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    );
    let list = a.text("CLIENT LIST");
    assert_eq!(list.lines().count(), 3, "{list}");
    let begin = format!("id={} addr=127.0.0.1:", ids[1]);
    let line = list.lines().find(|line| line.starts_with(&begin)).expect("a line for each");
    assert!(line.contains(" name=worker ") && line.contains(" lib-name=raw "), "{line}");
    assert!(line.contains(" cmd=client|setname "), "{line}");
    assert_eq!(a.number(&format!("CLIENT KILL ID {}", ids[1])), 1);
    assert!(b.is_closed());
    assert_eq!(a.number(&format!("CLIENT KILL ID {}", ids[1])), 0);
    a.says("CLIENT KILL 1.2.3.4:5", "-ERR No such client\r\n");
    a.says("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'\r\n");
    assert_eq!(a.number("CLIENT KILL TYPE normal SKIPME yes"), 1);
    assert!(c.is_closed());
    assert_eq!(a.number("CLIENT KILL TYPE normal SKIPME no"), 1);
    assert!(a.is_closed());
    assert_eq!(server.connect().text("CLIENT LIST").lines().count(), 1);
}

/// CLIENT REPLY silences what it says it does, in pipelines too.
#[test]
fn replies_can_be_switched_off() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a", "$1\r\n1\r\n");
    client.says(
        "CLIENT REPLY OFF\r\nSET a 2\r\nFOO\r\nGET a\r\nCLIENT REPLY ON\r\nGET a",
        "+OK\r\n$1\r\n2\r\n",
    );
}

/// Settings are read by pattern and changed together or not at all.
#[test]
fn settings_change_all_or_none() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("CONFIG GET TIMEOUT", "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    client.says("CONFIG SET timeout 5 slowlog-max-len x",
        "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument couldn't be parsed into an integer\r\n");
    client.says("CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    client.says("CONFIG SET port 1", "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config: give --port at a start\r\n");
    client.says(
        "CONFIG SET foo 1",
        "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'\r\n",
    );
    client.says(
        "CONFIG SET timeout 1 timeout 2",
        "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter\r\n",
    );
    client.says("CONFIG SET timeout 5 maxclients 50", "+OK\r\n");
    let Frame::Array(both) = client.ask(&[b"CONFIG", b"GET", b"time*", b"maxc*"]) else { panic!() };
    assert_eq!(both.len(), 4);
    client.says("CONFIG GET nothing*", "*0\r\n");
}

/// A setting that only a start chooses may be set to what it is: scripts send `CONFIG SET save ''`
/// to any Redis. It was refused, with the hint to give `--save` at a start. The same hint came
/// with values that no start takes either.
#[test]
fn a_setting_of_the_start_may_be_set_to_what_it_is() {
    let server = TestServer::start();
    let mut client = server.connect();
    assert_eq!(client.ask(&[b"CONFIG", b"SET", b"save", b""]), Frame::Simple(b"OK".to_vec()));
    client.says("CONFIG SET databases 1 timeout 5", "+OK\r\n");
    client.says("CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n5\r\n");
    for (pair, reason) in [
        ("databases 16", "must be 1: Nigh has one database"),
        ("save 3600", "must be empty: Nigh saves no snapshots: see appendonly, and BACKUP"),
        ("partitions 3", "can't set immutable config: give --partitions at a start"),
        ("databases 1 databases 1", "duplicate parameter"),
    ] {
        let name = pair.split(' ').next().unwrap_or_default();
        client.says(
            &format!("CONFIG SET {pair}"),
            &format!(
                "-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}\r\n"
            ),
        );
    }
}

/// What CONFIG GET answers can be set back. It was refused where the server had chosen it, and a
/// `maxmemory` of 0 was accepted though another one holds.
#[test]
fn a_setting_that_the_server_chose_may_be_set_to_what_it_is() {
    let mut config = config(&[("shards", "1")]);
    config.set("maxmemory", "0").expect("a size");
    let server = TestServer::from(config);
    let mut client = server.connect();
    for name in ["maxmemory", "port", "dir", "shm-dir"] {
        let Frame::Array(pair) = client.ask(&[b"CONFIG", b"GET", name.as_bytes()]) else {
            panic!()
        };
        let holds = pair[1].bytes().expect("a text").to_vec();
        let reply = client.ask(&[b"CONFIG", b"SET", name.as_bytes(), &holds]);
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()), "{name}");
        let after = client.ask(&[b"CONFIG", b"GET", name.as_bytes()]);
        assert_eq!(after, Frame::Array(pair), "{name}");
    }
    client.says(
        "CONFIG SET maxmemory 0",
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - can't set immutable \
         config: give --maxmemory at a start\r\n",
    );
}

/// INFO has what monitoring asks for; the slow log has what was slow.
#[test]
fn statistics_are_told() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.says("SET a 1", "+OK\r\n");
    client.says(
        "GET a\r\nGET b\r\nINCR x y",
        "$1\r\n1\r\n$-1\r\n-ERR wrong number of arguments for 'incr' command\r\n",
    );
    let info = client.text("INFO everything");
    for field in [
        "redis_version:7.2.4",
        "nigh_version:",
        "connected_clients:1",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "db0:keys=1,expires=0",
        "cmdstat_get:calls=2,",
        "role:master",
        "errorstat_ERR:count=1",
        "used_memory:",
        "cmdstat_incr:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
    let memory = client.text("INFO memory");
    assert!(memory.starts_with("# Memory\r\n") && !memory.contains("# Server"), "{memory}");
    client.says("CONFIG RESETSTAT", "+OK\r\n");
    assert!(!client.text("INFO commandstats").contains("cmdstat_get"));
    client.says("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n");
    client.says("SLOWLOG RESET", "+OK\r\n");
    client.says("GET logged", "$-1\r\n");
    let Frame::Array(entries) = client.ask(&[b"SLOWLOG", b"GET"]) else { panic!() };
    let commands: Vec<_> =
        entries.iter().map(|e| e.elements().expect("an entry")[3].clone()).collect();
    let words = Frame::Array(vec![Frame::Bulk(b"GET".to_vec()), Frame::Bulk(b"logged".to_vec())]);
    assert!(commands.contains(&words), "{commands:?}");
}

/// The table describes itself: every command's COMMAND INFO has Redis's ten parts.
#[test]
fn commands_describe_themselves() {
    let server = TestServer::start();
    let mut client = server.connect();
    let Frame::Array(all) = client.ask(&[b"COMMAND"]) else { panic!() };
    assert_eq!(all.len() as i64, client.number("COMMAND COUNT"));
    assert!(all.iter().all(|row| row.elements().is_some_and(|parts| parts.len() == 10)));
    let Frame::Array(docs) = client.ask(&[b"COMMAND", b"DOCS"]) else { panic!() };
    assert_eq!(docs.len(), all.len() * 2);
    client.says("COMMAND GETKEYS mset a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    client.says("COMMAND GETKEYS nothing x", "-ERR Invalid command specified\r\n");
    client.says("COMMAND INFO nothing", "*1\r\n$-1\r\n");
    let Frame::Array(help) = client.ask(&[b"CLIENT", b"HELP"]) else { panic!() };
    assert!(help.len() > 10);
}

/// Code runs behind each row, subcommands too: each answers, whatever it says.
#[test]
fn each_row_of_the_table_answers() {
    fn call(server: &TestServer, row: &Frame) {
        let parts = row.elements().expect("a row");
        let (Frame::Bulk(name), Frame::Integer(arity)) = (&parts[0], &parts[1]) else {
            panic!("{row:?}")
        };
        let mut words: Vec<_> = name.split(|byte| *byte == b'|').collect();
        // SHUTDOWN with a word that it doesn't know goes on.
        let least = usize::try_from(arity.unsigned_abs()).expect("a few words");
        words.resize(least.max(words.len()), b"1");
        if name == b"shutdown" {
            words.push(b"1");
        }
        server.connect().ask(&words);
        parts[9].elements().expect("subcommands").iter().for_each(|row| call(server, row));
    }
    let server = TestServer::start();
    let Frame::Array(rows) = server.connect().ask(&[b"COMMAND"]) else { panic!() };
    rows.iter().for_each(|row| call(&server, row));
}

/// A command that compares all keys with a pattern holds its shard: patterns have a bound.
#[test]
fn patterns_have_a_bound() {
    for partitions in ["1", "2"] {
        let server = TestServer::with(&[("partitions", partitions)]);
        let mut client = server.connect();
        client.says("SET k v", "+OK\r\n");
        let (longest, longer) = (format!("k{}", "*".repeat(1023)), "a".repeat(1025));
        client.says(&format!("KEYS {longest}"), "*1\r\n$1\r\nk\r\n");
        for command in [
            "KEYS",
            "SCAN 0 MATCH",
            "CONFIG GET timeout",
            "COMMAND LIST FILTERBY PATTERN",
            "FUNCTION LIST LIBRARYNAME",
        ] {
            let error = "-ERR the pattern is longer than 1024 bytes\r\n";
            client.says(&format!("{command} {longer}"), error);
        }
        let many = format!("CONFIG GET{}", " timeout".repeat(1024));
        client.says(&many, "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
        client.says(&format!("{many} port"), "-ERR too many patterns: at most 1024\r\n");
    }
}
