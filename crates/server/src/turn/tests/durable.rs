//! Replies wait until what they depend on is on disk.

use super::logged::{Logged, NULL, OK};
use super::*;
use nigh_store::{LogHealth, SyncMode};

#[test]
fn a_write_is_answered_when_it_is_on_disk() {
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(0);
    server.after_sync(0, &mut client, &["SET k v"], OK);
    server.says(&mut client, &["GET k", "STRLEN k", "GET none"], b"$1\r\nv\r\n:1\r\n$-1\r\n");
    assert!(!server.logs[0].is_wanted(), "all of that is on disk");
    // A reply without a look waits for nothing, and one that fails before it looks neither.
    let mut other = server.connect(0);
    server.send(&mut client, &["SET k w"]);
    server.says(&mut other, &["PING", "CLIENT GETNAME", "MULTI"], b"+PONG\r\n$-1\r\n+OK\r\n");
    server.says(&mut other, &["SET k x"], b"+QUEUED\r\n");
}

#[test]
fn what_lives_has_more_bytes_in_the_log_than_in_memory() {
    // Its thread was told those in memory, so a log of short records was compacted too soon.
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(0);
    for n in 0..100 {
        server.after_sync(0, &mut client, &[&format!("SET key{n} v")], OK);
    }
    server.shards.turn(true);
    let tenants = &mut server.shards.shards[0].work.state.tenants;
    let bytes = tenants.bytes();
    assert_eq!(bytes.live, tenants[TenantId(0)].keyspace.live_bytes());
    assert!(bytes.live >= bytes.used + 100 * 24, "{bytes:?}");
}

#[test]
fn a_pipeline_leaves_at_once_as_a_whole() {
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(0);
    server.after_sync(0, &mut client, &["SET k v"], OK);
    let pipeline = ["INCR n", "GET k", "PING", "DEL k", "APPEND a 1"];
    server.send(&mut client, &pipeline);
    server.is_silent(&mut client, "it has written");
    server.send(&mut client, &["GET k", "INCR n"]);
    server.is_silent(&mut client, "more of it");
    assert_eq!(server.arenas(0)[0].begun_lsn(), 4, "it keeps replies, so nothing more has run");
    server.sync(0);
    server.shards.expect(&mut client, b":1\r\n$1\r\nv\r\n+PONG\r\n:1\r\n:1\r\n", "the first");
    server.is_silent(&mut client, "the second INCR isn't on disk");
    server.sync(0);
    server.shards.expect(&mut client, b"$-1\r\n:2\r\n", "the rest");
}

#[test]
fn a_hit_waits_for_its_own_record_only() {
    for shard in 0..SHARDS {
        let mut server = Logged::of(1, SyncMode::Always);
        let mut writer = server.connect(0);
        server.after_sync(0, &mut writer, &["SET old v"], OK);
        let mut reader = server.connect(shard);
        // All else shows what may not be there after a power cut.
        for (command, reply) in [
            ("GET new", b"$1\r\nv\r\n".as_slice()),
            ("GET none", NULL),
            ("EXISTS old", b":1\r\n"),
            ("TTL old", b":-1\r\n"),
            ("MGET old", b"*1\r\n$1\r\nv\r\n"),
            ("DBSIZE", b":2\r\n"),
            ("GETEX old", b"$1\r\nv\r\n"),
            ("FCALL f 0", b"-ERR Function not found\r\n"),
        ] {
            server.send(&mut writer, &["SET new v"]);
            server.is_silent(&mut writer, "it isn't on disk");
            let mut other = server.connect(shard);
            server.send(&mut other, &[command]);
            server.is_silent(&mut other, command);
            server.says(&mut reader, &["GET old"], b"$1\r\nv\r\n");
            server.sync(0);
            server.shards.expect(&mut other, reply, command);
            server.shards.expect(&mut writer, OK, command);
            server.says(&mut other, &[command], reply);
        }
    }
}

