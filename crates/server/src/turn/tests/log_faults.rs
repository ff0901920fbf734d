//! Writes while a log can't be written.

use super::logged::{Logged, NULL, OK};
use super::*;
use nigh_store::{LogHealth, SyncMode};

#[test]
fn a_broken_log_refuses_writes_and_reads_go_on() {
    let mut server = Logged::of(1, SyncMode::Always);
    let (mut near, mut far) = (server.connect(0), server.connect(1));
    server.load(&mut near, "#!words name=w\nput echo count\n");
    server.after_sync(0, &mut near, &["SET k v"], OK);
    // One write is under way when it breaks: that client is never told that it is done. Another
    // one had read what isn't on disk.
    let (mut lost, mut reads) = (server.connect(0), server.connect(1));
    server.send(&mut lost, &["SET lost v"]);
    server.is_silent(&mut lost, "SET");
    server.send(&mut reads, &["GET none"]);
    server.is_silent(&mut reads, "GET");
    server.tell(0, LogHealth::Broken, "fdatasync: Input/output error");
    assert!(server.is_closed(&mut lost) && lost.came.is_empty());
    server.shards.expect(&mut reads, NULL, "reads go on");
    let refusal = "MISCONF Nigh can't write its log: fdatasync: Input/output error. Reads go on, \
                   and a new log is written from memory (BGREWRITEAOF tries it at once); see INFO \
                   persistence.\r\n";
    let refused = format!("-{refusal}");
    for client in [&mut near, &mut far] {
        for write in ["SET k w", "DEL k", "INCR n", "FLUSHALL", "EXPIRE k 9", "MSET a 1 b 2"] {
            server.says(client, &[write], refused.as_bytes());
        }
        server.says(client, &["FCALL put 1 k w"], refused.as_bytes());
        let commands = ["GET k", "GET lost", "GET none", "DBSIZE", "FCALL count 0 x", "PING"];
        let reads = b"$1\r\nv\r\n$1\r\nv\r\n$-1\r\n:2\r\n+0\r\n+PONG\r\n";
        server.says(client, &commands, reads);
    }
    let queued = "+OK\r\n+QUEUED\r\n";
    let exec = format!("{queued}-EXECABORT Transaction discarded because of: {refusal}");
    server.says(&mut near, &["MULTI", "SET k w", "EXEC"], exec.as_bytes());
    let exec = format!("{queued}*1\r\n$1\r\nv\r\n");
    server.says(&mut near, &["MULTI", "GET k", "EXEC"], exec.as_bytes());
    let exec = format!("{queued}*1\r\n{refused}");
    server.says(&mut near, &["MULTI", "FCALL put 1 k w", "EXEC"], exec.as_bytes());
    // A base counts: writes go on.
    server.tell(0, LogHealth::Well, "");
    server.sync(0);
    server.after_sync(0, &mut far, &["SET k w"], OK);
}

const REFUSED: &[u8] =
    b"-MISCONF Nigh can't write its log: it broke. Reads go on, and a new log is \
    written from memory (BGREWRITEAOF tries it at once); see INFO persistence.\r\n";

#[test]
fn a_write_that_runs_behind_the_break_in_the_same_turn_is_never_told() {
    // The turn has found the log well, so the write runs; no disk will have it. Its client was told
    // that it is done, since the log that had broken by then was one that takes no writes.
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(0);
    server.load(&mut client, "#!words name=w\nbreaks\n");
    server.send(&mut client, &["FCALL breaks 0", "SET k v"]);
    assert!(server.is_closed(&mut client) && client.came.is_empty());
    let mut reads = server.connect(0);
    server.says(&mut reads, &["GET k", "SET k w"], &[b"$1\r\nv\r\n", REFUSED].concat());
}

#[test]
fn a_write_that_another_shard_sends_behind_the_break_is_refused() {
    // The asking shard has seen that the log is broken, so it waits for no sync of what it sends.
    // The owner is in a turn that began before.
    let mut server = Logged::of(1, SyncMode::Always);
    let mut client = server.connect(1);
    server.send(&mut client, &["SET k v"]);
    let wait = Duration::from_secs(1);
    server.shards.shards[0].work.state.logs.look(Instant::now(), wait);
    server.logs[0].tell_health(LogHealth::Broken, "it broke".to_owned());
    server.shards.turn_one(1, false);
    {
        let Shard { work, participant, .. } = &mut server.shards.shards[0];
        let pin = participant.pin();
        let turn = Turn { now_ms: server.shards.now_ms, pin: &pin, random: 1 };
        work.receive_peers(&turn);
        work.complete(&turn);
        work.mailbox.flush();
    }
    server.shards.expect(&mut client, REFUSED, "it is refused");
    server.says(&mut client, &["GET k"], NULL);
}

#[test]
fn each_log_is_about_its_own_partitions() {
    let mut server = Logged::of(2, SyncMode::EverySecond);
    let (near, far) = (server.key(1), server.key(0));
    let mut client = server.connect(1);
    server.load(&mut client, "#!words name=w\nspread\n");
    let call = format!("FCALL spread 2 {near} {far} v");
    server.says(&mut client, &[&call], b"+spread\r\n");
    server.tell(0, LogHealth::Broken, "it broke");
    server.says(&mut client, &[&format!("SET {near} w")], OK);
    for command in [call, format!("SET {far} w"), format!("MSET {near} x {far} x")] {
        server.says(&mut client, &[&command], REFUSED);
    }
    let read = format!("MGET {near} {far}");
    server.says(&mut client, &[&read], b"*2\r\n$1\r\nx\r\n$1\r\nv\r\n");
    server.tell(0, LogHealth::Full, "no space");
    let parts = format!("DEL {near} {far}");
    server.says(&mut client, &[&parts], b":2\r\n");
}

