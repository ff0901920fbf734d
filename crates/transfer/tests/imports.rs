//! Whole imports into a server of the test's own, which answers as each story needs.

use nigh_client::{Address, Connection, ConnectionOptions};
use nigh_transfer::{ImportError, ImportOptions, Imported, Origin, import};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The time by which keys are over in all stories.
const NOW_MS: i64 = 1_000_000;
/// The reply to a write.
const OK: &str = "+OK\r\n";

/// A reply to a command, whose words are joined by spaces.
type Answer = fn(&str) -> &'static str;

/// A server that keeps nothing but a list of what it was sent.
struct Fake {
    address: Address,
    sent: Arc<Mutex<Vec<String>>>,
}

/// A command of the connection; `None` at its end.
fn next(input: &mut impl BufRead) -> Option<String> {
    fn number(input: &mut impl BufRead, sign: char) -> Option<usize> {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(sign)?.parse().ok()
    }
    let mut words = Vec::new();
    for _ in 0..number(input, '*')? {
        let mut word = vec![0; number(input, '$')? + 2];
        input.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    Some(words.join(" "))
}

fn serve(mut stream: TcpStream, answer: Answer, sent: &Mutex<Vec<String>>) {
    let mut input = BufReader::new(stream.try_clone().expect("a descriptor is left"));
    while let Some(command) = next(&mut input) {
        let reply = match command.as_str() {
            "DBSIZE" => ":0\r\n",
            "INFO stats" => "$0\r\n\r\n",
            command if command.starts_with("SCAN") => "*2\r\n$1\r\n0\r\n*0\r\n",
            command => answer(command),
        };
        sent.lock().expect("no thread panicked").push(command);
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

impl Fake {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let list = sent.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let list = list.clone();
                std::thread::spawn(move || serve(stream, answer, &list));
            }
        });
        Self { address: Address::tcp("127.0.0.1", port), sent }
    }

    /// Imports these bytes as a file.
    fn import(&self, bytes: &[u8], replace: bool) -> (Imported, Result<(), ImportError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path: PathBuf = folder.path().join("source");
        std::fs::write(&path, bytes).expect("the folder is ours");
        let options = ImportOptions {
            db: 0,
            replace,
            allow_truncated: false,
            source_password: None,
            now_ms: NOW_MS,
            stop: Arc::default(),
        };
        let connect = || Connection::connect(&self.address, &ConnectionOptions::default());
        import(&Origin::Path(path), &options, &connect, &mut |_| ())
    }

    /// Whether it was sent this command.
    fn got(&self, command: &str) -> bool {
        self.sent.lock().expect("no thread panicked").iter().any(|sent| sent == command)
    }
}

/// An AOF of these commands, whose words are apart by spaces.
fn aof(commands: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| {
        nigh_resp::encode::request(&mut bytes, command.split(' '));
    });
    bytes
}