#[test]
fn a_read_waits_though_a_transaction_begins_behind_it() {
    // Both in one window: what the read depends on is noted when the client is in the transaction.
    for shard in 0..SHARDS {
        let mut server = Logged::of(1, SyncMode::Always);
        let (mut writer, mut reader) = (server.connect(0), server.connect(shard));
        for (command, reply) in [
            ("GET k", b"$1\r\nv\r\n+OK\r\n".as_slice()),
            ("STRLEN k", b":1\r\n+OK\r\n"),
            ("GET none", b"$-1\r\n+OK\r\n"),
        ] {
            server.send(&mut writer, &["SET k v"]);
            server.is_silent(&mut writer, "it isn't on disk");
            server.send(&mut reader, &[command, "MULTI"]);
            server.is_silent(&mut reader, command);
            server.sync(0);
            server.shards.expect(&mut reader, reply, command);
            server.shards.expect(&mut writer, OK, "SET");
            server.says(&mut reader, &["DISCARD"], OK);
        }
    }
}

#[test]
fn a_kept_reply_is_as_it_was() {
    // A long value lies in the arena until the reply is written: it is copied when that waits.
    let mut server = Logged::of(1, SyncMode::Always);
    let (mut client, mut other) = (server.connect(0), server.connect(0));
    let [value, later] = ["v", "w"].map(|letter| letter.repeat(50_000));
    server.after_sync(0, &mut client, &[&format!("SET k {value}")], OK);
    server.send(&mut client, &["INCR n", "GET k"]);
    server.is_silent(&mut client, "INCR isn't on disk");
    server.send(&mut other, &[&format!("SET k {later}")]);
    server.is_silent(&mut other, "it isn't on disk");
    server.sync(0);
    server.shards.expect(&mut client, &[b":1\r\n", &*bulk(value.as_bytes())].concat(), "as it was");
    server.shards.expect(&mut other, OK, "SET");
    server.says(&mut other, &["GET k"], &bulk(later.as_bytes()));
}

#[test]
fn a_shard_keeps_replies_to_what_others_have_written() {
    // Two partitions, each of another shard. The client's shard waits for the log of the owner.
    let mut server = Logged::of(2, SyncMode::Always);
    let (near, far) = (server.key(1), server.key(0));
    let mut client = server.connect(1);
    server.after_sync(0, &mut client, &[&format!("SET {far} v")], OK);
    server.after_sync(1, &mut client, &[&format!("SET {near} v")], OK);
    let both = [format!("SET {far} w"), format!("SET {near} w"), format!("GET {far}")];
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    server.send(&mut client, &both);
    server.is_silent(&mut client, "none is on disk");
    server.sync(1);
    server.is_silent(&mut client, "one is");
    server.sync(0);
    server.shards.expect(&mut client, b"+OK\r\n+OK\r\n$1\r\nw\r\n", "both are");
    // A command by parts.
    let parts = format!("MSET {far} 1 {near} 2");
    server.send(&mut client, &[&parts, &format!("DEL {near} {far}")]);
    server.is_silent(&mut client, "MSET, DEL");
    server.sync_all();
    server.shards.expect(&mut client, b"+OK\r\n:2\r\n", "MSET, DEL");
}

#[test]
fn many_answers_of_others_leave_in_the_end() {
    // So many that a connection has to wait for answers before it goes on, while the log syncs now
    // and then.
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(1);
    let commands = vec!["INCR n"; 3_000];
    server.send(&mut client, &commands);
    let expected: String = (1..=3_000).map(|number| format!(":{number}\r\n")).collect();
    for _ in 0..10_000 {
        server.shards.turn(false);
        let _ = client.stream.read_to_end(&mut client.came);
        let durable = server.arenas(0)[0].durable_lsn();
        let told = client.came.iter().filter(|byte| **byte == b':').count() as u64;
        assert!(told <= durable, "{told} are told, {durable} are on disk");
        if server.logs[0].is_wanted() {
            server.sync(0);
        }
        if client.came.len() == expected.len() {
            break;
        }
        server.shards.shards[1].work.ready.queue(client.slot);
    }
    assert!(client.came == expected.as_bytes(), "{} bytes", client.came.len());
}