#[test]
fn a_full_disk_takes_removals() {
    let mut server = Logged::of(1, SyncMode::EverySecond);
    let (mut near, mut far) = (server.connect(0), server.connect(1));
    server.says(&mut near, &["MSET a 1 b 2 c 3 d 4"], OK);
    server.tell(0, LogHealth::Full, "no space left for the next file");
    let refusal = "MISCONF Nigh can't write its log: no space left for the next file. Reads go \
                   on; see INFO persistence.\r\n";
    let refused = format!("-{refusal}");
    for client in [&mut near, &mut far] {
        server.says(client, &["SET a 2", "DEL a"], format!("{refused}:1\r\n").as_bytes());
        server.says(client, &["DEL a", "UNLINK a", "GET b"], b":0\r\n:0\r\n$1\r\n2\r\n");
        server.logs[0].tell_health(LogHealth::Well, String::new());
        server.says(client, &["SET a 1"], OK);
        server.tell(0, LogHealth::Full, "no space left for the next file");
    }
    let removes = ["MULTI", "DEL b", "GETDEL c", "EXEC"];
    server.says(&mut near, &removes, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$1\r\n3\r\n");
    let exec = format!("+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: {refusal}");
    server.says(&mut near, &["MULTI", "SET b 1", "EXEC"], exec.as_bytes());
    let exec = exec.replacen("+QUEUED", "+QUEUED\r\n+QUEUED\r\n+QUEUED", 1);
    let mixed = ["MULTI", "DEL d", "SET b 1", "GET d", "EXEC"];
    server.says(&mut near, &mixed, exec.as_bytes());
    server.says(&mut near, &["GET d"], b"$1\r\n4\r\n");
    server.says(&mut far, &["FLUSHALL", "DBSIZE"], b"+OK\r\n:0\r\n");
}

#[test]
fn parts_of_a_refused_command_are_not_the_next_ones() {
    // MSET had done one part when the journal was full. When it came again, the disk was full too,
    // and it was refused. What it had done stayed on the connection: the next DEL over the same
    // partitions took it for its own reply, and ended the server; the next MSET skipped that part.
    let mut server = Logged::of(4, SyncMode::EverySecond);
    let (first, second) = (server.key(0), server.key(2));
    let mut client = server.connect(0);
    server.says(&mut client, &[&format!("MSET {first} 1 {second} 1")], OK);
    server.tell(0, LogHealth::Full, "no space");
    let connection = server.shards.shards[0].work.slab.get_mut(client.slot).expect("it is there");
    connection.done_parts.insert(0, OK.to_vec());
    let refused = b"-MISCONF Nigh can't write its log: no space. Reads go on; see INFO \
                    persistence.\r\n";
    server.says(&mut client, &[&format!("MSET {first} 2 {second} 2")], refused);
    server.says(&mut client, &[&format!("DEL {first} {second}")], b":2\r\n");
}

#[test]
fn writes_wait_for_a_late_disk() {
    // `everysec` promises a second. After two, writes wait for one more, then they are refused.
    let mut server = Logged::of(1, SyncMode::EverySecond);
    let (mut near, mut far) = (server.connect(0), server.connect(1));
    server.says(&mut near, &["SET k v"], OK);
    server.logs[0].tell_unsynced_since(Some(5));
    server.shards.turn(false);
    server.shards.ahead += Duration::from_millis(2_100);
    server.send(&mut near, &["SET k w", "GET k"]);
    server.send(&mut far, &["INCR n"]);
    server.is_silent(&mut near, "SET waits");
    server.is_silent(&mut far, "INCR waits");
    let mut reads = server.connect(1);
    server.says(&mut reads, &["GET k"], b"$1\r\nv\r\n");
    server.logs[0].tell_unsynced_since(None);
    server.shards.expect(&mut near, b"+OK\r\n$1\r\nw\r\n", "they go on");
    server.shards.expect(&mut far, b":1\r\n", "they go on");
    // And now it stays late.
    server.logs[0].tell_unsynced_since(Some(6));
    server.shards.turn(false);
    server.shards.ahead += Duration::from_millis(2_100);
    let commands = ["MULTI", "SET k x", "EXEC"];
    server.send(&mut near, &commands);
    server.send(&mut far, &["DEL k"]);
    server.is_silent(&mut far, "DEL waits");
    server.is_silent_but(&mut near, b"+OK\r\n+QUEUED\r\n");
    server.shards.ahead += Duration::from_millis(1_000);
    let why = "MISCONF Nigh can't write its log: the disk hasn't taken the oldest change for more \
               than 2 seconds. Reads go on; see INFO persistence.\r\n";
    server.shards.expect(&mut far, format!("-{why}").as_bytes(), "it is refused");
    let exec = format!("+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: {why}");
    server.shards.expect(&mut near, exec.as_bytes(), "it is refused");
    server.says(&mut near, &["GET k"], b"$1\r\nw\r\n");
}