/// An RDB without a checksum: keys with value and expiry, all shorter than 64 bytes.
fn rdb(keys: &[(&str, &str, Option<i64>)]) -> Vec<u8> {
    let mut bytes = b"REDIS0009".to_vec();
    let word = |bytes: &mut Vec<u8>, word: &str| {
        bytes.push(u8::try_from(word.len()).expect("it is short"));
        bytes.extend_from_slice(word.as_bytes());
    };
    for (key, value, expiry_ms) in keys {
        if let Some(expiry_ms) = expiry_ms {
            bytes.push(252);
            bytes.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        bytes.push(0);
        word(&mut bytes, key);
        word(&mut bytes, value);
    }
    bytes.push(255);
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

/// What of the AOF isn't imported.
fn left_out(commands: &[&str]) -> String {
    let (imported, outcome) = Fake::start(|_| OK).import(&aof(commands), false);
    outcome.expect("nothing is refused");
    imported.left_out.to_string()
}

/// A server that has no room refuses RENAME and COPY. The import took that for a source that isn't
/// there, removed the target, and could succeed.
#[test]
fn a_refused_rename_or_copy_ends_the_import() {
    let refuse: Answer = |command| match command.split(' ').next() {
        Some("RENAME" | "COPY") => "-OOM no room\r\n",
        _ => OK,
    };
    for command in ["RENAME a b", "COPY a b"] {
        let server = Fake::start(refuse);
        let (_, outcome) = server.import(&aof(&["SET a 1", "SET b 2", command]), false);
        let error = outcome.expect_err("it isn't there").to_string();
        assert!(error.contains("refused to write b: OOM no room"), "{error}");
        assert!(!server.got("DEL b"));
    }
}

/// What isn't a string lies not in Nigh, and what it overwrites is removed. So is what a name that
/// is too long for Nigh overwrites, or leaves.
#[test]
fn a_rename_or_copy_without_a_source_removes_the_target() {
    let long = "n".repeat(65_536);
    let absent: Answer = |command| match command.split(' ').next() {
        Some("RENAME") => "-ERR no such key\r\n",
        Some("COPY") => ":0\r\n",
        _ => OK,
    };
    for (command, removed, kinds) in [
        ("RENAME a b", "DEL b", ""),
        ("COPY a b", "DEL b", ""),
        (&format!("RENAME {long} b"), "DEL b", ""),
        (&format!("COPY {long} b"), "DEL b", ""),
        (&format!("RENAME a {long}"), "DEL a", "1 keys of more than 65,535 bytes"),
    ] {
        let server = Fake::start(absent);
        let (imported, outcome) = server.import(&aof(&[command]), false);
        outcome.expect("nothing is refused");
        assert!(server.got(removed), "{removed}");
        assert_eq!(imported.left_out.to_string(), kinds);
    }
}

/// Between partitions the value is read and written again. A read that was refused counted as a key
/// that isn't there, or has no expiry; and then the source was removed.
#[test]
fn a_refused_read_of_a_key_that_moves_ends_the_import() {
    let no_get: Answer = |command| match command.split(' ').next() {
        Some("RENAME" | "COPY") => "-CROSSSLOT two partitions\r\n",
        Some("PEXPIRETIME") => ":-1\r\n",
        Some("GET") => "-NOAUTH no\r\n",
        _ => OK,
    };
    let no_expiry: Answer = |command| match command.split(' ').next() {
        Some("RENAME" | "COPY") => "-CROSSSLOT two partitions\r\n",
        Some("PEXPIRETIME") => "-NOAUTH no\r\n",
        Some("GET") => "$1\r\n1\r\n",
        _ => OK,
    };
    for answer in [no_get, no_expiry] {
        for command in ["RENAME a b", "COPY a b"] {
            let server = Fake::start(answer);
            let (_, outcome) = server.import(&aof(&[command]), false);
            let error = outcome.expect_err("the value wasn't read").to_string();
            assert!(error.contains("refused to write a: NOAUTH no"), "{error}");
            let writes = ["DEL a", "DEL b", "SET b 1"];
            assert!(!writes.iter().any(|write| server.got(write)));
        }
    }
}

/// FLUSHDB empties the selected database alone. What was left out of others is still missing, but
/// the import said that it had all.
#[test]
fn what_was_left_out_of_other_databases_is_named_behind_flushdb() {
    let other = ["SELECT 1", "SET x 1", "SELECT 0"];
    let of_1 = "1 commands in database 1";
    assert_eq!(left_out(&[&other[..], &["FLUSHDB", "SET a 1"]].concat()), of_1);
    assert_eq!(left_out(&[&other[..], &["RPUSH l 1", "FLUSHDB"]].concat()), of_1);
    // The list goes with its database, and the key of database 1 with that.
    assert_eq!(left_out(&["RPUSH l 1", "FLUSHDB", "SET a 1"]), "");
    assert_eq!(left_out(&["SELECT 1", "SET x 1", "FLUSHDB"]), "");
    assert_eq!(left_out(&["RPUSH l 1", "SELECT 1", "FLUSHDB"]), "1 commands on lists");
    assert_eq!(left_out(&[&other[..], &["RPUSH l 1", "FLUSHALL"]].concat()), "");
}

/// No flush removes libraries of functions, whichever database was selected when they were loaded.
#[test]
fn libraries_of_functions_are_named_behind_a_flush() {
    let load = "FUNCTION LOAD #!lua";
    for flush in ["FLUSHDB", "FLUSHALL"] {
        assert_eq!(left_out(&[load, flush, "SET a 1"]), "1 functions and scripts");
        let elsewhere = ["SELECT 1", load, flush, "SELECT 0", flush];
        assert_eq!(left_out(&elsewhere), "1 functions and scripts");
    }
}

/// A damaged file is refused before the server is touched. It was emptied first.
#[test]
fn a_damaged_rdb_changes_nothing() {
    let whole = rdb(&[("a", "value of a", None), ("b", "value of b", None)]);
    let mut more = whole.clone();
    more.push(0);
    // A packed value that can't be unpacked; without a checksum nothing else tells it.
    let mut unpackable = b"REDIS0009\x00\x01a\xc3\x02\x04\xff\xff\xff".to_vec();
    unpackable.extend_from_slice(&[0; 8]);
    for damaged in [&whole[..whole.len() - 12], &whole[..whole.len() - 25], &more, &unpackable] {
        let server = Fake::start(|_| OK);
        let (imported, outcome) = server.import(damaged, true);
        let error = outcome.expect_err("it is damaged").to_string();
        assert!(error.contains("offset"), "{error}");
        assert_eq!((server.got("FLUSHALL"), imported.written), (false, 0));
    }
    let server = Fake::start(|_| OK);
    let (imported, outcome) = server.import(&whole, true);
    outcome.expect("it is whole");
    assert_eq!((server.got("FLUSHALL"), imported.written), (true, 2));
}

/// So is an AOF with a command that can't be followed. It was met when the server had been emptied,
/// and the commands before it were written.
#[test]
fn an_aof_that_cannot_be_followed_changes_nothing() {
    for command in ["SWAPDB 0 1", "SET b 2 IFEQ 1", "PEXPIREAT a soon"] {
        let server = Fake::start(|_| OK);
        let (imported, outcome) = server.import(&aof(&["SET a 1", command]), true);
        let error = outcome.expect_err("Nigh can't follow it").to_string();
        assert!(error.contains("offset 27"), "{error}");
        assert_eq!((server.got("FLUSHALL"), imported.written), (false, 0), "{command}");
    }
}

/// A key that is over at the source is over here, too. The server kept the value that it had.
#[test]
fn a_key_that_is_over_replaces_the_servers_own() {
    let server = Fake::start(|_| OK);
    let file = rdb(&[("over", "1", Some(NOW_MS)), ("kept", "2", Some(NOW_MS + 1))]);
    let (imported, outcome) = server.import(&file, false);
    outcome.expect("it is whole");
    assert!(server.got("DEL over") && server.got(&format!("SET kept 2 PXAT {}", NOW_MS + 1)));
    assert_eq!((imported.over, imported.written), (1, 2));
}

/// A command of many keys was sent as one, which a server with a log refuses as too large a commit:
/// all its keys were missing, or stayed, and one was named. A key that is too long took the others
/// of its command along.
#[test]
fn a_command_of_many_keys_is_sent_in_parts() {
    let count = 2500;
    let long = "n".repeat(65_536);
    let pairs: Vec<String> = (0..count).map(|n| format!("key{n} {n}")).collect();
    let keys: Vec<String> = (0..count).map(|n| format!("key{n}")).collect();
    let big = "v".repeat(100_000);
    let commands = [
        format!("MSET {} {long} 1 after 2", pairs.join(" ")),
        format!("DEL {} {long}", keys.join(" ")),
        format!("MSET a {big} b {big} c 1"),
    ];
    let server = Fake::start(|_| OK);
    let (imported, outcome) = server.import(&aof(&commands.each_ref().map(String::as_str)), false);
    outcome.expect("nothing is refused");
    assert_eq!(imported.left_out.to_string(), "1 keys of more than 65,535 bytes");
    let sent = server.sent.lock().expect("no thread panicked").clone();
    let words = |name: &str| -> Vec<Vec<String>> {
        let sent = sent.iter().map(|command| command.split(' ').map(str::to_owned).collect());
        sent.filter(|words: &Vec<String>| words[0] == name).collect()
    };
    let (sets, removals) = (words("MSET"), words("DEL"));
    let sizes: Vec<usize> = sets.iter().map(|words| words.len() / 2).collect();
    assert_eq!(sizes, [1000, 1000, 501, 1, 1, 1], "a long value is a part of its own");
    let all: Vec<String> = sets[..3].iter().flat_map(|words| words[1..].to_vec()).collect();
    assert_eq!(all.join(" "), format!("{} after 2", pairs.join(" ")));
    assert!(removals.iter().all(|words| words.len() <= 1001));
    let all: Vec<String> = removals.iter().flat_map(|words| words[1..].to_vec()).collect();
    assert_eq!(all, keys);
}

/// A string that was left out, since a command that Nigh doesn't have had changed it, was made anew
/// by the next APPEND, with that piece alone.
#[test]
fn what_only_changes_a_string_that_was_left_out_is_left_out_too() {
    let of_changes = "1 APPEND of strings that were left out";
    let stories: [(&[&str], bool, &[&str]); 10] = [
        (&["SETBIT k 7 1", "APPEND k abc"], false, &[of_changes, "1 strings changed by SETBIT"]),
        (&["SELECT 1", "COPY n k DB 0", "SELECT 0", "APPEND k abc"], false, &[of_changes]),
        (&["SELECT 1", "MOVE k 0", "SELECT 0", "APPEND k abc"], false, &[of_changes]),
        (&["SETBIT b 7 1", "RENAME b k", "APPEND k abc"], false, &[of_changes]),
        (&["SETBIT b 7 1", "COPY b k", "APPEND k abc", "APPEND b abc"], false, &["2 APPEND of"]),
        (
            &["SETBIT b 7 1", "RENAME b k", "SET b 1", "APPEND b abc", "APPEND k abc"],
            false,
            &[of_changes],
        ),
        (&["SETBIT k 7 1", "SET k 1", "APPEND k abc"], true, &[]),
        (&["SETBIT k 7 1", "MSET a 1 k 1", "APPEND k abc"], true, &[]),
        (&["SETBIT k 7 1", "DEL k", "APPEND k abc"], true, &[]),
        (&["SETBIT k 7 1", "FLUSHALL", "APPEND k abc"], true, &[]),
    ];
    for (commands, is_sent, told) in stories {
        let server = Fake::start(|_| OK);
        let (imported, outcome) = server.import(&aof(commands), false);
        outcome.expect("nothing is refused");
        assert_eq!(server.got("APPEND k abc"), is_sent, "{commands:?}");
        let left_out = imported.left_out.to_string();
        assert!(told.iter().all(|told| left_out.contains(told)), "{commands:?}: {left_out}");
    }
}