#[test]
fn replies_that_leave_early_release_no_later_ones() {
    // A long reply leaves while a write of the same client is at another shard. The write's reply
    // waits all the same, though nothing else has looked at its partition since.
    for is_kept in [false, true] {
        let mut server = Logged::of(1, SyncMode::Always);
        let (mut client, mut other) = (server.connect(1), server.connect(0));
        let long = "l".repeat(30_000);
        server.after_sync(0, &mut other, &[&format!("SET long {long}")], OK);
        if is_kept {
            server.send(&mut other, &["SET k 1"]);
            server.is_silent(&mut other, "SET");
        }
        server.send(&mut client, &["GETRANGE long 0 -1", "SET k 2"]);
        server.shards.turn_one(1, false);
        server.sync(0);
        server.shards.turn_one(1, false);
        server.is_silent_but(&mut client, &bulk(long.as_bytes()));
        assert!(!client.came.is_empty(), "the long one has left");
        server.sync(0);
        let all = [&bulk(long.as_bytes()), OK].concat();
        server.shards.expect(&mut client, &all, "SET is on disk");
    }
}

#[test]
fn transactions_and_functions_wait_too() {
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(0);
    let source = "#!words name=w\nput echo count\n";
    server.shards.send(&mut client, &[vec![b"FUNCTION", b"LOAD", source.as_bytes()]]);
    server.is_silent(&mut client, "libraries are in the log");
    server.sync(0);
    server.shards.expect(&mut client, b"$1\r\nw\r\n", "FUNCTION LOAD");
    let replies = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\nv\r\n";
    server.after_sync(0, &mut client, &["MULTI", "SET k v", "GET k", "EXEC"], replies);
    server.after_sync(0, &mut client, &["FCALL put 1 f v"], b"+put\r\n");
    server.says(&mut client, &["FCALL echo 0 x", "MULTI", "EXEC"], b"+x\r\n+OK\r\n*0\r\n");
    // What only reads waits for what it may have read.
    server.send(&mut client, &["SET k w"]);
    server.is_silent(&mut client, "SET");
    let mut other = server.connect(1);
    server.after_sync(0, &mut other, &["FCALL count 0 k"], b"+1\r\n");
    server.shards.expect(&mut client, OK, "SET");
    // A connection that goes to another shard does so with its replies written.
    server.send(&mut other, &["SET k x", "WATCH k", "MULTI", "SET k y", "EXEC"]);
    server.is_silent(&mut other, "SET waits, and so does the rest");
    server.sync(0);
    server.move_over(&mut other);
    assert_eq!(other.shard, 0);
    server.is_silent_but(&mut other, b"+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n");
    server.sync(0);
    server.shards.expect(&mut other, b"+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", "EXEC");
}

#[test]
fn clients_that_keep_replies_may_go_at_any_time() {
    let mut server = Logged::of(1, SyncMode::Always);
    let (mut gone, mut killed, mut quits) =
        (server.connect(0), server.connect(0), server.connect(0));
    server.send(&mut gone, &["SET k 1"]);
    server.send(&mut killed, &["CLIENT ID", "SET k 2"]);
    server.send(&mut quits, &["SET k 3", "QUIT", "SET k 4"]);
    for client in [&mut gone, &mut killed, &mut quits] {
        server.is_silent(client, "none is on disk");
    }
    let mut other = server.connect(1);
    let id = server.shards.shards[0].work.slab.get_mut(killed.slot).expect("it").pipe.client.id;
    let shared = Arc::clone(&server.shards.shards[0].work.state.shared);
    shared.kill(1, &std::collections::BTreeSet::from([id]));
    let work = &mut server.shards.shards[0].work;
    work.slab.get_mut(killed.slot).expect("it").pipe.client.end(crate::net::client::Close::Now);
    work.state.some_killed = true;
    assert!(server.is_closed(&mut killed) && killed.came.is_empty());
    drop(gone.stream);
    assert!(!server.is_closed(&mut quits), "its replies are still to come");
    server.sync(0);
    assert!(server.is_closed(&mut quits));
    assert_eq!(quits.came, b"+OK\r\n+OK\r\n");
    server.says(&mut other, &["GET k"], b"$1\r\n3\r\n");
}

