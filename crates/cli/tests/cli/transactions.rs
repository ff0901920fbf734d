//! What transactions take of the server's memory.

use crate::support::{MAXMEMORY, Server, folder};
use std::time::{Duration, Instant};

/// Replies of commands that aren't about data are kept until EXEC is over, since it may come again.
/// They were kept beyond the limit of replies too, so a queue of some bytes took all memory.
#[test]
fn a_transaction_keeps_no_more_replies_than_a_client_may_have() {
    const COMMANDS: usize = 3_000;
    let folder = folder();
    let flags = ["--output-buffer-limit", "16mb", "--command-time-limit-ms", "3600000"];
    let server = Server::start_with(
        folder.path(),
        &[["--maxmemory", MAXMEMORY, "--shards", "1"].as_slice(), &flags].concat(),
    );
    let docs = server.call(&["COMMAND", "DOCS"]);
    assert!(format!("{docs:?}").len() > 20_000, "it is long");
    let before = server.memory_kib("VmHWM:");
    let mut client = server.connect();
    client.send(["MULTI"]).expect("the server is up");
    for _ in 0..COMMANDS {
        client.send(["COMMAND", "DOCS"]).expect("the server is up");
    }
    client.send(["EXEC"]).expect("the server is up");
    client.flush().expect("the server is up");
    let until = Instant::now() + Duration::from_secs(120);
    let is_there = || {
        let list = server.call(&["CLIENT", "LIST"]);
        String::from_utf8_lossy(list.bytes().unwrap_or_default()).lines().count() > 1
    };
    while is_there() {
        assert!(Instant::now() < until, "it is cut off");
        std::thread::sleep(Duration::from_millis(10));
    }
    let taken = (server.memory_kib("VmHWM:") - before) / 1024;
    assert!(taken < 80, "{taken} MiB");
}

/// The row of each client that was moved to another shard stayed at that shard's seat until
/// somebody asked for INFO or CLIENT LIST: a client that watches keys of two shards in turn took
/// all memory.
#[test]
fn clients_that_watch_here_and_there_leave_nothing_behind() {
    const WATCHES: usize = 20_000;
    let folder = folder();
    let flags = ["--maxmemory", MAXMEMORY, "--shards", "2", "--partitions", "2"];
    let server = Server::start_with(folder.path(), &flags);
    let mut client = server.connect();
    // A row has about 12 KB.
    let long = "n".repeat(4000);
    for words in
        [["CLIENT", "SETNAME", &long].as_slice(), &["CLIENT", "SETINFO", "lib-name", &long]]
    {
        assert_eq!(client.call(words.iter()).expect("the server is up").bytes(), Some(&b"OK"[..]));
    }
    let before = server.private_mib();
    for n in 0..WATCHES {
        let key = format!("key{}", n % 8);
        for words in [["WATCH", &key].as_slice(), &["UNWATCH"]] {
            let reply = client.call(words.iter()).expect("the server is up");
            assert_eq!(reply.bytes(), Some(&b"OK"[..]));
        }
    }
    let taken = server.private_mib().saturating_sub(before);
    assert!(taken < 30, "{taken} MiB");
}
