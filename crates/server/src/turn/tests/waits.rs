//! WAIT and WAITAOF.

use super::logged::{Logged, OK};
use super::*;
use nigh_shm::DurableWord;
use nigh_store::SyncMode;

#[test]
fn waitaof_waits_for_the_disk() {
    for mode in [SyncMode::EverySecond, SyncMode::Always] {
        let mut server = Logged::of(2, mode);
        let far = server.key(0);
        let mut client = server.connect(1);
        server.says(&mut client, &["WAITAOF 1 0 0"], b"*2\r\n:1\r\n:0\r\n");
        server.send(&mut client, &[&format!("SET {far} v"), "WAITAOF 1 0 0", "PING"]);
        let most: &[u8] = if mode == SyncMode::Always { b"" } else { OK };
        server.is_silent_but(&mut client, most);
        assert!(server.logs[0].is_wanted() && !server.logs[1].is_wanted());
        assert_eq!(server.shards.shards[1].work.state.blocked, 1);
        // What others write now isn't waited for.
        let mut other = server.connect(0);
        let began = server.arenas(0)[0].begun_lsn();
        server.send(&mut other, &[&format!("SET {far} w")]);
        server.shards.turn(false);
        DurableWord::of(server.arenas(0)[0].region()).store(began);
        server.shards.shards[0].work.state.shared.tell_synced();
        let replies = b"+OK\r\n*2\r\n:1\r\n:0\r\n+PONG\r\n";
        server.shards.expect(&mut client, replies, "they are on disk");
        assert_eq!(server.shards.shards[1].work.state.blocked, 0);
        // A time that isn't enough, also for replicas, of which there are none.
        for (command, reply) in [
            ("WAITAOF 1 0 100", b"*2\r\n:0\r\n:0\r\n".as_slice()),
            ("WAITAOF 0 1 100", b"*2\r\n:0\r\n:0\r\n"),
            ("WAIT 1 100", b":0\r\n"),
        ] {
            server.send(&mut client, &[command]);
            server.is_silent(&mut client, command);
            server.shards.ahead += Duration::from_millis(100);
            server.shards.expect(&mut client, reply, command);
        }
        server.says(&mut client, &["WAITAOF 0 0 0", "WAIT 0 0"], b"*2\r\n:0\r\n:0\r\n:0\r\n");
        let in_multi = ["MULTI", "WAITAOF 1 1 0", "WAIT 1 0", "EXEC"];
        let mut other = server.connect(0);
        server.send(&mut other, &in_multi);
        if mode == SyncMode::Always {
            server.is_silent(&mut other, "EXEC may have looked at something");
            server.sync_all();
        }
        let exec = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*2\r\n:0\r\n:0\r\n:0\r\n";
        server.shards.expect(&mut other, exec, "nobody waits in there");
    }
}

#[test]
fn who_waits_for_ever_may_go() {
    let mut server = Logged::of(1, SyncMode::EverySecond);
    let mut client = server.connect(0);
    server.send(&mut client, &["WAIT 1 0", "PING"]);
    server.is_silent(&mut client, "there are no replicas");
    let work = &mut server.shards.shards[0].work;
    assert_eq!((work.state.blocked, work.slab.len()), (1, 1));
    work.slab.get_mut(client.slot).expect("it is there").pipe.input.closing = true;
    work.ready.queue(client.slot);
    assert!(server.is_closed(&mut client));
    let work = &server.shards.shards[0].work;
    assert_eq!((work.state.blocked, work.slab.len()), (0, 0));
}

#[test]
fn the_texts_of_waitaof_are_rediss() {
    let errors: [(&str, &[u8]); 8] = [
        ("WAITAOF a 0 0", b"-ERR value is not an integer or out of range\r\n"),
        ("WAITAOF 2 0 0", b"-ERR value is out of range, value must between 0 and 1\r\n"),
        ("WAITAOF -1 0 0", b"-ERR value is out of range, value must between 0 and 1\r\n"),
        ("WAITAOF 1 -1 0", b"-ERR value is out of range, must be positive\r\n"),
        ("WAITAOF 1 a 0", b"-ERR value is out of range, must be positive\r\n"),
        ("WAITAOF 1 0 a", b"-ERR timeout is not an integer or out of range\r\n"),
        ("WAITAOF 1 0 -1", b"-ERR timeout is negative\r\n"),
        ("WAIT a 0", b"-ERR value is not an integer or out of range\r\n"),
    ];
    let mut logged = Logged::of(1, SyncMode::EverySecond);
    let mut client = logged.connect(0);
    for (command, error) in errors {
        logged.says(&mut client, &[command], error);
    }
    let mut plain = Logged { shards: Shards::of(&[1]), logs: Vec::new() };
    let mut client = plain.connect(1);
    let none = b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n";
    plain.says(&mut client, &["WAITAOF 1 0 0"], none);
    plain.says(&mut client, &["WAITAOF 0 0 0", "WAIT 0 0"], b"*2\r\n:0\r\n:0\r\n:0\r\n");
    plain.says(&mut client, &["WAITAOF 1 0 -5"], b"-ERR timeout is negative\r\n");
}

#[test]
fn a_shard_sleeps_only_if_the_logs_have_told_nothing() {
    let mut server = Logged::of(1, SyncMode::Always);
    server.shards.ahead = Duration::ZERO; // the shard is asked about our time
    let mut client = server.connect(0);
    let awaits = |server: &Logged| server.shards.shards[0].work.awaits_sync(true);
    let has_synced = |server: &Logged| server.shards.shards[0].work.has_synced(Instant::now());
    assert!(awaits(&server) && !has_synced(&server), "nobody waits");
    server.sync(0);
    assert!(awaits(&server) && !has_synced(&server), "nobody waits");
    server.send(&mut client, &["SET k v"]);
    server.is_silent(&mut client, "SET");
    assert!(awaits(&server) && !has_synced(&server));
    server.sync(1);
    assert!(!awaits(&server) && has_synced(&server), "it looks what that was");
    server.shards.turn(false);
    assert!(awaits(&server) && !has_synced(&server));
    server.sync(0);
    server.shards.expect(&mut client, OK, "SET");
    assert!(awaits(&server) && !has_synced(&server));
    // It also wakes when somebody has waited for as long as he said.
    server.send(&mut client, &["WAIT 1 5000"]);
    server.is_silent(&mut client, "WAIT");
    assert!(!has_synced(&server));
    let work = &server.shards.shards[0].work;
    assert!(work.has_synced(Instant::now() + Duration::from_secs(6)));
    assert!(work.synced.next_end.is_some_and(|end| end > Instant::now()));
}