#[test]
fn nothing_is_kept_when_nobody_is_to_wait() {
    for mode in [SyncMode::EverySecond, SyncMode::No] {
        let mut server = Logged::of(1, mode);
        let mut client = server.connect(1);
        server.says(&mut client, &["SET k v", "GET k", "GET none"], b"+OK\r\n$1\r\nv\r\n$-1\r\n");
        assert!(!server.logs[0].is_wanted());
        // The mode changes, and changes back while a reply is kept.
        server.says(&mut client, &["CONFIG SET appendfsync always"], OK);
        server.shards.turn(false);
        assert!(server.logs.iter().all(|log| log.mode() == SyncMode::Always));
        let mut other = server.connect(0);
        server.send(&mut other, &["SET k w"]);
        server.is_silent(&mut other, "always");
        server.send(&mut client, &["SET k x"]);
        server.is_silent(&mut client, "always");
        let mut third = server.connect(1);
        server.says(&mut third, &["CONFIG SET appendfsync everysec"], OK);
        server.shards.expect(&mut other, OK, "everysec");
        server.shards.expect(&mut client, OK, "everysec");
        assert!(server.logs.iter().all(|log| log.mode() == SyncMode::EverySecond));
        server.says(&mut client, &["SET k y", "GET k"], b"+OK\r\n$1\r\ny\r\n");
        let text = b"-ERR CONFIG SET failed (possibly related to argument 'appendonly') - this \
                     server has nobody who begins a log\r\n";
        server.says(&mut client, &["CONFIG SET appendonly no"], text);
    }
}

const WORDS: &str = "#!words name=w\nput echo safe_put safe_echo safe_spread\n";
const MODES: [SyncMode; 3] = [SyncMode::No, SyncMode::EverySecond, SyncMode::Always];

/// Shards with logs, and functions with the flag `durable`, which are on disk.
fn with_safe_words(partitions: usize, mode: SyncMode) -> Logged {
    let mut server = Logged::of(partitions, mode);
    let mut client = server.connect(0);
    server.load(&mut client, WORDS);
    server
}

#[test]
fn a_durable_call_is_answered_when_it_is_on_disk_in_each_mode() {
    // Shard 1 has it sent to the owner.
    for mode in MODES {
        for shard in 0..SHARDS {
            let mut server = with_safe_words(1, mode);
            let (mut client, mut other) = (server.connect(shard), server.connect(shard));
            server.send(&mut client, &["FCALL safe_put 1 k v"]);
            server.is_silent(&mut client, "it isn't on disk");
            assert!(server.logs[0].is_wanted(), "a sync is asked for at once");
            if mode != SyncMode::Always {
                let commands = ["SET a 1", "GET k", "FCALL put 1 b 2"];
                server.says(&mut other, &commands, b"+OK\r\n$1\r\nv\r\n+put\r\n");
            }
            // What comes behind it runs when it is answered, or is answered behind it.
            server.send(&mut client, &["GET k"]);
            server.is_silent(&mut client, "behind it");
            server.sync(0);
            server.shards.expect(&mut client, b"+put\r\n$1\r\nv\r\n", "both");
            // One that only reads waits for what others had begun.
            server.send(&mut other, &["SET a 2"]);
            if mode == SyncMode::Always {
                server.is_silent(&mut other, "always");
            } else {
                server.shards.expect(&mut other, OK, "others don't wait");
            }
            let call = ["PING", "FCALL_RO safe_echo 0 x", "PING"];
            let mut reader = server.connect(shard);
            server.send(&mut reader, &call);
            server.is_silent_but(&mut reader, b"+PONG\r\n");
            server.sync(0);
            server.shards.expect(&mut reader, b"+PONG\r\n+x\r\n+PONG\r\n", "in order");
            server.says(&mut reader, &["FCALL safe_echo 0 x"], b"+x\r\n");
            if mode != SyncMode::Always {
                // It was for that call alone.
                server.says(&mut client, &["SET k w", "FCALL put 1 k x"], b"+OK\r\n+put\r\n");
            }
        }
    }
}

#[test]
fn a_durable_call_waits_for_all_parts_of_it() {
    // Whichever log is the last to sync: the client's own, or another shard's.
    let modes = [SyncMode::No, SyncMode::EverySecond];
    for (mode, last) in modes.into_iter().flat_map(|mode| [(mode, 0), (mode, 1)]) {
        let mut server = with_safe_words(2, mode);
        let (near, far) = (server.key(1), server.key(0));
        let mut client = server.connect(1);
        let spread = format!("FCALL safe_spread 2 {near} {far} v");
        server.send(&mut client, &[&spread, "PING"]);
        server.is_silent(&mut client, "no part is on disk");
        server.sync(1 - last);
        server.is_silent(&mut client, "one is");
        server.sync(last);
        server.shards.expect(&mut client, b"+spread\r\n+PONG\r\n", "both are");
        // A key of one partition, the client's shard's or another's: its log is waited for.
        for (shard, key) in [(1, near), (0, far)] {
            let put = format!("FCALL safe_put 1 {key} w");
            server.after_sync(shard, &mut client, &[&put], b"+put\r\n");
        }
    }
}

#[test]
fn a_function_that_was_loaded_just_before_is_known_as_durable() {
    let mut server = Logged::of(1, SyncMode::EverySecond);
    let mut client = server.connect(1);
    // It has had an answer, so that several may be under way at the owner.
    let other = b"#!words name=o\necho\n";
    server.shards.send(&mut client, &[vec![b"FUNCTION", b"LOAD", other]]);
    server.shards.expect(&mut client, b"$1\r\no\r\n", "FUNCTION LOAD");
    server.sync(0);
    let words = "#!words name=w\nsafe_put\n";
    let call: Vec<&[u8]> = vec![b"FCALL", b"safe_put", b"1", b"k", b"v"];
    server.shards.send(&mut client, &[vec![b"FUNCTION", b"LOAD", words.as_bytes()], call]);
    server.is_silent_but(&mut client, b"$1\r\nw\r\n");
    server.sync(0);
    server.shards.expect(&mut client, b"$1\r\nw\r\n+put\r\n", "on disk");
}

#[test]
fn exec_waits_for_a_durable_call_in_it() {
    for mode in MODES {
        let mut server = with_safe_words(1, mode);
        let mut client = server.connect(0);
        let commands = ["MULTI", "SET a 1", "FCALL safe_put 1 k v", "EXEC"];
        server.send(&mut client, &commands);
        server.is_silent_but(&mut client, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
        assert!(server.logs[0].is_wanted());
        server.sync(0);
        let replies = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+put\r\n";
        server.shards.expect(&mut client, replies, "EXEC");
        if mode != SyncMode::Always {
            let replies = b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n";
            server.says(&mut client, &["MULTI", "SET a 2", "EXEC"], replies);
        }
    }
}

#[test]
fn a_durable_call_outlasts_always() {
    // The mode changes while replies are kept: only those of the call wait on.
    let mut server = with_safe_words(1, SyncMode::Always);
    let (mut safe, mut plain) = (server.connect(0), server.connect(1));
    server.send(&mut safe, &["FCALL safe_put 1 k v"]);
    server.send(&mut plain, &["SET a 1"]);
    server.is_silent(&mut safe, "always");
    server.is_silent(&mut plain, "always");
    let mut other = server.connect(1);
    server.says(&mut other, &["CONFIG SET appendfsync no"], OK);
    server.shards.expect(&mut plain, OK, "no");
    server.is_silent(&mut safe, "it insists");
    let now = Instant::now();
    let spins = |server: &Logged| server.shards.shards[0].work.has_synced(now);
    assert!(!spins(&server), "the shard may sleep meanwhile");
    server.sync(0);
    assert!(spins(&server));
    server.shards.expect(&mut safe, b"+put\r\n", "on disk");
}

#[test]
fn without_a_log_a_durable_call_is_refused_before_it_runs() {
    for shard in 0..SHARDS {
        let mut config = Config::default();
        config.set("appendonly", "no").expect("a flag");
        let mut shards = Shards::logged(&[1], config, None);
        let mut client = shards.connect(shard, TenantId(0));
        shards.send(&mut client, &[vec![b"FUNCTION", b"LOAD", WORDS.as_bytes()]]);
        shards.expect(&mut client, b"$1\r\nw\r\n", "FUNCTION LOAD");
        let text = "ERR function 'safe_put' has the flag durable, and this server keeps no log: \
                    CONFIG SET appendonly yes begins one, or load the function without the flag; \
                    nothing was run\r\n";
        let call: Vec<&[u8]> = vec![b"FCALL", b"safe_put", b"1", b"k", b"v"];
        let get: Vec<&[u8]> = vec![b"GET", b"k"];
        shards.send(&mut client, &[call.clone(), get.clone()]);
        shards.expect(&mut client, format!("-{text}$-1\r\n").as_bytes(), "FCALL");
        shards.send(&mut client, &[vec![b"MULTI"], vec![b"SET", b"k", b"1"], call]);
        shards.send(&mut client, &[vec![b"DISCARD"], get]);
        let replies = format!("+OK\r\n+QUEUED\r\n-{text}+OK\r\n$-1\r\n");
        shards.expect(&mut client, replies.as_bytes(), "MULTI");
        shards.send(&mut client, &[vec![b"FCALL", b"put", b"1", b"k", b"v"]]);
        shards.expect(&mut client, b"+put\r\n", "one without the flag runs");
    }
}

#[test]
fn with_a_broken_log_a_durable_call_is_refused_or_never_answered() {
    for mode in MODES {
        let mut server = with_safe_words(1, mode);
        let (mut lost, mut near, mut far) =
            (server.connect(1), server.connect(0), server.connect(1));
        server.send(&mut lost, &["FCALL safe_put 1 k v"]);
        server.is_silent(&mut lost, "it isn't on disk");
        server.tell(0, LogHealth::Broken, "it broke");
        assert!(server.is_closed(&mut lost) && lost.came.is_empty());
        let text = "MISCONF Nigh can't write its log: it broke. Reads go on, and a new log is \
                    written from memory (BGREWRITEAOF tries it at once); see INFO persistence.\r\n";
        for client in [&mut near, &mut far] {
            for call in ["FCALL safe_put 1 k w", "FCALL_RO safe_echo 0 x"] {
                server.says(client, &[call], format!("-{text}").as_bytes());
            }
            server.says(client, &["FCALL echo 0 x"], b"+x\r\n");
        }
        let aborted = "EXECABORT Transaction discarded because of previous errors.\r\n";
        let expected = format!("+OK\r\n-{text}-{aborted}");
        server.says(&mut near, &["MULTI", "FCALL safe_put 1 k w", "EXEC"], expected.as_bytes());
        // It breaks between the call and EXEC.
        server.tell(0, LogHealth::Well, "");
        server.sync(0);
        server.says(&mut near, &["MULTI", "FCALL safe_put 1 k w"], b"+OK\r\n+QUEUED\r\n");
        server.tell(0, LogHealth::Broken, "it broke");
        let expected = format!("-EXECABORT Transaction discarded because of: {text}");
        server.says(&mut near, &["EXEC"], expected.as_bytes());
        server.tell(0, LogHealth::Well, "");
        server.sync(0);
        server.after_sync(0, &mut far, &["FCALL safe_put 1 k x"], b"+put\r\n");
    }
}

#[test]
fn if_the_log_ends_a_durable_call_is_never_answered() {
    for shard in 0..SHARDS {
        let mut server = with_safe_words(1, SyncMode::EverySecond);
        let mut lost = server.connect(shard);
        server.send(&mut lost, &["FCALL safe_put 1 k v"]);
        server.is_silent(&mut lost, "it isn't on disk");
        let state = &mut server.shards.shards[shard].work.state;
        state.config.set("appendonly", "no").expect("a flag");
        state.shared.tell_synced();
        assert!(server.is_closed(&mut lost) && lost.came.is_empty());
    }
}
